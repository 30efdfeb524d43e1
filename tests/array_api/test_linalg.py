"""`sr.linalg` against array_api_strict on dense tensors."""

from __future__ import annotations

import inspect
import itertools
import pickle

import array_api_strict as xp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.array_api.matrices import (
    EMPTY_FOR_NUMPY,
    FLOATS,
    OBLONGS,
    SQUARES,
    check,
    definite,
    noise,
    regular,
    same,
)
from tests.array_api.strict import NUMERIC, ours, theirs

import serrate as sr

# ------------------------------------------------------------------------------------------------ names, signatures


@pytest.mark.parametrize("module", ["linalg", "fft"])
def test_the_names_are_the_standards(module):
    assert set(getattr(sr, module).__all__) == set(getattr(xp, module).__all__)
    assert module in sr.__all__
    assert not any("." in name for name in sr.__all__)


@pytest.mark.parametrize(
    ("module", "name"), [(m, n) for m in ("linalg", "fft") for n in getattr(xp, m).__all__], ids=str
)
def test_signatures_are_the_standards(module, name):
    ours_, theirs_ = (inspect.signature(getattr(getattr(each, module), name)) for each in (sr, xp))
    assert [(p.name, p.kind, p.default) for p in ours_.parameters.values()] == [
        (p.name, p.kind, p.default) for p in theirs_.parameters.values()
    ]


def test_functions_that_are_in_the_main_namespace_are_the_same():
    for name in ("matmul", "matrix_transpose", "tensordot", "vecdot", "outer"):
        assert getattr(sr.linalg, name) is getattr(sr, name)
    assert sr.linalg.det.__module__ == "serrate.linalg"
    assert pickle.loads(pickle.dumps(sr.linalg.svd)) is sr.linalg.svd
    assert not hasattr(sr, "svd")
    made = sr.linalg.svd(torch.eye(2))
    assert type(pickle.loads(pickle.dumps(made))) is type(made)


# --------------------------------------------------------------------------------------------- one operand, dense


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["det", "slogdet", "inv"])
def test_determinants_and_inverses(name, dtype):
    for shape in SQUARES:
        check(name, regular(dtype, shape))


@pytest.mark.parametrize("dtype", FLOATS)
def test_cholesky(dtype):
    for shape in SQUARES:
        for upper in (False, True):
            check("cholesky", definite(dtype, shape), upper=upper)


@pytest.mark.parametrize("dtype", FLOATS)
def test_eigenvalues_of_hermitian_matrices(dtype):
    for shape in SQUARES:
        given_ = definite(dtype, shape) - 3 * np.eye(shape[-1], dtype=dtype)
        check("eigvalsh", given_)
        values, vectors = sr.linalg.eigh(*ours([given_]))
        wanted = xp.linalg.eigh(theirs(given_))
        same(values, wanted.eigenvalues)
        assert vectors.shape == wanted.eigenvectors.shape
        v, w = vectors.values.numpy(), values.values.numpy()
        adjoint = v.conj().swapaxes(-1, -2)
        same(sr.Tensor(torch.from_numpy(((v * w[..., None, :]) @ adjoint).astype(dtype))), given_)
        same(sr.Tensor(torch.from_numpy(adjoint @ v)), np.broadcast_to(np.eye(shape[-1], dtype=dtype), shape))


@pytest.mark.parametrize("dtype", FLOATS)
def test_qr(dtype):
    for shape in OBLONGS:
        for mode in ("reduced", "complete"):
            given_ = noise(dtype, shape)
            made, wanted = sr.linalg.qr(*ours([given_]), mode=mode), xp.linalg.qr(theirs(given_), mode=mode)
            q, r = (part.values.numpy() for part in made)
            assert made._fields == ("Q", "R")
            assert (q.shape, r.shape, q.dtype) == (wanted.Q.shape, wanted.R.shape, given_.dtype)
            same(sr.Tensor(torch.from_numpy(q @ r)), given_)
            assert (np.tril(r, -1) == 0).all()
            eye = np.broadcast_to(np.eye(q.shape[-1], dtype=dtype), (*shape[:-2], q.shape[-1], q.shape[-1]))
            same(sr.Tensor(torch.from_numpy(q.conj().swapaxes(-1, -2) @ q)), eye)


@pytest.mark.parametrize("dtype", FLOATS)
def test_svd(dtype):
    for shape in OBLONGS:
        given_ = noise(dtype, shape)
        check("svdvals", given_)
        for full in (True, False):
            made = sr.linalg.svd(*ours([given_]), full_matrices=full)
            wanted = xp.linalg.svd(theirs(given_), full_matrices=full)
            assert made._fields == ("U", "S", "Vh")
            assert [part.shape for part in made] == [part.shape for part in wanted]
            same(made.S, wanted.S)
            k = min(shape[-2:])
            u, s, v = (part.values.numpy() for part in made)
            same(sr.Tensor(torch.from_numpy((u[..., :k] * s[..., None, :]) @ v[..., :k, :])), given_)


