"""This module pads, packs, adds and multiplies packed and padded rows on the CPU, by padded.cpp.

torch has no call that writes a padded tensor in one pass; several calls take two to three times as long.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from serrate.errors import RaggednessError
from serrate.native.loading import Routines, are_vectors, empty, load, plain, size_of, threads_for, transforming
from serrate.tensor import bits, dense, host
from serrate.tensor.differentiable import Differentiable
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor

_NUMBERS = {torch.float32: "float32", torch.float64: "float64", torch.int32: "int32", torch.int64: "int64"}


@cache
def _library() -> Routines | None:
    """Return the functions of the source; None if there is no library with them."""
    forms = ("packed_sum", "packed_product", "padded_sum", "padded_product")
    return load("padded.cpp", ["total", "pad", "unpad", *(f"{f}_{kind}" for f in forms for kind in _NUMBERS.values())])


def is_there() -> bool:
    """Return whether there is compiled code."""
    return _library() is not None


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


_MOST = 2**48  # a size that no memory has room for
_CHANGED = "offsets were changed between a call and the computation of its gradient"


class Levels(NamedTuple):
    """Levels of cells inside cells, outermost first: how packed rows lie in a padded tensor [B, *sizes, …].

    A level is a vector of int64 offsets, of which the first level must be one, or None if each cell outside has as
    many cells as the padded tensor.
    """

    outer: torch.Tensor
    """The offsets of the first level."""
    components: int
    """The number of components of the first level, B."""
    sizes: tuple[int, ...]
    inner: tuple[torch.Tensor | None, ...] = ()
    """The offsets of the other levels."""

    @property
    def offsets(self) -> tuple[torch.Tensor | None, ...]:
        """The offsets of all levels."""
        return (self.outer, *self.inner)

    @property
    def versions(self) -> list[int | None]:
        """How often the offsets of each level were written to, as far as torch counts it."""
        return [None if ends is None or ends.is_inference() else ends._version for ends in self.offsets]

    def structure(self, rows: int) -> Structure:
        """Return the structure of `rows` packed rows, of which the last ones may belong to no component."""
        axes: list[Axis] = [self.components]
        counts = [None if level is None else level.numel() - 1 for level in self.inner]
        for level, size, inside in zip(self.offsets, self.sizes, [*counts, rows], strict=True):
            if level is None:
                axes.append(size)
                continue
            cells = int(level[-1]) if inside is None else inside
            whole = host.is_at_hand(level) and int(level[-1]) == cells
            axes.append(Ragged(Partition._of(level, cells, device_born=not whole, exact=whole), range(len(axes))))
        return Structure(axes)


_UNCUT = 2**62
"""The number of components of a level without offsets, which has any number of them."""


def pad(values: torch.Tensor, offsets: Sequence[Any], sizes: Sequence[int], padding: Any = 0) -> torch.Tensor | None:
    """Return a padded tensor [B, *sizes, …] of packed rows [N, …]; the offsets may end before N.

    Offsets are given for each level, outermost first, or None for a level in which each cell has as many cells as
    `sizes` say. Short components are padded, and long ones are cut.
    """
    levels = _levels(offsets, sizes)
    if levels is None or not values.is_cpu or _library() is None:
        return None
    return _Padded.call(values, levels, padding)


def unpad(grid: torch.Tensor, offsets: Sequence[Any], rows: int | None, padding: Any = 0) -> torch.Tensor | None:
    """Return packed rows [rows, …] of a padded tensor [B, *sizes, …]; the offsets may end before `rows`.

    Rows that the padded tensor does not hold are `padding`. If `rows` is None, there must be one level, whose last
    offset is the number of rows.
    """
    shape, depth, library = grid.shape, len(offsets), _library()
    if library is None or not grid.is_cpu or len(shape) <= depth:
        return None
    levels = _levels(offsets, (shape[1],) if depth == 1 else shape[1 : 1 + depth])
    if levels is None or shape[0] != levels.components:
        return None
    if rows is None:
        rows = library["total"](levels.outer.data_ptr(), levels.components + 1)
    return _Unpadded.call(grid, levels, rows, padding) if rows >= 0 else None


def _levels(offsets: Sequence[Any], sizes: Sequence[int]) -> Levels | None:
    """Return the levels of these offsets; None if one is no vector of integers in memory, or a size is negative."""
    if len(offsets) == 1:
        ends, most = _wide(offsets[0]), sizes[0]
        return _level(ends, most) if ends is not None and type(most) is int and 0 <= most < _MOST else None
    wide = tuple(None if level is None else _wide(level) for level in offsets)
    if not wide or wide[0] is None or min(sizes) < 0 or max(sizes) >= _MOST:
        return None
    if any(made is None and given is not None for made, given in zip(wide, offsets, strict=True)):
        return None
    return Levels(wide[0], wide[0].numel() - 1, tuple(sizes), wide[1:])


def _level(ends: torch.Tensor, most: int) -> Levels:
    """Return the one level of these int64 offsets."""
    return Levels(ends, ends.numel() - 1, (most,))


def _require_unwritten(ctx: Any) -> None:
    """Raise an error if offsets were written to since the call whose gradient is computed."""
    if ctx.levels.versions != ctx.versions:
        raise RaggednessError(_CHANGED)


class _Padded(Differentiable):
    is_fresh = True

    @staticmethod
    def forward(values: torch.Tensor, levels: Levels, padding: Any) -> Any:
        rows, *features = values.shape
        made = empty((levels.components, *levels.sizes, *features), values.dtype)
        return _moved("pad", values, levels, rows, features, made, padding)

    @staticmethod
    def composed(values: torch.Tensor, levels: Levels, padding: Any) -> torch.Tensor:
        sizes = [size for ends, size in zip(levels.offsets, levels.sizes, strict=True) if ends is not None]
        return dense.to_dense(Tensor(values, levels.structure(values.shape[0])), padding, sizes).values

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        values, ctx.levels, _ = inputs
        ctx.rows, ctx.versions = values.shape[0], ctx.levels.versions

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        _require_unwritten(ctx)
        return _unchanged(_Unpadded.call(gradient, ctx.levels, ctx.rows, 0)), None, None


class _Unpadded(Differentiable):
    is_fresh = True

    @staticmethod
    def forward(grid: torch.Tensor, levels: Levels, rows: int, padding: Any) -> Any:
        features = grid.shape[1 + len(levels.sizes) :]
        made = empty((rows, *features), grid.dtype)
        return _moved("unpad", grid, levels, rows, features, made, padding)

    @staticmethod
    def composed(grid: torch.Tensor, levels: Levels, rows: int, padding: Any) -> torch.Tensor:
        return dense.gather_from(grid, levels.structure(rows), tuple(range(grid.ndim)), padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.levels, _, _ = inputs
        ctx.versions = ctx.levels.versions

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        _require_unwritten(ctx)
        return _unchanged(_Padded.call(gradient, ctx.levels, 0)), None, None, None


def padded(values: torch.Tensor, ends: torch.Tensor, most: int) -> torch.Tensor:
    """Return a tensor [B, most, …] of packed rows, padded with 0, by torch's operations; `ends` are checked before."""
    return _Padded.composed(values, _level(ends, most), 0)


