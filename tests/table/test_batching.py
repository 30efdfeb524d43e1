"""Batches of an epoch against plain Python: every row once, none too large, from any point on, for any ranks."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from serrate.table.loading.batching import Batch, BatchPlan, CellCount, Cursor, share, split_batches


def rows_of(batches: Any) -> list[list[int]]:
    return [batch.rows.tolist() for batch in batches]


def measured(widths: list[Any]) -> Any:
    given_widths = torch.tensor(widths, dtype=torch.int64)
    return lambda rows, epoch: given_widths[rows]


def cells_of(rows: list[int], widths: list[Any], cells: CellCount) -> int:
    """The cells of a batch, one row at a time."""
    if not cells.padded:
        return sum(widths[row] for row in rows)
    made = len(rows)
    for level, (fixed, multiple) in enumerate(zip(cells.fixed, cells.multiples, strict=True)):
        size = max(widths[row][level] for row in rows) if fixed is None else fixed
        made *= (size + multiple - 1) // multiple * multiple
    return made


def greedy(order: list[int], plan: BatchPlan, widths: list[Any]) -> list[list[int]]:
    """Batches of rows as they come, by trying."""
    made: list[list[int]] = []
    for row in order:
        if plan.oversize == "drop" and cells_of([row], widths, plan.cells) > plan.max_tokens:
            continue
        longer = [*made[-1], row] if made else []
        full = plan.batch_size is not None and len(longer) > plan.batch_size
        if not made or full or len(longer) > plan.pool or cells_of(longer, widths, plan.cells) > plan.max_tokens:
            made.append([row])
        else:
            made[-1] = longer
    return made


# --------------------------------------------------------------------------------------------------------- plainly


@pytest.mark.parametrize("rows", [0, 1, 4, 5, 8, 100, 17_001])
@pytest.mark.parametrize("batch_size", [1, 4, 300, 20_000])
@pytest.mark.parametrize("shuffle", [False, True, "blocks"])
def test_plain_batches_are_slices_of_the_order(rows: int, batch_size: int, shuffle: Any) -> None:
    plan = BatchPlan(rows, batch_size, shuffle, seed=3)
    order = plan.order(2)(torch.arange(rows)).tolist()
    wanted = [order[i : i + batch_size] for i in range(0, rows, batch_size)]
    assert rows_of(plan.batches(Cursor(2))) == wanted
    dropping = BatchPlan(rows, batch_size, shuffle, seed=3, drop_last=True)
    assert rows_of(dropping.batches(Cursor(2))) == [batch for batch in wanted if len(batch) == batch_size]
    assert plan.steps() == len(wanted)
    assert dropping.steps() == rows // batch_size


def test_epochs_and_seeds_differ() -> None:
    orders = [
        rows_of(BatchPlan(50, 50, True, seed).batches(Cursor(epoch)))[0] for seed in range(3) for epoch in range(3)
    ]
    assert len({tuple(order) for order in orders}) == 9


def test_a_plain_epoch_of_any_size_begins_at_once() -> None:
    plan = BatchPlan(10**15, 256, True)
    batch = next(plan.batches(Cursor(position=256 * 10**12), rank=3, world=1000))
    assert batch.rows.numel() == 256
    assert batch.after.position == 256 * 10**12 + 256_000


# -------------------------------------------------------------------------------------------------------- by tokens

lengths = st.lists(st.integers(0, 9), max_size=60)


@given(lengths, st.integers(1, 20), st.none() | st.integers(1, 7), st.integers(1, 70), st.booleans(),
       st.sampled_from(["alone", "drop"]))  # fmt: skip
def test_rows_in_order_as_many_as_fit(
    widths: list[int], tokens: int, batch_size: int | None, pool: int, shuffle: bool, oversize: Any
) -> None:
    plan = BatchPlan(
        len(widths), batch_size, shuffle, max_tokens=tokens, oversize=oversize, pool=pool, widths=measured(widths)
    )
    order = plan.order(0)(torch.arange(len(widths))).tolist()
    if oversize == "alone":
        assert rows_of(plan.batches(Cursor())) == greedy(order, plan, widths)
    else:  # a pool ends a batch that goes on over rows that are dropped
        made = rows_of(plan.batches(Cursor()))
        assert list(itertools.chain(*made)) == [row for row in order if widths[row] <= tokens]
        assert all(cells_of(batch, widths, plan.cells) <= tokens for batch in made)
        if pool >= len(widths):
            assert made == greedy(order, plan, widths)


two_levels = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=40)


@given(two_levels, st.integers(1, 60), st.none() | st.integers(1, 3), st.integers(1, 3), st.integers(1, 50))
def test_padded_cells_are_counted(
    widths: list[tuple[int, int]], tokens: int, fixed: int | None, multiple: int, pool: int
) -> None:
    cells = CellCount(True, (None, fixed), (multiple, 2))
    plan = BatchPlan(
        len(widths), max_tokens=tokens, oversize="alone", pool=pool, widths=measured(widths or [(0, 0)]), cells=cells
    )
    made = rows_of(plan.batches(Cursor()))
    assert made == greedy(list(range(len(widths))), plan, widths)


def test_a_row_above_the_limit_is_an_error_at_its_batch() -> None:
    plan = BatchPlan(5, max_tokens=6, widths=measured([4, 1, 7, 2, 2]))
    batches = plan.batches(Cursor())
    assert next(batches).rows.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"row 2 alone has 7 tokens, more than max_tokens=6; .*oversize="):
        next(batches)


def test_a_row_as_large_as_the_limit_fits() -> None:
    plan = BatchPlan(3, max_tokens=7, widths=measured([7, 7, 1]))
    assert rows_of(plan.batches(Cursor())) == [[0], [1], [2]]


def test_rows_without_tokens_fill_a_batch_no_further_than_a_pool() -> None:
    plan = BatchPlan(10, max_tokens=1, pool=4, widths=measured([0] * 10))
    assert rows_of(plan.batches(Cursor())) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_the_last_batch_by_tokens_is_dropped_if_more_would_fit() -> None:
    widths = measured([3, 3, 3, 3, 3])
    assert rows_of(BatchPlan(5, max_tokens=6, drop_last=True, widths=widths).batches(Cursor())) == [[0, 1], [2, 3]]
    assert BatchPlan(5, max_tokens=6, widths=widths).steps() is None


# --------------------------------------------------------------------------------------------------------- in pools


@given(lengths, st.integers(1, 7), st.none() | st.integers(9, 20), st.integers(1, 70), st.booleans(), st.booleans())
def test_batches_of_a_pool_have_rows_of_like_length(
    widths: list[int], batch_size: int, tokens: int | None, pool: int, shuffle: bool, drop_last: bool
) -> None:
    plan = BatchPlan(
        len(widths), batch_size, shuffle, max_tokens=tokens, pool=pool, widths=measured(widths),
        bucket=measured(widths), drop_last=drop_last,
    )  # fmt: skip
    made = rows_of(plan.batches(Cursor(1)))
    order = plan.order(1)(torch.arange(len(widths))).tolist()
    size = max(1, pool // batch_size) * batch_size
    rest = list(made)
    for start in range(0, len(order), size):
        sorted_rows = sorted(order[start : start + size], key=lambda row: widths[row])
        cut = BatchPlan(0, batch_size, max_tokens=100 if tokens is None else tokens, pool=1000)
        wanted = greedy(sorted_rows, cut, widths)
        last = start + size >= len(order)
        cut_short = len(wanted[-1]) < batch_size
        if drop_last and last and cut_short:
            wanted.pop()
        ours, rest = rest[: len(wanted)], rest[len(wanted) :]
        assert sorted(ours) == sorted(wanted)
        if not shuffle:
            assert ours == wanted
        elif last and cut_short and not drop_last:
            assert ours[-1] == wanted[-1]
    assert rest == []
    if tokens is None:
        assert len(made) == plan.steps()


def test_batches_of_a_pool_are_shuffled_anew_in_each_epoch() -> None:
    widths = list(range(100))
    plan = BatchPlan(100, 10, True, pool=100, bucket=measured(widths))
    firsts = [[batch[0] for batch in rows_of(plan.batches(Cursor(epoch)))] for epoch in range(5)]
    assert len({tuple(first) for first in firsts}) == 5
    assert all(sorted(first) == list(range(0, 100, 10)) for first in firsts)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_buckets_of_floats(dtype: torch.dtype) -> None:
    values = torch.tensor([0.5, float("nan"), -1.0, float("inf")], dtype=dtype)
    plan = BatchPlan(4, 2, bucket=lambda rows, epoch: values[rows])
    assert rows_of(plan.batches(Cursor())) == [[2, 0], [3, 1]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.uint16, torch.uint32, torch.uint64])
def test_buckets_of_integers(dtype: torch.dtype) -> None:
    values = torch.tensor([1, 0, 1, 0]).to(dtype)
    plan = BatchPlan(4, 2, bucket=lambda rows, epoch: values.view(dtype)[rows.tolist()])
    assert rows_of(plan.batches(Cursor())) == [[1, 3], [0, 2]]


# ------------------------------------------------------------------------------------------------ ranks and resuming


def plans(draw: Any) -> tuple[BatchPlan, list[int]]:
    widths = draw(lengths)
    kind = draw(st.sampled_from(["plain", "tokens", "pools", "both", "dropping"]))
    options: dict[str, Any] = {"pool": draw(st.integers(1, 40)), "widths": measured(widths)}
    if kind in ("plain", "pools", "both"):
        options["batch_size"] = draw(st.integers(1, 9))
    if kind in ("tokens", "both", "dropping"):
        options |= {"max_tokens": draw(st.integers(5, 25)), "oversize": "drop" if kind == "dropping" else "alone"}
    if kind in ("pools", "both"):
        options["bucket"] = measured(widths)
    plan = BatchPlan(
        len(widths), shuffle=draw(st.sampled_from([False, True, "blocks"])), drop_last=draw(st.booleans()), **options
    )
    return plan, [row for row, width in enumerate(widths) if kind != "dropping" or width <= plan.max_tokens]


@given(st.data(), st.integers(1, 5))
def test_ranks_share_every_row_once_in_equally_many_batches(data: st.DataObject, world: int) -> None:
    plan, rows = plans(data.draw)
    whole = rows_of(plan.batches(Cursor(1)))
    ranks = [rows_of(plan.batches(Cursor(1), rank, world)) for rank in range(world)]
    counts = [len(batches) for batches in ranks]
    if plan.drop_last:
        assert len(set(counts)) == 1
        kept = whole[: counts[0] * world]
        assert [list(step) for step in zip(*ranks, strict=True)] == [
            kept[i : i + world] for i in range(0, len(kept), world)
        ]
        assert len(whole) - len(kept) < world
    else:
        assert sorted(row for batches in ranks for batch in batches for row in batch) == rows
        assert max(counts) - min(counts) <= 1
        last = [row for batches in ranks for batch in batches[min(counts) :] for row in batch]
        assert len(last) < world  # a rank goes without only if fewer rows than ranks are left
        assert all(batch for batches in ranks for batch in batches)
        together = {frozenset(batch) for batch in whole}
        for batch in itertools.chain(*ranks):
            assert any(set(batch) <= other for other in together)
    if plan.max_tokens is None:
        assert counts == [plan.steps(rank, world) for rank in range(world)]


@pytest.mark.parametrize("way", [{}, {"max_tokens": 9}, {"bucket": measured([1] * 50)}])
def test_each_rank_has_its_own_of_the_batches(way: dict[str, Any]) -> None:
    plan = BatchPlan(50, 3, True, widths=measured([1] * 50), **way)
    whole = rows_of(plan.batches(Cursor()))
    for rank in range(4):
        assert rows_of(plan.batches(Cursor(), rank, 4))[:4] == whole[rank:16:4]


@given(st.data(), st.integers(1, 4), st.integers(1, 4))
def test_going_on_from_any_batch(data: st.DataObject, world: int, later_world: int) -> None:
    """All ranks stop after some step; as many go on with the same batches, and other numbers with the same rows."""
    plan, rows = plans(data.draw)
    ranks = [list(plan.batches(Cursor(3), rank, world)) for rank in range(world)]
    steps = data.draw(st.integers(0, min(len(batches) for batches in ranks)))
    after = {batches[steps - 1].after for batches in ranks} if steps else {Cursor(3)}
    (cursor,) = after
    for rank in range(world):
        assert rows_of(plan.batches(cursor, rank, world)) == rows_of(ranks[rank][steps:])
    done = [row for batches in ranks for batch in batches[:steps] for row in batch.rows.tolist()]
    rest = [
        row
        for rank in range(later_world)
        for batch in rows_of(plan.batches(cursor, rank, later_world))
        for row in batch
    ]
    assert len(set(done + rest)) == len(done + rest)
    if not plan.drop_last:
        assert sorted(done + rest) == rows


def test_pieces_are_cut_from_the_longest() -> None:
    rows = [torch.arange(10), torch.arange(10, 11), torch.arange(11, 16)]
    made = split_batches(rows, 6)
    assert [piece.tolist() for piece in made] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9], [10], [11, 12, 13], [14, 15]]
    assert [piece.numel() for piece in split_batches([torch.arange(1), torch.arange(2)], 5)] == [1, 1, 1, 0, 0]


def test_share_gives_each_rank_its_batch_of_every_step() -> None:
    batches = [Batch(torch.tensor([i]), Cursor(0, i + 1)) for i in range(6)]
    assert rows_of(share(batches, 1, 3, False)) == [[1], [4]]
    assert [batch.after.position for batch in share(batches, 1, 3, False)] == [3, 6]
