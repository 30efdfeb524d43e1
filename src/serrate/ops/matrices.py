"""Diagonals, traces, norms and cross products: what `sr.linalg` has besides decompositions and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from serrate.eager.reducing import total
from serrate.eager.stacks import Stack, dimensions, floating, last, numeric, stack
from serrate.errors import AxisError
from serrate.ops.answers import refuse_out
from serrate.ops.record import Error, operation, ops, record, torch_names
from serrate.ops.reductions import accumulating
from serrate.ops.rules import conjugate, reduced_to
from serrate.tensor import abstract
from serrate.tensor.indexing import expand_dims
from serrate.tensor.tensor import Tensor, as_tensor

_ORDERS = ("fro", "nuc", float("inf"), -float("inf"), 1, -1, 2, -2)


@operation
def _diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    given = stack("diagonal", x, as_is=True)
    given.require_smaller("diagonal")
    return _diagonals(given, offset)


def _diagonals(given: Stack, offset: int) -> Tensor:
    made = torch.diagonal(given.values, offset, -2, -1)
    if offset and not abstract.is_known(made.shape[-1]):
        made = abstract.resized(made, made.ndim - 1, abstract.most(made.shape[-1], 0))
    return given.result(made)


@operation
def _trace(x: Any, /, *, offset: int = 0, dtype: torch.dtype | None = None) -> Tensor:
    return total(_diagonals(stack("trace", numeric("trace", x), as_is=True), offset), -1, dtype)


@operation
def _cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    left, right = numeric("cross", x1), numeric("cross", x2)
    place = _from_last(left, right, axis)
    if not -min(left.ndim, right.ndim) <= place < 0:
        raise AxisError(f"axis {axis} is out of range for shapes {left.shape} and {right.shape}")
    dims = [dimensions("cross", x, (x.ndim + place,))[0] for x in (left, right)]
    if (left.shape[place], right.shape[place]) != (3, 3):
        raise ValueError(f"cross needs size 3 along axis {axis}, got shapes {left.shape} and {right.shape}")

    def turned(x: Tensor, dim: int, by: int) -> Tensor:  # component i + by in place of i
        return x._with(torch.roll(x.values, -by, dim))

    first = ops.multiply(turned(left, dims[0], 1), turned(right, dims[1], 2))
    return ops.subtract(first, ops.multiply(turned(left, dims[0], 2), turned(right, dims[1], 1)))  # type: ignore[no-any-return]


@operation
def _vector_norm(
    x: Any, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    return ops.norm(floating("vector_norm", x), axis=axis, keepdims=keepdims, ord=ord)  # type: ignore[no-any-return]


@operation
def _matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    order = "fro" if ord is None else ord
    if isinstance(order, bool) or order not in _ORDERS:
        raise ValueError(f"ord of matrix_norm is one of {_ORDERS}, got {ord!r}")
    given = stack("matrix_norm", floating("matrix_norm", x))
    if order == "fro":
        return ops.norm(given.x, axis=(-2, -1), keepdims=keepdims)  # type: ignore[no-any-return]
    if 0 in given.values.shape[-2:]:  # of nothing: 0, where torch refuses to look for the least
        made = given.values.abs().sum((-2, -1))
    else:
        made = torch.linalg.matrix_norm(given.values, order)
    result = given.result(made)
    return expand_dims(expand_dims(result, given.x.ndim - 2), given.x.ndim - 1) if keepdims else result


# ---------------------------------------------------------------------------------------------------- torch's faces


def _answer_old_diagonal(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return _diagonal(last(input, (dim1, dim2)), offset=offset)


def _answer_diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    return _diagonal(last(A, (dim1, dim2)), offset=offset)


def _answer_cross(input: Any, other: Any, dim: int | None = -1, *, out: Any = None) -> Tensor:
    if out is not None or dim is None:
        raise TypeError("cross of an sr.Tensor needs dim and takes no out")
    return _cross(input, other, axis=dim)


def _answer_old_cross(input: Any, other: Any, dim: int | None = None, *, out: Any = None) -> Tensor:
    return _answer_cross(input, other, dim, out=out)


def _answer_vector_norm(
    x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    refuse_out("vector_norm", out)
    axis = None if dim == () else dim
    return _vector_norm(x if dtype is None else x.to(dtype), axis=axis, keepdims=keepdim, ord=ord)


def _answer_matrix_norm(
    A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    refuse_out("matrix_norm", out)
    tensor = as_tensor(A) if dtype is None else as_tensor(A).to(dtype)
    made = _matrix_norm(last(tensor, dim), ord=ord)
    for axis in sorted(tensor._axis(a) for a in dim) if keepdim else ():
        made = expand_dims(made, axis)
    return made


# ------------------------------------------------------------------------------------------- bodies and derivatives


def _diagonal_vjp(g: Any, out: Any, x: Any, *, offset: int) -> Any:
    """Each entry in its place on the diagonal, 0 elsewhere."""
    rows, columns, size = x.shape[-2], x.shape[-1], g.shape[-1]
    if size != rows:  # rows before the diagonal, or behind it, have no entry
        places = ops.eye(rows, size, k=min(offset, 0), dtype=torch.bool, device=g.device)
        g = ops.sum(ops.where(places, ops.expand_dims(g, axis=g.ndim - 1), 0), axis=-1, dtype=g.dtype)
    places = ops.eye(rows, columns, k=offset, dtype=torch.bool, device=g.device)
    return ops.where(places, ops.expand_dims(g, axis=g.ndim), 0)


def _trace_body(x: Any, /, *, offset: int = 0, dtype: torch.dtype | None = None) -> Any:
    return ops.sum(ops["linalg.diagonal"](x, offset=offset), axis=-1, dtype=dtype)


def _cross_body(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    place = _from_last(x1, x2, axis)
    first = ops.roll(x1, -1, axis=place) * ops.roll(x2, -2, axis=place)
    return first - ops.roll(x1, -2, axis=place) * ops.roll(x2, -1, axis=place)


def _cross_vjp(g: Any, out: Any, x1: Any, x2: Any, *, axis: int) -> tuple[Any, Any]:
    cross, place = ops["linalg.cross"], _from_last(x1, x2, axis)
    return (
        reduced_to(cross(conjugate(x2), g, axis=place), x1),
        reduced_to(cross(g, conjugate(x1), axis=place), x2),
    )


def _from_last(x1: Any, x2: Any, axis: int) -> int:
    """An axis of two operands that are stretched against each other, counted from the last."""
    return axis if axis < 0 else axis - max(x1.ndim, x2.ndim)


def _vector_norm_body(
    x: Any, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, ord: float = 2
) -> Any:
    return ops.norm(x, axis=axis, keepdims=keepdims, ord=ord)


def _matrix_norm_body(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    if ord in ("fro", None):
        return ops.norm(x, axis=(-2, -1), keepdims=keepdims)
    made = ops.astype(_matrix_norm_of(accumulating(x), ord), ops.abs(x).dtype)
    return ops.expand_dims(ops.expand_dims(made, axis=x.ndim - 2), axis=x.ndim - 1) if keepdims else made


def _matrix_norm_of(x: Any, ord: Any) -> Any:
    if 0 in x.shape[-2:]:
        return ops.sum(ops.abs(x), axis=(-2, -1))
    if ord == "nuc":
        return ops.sum(ops["linalg.svdvals"](x), axis=-1)
    sizes = ops["linalg.svdvals"](x) if abs(ord) == 2 else ops.sum(ops.abs(x), axis=-2 if abs(ord) == 1 else -1)
    return (ops.max if ord > 0 else ops.min)(sizes, axis=-1)


# -------------------------------------------------------------------------------------------------------- records

_NUMBERS = ("float", "complex", "int")
_RAGGED: Error = ("x", ValueError, r"axis 1 of shape \(3, Ragged\(\[3, 1, 2\]\), 2\) is ragged; the array API has no")
_VECTOR: Error = ("torch.ones(3)", ValueError, r"needs at least two axes, got shape \(3,\)")
_GIVEN = "sr.from_lengths(torch.tensor([[[3., 1.], [2., 4.]]]), [1, 0])"
_PLANE = "x[..., None, None] * torch.tensor([[1, 2, 3], [3, 1, 2]], dtype=x.dtype)"


def _record(
    name: str,
    eager: Callable[..., Any],
    answers: Callable[..., Any] | None,
    functions: tuple[Callable[..., Any], ...],
    summary: str,
    call: str,
    gives: str,
    *,
    kinds: tuple[str, ...] = _NUMBERS,
    older: Callable[..., Any] | None = None,
    samples: tuple[str, ...] = (_PLANE,),
    errors: tuple[Error, ...] = (_RAGGED, _VECTOR),
    **fields: Any,
) -> None:
    record(
        "matrices",
        f"linalg.{name}",
        eager,
        answers,
        summary=summary,
        torch=functions,
        # torch's older functions have other defaults than torch.linalg's.
        spellings={} if older is None else dict.fromkeys(torch_names(name), older),
        kinds=kinds,
        example=(call, gives),
        samples=samples,
        errors=errors,
        **fields,
    )


# fmt: off
_record("diagonal", _diagonal, _answer_diagonal,
        (torch.linalg.diagonal,),
        "The diagonal of each matrix, `offset` above (below, if negative) the main one; a view.",
        f"sr.linalg.diagonal({_GIVEN}).tolist()", "[[[3.0, 4.0]], []]", kinds=(*_NUMBERS, "bool"),
        older=_answer_old_diagonal, primitive="movement", vjp=_diagonal_vjp,
        samples=("x[..., None, None]", "x[..., None, None], offset=1",
                 *(f"sr.broadcast_to(x[..., None, None], (*x.shape, 2, 3)).contiguous(), offset={offset}"
                   for offset in (-1, 0, 2))))
_record("trace", _trace, None, (), "The sum of the diagonal of each matrix; integers sum as in `sr.sum`.",
        f"sr.linalg.trace({_GIVEN}).tolist()", "[[7.0], []]",
        body=_trace_body,
        samples=(_PLANE, f"{_PLANE}, offset=1"),
        errors=(_RAGGED, _VECTOR, ("torch.ones(2, 2) > 0", TypeError, "trace needs numbers, got torch.bool")))
_record("cross", _cross, _answer_cross, (torch.linalg.cross,),
        "The cross products of vectors of size 3 along `axis`, the other axes stretched against each other.",
        "sr.linalg.cross(torch.tensor([1, 0, 0]), sr.ragged([[[0, 1, 0]], []], ragged_rank=1)).tolist()",
        "[[[0, 0, 1]], []]", older=_answer_old_cross,
        body=_cross_body, vjp=_cross_vjp,
        samples=(f"{_PLANE}, torch.tensor([1, 0, 2], dtype=x.dtype)", f"{_PLANE}, {_PLANE.replace('3, 1', '2, 5')}",
                 f"({_PLANE}).permute_dims((*range(x.ndim), x.ndim + 1, x.ndim)), "
                 "torch.tensor([[2], [1], [1]], dtype=x.dtype), axis=-2"),
        errors=(("x, x", ValueError, "cross needs size 3 along axis -1"),
                ("x, x, axis=1", AxisError, "axis 1 of shape .* is ragged"),
                ("x, x, axis=3", AxisError, "axis 3 is out of range"),
                ("x, x, axis=0", AxisError, "axis 0 of shape .* has ragged axes that depend on it"),
                ("x > 0, x", TypeError, "cross needs numbers, got torch.bool")))
_record("vector_norm", _vector_norm, _answer_vector_norm, (torch.linalg.vector_norm,),
        "The `ord`-norm along `axis`, any axes, ragged ones too; 0 of nothing.",
        "sr.linalg.vector_norm(sr.ragged([[3., -4.], []]), axis=1).tolist()", "[5.0, 0.0]",
        kinds=("float", "complex"), body=_vector_norm_body,
        samples=("x, axis=1", "x, axis=0, ord=3", "x, axis=-1, keepdims=True, ord=1", "x"),
        errors=(("x, axis=5", AxisError, "axis 5 is out of range"),
                ("x.to(torch.int64)", TypeError, "vector_norm needs floating-point elements, got torch.int64")))
_record("matrix_norm", _matrix_norm, _answer_matrix_norm, (torch.linalg.matrix_norm,),
        "A norm of each matrix: 'fro', 'nuc', the greatest sum of a column (1) or row (inf), the greatest singular "
        "value (2), or the least (-1, -inf, -2); 0 of nothing.",
        f"sr.linalg.matrix_norm({_GIVEN}, ord=1).tolist()", "[[5.0], []]",
        kinds=("float", "complex"), body=_matrix_norm_body,
        samples=(_PLANE, *(f"{_PLANE}, ord={ord}" for ord in ("float('inf')", "-float('inf')", 1, -1)),
                 f"{_PLANE}, keepdims=True"),
        errors=(_RAGGED, _VECTOR, ("torch.ones(2, 2), ord=3", ValueError, "ord of matrix_norm is one of"),
                ("torch.ones(2, 2, dtype=torch.int64)", TypeError, "matrix_norm needs floating-point elements")))
# fmt: on
