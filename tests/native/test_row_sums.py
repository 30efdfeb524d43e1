"""Sums of packed rows by compiled functions, against exact sums of each row; wrong arguments give None."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.native.packed import INTS, ROWS, offsets_of, same
from torch._subclasses.fake_tensor import FakeTensorMode

from serrate.native import row_sums

t = torch.tensor

pytestmark = pytest.mark.skipif(row_sums._library() is None, reason="needs a C++ compiler")

FLOATS = [torch.float32, torch.float64]
NUMBERS = [*FLOATS, torch.int64]
WIDTHS = [1, 2, 3, 5, 8, 15, 16, 17, 20, 24, 40, 64, 127, 128, 129, 135, 136, 300]
LENGTHS = {
    **ROWS,
    "edges": [15, 16, 17, 31, 32, 33, 63, 64, 65, 0, 128, 129, 1, 4, 5],
    "giant": [3, 0, 2_000, 1, 7],
}


def drawn(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Numbers of both signs and many sizes."""
    draw = torch.Generator().manual_seed(rows * 1_000 + width)
    if dtype == torch.int64:
        return torch.randint(-(2**62), 2**62, (rows, width), generator=draw)
    noise = torch.randn(rows, width, generator=draw, dtype=torch.float64)
    return (noise * 10 ** torch.randint(-3, 4, (rows, width), generator=draw)).to(dtype)


def summed(rows: torch.Tensor) -> list[Any]:
    """Of each column, by exact arithmetic; integers modulo 2⁶⁴."""
    columns = rows.T.tolist()
    if rows.dtype != torch.int64:
        return [math.fsum(column) for column in columns]
    return [(sum(column) + 2**63) % 2**64 - 2**63 for column in columns]


def near(made: torch.Tensor | None, parts: list[torch.Tensor]) -> None:
    """Each line of `made` is the sum of a part: of float32 nearly to the last place, of float64 to a few."""
    assert made is not None
    assert made.shape[0] == len(parts)
    for line, part in zip(made, parts, strict=True):
        want = torch.tensor(summed(part), dtype=line.dtype if line.dtype == torch.int64 else torch.float64)
        if line.dtype == torch.int64:
            same(line, want)
            continue
        units = 2 if line.dtype == torch.float32 else 8
        room = units * torch.finfo(line.dtype).eps * part.double().abs().sum(0)
        assert bool(((line.double() - want).abs() <= room).all()), (line, want)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("ints", INTS)
@pytest.mark.parametrize("kind", LENGTHS)
def test_sums_of_runs(dtype: torch.dtype, ints: torch.dtype, kind: str) -> None:
    lengths = LENGTHS[kind]
    for width in WIDTHS:
        values = drawn(sum(lengths), width, dtype)
        parts = list(values.split(lengths)) if lengths else []
        near(row_sums.sums(values, offsets_of(lengths, ints)), parts)
        spare = torch.cat([values, torch.full((3, width), 97, dtype=dtype)])
        same(row_sums.sums(spare, offsets_of(lengths, ints)), row_sums.sums(values, offsets_of(lengths, ints)))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", LENGTHS)
