"""Orders that take no memory: bijections that look like shuffles, and draws that depend on the row alone."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import torch

from serrate.native import shuffling
from serrate.table.loading.sampling import BlockwiseOrder, Order, draw, random_key, shuffled


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(shuffling, "walk", lambda *_: False)


SIZES = [*range(70), 127, 128, 129, 1000, 4095, 4096, 4097, 5000, 8191, 8192, 8193, 65535, 65537, 100_000, 300_007]


@pytest.mark.parametrize("rows", SIZES)
def test_every_row_stands_at_one_place(rows: int) -> None:
    for seed in range(3):
        order = Order.shuffled(rows, random_key(seed))
        assert torch.equal(order(torch.arange(rows)).sort().values, torch.arange(rows))


@pytest.mark.parametrize("rows", [10, 4097, 10**6, 10**9, 10**12, 2**40, 2**62 + 1])
def test_a_place_has_one_row_whichever_places_are_asked_with_it(rows: int) -> None:
    order = Order.shuffled(rows, random_key(3))
    places = torch.from_numpy(np.random.default_rng(0).integers(0, rows, 500))
    together = order(places)
    assert together.dtype == torch.int64
    assert int(together.min()) >= 0
    assert int(together.max()) < rows
    assert together.tolist() == [int(order(place[None])) for place in places]
    assert order(places[::3]).tolist() == together[::3].tolist()
    assert len(set(together.tolist())) == len(set(places.tolist()))
    assert order(places[:0]).tolist() == []


@pytest.mark.parametrize("rows", [4097, 2**13, 2**13 + 1, 10**6, 2**40 - 1, 2**62 + 1])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
def test_rows_are_the_same_without_a_compiler(rows: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places = torch.from_numpy(np.random.default_rng(count).integers(0, rows, count))
    order = Order.shuffled(rows, random_key(rows))
    found = order(places)
    monkeypatch.setattr(shuffling, "walk", lambda *_: False)
    assert order(places).tolist() == found.tolist()


def test_rows_in_their_order() -> None:
    assert Order(10)(torch.tensor([3, 0, 9])).tolist() == [3, 0, 9]


def test_places_are_not_changed() -> None:
    places = torch.arange(5000)
    Order.shuffled(5000, random_key(0))(places)
    assert torch.equal(places, torch.arange(5000))


def test_all_orders_of_few_rows_are_as_likely() -> None:
    found = Counter(tuple(Order.shuffled(4, random_key(seed))(torch.arange(4)).tolist()) for seed in range(4800))
    assert set(found) == set(itertools.permutations(range(4)))
    # chi-square with 23 degrees of freedom exceeds 49.7 once in a thousand
    assert sum((count - 200) ** 2 / 200 for count in found.values()) < 49.7


@pytest.mark.parametrize("rows", [4097, 5000, 8192, 10_007])
def test_a_row_is_anywhere(rows: int) -> None:
    """Cells (place, row), each cut into 16, are hit as often as each other over many keys."""
    hits = np.zeros((16, 16))
    places = torch.arange(rows)
    for seed in range(40):
        np.add.at(
            hits, (places.numpy() * 16 // rows, Order.shuffled(rows, random_key(seed))(places).numpy() * 16 // rows), 1
        )
    expected = 40 * np.outer(_sixteenths(rows), _sixteenths(rows)) / rows
    # 225 degrees of freedom, of a permutation: exceeds 300 less than once in a thousand
    assert 160 < ((hits - expected) ** 2 / expected).sum() < 300


def _sixteenths(rows: int) -> np.ndarray:
    return np.bincount(np.arange(rows) * 16 // rows, minlength=16)


@pytest.mark.parametrize("rows", [5000, 2**17, 10**6])
def test_neighbours_are_strangers(rows: int) -> None:
    """Differences and products of rows at neighbouring places, and fixed points, are those of a random order."""
    fixed = 0
    for seed in range(10):
        found = Order.shuffled(rows, random_key(seed, "x"))(torch.arange(rows)).to(torch.float64) / rows
        for lag in (1, 2, 64):
            assert abs(float(torch.corrcoef(torch.stack([found[lag:], found[:-lag]]))[0, 1])) < 5 / math.sqrt(rows)
        assert (found.diff() > 0).double().mean() == pytest.approx(0.5, abs=3 / math.sqrt(rows))
        fixed += int((found == torch.arange(rows) / rows).sum())
    assert 0 <= fixed <= 25  # 10 are expected


def test_low_bits_are_as_good_as_high_ones() -> None:
    found = Order.shuffled(10**9, random_key(5))(torch.arange(2**16))
    for bit in range(29):
        assert ((found >> bit) & 1).double().mean() == pytest.approx(0.5, abs=0.05)
        flips = ((found >> bit) & 1).diff().abs().double().mean()
        assert flips == pytest.approx(0.5, abs=0.05)


def test_keys_give_different_orders() -> None:
    orders = [
        Order.shuffled(10_000, random_key(seed, epoch))(torch.arange(10_000)) for seed in range(4) for epoch in range(4)
    ]
    for one, other in itertools.combinations(orders, 2):
        assert int((one == other).sum()) < 12  # 1 is expected


def test_orders_stay_what_they_are() -> None:
    """A run that goes on with a later version finds the order it began with."""
    assert Order.shuffled(10, random_key(0, 0, "rows"))(torch.arange(10)).tolist() == GOLDEN_SMALL
    assert Order.shuffled(10**9, random_key(0, 0, "rows"))(torch.arange(4)).tolist() == GOLDEN_LARGE


GOLDEN_SMALL = [4, 2, 9, 7, 5, 6, 0, 8, 3, 1]
GOLDEN_LARGE = [277313024, 713415867, 765138864, 170734107]


@pytest.mark.parametrize("rows", [10**5, 10**9, 10**15])
def test_memory_is_that_of_the_places_asked_for(rows: int) -> None:
    places = torch.arange(2**14)
    tracemalloc.start()
    Order.shuffled(rows, random_key(0))(places)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * places.nbytes


def test_keys_depend_on_every_word() -> None:
    given: list[tuple[int | str, ...]] = [(), (0,), ("0",), (0, 0), (1, 0), (0, 1), (-1,), (2**80,)]
    keys = [random_key(*each) for each in given]
    assert len({tuple(key.tolist()) for key in keys}) == len(keys)
    assert len(set(random_key(7).tolist())) == 8


def test_draws_are_even_and_of_the_row_alone() -> None:
    rows = torch.arange(60_000) + 10**10
    drawn = draw(rows, torch.full_like(rows, 6), random_key(1))
    counts = torch.bincount(drawn, minlength=6)
    assert len(counts) == 6
    assert float(((counts - 10_000) ** 2 / 10_000).sum()) < 20.5  # 5 degrees of freedom, once in a thousand
    some = torch.tensor([5, 5, 17, 59_999])
    assert torch.equal(draw(rows[some], torch.full((4,), 6), random_key(1)), drawn[some])
    assert not torch.equal(draw(rows, torch.full_like(rows, 6), random_key(2)), drawn)
    assert draw(rows[:3], torch.tensor([1, 1, 1]), random_key(9)).tolist() == [0, 0, 0]


def test_shuffled_is_a_permutation() -> None:
    for count in (0, 1, 2, 100):
        assert sorted(shuffled(count, random_key(count)).tolist()) == list(range(count))


# ----------------------------------------------------------------------------------------------------------- blocks


SHAPES = [(1, 1), (4, 16), (7, 10), (64, 30), (512, 16384)]


@pytest.mark.parametrize(
    ("rows", "block", "pool"),
    [*((rows, *shape) for rows in (*range(12), 63, 64, 65, 1000) for shape in SHAPES), (100_003, 512, 16384)],
)
def test_every_row_stands_at_one_place_of_blocks(rows: int, block: int, pool: int) -> None:
    for seed in range(2):
        order = BlockwiseOrder(rows, random_key(seed), block, pool)
        found = order(torch.arange(rows))
        assert torch.equal(found.sort().values, torch.arange(rows))
        some = torch.arange(rows)[1::3]
        assert torch.equal(order(some), found[some])


def test_a_pool_has_few_blocks_and_a_batch_many() -> None:
    rows, block, pool = 10**9 + 123, 512, 16384
    order = BlockwiseOrder(rows, random_key(1), block, pool)
    for first in (0, pool * 777):
        found = order(torch.arange(first, first + pool))
        pieces = (found.sort().values.diff() != 1).sum() + 1
        assert int(pieces) <= pool // block + 1
        assert len({int(row) // block for row in found[:256]}) >= pool // block
        assert float(torch.corrcoef(torch.stack([found[1:], found[:-1]]).double())[0, 1]) < 0.05


def test_blocks_are_others_in_another_order() -> None:
    rows = 100_000
    starts = []
    for seed in range(20):
        found = BlockwiseOrder(rows, random_key(seed), 512, 2048)(torch.arange(2048)).sort().values
        starts += [int(row) for row in found[1:][found.diff() != 1]]
    assert len(set(starts)) == len(starts)  # blocks begin anywhere, not at multiples of 512
    last = [
        set(BlockwiseOrder(rows, random_key(seed), 512, 2048)(torch.arange(rows - 160, rows)).tolist())
        for seed in range(4)
    ]
    assert len(set.intersection(*last)) == 0  # the rows after the last whole block are not always the same
