"""`sr.fft` against array_api_strict and numpy on dense tensors, and against torch on each row of ragged ones."""

from __future__ import annotations

import itertools

import array_api_strict as xp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.array_api.strict import ours, theirs
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import AxisError

REAL = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
TAKES = dict.fromkeys(("fft", "ifft", "irfft", "hfft", "fftn", "ifftn", "irfftn"), COMPLEX) | dict.fromkeys(
    ("rfft", "ihfft", "rfftn"), REAL
)
ALONG = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
OVER = ("fftn", "ifftn", "rfftn", "irfftn")
NORMS = ("backward", "ortho", "forward")


def noise(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng([seed, *shape])
    made = np.asarray(generator.standard_normal(shape))
    made = made + 1j * generator.standard_normal(shape) if dtype in COMPLEX else made
    return np.asarray(made, dtype=dtype)


def same(made: sr.Tensor, wanted) -> None:
    wanted = np.asarray(wanted)
    assert isinstance(made, sr.Tensor)
    assert made.shape == wanted.shape
    assert made.dtype == getattr(torch, wanted.dtype.name)
    fine = 1e-4 if wanted.dtype.name in ("float32", "complex64") else 1e-10
    np.testing.assert_allclose(made.values.numpy(), wanted, rtol=fine, atol=fine)


def check(name: str, *args, **options) -> None:
    same(getattr(sr.fft, name)(*ours(args), **options), getattr(xp.fft, name)(*theirs(args), **options))


# ------------------------------------------------------------------------------------------------------------ dense


@pytest.mark.parametrize("name", ALONG)
def test_transforms_along_an_axis(name):
    for dtype, shape in itertools.product(TAKES[name], ((4,), (5,), (2, 3, 4), (3, 0, 2), (0, 4))):
        for axis in range(-len(shape), len(shape)):
            if shape[axis] < 2:
                continue
            for n, norm in itertools.product((None, 1, 3, 4, 7), NORMS):
                check(name, noise(dtype, shape), n=n, axis=axis, norm=norm)
        check(name, noise(dtype, (3, 4)))


@pytest.mark.parametrize("name", OVER)
def test_transforms_over_several_axes(name):
    for dtype, norm in itertools.product(TAKES[name], NORMS):
        for shape, axes, s in (
            ((4,), None, None),
            ((3, 4), None, None),
            ((3, 4), (0,), None),
            ((3, 4), (1, 0), None),
            ((2, 3, 4), (-1, 0), None),
            ((2, 3, 4), (-1, 0), (3, 5)),
            ((2, 3, 4), (0, 1, 2), (1, 2, 2)),
            ((2, 3, 4), (1,), (6,)),
            ((0, 3, 4), (1, 2), None),
            ((3, 0, 4), (0, 2), (2, 2)),
            ((0, 3, 0), (1,), None),
        ):
            check(name, noise(dtype, shape), axes=axes, s=s, norm=norm)
    if name in ("fftn", "ifftn"):
        same(getattr(sr.fft, name)(*ours([noise("complex64", ())])), noise("complex64", ()))


@pytest.mark.parametrize("name", [*ALONG, *OVER])
def test_real_numbers_become_complex_ones_of_their_precision(name):
    """The standard asks for complex elements where it asks for any; real ones transform as in numpy."""
    for dtype in REAL:
        x = noise(dtype, (3, 4))
        wanted = np.asarray(getattr(np.fft, name)(x))
        kind = {"float32": "complex64", "float64": "complex128"}[dtype] if wanted.dtype.kind == "c" else dtype
        same(getattr(sr.fft, name)(*ours([x])), wanted.astype(kind))


def test_sizes_without_axes_count_from_the_end():
    x = noise("complex128", (2, 3, 4))
    same(sr.fft.fftn(*ours([x]), s=(5,)), np.fft.fft(x, 5))
    same(sr.fft.fftn(*ours([x]), s=(-1, 5), axes=(0, 2)), np.fft.fftn(x, (2, 5), (0, 2)))


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies(name):
    for n, d in itertools.product((1, 2, 3, 4, 7, 8), (1.0, 0.5, 3)):
        wanted = getattr(np.fft, name)(n, d)
        same(getattr(sr.fft, name)(n, d=d, dtype=torch.float64), wanted)
        same(getattr(sr.fft, name)(n, d=d), wanted.astype("float32"))
    assert getattr(sr.fft, name)(4, device="cpu").device.type == "cpu"
    assert getattr(sr.fft, name)(4, device=torch.device("meta")).device.type == "meta"
    assert getattr(sr.fft, name)(np.int64(4)).shape == (getattr(np.fft, name)(4).shape)


@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
def test_shifts(name):
    for dtype, shape in itertools.product((*REAL, *COMPLEX), ((0,), (4,), (5,), (2, 3, 4), (2, 0))):
        choices = [None, *range(-len(shape), len(shape)), *itertools.permutations(range(len(shape)), 2)]
        for axes in choices:
            check(name, noise(dtype, shape), axes=axes)
    for x in (sr.asarray(torch.tensor(1.0)), sr.asarray(torch.arange(3.0))):  # no axis to shift, where numpy fails
        made = getattr(sr.fft, name)(x, axes=())
        assert made.tolist() == x.tolist()
        assert made.values.data_ptr() != x.values.data_ptr()
    assert getattr(sr.fft, name)(torch.tensor(1.0)).tolist() == 1.0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_there_and_back(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    norm = data.draw(st.sampled_from(NORMS))
    x = noise("complex128", shape, data.draw(st.integers(0, 9)))
    for there, back in (("fft", "ifft"), ("ifft", "fft")):
        made = getattr(sr.fft, there)(*ours([x]), axis=axis, norm=norm)
        same(getattr(sr.fft, back)(made, axis=axis, norm=norm), x)
    for there, back in (("rfft", "irfft"), ("ihfft", "hfft")):
        made = getattr(sr.fft, there)(*ours([x.real.copy()]), axis=axis, norm=norm)
        same(getattr(sr.fft, back)(made, n=shape[axis], axis=axis, norm=norm), x.real)
    same(sr.fft.ifftn(sr.fft.fftn(*ours([x]), norm=norm), norm=norm), x)
    same(sr.fft.ifftshift(sr.fft.fftshift(*ours([x]))), x)


# ----------------------------------------------------------------------------------------------------------- ragged


def rows(*features: int, dtype=torch.float64) -> sr.Tensor:
    made = torch.randn(6, *features, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return sr.from_lengths((torch.complex(made, made.flip(0)) if dtype.is_complex else made).to(dtype), [2, 0, 3, 1])


STRUCTURES = {
    "features": lambda x: x,
    "permuted": lambda x: x.permute_dims((0, 3, 1, 2)),
    "two levels": lambda x: sr.from_lengths(x.values, [[1, 0, 3], [2, 0, 3, 1]]),
    "no rows": lambda x: sr.from_lengths(x.values[:0], []),
    "all rows empty": lambda x: sr.from_lengths(x.values[:0], [0, 0]),
    "int32 offsets": lambda x: sr.from_offsets(x.values, torch.tensor([0, 2, 2, 6], dtype=torch.int32)),
}


def uniform(x: sr.Tensor) -> list[int]:
    """The axes that may be transformed: uniform, and no parents."""
    return [a for a, c in enumerate(x.order) if c >= len(x.structure.axes)]


def entries(x: sr.Tensor, axes: list[int]):
    """What each cell of the other axes holds: a dense tensor of these axes."""
    others = [a for a in range(x.ndim) if a not in axes]
    moved = x.permute_dims((*others, *axes))

    def walk(part, depth):
        if depth == 0:
            yield part.torch()
            return
        for i in range(len(part)):
            yield from walk(part[i], depth - 1)

    return list(walk(moved, len(others)))


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("name", [*ALONG, "fftshift", "ifftshift"])
def test_each_row_of_a_ragged_tensor_alone(name, structure):
    for dtype in (torch.float64, torch.float32, *((torch.complex128,) if name not in ("rfft", "ihfft") else ())):
        x = STRUCTURES[structure](rows(3, 4, dtype=dtype))
        for axis in uniform(x):
            for options in ({}, {"n": 5, "norm": "ortho"}) if name in ALONG else ({},):
                place = {"axis": axis} if name in ALONG else {"axes": axis}
                made = getattr(sr.fft, name)(x, **place, **options)
                by_torch = getattr(torch.fft, name)(x, dim=axis, **options)
                assert made.structure is x.structure
                assert by_torch.shape == made.shape
                torch.testing.assert_close(by_torch.values, made.values)
                given_, found = entries(x, [axis]), entries(made, [axis])
                for one, got in zip(given_, found, strict=True):
                    torch.testing.assert_close(got, getattr(torch.fft, name)(one, **options))


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("name", OVER)
def test_several_axes_of_ragged_tensors(name, structure):
    for dtype in (torch.float64, *((torch.complex128,) if name != "rfftn" else ())):
        x = STRUCTURES[structure](rows(3, 4, dtype=dtype))
        for axes in (uniform(x), uniform(x)[::-1]):
            made = getattr(sr.fft, name)(x, axes=axes, s=(4, 3))
            assert made.structure is x.structure
            for one, got in zip(entries(x, axes), entries(made, axes), strict=True):
                torch.testing.assert_close(got, getattr(torch.fft, name)(one, s=(4, 3)))


def test_a_nan_stays_in_its_row():
    x = rows(4)
    values = x.values.clone()
    values[2] = float("nan")
    made, want = sr.fft.fft(x._with(values)).values, sr.fft.fft(x).values
    keep = [0, 1, 3, 4, 5]
    torch.testing.assert_close(made[keep], want[keep])
    assert made[2].real.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_transform_in_float32(dtype):
    x = rows(4, dtype=dtype)
    made = sr.fft.rfft(x)
    assert made.dtype == torch.complex64
    torch.testing.assert_close(made.values, torch.fft.rfft(x.values.float()))
    assert sr.fft.irfft(x).dtype == sr.fft.hfft(x).dtype == sr.fft.fftshift(x, axes=-1).dtype == dtype


def test_torch_functions_have_torchs_defaults():
    x = rows(3, 4)
    dense = sr.Tensor(x.values)
    for name in ("fft", "rfft", "ihfft"):
        torch.testing.assert_close(getattr(torch.fft, name)(x).values, getattr(torch.fft, name)(x.values))
        made = getattr(torch.fft, name)(dense, 3, 1, "ortho")
        assert isinstance(made, torch.Tensor)
        torch.testing.assert_close(made, getattr(torch.fft, name)(x.values, 3, 1, "ortho"))
    for name in ("fft2", "ifft2", "rfft2", "irfft2"):
        torch.testing.assert_close(getattr(torch.fft, name)(x).values, getattr(torch.fft, name)(x.values))
        torch.testing.assert_close(getattr(torch.fft, name)(dense), getattr(torch.fft, name)(x.values))
    whole = sr.from_lengths(torch.arange(6), [2, 4])[0]
    torch.testing.assert_close(torch.fft.fft(whole), torch.fft.fft(torch.arange(2)))
    assert torch.fft.fftshift(whole).tolist() == [1, 0]
    with pytest.raises(TypeError, match=r"fft\(out=…\) is not defined"):
        torch.fft.fft(x, out=x.values)


# ------------------------------------------------------------------------------------------------ gradients, errors


@pytest.mark.parametrize("name", [*ALONG, *OVER])
def test_derivatives(name):
    dtype = torch.float64 if name in ("rfft", "ihfft", "rfftn") else torch.complex128
    x = rows(2, 3, dtype=dtype)
    options = {"axes": (-2, -1)} if name in OVER else {"n": 4}
    values = x.values.clone().requires_grad_()
    assert gradcheck(lambda v: getattr(sr.fft, name)(x._with(v), **options).values, [values])
    assert gradgradcheck(lambda v: getattr(sr.fft, name)(x._with(v), **options).values, [values])


def test_empty_batches_stay_in_the_graph():
    for name in ALONG:
        x = sr.from_lengths(torch.ones(0, 3), [0, 0]).requires_grad_()
        made = sr.sum(sr.abs(getattr(sr.fft, name)(x)))
        made.backward()
        assert x.grad.shape == x.shape


def test_rows_past_the_last_offset_stay_there():
    x = rows(4)
    spare = sr.testing.device_born(x, spare=3)
    torch.testing.assert_close(sr.fft.fft(spare).values[:6], sr.fft.fft(x).values)


def test_what_is_wrong_is_said():
    x = rows(3, 4)
    for name in ("fft", "rfft", "hfft"):
        with pytest.raises(AxisError, match=rf"fft.{name} needs uniform axes, and axis 1 of shape .* is ragged"):
            getattr(sr.fft, name)(x, axis=1)
    with pytest.raises(AxisError, match="needs uniform axes"):
        torch.fft.fft(sr.ragged([[1.0], []]))
    with pytest.raises(AxisError, match="needs at least one axis to transform"):
        sr.fft.rfftn(torch.tensor(1.0))
    with pytest.raises(AxisError, match="needs at least one axis to transform"):
        sr.fft.irfftn(torch.ones(3), axes=())
    with pytest.raises(TypeError, match=r"fft\.rfft transforms real numbers, got torch\.complex64; use fft\.fft"):
        sr.fft.rfft(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(TypeError, match=r"use fft\.fftn"):
        sr.fft.rfftn(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(TypeError, match=r"use fft\.ifft"):
        sr.fft.ihfft(torch.ones(3, dtype=torch.complex64))
    for dtype in (torch.int64, torch.bool):
        with pytest.raises(TypeError, match=rf"needs floating-point elements, got {dtype}; the array API defines it"):
            sr.fft.fft(torch.ones(3, dtype=dtype))
    for call in (
        lambda: sr.fft.fft(torch.ones(2, 0)),
        lambda: sr.fft.irfft(torch.ones(2, 1)),
        lambda: sr.fft.hfft(torch.ones(2, 3), n=0),
        lambda: sr.fft.fftn(torch.ones(2, 3), s=(2, -2), axes=(0, 1)),
        lambda: sr.fft.fftn(torch.ones(0, 3)),
    ):
        with pytest.raises(ValueError, match="needs at least one point along axis"):
            call()
    with pytest.raises(TypeError, match=r"expected an sr.Tensor or a torch.Tensor, got list"):
        sr.fft.fft([1.0, 2.0])


def test_torch_takes_one_size_and_one_axis_without_a_tuple():
    x = torch.arange(6.0).view(2, 3)
    for options in ({"dim": 0}, {"s": 2, "dim": 1}, {"s": (4,), "dim": 0}, {"s": 2}):
        assert torch.equal(torch.fft.fftn(sr.asarray(x), **options), torch.fft.fftn(x, **options))
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        with pytest.raises(ValueError, match=r"needs at least one point along axis 1 .*got -1"):
            getattr(sr.fft, name)(sr.asarray(x), n=-1)
