"""Which source of a table rows are in, and which rows of a batch each source has, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.table import blocks

from serrate.native import gather as library
from serrate.table.block import Block
from serrate.table.gathering.sources import Pieces, choose, located
from serrate.table.gathering.sources import Sources as Held


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(library, "routines", lambda: None)


BOUNDS = [[0, 5], [0, 5, 8], [0, 0, 4, 4, 9, 9], [0, 1, 2, 3], [0, 0], [0, 0, 0]]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_rows_are_found_in_their_source(bounds: list[int]) -> None:
    count = bounds[-1]
    every = [(s, row - bounds[s]) for s in range(len(bounds) - 1) for row in range(bounds[s], bounds[s + 1])]
    asked = torch.arange(-count, count)[torch.randperm(2 * count)]
    found = located(asked, torch.tensor(bounds), "rows")
    wanted = [every[row] for row in asked.tolist()]
    assert found.row.tolist() == [row for _, row in wanted]
    if len(bounds) == 2:
        assert found.source is None
    else:
        assert found.source is not None
        assert found.source.tolist() == [source for source, _ in wanted]
    assert torch.equal(located(asked[::2], torch.tensor(bounds), "rows").row, found.row[::2])


@pytest.mark.parametrize("bounds", BOUNDS)
def test_rows_that_there_are_not(bounds: list[int]) -> None:
    count = bounds[-1]
    for row in (count, -count - 1, 2**62, -(2**63), 2**63 - 1):
        asked = torch.tensor([*range(count), row, count])
        with pytest.raises(IndexError, match=f"'visits' has {count} entries, but position {count} .* asks for {row}$"):
            located(asked, torch.tensor(bounds), "visits")


@pytest.mark.parametrize("seed", range(20))
def test_each_source_is_asked_for_its_rows_in_their_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    held = [blocks.block(rng, int(rng.integers(1, 9))) for _ in range(int(rng.integers(2, 7)))]
    source = rng.integers(0, len(held), int(rng.integers(1, 40)))
    row = np.array([rng.integers(0, held[s].rows) for s in source], dtype=np.int64)
    asked: list[tuple[int, list[int]]] = []
    moved = bool(rng.integers(0, 2))
    given = Held([_Asked(each, number, asked, moved) for number, each in enumerate(held)])  # type: ignore[misc]
    chosen = choose(given, held[0].schema, Pieces(torch.from_numpy(source), torch.from_numpy(row)))
    used = sorted(set(source.tolist()))
    assert asked == [(s, row[source == s].tolist()) for s in used]
    assert chosen.numbers == tuple(used)
    assert [chosen.blocks[k] for k in (chosen.which.tolist() if chosen.which is not None else [])] == [
        held[s] for s in source
    ]
    assert chosen.row.tolist() == [r + 100 * s * moved for r, s in zip(row.tolist(), source.tolist(), strict=True)]


def test_sources_that_there_are_not() -> None:
    given = [blocks.block(np.random.default_rng(0), 3) for _ in range(2)]
    for source in (-1, 2, 2**40):
        with pytest.raises(IndexError):
            choose(Held(given), given[0].schema, Pieces(torch.tensor([0, source]), torch.tensor([0, 0])))


class _Asked:
    """A source that notes what it is asked for, and perhaps numbers rows otherwise."""

    def __init__(self, block: Block, number: int, asked: list[tuple[int, list[int]]], moved: bool) -> None:
        self.block, self.number, self.asked, self.moved = block, number, asked, moved
        self.schema, self.rows, self.counts = block.schema, block.rows, block.counts

    def block_with(self, rows: torch.Tensor, columns: tuple[str, ...]) -> tuple[Block, torch.Tensor]:
        self.asked.append((self.number, rows.tolist()))
        return self.block, rows + 100 * self.number if self.moved else rows
