"""Forms: how an instruction becomes operations of a fusion. One function for each kind of record that has a form.

Elementwise operations, monoids and scans have the names of the fusion's own tables. What has no form here is computed
by its body, or else by a library call of its eager implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from serrate.errors import AxisError, RaggednessError, ScheduleError
from serrate.fusion import TensorView, elementwise
from serrate.fusion.monoids import MONOIDS
from serrate.jit.fusing import Fusing, NotFused, dtype_of
from serrate.ops.record import TABLE, Op
from serrate.program.program import Instruction
from serrate.program.sizes import Polynomial
from serrate.program.types import RaggedAxis, TensorType, Value

Form = Callable[[Fusing, Instruction, dict[str, Any]], Any]
FORMS: dict[str, Form] = {}
"""The forms of single operations, by name."""
SCANS = {"cumulative_sum": "sum", "cumulative_prod": "prod"}


def form(*names: str) -> Callable[[Form], Form]:
    """Enter a form for the operations of these names."""

    def entered(function: Form) -> Form:
        FORMS.update(dict.fromkeys(names, function))
        return function

    return entered


def form_of(instruction: Instruction) -> Form | None:
    """The form of an instruction; None if it has none."""
    op = TABLE.get(instruction.op)
    if op is None or instruction.function is not None or op.writes:
        return None
    if op.name in FORMS:
        return FORMS[op.name]
    if elementwise.is_known(op.name):
        return _elementwise
    if op.name in MONOIDS:
        return _reduced
    return None


def apply(made: Fusing, instruction: Instruction) -> None:
    """Add an instruction to a fusion, or raise a `NotFused` that says why it cannot be."""
    found = form_of(instruction)
    if found is None:
        raise NotFused(f"{instruction.op} has no form in kernels")
    op = TABLE[instruction.op]
    try:
        bound = op.signature.bind(*instruction.arguments, **dict(instruction.named))
        bound.apply_defaults()
        view = found(made, instruction, dict(bound.arguments))
        made.define(instruction.result, view)
    except NotFused:
        raise
    except (AxisError, RaggednessError, ScheduleError, TypeError, ValueError, OverflowError, IndexError) as error:
        raise NotFused(f"{instruction.op} is no operation of a kernel here: {error}") from error


# -------------------------------------------------------------------------------------------------------- elements


def _operand(made: Fusing, given: Any) -> Any:
    if isinstance(given, Value):
        return made.view(given)
    if isinstance(given, (bool, int, float, complex)):
        return given
    raise NotFused(f"{given!r:.40} is no operand of a kernel")


def _elementwise(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    op = TABLE[instruction.op]
    names = list(op.signature.parameters)
    arity = elementwise.named(op.name).arity
    operands = [_operand(made, given[name]) for name in names[:arity]]
    options = {name: given[name] for name in names[arity:] if given[name] != op.signature.parameters[name].default}
    if any(isinstance(each, Value) for each in options.values()):
        raise NotFused(f"an option of {op.name} is a tensor")
    return made.fusion.elementwise(op.name, *operands, **options)


@form("astype")
def _astype(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    x = _value(given["x"])
    if instruction.result.type.device != x.type.device:
        raise NotFused("astype moves a tensor to another device")
    view = made.view(x)
    wanted = dtype_of(given["dtype"])
    return view if view.dtype == wanted else made.fusion.cast(view, wanted)


@form("Tensor.detach", "Tensor.contiguous", "Tensor.clone")
def _same(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    return made.view(_value(given["x"]))


# ------------------------------------------------------------------------------------------------------ reductions


def _reduced(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    x, name = _value(given["x"]), instruction.op
    view, result = made.view(x), instruction.result.type
    axes = axes_of(given["axis"], view.ndim)
    _check_dependents(x.type, axes)
    if given.get("correction"):
        raise NotFused("a variance that is divided by less than the number of elements has no form")
    dtype = given.get("dtype")
    wanted = dtype_of(dtype) if dtype is not None else view.dtype
    if name in ("any", "all") and view.dtype != "bool":
        view, wanted = made.fusion.binary("not_equal", view, 0), "bool"
    if view.dtype != wanted:
        view = made.fusion.cast(view, wanted)
    ones = [at for at in axes if view.domain.kept[at].is_broadcast]
    if ones and name in ("argmax", "argmin", "var", "std", "count_nonzero", "logsumexp"):
        raise NotFused(f"{name} of an axis of one index has no form")
    for at in reversed(ones):
        view = made.fusion.squeeze(view, at)
    left = [at - sum(one < at for one in ones) for at in axes if at not in ones]
    view = made.fusion.reduce(name, view, left) if left else view
    if given.get("keepdims"):
        view = made.fusion.broadcast(view, [at in axes for at in range(len(result.order))])
    return _in_dtype(made, view, result)


def _check_dependents(kind: TensorType, axes: Sequence[int]) -> None:
    """Refuse to reduce an axis that a ragged axis which stays depends on: the result is by position."""
    gone = {kind.order[at] for at in axes}
    for place, axis in enumerate(kind.axes):
        if isinstance(axis, RaggedAxis) and place not in gone and gone & set(axis.parents):
            raise NotFused("a ragged axis stays where an axis that it depends on is reduced")


@form(*SCANS)
def _scanned(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    x = _value(given["x"])
    view = made.view(x)
    if given["include_initial"]:
        raise NotFused("a scan with an initial entry has no form")
    at = (given["axis"] or 0) % view.ndim
    _check_dependents(x.type, [at])
    if view.domain.kept[at].is_broadcast:
        raise NotFused("a scan along an axis of one index has no form")
    if given.get("dtype") is not None:
        view = made.fusion.cast(view, dtype_of(given["dtype"]))
    return _in_dtype(made, made.fusion.scan(SCANS[instruction.op], view, at), instruction.result.type)


# ------------------------------------------------------------------------------------------------------------ axes


@form("expand_like")
def _expand_like(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    x, like = _value(given["x"]), _value(given["like"])
    axes = axes_of(given["axis"], len(like.type.order))
    _check_dependents(like.type, axes)
    view = made.view(x)
    if view.ndim != len(like.type.order):
        view = made.fusion.broadcast(view, [at in axes for at in range(len(like.type.order))])
    return _stretched(made, view, instruction.result.type)


@form("broadcast_to")
def _broadcast_to(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    return _stretched(made, made.view(_value(given["x"])), instruction.result.type)


@form("expand_dims")
def _expand_dims(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    view = made.view(_value(given["x"]))
    at = given["axis"] % (view.ndim + 1)
    return made.fusion.broadcast(view, [number == at for number in range(view.ndim + 1)])


@form("squeeze")
def _squeeze(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    view = made.view(_value(given["x"]))
    for at in sorted(axes_of(given["axis"], view.ndim), reverse=True):
        view = made.fusion.squeeze(view, at)
    return view


@form("permute_dims")
def _permute_dims(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    view = made.view(_value(given["x"]))
    return made.permuted(view, [axis % view.ndim for axis in given["axes"]])


def _stretched(made: Fusing, view: TensorView, kind: TensorType) -> TensorView:
    return made.expanded(view, kind)


# --------------------------------------------------------------------------------------------------------- creation


@form("full")
def _full(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    kind, value = instruction.result.type, given["fill_value"]
    if isinstance(value, (Value, Polynomial)):
        raise NotFused("full is given a tensor")
    return made.with_broadcast_ones(made.fusion.full(made.axes_of(kind), value, dtype_of(kind.dtype)))


@form("positions")
def _positions(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    kind, x = instruction.result.type, _value(given["x"])
    place = x.type.order[given["axis"] % len(x.type.order)]
    return made.fusion.positions(made.axes_of(kind), kind.order.index(place))


# ---------------------------------------------------------------------------------------------------------- shared


def axes_of(axis: Any, ndim: int) -> list[int]:
    """The axes that an attribute names, from the first to the last."""
    given = range(ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    return sorted({each % ndim for each in given})


def _value(given: Any) -> Value:
    if not isinstance(given, Value):
        raise NotFused(f"{given!r:.40} is no tensor")
    return given


def _in_dtype(made: Fusing, view: TensorView, kind: TensorType) -> TensorView:
    return view if view.dtype == dtype_of(kind.dtype) else made.fusion.cast(view, dtype_of(kind.dtype))


def has_body(op: Op) -> bool:
    """Whether an operation can be taken apart."""
    return op.body is not None and not op.writes
