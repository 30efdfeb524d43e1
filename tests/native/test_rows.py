"""Rows of components by compiled functions, against loops over rows; wrong arguments give None and touch nothing."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.native.packed import INTS, ROWS, drawn, offsets_of, same
from torch._subclasses.fake_tensor import FakeTensorMode

from serrate.errors import RaggednessError
from serrate.native import loading, padded, row_products, rows

t = torch.tensor

pytestmark = pytest.mark.skipif(rows._library() is None, reason="needs a C++ compiler")


# ------------------------------------------------------------------------------------------------- runs of rows


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("ints", INTS)
@pytest.mark.parametrize("kind", ROWS)
def test_selected_runs(dtype: torch.dtype, ints: torch.dtype, kind: str) -> None:
    lengths = ROWS[kind]
    values, offsets = drawn(sum(lengths), 3), offsets_of(lengths)
    index = torch.randint(0, len(lengths), (7,), dtype=ints) if lengths else t([], dtype=ints)
    ends = torch.empty(len(index) + 1, dtype=dtype)
    found = rows.select_runs(t(lengths, dtype=dtype), offsets, index, ends)
    assert found is not None
    same(ends, offsets_of(found[1].tolist(), dtype))
    parts = values.split(lengths) if lengths else []
    expected = torch.cat([values[:0], *(parts[i] for i in index.tolist())])
    assert found[1].dtype == dtype
    assert found[2] == len(expected)
    same(rows.copy_runs(values, *found), expected)


def test_selected_runs_whose_offsets_are_too_large() -> None:
    lengths, offsets, ends = t([2**30, 5], dtype=torch.int32), t([0, 2**30, 2**30 + 5]), t([0, 0, 0], dtype=torch.int32)
    assert rows.select_runs(lengths, offsets, t([0, 0]), ends) is None
    found = rows.select_runs(lengths, offsets, t([0, 0]))  # which has no offsets
    assert found is not None
    assert found[2] == 2**31


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("most", [0, 1, 2, 9])
def test_sliced_runs_and_back(dtype: torch.dtype, most: int) -> None:
    lengths, start = [3, 0, 4, 2], [1, 0, 0, 2]
    values = drawn(9, 2)
    found = rows.slice_runs(t(lengths, dtype=dtype), t(start, dtype=dtype), 9, most)
    assert found is not None
    index: list[int] = []
    for first, n, s in zip([0, 3, 3, 7], lengths, start, strict=True):
        index += list(range(first + s, min(first + n, first + s + most)))
    made = rows.copy_runs(values, *found)
    same(made, values[index])
    back = torch.zeros_like(values)
    back[index] = values[index]
    same(rows.put_runs(made, found[0], found[1], 9), back)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("floats", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ROWS)
def test_runs_added_up(dtype: torch.dtype, floats: torch.dtype, kind: str) -> None:
    lengths = ROWS[kind]
    offsets = offsets_of(lengths)
    index = torch.randint(0, len(lengths), (9,)) if lengths else t([], dtype=torch.int64)
    found = rows.select_runs(t(lengths, dtype=dtype), offsets, index)
    assert found is not None
    values = drawn(found[2], 3).to(floats)
    expected, at = torch.zeros(sum(lengths) + 1, 3, dtype=floats), 0
    for i in index.tolist():
        expected[int(offsets[i]) : int(offsets[i + 1])] += values[at : at + lengths[i]]
        at += lengths[i]
    same(rows.add_runs(values, found[0], found[1], sum(lengths) + 1), expected)
    assert rows.add_runs(values.half(), found[0], found[1], sum(lengths) + 1) is None


def test_long_runs_of_any_size_and_place() -> None:
    lengths = [5, 2047, 1, 2048, 63, 2049, 64, 2175, 2176, 2177, 4095, 3, 70_001]
    values = torch.randint(0, 256, (sum(lengths) + 3,), dtype=torch.uint8)[3:]
    index = torch.randperm(len(lengths))
    found = rows.select_runs(t(lengths), offsets_of(lengths), index)
    assert found is not None
    moved = rows.copy_runs(values, *found)
    same(moved, torch.cat([values.split(lengths)[i] for i in index.tolist()]))
    assert moved is not None
    same(rows.put_runs(moved, found[0], found[1], found[2]), values)
    few = found[0][:4], found[1][:4]
    expected = torch.zeros_like(values)
    for first, length in zip(few[0].tolist(), few[1].tolist(), strict=True):
        expected[first : first + length] = values[first : first + length]
    same(rows.put_runs(moved[: int(few[1].sum())], *few, len(values)), expected)


@pytest.mark.parametrize("index", [t([0, 5]), t([-1]), t([2**40]), t([0.0]), t([[0]]), t([0, 1, 0])[::2], t([True])])
def test_wrong_indices(index: torch.Tensor) -> None:
    assert rows.select_runs(t([2, 1, 0, 0, 0]), t([0, 2, 3, 3, 3, 3]), index) is None


@pytest.mark.parametrize(
    ("lengths", "start", "count"),
    [([2, -1], [0, 0], 1), ([2, 2], [0, 0], 3), ([2], [3], 2), ([2], [-1], 2), ([2], [0, 0], 2), ([1], [0], 2)],
)
def test_wrong_slices(lengths: list[int], start: list[int], count: int) -> None:
    assert rows.slice_runs(t(lengths), t(start), count, 1) is None
    assert rows.slice_runs(t([2]), t([0]), 2, -1) is None
    assert rows.slice_runs(t([2], dtype=torch.int32), t([2**32]), 2, 1) is None  # 0 in 32 bits


# ------------------------------------------------------------------------------------- offsets, masks and sums


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("shape", [(0,), (1,), (9,), (1030,), (2, 5), (3, 0), (0, 3)])
def test_running_sums(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    given = torch.randint(-9, 9, shape).to(dtype)
    expected = torch.nn.functional.pad(given.cumsum(-1), (1, 0))
    same(rows.complete(given), expected.to(dtype))
    same(rows.offsets(given.abs()), torch.nn.functional.pad(given.abs().cumsum(-1), (1, 0)))


def test_sums_that_do_not_fit() -> None:
    top, low = 2**31 - 1, -(2**31)
    narrow = torch.int32
    same(rows.complete(t([top, -1, 1], dtype=narrow)), t([0, top, top - 1, top], dtype=narrow))
    same(rows.offsets(t([top, top], dtype=narrow)), t([0, top, 2 * top]))
    for wrong in ([top, 1, -1], [low, -1, 1]):
        assert rows.complete(t(wrong, dtype=narrow)) is None
    many = [0] * 20
    same(rows.complete(t([top, *many, -1, 1, *many], dtype=narrow))[-3:], t([top, top, top], dtype=narrow))  # type: ignore[index]
    for wrong in ([top, *many, 1, *many], [*many, top // 2, top // 2, 2], [low, *many, -1, 1]):
        assert rows.complete(t(wrong, dtype=narrow)) is None
    assert rows.offsets(t([*many, -1, *many, 1], dtype=narrow)) is None
    assert rows.complete(t([2**63 - 1, 1])) is None
    assert rows.offsets(t([2**63 - 1, 1])) is None
    assert rows.offsets(t([3, -1])) is None
    assert rows.complete(t([1, 2, 3])[::2]) is None
    assert rows.complete(t([1.0])) is None


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("kind", ROWS)
def test_ranges(dtype: torch.dtype, kind: str) -> None:
    lengths = ROWS[kind]
    expected = t([i for n in lengths for i in range(n)], dtype=dtype)
    same(rows.ranges(offsets_of(lengths, dtype), sum(lengths)), expected)
    for wrong in ([1], [0, 2, 1], [0, sum(lengths) + 1]):
        assert rows.ranges(t(wrong, dtype=dtype), sum(lengths)) is None
    assert rows.ranges(t([], dtype=dtype), 2) is None


@pytest.mark.parametrize("dtype", INTS)
def test_expanded_permutations(dtype: torch.dtype) -> None:
    given, permute = t([0, 2, 2, 5], dtype=dtype), t([2, 0, 2, 1], dtype=torch.int32)
    places = t([0, 3, 5, 8, 8], dtype=dtype)
    same(rows.expand(permute, given, places, 8), t([2, 3, 4, 0, 1, 2, 3, 4], dtype=dtype))
    same(rows.expand(permute[:0], given, places[:1], 0), given[:0])
    for wrong in (
        (permute + 1, given, places, 8),
        (permute - 1, given, places, 8),
        (permute, given.flip(0), places, 8),
        (permute, given + 1, places, 8),
        (permute, given, places + 1, 9),
        (permute, given, places, 7),
        (permute, given, t([0, 3, 5, 9, 8], dtype=dtype), 8),
        (permute, given, places[:-1], 8),
        (permute, given[:0], places, 8),
        (permute, given, places, -1),
    ):
        assert rows.expand(*wrong) is None
    assert rows.expand(t([2**32]), t([0, 1], dtype=torch.int32), t([0, 1], dtype=torch.int32), 1) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *INTS])
@pytest.mark.parametrize("ints", INTS)
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_sums(dtype: torch.dtype, ints: torch.dtype, kind: str, batch: int) -> None:
    lengths = ROWS[kind]
    values = torch.randint(-9, 9, (sum(lengths) * max(batch, 1) + 1,)).to(dtype)
    parts = values.split([*(n * batch for n in lengths), values.numel() - sum(lengths) * batch])[:-1]
    expected = torch.stack([p.sum() for p in parts]).to(dtype) if parts else values[:0]
    same(rows.sums(values, offsets_of(lengths, ints), batch), expected)


@pytest.mark.parametrize("largest", [10, 2**16, 2**26, 2**27, 2**28, 2**31 - 1])
@pytest.mark.parametrize("least", [0, -1])
def test_sums_of_integers_of_all_sizes(largest: int, least: int) -> None:
    for length in (1, 3, 15, 16, 17, 40, 100, 1000):
        values = torch.randint(least * largest, largest, (length,)).to(torch.int32)
        sums = list(itertools.accumulate(values.tolist()))
        for end in range(1, length + 1, max(1, length // 9)):
            made = rows.sums(values, t([0, end]))
            if -(2**31) <= sums[end - 1] < 2**31:
                same(made, t([sums[end - 1]], dtype=torch.int32))
            else:
                assert made is None


def test_sums_of_what_is_not_as_memory_has_it() -> None:
    assert rows.sums(torch._neg_view(torch.ones(3)), t([0, 3])) is None
    assert rows.sums(torch.ones(3), t([0, 3]), 2**63) is None
    with FakeTensorMode():
        assert rows.sums(torch.ones(3), t([0, 3])) is None
        assert rows.complete(t([1, 2])) is None


def test_sums_stay_in_their_run() -> None:
    values = torch.full((40,), float("nan"))
    values[3:14] = 1
    same(rows.sums(values, t([3, 5, 14])), t([2.0, 9.0]))
    values[39] = 2
    same(rows.sums(values, t([39, 40])), t([2.0]))


@pytest.mark.parametrize("ends", [[-1, 2], [0, 3, 2], [0, 7], []])
def test_wrong_ends(ends: list[int]) -> None:
    assert rows.sums(torch.ones(6), t(ends, dtype=torch.int64)) is None
    assert rows.sums(torch.ones(6), t([0, 4]), 2) is None
    assert rows.sums(torch.ones(6).half(), t([0, 4])) is None
    assert rows.sums(t([2**31 - 1, 1], dtype=torch.int32), t([0, 2])) is None
    large = torch.full((64,), 2**26, dtype=torch.int32)
    same(rows.sums(large, t([0, 31, 31])), t([31 * 2**26, 0], dtype=torch.int32))
    same(rows.sums(torch.cat([large, -large]), t([0, 97])), t([31 * 2**26], dtype=torch.int32))
    for end in (32, 64):
        assert rows.sums(large, t([0, end])) is None


@pytest.mark.parametrize("dtype", INTS)
def test_kept(dtype: torch.dtype) -> None:
    mask = t([1, 0, 1, 1, 0, 1], dtype=torch.bool)
    found = rows.keep(mask, t([2, 0, 3, 1], dtype=dtype))
    assert found is not None
    same(found[0], t([0, 2, 3, 5]))
    same(found[1], t([1, 0, 2, 1], dtype=dtype))
    for wrong in ([2, 3], [7], [7, -1]):
        assert rows.keep(mask, t(wrong, dtype=dtype)) is None
    assert rows.keep(mask.int(), t([6], dtype=dtype)) is None


# ---------------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(1, 1), (5, 6), (7, 31), (32, 33), (70, 64), (0, 3), (3, 0)])
@pytest.mark.parametrize("most", [0, 6, 50])
def test_products(dtype: torch.dtype, sizes: tuple[int, int], most: int) -> None:
    """Tiles have 6 rows and as many columns as two vectors hold: sizes are at, below and past both."""
    k, m = sizes
    for kind, lengths in ROWS.items():
        offsets = offsets_of(lengths)
        x, z = (drawn(sum(lengths) + 1, n).to(dtype) for n in (k, m))
        y = drawn(len(lengths), k, m).to(dtype)
        for_z, for_x, for_y = torch.zeros_like(z), torch.zeros_like(x), torch.zeros_like(y)
        for b, n in enumerate(lengths):
            here = slice(int(offsets[b]), int(offsets[b]) + min(n, most))
            for_z[here], for_x[here], for_y[b] = x[here] @ y[b], z[here] @ y[b].T, x[here].T @ z[here]
        x.requires_grad_()
        made = row_products.times_matrices(x, y, offsets, most)
        torch.testing.assert_close(made.detach(), for_z, rtol=1e-5, atol=1e-5, msg=kind)
        torch.testing.assert_close(torch.autograd.grad(made, x, z)[0], for_x, rtol=1e-5, atol=1e-5, msg=kind)
        torch.testing.assert_close(row_products.summed_outer(x.detach(), z, offsets, most), for_y, rtol=1e-5, atol=1e-5)


def test_products_by_many_threads() -> None:
    lengths = torch.randint(0, 40, (300,)).tolist()
    x, y = drawn(sum(lengths), 48), drawn(300, 48, 40)
    made = row_products.times_matrices(x, y, offsets_of(lengths), 99)
    expected = torch.cat([part @ matrix for part, matrix in zip(x.split(lengths), y, strict=True)])
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


def test_what_products_serve() -> None:
    x = torch.ones(2, 2)
    assert row_products.serves(x, x)
    assert not row_products.serves(x, x.double())
    assert not row_products.serves(x.half(), x.half())
    assert not row_products.serves(x.to("meta"), x)


def test_products_of_wrong_operands() -> None:
    x, y = torch.ones(3, 2), torch.ones(2, 2, 2)
    for offsets in ([1, 2, 3], [0, 2, 1], [0, 2, 4]):
        with pytest.raises(RaggednessError, match="offsets must start with 0, never decrease and end with at most 3"):
            row_products.times_matrices(x, y, t(offsets), 3)
    with pytest.raises(ValueError, match="operands must have the shapes"):
        row_products.times_matrices(x, y[:1], t([0, 1, 3]), 3)
    with pytest.raises(ValueError, match="operands must have the shapes"):
        row_products.weighted_sums(torch.ones(1, 2), torch.ones(3, 4), t([0, 3]), 2)


# -------------------------------------------------------------------------------------------- without a library


def test_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_library", lambda: None)
    assert rows.complete(t([1])) is None
    assert rows.sums(torch.ones(3), t([0, 3])) is None
    assert rows.add_runs(torch.ones(3), t([0]), t([3]), 3) is None
    monkeypatch.setattr(padded, "_library", lambda: None)
    assert padded.total(t([0, 3])) is None
    assert padded.pad(torch.ones(3), (t([0, 3]),), (2,)) is None
    assert padded.unpad(torch.ones(1, 3), (t([0, 3]),), 3) is None
    assert padded.padded_sum(torch.ones(3), t([0, 3]), torch.ones(1, 3)) is None
    monkeypatch.setattr(row_products, "_library", lambda: None)
    assert not row_products.serves(torch.ones(1))


@pytest.mark.parametrize("shape", [(0,), (5,), (3, 0, 2), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool, torch.bfloat16, torch.complex64])
def test_memory_by_either_call(shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = torch.empty(shape, dtype=dtype)
    for call in (loading.allocate, loading.allocate_by_name):
        monkeypatch.setattr(loading, "allocate", call)
        made = loading.empty(shape, dtype)
        assert (made.shape, made.stride(), made.dtype, made.device) == (shape, wanted.stride(), dtype, wanted.device)


@pytest.mark.parametrize("dtype", INTS)
def test_slices_of_each_component(dtype: torch.dtype) -> None:
    for lengths in ROWS.values():
        offsets = offsets_of(lengths, dtype)
        for start in (0, 1, 3, 100, -1, -3, -100):
            for stop in (None, 0, 1, 2, 100, -1, -2, -100):
                ends = torch.empty_like(offsets)
                found = rows.cut_runs(offsets, start, stop, ends)
                assert found is not None
                same(ends, offsets_of(found[1].tolist(), dtype))
                kept = [list(range(*slice(start, stop).indices(n))) for n in lengths]
                assert found[1].tolist() == [len(k) for k in kept]
                assert found[2] == sum(map(len, kept))
                for source, first, k in zip(found[0].tolist(), offsets.tolist(), kept, strict=False):
                    assert not k or source == first + k[0]
    assert rows.cut_runs(t([0, 3, 2]), 0, 1, t([0, 0, 0])) is None
    assert rows.cut_runs(t([1, 3]), 0, 1, t([0, 0])) is None
    assert rows.cut_runs(t([], dtype=torch.int64), 0, 1, t([], dtype=torch.int64)) is None
    assert rows.cut_runs(t([0, 3]), 2**63, 1, t([0, 0])) is None


def test_runs_that_do_not_lie_within_the_rows() -> None:
    values = torch.arange(6.0)
    same(rows.copy_runs(values, t([4, 0]), t([2, 1]), 3), t([4.0, 5.0, 0.0]))
    same(rows.put_runs(values[:3], t([4, 0]), t([2, 1]), 6), t([2.0, 0, 0, 0, 0, 1]))
    same(rows.put_runs(values[:3], t([0, 4]), t([1, 2]), 6), t([0.0, 0, 0, 0, 1, 2]))
    same(rows.add_runs(values[:4], t([1, 0]), t([2, 2]), 3), t([2.0, 3, 1]))
    for source, lengths in (([4], [3]), ([-1], [1]), ([0], [-1]), ([2**62], [2**62]), ([0, 1], [2**62, 3])):
        for call in (rows.copy_runs, rows.put_runs, rows.add_runs):
            assert call(values, t(source), t(lengths), 6) is None
    assert rows.copy_runs(values, t([0]), t([3]), 4) is None  # which are not 4
    assert rows.copy_runs(values, t([0]), t([3, 0]), 3) is None
    assert rows.copy_runs(values, t([0.0]), t([3]), 3) is None


@pytest.mark.parametrize("gap", [0, 1, 300])
def test_runs_of_all_short_sizes_and_back(gap: int) -> None:
    lengths = [*range(140), *range(2040, 2200, 7), *range(70)]
    room = [length + gap for length in lengths]
    values = torch.randint(1, 127, (sum(room),), dtype=torch.int8)
    starts = offsets_of(room)[:-1] + gap
    kept = torch.cat([values[first : first + n] for first, n in zip(starts.tolist(), lengths, strict=True)])
    same(rows.copy_runs(values, starts, t(lengths), sum(lengths)), kept)
    back = torch.zeros_like(values)
    for first, part in zip(starts.tolist(), kept.split(lengths), strict=True):
        back[first : first + len(part)] = part
    same(rows.put_runs(kept, starts, t(lengths), sum(room)), back)
    order = torch.randperm(len(lengths))  # runs that are not one behind the other
    mixed = torch.cat([kept.split(lengths)[i] for i in order.tolist()])
    same(rows.put_runs(mixed, starts[order], t(lengths)[order], sum(room)), back)


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [
        ([2**63 - 1], [2**63 - 1]),
        ([-1], [1]),
        ([1], [-1]),
        ([10], [1]),
        ([0], [11]),
        ([2**63 - 1, 0], [1, 9]),
        ([2**63 - 1, 2**63 - 1, 0, 0], [2**63 - 1, 2**63 - 1, 10, 2]),  # whose sum, in 64 bits, is 10
    ],
)
def test_runs_past_all_numbers(starts: list[int], lengths: list[int]) -> None:
    values, total = drawn(10, 1), max(0, min(sum(lengths), 10))
    assert rows.copy_runs(values, t(starts), t(lengths), total) is None
    assert rows.put_runs(values[:total], t(starts), t(lengths), 10) is None


def test_large_copies_use_all_threads() -> None:
    lengths = torch.randint(0, 60, (2_000,))
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    values = drawn(int(offsets[-1]), 64)
    order = torch.randperm(2_000, generator=torch.Generator().manual_seed(0))
    source, picked = offsets[:-1][order], lengths[order]
    made = rows.copy_runs(values, source, picked, len(values))
    assert made is not None
    assert made.nbytes >= 2**23
    parts = values.split(lengths.tolist())
    same(made, torch.cat([parts[i] for i in order.tolist()]))
    same(rows.put_runs(made, source, picked, len(values)), values)
