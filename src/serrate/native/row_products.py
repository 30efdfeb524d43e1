"""This module computes products of packed rows on the CPU, by row_products.cpp, without padding.

There are two sums of products of three operands:

- "product": Σ x[l, k] · y[b, k, m] · z[l, m] for x [N, K], y [B, K, M], z [N, M]
- "weighted": Σ v[b, h, l] · a[l, h, d] · g[b, h, d] for v [B · H, L], a [N, H · D], g [B · H, D]

Both are taken over the components b and the first `most` rows l of each. A product of two operands is the derivative of
such a sum by the third operand, which is called the missing one; the gradients of a product are the other products.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from serrate.errors import RaggednessError
from serrate.native.loading import Routines, empty, load, plain, threads_for, transforming
from serrate.native.padded import padded, unpadded
from serrate.tensor.differentiable import Differentiable

_NAMES = {torch.float32: "float32", torch.float64: "float64"}
_LETTERS = {"product": ("blk", "bkm", "blm"), "weighted": ("bhl", "blhd", "bhd")}
"""The axes of the three operands for torch.einsum; operands whose axes begin with b and l have packed rows."""


@cache
def _library() -> Routines | None:
    """Return the functions of the source; None if there is no library with them."""
    names = [f"{form}_{kind}" for form in ("product", "weighted") for kind in _NAMES.values()]
    return load("row_products.cpp", names)


def serves(*operands: torch.Tensor) -> bool:
    """Return whether this module can multiply these operands: float32 or float64, one dtype for all, on the CPU."""
    dtype = operands[0].dtype
    if dtype not in _NAMES or transforming():
        return False
    for operand in operands:
        if operand.dtype is not dtype or not operand.is_cpu:
            return False
    return _library() is not None


def times_matrices(x: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor, most: int) -> torch.Tensor:
    """Return z [N, M]: the rows of each component of x [N, K] times its matrix of y [B, K, M].

    Rows past the first `most` of a component are 0.
    """
    return _matrices(x, y.shape[2], offsets, most).part(2, x, y)


def summed_outer(x: torch.Tensor, z: torch.Tensor, offsets: torch.Tensor, most: int) -> torch.Tensor:
    """Return y [B, K, M]: for each component the sum of the outer products of its rows of x [N, K] and z [N, M]."""
    return _matrices(x, z.shape[1], offsets, most).part(1, x, z)


def product(missing: int, first: torch.Tensor, second: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor | None:
    """Return the product of two operands of "product", in order, without a gradient; None for wrong offsets.

    All rows of each component count.
    """
    rows = (second if missing == 0 else first).shape[0]
    k, m = second.shape[1:] if missing == 2 else first.shape[1:] if missing == 0 else (first.shape[1], second.shape[1])
    ends = _wide(offsets)
    shapes = ((rows, k), (ends.numel() - 1, k, m), (rows, m))
    return _Form("product", shapes, ends, rows, rows, k, m).compute(missing, first, second)


def weighted_sums(v: torch.Tensor, a: torch.Tensor, offsets: torch.Tensor, heads: int) -> torch.Tensor:
    """Return g [B · H, D]: the sums of the rows of each component of a [N, H · D], weighted by v [B · H, L]."""
    rows, size = a.shape[0], a.shape[1] // heads
    most, lines = v.shape[1], (offsets.numel() - 1) * heads
    shapes = ((lines, most), (rows, heads * size), (lines, size))
    return _Form("weighted", shapes, _wide(offsets), rows, most, heads, size).part(2, v, a)


def _matrices(x: torch.Tensor, m: int, offsets: torch.Tensor, most: int) -> _Form:
    rows, k = x.shape
    shapes = ((rows, k), (offsets.numel() - 1, k, m), (rows, m))
    return _Form("product", shapes, _wide(offsets), rows, most, k, m)


def _wide(offsets: torch.Tensor) -> torch.Tensor:
    if offsets.dtype is torch.int64 and offsets.is_contiguous():
        return offsets
    return offsets.to(torch.int64).contiguous()


class _Form(NamedTuple):
    """A sum of products of three operands of these shapes; one or two of the operands have packed rows."""

    name: str
    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    offsets: torch.Tensor
    """The offsets of the components, which were checked and cut at most `rows` rows."""
    rows: int
    most: int
    first: int
    second: int

    def part(self, missing: int, *others: torch.Tensor) -> torch.Tensor:
        """Return the product of the two other operands, in order: the derivative by the missing one."""
        shapes = [shape for place, shape in enumerate(self.shapes) if place != missing]
        if [other.shape for other in others] != shapes:
            raise ValueError(f"operands must have the shapes {shapes}, got {[list(other.shape) for other in others]}")
        return _Part.call(*others, self, missing)

    def compute(self, missing: int, *others: torch.Tensor) -> torch.Tensor | None:
        """Return the same, without a gradient; None for wrong offsets."""
        library = _library()
        assert library is not None
        given = [plain(other) for other in others]
        made = empty(self.shapes[missing], given[0].dtype)
        if not made.numel():
            return made
        addresses = [operand.data_ptr() for operand in given]
        addresses.insert(missing, 0)
        failed = library[f"{self.name}_{_NAMES[made.dtype]}"](
            missing, *addresses, made.data_ptr(), self.offsets.data_ptr(), self.offsets.numel() - 1, self.rows,
            self.most, self.first, self.second, threads_for(self.rows * self.first * self.second),
        )  # fmt: skip
        return None if failed else made

    def compose(self, missing: int, *others: torch.Tensor) -> torch.Tensor:
        """Return the same by torch's operations, on padded rows."""
        letters, size = _LETTERS[self.name], self.most
        if self.name == "product":
            size = min(size, int(self.offsets.diff().max())) if self.offsets.numel() > 1 else 0
        inner = dict(zip(letters[1][-2:], (self.first, self.second), strict=True))
        sizes = {"b": self.offsets.numel() - 1, "l": size, **inner}
        there = [place for place in range(3) if place != missing]
        blocks = []
        for place, other in zip(there, others, strict=True):
            shape = [sizes[letter] for letter in letters[place]]
            packed = letters[place].startswith("bl")
            blocks.append(padded(other.reshape(-1, *shape[2:]), self.offsets, size) if packed else other.view(shape))
        made = torch.einsum(f"{letters[there[0]]},{letters[there[1]]}->{letters[missing]}", *blocks)
        made = unpadded(made, self.offsets, self.rows) if letters[missing].startswith("bl") else made
        return made.reshape(self.shapes[missing])


