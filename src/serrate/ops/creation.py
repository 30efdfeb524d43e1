"""Making tensors from a shape, a range or another tensor; shapes may have ragged axes, whose partitions are shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from serrate.errors import AxisError, OffsetsDeviceError, RaggednessError
from serrate.ops.derivatives import reduced_to
from serrate.ops.record import ALL, Error, operation, ops, record, torch_names
from serrate.tensor import bits, broadcast, promotion
from serrate.tensor.layout import canonical, read_shape
from serrate.tensor.structure import DENSE, Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor

# --------------------------------------------------------------------------------------------------------- shapes


def form(shape: Any, device: Any = None) -> tuple[tuple[int, ...], Structure, tuple[int, ...], torch.device]:
    """What a new tensor of this shape needs: the sizes of its values, its structure and order, and its device."""
    axes = read_shape(shape)
    for axis in axes:
        if isinstance(axis, int) and axis < 0:
            raise ValueError(f"sizes must be 0 or more, got {axes}")
        if isinstance(axis, Ragged) and not all(0 <= p < len(axes) for p in axis.parents):
            raise RaggednessError(f"parents {axis.parents} of a ragged axis are no axes of a shape of {len(axes)}")
    structure, features, order = canonical(axes)
    place = home(structure, device)
    sizes = features if structure is DENSE else (structure.cells(structure.whole), *features)
    return sizes, structure, order, place


def home(structure: Structure, device: Any) -> torch.device:
    """The device of a new tensor: the one given, else where its lengths were born, else torch's default."""
    born = next((p.home for p in structure.partitions if not p.is_host_born), None)
    if device is None:
        return torch.get_default_device() if born is None else born
    place = torch.device(device)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    if born is not None and born != place:
        raise OffsetsDeviceError(f"the lengths of the shape lie on {born}, so the tensor cannot be made on {place}")
    return place


def build(shape: Any, device: Any, make: Callable[..., torch.Tensor], *args: Any, **options: Any) -> Tensor:
    """A tensor of this shape around `make(sizes of the values, *args, device=…, **options)`."""
    sizes, structure, order, place = form(shape, device)
    return Tensor(make(sizes, *args, device=place, **options), structure, order)


def beside(x: Tensor, values: torch.Tensor) -> Tensor:
    """x's structure around new values, which may lie on another device."""
    if values.device == x.device or x.structure.is_host_born:
        return x._with(values)
    return x._with(x.values[:0]).to(values.device)._with(values)


# ------------------------------------------------------------------------------------------------- from a shape


