"""The oracle's tensor: every element under its full index, and the length of every row of every ragged axis.

Nothing is packed here and nothing has a storage order: an index names its positions along the axes as a user sees
them, so a permuted view is a tensor whose indices are permuted, and an empty row is an entry 0 in a table of lengths.
Elements lie in a vector of torch, so that gradients come from torch's own operations on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

Index = tuple[int, ...]


@dataclass(frozen=True)
class Lengths:
    """A ragged axis: its parents, in the order that numbers its lengths, and its length at each index of them."""

    parents: tuple[int, ...]
    table: dict[Index, int]
    loose: bool = field(default=False, compare=False)
    """Whether the documents leave open in which order the parents stand."""

    def renamed(self, name: Sequence[int] | dict[int, int]) -> Lengths:
        """The same axis where its tensor's axes have other numbers."""
        return Lengths(tuple(name[p] for p in self.parents), self.table, self.loose)

    def sorted(self) -> Lengths:
        """The same lengths with parents in rising order, whatever order numbers them in storage."""
        order = sorted(range(len(self.parents)), key=lambda i: self.parents[i])
        table = {tuple(key[i] for i in order): n for key, n in self.table.items()}
        return Lengths(tuple(self.parents[i] for i in order), table, self.loose)


Axis = int | Lengths


def cells(axes: Sequence[Axis], nest: Sequence[int] | None = None) -> list[Index]:
    """Every index along the axes `nest` (all, unless told), parents included in it, in rising order."""
    wanted = list(range(len(axes)) if nest is None else nest)
    found: list[dict[int, int]] = [{}]
    waiting = list(wanted)
    while waiting:
        axis = next(a for a in waiting if not set(parents(axes[a])) & set(waiting))
        waiting.remove(axis)
        found = [f | {axis: i} for f in found for i in range(size_at(axes, axis, f))]
    return sorted(tuple(f[a] for a in wanted) for f in found)


def parents(axis: Axis) -> tuple[int, ...]:
    return axis.parents if isinstance(axis, Lengths) else ()


def size_at(axes: Sequence[Axis], axis: int, index: dict[int, int] | Sequence[int]) -> int:
    """The length of an axis at an index of (at least) its parents."""
    size = axes[axis]
    return size.table[tuple(index[p] for p in size.parents)] if isinstance(size, Lengths) else size


class Memory:
    """A vector of elements that several tensors may see. Writing replaces it, so what was read before stays."""

    def __init__(self, flat: torch.Tensor) -> None:
        self.flat = flat
        self.is_leaf = False  # a leaf of autograd, which torch does not let anyone write to
        self.was_used = False  # something was computed from it, so that autograd may need what it held


