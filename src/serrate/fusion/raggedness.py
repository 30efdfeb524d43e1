"""The extents of a ragged axis: K of them, with their offsets, known when defined or only when the kernel runs.

An extent is asked for by the index of its component. Splitting, merging and resizing a ragged axis gives extents that
follow from the old ones; where their offsets have no formula, they are an array of their own that is computed from the
old offsets on the device where those are, and nothing waits.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from serrate.errors import RaggednessError
from serrate.fusion.analysis import evaluate
from serrate.fusion.scalar import Scalar, ceildiv, const, load, maximum, scalar, search

Arrays = Mapping[str, torch.Tensor]
Sizes = Mapping[str, int]


class Raggedness:
    """Extents e[c] and offsets off[c] of K components."""

    count: Scalar  # K
    array: str  # the name of the array of offsets, where one is needed

    def extent_at(self, component: Scalar) -> Scalar:
        """e[c]."""
        raise NotImplementedError

    def offset_at(self, component: Scalar) -> Scalar:
        """off[c]."""
        return load(self.array, component)

    def component_of(self, position: Scalar) -> Scalar:
        """The c with off[c] ≤ position < off[c + 1]."""
        return search(self.array, self.count, position)

    @property
    def total(self) -> Scalar:
        """off[K], the sum of all extents."""
        return load(self.array, self.count)

    @property
    def total_bound(self) -> Scalar:
        """What the host knows the total not to exceed."""
        raise NotImplementedError

    @property
    def longest_bound(self) -> Scalar:
        """What the host knows no extent to exceed."""
        raise NotImplementedError

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        """The K + 1 offsets, from those of the arrays the raggedness is based on."""
        raise NotImplementedError

    @property
    def base_arrays(self) -> tuple[str, ...]:
        """The arrays that must be given."""
        return tuple(base.array for base in self.bases if isinstance(base, Stored))

    @property
    def bases(self) -> tuple[Raggedness, ...]:
        """The raggedness this one is based on: itself, if on no other."""
        parts = [getattr(self, part, None) for part in ("base", "left", "right")]
        found = [base for part in parts if isinstance(part, Raggedness) for base in part.bases]
        return tuple(dict.fromkeys(found)) or (self,)

    def lengths(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        return self.offsets(arrays, sizes).diff()


def _accumulated(lengths: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))


_DIGEST = "x[0-9a-f]{8}"
_SPECIAL = re.compile(f"(^|_)(by|times|and|plus|minus|{_DIGEST})(_|$)")  # what names of derived offsets are made with


def _derived_name(word: str, *parts: Raggedness | Scalar | int) -> str:
    """The name of the offsets that follow from two parts; no others have it."""
    names = [part.array if isinstance(part, Raggedness) else str(part) for part in parts]
    is_plain = all(
        isinstance(part, (Stored, Scalar, int))
        and (name.isdigit() or name.isidentifier())
        and not _SPECIAL.search(name)
        for part, name in zip(parts, names, strict=True)
    )
    kinds = tuple(isinstance(part, Stored) for part in parts)
    return _unique_name(f"_{word}_".join(names), is_plain, (word, kinds, names))


def _unique_name(text: str, is_plain: bool, key: object) -> str:
    """The text, if it is plain what it means; else the beginning of it with a digest of all that it stands for.

    The pieces of a product and the product with pieces both read `q_and_p_by_2`; so would the pieces of offsets that
    somebody named `q_and_p`.
    """
    if is_plain and len(text) <= 48:
        return text
    readable = re.sub(rf"_{_DIGEST}(?=_|$)", "", re.sub(r"\W+", "_", text, flags=re.ASCII))
    return f"{readable[:39].strip('_')}_x{hashlib.sha256(repr(key).encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Listed(Raggedness):
    """Extents that are written down, one for each component."""

    extents: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        for component, extent in enumerate(self.extents):
            if extent.is_const and extent.value < 0:
                raise RaggednessError(f"extents must be 0 or more, but that of component {component} is {extent}")

    @property
    def count(self) -> Scalar:  # type: ignore[override]
        return const(len(self.extents))

    @property
    def array(self) -> str:  # type: ignore[override]
        names = [str(extent) for extent in self.extents]
        return _unique_name("_".join(["offsets", *names]), all(map(str.isdigit, names)), names)

    @cached_property
    def all_offsets(self) -> tuple[Scalar, ...]:
        return tuple(itertools.accumulate(self.extents, initial=const(0)))

    def extent_at(self, component: Scalar) -> Scalar:
        if component.is_const and 0 <= component.value < len(self.extents):
            return self.extents[int(component.value)]
        return load(self.array, component + 1) - load(self.array, component)

    def offset_at(self, component: Scalar) -> Scalar:
        if component.is_const and 0 <= component.value <= len(self.extents):
            offset: Scalar = self.all_offsets[component.value]
            return offset
        return load(self.array, component)

    @property
    def total(self) -> Scalar:
        return self.all_offsets[-1]

    total_bound = total

    @property
    def longest_bound(self) -> Scalar:
        longest = const(0)
        for extent in self.extents:
            longest = maximum(longest, extent)
        return longest

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        return torch.tensor([evaluate(offset, sizes) for offset in self.all_offsets], device="cpu")


@dataclass(frozen=True)
class Stored(Raggedness):
    """Extents that are data: an array of offsets (K + 1 entries) that exists when the kernel runs.

    The last offset equals `size`, or does not exceed it if not `exact`. The host knows `size`; if that is data as well,
    it knows `most`, which that does not exceed. Perhaps it knows `longest`, a bound of the extents.
    """

    array: str
    count: Scalar
    size: Scalar
    longest: Scalar | None = None
    exact: bool = True
    most: Scalar | None = field(default=None, compare=False)

    def extent_at(self, component: Scalar) -> Scalar:
        return load(self.array, component + 1) - load(self.array, component)

    @property
    def total(self) -> Scalar:
        return self.size if self.exact else load(self.array, self.count)

    @property
    def total_bound(self) -> Scalar:
        return self.size if self.most is None else self.most

    @property
    def longest_bound(self) -> Scalar:
        return self.total_bound if self.longest is None else self.longest

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        return arrays[self.array]


class _Based(Raggedness):
    """Extents that follow from those of another, component by component."""

    base: Raggedness

    @property
    def count(self) -> Scalar:  # type: ignore[override]
        return self.base.count


@dataclass(frozen=True)
class Pieces(_Based):
    """Each extent in pieces of f: ⌈e[c] / f⌉ of them."""

    base: Raggedness
    factor: Scalar

    @property
    def array(self) -> str:  # type: ignore[override]
        return _derived_name("by", self.base, self.factor)

    def extent_at(self, component: Scalar) -> Scalar:
        return ceildiv(self.base.extent_at(component), self.factor)

    @property
    def total_bound(self) -> Scalar:
        return (self.base.total_bound + self.count * (self.factor - 1)) // self.factor

    @property
    def longest_bound(self) -> Scalar:
        return ceildiv(self.base.longest_bound, self.factor)

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        factor = evaluate(self.factor, sizes)
        return _accumulated((self.base.lengths(arrays, sizes) + (factor - 1)) // factor)


@dataclass(frozen=True)
class Scaled(_Based):
    """Each extent times one number, which the host knows not to exceed `most`."""

    base: Raggedness
    by: Scalar
    most: Scalar

    @property
    def array(self) -> str:  # type: ignore[override]
        return _derived_name("times", self.base, self.by)

    def extent_at(self, component: Scalar) -> Scalar:
        return self.base.extent_at(component) * self.by

    def offset_at(self, component: Scalar) -> Scalar:
        return self.base.offset_at(component) * self.by

    def component_of(self, position: Scalar) -> Scalar:
        return self.base.component_of(position // self.by)

    @property
    def total(self) -> Scalar:
        return self.base.total * self.by

    @property
    def total_bound(self) -> Scalar:
        return self.base.total_bound * self.most

    @property
    def longest_bound(self) -> Scalar:
        return self.base.longest_bound * self.most

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        # A number that is data is a tensor without axes here, for which nothing waits.
        by: int | torch.Tensor = evaluate(self.by, sizes, arrays)
        return self.base.offsets(arrays, sizes) * by


@dataclass(frozen=True)
class Product(Raggedness):
    """Two extents of each component multiplied: len_q × len_k."""

    left: Raggedness
    right: Raggedness

    @property
    def count(self) -> Scalar:  # type: ignore[override]
        return self.left.count

    @property
    def array(self) -> str:  # type: ignore[override]
        return _derived_name("and", self.left, self.right)

    def extent_at(self, component: Scalar) -> Scalar:
        return self.left.extent_at(component) * self.right.extent_at(component)

    @property
    def total_bound(self) -> Scalar:
        return self.left.total_bound * self.right.longest_bound

    @property
    def longest_bound(self) -> Scalar:
        return self.left.longest_bound * self.right.longest_bound

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        left, right = self.left.lengths(arrays, sizes).long(), self.right.lengths(arrays, sizes).long()
        return _accumulated(left * right.to(left.device))


@dataclass(frozen=True)
class Resized(_Based):
    """Each extent made longer or shorter at its two ends, down to 0."""

    base: Raggedness
    by: int

    @property
    def array(self) -> str:  # type: ignore[override]
        return _derived_name("plus" if self.by >= 0 else "minus", self.base, abs(self.by))

    def extent_at(self, component: Scalar) -> Scalar:
        extent = self.base.extent_at(component) + self.by
        return maximum(extent, 0) if self.by < 0 else extent

    @property
    def total_bound(self) -> Scalar:
        return self.base.total_bound + self.count * max(self.by, 0)

    @property
    def longest_bound(self) -> Scalar:
        return self.base.longest_bound + max(self.by, 0)

    def offsets(self, arrays: Arrays, sizes: Sizes) -> torch.Tensor:
        return _accumulated((self.base.lengths(arrays, sizes) + self.by).clamp(min=0))


def listed(extents: tuple[Any, ...]) -> Listed:
    return Listed(tuple(scalar(extent) for extent in extents))