def test_distances_from_the_mean(dtype: torch.dtype, kind: str) -> None:
    lengths = LENGTHS[kind]
    for width in WIDTHS:
        values = (drawn(sum(lengths), width, dtype).clamp(-5, 5) + 1_000).to(dtype)
        offsets = offsets_of(lengths)
        made, each = row_sums.distances(values, offsets), row_sums.centred(values, offsets)
        assert made is not None
        assert each is not None
        fine = 4 * torch.finfo(dtype).eps
        for line, part, rows in zip(made, values.split(lengths), each.split(lengths), strict=False):
            if not len(part):
                assert line.tolist() == [0] * width
                continue
            middle = [x / len(part) for x in summed(part)]
            distances = part.double() - t(middle, dtype=torch.float64)
            # float32 has the mean in float64; float64 is off by what rounds the mean
            off = 0 if dtype == torch.float32 else 1e-12
            torch.testing.assert_close(rows.double(), distances, rtol=fine, atol=off + 1e-12)
            want = t([math.fsum(d * d for d in column) for column in distances.T.tolist()], dtype=torch.float64)
            torch.testing.assert_close(line.double(), want, rtol=fine, atol=1e-9)
        spare = torch.cat([values, torch.full((3, width), torch.nan, dtype=dtype)])
        with_spare = row_sums.centred(spare, offsets)
        assert with_spare is not None
        same(with_spare[: len(values)], each)
        assert not with_spare[len(values) :].any()


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("cells", [1, 5, 3_000, 40_000])
def test_sums_by_an_index(dtype: torch.dtype, cells: int) -> None:
    draw = torch.Generator().manual_seed(cells)
    for width in (1, 2, 3, 4, 5, 8, 11, 16, 20, 130):
        for rows in (0, 1, 900):
            values = drawn(rows, width, dtype)
            few = torch.randint(0, min(cells, 7) + 1, (rows,), generator=draw)
            index = torch.where(few == min(cells, 7), cells, few * (cells // min(cells, 7)))  # some are left out
            made = row_sums.sums_by_index(values, index, cells)
            assert made is not None
            used = index.unique()[:-1] if rows and int(index.max()) == cells else index.unique()
            near(made[used], [values[index == i] for i in used])
            made[used] = 0
            assert not made.any()


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("kind", LENGTHS)
def test_sums_by_position(dtype: torch.dtype, kind: str) -> None:
    lengths = LENGTHS[kind]
    longest = max(lengths, default=0)
    for width in (1, 3, 8, 40) if kind == "giant" else WIDTHS:
        values = drawn(sum(lengths), width, dtype)
        parts = values.split(lengths) if lengths else ()
        for cells in (longest, longest + 2):
            made = row_sums.sums_by_position(values, offsets_of(lengths), cells)
            some = range(cells) if cells < 50 else [*range(20), *range(cells - 3, cells)]
            assert made is not None
            assert made.shape == (cells, width)
            reached = [torch.stack([part[p] for part in parts if len(part) > p] or [values[:0].sum(0)]) for p in some]
            near(made[list(some)], reached)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", [1, 3, 64, 130])
@pytest.mark.parametrize("some", [False, True])
def test_the_same_bits_for_any_number_of_threads(dtype: torch.dtype, width: int, some: bool) -> None:
    library = row_sums._library()
    assert library is not None
    lengths = [101, 99, 0, 100, 100] if some else [5, 70_000 // width, 0, 300, 1, 64, 20_000 // width, 17]
    values, offsets = drawn(sum(lengths), width, dtype), offsets_of(lengths)
    index = torch.randint(0, 40_000, (len(values),))
    name = "float32" if dtype == torch.float32 else "float64"
    found: list[list[torch.Tensor]] = []
    for threads in (1, 2, 3, 8):
        made = []
        for form, count in (("sums", len(lengths)), ("distances", len(lengths)), ("centred", len(values))):
            out = torch.full((count, width), torch.nan, dtype=dtype)
            numbers = (len(lengths), len(values), width, out.data_ptr(), threads)
            assert library[f"{form}_{name}"](values.data_ptr(), offsets.data_ptr(), *numbers) == 0
            made.append(out)
        out = torch.full((40_000, width), torch.nan, dtype=dtype)
        numbers = (len(values), 40_000, width, out.data_ptr(), threads)
        assert library[f"sums_by_index_{name}"](values.data_ptr(), index.data_ptr(), *numbers) == 0
        found.append([*made, out])
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            same(theirs, mine)


def test_equal_rows_have_equal_sums_wherever_they_lie() -> None:
    for width in (1, 3, 20):
        for length in (4, 12, 40, 200):
            row = drawn(length, width, torch.float64)
            values = torch.cat([row] * 5)
            offsets = offsets_of([length] * 5)
            for made in (row_sums.sums(values, offsets), row_sums.distances(values, offsets)):
                assert made is not None
                same(made, made[:1].expand_as(made))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", [1, 3, 64])
def test_nan_and_inf_stay_in_their_row_and_column(dtype: torch.dtype, width: int) -> None:
    lengths = [3, 100, 0, 20, 5_000, 2, 8, 9]
    clean = drawn(sum(lengths), width, dtype).clamp(-9, 9)
    offsets = offsets_of(lengths)
    positions = torch.cat([torch.arange(n) for n in lengths])
    for bad in (float("nan"), float("inf"), -float("inf")):
        for row in (1, 50, 104, 120, 2_000, len(clean) - 1):
            values = clean.clone()
            values[row, -1] = bad
            component = int(torch.searchsorted(offsets, row, right=True)) - 1
            index = positions % 7
            for before, after, at in (
                (row_sums.sums(clean, offsets), row_sums.sums(values, offsets), component),
                (row_sums.sums_by_index(clean, index, 7), row_sums.sums_by_index(values, index, 7), int(index[row])),
                (
                    row_sums.sums_by_position(clean, offsets, 5_000),
                    row_sums.sums_by_position(values, offsets, 5_000),
                    int(positions[row]),
                ),
            ):
                assert before is not None
                assert after is not None
                torch.testing.assert_close(after[at, -1], t(bad, dtype=dtype), equal_nan=True)
                after[at, -1] = before[at, -1]
                same(after, before)
            distances = row_sums.distances(values, offsets)
            assert distances is not None
            assert distances.isnan().nonzero().tolist() == [[component, width - 1]]


def test_infinities_of_both_signs_are_not_a_number() -> None:
    both = t([torch.inf, 1.0, -torch.inf, 2.0], dtype=torch.float64)
    for made in (
        row_sums.sums(both, t([0, 4])),
        row_sums.sums_by_index(both, t([0, 0, 0, 0]), 1),
        row_sums.sums_by_position(both, t([0, 1, 2, 3, 4]), 1),
    ):
        assert made is not None
        assert made.isnan().tolist() == [True]


def test_sums_too_large_are_infinite() -> None:
    large = torch.full((5,), 1e308, dtype=torch.float64)
    assert row_sums.sums(large, t([0, 5])).tolist() == [torch.inf]  # type: ignore[union-attr]
    assert row_sums.sums_by_index(large, t([0] * 5), 1).tolist() == [torch.inf]  # type: ignore[union-attr]
    assert row_sums.sums(large.float(), t([0, 5])).tolist() == [torch.inf]  # type: ignore[union-attr]


def test_float64_by_an_index_loses_nothing_to_its_length() -> None:
    values = torch.full((1_000_000,), 0.1, dtype=torch.float64)
    index = torch.zeros(1_000_000, dtype=torch.int64)
    for cells in (1, 5_000):  # with and without copies of each sum
        made = row_sums.sums_by_index(values, index, cells)
        assert made is not None
        assert float(made[0]) == math.fsum(values.tolist())


def test_memory_in_any_order() -> None:
    values = drawn(40, 6, torch.float32)
    offsets = offsets_of([10, 0, 10])
    turned = values.T.contiguous().T
    for view in (turned[:20], values.flip(0)[:20], values[::2], values[:20, ::2], torch._neg_view(values)[:20]):
        same(row_sums.sums(view, offsets), row_sums.sums(view.clone(), offsets))  # type: ignore[arg-type]
    same(row_sums.sums(values.view(40, 2, 3), offsets), row_sums.sums(values, offsets).view(3, 2, 3))  # type: ignore[union-attr]
    index = torch.arange(80)[::2] % 3
    same(row_sums.sums_by_index(values, index, 3), row_sums.sums_by_index(values, index.clone(), 3))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0,), (3, 2, 0)])
