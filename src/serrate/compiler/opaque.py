"""The operators that stand for a call of a compiled function in the graphs of torch's compilers.

`serrate::compiled` is given the packed values of arguments and captured tensors and the offsets of their partitions,
and gives what its plan says (`serrate.compiler.plans`), flat. `serrate::compiled_back` is its way back. Both run the
programs of Serrate; where tensors have no elements, they make results of the shapes that types say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch

from serrate.compiler.gradients import filled, shell_of
from serrate.compiler.hosting import GuardFailed
from serrate.compiler.measures import Measures
from serrate.compiler.plans import Plan, shape_of
from serrate.compiler.spellings import tensors_in
from serrate.compiler.tickets import held, record_of, ticket
from serrate.eager.philox import replayed
from serrate.eager.precision import casting
from serrate.lowering.keys import draw, key_of
from serrate.passes.vjp import RECORD
from serrate.program.devices import stand_in
from serrate.program.partitions import Expression
from serrate.program.sizes import Symbol
from serrate.program.types import RaggedAxis, Value
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged, Structure
from serrate.tensor.tensor import Tensor

PLANS: WeakValueDictionary[str, Plan] = WeakValueDictionary()
"""The plans by their names. The compiled function keeps them."""

_LIBRARY: Any = torch.library.Library("serrate", "FRAGMENT")  # type: ignore[no-untyped-call]


def enter(plan: Plan) -> None:
    """Give a plan a name of its own, under which the operators find it."""
    name, count = plan.name, 0
    while plan.name in PLANS:
        count += 1
        plan.name = f"{name}_{count}"
    PLANS[plan.name] = plan


def plan_named(name: str) -> Plan:
    """The plan that a graph names."""
    plan = PLANS.get(name)
    if plan is None:
        raise RuntimeError(f"the compiled function {name!r} that this graph calls does not exist any more")
    return plan


# --------------------------------------------------------------------------------------------------------- forward


def _forward(name: str, tensors: Sequence[torch.Tensor], keys: torch.Tensor | None) -> list[torch.Tensor]:
    """What a compiled function gives for these packed values and offsets."""
    plan = plan_named(name)
    plan.jitted.stats.calls += 1
    described, count = plan.description, len(plan.packed)
    packed, offsets = tensors[:count], tensors[count:]
    if plan.records:
        packed, offsets = _owned(plan, packed), [each.clone() for each in offsets]
    arguments = described.tensors_of(packed[: len(described.tensors)], described.partitions_of(offsets))
    captured = [
        filled(shell_of(each), values)
        for each, values in zip(plan.captured, packed[len(arguments) :], strict=True)
    ]  # fmt: skip
    inputs = [*arguments, *plan.loose, *captured]
    with _surroundings(plan, keys):
        made = _run(plan, arguments, inputs)
    measures = plan.measures(packed, offsets) if plan.tells_sizes else Measures()
    for value, each in zip(plan.made, made, strict=True) if plan.tells_sizes else ():
        measures.tell_tensor(value.type, each)
    given: list[torch.Tensor] = []
    for output, place in zip(plan.outputs, plan.places, strict=True):
        if isinstance(output, Value):
            given.append(ticket(made[place]) if output.type == RECORD else _packed(made[place]))
        elif isinstance(output, Expression):
            given.append(measures.partitions[output].offsets)
        else:
            given.append(torch.empty(measures.of(output), 0, dtype=torch.uint8, device="cpu"))
    return _unshared(given, [*tensors, *packed, *held(made)]) if plan.shares else given


def _owned(plan: Plan, packed: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The packed values in memory that nobody else writes to, where records keep them. A graph uses the memory of a
    tensor again as soon as nothing in the graph reads it; that of captured tensors is no graph's."""
    captured = {_storage(each.values if isinstance(each, Tensor) else each) for each in plan.captured}
    return [
        each.clone() if number in plan.recorded and _storage(each) not in captured else each
        for number, each in zip(plan.packed, packed, strict=True)
    ]


def _storage(given: torch.Tensor) -> int:
    return given.untyped_storage()._cdata  # type: ignore[no-any-return]