@dataclass(frozen=True, eq=False)
class Mapped:
    """A tensor: its axes, the index of every element in rising order, and where in a memory each lies."""

    axes: tuple[Axis, ...]
    indices: list[Index]
    places: list[int]
    memory: Memory
    is_stored_as_seen: bool = False
    """Whether its storage is known to have the axes in the order in which they are seen."""

    @staticmethod
    def of(axes: Iterable[Axis], flat: torch.Tensor, *, stored: bool = False) -> Mapped:
        """A tensor with memory of its own; `flat` holds its elements in the order of their indices."""
        axes = tuple(axes)
        indices = cells(axes)
        assert len(indices) == flat.numel(), (axes, len(indices), flat.shape)
        return Mapped(axes, indices, list(range(len(indices))), Memory(flat.reshape(-1)), stored)

    @staticmethod
    def dense(values: torch.Tensor) -> Mapped:
        return Mapped.of(values.shape, values.reshape(-1), stored=True)

    @cached_property
    def rank(self) -> dict[Index, int]:
        """The place of each index among the indices."""
        return {index: k for k, index in enumerate(self.indices)}

    @property
    def ndim(self) -> int:
        return len(self.axes)

    @property
    def is_ragged(self) -> bool:
        return any(isinstance(axis, Lengths) for axis in self.axes)

    @property
    def dtype(self) -> torch.dtype:
        return self.memory.flat.dtype

    @property
    def flat(self) -> torch.Tensor:
        """The elements as they are now, in the order of their indices."""
        if self.places == list(range(self.memory.flat.numel())):
            return self.memory.flat
        return self.memory.flat[torch.tensor(self.places, dtype=torch.int64)]

    def seen(self, axes: Iterable[Axis], source: dict[Index, Index], *, stored: bool = False) -> Mapped:
        """A view: the element at each index of the new axes is the one at `source[index]`."""
        axes = tuple(axes)
        indices = cells(axes)
        assert len(indices) == len(source), (axes, indices, source)
        return Mapped(axes, indices, [self.places[self.rank[source[i]]] for i in indices], self.memory, stored)

    def copied(self) -> Mapped:
        return Mapped.of(self.axes, self.flat, stored=self.is_stored_as_seen)

    def moved(self, axes: Iterable[Axis], source: dict[Index, Index]) -> Mapped:
        """A copy: the element at each index of the new axes is the one at `source[index]`."""
        return self.seen(axes, source).copied()

    def computed(self, flat: torch.Tensor) -> Mapped:
        """Other elements in the same shape."""
        return Mapped.of(self.axes, flat, stored=self.is_stored_as_seen)

    def dense_values(self) -> torch.Tensor:
        """A dense tensor as torch has it."""
        return self.flat.reshape([axis for axis in self.axes if isinstance(axis, int)])

    def permuted(self, order: Sequence[int]) -> Mapped:
        """A view whose axis i is axis order[i] of this one."""
        where = {old: new for new, old in enumerate(order)}
        axes = [a.renamed(where) if isinstance(a := self.axes[old], Lengths) else a for old in order]
        same = list(order) == list(range(self.ndim))
        source = {tuple(index[old] for old in order): index for index in self.indices}
        return self.seen(axes, source, stored=same and self.is_stored_as_seen)

    def expanded(self, at: int) -> Mapped:
        """A view with a new axis of size 1 at `at`."""
        where = [axis + (axis >= at) for axis in range(self.ndim)]
        axes: list[Axis] = [a.renamed(where) if isinstance(a, Lengths) else a for a in self.axes]
        axes.insert(at, 1)
        return self.seen(axes, {(*i[:at], 0, *i[at:]): i for i in self.indices})

    def write(self, ranks: Sequence[int], values: torch.Tensor) -> None:
        """Elements, by the ranks of their indices, replaced for everyone who sees this memory."""
        places = torch.tensor([self.places[k] for k in ranks], dtype=torch.int64)
        flat = self.memory.flat
        wide = torch.int64 if flat.dtype in (torch.uint16, torch.uint32, torch.uint64) else flat.dtype
        self.memory.flat = flat.to(wide).index_put((places,), values.to(wide)).to(flat.dtype)


def closed(axes: Sequence[Axis], some: Iterable[int]) -> tuple[int, ...]:
    """These axes and all they depend on, in rising order."""
    found = set(some)
    while more := {p for a in found for p in parents(axes[a])} - found:
        found |= more
    return tuple(sorted(found))


def uniform_if_alone(axis: Axis) -> Axis:
    """A ragged axis that has lost its last parent has one length: it is uniform."""
    return axis.table[()] if isinstance(axis, Lengths) and not axis.parents else axis


def same_axes(one: Sequence[Axis], other: Sequence[Axis]) -> bool:
    """Whether two shapes are equal, whatever order numbers the lengths."""
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(_plain(a) == _plain(b) and type(a) is type(b) for a, b in pairs)


def _plain(axis: Axis) -> Axis:
    return axis.sorted() if isinstance(axis, Lengths) else axis


def is_loose(axes: Iterable[Axis]) -> bool:
    """Whether some order of parents is left open."""
    return any(isinstance(a, Lengths) and a.loose and len(a.parents) > 1 for a in axes)


def grid(shape: Sequence[int]) -> list[Index]:
    return list(itertools.product(*map(range, shape)))


def is_chain(x: Mapped) -> bool:
    """Whether every ragged axis depends on all axes outside it, features not counted."""
    found = [a for a, axis in enumerate(x.axes) if isinstance(axis, Lengths)]
    found.sort(key=lambda a: len(parents(x.axes[a])))
    used = {p for axis in x.axes for p in parents(axis)} | set(found)
    nested = all({a, *parents(x.axes[a])} <= set(parents(x.axes[b])) for a, b in itertools.pairwise(found))
    return not found or (nested and len(parents(x.axes[found[-1]])) == len(used) - 1)
