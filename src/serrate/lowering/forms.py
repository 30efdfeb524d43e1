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
from serrate.lowering.fusing import Backwards, Fusing, NotFused, dtype_of
from serrate.lowering.keys import Drawn
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
    if len(instruction.results) != 1 or not isinstance(instruction.result, Value):
        return None
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


_DIVISIONS = ("floor_divide", "remainder")


def _elementwise(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    op = TABLE[instruction.op]
    names = list(op.signature.parameters)
    arity = elementwise.named(op.name).arity
    operands = [_operand(made, given[name]) for name in names[:arity]]
    options = {name: given[name] for name in names[arity:] if given[name] != op.signature.parameters[name].default}
    if any(isinstance(each, Value) for each in options.values()):
        raise NotFused(f"an option of {op.name} is a tensor")
    if op.name in _DIVISIONS and instruction.region.partition("#")[0] == op.name:
        of_floats = instruction.result.type.dtype.is_floating_point
        divisor = given[names[1]]
        if not of_floats and (not isinstance(divisor, int) or divisor == 0):
            raise NotFused("whole numbers are divided by what may be 0, which is an error that kernels do not report")
    exponent = given[names[1]] if op.name == "pow" else None
    if isinstance(exponent, int) and exponent < 0 and not _is_inexact(instruction.result.type):
        raise NotFused("whole numbers to a negative power are an error that kernels do not report")
    return made.fusion.elementwise(op.name, *operands, **options)


def _is_inexact(kind: TensorType) -> bool:
    return kind.dtype.is_floating_point or kind.dtype.is_complex


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
    axes = axes_of(given["axis"], len(x.type.order))
    found = made.read_backwards(x)
    is_same = found is not None and found.axis in axes and name not in ("argmax", "argmin")  # from its end, too
    view, result = found.view if found is not None and is_same else made.view(x), instruction.result.type
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
def _scanned(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView | Backwards:
    x = _value(given["x"])
    found = made.read_backwards(x)
    reverse = found is not None
    view, view_axis = (made.view(x), -1) if found is None else (found.view, found.axis)
    if given["include_initial"]:
        raise NotFused("a scan with an initial entry has no form")
    at = (given["axis"] or 0) % view.ndim
    if reverse and at != view_axis:
        raise NotFused("only a scan along an axis that is read backwards has a form")
    _check_dependents(x.type, [at])
    if view.domain.kept[at].is_broadcast:
        raise NotFused("a scan along an axis of one index has no form")
    if given.get("dtype") is not None:
        view = made.fusion.cast(view, dtype_of(given["dtype"]))
    scanned = made.fusion.scan(SCANS[instruction.op], view, at, reverse=reverse)
    view = _in_dtype(made, scanned, instruction.result.type)
    return Backwards(view, at) if reverse else view


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


# --------------------------------------------------------------------------------------------------------- movement


@form("Tensor.getitem")
def _getitem(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView | Backwards:
    """Slices of step 1, ints on uniform axes, new axes, and whole axes backwards."""
    x, key = _value(given["x"]), given["key"]
    parts = list(key) if isinstance(key, tuple) else [key]
    ndim = len(x.type.order)
    if parts.count(Ellipsis) > 1 or not all(part is None or isinstance(part, (int, slice, _Dots)) for part in parts):
        raise NotFused("only slices, ints and new axes have a form")
    if any(isinstance(part, bool) for part in parts):
        raise NotFused("a bool is no index of a kernel")
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    dots = parts.index(Ellipsis) if Ellipsis in parts else len(parts)
    parts[dots : dots + 1] = [slice(None)] * (ndim - taken)
    backwards = [at for at, part in enumerate(parts) if isinstance(part, slice) and part.step == -1]
    if backwards:
        if len(backwards) != 1 or any(part != slice(None) for at, part in enumerate(parts) if at != backwards[0]):
            raise NotFused("only one whole axis is read backwards")
        if parts[backwards[0]] != slice(None, None, -1):
            raise NotFused("only a whole axis is read backwards")
        return made.backwards(x, backwards[0])
    view, at = made.view(x), 0
    for part in parts:
        if part is None:
            view = made.fusion.broadcast(view, [number == at for number in range(view.ndim + 1)])
            at += 1
        elif isinstance(part, int):
            view = _selected(made, view, at, part)
        else:
            view = _sliced(made, view, at, part)
            at += 1
    return made.with_broadcast_ones(view)


_Dots = type(Ellipsis)


def _selected(made: Fusing, view: TensorView, at: int, index: int) -> TensorView:
    axis = view.domain.kept[at]
    if axis.is_broadcast and index in (0, -1):
        return made.fusion.squeeze(view, at)
    if axis.is_broadcast or axis.is_ragged or not axis.extent.is_const:
        raise NotFused("an int selects from a uniform axis whose size is known")
    size = int(axis.extent.value)
    if not -size <= index < size:
        raise NotFused(f"index {index} is out of range for {size} entries")
    return made.fusion.select(view, at, index % size)


def _sliced(made: Fusing, view: TensorView, at: int, part: slice) -> TensorView:
    if part.step not in (None, 1) or not all(bound is None or type(bound) is int for bound in (part.start, part.stop)):
        raise NotFused("only slices of step 1 with numbers as bounds have a form")
    if part.start in (None, 0) and part.stop is None:
        return view
    if view.domain.kept[at].is_broadcast:
        raise NotFused("a slice of an axis of one index has no form")
    return made.fusion.slice(view, at, part.start, part.stop)


@form("concat")
def _concat(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    views = [made.view(_value(each)) for each in given["arrays"]]
    if given["axis"] is None:
        raise NotFused("a concat of flattened tensors has no form")
    at = given["axis"] % views[0].ndim
    if any(view.domain.kept[at].is_broadcast for view in views):
        raise NotFused("a concat along an axis of one index has no form")
    return made.fusion.concat(views, at)


@form("Tensor.to_dense")
def _to_dense(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    view, padding = made.view(_value(given["x"])), given["padding_value"]
    if not isinstance(padding, (bool, int, float)):
        raise NotFused("padding that is a tensor has no form")
    ragged = [at for at, axis in enumerate(view.domain.kept) if axis.is_ragged]
    axes = ragged if given["axis"] is None else axes_of(given["axis"], view.ndim)
    lengths = given["max_lengths"]
    if lengths is not None and not isinstance(lengths, int) and len(lengths) != len(axes):
        raise NotFused("there is not one length for each axis")
    wanted = dict(
        zip(axes, [lengths] * len(axes) if lengths is None or isinstance(lengths, int) else lengths, strict=True)
    )
    for at in reversed(axes):
        length = wanted[at]
        if length is None and made.target == "cuda":  # a host lays out its result, so that it has to know the longest
            length = instruction.result.type.shape[at]
        extent = None if length is None else made.extent(length)
        view = made.fusion.to_dense(view, at, extent, padding)
    return made.with_broadcast_ones(view)


@form("from_dense")
def _from_dense(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    if given["like"] is None or not isinstance(given["padding_value"], (bool, int, float)):
        raise NotFused("only from_dense(like=) has a form")
    kind = instruction.result.type
    if kind.device != _value(given["dense"]).type.device:
        raise NotFused("the lengths lie on another device")
    view = made.view(_value(given["dense"]))
    for axis, wanted in zip(view.domain.kept, kind.shape, strict=True):
        if axis.is_broadcast and isinstance(wanted, RaggedAxis):
            raise NotFused("rows are read of an axis of one index")  # which would be read at each position
    return made.fusion.from_dense(view, made.axes_of(kind), given["padding_value"])


@form("embedding")
def _embedding(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    if given["max_norm"] is not None:
        raise NotFused("an embedding that is scaled in place has no form")
    indices, table = made.view(_value(given["x"])), made.view(_value(given["weight"]))
    if table.domain.kept[0].is_broadcast or table.domain.kept[1].is_broadcast:
        raise NotFused("a table of one row or one column has no form")
    return made.fusion.gather(table, indices, 0)


# --------------------------------------------------------------------------------------------------------- creation


@form("random.bits")
def _random_bits(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    kind, key = instruction.result.type, given["key"]
    if not isinstance(key, Drawn):
        raise NotFused("bits of a key that is no part of the program have no form")
    if kind.order != tuple(range(len(kind.order))) or 1 in kind.shape:
        raise NotFused("bits of a tensor whose axes are not stored as they are seen have no form")
    return made.fusion.random_bits(made.axes_of(kind), made.view(key.seed), made.view(key.call), given["width"])


@form("full")
def _full(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    kind, value = instruction.result.type, given["fill_value"]
    if isinstance(value, (Value, Polynomial)):
        raise NotFused("full is given a tensor")
    return made.with_broadcast_ones(made.fusion.full(made.axes_of(kind), value, dtype_of(kind.dtype)))


@form("arange")
def _arange(made: Fusing, instruction: Instruction, given: dict[str, Any]) -> TensorView:
    kind, step = instruction.result.type, given["step"]
    start = 0 if given["stop"] is None else given["start"]
    if kind.dtype.is_floating_point or type(start) is not int or type(step) is not int:
        raise NotFused("only a range of whole numbers has a form, whose start and step are known")
    view = made.fusion.positions(made.axes_of(kind), 0)
    if step != 1:
        view = made.fusion.binary("multiply", view, step)
    if start != 0:
        view = made.fusion.binary("add", view, start)
    return made.with_broadcast_ones(_in_dtype(made, view, kind))


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


_CHEAP = ("expand_like", "broadcast_to", "expand_dims", "squeeze", "permute_dims", "full", "full_like", "arange")


def is_cheap(instruction: Instruction) -> bool:
    """Whether an instruction computes elements of elements, which costs less than to store and read them."""
    op = TABLE.get(instruction.op)
    if op is None or (form_of(instruction) is None and op.name not in _CHEAP):
        return False
    return op.primitive in ("scalar", "cast", "random_bits") or op.name in _CHEAP or elementwise.is_known(op.name)


def is_recomputed(instruction: Instruction) -> bool:
    """Whether a way back computes an instruction again rather than read what it gave: it costs less, or just as much as
    to read the operand in other places."""
    return is_cheap(instruction) or (
        instruction.op in ("from_dense", "Tensor.to_dense") and form_of(instruction) is not None
    )


def makes_rows_alone(instruction: Instruction) -> bool:
    """Whether the rows of the result follow from the rows of operands, so that features do not count."""
    if instruction.op == "concat":
        return True
    if instruction.op != "Tensor.getitem":
        return False
    x, key = instruction.arguments[0], instruction.arguments[1]
    parts = key if isinstance(key, tuple) else (key,)
    features = len(x.type.features) if x.type.axes else 0
    plain = all(isinstance(part, (slice, int)) for part in parts)
    seen = x.type.order[: len(parts)]
    whole = len(x.type.axes)
    return (
        plain
        and features >= 0
        and all(place < whole or part == slice(None) for place, part in zip(seen, parts, strict=True))
    )