class _Part(Differentiable):
    is_fresh = True

    @staticmethod
    def forward(first: torch.Tensor, second: torch.Tensor, form: _Form, missing: int) -> torch.Tensor:
        made = form.compute(missing, first, second)
        if made is None:
            raise RaggednessError(f"offsets must start with 0, never decrease and end with at most {form.rows} rows")
        return made

    @staticmethod
    def composed(first: torch.Tensor, second: torch.Tensor, form: _Form, missing: int) -> torch.Tensor:
        return form.compose(missing, first, second)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        first, second, ctx.form, ctx.missing = inputs
        ctx.save_for_backward(first, second, ctx.form.offsets)  # torch finds out if the offsets are written to

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        first, second, _ = ctx.saved_tensors
        form, missing = ctx.form, ctx.missing
        # The given operands are 1 and 2, 0 and 2, or 0 and 1. The gradient takes the place of the missing operand.
        by_first = (gradient, first) if missing == 0 else (first, gradient)
        by_second = (second, gradient) if missing == 2 else (gradient, second)
        return (
            _Part.call(*by_second, form, 1 if missing == 0 else 0) if ctx.needs_input_grad[0] else None,
            _Part.call(*by_first, form, 1 if missing == 2 else 2) if ctx.needs_input_grad[1] else None,
            None,
            None,
        )
