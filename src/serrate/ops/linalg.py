"""Linear algebra on uniform and ragged axes: matmul, einsum and their kin, each a product of labelled axes."""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Sequence
from typing import Any

import torch

from serrate.eager.elementwise import apply
from serrate.eager.labels import Labelled, summed_alone
from serrate.eager.products import product
from serrate.eager.reducing import total
from serrate.errors import AxisError
from serrate.native import row_products as library
from serrate.native.loading import reads
from serrate.ops.einsum import batch_labels, einsum_vjp, parse
from serrate.ops.record import Implementation, operation, ops, record, written
from serrate.ops.rules import conjugate
from serrate.tensor import abstract
from serrate.tensor.partition import CPU
from serrate.tensor.promotion import INTEGERS, WIDE, promote
from serrate.tensor.tensor import Tensor, as_tensor


def _tensors(name: str, *given: Any) -> tuple[list[Tensor], torch.dtype]:
    """The operands in the dtype to compute in, and the dtype of the result: torch multiplies no wide unsigned types."""
    made = [as_tensor(x) for x in given]
    for x in made:
        if x.dtype == torch.bool:
            raise TypeError(f"{name} needs numbers, got {x.dtype}")
    dtype = functools.reduce(promote, [x.dtype for x in made])
    return [x.to(torch.int64 if dtype in WIDE else dtype) for x in made], dtype


def _back(result: Tensor, dtype: torch.dtype) -> Tensor:
    """A result of integers in their dtype: some are computed in int64. Others have their own dtype, or autocast's."""
    return result.to(dtype) if dtype in INTEGERS else result


@operation
def _matmul(x1: Any, x2: Any, /) -> Tensor:
    (left, right), dtype = _tensors("matmul", x1, x2)
    if not left.ndim or not right.ndim:
        raise ValueError(f"matmul needs at least one axis, got shapes {left.shape} and {right.shape}")
    most = max(left.ndim, right.ndim, 2) - 2
    rows, columns = ("row",) * (left.ndim > 1), ("column",) * (right.ndim > 1)
    a = Labelled(left, (*batch_labels(max(left.ndim - 2, 0), most), *rows, "inner"))
    b = Labelled(right, (*batch_labels(max(right.ndim - 2, 0), most), "inner", *columns))
    if (left.shape[-1] == 1 and b.axis("inner") != 1) or (left.shape[-1] != 1 and b.axis("inner") == 1):
        raise ValueError(f"the axes summed over do not match: shapes {left.shape} and {right.shape}")
    batch = [f"batch{i}" for i in range(most) if f"batch{i}" in (*a.labels, *b.labels)]
    return _back(product(a, b, (*batch, *rows, *columns)), dtype)


def _multiplies(x1: Any, x2: Any, /) -> bool:
    """Whether compiled code multiplies these at once: [B, r, K] @ [B, K, M], or [B, K, r] @ [B, r, M], both ragged."""
    if not (isinstance(x1, Tensor) and x1.is_ragged and len(x1.structure.axes) == 2 and x1.values.ndim == 2):
        return False
    values = x2.values if isinstance(x2, Tensor) else x2
    if not isinstance(values, torch.Tensor) or not reads(x1.values, values) or not library.serves(x1.values, values):
        return False
    if torch.is_autocast_enabled("cpu"):
        return False
    ragged = isinstance(x2, Tensor) and x2.is_ragged
    if not ragged and x1.order == (0, 1, 2):
        return values.ndim == 3 and values.shape[:2] == (x1.structure.axes[0], x1.values.shape[1])
    return ragged and x1.order == (0, 2, 1) and x2.order == (0, 1, 2) and x2.structure is x1.structure


def _compiled_matmul(x1: Any, x2: Any, /) -> Tensor:
    ends, rows = x1.structure.partition_of(1).offsets_on(CPU), x1.values.shape[0]
    if x1.order == (0, 1, 2):
        values = x2.values if isinstance(x2, Tensor) else x2
        made: Tensor = x1._with(library.times_matrices(x1.values, values, ends, rows))
        return made
    return Tensor(library.summed_outer(x1.values, x2.values, ends, rows), team=x1.team)


@operation
def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    (left, right), dtype = _tensors("vecdot", x1, x2)
    place = _place(left, right, axis)
    return total(apply(torch.mul, conjugate(left), right), place, dtype)


