"""Creation functions against array_api_strict; what asarray and from_dlpack share and copy."""

from __future__ import annotations

import array as arrays
import math

import array_api_strict as xp
import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from tests.array_api.strict import ALL, COMPLEX, FLOAT, NUMERIC, REAL, SHAPES, agree, array, check, ours

import serrate as sr

DEFAULTS = {bool: sr.bool, int: sr.int64, float: sr.float32, complex: sr.complex64}


def torch_dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


# ----------------------------------------------------------------------------------------------------- from a shape


@pytest.mark.parametrize("dtype", ALL)
def test_from_a_shape(dtype):
    for shape in [*SHAPES, 3, 0]:
        check("zeros", shape, dtype=f"dtype:{dtype}")
        check("ones", shape, dtype=f"dtype:{dtype}")
        value = {"b": True, "i": 3, "u": 3, "f": 1.5, "c": 1.5 + 2j}[np.dtype(dtype).kind]
        check("full", shape, value, dtype=f"dtype:{dtype}")
        made = sr.empty(shape, dtype=torch_dtype(dtype))
        assert made.shape == ((shape,) if isinstance(shape, int) else shape)
        assert made.dtype == torch_dtype(dtype)


@pytest.mark.parametrize("dtype", ALL)
def test_in_the_shape_of_another(dtype):
    for shape in SHAPES:
        x = array(dtype, shape)
        check("zeros_like", x)
        check("ones_like", x)
        check("full_like", x, True if dtype == "bool" else 2)
        check("ones_like", x, dtype="dtype:int16")
        check("full_like", x, 7, dtype="dtype:uint16")
        made = sr.empty_like(ours(x))
        assert (made.shape, made.dtype) == (shape, torch_dtype(dtype))


def test_dtypes_that_are_not_given():
    assert sr.zeros(2).dtype == sr.ones((2,)).dtype == sr.empty(()).dtype == sr.eye(2).dtype == sr.float32
    for value in (True, 3, 2.5, 1j):
        assert (
            sr.full((2,), value).dtype == sr.asarray(value).dtype == sr.asarray([value]).dtype == DEFAULTS[type(value)]
        )
    assert sr.linspace(0, 1, 3).dtype == sr.arange(0.0, 1.0, 0.5).dtype == sr.float32
    assert sr.arange(3).dtype == sr.int64
    assert sr.full((1,), 2**64 - 1, dtype=sr.uint64).tolist() == [2**64 - 1]


@pytest.mark.parametrize("dtype", ["bool", *NUMERIC])
def test_eye(dtype):
    for rows, columns in [(3, None), (2, 4), (4, 2), (0, 3), (0, None), (3, 0)]:
        for k in (0, 1, -1, 2, 5, -7):
            check("eye", rows, columns, k=k, dtype=f"dtype:{dtype}")


# ----------------------------------------------------------------------------------------------------------- ranges


@pytest.mark.parametrize("dtype", [None, *REAL])
def test_integer_ranges(dtype):
    options = {} if dtype is None else {"dtype": f"dtype:{dtype}"}
    for args in [(0,), (5,), (2, 9), (2, 9, 3), (9, 2, -2), (9, 2), (2, 9, -1), (3, 3), (1, 100, 200), (0, 120, 7)]:
        check("arange", *args, **options)


