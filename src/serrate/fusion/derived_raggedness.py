"""Extents of ragged axes that operations make of others: rows that are cut, joined, put behind each other, or nested.

Like those of splits and products, their offsets follow from the old ones on the device where those are, and nothing
waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from serrate.fusion.raggedness import Arrays, Raggedness, Sizes, _accumulated, _Based, _unique_name
from serrate.fusion.scalar import Scalar, const, load, maximum, minimum


def _name(word: str, *parts: Raggedness | int | None) -> str:
    """A name that no other offsets have."""
    names = [part.array if isinstance(part, Raggedness) else str(part) for part in parts]
    kinds = [type(part).__name__ for part in parts]
    return _unique_name(f"{names[0]}_{word}", False, (word, kinds, names))


def slice_bounds(start: int | None, stop: int | None, length: Scalar) -> tuple[Scalar, Scalar]:
    """(where a slice begins, how many it takes) of so many, as Python means it."""
    begin, cut = start or 0, -(stop if stop is not None else 0)
    if begin >= 0 and (stop is None or stop < 0):  # from both ends: what is cut away decides
        return const(begin), maximum(length - (begin + cut), 0) if begin + cut else length
    first = const(0) if begin == 0 else minimum(length, begin) if begin > 0 else maximum(length + begin, 0)
    if stop is None:
        return first, minimum(length, -begin)
    last = minimum(length, stop) if stop >= 0 else maximum(length + stop, 0)
    return first, last if begin == 0 else maximum(last - first, 0)


def most_taken(start: int | None, stop: int | None) -> int | None:
    """How many a slice takes at most, if the length does not decide."""
    begin = start or 0
    if stop is None:
        return -begin if begin < 0 else None
    if (begin < 0) == (stop < 0):
        return max(stop - begin, 0)
    return stop if stop >= 0 else None


@dataclass(frozen=True)
class Sliced(_Based):
    """A slice of each row, as Python means it."""

    base: Raggedness
    start: int | None
    stop: int | None

    @property
    def array(self) -> str:  # type: ignore[override]
        return _name("sliced", self.base, self.start, self.stop)

    def extent_at(self, component: Scalar) -> Scalar:
        return slice_bounds(self.start, self.stop, self.base.extent_at(component))[1]

    @property
    def total_bound(self) -> Scalar:
        most = most_taken(self.start, self.stop)
        return self.base.total_bound if most is None else minimum(self.base.total_bound, self.count * most)

    @property
    def longest_bound(self) -> Scalar:
        most = most_taken(self.start, self.stop)
        return self.base.longest_bound if most is None else minimum(self.base.longest_bound, most)

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        lengths = self.base.lengths(arrays, sizes).long()
        first = _clamped(self.start or 0, lengths)
        last = lengths if self.stop is None else _clamped(self.stop, lengths)
        return _accumulated((last - first).clamp(min=0))


def _clamped(bound: int, lengths: torch.Tensor) -> torch.Tensor:
    """The bound of a slice, counted from the end if it is negative, within each row."""
    return lengths.clamp(max=bound) if bound >= 0 else (lengths + bound).clamp(min=0)


class _OfTwo(Raggedness):
    """Extents that follow from two others."""

    left: Raggedness
    right: Raggedness

    @property
    def total(self) -> Scalar:
        return self.left.total + self.right.total

    @property
    def total_bound(self) -> Scalar:
        return self.left.total_bound + self.right.total_bound


@dataclass(frozen=True)
class Joined(_OfTwo):
    """The rows of two behind each other, component by component: extents and offsets are added."""

    left: Raggedness
    right: Raggedness

    @property
    def count(self) -> Scalar:  # type: ignore[override]
        return self.left.count

    @property
    def array(self) -> str:  # type: ignore[override]
        return _name("joined", self.left, self.right)

    def extent_at(self, component: Scalar) -> Scalar:
        return self.left.extent_at(component) + self.right.extent_at(component)

    def offset_at(self, component: Scalar) -> Scalar:
        return self.left.offset_at(component) + self.right.offset_at(component)

    @property
    def longest_bound(self) -> Scalar:
        return self.left.longest_bound + self.right.longest_bound

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        left, right = (part.offsets(arrays, sizes).long() for part in (self.left, self.right))
        return left + right.to(left.device)


@dataclass(frozen=True)
class Stacked(_OfTwo):
    """The components of one, and then those of the other."""

    left: Raggedness
    right: Raggedness

    @property
    def count(self) -> Scalar:  # type: ignore[override]
        return self.left.count + self.right.count

    @property
    def array(self) -> str:  # type: ignore[override]
        return _name("stacked", self.left, self.right)

    def extent_at(self, component: Scalar) -> Scalar:
        return load(self.array, component + 1) - load(self.array, component)

    @property
    def longest_bound(self) -> Scalar:
        return maximum(self.left.longest_bound, self.right.longest_bound)

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        left, right = (part.offsets(arrays, sizes).long() for part in (self.left, self.right))
        return torch.cat([left, right[1:].to(left.device) + left[-1]])


@dataclass(frozen=True)
class Composed(Raggedness):
    """The rows of the rows of a component as one row: off[c] is the inner offset of the outer one."""

    left: Raggedness  # of the rows
    right: Raggedness  # of their rows

    @property
    def count(self) -> Scalar:  # type: ignore[override]
        return self.left.count

    @property
    def array(self) -> str:  # type: ignore[override]
        return _name("composed", self.left, self.right)

    def extent_at(self, component: Scalar) -> Scalar:
        return self.offset_at(component + 1) - self.offset_at(component)

    def offset_at(self, component: Scalar) -> Scalar:
        return self.right.offset_at(self.left.offset_at(component))

    @property
    def total(self) -> Scalar:
        return self.right.total if self.left.total == self.right.count else self.offset_at(self.count)

    @property
    def total_bound(self) -> Scalar:
        return self.right.total_bound

    @property
    def longest_bound(self) -> Scalar:
        return minimum(self.right.total_bound, self.left.longest_bound * self.right.longest_bound)

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        outer, inner = (part.offsets(arrays, sizes).long() for part in (self.left, self.right))
        return inner[outer.to(inner.device)]


@dataclass(frozen=True)
class Interleaved(_OfTwo):
    """The rows of rows that are joined: of each component first those of one, and then those of the other."""

    left: Composed
    right: Composed

    @property
    def count(self) -> Scalar:  # type: ignore[override]
        return self.left.right.count + self.right.right.count

    @property
    def array(self) -> str:  # type: ignore[override]
        return _name("interleaved", self.left, self.right)

    def extent_at(self, component: Scalar) -> Scalar:
        return load(self.array, component + 1) - load(self.array, component)

    @property
    def longest_bound(self) -> Scalar:
        return maximum(self.left.right.longest_bound, self.right.right.longest_bound)

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        parts = (self.left, self.right)
        before, other = (part.left.offsets(arrays, sizes).long() for part in parts)
        lengths = [part.right.lengths(arrays, sizes).long().to(before.device) for part in parts]
        made = before.new_zeros(len(lengths[0]) + len(lengths[1]))
        # Before the rows of one come the rows that the other has in components before, or in this one too.
        made[_places(before, other[:-1].to(before.device), len(lengths[0]))] = lengths[0]
        made[_places(other.to(before.device), before[1:], len(lengths[1]))] = lengths[1]
        return _accumulated(made)


def _places(offsets: torch.Tensor, further: torch.Tensor, count: int) -> torch.Tensor:
    """Where rows come to lie that `further` others come to lie before, of each component."""
    return torch.arange(count, device=offsets.device) + further.repeat_interleave(offsets.diff(), output_size=count)


def interleaved(left: Composed, right: Composed) -> Composed:
    """The rows of two that are joined, and the rows of those."""
    return Composed(Joined(left.left, right.left), Interleaved(left, right))


@dataclass(frozen=True)
class Longest(Raggedness):
    """One component, as long as the longest of another."""

    base: Raggedness

    @property
    def count(self) -> Scalar:  # type: ignore[override]
        return const(1)

    @property
    def array(self) -> str:  # type: ignore[override]
        return _name("longest", self.base)

    def extent_at(self, component: Scalar) -> Scalar:
        return self.total

    @property
    def total_bound(self) -> Scalar:
        return self.base.longest_bound

    @property
    def longest_bound(self) -> Scalar:
        return self.base.longest_bound

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        lengths = self.base.lengths(arrays, sizes).long()
        longest = lengths.max() if len(lengths) else lengths.new_zeros(())
        return torch.stack([torch.zeros_like(longest), longest])
