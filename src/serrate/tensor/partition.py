"""Partition: how a packed axis of N values is cut into K components. A partition never changes.

Notation: K components, N values, offsets [K+1] with offsets[0] = 0, component c owns values offsets[c] .. offsets[c+1].
A partition born on the host keeps its host offsets for good; one born on a device answers host questions only by
waiting for that device (`serrate.tensor.host`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch.compiler import is_dynamo_compiling

from serrate.errors import RaggednessError
from serrate.tensor import abstract, host
from serrate.tensor.identity import Identity
from serrate.tensor.offsets import (
    INT32_MAX,
    as_count,
    cut_by_lengths,
    cut_by_offsets,
    cut_by_row_ids,
    offsets_from_lengths,
    preview_lengths,
)

CPU = torch.device("cpu")
T = TypeVar("T")


def _device(given: torch.device | str) -> torch.device:
    return given if isinstance(given, torch.device) else torch.device(given)


class Partition:
    """A cut of N values into K components. Whatever can be derived from it is computed at most once.

    >>> import serrate as sr
    >>> p = sr.Partition.from_lengths([3, 5, 2])
    >>> p
    Partition([3, 5, 2])
    >>> p.offsets
    tensor([ 0,  3,  8, 10])
    >>> p.num_components, p.num_values, p.max_length
    (3, 10, 5)
    """

    __slots__ = (
        "_bound",
        "_coarse",
        "_declared",
        "_device_born",
        "_exact",
        "_identity",
        "_max_length",
        "_memo",
        "_moved",
        "_num_values",
        "_offsets",
        "_searched",
        "_uniform_length",
        "_version",
    )

    _offsets: torch.Tensor
    _num_values: int
    _device_born: bool
    _exact: bool
    _searched: bool
    _bound: int | None
    _max_length: int | None
    _memo: dict[Hashable, Any]
    _coarse: dict[tuple[int, int], Partition]
    _declared: dict[int, int]
    _moved: dict[torch.device, Partition]
    _identity: Identity

    _uniform_length: int | None
    _version: int | None

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("make a Partition with Partition.from_offsets, from_lengths, from_row_ids or uniform")

    # ---------------------------------------------------------------------------------------------- construction

    @classmethod
    def from_offsets(
        cls,
        offsets: Any,
        num_values: int | None = None,
        *,
        copy: bool = True,
        validate: bool = True,
        max_length_bound: int | None = None,
        name: str = "offsets",
        cuts: str = "values",
    ) -> Partition:
        """The partition with these K+1 offsets: a list, numpy array or tensor, int32 or int64 (kept), first 0.

        `num_values` is what the last offset must equal, where the caller knows it. CPU offsets are checked now, CUDA
        offsets by a check whose error a later call raises; `name` and `cuts` are the words of that error.
        `validate=False` skips the check, `copy=False` the copy (the caller then promises never to write to them).

        >>> import serrate as sr
        >>> sr.Partition.from_offsets([0, 127, 127, 325]).lengths
        tensor([127,   0, 198])
        """
        made, total, device_born = cut_by_offsets(offsets, num_values, copy, validate, name, cuts)
        return cls._of(made, total, device_born=device_born, trusted=validate, bound=max_length_bound)

    @classmethod
    def from_lengths(
        cls, lengths: Any, num_values: int | None = None, *, validate: bool = True, name: str = "lengths"
    ) -> Partition:
        """The partition whose components have these lengths. int32 lengths whose sum needs more give int64 offsets.

        >>> import serrate as sr
        >>> sr.Partition.from_lengths([2, -1])
        Traceback (most recent call last):
            ...
        serrate.errors.RaggednessError: lengths must be 0 or more, but position 1 holds -1
        """
        made, total, device_born = cut_by_lengths(lengths, num_values, validate, name)
        return cls._of(made, total, device_born=device_born, trusted=validate)

    @classmethod
    def from_row_ids(cls, row_ids: Any, num_components: int, *, name: str = "row_ids") -> Partition:
        """The partition in which value i belongs to component `row_ids[i]`; the ids must never decrease.

        >>> import serrate as sr
        >>> sr.Partition.from_row_ids([0, 0, 2, 2, 2], 3)
        Partition([2, 0, 3])
        """
        made, total, device_born = cut_by_row_ids(row_ids, num_components, name)
        return cls._of(made, total, device_born=device_born)

    @classmethod
    def uniform(cls, num_components: int, length: int, *, dtype: torch.dtype = torch.int64) -> Partition:
        """K components of one length each, and known to be so: combining such an axis away gives a uniform axis back.

        >>> import serrate as sr
        >>> sr.Partition.uniform(3, 2).offsets
        tensor([0, 2, 4, 6])
        """
        num_components = as_count(num_components, "the number of components")
        length = as_count(length, "the length")
        if dtype not in (torch.int32, torch.int64):
            raise RaggednessError(f"offsets must be int32 or int64, got {dtype}")
        total = num_components * length
        if total >= 2**63:
            raise RaggednessError(
                f"{num_components} components of length {length} are more values than an int64 counts"
            )
        offsets = torch.arange(num_components + 1, dtype=torch.int64, device=CPU) * length
        return cls._of(offsets.to(dtype) if total <= INT32_MAX else offsets, total, uniform_length=length)

    @classmethod
    def _of(
        cls,
        offsets: torch.Tensor,
        num_values: int,
        *,
        device_born: bool = False,
        exact: bool = True,
        trusted: bool = True,
        bound: int | None = None,
        uniform_length: int | None = None,
    ) -> Partition:
        """Wrap offsets that are ours.

        Unless `exact`, `num_values` may exceed the last of them. Unless `trusted`, nobody has checked them, and row ids
        are found by a search that stays in bounds whatever they hold.
        """
        run = abstract.current()
        if run is not None:
            return run.born(offsets, num_values, device_born, exact, bound, uniform_length)
        self = object.__new__(cls)
        self._hold(offsets, num_values, device_born, exact, trusted, bound, uniform_length)
        return self

    def _hold(
        self,
        offsets: torch.Tensor,
        num_values: int,
        device_born: bool,
        exact: bool,
        trusted: bool,
        bound: int | None,
        uniform_length: int | None,
    ) -> None:
        self._offsets = host.settled(offsets)
        self._num_values = num_values
        self._device_born = device_born
        self._exact = exact
        self._searched = device_born or not trusted
        self._bound = bound
        self._max_length = None
        self._memo = {}
        self._coarse = {}
        self._declared = {}
        self._moved = {}
        self._identity = Identity()
        self._uniform_length = uniform_length
        self._version = None if offsets.is_inference() else offsets._version

    # --------------------------------------------------------------------------------------------- what it holds

    @property
    def num_components(self) -> int:
        """K, known on the host always."""
        return self._offsets.numel() - 1

    @property
    def uniform_length(self) -> int | None:
        """The one length of every component, where that was declared (never guessed from data)."""
        return self._uniform_length

    @property
    def num_values(self) -> int:
        """N: the packed axis's size. The last offset, or a capacity of at least that where lengths are device-born."""
        return self._num_values

    @property
    def is_host_born(self) -> bool:
        """Whether the host has the offsets, so that lengths, maxima and equality cost it no wait."""
        return not self._device_born

    @property
    def is_exact(self) -> bool:
        """Whether the last offset is `num_values`, so that no value is undefined."""
        return self._exact

    @property
    def dtype(self) -> torch.dtype:
        """int32 or int64, as the offsets were given."""
        return self._offsets.dtype

    @property
    def home(self) -> torch.device:
        """The device the offsets were born on; work on partitions alone happens there."""
        return self._offsets.device

    @property
    def offsets(self) -> torch.Tensor:
        """The K+1 offsets, where they were born. Read them, do not write to them."""
        return self._offsets

    @property
    def lengths(self) -> torch.Tensor:
        """The K lengths, where the offsets were born."""
        return self.lengths_on(self.home)

    @property
    def row_ids(self) -> torch.Tensor:
        """For each of the N values the component it belongs to, where the offsets were born."""
        return self.row_ids_on(self.home)

    def offsets_on(self, device: torch.device | str) -> torch.Tensor:
        """The offsets on `device`, copied there on first use."""
        device = _device(device)
        if device == self._offsets.device:
            if not is_dynamo_compiling():
                self._require_unwritten()
            return self._offsets
        if is_dynamo_compiling():  # What is made in a trace is not kept.
            return host.send(self._offsets, device)
        return self.derived(("offsets", device), lambda: host.send(self._offsets, device))

    def lengths_on(self, device: torch.device | str) -> torch.Tensor:
        """The lengths on `device`."""
        device = _device(device)
        if is_dynamo_compiling():
            return torch.diff(self.offsets_on(device))
        return self.derived(("lengths", device), lambda: torch.diff(self.offsets_on(device)))

    def row_ids_on(self, device: torch.device | str) -> torch.Tensor:
        """For each of the N values the component it belongs to, int64, on `device`."""
        device = _device(device)
        return self.derived(("row_ids", device), lambda: self._make_row_ids(device))

    def positions_on(self, device: torch.device | str) -> torch.Tensor:
        """For each of the N values its position in its component, int64, on `device`; 0 for an undefined value."""
        device = _device(device)
        return self.derived(("positions", device), lambda: self._make_positions(device))

    def spread(self, each: torch.Tensor) -> torch.Tensor:
        """A vector with one entry per component, as a vector with one entry per value."""
        if self.num_components == 0:  # A device-born partition without components may have undefined values.
            return each.new_zeros(self._num_values)
        if self._searched or ("row_ids", each.device) in self._memo:
            return each[self.row_ids_on(each.device)]
        return torch.repeat_interleave(each, self._own_lengths(each.device), output_size=self._num_values)

    def _own_lengths(self, device: torch.device) -> torch.Tensor:
        """Lengths that nobody else can write to: torch trusts them, and wrong ones would make it leave its memory."""
        return self.derived(("own lengths", device), lambda: torch.diff(self.offsets_on(device)))

    def host_offsets(self, why: str = "reading offsets on the host") -> torch.Tensor:
        """The offsets on the host. If they were born on a device, the host waits for them the first time."""
        if not self._device_born:
            return self._offsets
        return self.derived(("host", CPU), lambda: host.read(self._offsets, why))

    @property
    def total(self) -> int:
        """The last offset: how many of the N values are in a component. Waits if the partition is device-born."""
        return int(self.host_offsets("asking for the total of device-born lengths")[-1])

    @property
    def max_length(self) -> int:
        """The longest component's length, 0 if there is none. Waits, once, if the partition is device-born."""
        if self._max_length is None:
            offsets = self.host_offsets("asking for the longest of device-born lengths")
            self._max_length = int(torch.diff(offsets).max()) if self.num_components else 0
        return self._max_length

    @property
    def max_length_bound(self) -> int:
        """A length no component exceeds, known without a wait."""
        if self._max_length is not None or not self._device_born:
            return self.max_length
        return self._num_values if self._bound is None else self._bound

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, computed once for this partition and kept with it under `key`."""
        found: T | None = self._memo.get(key)
        if found is None:
            self._require_unwritten()
            with host.lasting():
                found = self._memo[key] = make()
        return found

    def remember_lengths(self, lengths: torch.Tensor) -> None:
        """Keep the lengths, which whoever made the offsets has at hand, where the offsets were born."""
        self._memo["lengths", self._offsets.device] = lengths

    def _require_unwritten(self) -> None:
        if self._version is not None and self._offsets._version != self._version:
            raise RuntimeError("the offsets of this partition were written to after they were checked; write to a copy")

    def _make_row_ids(self, device: torch.device) -> torch.Tensor:
        if self._searched:  # A search needs no total and stays in bounds, whatever the offsets hold.
            values = torch.arange(self._num_values, device=device, dtype=self.dtype)
            ids = torch.searchsorted(self.offsets_on(device)[1:], values, right=True)
            return ids.clamp(max=max(self.num_components - 1, 0))
        components = torch.arange(self.num_components, device=device)
        return torch.repeat_interleave(components, self._own_lengths(device), output_size=self._num_values)

    def _make_positions(self, device: torch.device) -> torch.Tensor:
        offsets = self.offsets_on(device).to(torch.int64)
        values = torch.arange(self._num_values, device=device)
        positions = values - self.spread(offsets[:-1])
        return positions if self._exact else torch.where(values < offsets[-1], positions, 0)

    # ---------------------------------------------------------------------------------------------- new from old

    def slice(self, start: int, stop: int) -> Partition:
        """Components start .. stop as a partition of their own values."""
        if not 0 <= start <= stop <= self.num_components:
            raise IndexError(f"components {start} .. {stop} do not lie within 0 .. {self.num_components}")
        if start == 0 and stop == self.num_components:
            return self
        cut = self._offsets[start : stop + 1]
        first, last = self.span(start, stop)
        return Partition._of(cut - first, last - first, device_born=self._device_born, bound=self._bound)

    def trimmed(self, components: int) -> Partition:
        """The first components as an exact partition: what lies past the last offset is left out."""
        if self._exact and components == self.num_components:
            return self
        offsets = self._offsets[: components + 1]
        total = int(host.read(offsets[-1], "leaving out what lies past the last offset"))
        made = Partition._of(offsets, total, device_born=True, bound=self._bound)
        if components == self.num_components:
            made._identity = self._identity
        return made

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """The values that components start .. stop own, as host numbers."""
        if start == 0 and stop == self.num_components:
            return 0, self._num_values
        if self._device_born and ("host", CPU) not in self._memo:
            # This slice has the two ends, and needs no index that would be copied to the device.
            ends = self._offsets[start : stop + 1 : max(stop - start, 1)]
            ends = host.read(ends, "finding the values of a range of rows")
            return int(ends[0]), int(ends[-1])
        offsets = self.host_offsets()
        return int(offsets[start]), int(offsets[stop])

    def with_lengths(
        self,
        lengths: torch.Tensor,
        *,
        capacity: int | None = None,
        bound: int | None = None,
        exact: bool = False,
        name: tuple[Any, ...] = (),
    ) -> Partition:
        """A partition with other lengths. It is born where this one was, and has its offset dtype where that is enough.

        `capacity` is a number that the sum of the lengths does not exceed; with `exact` it is the sum. Without it, the
        host waits for the sum of device-born lengths. Without components there are no values, whatever the capacity. If
        this partition alone decides about the lengths, `name` says how: types tell partitions apart by it.
        """
        if not self._device_born:
            wide = offsets_from_lengths(lengths, None)
            total = int(wide[-1])
            fits = self.dtype == torch.int32 and total <= INT32_MAX
            return Partition._of(wide.to(torch.int32) if fits else wide, total)
        wide = offsets_from_lengths(lengths, None)
        exact = exact or capacity is None
        capacity = 0 if lengths.numel() == 0 else capacity
        if capacity is None:
            capacity = int(host.read(wide[-1], "adding up device-born lengths"))
        fits = self.dtype == torch.int32 and capacity <= INT32_MAX
        narrow = wide.to(torch.int32) if fits else wide
        return Partition._of(narrow, capacity, device_born=True, exact=exact, bound=bound)

    def take(
        self,
        components: torch.Tensor,
        *,
        capacity: int | None = None,
        exact: bool = False,
        name: tuple[Any, ...] = (),
    ) -> Partition:
        """The partition whose component i is component `components[i]` of this one (−1: an empty one).

        `name` is as in `with_lengths`.
        """
        lengths = self.lengths_on(components.device)
        if self.num_components == 0:
            return self.with_lengths(torch.zeros_like(components), capacity=0)
        picked = lengths.to(torch.int64)[components.clamp(min=0)]
        return self.with_lengths(
            torch.where(components < 0, 0, picked), capacity=capacity, bound=self._bound, exact=exact, name=name
        )

    def scaled(self, factor: int) -> Partition:
        """Each length times `factor`: the partition of a ragged axis merged with a uniform axis inside of it."""
        lengths = self.lengths.to(torch.int64) * factor
        made = self.with_lengths(lengths, capacity=self._num_values * factor, exact=self._exact)
        if self._uniform_length is not None:
            made._uniform_length = self._uniform_length * factor
        return made

    def coarsened(self, outer: Partition | int, count: int) -> Partition:
        """The partition whose components are groups of those of this one, as `outer`, a partition or size, says.

        `count` is how many components result.
        """
        if isinstance(outer, int):
            found = self._coarse.get((outer, count))
            if found is None:
                length = self._declared.get(outer)
                ends = self._offsets[::outer] if outer else self._offsets.new_zeros(count + 1)
                found = self._at(ends) if length is None else Partition.uniform(count, length, dtype=self.dtype)
                self._coarse[outer, count] = found
            return found
        return self._at(self.offsets_on(outer.home)[outer.offsets.to(torch.int64)])

    def pinned(self) -> Partition:
        """The same partition with its host offsets in page-locked memory."""
        if self._device_born or self._offsets.is_pinned():
            return self
        made = Partition._of(self._offsets.pin_memory(), self._num_values, bound=self._bound)
        made._identity, made._uniform_length = self._identity, self.uniform_length
        return made

    def moved(self, device: torch.device) -> Partition:
        """This partition for a tensor on `device`: itself if the host has the offsets, else a copy that lives there."""
        if not self._device_born or device == self.home:
            return self
        if device not in self._moved:
            offsets = self._offsets.to(device)
            made = Partition._of(
                offsets,
                self._num_values,
                device_born=device != CPU or not self._exact,
                exact=self._exact,
                bound=self._bound,
            )
            made._identity = self._identity
            self._moved[device] = made
        return self._moved[device]

    def _at(self, offsets: torch.Tensor) -> Partition:
        return Partition._of(offsets.contiguous(), self._num_values, device_born=self._device_born, exact=self._exact)

    def declare_groups(self, group: int, length: int) -> None:
        """Record that every `group` consecutive components own `length` values together, as the maker declared."""
        self._declared[group] = length

    # -------------------------------------------------------------------------------------------------- equality

    def same_as(self, other: Partition) -> bool:
        """Whether both cut alike, without ever waiting for a device.

        False is certain. True is certain when both are host-born, or were found equal before; otherwise the comparison
        runs on the device and a later call raises if it fails.

        >>> import serrate as sr
        >>> sr.Partition.from_lengths([3, 5]).same_as(sr.Partition.from_offsets([0, 3, 8]))
        True
        """
        if self is other or self._identity.root() is other._identity.root():
            return True
        if self.num_components != other.num_components or self._num_values != other._num_values:
            return False
        if self._device_born or other._device_born:
            self._defer_comparison(other)
        elif not bool((self._offsets == other._offsets).all()):
            return False
        self._identity.join(other._identity)
        return True

    def _defer_comparison(self, other: Partition) -> None:
        device = self.home if self._device_born else other.home
        left, right = self.offsets_on(device), other.offsets_on(device)

        def error(i: int) -> RaggednessError:
            # They were taken for equal before the device had compared them.
            self._identity, other._identity = Identity(), Identity()
            return RaggednessError(
                f"two partitions taken for equal differ: offset {i} is {int(left[i])} in one and {int(right[i])} in "
                f"the other; lengths {preview_lengths(left)} and {preview_lengths(right)}"
            )

        host.defer(host.first_fault(left != right), error)

    def __eq__(self, other: object) -> bool:
        return self.same_as(other) if isinstance(other, Partition) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.num_components)

    def preview(self) -> str:
        """The lengths as a text, the middle left out if there are many."""
        return preview_lengths(self._offsets)

    def __repr__(self) -> str:
        return f"Partition({self.preview()})"

    def __reduce__(self) -> tuple[Any, ...]:
        from serrate.tensor.persist import rebuild

        return rebuild, (
            "partition",
            self._offsets,
            self._num_values,
            self._device_born,
            self._exact,
            self.uniform_length,
        )

    def __copy__(self) -> Partition:
        return self

    def __deepcopy__(self, memo: Any) -> Partition:
        return self