@hypothesis.given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(2, 40), st.booleans())
def test_ranges_of_large_integers(first, last, count, forward):
    step = max(abs(last - first) // count, 1) * (1 if forward else -1)
    made = sr.arange(first, last, step)
    assert made.dtype == sr.int64
    assert made.tolist() == list(range(first, last, step))


@hypothesis.given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(2, 40))
def test_ranges_of_uint64(first, last, count):
    step = max(abs(last - first) // count, 1) * (1 if first < last else -1)
    made = sr.arange(first, last, step, dtype=sr.uint64)
    assert made.dtype == sr.uint64
    assert made.tolist() == list(range(first, last, step))


@hypothesis.given(
    st.floats(-1000, 1000),
    st.floats(-1000, 1000),
    st.floats(0.01, 100) | st.floats(-100, -0.01),
    st.sampled_from([None, "float32", "float64"]),
)
def test_ranges_of_floats(first, last, step, dtype):
    made = sr.arange(first, last, step, dtype=None if dtype is None else torch_dtype(dtype))
    assert made.size == max(0, math.ceil((last - first) / step))
    want = first + step * np.arange(int(made.size))
    np.testing.assert_allclose(made.values.numpy(), want, rtol=1e-4, atol=1e-3 if dtype != "float64" else 1e-9)


def test_ranges_that_are_refused():
    with pytest.raises(ValueError, match="must not be 0"):
        sr.arange(1, 5, 0)


@pytest.mark.parametrize("dtype", [None, *FLOAT, *COMPLEX])
def test_linspace(dtype):
    options = {} if dtype is None else {"dtype": torch_dtype(dtype)}
    for first, last in [
        (0, 1),
        (-3.5, 7.25),
        (5, -5),
        (2, 2),
        (1e10, 3e10),
        *([(1j, 2 + 3j)] if dtype in COMPLEX else []),
    ]:
        for count in (0, 1, 2, 5, 50):
            for endpoint in (True, False):
                made = sr.linspace(first, last, count, endpoint=endpoint, **options)
                assert made.shape == (count,)
                assert made.dtype == options.get("dtype", torch.float32)
                want = np.linspace(first, last, count, endpoint=endpoint)
                np.testing.assert_allclose(made.values.numpy(), want, rtol=1e-5, atol=1e-6)
                if count > 1 and endpoint:
                    assert made[0] == first
                    assert made[-1] == last
                longer = sr.linspace(first, last, count + 1, **options)
                assert endpoint or longer[:-1].tolist() == made.tolist()
    assert sr.linspace(0, 6, 3, dtype=sr.uint16).tolist() == [0, 3, 6]
    with pytest.raises(ValueError, match="0 or more, got -1"):
        sr.linspace(0, 1, -1)


@pytest.mark.parametrize("dtype", ALL)
def test_meshgrid_and_triangles(dtype):
    for sizes in [(2,), (2, 3), (2, 0), (2, 3, 4)]:
        given = [array(dtype, (size,), seed) for seed, size in enumerate(sizes)]
        for options in ({}, {"indexing": "xy"}, {"indexing": "ij"}):
            made = sr.meshgrid(*[ours(each) for each in given], **options)
            assert isinstance(made, list)  # a tuple from 2025.12 on
            agree(tuple(made), xp.meshgrid(*[xp.asarray(each) for each in given], **options))
    for shape in [(3, 3), (2, 4), (0, 3), (2, 3, 2), (2, 0)]:
        for k in (0, 1, -1, 4, -4):
            check("tril", array(dtype, shape), k=k)
            check("triu", array(dtype, shape), k=k)


# ---------------------------------------------------------------------------------------------------------- asarray


@pytest.mark.parametrize(
    "given", [True, 3, 2.5, 1j, [], [[]], [[], []], [1, 2.0], [[1, 2], [3, 4]], [(1,), (2,)], range(3)]
)
def test_asarray_of_python_data(given):
    made = sr.asarray(given)
    want = np.asarray(given)
    assert made.shape == want.shape
    assert made.tolist() == want.tolist()
    if want.size:
        assert made.dtype == DEFAULTS[type(want.ravel()[0].item())]
    for dtype in ALL:
        if np.iscomplexobj(want) and dtype not in COMPLEX:
            continue
        assert sr.asarray(given, dtype=torch_dtype(dtype)).tolist() == want.astype(dtype).tolist()
    with pytest.raises(ValueError, match="without a copy"):
        sr.asarray(given, copy=False)


@pytest.mark.parametrize("dtype", ALL)
def test_asarray_of_arrays(dtype):
    for shape in SHAPES:
        x = array(dtype, shape)
        for given in (x, ours(x), ours(x).values, xp.asarray(x)):
            agree(sr.asarray(given), xp.asarray(x))
            agree(sr.asarray(given, copy=True), xp.asarray(x))
            agree(sr.asarray(given, dtype=sr.bool), xp.asarray(x.astype("bool")))


def test_what_asarray_shares():
    x = np.arange(3.0)
    for given in (x, torch.from_numpy(x), sr.asarray(x), xp.asarray(x, copy=False)):
        for copy in (None, False):
            made = sr.asarray(given, copy=copy)
            made[0] = 7.0
            assert x[0] == 7.0
            x[0] = 0.0
        made = sr.asarray(given, copy=True)
        made[0] = 7.0
        assert x[0] == 0.0
        with pytest.raises(ValueError, match="without a copy"):
            sr.asarray(given, dtype=sr.int32, copy=False)
    tensor = sr.asarray([1.0])
    assert sr.asarray(tensor) is tensor
    assert sr.asarray(tensor, dtype=sr.float32, device="cpu") is tensor


def test_buffers_and_arrays_that_torch_cannot_share():
    assert sr.asarray(arrays.array("d", [1.0, 2.0])).tolist() == [1.0, 2.0]
    assert sr.asarray(bytearray(b"ab")).tolist() == [97, 98]
    assert sr.asarray(memoryview(np.arange(4, dtype="int16")[::2])).tolist() == [0, 2]
    frozen = np.arange(3)
    frozen.flags.writeable = False
    for given, want in ((np.arange(3)[::-1], [2, 1, 0]), (frozen, [0, 1, 2]), (np.arange(3, dtype=">i4"), [0, 1, 2])):
        assert sr.asarray(given).tolist() == want
        with pytest.raises(ValueError, match="needs a copy"):
            sr.asarray(given, copy=False)
    made = sr.asarray(frozen)
    made[0] = 9
    assert frozen[0] == 0


def test_asarray_refuses():
    with pytest.raises(sr.errors.RaggednessError, match="rows of different length"):
        sr.asarray([[1, 2], [3]])
    for wrong in ("a", None, object(), np.asarray(["a"])):
        with pytest.raises((TypeError, RuntimeError)):
            sr.asarray(wrong)
    with pytest.raises((OverflowError, RuntimeError)):
        sr.asarray([300], dtype=sr.uint8)


# ----------------------------------------------------------------------------------------------------------- DLPack


@pytest.mark.parametrize("dtype", ALL)
def test_dlpack_both_ways(dtype):
    for shape in SHAPES:
        x = array(dtype, shape)
        for given in (x, ours(x), ours(x).values, xp.asarray(x)):
            agree(sr.from_dlpack(given), xp.asarray(x))
        np.testing.assert_array_equal(np.from_dlpack(ours(x)), x)
        np.testing.assert_array_equal(torch.from_dlpack(ours(x)).numpy(), x)
        agree(sr.from_dlpack(xp.from_dlpack(ours(x))), xp.asarray(x))


def test_what_dlpack_shares():
    x = np.arange(4.0)
    for copy, seen in ((None, 7.0), (False, 7.0), (True, 0.0)):
        x[0] = 0.0
        sr.from_dlpack(x, copy=copy)[0] = 7.0
        assert x[0] == seen
    tensor = sr.asarray([1.0, 2.0])
    assert sr.from_dlpack(tensor, device="cpu", copy=False).values.data_ptr() == tensor.values.data_ptr()
    assert sr.from_dlpack(tensor, device=sr.asarray(0).device).device == tensor.device
    for given in (x[::-1], xp.asarray(x)[::-1]):  # torch itself ends the process
        assert sr.from_dlpack(given).tolist() == [3.0, 2.0, 1.0, x[0]]
        with pytest.raises(BufferError, match="negative stride"):
            sr.from_dlpack(given, copy=False)
    with pytest.raises(BufferError, match="without a copy"):
        sr.from_dlpack(x, device="meta", copy=False)


def test_dlpack_protocol():
    x = sr.asarray([1.0, 2.0])
    kind, index = x.__dlpack_device__()
    assert (int(kind), index) == (1, 0)
    assert type(x.__dlpack__()).__name__ == "PyCapsule"
    assert "versioned" in repr(x.__dlpack__(stream=None, max_version=(1, 0), dl_device=(kind, index), copy=True))
    copied = np.from_dlpack(x, copy=True)
    copied[0] = 9
    assert x.tolist() == [1.0, 2.0]
    assert np.from_dlpack(sr.conj(sr.asarray([1j]))).tolist() == [-1j]
    with pytest.raises(BufferError, match="dense tensors"):
        sr.ragged([[1], []]).__dlpack__()


def test_asarray_of_lists_of_tensors():
    parts = [torch.ones(2), torch.zeros(2, dtype=torch.float64)]
    for given in (parts, tuple(parts), [sr.asarray(part) for part in parts], [parts[0], sr.asarray(parts[1])]):
        made = sr.asarray(given)
        assert (made.dtype, made.tolist()) == (torch.float64, [[1.0, 1.0], [0.0, 0.0]])
        assert sr.asarray(given, dtype=torch.int32).tolist() == [[1, 1], [0, 0]]
    assert sr.asarray([[torch.tensor(1), 2], [3, torch.tensor(4)]]).tolist() == [[1, 2], [3, 4]]
    leaf = torch.ones(2, requires_grad=True)
    sr.asarray([leaf, leaf * 2]).values.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [3.0, 3.0]
    with pytest.raises(sr.errors.RaggednessError, match="rectangular"):
        sr.asarray([torch.ones(2), torch.ones(3)])
    with pytest.raises(TypeError, match="got None"):
        sr.asarray(None)


def test_arrays_of_what_torch_conjugates_late():
    x = torch.tensor([1 + 2j, 3 - 1j])
    late = sr.asarray(x.conj())
    imaginary = sr.imag(late)
    for made, expected in ((late, x.numpy().conj()), (imaginary, -x.numpy().imag)):
        np.testing.assert_array_equal(np.asarray(made), expected)
        np.testing.assert_array_equal(made.numpy(), expected)
        np.testing.assert_array_equal(np.asarray(made, copy=True), expected)
        with pytest.raises(ValueError, match="without a copy"):
            made.__array__(copy=False)
