"""Oracles in plain Python: random ragged structures as nested lists, and what indexing and joining do to such lists."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import serrate as sr
from serrate.tensor.structure import Axis, Ragged, Structure

WHOLE = slice(None)
many = settings(max_examples=max(300, settings.default.max_examples if settings.default else 0))


@dataclass(frozen=True)
class Sample:
    """A tensor whose elements are 0, 1, 2, … in storage order, and the same as nested lists."""

    x: sr.Tensor
    nested: Any
    axes: tuple[Axis, ...]
    features: tuple[int, ...]


# ------------------------------------------------------------------------------------------------------ structures


@st.composite
def lengths(draw: Any, count: int, longest: int = 4) -> list[int]:
    """`count` lengths: a short random pattern over and over, so equal and empty rows are frequent."""
    pattern = draw(st.lists(st.integers(0, longest), min_size=1, max_size=5))
    return [pattern[i % len(pattern)] for i in range(count)]


@st.composite
def levels(draw: Any, min_depth: int = 1, max_depth: int = 4) -> list[list[int]]:
    """Lengths of 1 … 4 ragged levels, outermost first; no rows and one row included."""
    count = draw(st.integers(0, 4))
    result = []
    for depth in range(draw(st.integers(min_depth, max_depth))):
        result.append(draw(lengths(count, 4 if depth < 2 else 2)))
        count = sum(result[-1])
    return result


def offsets_of(lengths_per_level: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[0, *itertools.accumulate(level)] for level in lengths_per_level]


def unpack(values: Sequence[Any], offsets_per_level: Sequence[Sequence[int]]) -> list[Any]:
    """Nested lists out of packed values and offsets, outermost first."""
    entries = list(values)
    for offsets in reversed(offsets_per_level):
        entries = [entries[a:b] for a, b in pairwise(offsets)]
    return entries


def chain(lengths_per_level: Sequence[Sequence[int]], features: tuple[int, ...] = (), **options: Any) -> Sample:
    """Nested ragged levels: [B, r, r, …, *features]."""
    axes: list[Axis] = [len(lengths_per_level[0])]
    axes += [
        Ragged(torch.tensor(level, **(options or {"dtype": torch.int64})), range(i + 1))
        for i, level in enumerate(lengths_per_level)
    ]
    return build(axes, features)


def build(axes: Sequence[Axis], features: tuple[int, ...] = ()) -> Sample:
    """The sample with these packed axes, whatever their parents are."""
    found = [
        dict(zip(_cells(axes, axis.parents), axis.partition.lengths.tolist(), strict=True))
        if isinstance(axis, Ragged)
        else {}
        for axis in axes
    ]
    counter = itertools.count()

    def size(prefix: tuple[int, ...]) -> int:
        axis = axes[len(prefix)]
        return found[len(prefix)][tuple(prefix[p] for p in axis.parents)] if isinstance(axis, Ragged) else axis

    def walk(prefix: tuple[int, ...]) -> Any:
        if len(prefix) == len(axes):
            return grid(features, lambda: next(counter))
        return [walk((*prefix, i)) for i in range(size(prefix))]

    nested = walk(())
    per_cell = math.prod(features)
    count = len(nodes(nested, len(axes)))
    values = torch.arange(count * per_cell).reshape(count, *features)
    return Sample(sr.Tensor(values, Structure(axes).check()), nested, tuple(axes), features)


def _cells(axes: Sequence[Axis], nest: Sequence[int]) -> list[tuple[int, ...]]:
    """The cells of some axes, in order, as positions along each of them."""
    cells: list[tuple[int, ...]] = [()]
    for depth, number in enumerate(nest):
        axis = axes[number]
        if isinstance(axis, Ragged):
            own = [list(nest[:depth]).index(p) for p in axis.parents]
            known = dict(zip(_cells(axes, axis.parents), axis.partition.lengths.tolist(), strict=True))
            cells = [(*c, i) for c in cells for i in range(known[tuple(c[o] for o in own)])]
        else:
            cells = [(*c, i) for c in cells for i in range(axis)]
    return cells


def grid(sizes: Sequence[int], make: Callable[[], Any]) -> Any:
    return [grid(sizes[1:], make) for _ in range(sizes[0])] if sizes else make()


@st.composite
def samples(
    draw: Any,
    max_ragged: int = 3,
    uniform: bool = True,
    free_parents: bool = True,
    features: bool = True,
    min_features: int = 0,
) -> Sample:
    """Ragged axes with uniform ones before, between and after, and parents that need not be all outer axes."""
    ragged = draw(st.integers(1, max_ragged))
    axes: list[Axis] = [draw(st.integers(0, 4))]
    for level in range(ragged):
        if uniform and draw(st.integers(0, 3)) == 0:
            axes.append(draw(st.integers(0, 3)))
        unused = [i for i, a in enumerate(axes) if isinstance(a, int) and not any(i in _parents(b) for b in axes)]
        parents = set(range(len(axes)))
        if free_parents and draw(st.booleans()):
            parents = set(draw(st.sets(st.integers(0, len(axes) - 1), min_size=1))) | {0}
            if level == ragged - 1:
                parents |= set(unused)
            for p in tuple(parents):
                parents |= set(_parents(axes[p]))
        components = len(_cells(axes, sorted(parents)))
        axes.append(Ragged(draw(lengths(components, 4 if level < 2 else 2)), sorted(parents)))
    wanted = min_features or (features and draw(st.booleans()))
    sizes = tuple(draw(st.lists(st.integers(0, 3), min_size=min_features, max_size=2))) if wanted else ()
    return build(axes, sizes)


def _parents(axis: Axis) -> tuple[int, ...]:
    return axis.parents if isinstance(axis, Ragged) else ()


# ------------------------------------------------------------------------------------------------------ lists


def nodes(nested: Any, depth: int) -> list[Any]:
    """All entries `depth` levels down, in order."""
    found = [nested]
    for _ in range(depth):
        found = [entry for node in found for entry in node]
    return found


def flatten(nested: Any) -> list[Any]:
    return [leaf for entry in nested for leaf in flatten(entry)] if isinstance(nested, list) else [nested]


def at_depth(nested: Any, depth: int, change: Callable[[Any], Any]) -> Any:
    """The lists with every entry `depth` levels down changed."""
    return change(nested) if depth == 0 else [at_depth(entry, depth - 1, change) for entry in nested]


def index(nested: Any, entries: Sequence[Any]) -> Any:
    """nested[entries], one entry per axis: int, slice, list of ints, list of bools, None."""
    if not entries:
        return nested
    entry, rest = entries[0], entries[1:]
    if entry is None:
        return [index(nested, rest)]
    if isinstance(entry, int):
        return index(nested[entry], rest)
    if isinstance(entry, slice):
        return [index(row, rest) for row in nested[entry]]
    if entry and isinstance(entry[0], bool):
        entry = [i for i, keep in enumerate(entry) if keep]
    return [index(nested[i], rest) for i in entry]


def concat(parts: Sequence[Any], axis: int) -> Any:
    if axis == 0:
        return [entry for part in parts for entry in part]
    return [concat(rows, axis - 1) for rows in zip(*parts, strict=True)]


def stack(parts: Sequence[Any], axis: int) -> Any:
    return list(parts) if axis == 0 else [stack(rows, axis - 1) for rows in zip(*parts, strict=True)]


# ------------------------------------------------------------------------------------------------------ keys

bounds = st.none() | st.integers(-6, 6)
slices = st.builds(slice, bounds, bounds, st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]))


@st.composite
def keys(draw: Any, sample: Sample, *, arrays: bool = True, new_axes: bool = True) -> tuple[Any, ...]:
    """Entries for the outer axes of a sample: one of them may be an array; ints and arrays are in range."""
    count = draw(st.integers(1, sample.x.ndim))
    array = draw(st.integers(0, count - 1)) if arrays and draw(st.booleans()) else -1
    entries: list[Any] = []
    for axis in range(count):
        size = sample.x.shape[axis]
        least = min(size.partition.lengths.tolist(), default=4) if isinstance(size, Ragged) else size
        if axis == array:
            if isinstance(size, int) and size and draw(st.booleans()):
                entries.append(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
            else:
                entries.append(draw(st.lists(st.integers(-least, least - 1), max_size=4)) if least else [])
        elif least and draw(st.integers(0, 2)) == 0:
            entries.append(draw(st.integers(-least, least - 1)))
        else:
            entries.append(draw(slices))
    if new_axes:
        for _ in range(draw(st.integers(0, 1))):
            entries.insert(draw(st.integers(0, len(entries))), None)
    return tuple(entries)


# ------------------------------------------------------------------------------------------------------ checks


def check(x: sr.Tensor) -> sr.Tensor:
    """x itself, after a look at its invariants: levels fit each other and the values, offsets start at 0 and rise."""
    if x.is_ragged:
        x.structure.check()
        assert x.values.shape[0] == x.structure.cells(x.structure.whole)
        for p in x.partitions:
            offsets = p.offsets.tolist()
            assert offsets[0] == 0
            assert offsets == sorted(offsets)
            assert p.num_values >= offsets[-1]
            assert p.num_values == offsets[-1] or not p.is_host_born
    assert sorted(x.order) == list(range(x.ndim))
    return x


def lists_of(x: sr.Tensor) -> Any:
    """Checked nested lists of a result; a view whose ragged axes stand before their parents is put back first."""
    return check(x).tolist()


class _Count(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))


def operations(run: Callable[[sr.Tensor], Any], rows: int) -> int:
    """How many torch operations `run` takes for a tensor [rows, r, r, 2]; `rows` a multiple of 4."""
    x = chain([[3, 4, 2, 5] * (rows // 4), [1, 2] * (rows // 4 * 7)], (2,)).x
    with _Count() as count:
        run(x)
    return count.seen


def shares_storage(x: sr.Tensor, y: sr.Tensor) -> bool:
    return x.values.untyped_storage().data_ptr() == y.values.untyped_storage().data_ptr()
