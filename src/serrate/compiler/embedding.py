"""Embedding: how torch.compile sees a call of a compiled function, as one operator in the graph of its caller.

`embedded` is Python that torch.compile traces. It takes the arguments apart into torch tensors and constants, calls the
operator of `serrate.compiler.opaque`, and puts what the function returns together again. All that it needs to know is
found by `_found`, which runs once for each trace, on constants.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from weakref import ref

import torch
from torch._C import _are_functorch_transforms_active
from torch.autograd import forward_ad

from serrate.compiler.constants import KEPT
from serrate.compiler.described import Description, PartitionSpec, TensorSpec
from serrate.compiler.opaque import COMPILED, DRAW, enter
from serrate.compiler.plans import Plan, plan_of
from serrate.compiler.signature import Unsupported
from serrate.tensor import regions
from serrate.tensor.identity import Identity
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Ragged, Structure
from serrate.tensor.tensor import Tensor
from serrate.tensor.tracing import part

_calls = itertools.count()


# ---------------------------------------------------------------------------------------------- what is traced


def embedded(jitted: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A call in a graph."""
    tensors: list[Any] = []
    partitions: list[Any] = []
    specs: list[Any] = []
    positional = tuple([_look(each, tensors, partitions, specs) for each in arguments])
    options = tuple([(name, _look(each, tensors, partitions, specs)) for name, each in named.items()])
    cuts = tuple([(each._offsets.dtype, each._searched, _uniform(each)) for each in partitions])
    found = _found(jitted, positional, options, tuple(specs), cuts)
    if found[0] is None:
        torch._dynamo.graph_break(msg=found[1])
        return jitted._uncompiled(*arguments, **named)
    name, draws, call, count, returned, shapes, cut = found
    keys = DRAW(call, draws, torch.empty(0, device="cpu")) if draws else None
    plan = getattr(jitted._plans, name)  # An attribute may be new, which an entry of a dict may not be.
    captured = [plan.captured[number] for number in range(count)]
    given = [each.values if isinstance(each, Tensor) else each for each in (*tensors, *captured)]
    made = COMPILED(name, [*given, *[each._offsets for each in partitions]], keys)
    parts = [_partition(how, tensors, made) for how in cut]
    structures = [_structure(how, tensors, made, parts) for how in shapes]
    return _returned(returned, plan, tensors, captured, made, structures)


def method_of(jitted: Any, instance: Any, owner: Any) -> Any:
    """The compiled method of an object, in a graph."""
    name = _method(jitted, instance, owner)
    return getattr(getattr(instance, KEPT), name)


def _look(part: Any, tensors: list[Any], partitions: list[Any], specs: list[Any]) -> Any:
    """A part of the arguments, as `Description` has it."""
    if isinstance(part, (Tensor, torch.Tensor)):
        specs.append(_tensor(part, partitions))
        tensors.append(part)
        return "tensor", len(tensors) - 1
    if isinstance(part, dict):
        return "dict", tuple(part), tuple([_look(each, tensors, partitions, specs) for each in part.values()])
    if isinstance(part, (tuple, list)):
        return type(part), tuple([_look(each, tensors, partitions, specs) for each in part])
    if isinstance(part, slice):
        bounds = (part.start, part.stop, part.step)
        return "slice", tuple([_look(each, tensors, partitions, specs) for each in bounds])
    if isinstance(part, int) and not isinstance(part, bool):
        return "constant", operator.index(part)
    if isinstance(part, float):
        return "constant", torch.fx.experimental.symbolic_shapes.guard_scalar(part)
    return "constant", part


