"""Numbers that a dtype does not hold, against numpy and Python's integers: refused or computed, never wrapped."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.array_api.strict import FLOAT, INTEGER

import serrate as sr

FAR = (-(2**70), -(2**63) - 1, -129, -1, 0, 2, 300, 70_000, 2**33, 2**63, 2**64, 2**70)
BIG = [0, 1, 5, 2**62, 2**63 - 1, 2**63, 2**63 + 3, 2**64 - 1]


def big(dtype: torch.dtype = torch.uint64) -> sr.Tensor:
    return sr.asarray(BIG, dtype=dtype)


@pytest.mark.parametrize("dtype", INTEGER)
def test_searchsorted_of_numbers_beyond_the_dtype(dtype: str) -> None:
    limits = torch.iinfo(getattr(torch, dtype))
    rows = [[limits.min, 2, limits.max], [], [2]]
    dense = sr.asarray(rows[0], dtype=getattr(torch, dtype))
    ragged = sr.ragged(rows, dtype=getattr(torch, dtype))
    for number in FAR:
        for side, places in (("left", bisect_left), ("right", bisect_right)):
            assert int(sr.searchsorted(dense, number, side=side)) == places(rows[0], number)
            found = sr.searchsorted(ragged, number, side=side).tolist()
            assert found == [[places(row, number)] for row in rows]


def test_searchsorted_of_far_integers_among_floats() -> None:
    x = sr.asarray([1.0, 1e19, 1e25])
    assert [int(sr.searchsorted(x, n)) for n in (2**63, 2**64, -(2**70), 2**90)] == [1, 2, 0, 3]


@pytest.mark.parametrize("dtype", INTEGER)
def test_where_and_full_refuse_numbers_beyond_the_dtype(dtype: str) -> None:
    condition, kind = sr.asarray([True, False]), getattr(torch, dtype)
    x, limits = sr.asarray([1, 1], dtype=kind), torch.iinfo(kind)
    for number in FAR:
        if limits.min <= number <= limits.max:
            assert sr.where(condition, x, number).tolist() == [1, number]
            assert sr.where(condition, number, x).tolist() == [number, 1]
            assert sr.full((1,), number, dtype=kind).tolist() == sr.full_like(x, number)[:1].tolist() == [number]
            continue
        for call in (
            lambda n=number: sr.where(condition, x, n),
            lambda n=number: sr.where(condition, n, x),
            lambda n=number: sr.full((1,), n, dtype=kind),
            lambda n=number: sr.full_like(x, n),
        ):
            with pytest.raises(OverflowError, match=f"{number}, which that type does not hold"):
                call()


RANGES = (
    (0, 2**66, 2**64),
    (-(2**63), 2**64, 2**63),
    (2**63, 2**63 + 2, 1),
    (2**64 + 10, 2**62, -(2**61)),
    (2**62, 2**62 + 2, 1),
    (0, 2**62 + 1, 2**61),
    (2**33, 2**33 + 2, 1),
    (250, 260, 3),
    (3, -2, -1),
    (2**70, 0, 1),
    (2**64 - 2, 2**64, 1),
    (-(2**63), -(2**63) + 3, 2),
)


@pytest.mark.parametrize("ends", RANGES, ids=str)
def test_ranges_of_far_integers(ends: tuple[int, int, int]) -> None:
    expected = list(range(*ends))
    for dtype in INTEGER:
        limits = torch.iinfo(getattr(torch, dtype))
        if all(limits.min <= n <= limits.max for n in expected):
            assert sr.arange(*ends, dtype=getattr(torch, dtype)).tolist() == expected
        else:
            with pytest.raises(OverflowError, match=f"arange of torch.{dtype}"):
                sr.arange(*ends, dtype=getattr(torch, dtype))
    for dtype in FLOAT:
        made = sr.arange(*ends, dtype=getattr(torch, dtype))
        assert made.tolist() == np.array(expected, dtype=dtype).tolist()
    assert sr.arange(*ends, dtype=torch.complex128).tolist() == [complex(n) for n in expected]


@pytest.mark.parametrize("dtype", FLOAT)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "lt", "ge", "eq"])
def test_floats_with_far_integers(name: str, dtype: str) -> None:
    values = np.array([1.0, -2.0, 2.0**50, math.inf, math.nan], dtype=dtype)
    function, x = getattr(operator, name), sr.asarray(values)
    for number in (2**63, 2**64, -(2**70)):
        for call in (lambda a, n=number: function(a, n), lambda a, n=number: function(n, a)):
            made, expected = call(x), call(values)
            assert made.dtype == getattr(torch, str(expected.dtype))
            np.testing.assert_array_equal(made.numpy(), expected)


def test_far_integers_that_no_float_holds() -> None:
    with pytest.raises(OverflowError):
        sr.asarray([1.0]) + 10**400
    assert sr.full((1,), 2**64, dtype=torch.float64).tolist() == [2.0**64]
    assert sr.full_like(sr.ragged([[1.0], []]), -(2**65)).tolist() == [[-(2.0**65)], []]
    assert sr.full((1,), 2**64, dtype=torch.complex64).tolist() == [2.0**64 + 0j]
    assert sr.where(sr.asarray([True, False]), sr.asarray([1.0, 1.0]), 2**64).tolist() == [1.0, 2.0**64]


# ----------------------------------------------------------------------------------------------------- assignment


@pytest.mark.parametrize("value", [1j, [1j, 2], (1.0, 2j), np.array([1j, 2]), torch.tensor([1j, 2]), np.complex64(1j)])
def test_no_part_is_lost_by_assignment(value: Any) -> None:
    for dtype in (torch.float32, torch.float64, torch.int32, torch.uint64):
        x, ragged = sr.asarray([1, 2], dtype=dtype), sr.ragged([[1, 2], []], dtype=dtype)
        with pytest.raises(TypeError, match="a part would be lost"):
            x[:] = value
        with pytest.raises(TypeError, match="a part would be lost"):
            ragged[0] = value
        assert x.tolist() == ragged.values.tolist() == [1, 2]
    x = sr.asarray([1j, 2])
    x[:] = value
    assert x[0].tolist() in (1j, 1)


def test_no_part_is_lost_by_conversion() -> None:
    for call in (
        lambda: sr.asarray(sr.asarray([2j]), dtype=torch.float32),
        lambda: sr.asarray(torch.tensor([2j]), dtype=torch.int64),
        lambda: sr.asarray(np.array([2j]), dtype=torch.float64),
        lambda: sr.asarray([sr.asarray(2j)], dtype=torch.float64),
        lambda: sr.asarray([2j], dtype=torch.float64),
        lambda: sr.full((1,), torch.tensor(2j), dtype=torch.float32),
        lambda: sr.full((1,), 2j, dtype=torch.float32),
        lambda: sr.full_like(sr.asarray([1.0]), sr.asarray(2j)),
    ):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("dtype", INTEGER)
def test_assigned_numbers_fit(dtype: str) -> None:
    kind = getattr(torch, dtype)
    limits = torch.iinfo(kind)
    for number in (*FAR, math.nan, math.inf, -math.inf, 1e30, -1.5, -0.5, 2.75, limits.min, limits.max):
        listed = np.array([number, 1], dtype=object if isinstance(number, int) else None)
        for value, key in ((number, 0), ([number, 1], slice(None)), (listed, slice(None))):
            x = sr.asarray([7, 7], dtype=kind)
            if math.isfinite(number) and limits.min <= int(number) <= limits.max:
                x[key] = value
                assert x[0].tolist() == int(number)
            else:
                with pytest.raises(ValueError, match="does not fit"):
                    x[key] = value
                assert x.tolist() == [7, 7]


def test_assigned_integers_of_any_size_become_floats() -> None:
    x = sr.ragged([[1.0, 2.0], [3.0]])
    x[0] = [2**70, 1]
    x[1, 0] = -(2**64)
    assert x.tolist() == [[2.0**70, 1.0], [-(2.0**64)]]
    kept = sr.asarray([True, False])
    kept[1] = 0.5
    assert kept.tolist() == [True, True]
    wraps = sr.asarray([0], dtype=torch.uint8)
    wraps[0] = torch.tensor(300)  # a tensor's integers wrap around, as in torch
    assert wraps.tolist() == [300 % 256]


# ---------------------------------------------------------------------------------------------- uint64 in torch's calls

EXACT: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lt": (torch.lt, operator.lt),
    "ge": (torch.ge, operator.ge),
    "maximum": (torch.maximum, max),
    "minimum": (torch.minimum, min),
    "floor_divide": (torch.floor_divide, operator.floordiv),
    "div": (lambda a, b: torch.div(a, b, rounding_mode="floor"), operator.floordiv),
    "remainder": (torch.remainder, operator.mod),
    "add": (torch.add, lambda a, b: (a + b) % 2**64),
    "mul": (torch.mul, lambda a, b: a * b % 2**64),
    "pow": (torch.pow, lambda a, b: pow(a, b, 2**64)),
}


@pytest.mark.parametrize("name", EXACT)
def test_uint64_of_two_operands(name: str) -> None:
    function, exact = EXACT[name]
    for x in (big(), sr.from_lengths(big().values, [3, 0, 5])):
        for number in (1, 3, 2**63 - 1, 2**63, 2**64 - 1):
            expected = [exact(a, number) for a in BIG]
            other = sr.full_like(x, number)
            given = (other,) if name in ("maximum", "minimum") else (other, number)
            for made in (function(x, each) for each in given):
                assert (made.values if isinstance(made, sr.Tensor) else made).tolist() == expected


def test_uint64_methods() -> None:
    x, floats = big(), np.array(BIG, dtype=np.uint64).astype(np.float32)
    np.testing.assert_allclose(x.sqrt().numpy(), np.sqrt(floats), rtol=1e-6)
    np.testing.assert_allclose(x.div(2).numpy(), floats / 2, rtol=1e-6)
    np.testing.assert_allclose(x.mul(1.5).numpy(), floats * np.float32(1.5), rtol=1e-6)
    assert x.clamp(3, 2**63).tolist() == [min(max(n, 3), 2**63) for n in BIG]
    assert x.clamp(max=2**62).tolist() == torch.clamp(x, None, 2**62).tolist() == [min(n, 2**62) for n in BIG]
    assert x.clamp(min=-5).tolist() == BIG
    assert x.bitwise_right_shift(1).tolist() == [n >> 1 for n in BIG]
    assert x.sub(1, alpha=2).tolist() == [(n - 2) % 2**64 for n in BIG]
    assert torch.gt(x, -1).tolist() == [True] * len(BIG)
    assert torch.where(torch.ge(x, 2**63), x, x).tolist() == BIG


def test_uint64_powers_with_exponents_of_the_highest_bit() -> None:
    for base in (0, 1, 2, 3, 2**63 + 1):
        exponents = [e for e in BIG if e]
        made = sr.pow(sr.full((len(exponents),), base, dtype=torch.uint64), sr.asarray(exponents, dtype=torch.uint64))
        assert made.tolist() == [pow(base, e, 2**64) for e in exponents]
