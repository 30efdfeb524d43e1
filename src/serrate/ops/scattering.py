"""Elements written by their positions: scatter and index_add along any axis, positions counted in each row."""

from __future__ import annotations

from typing import Any

import torch

from serrate.eager.addresses import beside, combined, depends_on, indices_beside, stretched, values_of, within
from serrate.eager.taking import beside_axis, key_along, same_positions
from serrate.errors import AxisError
from serrate.ops.answers import refuse_out
from serrate.ops.gathering import ZEROS, record_gathering
from serrate.ops.record import NUMERIC, operation, ops
from serrate.ops.reductions import product_of_others
from serrate.ops.rules import conjugate, reduced_to
from serrate.tensor import indexing
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def _scatter(
    x: Any, indices: Any, src: Any, /, *, axis: int, reduce: str | None = None, include_self: bool = True
) -> Tensor:
    tensor = as_tensor(x)
    if reduce not in (None, "sum", "prod", "amax", "amin", "mean"):
        raise ValueError(f"reduce must be None, 'sum', 'prod', 'amax', 'amin' or 'mean', got {reduce!r:.40}")
    if reduce in ("amax", "amin") and tensor.is_complex():
        raise TypeError(f"{reduce} needs ordered elements, got {tensor.dtype}")
    if reduce is not None and tensor.dtype == torch.bool:
        raise TypeError(f"{reduce} needs numbers, got {tensor.dtype}")
    return within(tensor, indices_beside(tensor, indices), tensor._axis(axis)).write(src, reduce, include_self)


@operation
def _index_add(x: Any, indices: Any, source: Any, /, *, axis: int, alpha: Any = 1) -> Tensor:
    tensor = as_tensor(x)
    number = tensor._axis(axis)
    index, _ = same_positions(tensor, indices)
    if tensor.dtype == torch.bool:
        raise TypeError(f"index_add needs numbers, got {tensor.dtype}")
    scaled = source if isinstance(alpha, int) and alpha == 1 else source * alpha
    if any(depends_on(size, number) for size in tensor.shape):
        return _add_rows(tensor, number, index, scaled)
    return stretched(tensor, beside_axis(tensor, number, index), number).write(scaled, "sum", include_self=True)


def _add_rows(x: Tensor, axis: int, index: torch.Tensor, source: Any) -> Tensor:
    """Whole rows added, whose raggedness is that of the rows they are added to."""
    numbers = beside(torch.arange(x.values.shape[0], device=x.device), x.values)
    chosen = indexing.get(x._with(numbers), key_along(axis, index))
    rows = chosen.values.expand(-1, *x.values.shape[1:])
    source = values_of(source, chosen._with(rows), x.dtype).expand(rows.shape)
    return x._with(combined(x.values, chosen.values.reshape(-1), source, "sum", include_self=True))


# ----------------------------------------------------------------------------------------------------- torch's spelling

_TORCH_REDUCE = {"add": "sum", "multiply": "prod"}


def _answer_scatter(
    input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None, out: Any = None
) -> Tensor:
    refuse_out("scatter", out)
    source = value if src is None else src
    return _scatter_first(input, dim, index, source, None if reduce is None else _TORCH_REDUCE.get(reduce, reduce))


def _answer_scatter_add(input: Any, dim: int, index: Any, src: Any, *, out: Any = None) -> Tensor:
    refuse_out("scatter_add", out)
    return _scatter_first(input, dim, index, src, "sum")


def _answer_scatter_reduce(
    input: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True, out: Any = None
) -> Tensor:
    refuse_out("scatter_reduce", out)
    return _scatter_first(input, dim, index, src, reduce, include_self)


def _scatter_first(input: Any, dim: int, index: Any, src: Any, reduce: str | None, include_self: bool = True) -> Tensor:
    """torch lets uniform axes of src be larger than those of index: their first entries are meant."""
    if isinstance(src, (Tensor, torch.Tensor)) and src.ndim == index.ndim:
        cut = [isinstance(n, int) and isinstance(m, int) and n > m for n, m in zip(src.shape, index.shape, strict=True)]
        if any(cut):
            src = as_tensor(src)[
                tuple(slice(0, m) if c else slice(None) for c, m in zip(cut, index.shape, strict=True))
            ]
    return _scatter(input, index, src, axis=dim, reduce=reduce, include_self=include_self)


def _answer_index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1, out: Any = None) -> Tensor:
    refuse_out("index_add", out)
    return _index_add(input, index, source, axis=dim, alpha=alpha)


# ----------------------------------------------------------------------------------------------- bodies and derivatives