def _place(left: Any, right: Any, axis: int) -> int:
    """The axis that vecdot sums over, counted from the last."""
    most, least = max(left.ndim, right.ndim), min(left.ndim, right.ndim)
    place = axis if axis < 0 else axis - most
    if not -least <= place < 0:
        raise AxisError(f"axis {axis} is out of range for shapes {left.shape} and {right.shape}")
    if (left.shape[place] == 1) != (right.shape[place] == 1):
        raise ValueError(f"axis {axis} must be as long in both operands, got shapes {left.shape} and {right.shape}")
    return place


@operation
def _tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tensor:
    (left, right), dtype = _tensors("tensordot", x1, x2)
    pairs = _pairs(left, right, axes)
    a = [f"left{i}" for i in range(left.ndim)]
    b = [f"right{i}" for i in range(right.ndim)]
    for mine, other in pairs:
        if (left.shape[mine] == 1) != (right.shape[other] == 1):  # what is summed over does not stretch
            raise ValueError(f"the axes summed over do not go together: shapes {left.shape} and {right.shape}")
        b[other] = a[mine]
    summed = {a[mine] for mine, _ in pairs}
    kept = [label for label in (*a, *b) if label not in summed]
    return _back(product(Labelled(left, tuple(a)), Labelled(right, tuple(b)), kept), dtype)


def _pairs(left: Any, right: Any, axes: Any) -> list[tuple[int, int]]:
    """The axes that tensordot sums over: one of each operand."""
    if isinstance(axes, int) and axes < 0:
        raise ValueError(f"axes must be 0 or more, or a pair of axes, got {axes}")
    pair: list[Sequence[int]] = [range(left.ndim - axes, left.ndim), range(axes)] if isinstance(axes, int) else []
    pair = pair or [[a] if isinstance(a, int) else list(a) for a in axes]
    ours, theirs = [left._axis(a) for a in pair[0]], [right._axis(a) for a in pair[1]]
    if len(ours) != len(theirs) or len(set(ours)) < len(ours) or len(set(theirs)) < len(theirs):
        raise ValueError(f"axes must name as many axes of both operands, each once, got {axes}")
    return list(zip(ours, theirs, strict=True))


@operation
def _outer(x1: Any, x2: Any, /) -> Tensor:
    (left, right), dtype = _tensors("outer", x1, x2)
    if not left.ndim or left.ndim != right.ndim:
        raise ValueError(f"outer needs operands of as many axes, got shapes {left.shape} and {right.shape}")
    batch = batch_labels(left.ndim - 1, left.ndim - 1)
    a, b = Labelled(left, (*batch, "row")), Labelled(right, (*batch, "column"))
    return _back(product(a, b, (*batch, "row", "column")), dtype)


@operation
def _matrix_transpose(x: Any, /) -> Tensor:
    return as_tensor(x).mT


@operation
def _einsum(equation: str, /, *operands: Any) -> Tensor:
    tensors, dtype = _tensors("einsum", *operands)
    inputs, out = parse(equation, tensors)
    labelled = [Labelled(x, labels) for x, labels in zip(tensors, inputs, strict=True)]
    if not any(x.is_ragged for x in tensors):
        for label in {label for labels in inputs for label in labels}:
            sizes = [
                n for one in labelled for n, own in zip(one.x.values.shape, one.labels, strict=True) if own == label
            ]
            abstract.meet(*[(size,) for size in sizes])
        return _back(Tensor(torch.einsum(equation, *[x.values for x in tensors]), team=tensors[0].team), dtype)
    for one in labelled:
        if len(set(one.labels)) < len(one.labels):
            raise ValueError(f"einsum takes no diagonal of a ragged operand, got {equation!r}")
    left = labelled[0]
    for position, right in enumerate(labelled[1:], start=1):
        later = {label for one in labelled[position + 1 :] for label in one.labels} | set(out)
        kept = [label for label in dict.fromkeys((*left.labels, *right.labels)) if label in later]
        kept = list(out) if position == len(labelled) - 1 else kept
        left = Labelled(product(left, right, kept), tuple(kept))
    if len(labelled) == 1:
        left = summed_alone(left, Labelled(left.x, ()), out)
        return _back(left.x.permute_dims([left.labels.index(label) for label in out]), dtype)
    return _back(left.x, dtype)