def unpadded(grid: torch.Tensor, ends: torch.Tensor, rows: int) -> torch.Tensor:
    """Return packed rows [rows, …] of a tensor [B, most, …], 0 where it holds none, by torch's operations."""
    return _Unpadded.composed(grid, _level(ends, grid.shape[1]), rows, 0)


def _moved(
    name: str, given: torch.Tensor, levels: Levels, rows: int, features: Sequence[int], made: torch.Tensor, padding: Any
) -> torch.Tensor | None:
    """Write the given rows into `made` by a compiled function; None for wrong offsets. `rows` are packed ones."""
    library = _library()
    assert library is not None
    filling = _filling(padding, given)
    given, size = plain(given), made.element_size()
    memory = _words(levels) if levels.inner else None
    failed = library[name](
        given.data_ptr(), levels.outer.data_ptr(), made.data_ptr(), levels.components, rows, levels.sizes[0],
        size * math.prod(features), 0 if filling is None else filling.data_ptr(), size,
        threads_for(size * made.numel()), 0 if memory is None else ctypes.addressof(memory), len(levels.inner),
    )  # fmt: skip
    return None if failed else made


def _words(levels: Levels) -> Any:
    """Return memory with the inner levels as the compiled functions read them."""
    words: list[int] = []
    for ends, most in zip(levels.inner, levels.sizes[1:], strict=True):
        words += (0, _UNCUT, most) if ends is None else (ends.data_ptr(), ends.numel() - 1, most)
    return (ctypes.c_int64 * len(words))(*words)


