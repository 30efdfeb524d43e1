"""Packed and padded rows on the CPU, by padded.cpp: copied from one to the other, added and multiplied.

torch has no call that writes a padded tensor in one pass: its calls take two to three times as long.
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
    """The compiled source; None where it cannot be compiled."""
    forms = ("packed_sum", "packed_product", "padded_sum", "padded_product")
    return load("padded.cpp", ["total", "pad", "unpad", *(f"{f}_{kind}" for f in forms for kind in _NUMBERS.values())])


def total(offsets: torch.Tensor) -> int | None:
    """The last of offsets, if they are known to start with 0 and never to decrease."""
    library, ends = _library(), _wide(offsets)
    if library is None or ends is None:
        return None
    found = library["total"](ends.data_ptr(), ends.numel())
    return None if found < 0 else found


def _wide(offsets: Any) -> torch.Tensor | None:
    """Offsets, at least one, in int64; None if this is something else."""
    if not are_vectors(offsets) or not offsets.numel():
        return None
    if offsets.dtype is torch.int64:
        return offsets  # type: ignore[no-any-return]
    return offsets.to(torch.int64) if offsets.dtype is torch.int32 else None


# ------------------------------------------------------------------------------------------- from one to the other


def pad(values: torch.Tensor, offsets: Any, most: int, padding: Any = 0) -> torch.Tensor | None:
    """[B, most, …] out of packed rows [N, …] and offsets, which may end before N: rows padded, or cut off."""
    ends = _wide(offsets)
    if ends is None or not values.is_cpu or most < 0 or _library() is None:
        return None
    return _Padded.call(values, ends, most, _filling(padding, values))


def unpad(padded: torch.Tensor, offsets: Any, rows: int) -> torch.Tensor | None:
    """[rows, …] out of [B, most, …] and offsets, which may end before `rows`: 0 where a row is not in `padded`."""
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


# The same by torch's operations, which support forward mode and vmap; `ends` are already checked.


def _cells(ends: torch.Tensor, rows: int, most: int) -> torch.Tensor:
    """For each of `rows` packed rows its cell among those of [B, most], one past the last if it has none."""
    row, components = torch.arange(rows, device=ends.device), ends.numel() - 1
    component = torch.searchsorted(ends[1:], row, right=True).clamp(max=max(components - 1, 0))
    position = row - ends[component]
    inside = (row < ends[-1]) & (position < most)
    return torch.where(inside, component * most + position, components * most)


def padded(values: torch.Tensor, ends: torch.Tensor, most: int, filling: torch.Tensor | None = None) -> torch.Tensor:
    """[B, most, …] out of packed rows."""
    count, features = (ends.numel() - 1) * most, values.shape[1:]
    base = (values.new_zeros(()) if filling is None else filling).expand(count + 1, *features)
    made = base.index_copy(0, _cells(ends, values.shape[0], most), values)
    return made[:count].view(ends.numel() - 1, most, *features)


def unpadded(grid: torch.Tensor, ends: torch.Tensor, rows: int) -> torch.Tensor:
    """[rows, …] out of [B, most, …], 0 where a row is not in it."""
    flat = grid.flatten(0, 1)
    past = torch.cat([flat, flat.new_zeros((1, *flat.shape[1:]))])
    return past.index_select(0, _cells(ends, rows, grid.shape[1]))


def _unchanged(made: torch.Tensor | None) -> torch.Tensor:
    if made is None:
        raise RaggednessError("offsets were changed after the call whose gradient is asked for")
    return made


def _copy(
    values: torch.Tensor, ends: int, made: torch.Tensor, rows: int, filling: torch.Tensor | None, threads: int,
    first: int = 0,
) -> int:  # fmt: skip
    """Write `rows` packed rows from `first` on into padded ones; `ends` is where offsets are."""
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
    """For each key k [B, sizes[k], …] out of the rows from `starts[k]` up to `starts[k + 1]`, cut by `ends[k]`.

    `ends` [K, B + 1] are int64 and contiguous; the K + 1 starts never decrease and lie within `values`, and sizes are 0
    or more. Without a gradient.
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
    """One element of the padding; None for zeros."""
    return None if _is_zero(padding) else bits.constant(padding, values.dtype, values.device)


def _is_zero(padding: Any) -> bool:
    """Whether all its bits are 0, as those of -0.0 are not."""
    return not isinstance(padding, complex) and padding == 0 and math.copysign(1, padding) > 0


# --------------------------------------------------------------------------------------------- sums and products
#
# Of packed operands [N, …] and padded ones [B, most, …], all of one dtype and with the same features.


def packed_sum(x: Any, offsets: Any, *ys: Any) -> torch.Tensor | None:
    """[N, …]: packed x plus what padded operands have at its places."""
    ends = _wide(offsets)
    return _PackedSum.call(x, ends, *ys) if ends is not None and all(_meet(x, ends, y) for y in ys) else None


def padded_sum(x: Any, offsets: Any, y: Any) -> torch.Tensor | None:
    """[B, most, …]: packed x, padded with 0 or cut off, plus y, padded."""
    ends = _wide(offsets)
    return _PaddedSum.call(x, ends, y) if ends is not None and _meet(x, ends, y) else None


def packed_product(x: Any, offsets: Any, y: Any) -> torch.Tensor | None:
    """[N, …]: packed x times what y, padded, has at its places, 0 where it has none."""
    ends = _wide(offsets)
    return _PackedProduct.call(x, ends, y) if ends is not None and _meet(x, ends, y) else None


def _meet(x: Any, ends: torch.Tensor, y: Any) -> bool:
    """Whether packed x and padded y are served, and fit each other."""
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)) or _library() is None:
        return False
    if x.dtype is not y.dtype or x.dtype not in _NUMBERS or not (x.is_cpu and y.is_cpu):
        return False
    shape = y.shape
    return 0 < x.ndim == len(shape) - 1 and shape[0] == ends.numel() - 1 and shape[2:] == x.shape[1:]


def _combined(
    form: str, x: torch.Tensor, ends: torch.Tensor, y: torch.Tensor, most: int, made: torch.Tensor
) -> torch.Tensor | None:
    """`made`, written; None for wrong offsets."""
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
        made: dict[int, torch.Tensor] = {}  # operands of one size have one gradient
        asked = []
        for most, wanted in zip(ctx.sizes, ctx.needs_input_grad[2:], strict=True):
            if wanted and most not in made:
                made[most] = _unchanged(_Padded.call(gradient, ctx.ends, most, None))
            asked.append(made[most] if wanted else None)
        return gradient, None, *asked


# Σ x · y · z over the cells that packed rows of x and z and a padded y share: each of its gradients, and of theirs, is
# the product of the two other operands, packed or padded.


class _PackedProduct(Differentiable):
    """x times what y has at its places, 0 where it has none."""

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
    """x times z, both packed, padded with 0 or cut off."""

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