def _scatter_vjp(
    g: Any, out: Any, x: Any, indices: Any, src: Any, *, axis: int, reduce: str | None, include_self: bool
) -> tuple[Any, ...]:
    at = ops.gather(ops.numbered(x), indices, axis=axis)

    def over(each: Any) -> Any:
        return ops.collect(each, at, x)

    def beside(each: Any) -> Any:
        return ops.distribute(each, at, x)

    count = over(ops.ones_like(at))
    keeps = reduce is not None and include_self
    left = g if keeps else ops.where(ops.greater(count, 0), 0, g)  # what x has, where its element does not count
    if reduce in (None, "sum"):
        return left, None, reduced_to(beside(g), src)
    if reduce == "mean":
        share = g / ops.maximum(count + int(keeps), 1)
        return share if keeps else left, None, reduced_to(beside(share), src)
    given = _as_source(src, at, x)
    if reduce == "prod":
        zero, theirs = ops.equal(x, 0), ops.equal(given, 0)
        zeros, vanishing = over(ops.astype(theirs, torch.int64)), over(ops.where(theirs, given, 0))
        if keeps:
            zeros, vanishing = zeros + zero, vanishing + ops.where(zero, x, 0)
        rest = ops.scatter(
            ops.where(zero, 1, x), indices, ops.where(theirs, 1, given), axis=axis, reduce="prod",
            include_self=include_self,
        )  # fmt: skip
        mine = g * conjugate(product_of_others(x, zeros, rest, vanishing)) if keeps else left
        others = product_of_others(given, beside(zeros), beside(rest), beside(vanishing))
        return mine, None, reduced_to(beside(g) * conjugate(others), src)
    # Elements that are equal to the result share its gradient.
    own, theirs = (ops.astype(ops.equal(each, made), x.dtype) for each, made in ((x, out), (given, beside(out))))
    share = g / ops.maximum(over(theirs) + own if keeps else over(theirs), 1)
    return share * own if keeps else left, None, reduced_to(beside(share) * theirs, src)


def _as_source(source: Any, at: Any, x: Any) -> Any:
    """What is written, in the shape of the places it is written to, and the dtype of x."""
    if not isinstance(source, (Tensor, torch.Tensor)):
        return ops.full_like(at, source, dtype=x.dtype)
    return ops.broadcast_to(ops.astype(source, x.dtype, copy=False), at.shape)


def _index_add_body(x: Any, indices: Any, source: Any, /, *, axis: int, alpha: Any = 1) -> Any:
    if isinstance(indices, int):
        indices = [indices]
    elif isinstance(indices, Tensor):
        indices = ops.reshape(indices, (-1,))
    at = ops.take(ops.numbered(x), indices, axis=axis)
    scaled = source if isinstance(alpha, int) and alpha == 1 else source * alpha
    return x + ops.collect(_as_source(scaled, at, x), at, x)


# -------------------------------------------------------------------------------------------------------------- records


# fmt: off
record_gathering("scatter", _scatter,
        {"scatter": _answer_scatter, "scatter_add": _answer_scatter_add, "scatter_reduce": _answer_scatter_reduce},
        "x with `src` written to the positions `indices` of each row along `axis`, or combined by `reduce`.",
        "sr.scatter(sr.ragged([[5, 6], [7]]), sr.ragged([[1], []]), 9, axis=1).tolist()", "[[5, 9], [7]]",
        (f"x, {ZEROS}, x, axis=1", f"x, {ZEROS}, x, axis=-1"),
        ((f"x, {ZEROS}, 1.0, axis=5", AxisError, "axis 5 is out of range"),
         ("x, x, 1.0, axis=1", TypeError, "indices must be integers"),
         (f"x, {ZEROS}, 1.0, axis=1, reduce='add'", ValueError, "reduce must be None"),
         ("x, torch.ones(3, 1, 2).long(), 1.0, axis=1", IndexError, "index 1 is out of range for row 1 of axis 1")),
        primitive="movement", vjp=_scatter_vjp)
record_gathering("index_add", _index_add, {"index_add": _answer_index_add},
        "x with `source` times `alpha` added to the same positions of every row along `axis`.",
        "sr.index_add(sr.ragged([[5, 6], [7]]), [-1], torch.tensor([[10], [20]]), axis=1).tolist()",
        "[[5, 16], [27]]",
        ("x, torch.tensor([], dtype=torch.int64), 1, axis=1", "x[..., None], [0, -1], x[..., None], axis=-1, alpha=2"),
        (("x, [0], 1.0, axis=5", AxisError, "axis 5 is out of range"),
         ("x, [1], 1.0, axis=1", IndexError, "index 1 is out of range for row 1"),
         ("x.to(torch.int64), [0], 1.5, axis=1", TypeError, "do not go into")), NUMERIC,
        body=_index_add_body)
# fmt: on
