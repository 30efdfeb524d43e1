"""Derivatives of products, matrices, transforms and attention by the rules of records: attributes, stretched operands,
ragged axes on both sides, borders; against autograd through the operations and through torch row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.ops.samples import elements

import serrate as sr
from serrate.ops.derivatives import pullback
from serrate.ops.record import TABLE

Function = Callable[..., Any]


def ragged(lengths: list[int], *features: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> sr.Tensor:
    """[len(lengths), r, *features] with elements of any sign."""
    return sr.from_lengths(elements(sum(lengths), features, dtype, seed) - 0.5, lengths)


def dense(*shape: int, seed: int = 5, dtype: torch.dtype = torch.float64) -> sr.Tensor:
    return sr.asarray(elements(shape[0], shape[1:], dtype, seed) - 0.5)


def direction(x: sr.Tensor, seed: int) -> sr.Tensor:
    return x._with(torch.randn(x.values.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(seed)))


def close(mine: Any, theirs: torch.Tensor, x: sr.Tensor, near: float) -> None:
    if mine is None:
        assert not theirs.any()
        return
    assert mine.shape == x.shape
    assert mine.dtype == x.dtype
    laid = (sr.zeros_like(x) + mine).contiguous().values
    torch.testing.assert_close(laid, x._with(theirs).contiguous().values, rtol=near, atol=near)


def check(function: Function, *operands: sr.Tensor, twice: bool = True, near: float = 1e-8) -> None:
    """First derivatives, and second ones, by rules and by autograd."""
    leaves = [x._with(x.values.clone().requires_grad_()) for x in operands]
    out = function(*leaves)
    g, values = direction(out.detach(), 1), [x.values for x in leaves]
    first = torch.autograd.grad(out.values, values, g.values, create_graph=twice, materialize_grads=True)
    with torch.no_grad():
        made, back = pullback(function, *operands)
        torch.testing.assert_close(made.contiguous().values, out.detach().contiguous().values)
        for mine, theirs, x in zip(back(g), first, operands, strict=True):
            close(mine, theirs, x, near)
    if not twice:
        return
    along = [direction(x, 2 + i) for i, x in enumerate(operands)]
    kept = [(f, a.values) for f, a in zip(first, along, strict=True) if f.requires_grad]
    second = torch.autograd.grad([f for f, _ in kept], values, [a for _, a in kept], materialize_grads=True)

    def gradients(*given: sr.Tensor) -> tuple[Any, ...]:
        return pullback(function, *given)[1](g)

    with torch.no_grad():
        made, back = pullback(gradients, *operands)
        seconds = tuple(None if m is None else sr.zeros_like(m) + a for m, a in zip(made, along, strict=True))
        for mine, theirs, x in zip(back(seconds), second, operands, strict=True):
            close(mine, theirs, x, near)


def by_rows(function: Function, oracle: Function, *operands: sr.Tensor) -> None:
    """First derivatives by rules, and by autograd through torch's function of each row.

    A ragged operand has rows; of a dense one each row sees the whole.
    """
    with torch.no_grad():
        out, back = pullback(function, *operands)
        g = direction(out, 1)
        got = back(g)
    whole = [None if x.is_ragged else x.values.clone().requires_grad_() for x in operands]
    sums = [None if w is None else torch.zeros_like(w) for w in whole]
    rows: list[list[torch.Tensor]] = [[] for _ in operands]
    for i, wanted in enumerate(g.rows()):
        leaves = [
            x[i].values.clone().requires_grad_() if w is None else w for x, w in zip(operands, whole, strict=True)
        ]
        made = oracle(*leaves)
        each = torch.autograd.grad(made, leaves, wanted.torch(), materialize_grads=True)
        for k, part in enumerate(each):
            rows[k].append(part)
            if sums[k] is not None:
                sums[k] = sums[k] + part
    for k, mine in enumerate(got):
        if sums[k] is not None:
            torch.testing.assert_close(mine.torch(), sums[k], rtol=1e-9, atol=1e-9)
            continue
        for have, want in zip(mine.rows(), rows[k], strict=True):
            torch.testing.assert_close(have.torch(), want, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------------------------------------- einsum

L, K = [2, 0, 3], [1, 2, 4]
X, Y, Z = ragged(L, 2), ragged(K, 2, seed=1), ragged(L, 3, seed=2)
BOTH = [torch.float64, torch.complex128]


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(
    ("equation", "operands"),
    [
        ("bqd,bkd->bqk", (X, Y)),  # two ragged axes in the result
        ("bqd,bkd->kq", (X, Y)),  # both summed over their parent, position by position
        ("brd,bre->bde", (X, Z)),  # the ragged axis summed over
        ("brd,bre->rde", (X, Z)),  # its parent summed over
        ("brd,bre->de", (X, Z)),  # both
        ("brd,bre->", (X, Z)),
        ("brd->bd", (X,)),  # labels that only one operand has
        ("brd->rd", (X,)),
        ("brd->dbr", (X,)),
        ("brd->", (X,)),
        ("brd,de->bre", (X, dense(2, 3))),
        ("brd,bde->bre", (X, dense(3, 2, 3))),
        ("brd,be->brd", (X, dense(3, 4))),  # a label that only the other operand has
        ("...d,...d->...", (X, X)),
        ("...d,...->...d", (X, ragged(L, seed=3))),
        ("brd,bre,bk->bdk", (X, Z, dense(3, 2))),
    ],
)
def test_einsum_of_ragged_operands(equation: str, operands: tuple[sr.Tensor, ...], dtype: torch.dtype) -> None:
    given = [x.to(dtype) * (1 + 0.5j * number if dtype.is_complex else 1) for number, x in enumerate(operands)]
    check(lambda *each: sr.einsum(equation, *each), *given)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ii->i", [(3, 3)]),  # diagonals
        ("ii->", [(3, 3)]),
        ("ii,ij->j", [(3, 3), (3, 2)]),
        ("iij,ji->j", [(2, 2, 3), (3, 2)]),
        ("iii->i", [(2, 2, 2)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]),  # axes of size 1 are stretched
        ("ij,jk->ik", [(2, 3), (1, 4)]),
        ("ij,jk->ijk", [(1, 3), (1, 4)]),
        ("...ij,...jk->...ik", [(1, 2, 3), (4, 3, 2)]),
        ("...ij,jk->...ik", [(4, 2, 3), (3, 2)]),
        ("i,j->ij", [(2,), (3,)]),
        ("i,j", [(2,), (3,)]),
        ("ij->ji", [(2, 3)]),
        ("ijk,k->", [(2, 3, 0), (0,)]),
    ],
)
def test_einsum_of_dense_operands(equation: str, shapes: list[tuple[int, ...]], dtype: torch.dtype) -> None:
    given = [dense(*shape, seed=number, dtype=dtype) for number, shape in enumerate(shapes)]
    check(lambda *each: sr.einsum(equation, *each), *given)


def test_einsum_of_operands_of_several_dtypes() -> None:
    x, w, n = X, dense(2, 3, dtype=torch.complex128), sr.asarray(torch.tensor([[1, 2], [3, 4]]))
    _, back = pullback(lambda *each: sr.einsum("brd,de,df->brf", each[0], each[1], each[2]), x, w, n)
    first, second, third = back(direction(sr.zeros((3, x.shape[1], 2), dtype=torch.complex128), 1))
    assert (first.dtype, second.dtype, third) == (torch.float64, torch.complex128, None)


# -------------------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(
    "operands",
    [
        (X, dense(2, 3)),
        (X, dense(3, 2, 4)),
        (X, dense(1, 2, 4)),
        (X, sr.matrix_transpose(Y)),
        (sr.matrix_transpose(X), X),
        (X, dense(2)),
        (dense(4, 2), sr.matrix_transpose(X)),
        (dense(2), sr.matrix_transpose(X)),
        (dense(3, 2, 2), dense(2, 2)),
        (dense(2), dense(2)),
        (dense(2, 3), dense(3)),
        (dense(4, 1, 2, 3), dense(5, 3, 2)),
        (ragged(L, 1, 2, 3), dense(4, 3, 2)),
        (sr.from_lengths(elements(6, (2,), torch.float64), [[2, 0, 1], [1, 0, 5]]), dense(2, 3)),
    ],
    ids=lambda operands: " @ ".join(str(x.shape) for x in operands),
)
def test_matmul(operands: tuple[sr.Tensor, sr.Tensor], dtype: torch.dtype) -> None:
    check(sr.matmul, *(x.to(dtype) * (1 + 0.5j if dtype.is_complex else 1) for x in operands))


def test_one_row_that_is_stretched_to_many() -> None:
    nested = sr.from_lengths(elements(3, (2,), torch.float64), [[2], [1, 2]])
    for one in (ragged([3], 2), nested):
        check(sr.matmul, one, dense(4, *[1] * (one.ndim - 3), 2, 2))
        check(lambda x, y: x * y, one, dense(4, *[1] * (one.ndim - 1)))
    check(lambda x, y: sr.einsum("brd,bk->brk", x, y), ragged([3], 2), dense(4, 2))


def test_products_row_by_row() -> None:
    by_rows(lambda x, y: sr.matmul(x, sr.matrix_transpose(y)), lambda x, y: x @ y.mT, X, Y)
    by_rows(sr.matmul, torch.matmul, X, dense(2, 3))
    by_rows(lambda x, y: sr.vecdot(x, y, axis=1), lambda x, y: (x * y).sum(0), X, X + 1)
    by_rows(sr.outer, torch.outer, ragged(L), ragged(K, seed=2))
    by_rows(lambda x, w: sr.tensordot(x, w, axes=1), lambda x, w: torch.tensordot(x, w, 1), X, dense(2, 3))


@pytest.mark.parametrize("dtype", BOTH)
def test_vecdot_tensordot_and_outer(dtype: torch.dtype) -> None:
    x, w = X.to(dtype), dense(2, 3, dtype=dtype)
    for axis in (0, 1, 2, -1):
        check(lambda a, b, axis=axis: sr.vecdot(a, b, axis=axis), x, (x + 1) * (1j if dtype.is_complex else 2))
    check(lambda a, b: sr.vecdot(a, b), x, dense(2, dtype=dtype))
    check(lambda a, b: sr.tensordot(a, b, axes=((2,), (0,))), x, w)
    check(lambda a, b: sr.tensordot(a, b, axes=0), x, dense(2, dtype=dtype))
    check(sr.outer, x[..., 0], Y.to(dtype)[..., 1])
    check(sr.outer, dense(3, 2, dtype=dtype), dense(3, 4, dtype=dtype))


# -------------------------------------------------------------------------------------------------------- matrices


def matrices(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(5, *shape, dtype=dtype, generator=generator)


def packed(values: torch.Tensor) -> sr.Tensor:
    """Five matrices as rows of 2, 0 and 3."""
    return sr.from_lengths(values, L)


def hermitian(x: Any) -> Any:
    return x @ sr.conj(sr.matrix_transpose(x)) + torch.eye(x.shape[-1], dtype=x.dtype)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(
    "function",
    [
        sr.linalg.det,
        sr.linalg.inv,
        lambda x: sr.linalg.slogdet(x).logabsdet,
        lambda x: sr.linalg.matrix_power(x, 5),
        lambda x: sr.linalg.matrix_power(x, -1),
        lambda x: sr.linalg.cholesky(hermitian(x)),
        lambda x: sr.linalg.cholesky(hermitian(x), upper=True),
        lambda x: sr.linalg.eigvalsh(hermitian(x)),
        lambda x: sr.linalg.svdvals(x),
        lambda x: sr.linalg.matrix_norm(x, ord="nuc"),
        lambda x: sr.linalg.matrix_norm(x, ord=2, keepdims=True),
        lambda x: sr.linalg.matrix_norm(x, ord=-2),
        lambda x: sr.linalg.pinv(x),
        lambda x: sr.linalg.trace(x, offset=-1),
        lambda x: sr.linalg.diagonal(x, offset=1),
    ],
)
def test_functions_of_matrices(function: Function, dtype: torch.dtype) -> None:
    check(function, packed(matrices(3, 3, dtype=dtype)), near=1e-6)
    check(function, sr.asarray(matrices(3, 3, dtype=dtype)[0]), near=1e-6)


@pytest.mark.parametrize("dtype", BOTH)
def test_vectors_of_decompositions_where_no_phase_counts(dtype: torch.dtype) -> None:
    def exponential(x: Any) -> Any:
        values, vectors = sr.linalg.eigh(hermitian(x))
        scaled = vectors * sr.expand_dims(sr.exp(-values), axis=-2)
        return scaled @ sr.conj(sr.matrix_transpose(vectors))

    def polar(x: Any) -> Any:
        u, _, v = sr.linalg.svd(x, full_matrices=False)
        return u @ v

    def factors(x: Any) -> Any:
        q, r = sr.linalg.qr(x)
        return q @ (r * r)

    check(exponential, packed(matrices(3, 3, dtype=dtype)), near=1e-6)
    for shape in ((3, 3), (4, 2), (2, 4)):
        check(polar, packed(matrices(*shape, dtype=dtype)), near=1e-6)
        check(factors, packed(matrices(*shape, dtype=dtype)), near=1e-6)


def test_vectors_beyond_the_singular_values_have_no_derivative() -> None:
    check(lambda x: sr.linalg.svd(x).Vh, packed(matrices(2, 4)), near=1e-6)
    _, back = pullback(lambda x: sr.linalg.qr(x, mode="complete").Q, packed(matrices(3, 2)))
    with pytest.raises(NotImplementedError, match="the last 1 columns of Q have no derivative"):
        back(packed(matrices(3, 3)))


@pytest.mark.parametrize("dtype", BOTH)
def test_the_sign_of_a_determinant_turns(dtype: torch.dtype) -> None:
    check(lambda x: sr.linalg.slogdet(x).sign, packed(matrices(2, 2, dtype=dtype)), twice=dtype.is_complex)
    check(lambda x: sr.multiply(*sr.linalg.slogdet(x)), packed(matrices(2, 2, dtype=dtype)))


SINGULAR = [
    torch.ones(2, 2),
    torch.diag(torch.tensor([0.0, 2.0, 3.0])),
    torch.zeros(3, 3),
    torch.zeros(1, 1),
    torch.diag(torch.ones(7), 1),
    torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [5.0, 7.0, 9.0]]),
]


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("given", SINGULAR, ids=lambda x: str(list(x.shape)))
def test_the_determinant_of_a_singular_matrix_has_cofactors(given: torch.Tensor, dtype: torch.dtype) -> None:
    """Against the determinants of what is left without a row and a column."""
    x, size = given.to(dtype), given.shape[0]

    def left(i: int, j: int) -> torch.Tensor:
        rows, columns = ([k for k in range(size) if k != each] for each in (i, j))
        return torch.linalg.det(x[rows][:, columns]) * (-1) ** (i + j)

    want = torch.stack([torch.stack([left(i, j) for j in range(size)]) for i in range(size)]).conj()
    out, back = pullback(sr.linalg.det, sr.asarray(x))
    torch.testing.assert_close(back(sr.ones_like(out))[0].torch(), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", BOTH)
def test_solve(dtype: torch.dtype) -> None:
    one, many = sr.asarray(matrices(3, 3, dtype=dtype)[0]), packed(matrices(3, 3, dtype=dtype))
    vector, sides = sr.asarray(matrices(3, seed=1, dtype=dtype)[0]), packed(matrices(3, 2, seed=2, dtype=dtype))
    side = sr.asarray(matrices(3, 2, seed=3, dtype=dtype)[0])
    for x1, x2 in ((one, vector), (one, sides), (many, vector), (many, sides), (many, side), (one, side)):
        check(sr.linalg.solve, x1, x2, near=1e-6)
    stretched = sr.asarray(matrices(3, 3, seed=4, dtype=dtype)[:1])
    check(sr.linalg.solve, stretched, sr.asarray(matrices(3, 2, seed=2, dtype=dtype)), near=1e-6)


def test_matrices_row_by_row() -> None:
    given = packed(matrices(3, 3))
    for mine, theirs in (
        (sr.linalg.inv, torch.linalg.inv),
        (sr.linalg.det, torch.linalg.det),
        (lambda x: sr.linalg.solve(x, x @ x), lambda x: torch.linalg.solve(x, x @ x)),
        (lambda x: sr.linalg.diagonal(x, offset=-1), lambda x: x.diagonal(-1, -2, -1)),
        (lambda x: sr.linalg.matrix_norm(x, ord=1), lambda x: torch.linalg.matrix_norm(x, 1)),
    ):
        by_rows(mine, theirs, given)
    by_rows(lambda x, y: sr.linalg.cross(x, y), torch.linalg.cross, ragged(L, 3), ragged(L, 3, seed=4))


def test_infinite_gradients_stay_on_their_diagonal() -> None:
    x = sr.asarray(matrices(2, 3)[0])
    for offset in (-1, 0, 1, 2):
        out, back = pullback(lambda x, offset=offset: sr.linalg.diagonal(x, offset=offset), x)
        made = back(sr.full_like(out, float("inf")))[0].torch()
        assert torch.equal(made, torch.full_like(made, float("inf")).where(made.isinf(), torch.zeros(())))
        assert int(made.isinf().sum()) == out.shape[-1]


@pytest.mark.parametrize("dtype", BOTH)
def test_cross_of_stretched_operands(dtype: torch.dtype) -> None:
    x, y = ragged(L, 3, dtype=dtype), dense(3, dtype=dtype)
    check(sr.linalg.cross, x, y)
    check(lambda a, b: sr.linalg.cross(a, b, axis=2), x, ragged(L, 3, seed=4, dtype=dtype))
    check(lambda a, b: sr.linalg.cross(a, b, axis=0), dense(3, 2, dtype=dtype), dense(3, 1, seed=4, dtype=dtype))


# ------------------------------------------------------------------------------------------------------ transforms


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("points", [None, 1, 2, 3, 4, 5, 6, 9])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_transforms_of_any_number_of_points(name: str, points: int | None, norm: str) -> None:
    """Shorter and longer than what there is, even and odd; along an axis before a ragged one, too."""
    function = getattr(sr.fft, name)
    for dtype in BOTH[: 1 if name in ("rfft", "ihfft") else 2]:
        for size in (4, 5):
            x = ragged(L, size, dtype=dtype)
            check(lambda x: function(x, n=points, norm=norm), x, twice=False)
        turned = sr.matrix_transpose(ragged(L, 4, dtype=dtype))
        check(lambda x: function(x, n=points, axis=1, norm=norm), turned, twice=False)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_transforms_over_axes_in_any_order(name: str) -> None:
    function = getattr(sr.fft, name)
    for dtype in BOTH[: 1 if name == "rfftn" else 2]:
        x = ragged(L, 3, 4, dtype=dtype)
        for axes, s in (((2, 3), None), ((3, 2), None), ((-1,), (6,)), ((2, 3), (5, 3)), (None, (2, 2))):
            check(lambda x, axes=axes, s=s: function(x, axes=axes, s=s), x, twice=False)


FULL = [2, 1, 3]


def test_transforms_row_by_row() -> None:
    """torch refuses to transform an empty row on the way back."""
    by_rows(sr.fft.fft, torch.fft.fft, ragged(FULL, 4, dtype=torch.complex128))
    by_rows(lambda x: sr.fft.irfft(x, n=5), lambda x: torch.fft.irfft(x, 5), ragged(FULL, 3, dtype=torch.complex128))
    by_rows(lambda x: sr.real(sr.fft.rfft(x)), lambda x: torch.fft.rfft(x).real, ragged(FULL, 4))
    by_rows(lambda x: sr.fft.fftshift(x, axes=2), lambda x: torch.fft.fftshift(x, 1), ragged(FULL, 5))


def test_a_transform_inside_a_program_is_derived_twice() -> None:
    check(lambda x: sr.abs(sr.fft.rfft(x * x, n=4)), ragged(L, 4) + 2, near=1e-6)


# ------------------------------------------------------------------------------------------- attention, convolution


def operands_of_attention(queries: list[int], keys: list[int]) -> tuple[sr.Tensor, sr.Tensor, sr.Tensor]:
    return ragged(queries, 3), ragged(keys, 3, seed=1), ragged(keys, 2, seed=2)


VISIBLE = {
    "all": {},
    "causal": {"causal": True},
    "lower right": {"causal": "lower_right"},
    "window": {"window": (1, 0)},
    "one side": {"window": (-1, 1), "scale": 0.3},
    "mask": {"mask": torch.rand(4, 4, generator=torch.Generator().manual_seed(0)) > 0.4},
    "keys": {"mask": torch.tensor([[[True, False, True, True]], [[True] * 4], [[False, True, False, True]]])},
    "bias": {"bias": torch.linspace(-1, 1, 16, dtype=torch.float64).view(4, 4), "causal": True},
}


@pytest.mark.parametrize("heads", [False, True])
@pytest.mark.parametrize("options", VISIBLE.values(), ids=VISIBLE)
def test_attention(options: dict[str, Any], heads: bool) -> None:
    """Among the rows are queries without keys, keys without queries, and, by masks, queries that see no key."""

    def placed(x: sr.Tensor) -> sr.Tensor:
        if not heads:
            return x
        both = sr.from_lengths(torch.stack([x.values, 2 - x.values], 1), x.lengths[0])
        return sr.permute_dims(both, (0, 2, 1, 3))

    mask = options.get("mask")
    given = {"mask": mask[:, None]} if heads and mask is not None and mask.ndim == 3 else options
    q, k, v = (placed(x) for x in operands_of_attention([2, 0, 3], [4, 2, 0]))
    check(lambda *each: sr.attention(*each, **given), q, k, v)


def test_attention_row_by_row() -> None:
    sdpa = torch.nn.functional.scaled_dot_product_attention
    given = operands_of_attention([2, 1, 3], [2, 1, 3])
    by_rows(sr.attention, sdpa, *given)
    by_rows(lambda *each: sr.attention(*each, causal=True), lambda *each: sdpa(*each, is_causal=True), *given)


def test_the_bias_of_attention_has_a_gradient() -> None:
    q, k, v = operands_of_attention([2, 0, 3], [4, 2, 3])
    bias = sr.sin(sr.matmul(q, sr.matrix_transpose(k)))
    check(lambda *each: sr.attention(*each[:3], bias=each[3], causal="lower_right"), q, k, v, bias)


def test_a_dense_bias_of_attention_has_a_gradient() -> None:
    q, k, v = operands_of_attention([2, 0, 3], [4, 2, 3])
    for shape in ((4, 4), (1, 4), (3, 4, 4), (3, 1, 4), (1, 1)):
        bias = dense(*shape, seed=6)
        check(lambda *each: sr.attention(*each[:3], bias=each[3]), q, k, v, bias)


def test_groups_of_queries_share_the_heads_of_attention() -> None:
    def heads(lengths: list[int], many: int, seed: int) -> sr.Tensor:
        return sr.permute_dims(ragged(lengths, many, 3, seed=seed), (0, 2, 1, 3))

    q, k, v = heads([2, 0, 3], 4, 0), heads([4, 2, 3], 2, 1), heads([4, 2, 3], 2, 2)
    check(lambda *each: sr.attention(*each, causal=True), q, k, v)


def test_attention_drops_the_same_weights_on_the_way_back() -> None:
    q, k, v = operands_of_attention([2, 0, 3], [4, 2, 3])

    def dropping(*each: Any) -> Any:
        torch.manual_seed(3)
        return sr.attention(*each, dropout=0.4)

    check(dropping, q, k, v)


def test_attention_of_dense_operands() -> None:
    q, k, v = (dense(2, size, 3, seed=size) for size in (4, 5, 5))
    for options in ({}, {"causal": True}, {"causal": "lower_right", "window": (2, 0)}):
        check(lambda *each, options=options: sr.attention(*each, **options), q, k, v)


CONVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"padding": 1, "stride": 2},
    {"padding": "same", "dilation": 2},
    {"groups": 2, "padding": 2},
]


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("options", CONVOLUTIONS, ids=str)
def test_conv1d(options: dict[str, Any], dtype: torch.dtype) -> None:
    x, groups = sr.matrix_transpose(ragged([4, 0, 1, 5], 4, dtype=dtype)), options.get("groups", 1)
    weight, bias = dense(2, 4 // groups, 3, seed=3, dtype=dtype), dense(2, seed=4, dtype=dtype)
    check(lambda *each: sr.conv1d(*each, **options), x, weight, bias, twice=False)
    check(lambda *each: sr.conv1d(*each, **options), x, weight, twice=False)


# ------------------------------------------------------------------------------------------------------ the checker


@pytest.mark.parametrize(
    ("name", "wrong", "program"),
    [
        ("linalg.inv", lambda g, out, x: out @ g @ out, lambda x: sr.linalg.inv(x)),
        ("einsum", lambda g, out, operands, *, equation: [g, g], lambda x: sr.einsum("...ij,...jk->...ik", x, x)),
        ("fft.fft", lambda g, out, x, **_: sr.real(sr.fft.ifft(g)), lambda x: sr.fft.fft(x)),
    ],
)
def test_a_wrong_rule_is_found(name: str, wrong: Function, program: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, name, dataclasses.replace(TABLE[name], vjp=wrong))
    with pytest.raises(AssertionError):
        check(program, packed(matrices(3, 3)), twice=False)
    if name == "linalg.inv":
        with pytest.raises(AssertionError):
            by_rows(program, torch.linalg.inv, packed(matrices(3, 3)))