def _tensor(x: Any, partitions: list[Any]) -> Any:
    """A tensor among the arguments, as `TensorSpec` has it."""
    if isinstance(x, torch.Tensor):
        if isinstance(x, torch.nn.Parameter):
            sizes = tuple([operator.index(size) for size in x.shape])
            return "parameter", x.dtype, x.device, x.requires_grad, sizes, (), ()
        return "torch", x.dtype, x.device, x.requires_grad, _sizes(x), (), ()
    if type(x) is not Tensor:
        return (None,)
    values = x.values
    axes: list[Any] = []
    order = tuple([operator.index(place) for place in x.order])
    if x.structure is DENSE:
        return "dense", values.dtype, values.device, values.requires_grad, _sizes(values), order, ()
    for number, axis in enumerate(x.structure.axes):
        if number == 0:
            axes.append(-1)
        elif isinstance(axis, Ragged):
            cut = (_number(axis.partition, partitions), tuple([operator.index(place) for place in axis.parents]))
            axes.append(cut)
        else:
            axes.append(operator.index(axis))
    sizes = (-1, *[operator.index(size) for size in values.shape[1:]])
    return "ragged", values.dtype, values.device, values.requires_grad, sizes, order, tuple(axes)


def _sizes(values: torch.Tensor) -> Any:
    """The sizes of a dense tensor: −1 for the first one, which is no constant unless it is 1."""
    if values.ndim == 0:
        return ()
    return (1 if values.shape[0] == 1 else -1, *[operator.index(size) for size in values.shape[1:]])


def _number(partition: Any, partitions: list[Any]) -> int:
    """The number of a partition, which is told from others by its identity."""
    for number, each in enumerate(partitions):
        if each is partition:
            return number
    partitions.append(partition)
    return len(partitions) - 1


def _uniform(partition: Any) -> Any:
    """What a description has of the one length of a partition; "device" if only a device knows the lengths."""
    if partition._device_born or not partition._exact:
        return "device"
    return None if partition._uniform_length is None else operator.index(partition._uniform_length)


def _partition(how: Any, tensors: list[Any], made: Any) -> Any:
    """A partition of a result."""
    if how[0] == "argument":
        return tensors[how[1]].structure.axes[how[2]].partition
    _, offsets, size, uniform_length = how
    cut = object.__new__(Partition)
    cut._offsets = made[offsets]
    cut._num_values = made[size[1]].shape[0] if isinstance(size, tuple) else size
    cut._device_born, cut._exact, cut._searched = False, True, False
    cut._bound = cut._max_length = None
    cut._memo, cut._coarse, cut._declared, cut._moved = {}, {}, {}, {}
    cut._identity, cut._uniform_length, cut._version = Identity(), uniform_length, None
    return cut


def _structure(how: Any, tensors: list[Any], made: Any, partitions: list[Any]) -> Any:
    """The structure of a result."""
    if how[0] == "argument":
        return tensors[how[1]].structure
    axes: list[Any] = []
    for axis in how[1]:
        if isinstance(axis, int):
            axes.append(axis)
        elif axis[0] == "size":
            axes.append(made[axis[1]].shape[0])
        else:
            axes.append(Ragged(partitions[axis[1]], axis[2]))
    return Structure(axes)


def _returned(how: Any, plan: Any, tensors: list[Any], captured: list[Any], made: Any, structures: list[Any]) -> Any:
    """A part of what the function returns."""
    kind = how[0]
    if kind == "constant":
        return how[1]
    if kind == "size":
        return made[how[1]].shape[0]
    if kind == "argument" or kind == "captured":
        given = (tensors if kind == "argument" else captured)[how[1]]
        if how[2]:
            return given.values if isinstance(given, Tensor) else given
        return given if isinstance(given, Tensor) else Tensor(given)
    if kind == "torch":
        return made[how[1]]
    if kind == "dense":
        return Tensor(made[how[1]], DENSE, how[2])
    if kind == "ragged":
        return Tensor(made[how[1]], structures[how[2]], how[3])
    if kind == "dict":
        parts = [_returned(each, plan, tensors, captured, made, structures) for each in how[2]]
        return dict(zip(how[1], parts, strict=True))
    parts = [_returned(each, plan, tensors, captured, made, structures) for each in how[1]]
    if kind == "named":
        return plan.classes[how[2]](*parts)
    return parts if kind == "list" else tuple(parts)