@pytest.mark.parametrize("dtype", FLOATS)
def test_pinv_and_rank(dtype):
    for shape in OBLONGS:
        given_ = noise(dtype, shape)
        if given_.size and min(shape[-2:]) > 1:
            given_[..., 0, :] = given_[..., 1, :]  # a row twice: not of full rank
        rank = sr.linalg.matrix_rank(*ours([given_]))
        assert rank.shape == shape[:-2]
        assert rank.dtype == torch.int64
        for rtol in (None, 0.3):
            check("pinv", given_, rtol=rtol)
            if 0 in shape[-2:]:
                with pytest.raises(EMPTY_FOR_NUMPY):
                    xp.linalg.matrix_rank(theirs(given_), rtol=rtol)
                assert (rank.values == 0).all()
            else:
                check("matrix_rank", given_, rtol=rtol)


def test_tolerances_may_be_arrays():
    given_ = np.stack([np.diag([4.0, 2.0, 1.0]), np.diag([4.0, 2.0, 1.0])])
    for rtol in (np.asarray([0.3, 0.6]), np.asarray(0.3), np.asarray([0.4])):
        check("matrix_rank", given_, rtol=rtol)
        made = sr.linalg.pinv(*ours([given_]), rtol=ours(rtol))
        keeps = np.where(np.asarray([4, 2, 1]) > 4 * np.broadcast_to(rtol, 2)[:, None], 1 / np.asarray([4, 2, 1]), 0)
        same(made, np.stack([np.diag(each) for each in keeps]))
    check("matrix_rank", given_[0], rtol=np.asarray([0.1, 0.3, 0.6]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_matrix_power(dtype):
    for shape in SQUARES:
        for n in (0, 1, 2, 5, -1, -2):
            check("matrix_power", regular(dtype, shape) / 3, n)


@pytest.mark.parametrize("dtype", FLOATS)
def test_matrix_norms(dtype):
    inf = float("inf")
    for shape, keepdims in itertools.product(OBLONGS, (False, True)):
        for ord_ in ("fro", "nuc", inf, -inf, 1, -1, 2, -2, None):
            given_ = noise(dtype, shape)
            if 0 not in shape[-2:]:
                check("matrix_norm", given_, ord=ord_, keepdims=keepdims)
                continue
            made = sr.linalg.matrix_norm(*ours([given_]), ord=ord_, keepdims=keepdims)
            assert made.shape == (*shape[:-2], *([1, 1] if keepdims else []))
            assert made.dtype == torch.empty(0, dtype=getattr(torch, dtype)).abs().dtype
            assert (made.values == 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_vector_norms(dtype):
    inf = float("inf")
    for shape, axes in (
        ((), (None,)),
        ((4,), (None, 0, -1, (0,))),
        ((2, 3, 4), (None, 0, 1, -1, (0, 2), (2, 1), (0, 1, 2), ())),
        ((2, 0, 3), (0, 1, 2, (0, 1), None)),
    ):
        for axis, keepdims, ord_ in itertools.product(axes, (False, True), (inf, -inf, 0, 1, 2, 3, 0.5, -1, -2, -3.5)):
            given_ = noise(dtype, shape)
            nothing = given_.size == 0 and axis in (1, (0, 1), None)
            if not nothing:
                if axis == () and ord_ == 0:
                    continue  # below
                check("vector_norm", given_, axis=axis, keepdims=keepdims, ord=ord_)
            elif ord_ in (0, 1, 2, 3):
                check("vector_norm", given_, axis=axis, keepdims=keepdims, ord=ord_)
    given_ = np.asarray([[0, 2], [3, 0]], dtype=dtype)
    made = sr.linalg.vector_norm(*ours([given_]), axis=(), ord=0)
    assert made.tolist() == [[0.0, 1.0], [1.0, 0.0]]


# --------------------------------------------------------------------------------------- products, traces, solutions


@pytest.mark.parametrize("dtype", NUMERIC)
def test_diagonals_and_traces(dtype):
    for shape in OBLONGS:
        for offset in (0, 1, -1, 7, -7):
            given_ = noise(dtype, shape)
            check("diagonal", given_, offset=offset)
            check("trace", given_, offset=offset)
    check("trace", noise(dtype, (3, 3)), dtype="dtype:complex128" if "complex" in dtype else "dtype:float64")
    x = sr.asarray(torch.ones(2, 2))
    assert sr.linalg.diagonal(x).values.data_ptr() == x.values.data_ptr()
    check("diagonal", np.asarray([[True, False], [False, False]]))


@pytest.mark.parametrize("dtype", NUMERIC)
def test_cross(dtype):
    for first, second, axis in (
        ((3,), (3,), -1),
        ((4, 3), (3,), -1),
        ((2, 1, 3), (4, 3), -1),
        ((3, 4), (2, 3, 1), -2),
        ((0, 3), (1, 3), -1),
        ((3, 2, 5), (3, 2, 5), -3),
    ):
        check("cross", noise(dtype, first, 1), noise(dtype, second, 2), axis=axis)
    made = sr.linalg.cross(*ours([noise(dtype, (2, 3, 4)), noise(dtype, (2, 3, 4), 1)]), axis=1)
    assert (
        made.tolist() == sr.linalg.cross(*ours([noise(dtype, (2, 3, 4)), noise(dtype, (2, 3, 4), 1)]), axis=-2).tolist()
    )


@pytest.mark.parametrize("dtype", NUMERIC)
def test_products(dtype):
    for first, second in (
        ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 1, 2, 3), (2, 3, 4)),
        ((2, 0), (0, 4)), ((0, 3), (3, 4)), ((0, 2, 3), (1, 3, 2)), ((1, 1), (1, 1)),
    ):  # fmt: skip
        check("matmul", noise(dtype, first, 1), noise(dtype, second, 2))
    for first, second, axes in (
        ((2, 3), (2, 3), 2), ((2, 3), (3, 4), 1), ((2,), (3,), 0), ((), (), 0), ((), (2, 3), 0),
        ((2, 3, 4), (4, 5, 3), ((1, 2), (2, 0))), ((2, 3, 4), (4, 5, 3), ((-2, -1), (-1, -3))), ((2, 0), (0, 2), 1),
        ((2, 3), (4, 5), ((), ())), ((2, 1), (1, 3), 1),
    ):  # fmt: skip
        check("tensordot", noise(dtype, first, 1), noise(dtype, second, 2), axes=axes)
    for first, second, axis in (
        ((3,), (3,), -1), ((2, 3), (3,), -1), ((2, 1, 3), (4, 3), -1), ((3, 2), (5, 3, 1), -2), ((2, 0), (2, 0), -1),
        ((1,), (1,), -1),
    ):  # fmt: skip
        check("vecdot", noise(dtype, first, 1), noise(dtype, second, 2), axis=axis)
    for first, second in (((3,), (2,)), ((0,), (2,)), ((1,), (0,))):
        check("outer", noise(dtype, first, 1), noise(dtype, second, 2))
    check("matrix_transpose", noise(dtype, (2, 3, 4)))


def test_unsigned_products_wrap_as_numpys_do():
    for dtype in ("uint8", "uint16", "uint32", "uint64"):
        top = np.asarray([[np.iinfo(dtype).max, 2], [1, np.iinfo(dtype).max // 2]], dtype=dtype)
        for name in ("matmul", "vecdot"):
            wanted = np.asarray(getattr(xp.linalg, name)(xp.asarray(top), xp.asarray(top)))
            assert getattr(sr.linalg, name)(*ours([top, top])).values.numpy().tolist() == wanted.tolist()


@pytest.mark.parametrize(("first", "second"), [("uint16", "int32"), ("uint8", "uint64"), ("float32", "complex128")])
def test_products_of_two_dtypes(first, second):
    check("matmul", noise(first, (2, 3)), noise(second, (3, 2)))
    check("tensordot", noise(first, (2, 3)), noise(second, (3, 2)), axes=1)
    check("outer", noise(first, (2,)), noise(second, (3,)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_solve(dtype):
    for first, second in (
        ((3, 3), (3,)), ((3, 3), (3, 2)), ((4, 3, 3), (3,)), ((4, 3, 3), (3, 2)), ((3, 3), (4, 3, 2)),
        ((2, 1, 3, 3), (4, 3, 1)), ((3, 3, 3), (3, 3)), ((0, 3, 3), (3, 2)), ((0, 0), (0,)), ((0, 0), (0, 2)),
        ((2, 0, 0), (2, 0, 3)), ((3, 3), (3, 0)), ((1, 1), (1,)), ((0, 3, 3), (1, 3, 2)), ((1, 3, 3), (0, 3, 2)),
        ((3, 3), (0, 3, 2)), ((0, 0), (5, 0, 2)),
    ):  # fmt: skip
        check("solve", regular(dtype, first), noise(dtype, second))


def test_solve_of_two_dtypes():
    check("solve", regular("float64", (3, 3)), noise("complex128", (3,)))
    made = sr.linalg.solve(torch.eye(2).half(), torch.ones(2))
    assert made.dtype == torch.float32


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_stack_of_matrices(data):
    stack = tuple(data.draw(st.lists(st.integers(0, 3), max_size=3)))
    m, n = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))
    dtype = data.draw(st.sampled_from(FLOATS))
    seed = data.draw(st.integers(0, 99))
    square = regular(dtype, (*stack, n, n), seed)
    check(data.draw(st.sampled_from(["det", "inv", "slogdet"])), square)
    cut = tuple(1 if data.draw(st.booleans()) else size for size in stack)[data.draw(st.integers(0, len(stack))) :]
    check("solve", square, noise(dtype, (*cut, n, m), seed))
    check("pinv", noise(dtype, (*stack, m, n), seed))