def test_no_rows_or_no_columns(shape: tuple[int, ...]) -> None:
    values = torch.zeros(shape)
    rows = shape[0]
    for offsets in (t([0]), t([0, rows]), t([0, 0, rows, rows])):
        count = len(offsets) - 1
        same(row_sums.sums(values, offsets), torch.zeros(count, *shape[1:]))
        same(row_sums.distances(values, offsets), torch.zeros(count, *shape[1:]))
        same(row_sums.centred(values, offsets), torch.zeros(shape))
        same(row_sums.sums_by_position(values, offsets, rows), torch.zeros(shape))
    same(row_sums.sums_by_index(values, torch.zeros(rows, dtype=torch.int64), 2), torch.zeros(2, *shape[1:]))


@pytest.mark.parametrize("offsets", [[0, 5], [0, 3, 2], [-1, 2], [0, 2**40], [0, -1, 4], [1, 0]])
def test_wrong_offsets(offsets: list[int]) -> None:
    values = torch.ones(4, 3)
    assert row_sums.sums(values, t(offsets)) is None
    assert row_sums.distances(values, t(offsets)) is None
    assert row_sums.centred(values, t(offsets)) is None
    assert row_sums.sums_by_position(values, t(offsets), 9) is None


def test_wrong_indices() -> None:
    for width, cells in ((1, 5), (3, 5), (20, 40_000)):
        values = torch.ones(4, width)
        for wrong in (-1, cells + 1, 2**40, -(2**62)):
            assert row_sums.sums_by_index(values, t([0, 1, wrong, 2]), cells) is None
    assert row_sums.sums_by_position(torch.ones(4), t([0, 4]), 3) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.bool, torch.complex64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    values = torch.ones(4, dtype=dtype)
    assert row_sums.sums(values, t([0, 4])) is None
    assert row_sums.distances(values, t([0, 4])) is None
    assert row_sums.sums_by_index(values, t([0] * 4), 1) is None


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_where_memory_is_not_all_there_is() -> None:
    values, offsets = torch.ones(4), t([0, 4])
    assert row_sums.sums(torch.nn.Parameter(values), offsets) is not None
    with FakeTensorMode() as mode:
        assert row_sums.sums(mode.from_tensor(values), mode.from_tensor(offsets)) is None
    assert row_sums.sums(values.to("meta"), offsets) is None
    assert row_sums.sums(values, offsets.to("meta")) is None
    seen: list[Any] = []
    torch.func.vmap(lambda v: seen.append(row_sums.sums(v, offsets)) or v)(values[None])
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(values, values)
        seen += [row_sums.sums(dual, offsets), row_sums.distances(dual, offsets)]
    assert seen == [None] * 3


def test_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sums, "_library", lambda: None)
    assert row_sums.sums(torch.ones(3), t([0, 3])) is None
    assert row_sums.distances(torch.ones(3), t([0, 3])) is None
    assert row_sums.centred(torch.ones(3), t([0, 3])) is None
    assert row_sums.sums_by_index(torch.ones(3), t([0, 0, 0]), 1) is None
    assert row_sums.sums_by_position(torch.ones(3), t([0, 3]), 3) is None
