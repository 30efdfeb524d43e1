"""Scans of packed rows by compiled functions, against exact sums and torch's scans of each row; wrong offsets: None."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate

import pytest
import torch
from tests.native.mutants import mutant
from tests.native.packed import INTS, ROWS, offsets_of, same

import serrate as sr
from serrate.native import row_scans as library

t = torch.tensor

pytestmark = pytest.mark.skipif(not library.is_there(), reason="needs a C++ compiler")

FLOATS = [torch.float32, torch.float64]
NUMBERS = [*FLOATS, torch.int64]
WIDTHS = [0, 1, 2, 3, 8, 63, 64, 65, 130]
LENGTHS = {**ROWS, "edges": [7, 8, 9, 0, 15, 16, 17, 1, 65], "giant": [3, 0, 2_000, 1]}


def drawn(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rows * 1_000 + width)
    if dtype == torch.int64:
        return torch.randint(-(2**62), 2**62, (rows, width), generator=draw)
    noise = torch.randn(rows, width, generator=draw, dtype=torch.float64)
    return (noise * 10 ** torch.randint(-3, 4, (rows, width), generator=draw)).to(dtype)


def parts(values: torch.Tensor, lengths: list[int]) -> list[torch.Tensor]:
    return list(values.split([*lengths, len(values) - sum(lengths)]))[:-1]


def check_sums(values: torch.Tensor, lengths: list[int], ints: torch.dtype = torch.int64) -> None:
    """Against exact sums: of float32 to the last place, of float64 to a few units of what was added up."""
    for reverse in (False, True):
        made = library.sums(values, offsets_of(lengths, ints), reverse)
        assert made is not None
        assert not made[sum(lengths) :].any()
        for got, row in zip(parts(made, lengths), parts(values, lengths), strict=True):
            row, got = (row.flip(0), got.flip(0)) if reverse else (row, got)
            if values.dtype == torch.int64:
                same(got, row.cumsum(0))
                continue
            for column, of in zip(got.T, row.T, strict=True):
                exact = t([float(s) for s in accumulate(map(Fraction, of.tolist()))], dtype=torch.float64)
                size = of.double().abs().cumsum(0)
                units = t([1.0]) if values.dtype == torch.float32 else t([6.0])
                room = units * torch.finfo(values.dtype).eps * (size if values.dtype == torch.float64 else exact.abs())
                assert bool(((column.double() - exact).abs() <= room + 1e-13 * size * (units == 1)).all())


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("kind", [kind for kind in LENGTHS if kind != "giant"])
def test_running_sums(dtype: torch.dtype, kind: str) -> None:
    lengths = LENGTHS[kind]
    for width in WIDTHS:
        check_sums(drawn(sum(lengths) + 2, width, dtype), lengths)
    for ints in INTS:
        check_sums(drawn(sum(lengths), 2, dtype), lengths, ints)


@pytest.mark.parametrize("dtype", FLOATS)
def test_long_sums_lose_nothing_to_their_length(dtype: torch.dtype) -> None:
    for width in (1, 2):
        check_sums(drawn(20_000, width, dtype), [19_000, 1_000])
    values = torch.full((1_000_000, 1), 0.1, dtype=torch.float64)
    for features in (values, values.expand(-1, 2)):
        made = library.sums(features, t([0, 1_000_000]), False)
        assert made is not None
        assert made[-1, 0].item() == pytest.approx(float(Fraction(0.1) * 1_000_000), rel=1e-15)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("kind", LENGTHS)
def test_products_and_extremes(dtype: torch.dtype, kind: str) -> None:
    lengths = LENGTHS[kind]
    offsets = offsets_of(lengths)
    for width in WIDTHS:
        values = drawn(sum(lengths) + 2, width, dtype)
        near_one = 1 + values / 1e4 if dtype.is_floating_point else values
        made = library.products(near_one, offsets)
        assert made is not None
        want = [
            row.double().cumprod(0) if dtype.is_floating_point else row.cumprod(0) for row in parts(near_one, lengths)
        ]
        for got, each in zip(parts(made, lengths), want, strict=True):
            torch.testing.assert_close(
                got, each.to(dtype), rtol=4 * 65 * 1e-7 if dtype == torch.float32 else 1e-11, atol=0
            )
        ties = (values % 3 if dtype == torch.int64 else values.round()).contiguous()
        for largest, function in ((True, torch.cummax), (False, torch.cummin)):
            found = library.extremes(ties, offsets, largest)
            assert found is not None
            assert not found[0][sum(lengths) :].any()
            assert not found[1][sum(lengths) :].any()
            for got, place, row in zip(*(parts(f, lengths) for f in found), parts(ties, lengths), strict=True):
                expected = function(row, 0) if len(row) else None
                if expected is not None:
                    same(got, expected.values)
                    same(place, expected.indices)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ROWS)
def test_recurrences(dtype: torch.dtype, kind: str) -> None:
    lengths = ROWS[kind]
    for width in (1, 3, 64, 70):
        a, b = (drawn(sum(lengths), width, dtype).clamp(-1, 1) * f for f in (0.9, 1.0))
        for reverse in (False, True):
            made = library.recurrence(a, b, offsets_of(lengths), reverse)
            assert made is not None
            for got, x, y in zip(parts(made, lengths), parts(a, lengths), parts(b, lengths), strict=True):
                state = None
                for i in range(len(x))[:: -1 if reverse else 1]:
                    state = y[i] if state is None else y[i] + x[i] * state
                    torch.testing.assert_close(got[i], state, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", [1, 2, 64])
def test_nan_and_inf_stay_in_their_row_and_column(dtype: torch.dtype, width: int) -> None:
    lengths = [3, 20, 2, 0, 12]
    values, offsets = drawn(sum(lengths), width, dtype), offsets_of(lengths)
    values[1, 0], values[8, -1], values[12, -1], values[30, 0] = math.nan, math.inf, math.inf, -math.inf
    for reverse in (False, True):
        made = library.sums(values, offsets, reverse)
        assert made is not None
        for got, row in zip(parts(made, lengths), parts(values, lengths), strict=True):
            want = row.flip(0).cumsum(0).flip(0) if reverse else row.cumsum(0)
            torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_the_same_bits_for_any_number_of_threads(dtype: torch.dtype) -> None:
    before = torch.get_num_threads()
    for lengths, width in (([700_000, 3, 600_000], 2), ([40] * 3_000, 64), ([2_000_000], 1)):
        values, offsets = drawn(sum(lengths), width, dtype), offsets_of(lengths)
        found = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append([library.sums(values, offsets, False), library.sums(values, offsets, True)])
        torch.set_num_threads(before)
        for one in found[1:]:
            for a, b in zip(one, found[0], strict=True):
                assert a is not None
                assert b is not None
                assert torch.equal(a, b)


def test_derivatives_to_the_second() -> None:
    values = drawn(9, 2, torch.float64).clamp(-2, 2).requires_grad_()
    zeros = values.detach().clone().index_fill(0, t([1, 5]), 0).requires_grad_()
    for function, given in ((sr.cumulative_sum, values), (sr.cumulative_prod, values), (sr.cumulative_prod, zeros)):

        def call(v: torch.Tensor, function: object = function) -> torch.Tensor:
            return function(sr.from_lengths(v, [3, 0, 2, 4]), axis=1).values  # type: ignore[operator,no-any-return]

        assert torch.autograd.gradcheck(call, (given,))
        assert torch.autograd.gradgradcheck(call, (given,))


@pytest.mark.parametrize("offsets", [[1, 4], [0, 2, 1, 3], [0, 9], [0, -1, 3], [-1, 3]])
def test_wrong_offsets(offsets: list[int]) -> None:
    values = torch.ones(3, 2)
    assert library.sums(values, t(offsets), False) is None
    assert library.products(values, t(offsets)) is None
    assert library.recurrence(values, values, t(offsets), True) is None
    assert library.extremes(values, t(offsets), True) is None


def test_complex_numbers_other_dtypes_and_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(6, 2, dtype=torch.complex128).conj()
    made = library.sums(values.T.reshape(6, 2), t([0, 6]), False)
    assert made is not None
    torch.testing.assert_close(made, values.T.reshape(6, 2).cumsum(0))
    assert library.sums(torch.ones(2).half(), t([0, 2]), False) is None
    assert library.recurrence(torch.ones(2), torch.ones(2).double(), t([0, 2]), False) is None
    x = sr.from_lengths(drawn(6, 2, torch.float32), [4, 2])
    before = [sr.cumulative_sum(x, axis=1).values, *(each.values for each in sr.cummax(x, axis=1))]
    monkeypatch.setattr(library, "_library", lambda: None)
    assert library.extremes(x.values, x.offsets[0], True) is None
    for one, other in zip(
        before, [sr.cumulative_sum(x, axis=1).values, *(e.values for e in sr.cummax(x, axis=1))], strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("v += SERRATE_MOVED(v, 0, 0, 0, 0, 8, 9, 10, 11);", ""),  # half of a vector is left out
        ("rest += (sum - (next - part)) + (x - part);", ""),  # what rounding takes is lost
        ("given >= best[j]", "given > best[j]"),  # the first of equal ones
        ("state[j] = i ? b", "state[j] = i > 1 ? b"),  # a row too late
        ("const int64_t at = kBack ? count - 1 - i : i;", "const int64_t at = i;"),  # the wrong way round
    ],
)
def test_mistakes_are_found(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{form}_{number}" for form, numbers in library._FORMS.items() for number in numbers.values()]
    broken = mutant("row_scans.cpp", names, right, wrong)
    monkeypatch.setattr(library, "_library", lambda: broken)
    with pytest.raises(AssertionError):  # noqa: PT012  any of them may find it
        test_running_sums(torch.float32, "edges")
        test_long_sums_lose_nothing_to_their_length(torch.float64)
        test_products_and_extremes(torch.int64, "edges")
        test_recurrences(torch.float32, "long")
