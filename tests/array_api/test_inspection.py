"""What the library says of itself: constants, version, namespace, devices, dtypes; attributes of arrays."""

from __future__ import annotations

import math

import array_api_compat
import array_api_strict as xp
import pytest
import torch

import serrate as sr


def test_constants():
    assert (sr.e, sr.pi, sr.inf) == (math.e, math.pi, math.inf)
    assert math.isnan(sr.nan)
    assert sr.newaxis is None
    assert all(type(constant) is float for constant in (sr.e, sr.pi, sr.inf, sr.nan))
    assert sr.__array_api_version__ == "2024.12"


def test_the_namespace_of_a_tensor():
    for x in (sr.asarray(1.0), sr.ragged([[1], []])):
        assert x.__array_namespace__() is sr
        for version in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            assert x.__array_namespace__(api_version=version) is sr
        for wrong in ("2020.01", "next", 2024):
            with pytest.raises(ValueError, match="api_version must be one of"):
                x.__array_namespace__(api_version=wrong)
    assert array_api_compat.array_namespace(sr.asarray(1.0), sr.asarray([1])) is sr
    assert array_api_compat.is_array_api_obj(sr.asarray(1.0))
    assert array_api_compat.device(sr.asarray(1.0)) == torch.device("cpu")


def test_capabilities():
    info = sr.__array_namespace_info__()
    found = info.capabilities()
    assert set(found) == set(xp.__array_namespace_info__().capabilities())
    assert found["boolean indexing"] is found["data-dependent shapes"] is True
    assert sr.zeros((1,) * found["max dimensions"]).ndim == found["max dimensions"]


def test_devices():
    info = sr.__array_namespace_info__()
    assert info.default_device() == torch.device("cpu")
    assert info.default_device() in info.devices()
    for device in info.devices():
        made = sr.zeros((2,), device=device)
        assert made.device == device
        assert made.to_device(device) is made
        assert made.to_device("cpu").tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="stream orders copies"):
        sr.zeros((2,)).to_device("cpu", stream=1)


def test_default_dtypes():
    info = sr.__array_namespace_info__()
    found = info.default_dtypes()
    assert found == info.default_dtypes(device=info.default_device())
    assert set(found) == {"real floating", "complex floating", "integral", "indexing"}
    assert found["real floating"] == sr.asarray(0.0).dtype
    assert found["complex floating"] == sr.asarray(0j).dtype
    assert found["integral"] == sr.asarray(0).dtype
    assert found["indexing"] == sr.argmax(sr.asarray([1, 2])).dtype
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert info.default_dtypes()["complex floating"] == sr.asarray(0j).dtype == sr.complex128
    finally:
        torch.set_default_dtype(before)


KINDS = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"]


@pytest.mark.parametrize("kind", [None, *KINDS, ("bool", "integral"), ("real floating", "complex floating"), ()])
def test_dtypes(kind):
    info, strict = sr.__array_namespace_info__(), xp.__array_namespace_info__()
    found = info.dtypes(kind=kind)
    assert set(found) == set(strict.dtypes(kind=kind))
    assert all(dtype is getattr(sr, name) for name, dtype in found.items())
    assert found == info.dtypes(device="cpu", kind=kind)


def test_kinds_that_do_not_exist():
    for wrong in ("number", ("bool", "number")):
        with pytest.raises(ValueError, match="kind must be None, one of"):
            sr.__array_namespace_info__().dtypes(kind=wrong)


def test_attributes():
    x = sr.ones((2, 3, 0, 4))
    assert (x.ndim, x.shape, x.size) == (4, (2, 3, 0, 4), 0)
    assert x.mT.shape == (2, 3, 4, 0)
    assert isinstance(x.size, int)
    assert (sr.asarray(1).shape, sr.asarray(1).size, sr.asarray(1).ndim) == ((), 1, 0)
    matrix = sr.asarray([[1, 2, 3], [4, 5, 6]])
    assert matrix.T.tolist() == matrix.mT.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert matrix.T.values.data_ptr() == matrix.values.data_ptr()
    for wrong in (sr.ones((2,)), sr.ones((2, 3, 4)), sr.asarray(1)):
        with pytest.raises(sr.errors.AxisError, match="T needs two axes"):
            _ = wrong.T
    rows = sr.ragged([[1, 2], [3]])
    assert rows.T.shape == rows.mT.shape