def _run(plan: Plan, arguments: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The tensors that a program makes, in the order of `plan.made`."""
    way_back = plan.differentiable
    try:
        if way_back is None:
            return list(tensors_in(plan.compiled.run(*inputs)))
        (results, _), saved, _ = way_back.forward(*inputs)
        return [*results, *saved]
    except GuardFailed as error:
        positional, named = plan.description.arguments_of(arguments)
        plan.jitted.function(*positional, **named)  # It raises the error that says what does not fit.
        raise RuntimeError(
            f"the arguments of {plan.jitted._name} do not fit each other as they did when torch.compile traced the "
            f"call ({error})"
        ) from None


def _packed(given: Any) -> torch.Tensor:
    values: torch.Tensor = given.values if isinstance(given, Tensor) else given
    if values.dtype.is_complex:
        values = values.resolve_conj().resolve_neg()
    return (values.detach() if values.requires_grad else values).contiguous()


def _unshared(made: list[torch.Tensor], given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors, each in memory of its own, as graphs take it for granted."""
    seen = set(map(_storage, given))
    for number, each in enumerate(made):
        storage = _storage(each)
        if storage in seen:
            made[number] = each.clone()
        seen.add(storage)
    return made


def _surroundings(plan: Plan, keys: torch.Tensor | None) -> contextlib.AbstractContextManager[Any]:
    """In what a program runs: without gradients, as torch's compilers take care of them; with autocast as it was when
    the call was traced; and with these keys."""
    is_cast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    if not plan.records and keys is None and not plan.autocast and not is_cast:
        return torch.no_grad()
    stack = contextlib.ExitStack()
    stack.enter_context(torch.no_grad())
    stack.enter_context(casting(plan.autocast))
    if plan.records:
        stack.enter_context(_Above())
    if keys is not None:
        stack.enter_context(replayed([key_of(seed, call) for seed, call in keys]))
    return stack


class _Above:
    """A context in which autograd sees what is called, although the operator itself runs below it: the record of a
    library call is made by autograd."""

    guard: Any

    def __enter__(self) -> None:
        excluded = torch._C._dispatch_tls_local_exclude_set()
        for key in _AUTOGRAD:
            excluded = excluded.remove(key)
        included = torch._C._dispatch_tls_local_include_set()
        self.guard = torch._C._ForceDispatchKeyGuard(included, excluded)
        self.guard.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.guard.__exit__(*error)


_AUTOGRAD = [
    getattr(torch._C.DispatchKey, name)
    for name in ("AutogradFunctionality", "ADInplaceOrView", "AutogradOther", "AutogradNestedTensor")
    if hasattr(torch._C.DispatchKey, name)
]


def _forward_shapes(name: str, tensors: Sequence[torch.Tensor], keys: torch.Tensor | None) -> list[torch.Tensor]:
    """Results without elements."""
    plan = plan_named(name)
    count = len(plan.packed)
    measures = plan.measures(tensors[:count], tensors[count:])
    context = torch.library.get_ctx()

    def unknown(_: Symbol) -> Any:
        return context.new_dynamic_size()

    made = []
    for output in plan.outputs:
        sizes = [measures.of(size, unknown) for size in shape_of(output)]
        dtype, device = torch.uint8, torch.device("cpu")
        if isinstance(output, Value):
            dtype, device = output.type.dtype, stand_in(output.type.device)
            if output.type == RECORD:
                sizes, dtype = [1], torch.int64
        elif isinstance(output, Expression):
            dtype, device = output.dtype, stand_in(output.device)
        made.append(torch.empty(sizes, dtype=dtype, device=device))
    return made


# ------------------------------------------------------------------------------------------------------------ back


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    """Save what the way back of a call needs: saved values, then offsets and sizes."""
    name, tensors, _ = inputs
    plan = plan_named(name)
    ctx.mark_non_differentiable(*(output[number] for number in plan.fresh))
    ctx.set_materialize_grads(False)
    ctx.plan, ctx.count, way_back = name, len(tensors), plan.differentiable
    if way_back is None:
        return
    known = dict(zip(plan.packed, tensors, strict=False))
    made = dict(zip(plan.outputs, output, strict=True))
    saved = [known[plan.inputs.index(v)] if v in plan.inputs else made[v] for v in plan.saved_tensors]
    sizes = [each for what, each in made.items() if not isinstance(what, Value)]
    ctx.save_for_backward(*saved, *tensors[len(plan.packed) :], *sizes)
    ctx.shapes = [known[number].shape for number in way_back.ways.whole.gradients]
    ctx.flat = [
        (plan.packed.index(n), known[n].shape, known[n].dtype, known[n].device) for n in way_back.ways.whole.zeros
    ]
    results = [output[number] for number in way_back.differentiable]
    ctx.like = [(each.shape, each.dtype, each.device) for each in results]


def _gradients(ctx: Any, given: Any) -> Any:
    """The gradients of all tensors that a call was given."""
    plan = plan_named(ctx.plan)
    way_back, found = plan.differentiable, [None] * ctx.count
    if way_back is None:
        return None, found, None
    gradients = []
    for number, (shape, dtype, device) in zip(way_back.differentiable, ctx.like, strict=True):
        each = given[number]
        gradients.append(torch.zeros(shape, dtype=dtype, device=device) if each is None else each)
    sizes = [size for shape in ctx.shapes for size in shape]
    made = BACK(ctx.plan, [*ctx.saved_tensors, *gradients], sizes)
    for number, each in zip(way_back.ways.whole.gradients, made, strict=True):
        found[plan.packed.index(number)] = each
    for place, shape, dtype, device in ctx.flat:
        found[place] = torch.zeros(shape, dtype=dtype, device=device)
    return None, found, None


def _backward(name: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    """The gradients of a call, in the order in which the program of the way back gives them."""
    plan = plan_named(name)
    way_back, back = plan.differentiable, plan.compiled.back
    assert way_back is not None
    assert back is not None
    left = iter(tensors)
    saved = {value: next(left) for value in plan.saved_tensors}
    measures = Measures()
    partitions = plan.description.partitions_of([next(left) for _ in plan.description.partitions])
    for expression, partition in zip(plan.expressions, partitions, strict=True):
        measures.tell_partition(expression, partition)
    for output in plan.outputs:
        if isinstance(output, Expression):
            offsets = next(left)
            measures.tell_partition(output, Partition._of(offsets, int(offsets[-1])))
        elif not isinstance(output, Value):
            measures.tell(output, next(left).shape[0])
    saved |= zip([plan.inputs[number] for number in plan.loose_numbers], plan.loose, strict=True)
    results = [way_back.results[number] for number in way_back.differentiable]
    pairs = [*((value, saved[value]) for value in plan.saved), *zip(results, left, strict=True)]
    for value, each in pairs:
        if value.type != RECORD:
            measures.tell_shape(value.type, each.shape)
    structures: dict[tuple[Any, ...], Structure] = {}
    given = [_again(value, each, measures, structures) for value, each in pairs]
    with _surroundings(plan, None):
        made = back.run(*given)
    return _unshared([_packed(each) for each in made], tensors)


def _again(value: Value, packed: torch.Tensor, measures: Measures, structures: dict[tuple[Any, ...], Structure]) -> Any:
    """A tensor of the way back, around its packed values."""
    kind = value.type
    if kind == RECORD:
        return record_of(packed)
    if not kind.axes:
        return packed
    if kind.axes not in structures:
        structures[kind.axes] = Structure(
            Ragged(measures.partitions[axis.partition], axis.parents)
            if isinstance(axis, RaggedAxis)
            else measures.of(axis)
            for axis in kind.axes
        )
    return Tensor(packed, structures[kind.axes], kind.order)


def _backward_shapes(name: str, tensors: Sequence[torch.Tensor], sizes: Sequence[Any]) -> list[torch.Tensor]:
    """Gradients without elements."""
    plan = plan_named(name)
    assert plan.differentiable is not None
    made, left = [], iter(sizes)
    for number in plan.differentiable.ways.whole.gradients:
        kind = plan.inputs[number].type
        count = len(kind.features) + (kind.rows is not None)
        made.append(torch.empty([next(left) for _ in range(count)], dtype=kind.dtype, device=stand_in(kind.device)))
    return made


def _no_second(ctx: Any, given: Any) -> Any:
    raise RuntimeError(
        "second derivatives of a compiled function are asked for, which is an operator in a graph of torch.compile; "
        "call the function outside of torch.compile, where it computes them eagerly"
    )


# ------------------------------------------------------------------------------------------------------------ keys


def _draw(call: int, count: int, like: torch.Tensor) -> torch.Tensor:
    """So many keys of random numbers, int64 [count, 2], as the function itself would draw them."""
    return torch.stack([torch.stack(draw()) for _ in range(count)])


def _draw_shape(call: int, count: int, like: torch.Tensor) -> torch.Tensor:
    return torch.empty(count, 2, dtype=torch.int64, device="cpu")


def _entered(schema: str, run: Callable[..., Any], shapes: Callable[..., Any], *tags: torch.Tag) -> Callable[..., Any]:
    """An operator: what runs it, and what makes its results where tensors have no elements."""
    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag, *tags))
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"serrate::{name}", shapes, lib=_LIBRARY)
    made: Callable[..., Any] = getattr(torch.ops.serrate, name).default
    return made


COMPILED = _entered("compiled(str plan, Tensor[] tensors, Tensor? keys) -> Tensor[]", _forward, _forward_shapes)
BACK = _entered("compiled_back(str plan, Tensor[] tensors, SymInt[] sizes) -> Tensor[]", _backward, _backward_shapes)
# `call` is another number for each call in a graph, so that no two draws are taken for the same. Where torch computes
# a part of a graph again, it sets the state of the generator that belongs to the device of `like`.
DRAW = _entered(
    "draw_keys(int call, int count, Tensor like) -> Tensor", _draw, _draw_shape, torch.Tag.nondeterministic_seeded
)
torch.library.register_autograd("serrate::compiled", _gradients, setup_context=_keep, lib=_LIBRARY)
torch.library.register_autograd("serrate::compiled_back", _no_second, lib=_LIBRARY)