@operation
def _zeros(shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    return build(shape, device, torch.zeros, dtype=dtype)


@operation
def _ones(shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    return build(shape, device, torch.ones, dtype=dtype)


@operation
def _empty(shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    return build(shape, device, torch.empty, dtype=dtype)


@operation
def _full(shape: Any, fill_value: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    if isinstance(fill_value, (Tensor, torch.Tensor)):
        place = fill_value.device if device is None else device
        return build(shape, place, _filled, fill_value, dtype=dtype or fill_value.dtype)
    return build(shape, device, torch.full, _number(fill_value, dtype), dtype=dtype)


@operation
def _zeros_like(x: Any, /, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    tensor = as_tensor(x)
    return beside(tensor, torch.zeros_like(tensor.values, dtype=dtype, device=device))


@operation
def _ones_like(x: Any, /, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    tensor = as_tensor(x)
    return beside(tensor, torch.ones_like(tensor.values, dtype=dtype, device=device))


@operation
def _empty_like(x: Any, /, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    tensor = as_tensor(x)
    return beside(tensor, torch.empty_like(tensor.values, dtype=dtype, device=device))


@operation
def _full_like(x: Any, /, fill_value: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    tensor = as_tensor(x)
    if isinstance(fill_value, (Tensor, torch.Tensor)):
        place = tensor.device if device is None else device
        return beside(tensor, _filled(tensor.values.shape, fill_value, dtype=dtype or tensor.dtype, device=place))
    return beside(
        tensor, torch.full_like(tensor.values, _number(fill_value, dtype or tensor.dtype), dtype=dtype, device=device)
    )


def _filled(sizes: Sequence[int], value: Any, *, dtype: torch.dtype, device: Any) -> torch.Tensor:
    """The number in a 0-d tensor, which nobody waits for, everywhere."""
    number = as_tensor(value)
    if number.ndim:
        raise TypeError(f"fill_value must be a number or a 0-d tensor, got shape {number.shape}")
    promotion.require_whole(number.dtype, dtype)
    return number.values.to(device=device, dtype=dtype).expand(sizes).clone(memory_format=torch.contiguous_format)


def _number(given: Any, dtype: torch.dtype | None) -> Any:
    number = broadcast.plain_number(given)
    if not isinstance(number, broadcast.SCALARS):
        raise TypeError(f"fill_value must be a number, got {type(given).__name__}")
    if dtype is None:
        return number
    if isinstance(number, complex):
        promotion.require_whole("a complex number", dtype)
    promotion.require_fit("full", number, dtype)
    return promotion.as_number(number, dtype)


# ------------------------------------------------------------------------------------------------------- ranges


@operation
def _arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: torch.dtype | None = None, device: Any = None
) -> Tensor:
    first, last = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ValueError("the step of arange must not be 0")
    if (last - first) * step < 0:  # nothing lies between, which torch refuses
        last = first + 0 * last
    if all(isinstance(n, int) for n in (first, last, step)):
        numbers = range(first, last, step)
        for n in (numbers[0], numbers[-1]) if numbers else ():
            promotion.require_fit("arange", n, torch.int64 if dtype is None else dtype)
        if max(map(abs, (first, last, step))) >= _FAR:
            return Tensor(_far_range(numbers, dtype, device))
    made = _computed_in(dtype)
    return Tensor(_converted(torch.arange(first, last, step, dtype=made, device=device), dtype))


_FAR = 2**61  # beyond, torch's count of elements overflows


def _far_range(numbers: range, dtype: torch.dtype | None, device: Any) -> torch.Tensor:
    """Integers of any size: modulo 2⁶⁴, which is exact where an integer dtype holds them, or in float64."""
    count = torch.arange(len(numbers), device=device)
    if dtype is not None and (dtype.is_floating_point or dtype.is_complex):
        return (count.to(torch.float64) * float(numbers.step) + float(numbers.start)).to(dtype)
    first, step = ((n + 2**63) % 2**64 - 2**63 for n in (numbers.start, numbers.step))
    made = count * step + first
    return _converted(made.view(torch.uint64) if dtype == torch.uint64 else made, dtype)


def _computed_in(dtype: torch.dtype | None) -> torch.dtype | None:
    """The dtype in which torch has kernels for ranges."""
    if dtype is None:
        return None
    return dtype.to_real() if dtype.is_complex else promotion.narrow(dtype)


def _converted(values: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return values if dtype is None else values.to(dtype)


@operation
def _linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    if num < 0:
        raise ValueError(f"linspace needs a number of elements of 0 or more, got {num}")
    kernel = torch.int64 if dtype in promotion.WIDE else dtype
    made = torch.linspace(start, stop, num if endpoint else num + 1, dtype=kernel, device=device)
    return Tensor(_converted(made if endpoint else made[:-1], dtype))


@operation
def _eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: torch.dtype | None = None, device: Any = None
) -> Tensor:
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    if min(shape) < 0:
        raise ValueError(f"sizes must be 0 or more, got {shape}")
    made = torch.zeros(shape, dtype=dtype, device=device)
    if -made.shape[0] < k < made.shape[1]:
        made.diagonal(k).fill_(1)
    return Tensor(made)


@operation
def _meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing must be 'xy' or 'ij', got {indexing!r}")
    given = [as_tensor(a).torch() for a in arrays]
    if any(a.ndim > 1 for a in given):
        raise ValueError(f"meshgrid takes 1-D tensors, got shapes {[tuple(a.shape) for a in given]}")
    if len({a.dtype for a in given}) > 1:
        raise TypeError(f"meshgrid takes tensors of one dtype, got {[a.dtype for a in given]}")
    return [Tensor(a) for a in torch.meshgrid(*given, indexing=indexing)] if given else []


# ---------------------------------------------------------------------------------------------------- triangles


@operation
def _tril(x: Any, /, *, k: int = 0) -> Tensor:
    tensor = as_tensor(x)
    return _where(tensor, _across(tensor, "tril") <= k)


@operation
def _triu(x: Any, /, *, k: int = 0) -> Tensor:
    tensor = as_tensor(x)
    return _where(tensor, _across(tensor, "triu") >= k)


def _across(x: Tensor, name: str) -> torch.Tensor:
    """For each element, laid out beside x.values, its position along the last axis less that along the one before."""
    if x.ndim < 2:
        raise AxisError(f"{name} needs at least two axes, got shape {x.shape}")
    return _along(x, x.order[-1]) - _along(x, x.order[-2])


def _along(x: Tensor, c: int) -> torch.Tensor:
    """Positions along canonical axis c, shaped to broadcast against the values."""
    packed = len(x.structure.axes)
    shape = [1] * x.values.ndim
    if c < packed:
        shape[0] = x.values.shape[0]
        return x.structure.positions(x.structure.whole, c, x.device).view(shape)
    dim = c - packed + (1 if packed else 0)
    shape[dim] = x.values.shape[dim]
    return torch.arange(shape[dim], device=x.device).view(shape)


def _where(x: Tensor, keep: torch.Tensor) -> Tensor:
    return x._with(bits.where(keep, x.values, x.values.new_zeros(())))


# ------------------------------------------------------------------------------------------------- torch's calls


def like(eager: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch's `…_like`: further options, of which only those are refused that an sr.Tensor cannot have."""

    def handler(
        input: Any,
        *args: Any,
        layout: Any = None,
        pin_memory: bool = False,
        requires_grad: bool = False,
        **options: Any,
    ) -> Tensor:
        if layout not in (None, torch.strided) or pin_memory:
            raise TypeError(f"{eager.__name__} of an sr.Tensor takes neither layout nor pin_memory")
        options.pop("memory_format", None)
        return eager(input, *args, **options).requires_grad_(requires_grad)

    return handler


def _new(eager: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch's `x.new_…`: a shape, with x's dtype and device unless others are given."""

    def handler(
        self: Any, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any
    ) -> Tensor:
        if eager is _full and len(size) > 1:
            size, options["fill_value"] = size[:-1], size[-1]
        shape = options.pop("size", size[0] if len(size) == 1 and isinstance(size[0], Sequence) else size)
        made = eager(shape, dtype=dtype or self.dtype, device=device or self.device, **options)
        return made.requires_grad_(requires_grad)

    return handler


def _answer_triangle(eager: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda input, diagonal=0: eager(input, k=diagonal)


def _answer_meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return tuple(_meshgrid(*given, indexing=indexing or "ij"))


# -------------------------------------------------------------------------------------------------------- bodies


def _zeros_body(shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return ops.full(shape, 0.0 if dtype is None else _in(dtype, 0), dtype=dtype, device=device)


def _ones_body(shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return ops.full(shape, 1.0 if dtype is None else _in(dtype, 1), dtype=dtype, device=device)


def _zeros_like_body(x: Any, /, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return ops.full_like(x, _in(dtype or x.dtype, 0), dtype=dtype, device=device)


def _ones_like_body(x: Any, /, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return ops.full_like(x, _in(dtype or x.dtype, 1), dtype=dtype, device=device)


def _full_like_body(x: Any, /, fill_value: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    place = x.device if device is None else device
    return ops.full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=place)


def _in(dtype: torch.dtype, number: int) -> Any:
    return bool(number) if dtype == torch.bool else number


def _linspace_body(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Any:
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        start, stop = int(start), int(stop)  # the ends are numbers of the dtype, and what lies between is cut off
    last = max(num - 1 if endpoint else num, 1)
    step, count = (stop - start) / last, ops.arange(num, dtype=torch.float64, device=device)
    # From the nearer end on, so that both ends are exact.
    made = ops.where(ops.less(count, (last + 1) // 2), start + count * step, stop - (last - count) * step)
    return ops.astype(made, torch.result_type(torch.empty(()), step) if dtype is None else dtype)


def _eye_body(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: torch.dtype | None = None, device: Any = None
) -> Any:
    rows, columns = (ops.arange(n_rows if n is None else n, device=device) for n in (n_rows, n_cols))
    made = ops.equal(ops.expand_dims(columns, axis=0) - ops.expand_dims(rows, axis=1), k)
    return ops.astype(made, torch.get_default_dtype() if dtype is None else dtype)


def _meshgrid_body(*arrays: Any, indexing: str = "xy") -> list[Any]:
    given = [ops.reshape(a, (-1,)) for a in arrays]
    places = list(range(len(given)))
    if indexing == "xy":
        places[:2] = places[1::-1] if len(places) > 1 else places
    shape = [given[i].shape[0] for i in places]
    shown = (ops.reshape(a, [-1 if place == i else 1 for place in places]) for i, a in enumerate(given))
    return [ops.broadcast_to(a, shape) for a in shown]


def _tril_body(x: Any, /, *, k: int = 0) -> Any:
    return ops.where(ops.less_equal(_places(x, -1) - _places(x, -2), k), x, _in(x.dtype, 0))


def _triu_body(x: Any, /, *, k: int = 0) -> Any:
    return ops.where(ops.greater_equal(_places(x, -1) - _places(x, -2), k), x, _in(x.dtype, 0))


def _places(x: Any, axis: int) -> Any:
    """The position of each element along an axis, in a shape that broadcasts to that of x."""
    number, parents = axis % x.ndim, parents_of(x)
    if isinstance(x.shape[number], Ragged) or number in parents:
        features = [a for a, n in enumerate(x.shape) if not isinstance(n, Ragged) and a not in parents]
        return ops.expand_like(ops.positions(x, number), x, axis=features)
    return ops.reshape(ops.arange(x.shape[number], device=x.device), [-1, *[1] * (x.ndim - 1 - number)])


def parents_of(x: Any) -> set[int]:
    """The axes of x that ragged ones depend on."""
    return {parent for size in x.shape if isinstance(size, Ragged) for parent in size.parents}


_NO_ELEMENTS = "the result does not depend on elements"
_NO_SHAPE: Error = ("'3'", TypeError, "a shape is an int or a tuple of ints")
_NEGATIVE: Error = ("(3, -1)", ValueError, "sizes must be 0 or more")
_CELLS: Error = ("(4, x.shape[1])", RaggednessError, "lengths for 3 components, but the axes outside it have 4")
_FILL = "torch.ones((), dtype=x.dtype)"
_ROWS = "(3, sr.Ragged([2, 0, 1]))"


def _record(
    name: str,
    eager: Callable[..., Any],
    summary: str,
    example: tuple[str, str],
    answer: Callable[..., Any] | None = None,
    **fields: Any,
) -> None:
    usual = {"torch": (), "kinds": ALL}
    fields = usual | fields
    record("creation", name, eager, answer, summary=summary, example=example, **fields)


def _from_shape(
    name: str, eager: Callable[..., Tensor], summary: str, gives: str, value: str = "", **fields: Any
) -> None:
    new = tuple(f for f in torch_names(f"new_{name}"))
    options = f"{value}, dtype=x.dtype".lstrip(", ")
    call = f"sr.{name}({_ROWS}{value}).{'shape' if name == 'empty' else 'tolist()'}"
    errors = tuple((f"{wrong}{value}", kind, text) for wrong, kind, text in (_NO_SHAPE, _NEGATIVE, _CELLS))
    samples = (f"x.shape, {options}", f"(3, 2), {options}", *((f"x.shape, {_FILL}",) if value else ()))
    _record(
        name, eager, summary, (call, gives), torch=new, answer=_new(eager), samples=samples, errors=errors, **fields
    )


def _from_tensor(
    name: str, eager: Callable[..., Tensor], summary: str, gives: str, value: str = "", **fields: Any
) -> None:
    call = f"sr.{name}(sr.ragged([[1., 2.], []]){value}).{'shape' if name == 'empty_like' else 'tolist()'}"
    _record(
        name,
        eager,
        summary,
        (call, gives),
        torch=torch_names(name),
        answer=like(eager),
        samples=(f"x{value}", *((f"x, {_FILL}",) if value else ())),
        errors=((f"None{value}", TypeError, "expected an sr.Tensor"),),
        **fields,
    )


# fmt: off
_from_shape("zeros", _zeros, "Zeros of a shape, which may have ragged axes.", "[[0.0, 0.0], [], [0.0]]",
            body=_zeros_body, flat=_NO_ELEMENTS)
_from_shape("ones", _ones, "Ones of a shape, which may have ragged axes.", "[[1.0, 1.0], [], [1.0]]",
            body=_ones_body, flat=_NO_ELEMENTS)
_from_shape("empty", _empty, "A tensor of a shape, its elements undefined.", "(3, Ragged([2, 0, 1]))",
            body=_zeros_body, flat=_NO_ELEMENTS)
_from_shape("full", _full, "One number everywhere in a shape, which may have ragged axes.", "[[7, 7], [], [7]]", ", 7",
            operands=("fill_value",), primitive="movement",
            vjp=lambda g, out, fill_value, **_: reduced_to(g, fill_value))
_from_tensor("zeros_like", _zeros_like, "Zeros in the shape of x.", "[[0.0, 0.0], []]",
             body=_zeros_like_body, flat=_NO_ELEMENTS)
_from_tensor("ones_like", _ones_like, "Ones in the shape of x.", "[[1.0, 1.0], []]",
             body=_ones_like_body, flat=_NO_ELEMENTS)
_from_tensor("empty_like", _empty_like, "A tensor in the shape of x, its elements undefined.", "(2, Ragged([2, 0]))",
             body=_zeros_like_body, flat=_NO_ELEMENTS)
_from_tensor("full_like", _full_like, "One number everywhere in the shape of x.", "[[1.0, 1.0], []]", ", 1",
             operands=("x", "fill_value"), body=_full_like_body)
_record("arange", _arange, "The numbers from start to stop, stop not included, `step` apart.",
        ("sr.arange(1, 6, 2).tolist()", "[1, 3, 5]"), samples=("6", "1, 6, 2", "6, 1"),
        operands=(), primitive="movement", flat=_NO_ELEMENTS,
        errors=(("1, 5, 0", ValueError, "the step of arange must not be 0"),))
_record("linspace", _linspace, "`num` numbers at equal distances from start to stop.",
        ("sr.linspace(0., 1., 3).tolist()", "[0.0, 0.5, 1.0]"), operands=(), body=_linspace_body, flat=_NO_ELEMENTS,
        samples=("0, 1, 5", "0, 1, 5, endpoint=False", "2, 3, 1", "-3, 9, 7, dtype=torch.int32"),
        errors=(("0, 1, -1", ValueError, "0 or more, got -1"),))
_record("eye", _eye, "Ones on diagonal k of a matrix, zeros elsewhere.",
        ("sr.eye(2, 3, k=1).tolist()", "[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]"), samples=("3", "2, 3, k=-1", "2, k=5"),
        operands=(), body=_eye_body, flat=_NO_ELEMENTS,
        errors=(("2, -1", ValueError, "sizes must be 0 or more"),))
_record("meshgrid", _meshgrid, "The coordinates of a grid, one tensor for each 1-D tensor given.",
        ("[g.tolist() for g in sr.meshgrid(sr.arange(2), sr.arange(3), indexing='ij')]",
         "[[[0, 0, 0], [1, 1, 1]], [[0, 1, 2], [0, 1, 2]]]"),
        torch=(torch.meshgrid,), answer=_answer_meshgrid, operands=("arrays",), body=_meshgrid_body,
        samples=("sr.arange(3), torch.arange(2)", "*[torch.linspace(0, 1, n).to(x.dtype) for n in (2, 3, 1)]",
                 "torch.linspace(0, 1, 2).to(x.dtype), indexing='ij'"),
        errors=(("sr.zeros((2, 2))", ValueError, "takes 1-D tensors"), ("x, x", TypeError, "only a dense tensor"),
                ("sr.arange(2), indexing='ab'", ValueError, "'xy' or 'ij'")))
for _name, _eager, _gives in (("tril", _tril, "[[[1, 0], [1, 1]], [[1]]]"),
                              ("triu", _triu, "[[[1, 1], [0, 1]], [[1]]]")):
    _side = "above" if _name == "tril" else "below"
    _record(_name, _eager, f"x with zeros {_side} diagonal k of its last two axes, which may be ragged.",
            (f"sr.{_name}(sr.ones((2, *[sr.Ragged([2, 1])] * 2), dtype=torch.int64)).tolist()", _gives),
            torch=torch_names(_name), answer=_answer_triangle(_eager),
            body=_tril_body if _name == "tril" else _triu_body,
            samples=("x", "x, k=1", "x, k=-1"),
            errors=(("torch.ones(3)", AxisError, f"{_name} needs at least two axes"),))
# fmt: on
