"""Making tensors of one number, from a shape or like another tensor; partitions of ragged axes are shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from serrate.errors import OffsetsDeviceError, RaggednessError
from serrate.ops.record import ALL, Error, operation, ops, record, torch_names, written
from serrate.ops.rules import reduced_to
from serrate.tensor import broadcast, promotion
from serrate.tensor.layout import canonical, read_shape
from serrate.tensor.structure import DENSE, Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor

# --------------------------------------------------------------------------------------------------------------- shapes


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


# --------------------------------------------------------------------------------------------------------- from a shape


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


# -------------------------------------------------------------------------------------------------------- torch's calls


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


# --------------------------------------------------------------------------------------------------------------- bodies


def _zeros_body(shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return ops.full(shape, 0.0 if dtype is None else number_in(dtype, 0), dtype=dtype, device=device)


def _ones_body(shape: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return ops.full(shape, 1.0 if dtype is None else number_in(dtype, 1), dtype=dtype, device=device)


def _zeros_like_body(x: Any, /, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return ops.full_like(x, number_in(dtype or x.dtype, 0), dtype=dtype, device=device)


def _ones_like_body(x: Any, /, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    return ops.full_like(x, number_in(dtype or x.dtype, 1), dtype=dtype, device=device)


def _full_like_body(x: Any, /, fill_value: Any, *, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    place = x.device if device is None else device
    return ops.full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=place)


def number_in(dtype: torch.dtype, number: int) -> Any:
    """0 or 1 as a number that fits the dtype without a cast."""
    return bool(number) if dtype == torch.bool else number


NO_ELEMENTS = "the result does not depend on elements"
_NO_SHAPE: Error = ("'3'", TypeError, "a shape is an int or a tuple of ints")
_NEGATIVE: Error = ("(3, -1)", ValueError, "sizes must be 0 or more")
_CELLS: Error = ("(4, x.shape[1])", RaggednessError, "lengths for 3 components, but the axes outside it have 4")
_FILL = "torch.ones((), dtype=x.dtype)"
_ROWS = "(3, sr.Ragged([2, 0, 1]))"


def record_creation(
    name: str,
    eager: Callable[..., Any],
    summary: str,
    example: tuple[str, str],
    answer: Callable[..., Any] | None = None,
    **fields: Any,
) -> None:
    """Define an operation that makes a tensor; torch has none for it unless the fields say so."""
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
    record_creation(
        name, eager, summary, (call, gives), torch=new, answer=_new(eager), samples=samples, errors=errors, **fields
    )


def _from_tensor(
    name: str, eager: Callable[..., Tensor], summary: str, gives: str, value: str = "", **fields: Any
) -> None:
    call = f"sr.{name}(sr.ragged([[1., 2.], []]){value}).{'shape' if name == 'empty_like' else 'tolist()'}"
    record_creation(
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
            body=_zeros_body, flat=NO_ELEMENTS,
            dialect=written("create", "zeros"))
_from_shape("ones", _ones, "Ones of a shape, which may have ragged axes.", "[[1.0, 1.0], [], [1.0]]",
            body=_ones_body, flat=NO_ELEMENTS,
            dialect=written("create", "ones"))
_from_shape("empty", _empty, "A tensor of a shape, its elements undefined.", "(3, Ragged([2, 0, 1]))",
            body=_zeros_body, flat=NO_ELEMENTS,
            dialect=written("create", "empty"))
_from_shape("full", _full, "One number everywhere in a shape, which may have ragged axes.", "[[7, 7], [], [7]]", ", 7",
            operands=("fill_value",), primitive="movement",
            vjp=lambda g, out, fill_value, **_: reduced_to(g, fill_value),
            dialect=written("create", "full", fill_value="value"))
_from_tensor("zeros_like", _zeros_like, "Zeros in the shape of x.", "[[0.0, 0.0], []]",
             body=_zeros_like_body, flat=NO_ELEMENTS,
             dialect=written("create_like", "zeros_like", x="rsh"))
_from_tensor("ones_like", _ones_like, "Ones in the shape of x.", "[[1.0, 1.0], []]",
             body=_ones_like_body, flat=NO_ELEMENTS,
             dialect=written("create_like", "ones_like", x="rsh"))
_from_tensor("empty_like", _empty_like, "A tensor in the shape of x, its elements undefined.", "(2, Ragged([2, 0]))",
             body=_zeros_like_body, flat=NO_ELEMENTS,
             dialect=written("create_like", "empty_like", x="rsh"))
_from_tensor("full_like", _full_like, "One number everywhere in the shape of x.", "[[1.0, 1.0], []]", ", 1",
             operands=("x", "fill_value"), body=_full_like_body,
             dialect=written("create_like", "full_like", x="rsh", fill_value="value"))
# fmt: on
