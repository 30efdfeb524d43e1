"""The greatest and least of packed rows by compiled functions, against those of torch; wrong arguments give None."""

from __future__ import annotations

import math

import pytest
import torch
from tests.native.mutants import mutant
from tests.native.packed import INTS, ROWS, offsets_of, same

from serrate.native import row_extremes as library

t = torch.tensor

pytestmark = pytest.mark.skipif(library._library() is None, reason="needs a C++ compiler")

NUMBERS = list(library._NUMBERS)
WIDTHS = [0, 1, 2, 3, 7, 16, 33, 63, 64, 65, 128, 130]
LENGTHS = {**ROWS, "edges": [63, 64, 65, 0, 127, 128, 129, 1, 2], "giant": [3, 0, 5_000, 1]}


def drawn(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rows * 1_000 + width)
    limit = 2**30
    if dtype.is_floating_point:
        return torch.randn(rows, width, generator=draw, dtype=torch.float64).to(dtype)
    return torch.randint(-limit, limit, (rows, width), generator=draw).to(dtype)


def check(values: torch.Tensor, lengths: list[int], ints: torch.dtype = torch.int64) -> None:
    limits = torch.iinfo(values.dtype) if not values.is_floating_point() else None
    for largest in (True, False):
        made = library.extremes(values, offsets_of(lengths, ints), largest)
        assert made is not None
        assert made.dtype == values.dtype
        if limits is None:
            none = -math.inf if largest else math.inf
        else:
            none = limits.min if largest else limits.max
        nothing = torch.full(values.shape[1:], none, dtype=values.dtype)
        parts = values[: sum(lengths)].split(lengths) if lengths else []
        want = [(part.amax(0) if largest else part.amin(0)) if len(part) else nothing for part in parts]
        assert made.shape == (len(lengths), *values.shape[1:])
        for one, other in zip(made, want, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("kind", LENGTHS)
def test_extremes_of_each_row(dtype: torch.dtype, kind: str) -> None:
    lengths = LENGTHS[kind]
    for width in WIDTHS:
        check(drawn(sum(lengths), width, dtype), lengths)
    for ints in INTS:
        check(drawn(sum(lengths) + 2, 3, dtype), lengths, ints)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_rows_longer_than_a_piece(dtype: torch.dtype) -> None:
    check(drawn(300_006, 1, dtype), [5, 300_000, 1])
    check(drawn(7_002, 40, dtype), [2, 7_000])
    check(drawn(9_003, 65, dtype), [9_000, 3])


@pytest.mark.parametrize("width", [1, 3, 64, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nan_and_inf_stay_in_their_row_and_column(dtype: torch.dtype, width: int) -> None:
    lengths = [3, 70, 2, 0, 5, 9_000]
    for place in (0, 1, 2, 5, 40, 72, 79, 4_000, 9_079):
        for number in (math.nan, math.inf, -math.inf):
            values = drawn(sum(lengths), width, dtype)
            values[place, width // 2] = number
            check(values, lengths)


def test_threads_do_not_matter() -> None:
    before = torch.get_num_threads()
    values, offsets = drawn(1_000_003, 3, torch.float32), offsets_of([400_000, 3, 600_000])
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(library.extremes(values, offsets, True))
    torch.set_num_threads(before)
    for one in found[1:]:
        same(one, found[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("offsets", [[1, 4], [0, 2, 1, 3], [0, 9], [0, -1, 3], [-1, 3]])
def test_wrong_offsets(offsets: list[int]) -> None:
    assert library.extremes(torch.ones(3, 2), t(offsets), True) is None


def test_other_dtypes_and_memory_in_any_order() -> None:
    assert library.extremes(torch.ones(2, dtype=torch.float16), t([0, 2]), True) is None
    values = drawn(2, 12, torch.float32).T
    same(library.extremes(values, t([0, 5, 12]), True), torch.stack([values[:5].amax(0), values[5:].amax(0)]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("given < found) | (given != given)) ?", "given < found)) ?"),  # NaN that is not found
        ("if constexpr (Limits::has_infinity)", "if constexpr (false)"),  # the greatest finite number of nothing
        ("found->numbers[j] = Form::of(found[p].numbers[j], found->numbers[j])", "found->numbers[j] += 0"),
        ("Form::none()), found)", "Form::none()), all(Form::none()))"),  # the last vector of a column alone
        ("if (lines.rest && count < kPiece)", "if (lines.rest && count < 0)"),  # without the last rows
    ],
)
def test_mistakes_are_found(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{form}_{number}" for form in ("largest", "least") for number in library._NUMBERS.values()]
    broken = mutant("row_extremes.cpp", names, right, wrong)
    monkeypatch.setattr(library, "_library", lambda: broken)
    with pytest.raises(AssertionError):  # noqa: PT012  any of them may find it
        test_extremes_of_each_row(torch.float32, "edges")
        test_rows_longer_than_a_piece(torch.float32)
        test_nan_and_inf_stay_in_their_row_and_column(torch.float32, 1)
