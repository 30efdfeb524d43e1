"""Random ragged structures for the property tests, each with the plain Python index of every packed row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

import serrate as sr
from serrate.tensor.structure import Axis, Structure

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]

Cell = tuple[int, ...]


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """1, 2, 3, … in the given shape, exact in every dtype."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 100 + 1).view(shape).to(dtype)


def nest(lengths: Sequence[Sequence[int]], leaves: list[Any]) -> list[Any]:
    """`leaves` cut by the lengths of each level, innermost first, as nested lists."""
    for level in reversed(lengths):
        rest = iter(leaves)
        leaves = [list(itertools.islice(rest, count)) for count in level]
    return leaves


@st.composite
def lengths_per_level(draw: st.DrawFn, max_levels: int = 4, max_rows: int = 4, min_length: int = 0) -> list[list[int]]:
    """Lengths of 1 … max_levels nested levels, outermost first: random, all equal or all empty rows."""
    count = draw(st.integers(0 if min_length == 0 else 1, max_rows))
    levels = []
    for _ in range(draw(st.integers(1, max_levels))):
        equal = draw(st.integers(min_length, 3))
        one = st.just(equal) if draw(st.integers(0, 4)) == 0 else st.integers(min_length, 3)
        levels.append(draw(st.lists(one, min_size=count, max_size=count)))
        count = sum(levels[-1])
    return levels


@dataclass(frozen=True)
class Chain:
    """Nested levels as a Tensor and as lists."""

    lengths: list[list[int]]
    x: sr.Tensor
    lists: list[Any]


@st.composite
def chains(
    draw: st.DrawFn,
    max_levels: int = 4,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    max_features: int = 2,
    min_length: int = 0,
) -> Chain:
    """Tensors [B, ragged, …, features…] of nested levels; features of size 0 included."""
    lengths = draw(lengths_per_level(max_levels, min_length=min_length))
    features = draw(st.lists(st.integers(0, 3), max_size=max_features))
    index = draw(st.sampled_from([torch.int64, torch.int32]))
    values = numbers(sum(lengths[-1]), *features, dtype=draw(st.sampled_from(dtypes)))
    x = sr.from_lengths(values, [torch.tensor(level, dtype=index) for level in lengths])
    return Chain(lengths, x, nest(lengths, values.tolist()))


@dataclass(frozen=True)
class Sample:
    """A Tensor of any structure in storage order, and for each packed row its index along the packed axes."""

    x: sr.Tensor
    cells: list[Cell]
    lengths: dict[int, dict[Cell, int]]
    """For each ragged axis: its length at each index of its parents."""

    @property
    def packed(self) -> int:
        """How many axes are packed; the features come after them."""
        return len(self.x.structure.axes)

    @property
    def grid(self) -> list[int]:
        """Padded size of each packed axis."""
        axes = self.x.structure.axes
        return [a if isinstance(a, int) else max(a.partition.lengths.tolist(), default=0) for a in axes]


def walk(axes: Sequence[Axis], lengths: dict[int, dict[Cell, int]], nest_: Sequence[int]) -> list[Cell]:
    """The index tuples of the cells of the axes `nest_`, in order."""
    cells: list[Cell] = [()]
    for depth, number in enumerate(nest_):
        longer = []
        for cell in cells:
            axis = axes[number]
            if isinstance(axis, int):
                size = axis
            else:
                size = lengths[number][tuple(cell[list(nest_[:depth]).index(p)] for p in axis.parents)]
            longer += [(*cell, i) for i in range(size)]
        cells = longer
    return cells


@st.composite
def samples(draw: st.DrawFn, max_axes: int = 4, dtypes: Sequence[torch.dtype] = (torch.float32,)) -> Sample:
    """Any structure: nested levels, several axes on one parent, uniform axes before and between."""
    axes: list[Axis] = [draw(st.integers(0, 3))]
    lengths: dict[int, dict[Cell, int]] = {}
    needed: set[int] = set()
    last = draw(st.integers(1, max_axes - 1))
    for number in range(1, last + 1):
        if number < last and draw(st.integers(0, 2)) == 0:
            axes.append(draw(st.integers(1, 3)))
            continue
        parents = set(draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=number)))
        if number == last:  # a uniform axis that nothing depends on would be a feature
            parents |= {i for i, axis in enumerate(axes) if isinstance(axis, int)} - needed
        parents |= {p for i in parents if isinstance(axis := axes[i], sr.Ragged) for p in axis.parents}
        needed |= parents
        outer = walk(axes, lengths, sorted(parents))
        counts = draw(st.lists(st.integers(0, 3), min_size=len(outer), max_size=len(outer)))
        lengths[number] = dict(zip(outer, counts, strict=True))
        axes.append(sr.Ragged(sr.Partition.from_lengths(counts), sorted(parents)))
    cells = walk(axes, lengths, range(len(axes)))
    features = draw(st.lists(st.integers(0, 3), max_size=3))
    values = numbers(len(cells), *features, dtype=draw(st.sampled_from(dtypes)))
    return Sample(sr.Tensor(values, Structure(axes).check()), cells, lengths)