def _unchanged(made: torch.Tensor | None) -> torch.Tensor:
    if made is None:
        raise RaggednessError(_CHANGED)
    return made


def pad_keys(
    values: torch.Tensor, ends: torch.Tensor, starts: list[int], sizes: list[int], padding: Any = 0
) -> list[torch.Tensor] | None:
    """Return for each key k a padded tensor [B, sizes[k], …] of the rows `starts[k]` to `starts[k + 1]`.

    `ends` [K, B + 1] must be int64 and contiguous; ends[k] cut the rows of key k. The K + 1 starts must never decrease
    and must lie within `values`, and sizes must be 0 or more. The result has no gradient.
    """
    if _library() is None or transforming() or not (values.is_cpu and ends.is_cpu):
        return None
    library, filling = _library(), _filling(padding, values)
    assert library is not None
    values = plain(values)
    components, features = ends.shape[1] - 1, values.shape[1:]
    made = [empty((components, most, *features), values.dtype) for most in sizes]
    line, threads = ends.data_ptr(), threads_for(sum(size_of(result) for result in made))
    size, address = values.element_size(), 0 if filling is None else filling.data_ptr()
    width = size * math.prod(features)
    for key, result in enumerate(made):
        first, last = starts[key], starts[key + 1]
        if library["pad"](
            values.data_ptr() + first * width, line, result.data_ptr(), components, last - first, sizes[key], width,
            address, size, threads, 0, 0,
        ):  # fmt: skip
            return None
        line += 8 * (components + 1)
    return made


def _filling(padding: Any, values: torch.Tensor) -> torch.Tensor | None:
    """Return one element of the padding, or None if all its bits are 0."""
    return None if _is_zero(padding) else bits.constant(padding, values.dtype, values.device)


def _is_zero(padding: Any) -> bool:
    """Return whether all bits of the padding are 0; those of -0.0 are not."""
    if type(padding) is int:
        return padding == 0
    return isinstance(padding, (bool, int, float)) and padding == 0 and math.copysign(1, padding) > 0


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
    is_fresh = True

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
        return (
            _unchanged(_Unpadded.call(gradient, _level(ctx.ends, gradient.shape[1]), ctx.rows, 0)) if wanted else None,
            None,
            gradient,
        )


class _PackedSum(Differentiable):
    is_fresh = True

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
                made[most] = _unchanged(_Padded.call(gradient, _level(ctx.ends, most), 0))
            asked.append(made[most] if wanted else None)
        return gradient, None, *asked


# Σ x · y · z is taken over the cells that packed rows of x and z share with a padded y. Its gradient for one operand is
# the product of the other two, packed or padded; the same holds for the gradients of the gradients.


class _PackedProduct(Differentiable):
    """The product of packed x and the elements of padded y at the same places; it is 0 where y has no such place."""

    is_fresh = True

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

    is_fresh = True

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
