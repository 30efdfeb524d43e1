"""Nested rows for tests: the same elements as inputs of a fusion, and as nested Python lists that an oracle walks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.fusion.samples import offsets_of, some

from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorView, symbol


@dataclass(frozen=True)
class Rows:
    """The lengths of the rows, level by level, outermost first."""

    levels: tuple[tuple[int, ...], ...]

    @property
    def depth(self) -> int:
        return len(self.levels)

    @property
    def count(self) -> int:
        """How many elements there are, without features."""
        return sum(self.levels[-1])

    @property
    def offsets(self) -> list[torch.Tensor]:
        return [offsets_of(lengths) for lengths in self.levels]

    def input(
        self, fusion: Fusion, *features: int | str, name: str = "x", dtype: str = "float32", prefix: str = ""
    ) -> TensorView:
        """An input [k, r1, …, *features]; its offsets are inputs too, which inputs of one prefix share."""
        axes: list[IterDomain] = [IterDomain(f"{prefix}n0", name="c")]
        component = axes[0]
        for level in range(self.depth):
            known = [tensor for tensor in fusion.inputs if tensor.name == f"{prefix}offsets{level}"]
            count = symbol(f"{prefix}n{level}") + 1
            offsets = known[0] if known else fusion.input(f"{prefix}offsets{level}", [count], "int64")
            size = f"{prefix}n{level + 1}"
            rows = RaggedIterDomain.from_offsets(offsets, size=size, component=component, name=f"r{level}")
            axes.append(rows)
            component = IterDomain.combine(component, rows) if level + 1 < self.depth else component
        return fusion.input(name, [*axes, *(IterDomain(f, name="d") for f in features)], dtype)

    def values(self, *features: int, dtype: str = "float32", seed: int = 0) -> torch.Tensor:
        return some(self.count, *features, dtype=dtype, seed=seed)

    def given(self, fusion: Fusion, prefixes: Sequence[str] = ("",), **values: torch.Tensor) -> list[torch.Tensor]:
        """What the inputs of a fusion are: offsets, and values by name."""
        numbered = {f"{prefix}offsets{level}": o for prefix in prefixes for level, o in enumerate(self.offsets)}
        return [{**numbered, **values}[tensor.name] for tensor in fusion.inputs]

    def tree(self, values: torch.Tensor) -> list[Any]:
        """Elements as nested lists; what an element has of features stays a tensor."""
        items: list[Any] = list(values)
        for lengths in reversed(self.levels):
            ends = offsets_of(lengths).tolist()
            items = [items[start:end] for start, end in itertools.pairwise(ends)]
        return items


def paths(tree: Any, depth: int, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """All index tuples of nested lists, with what stands there."""
    if depth == 0:
        yield path, tree
        return
    for number, inner in enumerate(tree):
        yield from paths(inner, depth - 1, (*path, number))


def packed(items: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Elements one after another."""
    return torch.stack(list(items)) if items else like[:0]


EVERY_ROWS = {
    "one level": Rows(((3, 0, 4, 1),)),
    "one row": Rows(((5,),)),
    "no rows": Rows(((),)),
    "empty rows": Rows(((0, 0),)),
    "two levels": Rows(((2, 0, 3), (3, 0, 1, 2, 0))),
    "two levels, empty": Rows(((2, 0), (0, 0))),
    "three levels": Rows(((2, 0, 1), (2, 0, 1), (1, 0, 3))),
    "three levels, empty": Rows(((0, 1), (0,), ())),
    "four levels": Rows(((1, 2), (1, 0, 2), (2, 1, 1), (1, 0, 2, 1))),
}
every_rows = pytest.mark.parametrize("rows", EVERY_ROWS.values(), ids=EVERY_ROWS.keys())