def _answer_tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Tensor:
    return _tensordot(a, b, axes=dims)


def _answer_einsum(equation: str, *operands: Any) -> Tensor:
    listed = len(operands) == 1 and isinstance(operands[0], (list, tuple))
    return _einsum(equation, *(operands[0] if listed else operands))


def _answer_product(*args: Any, **options: Any) -> Tensor:
    if options.pop("out", None) is not None:
        raise TypeError("matmul(out=…) is not defined for sr.Tensor")
    return _matmul(*args, *options.values())


def _answer_outer(input: Any, vec2: Any, out: Any = None) -> Tensor:
    return _outer(input, vec2)


# ------------------------------------------------------------------------------------------- bodies and derivatives


def _matmul_equation(x1: Any, x2: Any, **_: Any) -> str:
    dots = "..." if max(x1.ndim, x2.ndim) > 2 else ""
    left, right = dots * (x1.ndim > 1) + "ij"[x1.ndim < 2 :], dots * (x2.ndim > 1) + "jk"[: x2.ndim]
    return f"{left},{right}->{dots}{'i' * (x1.ndim > 1)}{'k' * (x2.ndim > 1)}"


def _tensordot_equation(x1: Any, x2: Any, *, axes: Any) -> str:
    left, right = string.ascii_lowercase[: x1.ndim], list(string.ascii_uppercase[: x2.ndim])
    for mine, other in _pairs(x1, x2, axes):
        right[other] = left[mine]
    kept = [label for label in (*left, *right) if (label in left) != (label in right)]
    return f"{left},{''.join(right)}->{''.join(kept)}"


def _outer_equation(x1: Any, x2: Any, **_: Any) -> str:
    return "...i,...j->...ij"


def _product_vjp(equation: Callable[..., str]) -> Callable[..., Any]:
    """The rule of a product of two operands that is einsum of this equation."""

    def vjp(g: Any, out: Any, x1: Any, x2: Any, **attributes: Any) -> tuple[Any, Any]:
        pair = as_tensor(x1), as_tensor(x2)
        first, second = einsum_vjp(g, out, pair, equation=equation(*pair, **attributes))
        return first, second

    return vjp