part([embedded, method_of, _look, _tensor, _sizes, _number, _uniform, _partition, _structure, _returned])


# ------------------------------------------------------------------------------------- what runs while it is traced


def _found(jitted: Any, arguments: Any, named: Any, specs: Any, cuts: Any) -> tuple[Any, ...]:
    """What the traced code has to know: the name of the plan, and how results are put together; or None and a reason
    why the call breaks the graph."""
    where = f"the compiled function {jitted._name} is called outside of the graph, since "
    if forward_ad._current_level >= 0 or _are_functorch_transforms_active():
        return None, where + "a transform of torch.func is active"
    if any(each[0] is None for each in specs):
        return None, where + "an argument is a result of group_by"
    if any(each[-1] == "device" for each in cuts):
        return None, where + "only a device knows the lengths of an argument"
    try:
        description = Description(
            arguments,
            named,
            tuple(TensorSpec(*each) for each in specs),
            tuple(PartitionSpec(*each) for each in cuts),
        )
        with _contexts_of_torch():
            plan = _planned(jitted, description)
            _guard(plan)
    except Unsupported as error:
        return None, where + str(error)
    except Exception as error:  # The call that runs outside of the graph raises it as it is.
        return None, f"{where}it raises {type(error).__name__}: {error}"
    call = next(_calls) if plan.draws else 0
    return plan.name, plan.draws, call, len(plan.captured), plan.returned, plan.shapes, plan.partitions


_found._dynamo_marked_constant = True  # type: ignore[attr-defined]  # what torch.compiler.assume_constant_result does


def _method(jitted: Any, instance: Any, owner: Any) -> str:
    """Make the compiled method of an object, and tell its name among those of the object."""
    return jitted._bound_to(instance, owner)._name_of_method  # type: ignore[no-any-return]


_method._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _planned(jitted: Any, description: Description) -> Plan:
    """The plan of a call: the one that an earlier trace found, where nothing else is called."""
    made = plan_of(jitted, description)
    for each in vars(jitted._plans).values():
        if each.compiled is made.compiled and each.description == description:
            return each  # type: ignore[no-any-return]
    enter(made)
    setattr(jitted._plans, made.name, made)
    return made


def _contexts_of_torch() -> AbstractContextManager[Any]:
    """The contexts of torch that the traced code stands in, such as `torch.device("cuda")`: torch.compile sets them
    aside while it traces."""
    from torch._dynamo.variables.torch_function import torch_function_mode_stack_state_mgr

    return torch_function_mode_stack_state_mgr.temp_restore_stack()


def _guard(plan: Plan) -> None:
    """Let torch.compile trace its caller again when something has changed that the function finds outside."""
    from torch._dynamo.guards import install_guard
    from torch._dynamo.source import GlobalStateSource

    if plan.guard is None:  # Several calls in one graph have one guard.
        plan.guard = _guard_of(plan)
    install_guard(GlobalStateSource().make_guard(plan.guard))


def _guard_of(plan: Plan) -> Callable[[Any, Any], None]:
    """What gives torch.compile a guard that asks whether all is as it was."""
    name, outside, function = plan.jitted._name, plan.outside, ref(plan.jitted)
    device = regions.default()

    def is_same(_: Any) -> bool:
        kept = function()
        return kept is not None and kept._outside.key() == outside and regions.default() == device

    def create(builder: Any, guard: Any) -> None:
        add, text = (
            builder.guard_manager.root.add_lambda_guard,
            [f"what {name} finds outside is what it was, and where it makes tensors"],
        )
        try:
            add(is_same, text, guard.user_stack)
        except TypeError:  # torch 2.9 takes no stack
            add(is_same, text)

    return create
