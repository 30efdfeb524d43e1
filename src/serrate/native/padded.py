"""This module pads, packs, adds and multiplies packed and padded rows on the CPU, by padded.cpp.

torch has no call that writes a padded tensor in one pass; several calls take two to three times as long.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

from serrate.errors import RaggednessError
from serrate.native.loading import Routines, are_vectors, empty, load, plain, size_of, threads_for, transforming
from serrate.tensor import bits
from serrate.tensor.differentiable import Differentiable

_NUMBERS = {torch.float32: "float32", torch.float64: "float64", torch.int32: "int32", torch.int64: "int64"}


@cache
def _library() -> Routines | None:
    """Return the functions of the source; None if there is no library with them."""
    forms = ("packed_sum", "packed_product", "padded_sum", "padded_product")
    return load("padded.cpp", ["total", "pad", "unpad", *(f"{f}_{kind}" for f in forms for kind in _NUMBERS.values())])


def total(offsets: torch.Tensor) -> int | None:
    """Return the last offset if the offsets start with 0 and never decrease, else None."""
    library, ends = _library(), _wide(offsets)
    if library is None or ends is None:
        return None
    found = library["total"](ends.data_ptr(), ends.numel())
    return None if found < 0 else found


def _wide(offsets: Any) -> torch.Tensor | None:
    """Return offsets, of which there must be at least one, as int64; None for anything else."""
    if not are_vectors(offsets) or not offsets.numel():
        return None
    if offsets.dtype is torch.int64:
        return offsets  # type: ignore[no-any-return]
    return offsets.to(torch.int64) if offsets.dtype is torch.int32 else None


# --------------------------------------------------------------------------------------------- padding and packing


def pad(values: torch.Tensor, offsets: Any, most: int, padding: Any = 0) -> torch.Tensor | None:
    """Return a padded tensor [B, most, …] of packed rows [N, …]; the offsets may end before N.

    Short components are padded, and long ones are cut.
    """
    ends = _wide(offsets)
    if ends is None or not values.is_cpu or most < 0 or _library() is None:
        return None
    return _Padded.call(values, ends, most, _filling(padding, values))


def unpad(padded: torch.Tensor, offsets: Any, rows: int) -> torch.Tensor | None:
    """Return packed rows [rows, …] of a padded tensor [B, most, …]; the offsets may end before `rows`.

    Rows that `padded` does not hold are 0.
    """
    ends = _wide(offsets)
    if ends is None or not padded.is_cpu or padded.ndim < 2 or padded.shape[0] != ends.numel() - 1:
        return None
    if rows < 0 or _library() is None:
        return None
    return _Unpadded.call(padded, ends, rows)


class _Padded(Differentiable):
    @staticmethod
    def forward(values: torch.Tensor, ends: torch.Tensor, most: int, filling: torch.Tensor | None) -> Any:
        values = plain(values)
        rows, *features = values.shape
        components = ends.numel() - 1
        made = empty((components, most, *features), values.dtype)
        failed = _copy(values, ends.data_ptr(), made, rows, filling, threads_for(size_of(made)))
        return None if failed else made

    @staticmethod
    def composed(values: torch.Tensor, ends: torch.Tensor, most: int, filling: torch.Tensor | None) -> torch.Tensor:
        return padded(values, ends, most, filling)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, ctx.ends, _, _ = inputs
        ctx.rows = values.shape[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _unchanged(_Unpadded.call(gradient, ctx.ends, ctx.rows)), None, None, None


class _Unpadded(Differentiable):
    @staticmethod
    def forward(padded: torch.Tensor, ends: torch.Tensor, rows: int) -> Any:
        library = _library()
        assert library is not None
        padded = plain(padded)
        components, most, *features = padded.shape
        made = empty((rows, *features), padded.dtype)
        width = padded.element_size() * math.prod(features)
        failed = library["unpad"](
            padded.data_ptr(), ends.data_ptr(), made.data_ptr(), components, rows, most, width,
            threads_for(rows * width),
        )  # fmt: skip
        return None if failed else made

    @staticmethod
    def composed(padded: torch.Tensor, ends: torch.Tensor, rows: int) -> torch.Tensor:
        return unpadded(padded, ends, rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        padded, ctx.ends, _ = inputs
        ctx.most = padded.shape[1]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _unchanged(_Padded.call(gradient, ctx.ends, ctx.most, None)), None, None


# The functions below do the same by torch's operations, which support forward mode and vmap. `ends` are checked before.


def _cells(ends: torch.Tensor, rows: int, most: int) -> torch.Tensor:
    """Return for each of `rows` packed rows its cell in [B, most], or one past the last cell if it has none."""
    row, components = torch.arange(rows, device=ends.device), ends.numel() - 1
    component = torch.searchsorted(ends[1:], row, right=True).clamp(max=max(components - 1, 0))
    position = row - ends[component]
    inside = (row < ends[-1]) & (position < most)
    return torch.where(inside, component * most + position, components * most)


def padded(values: torch.Tensor, ends: torch.Tensor, most: int, filling: torch.Tensor | None = None) -> torch.Tensor:
    """Return a padded tensor [B, most, …] of packed rows."""
    count, features = (ends.numel() - 1) * most, values.shape[1:]
    base = (values.new_zeros(()) if filling is None else filling).expand(count + 1, *features)
    made = base.index_copy(0, _cells(ends, values.shape[0], most), values)
    return made[:count].view(ends.numel() - 1, most, *features)


def unpadded(grid: torch.Tensor, ends: torch.Tensor, rows: int) -> torch.Tensor:
    """Return packed rows [rows, …] of a padded tensor [B, most, …]; rows that it does not hold are 0."""
    flat = grid.flatten(0, 1)
    past = torch.cat([flat, flat.new_zeros((1, *flat.shape[1:]))])
    return past.index_select(0, _cells(ends, rows, grid.shape[1]))


def _unchanged(made: torch.Tensor | None) -> torch.Tensor:
    if made is None:
        raise RaggednessError("offsets were changed between a call and the computation of its gradient")
    return made


def _copy(
    values: torch.Tensor, ends: int, made: torch.Tensor, rows: int, filling: torch.Tensor | None, threads: int,
    first: int = 0,
) -> int:  # fmt: skip
    """Write `rows` packed rows from `first` on into the padded `made`; `ends` is the address of the offsets.

    The result is 0, or -1 if the offsets are wrong.
    """
    library = _library()
    assert library is not None
    components, most, *features = made.shape
    size = values.element_size()
    width = size * math.prod(features)
    return library["pad"](
        values.data_ptr() + first * width, ends, made.data_ptr(), components, rows, most, width,
        0 if filling is None else filling.data_ptr(), size, threads,
    )  # fmt: skip


def pad_keys(
    values: torch.Tensor, ends: torch.Tensor, starts: list[int], sizes: list[int], padding: Any = 0
) -> list[torch.Tensor] | None:
    """Return for each key k a padded tensor [B, sizes[k], …] of the rows `starts[k]` to `starts[k + 1]`.

    `ends` [K, B + 1] must be int64 and contiguous; ends[k] cut the rows of key k. The K + 1 starts must never decrease
    and must lie within `values`, and sizes must be 0 or more. The result has no gradient.
    """
    if _library() is None or transforming() or not (values.is_cpu and ends.is_cpu):
        return None
    filling = _filling(padding, values)
    values = plain(values)
    components, features = ends.shape[1] - 1, values.shape[1:]
    made = [empty((components, most, *features), values.dtype) for most in sizes]
    line, threads = ends.data_ptr(), threads_for(sum(size_of(result) for result in made))
    for key, result in enumerate(made):
        first = starts[key]
        if _copy(values, line, result, starts[key + 1] - first, filling, threads, first):
            return None
        line += 8 * (components + 1)
    return made


def _filling(padding: Any, values: torch.Tensor) -> torch.Tensor | None:
    """Return one element of the padding, or None if all its bits are 0."""
    return None if _is_zero(padding) else bits.constant(padding, values.dtype, values.device)


def _is_zero(padding: Any) -> bool:
    """Return whether all bits of the padding are 0; those of -0.0 are not."""
    return not isinstance(padding, complex) and padding == 0 and math.copysign(1, padding) > 0


# --------------------------------------------------------------------------------------------- sums and products
#
# Packed operands are [N, …] and padded ones [B, most, …]; all have the same dtype and the same features.


def packed_sum(x: Any, offsets: Any, *ys: Any) -> torch.Tensor | None:
    """Return [N, …]: packed x plus the elements of the padded operands at the same places."""
    ends = _wide(offsets)
    return _PackedSum.call(x, ends, *ys) if ends is not None and all(_meet(x, ends, y) for y in ys) else None


def padded_sum(x: Any, offsets: Any, y: Any) -> torch.Tensor | None:
    """Return [B, most, …]: padded y plus packed x, which is padded with 0 or cut to fit y."""
    ends = _wide(offsets)
    return _PaddedSum.call(x, ends, y) if ends is not None and _meet(x, ends, y) else None


def packed_product(x: Any, offsets: Any, y: Any) -> torch.Tensor | None:
    """Return [N, …]: packed x times the elements of padded y at the same places, or 0 where y has no such place."""
    ends = _wide(offsets)
    return _PackedProduct.call(x, ends, y) if ends is not None and _meet(x, ends, y) else None


def _meet(x: Any, ends: torch.Tensor, y: Any) -> bool:
    """Return whether packed x and padded y fit each other, and the compiled code takes them."""
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)) or _library() is None:
        return False
    if x.dtype is not y.dtype or x.dtype not in _NUMBERS or not (x.is_cpu and y.is_cpu):
        return False
    shape = y.shape
    return 0 < x.ndim == len(shape) - 1 and shape[0] == ends.numel() - 1 and shape[2:] == x.shape[1:]


def _combined(
    form: str, x: torch.Tensor, ends: torch.Tensor, y: torch.Tensor, most: int, made: torch.Tensor
) -> torch.Tensor | None:
    """Write the result of the function `form` into `made` and return it; None if the offsets are wrong."""
    library = _library()
    assert library is not None
    x, y = plain(x), plain(y)
    rows, *features = x.shape
    failed = library[f"{form}_{_NUMBERS[x.dtype]}"](
        x.data_ptr(), y.data_ptr(), ends.data_ptr(), made.data_ptr(), ends.numel() - 1, rows, most,
        math.prod(features), threads_for(size_of(made)),
    )  # fmt: skip
    return None if failed else made


class _PaddedSum(Differentiable):
    @staticmethod
    def forward(x: torch.Tensor, ends: torch.Tensor, y: torch.Tensor) -> Any:
        return _combined("padded_sum", x, ends, y, y.shape[1], empty(y.shape, y.dtype))

    @staticmethod
    def composed(x: torch.Tensor, ends: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return padded(x, ends, y.shape[1]) + y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, ctx.ends, _ = inputs
        ctx.rows = x.shape[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        wanted = ctx.needs_input_grad[0]
        return _unchanged(_Unpadded.call(gradient, ctx.ends, ctx.rows)) if wanted else None, None, gradient


class _PackedSum(Differentiable):
    @staticmethod
    def forward(x: torch.Tensor, ends: torch.Tensor, *ys: torch.Tensor) -> Any:
        made = empty(x.shape, x.dtype)
        for y in ys:
            if _combined("packed_sum", x, ends, y, y.shape[1], made) is None:
                return None
            x = made
        return made

    @staticmethod
    def composed(x: torch.Tensor, ends: torch.Tensor, *ys: torch.Tensor) -> torch.Tensor:
        for y in ys:
            x = x + unpadded(y, ends, x.shape[0])
        return x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.ends, *ys = inputs
        ctx.sizes = [y.shape[1] for y in ys]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        made: dict[int, torch.Tensor] = {}  # Operands of the same size have the same gradient.
        asked = []
        for most, wanted in zip(ctx.sizes, ctx.needs_input_grad[2:], strict=True):
            if wanted and most not in made:
                made[most] = _unchanged(_Padded.call(gradient, ctx.ends, most, None))
            asked.append(made[most] if wanted else None)
        return gradient, None, *asked


# Σ x · y · z is taken over the cells that packed rows of x and z share with a padded y. Its gradient for one operand is
# the product of the other two, packed or padded; the same holds for the gradients of the gradients.


class _PackedProduct(Differentiable):
    """The product of packed x and the elements of padded y at the same places; it is 0 where y has no such place."""

    @staticmethod
    def forward(x: torch.Tensor, ends: torch.Tensor, y: torch.Tensor) -> Any:
        return _combined("packed_product", x, ends, y, y.shape[1], empty(x.shape, x.dtype))

    @staticmethod
    def composed(x: torch.Tensor, ends: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * unpadded(y, ends, x.shape[0])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, ctx.ends, y = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, y = ctx.saved_tensors
        for_x, _, for_y = ctx.needs_input_grad
        return (
            _unchanged(_PackedProduct.call(gradient, ctx.ends, y)) if for_x else None,
            None,
            _unchanged(_PaddedProduct.call(x, ctx.ends, gradient, y.shape[1])) if for_y else None,
        )


class _PaddedProduct(Differentiable):
    """The product of x and z, which are both packed; it is padded with 0 or cut."""

    @staticmethod
    def forward(x: torch.Tensor, ends: torch.Tensor, z: torch.Tensor, most: int) -> Any:
        return _combined("padded_product", x, ends, z, most, empty((ends.numel() - 1, most, *x.shape[1:]), x.dtype))

    @staticmethod
    def composed(x: torch.Tensor, ends: torch.Tensor, z: torch.Tensor, most: int) -> torch.Tensor:
        return padded(x * z, ends, most)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, ctx.ends, z, _ = inputs
        ctx.save_for_backward(x, z)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, z = ctx.saved_tensors
        for_x, _, for_z, _ = ctx.needs_input_grad
        return (
            _unchanged(_PackedProduct.call(z, ctx.ends, gradient)) if for_x else None,
            None,
            _unchanged(_PackedProduct.call(x, ctx.ends, gradient)) if for_z else None,
            None,
        )