def _vecdot_body(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    products = conjugate(x1) * x2
    return ops.sum(products, axis=_place(x1, x2, axis), dtype=products.dtype)


_X = "sr.ragged([[[1., 2.]], []], ragged_rank=1)"
_NUMBERS = ("float", "complex", "int")
_WRONG_SIZE = ("x, torch.ones(5, 3)", ValueError, "do not go together")
_NO_TENSOR = ("x, None", TypeError, "expected an sr.Tensor")

record(
    "linalg",
    "matmul",
    _matmul,
    _answer_product,
    also=("linalg",),
    summary="Matrix products of the last two axes, the others stretched against each other; any axis may be ragged.",
    example=(f"sr.matmul({_X}, torch.tensor([[1.], [1.]])).tolist()", "[[[3.0]], []]"),
    torch=(torch.matmul, torch.Tensor.matmul, torch.bmm, torch.Tensor.bmm, torch.mm, torch.Tensor.mm),
    body=lambda x1, x2, /: ops.einsum(_matmul_equation(x1, x2), x1, x2),
    vjp=_product_vjp(_matmul_equation),
    kinds=_NUMBERS,
    native=(Implementation("native", _compiled_matmul, _multiplies),),
    samples=(
        "x[..., None], torch.ones(1, 3, dtype=x.dtype)",
        "x[..., None], x[..., None, :]",
        "x[..., None, :], x[..., None]",
        "x[..., None], torch.ones(len(x), *[1] * (x.ndim - 1), 3, dtype=x.dtype)",
    ),
    errors=(
        _WRONG_SIZE,
        _NO_TENSOR,
        ("x, torch.ones(4, 2, 5)", ValueError, "axes of size 3 and 4 do not go together"),
        ("x > 0, x", TypeError, "matmul needs numbers, got torch.bool"),
    ),
    dialect=written("matmul", x1="rhs", x2="lhs"),
)
record(
    "linalg",
    "vecdot",
    _vecdot,
    lambda x, y, dim=-1, **_: _vecdot(x, y, axis=dim),
    also=("linalg",),
    summary="The sum of conj(x1) * x2 along `axis`, the other axes stretched against each other.",
    example=("sr.vecdot(sr.ragged([[1., 2.], []]), sr.ragged([[3., 4.], []]), axis=1).tolist()", "[11.0, 0.0]"),
    torch=(torch.linalg.vecdot,),
    body=_vecdot_body,
    kinds=_NUMBERS,
    samples=("x, x", "x, x, axis=1", "x, x, axis=0"),
    errors=(
        ("x, x, axis=7", AxisError, "axis 7 is out of range"),
        ("x, torch.ones(3)", ValueError, "do not broadcast"),
    ),
    dialect=written("vecdot", x1="rhs", x2="lhs"),
)
record(
    "linalg",
    "tensordot",
    _tensordot,
    _answer_tensordot,
    also=("linalg",),
    summary="The sum of products over the last axes of x1 and the first of x2, or over pairs of axes.",
    example=(f"sr.tensordot({_X}, torch.tensor([[1.], [1.]]), axes=1).tolist()", "[[[3.0]], []]"),
    body=lambda x1, x2, /, *, axes=2: ops.einsum(_tensordot_equation(x1, x2, axes=axes), x1, x2),
    vjp=_product_vjp(_tensordot_equation),
    kinds=_NUMBERS,
    samples=(
        "x[..., None], torch.ones(1, 3, dtype=x.dtype), axes=1",
        "x, x, axes=x.ndim",
        "x[..., None], torch.ones(3, 1, dtype=x.dtype), axes=((-1,), (1,))",
    ),
    errors=(
        ("x, torch.ones(5, 3), axes=1", ValueError, "go together"),
        ("x, x, axes=((1,), (0, 1))", ValueError, "as many"),
    ),
    dialect=written("tensor_dot", x1="rhs", x2="lhs", axes="axis"),
)
record(
    "linalg",
    "outer",
    _outer,
    _answer_outer,
    also=("linalg",),
    summary="Products of every pair of entries of the last axes; ragged ones give blocks [B, q, k].",
    example=("sr.outer(sr.ragged([[1, 2], []]), sr.ragged([[3], [4]])).tolist()", "[[[3], [6]], []]"),
    torch=(torch.outer, torch.Tensor.outer),
    body=lambda x1, x2, /: ops.einsum(_outer_equation(x1, x2), x1, x2),
    vjp=_product_vjp(_outer_equation),
    kinds=_NUMBERS,
    samples=("x, x",),
    errors=(("x, torch.ones(2)", ValueError, "as many axes"),),
)
record(
    "linalg",
    "matrix_transpose",
    _matrix_transpose,
    None,
    also=("linalg",),
    summary="The last two axes exchanged; a view.",
    example=(f"sr.matrix_transpose({_X}).shape", "(2, 2, Ragged([1, 0]))"),
    torch=(),
    body=lambda x, /: ops.permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)),
    kinds=(*_NUMBERS, "bool"),
    errors=(("torch.ones(2)", AxisError, "at least two axes"),),
    dialect=written("matrix_transpose", x="rhs"),
)
record(
    "linalg",
    "einsum",
    _einsum,
    _answer_einsum,
    summary="Products summed over named axes, uniform or ragged; `...` stands for axes not named.",
    example=(
        "sr.einsum('bqd,bkd->bqk', sr.ragged([[[1, 2]], []], ragged_rank=1), "
        "sr.ragged([[[1, 1], [0, 1]], []], ragged_rank=1)).tolist()",
        "[[[3, 2]], []]",
    ),
    torch=(torch.einsum,),
    operands=("operands",),
    primitive="library",
    vjp=einsum_vjp,
    kinds=_NUMBERS,
    samples=(
        "'...i,...i->...', x, x",
        "'b...->b...', x",
        "'b...,b...->b', x, x",
        "'b...->...', x",
        "'b...,b...,ij->ib...', x, x, torch.ones(2, 1, dtype=x.dtype)",
    ),
    errors=(
        ("'brd,de->bre', x, torch.ones(3, 4)", ValueError, "do not go together"),
        ("'brd', x, x", ValueError, "names 1 operands, got 2"),
        ("'bd->b', x", ValueError, "names 2 axes"),
        ("'brd->bz', x", ValueError, "must name axes of operands"),
    ),
)
