"""Offsets and lengths as users give them: how they are read, checked and shown. Errors name the first bad position."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from serrate.errors import RaggednessError
from serrate.tensor import abstract, host

INT32_MAX = 2**31 - 1


def as_count(given: Any, name: str) -> int:
    """`given` as an int of 0 or more, or a RaggednessError."""
    try:
        count = operator.index(given)
    except TypeError:
        raise RaggednessError(f"{name} must be an integer, got {given!r:.40}") from None
    if count < 0:
        raise RaggednessError(f"{name} must be 0 or more, got {count}")
    return count


def as_index_vector(given: Any, name: str) -> torch.Tensor:
    """`given` as a 1-D int32 or int64 tensor, or a RaggednessError that says what it is instead."""
    if not isinstance(given, torch.Tensor):
        given = _vector_from_python(given, name)
    if given.ndim != 1:
        raise RaggednessError(f"{name} must be 1-D, got shape {list(given.shape)}")
    if given.dtype in (torch.int32, torch.int64):
        return host.settled(given.detach())
    if given.dtype in (torch.int8, torch.int16, torch.uint8, torch.uint16, torch.uint32):
        return host.settled(given.to(torch.int64))
    if given.is_floating_point() and given.numel() and given.device.type == "cpu":
        odd = (given != given.floor()).nonzero()  # NaN is unequal to its floor, and an infinity equals it.
        odd = odd if odd.numel() else given.isinf().nonzero()
        if odd.numel():
            position = int(odd[0])
            raise RaggednessError(f"{name} must be integers, but position {position} holds {float(given[position])}")
    raise RaggednessError(f"{name} must be int32 or int64, got {given.dtype}")


def _vector_from_python(given: Any, name: str) -> torch.Tensor:
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)) and len(given) == 0:
        return torch.zeros(0, dtype=torch.int64, device="cpu")
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise RaggednessError(f"{name} must be a flat sequence of integers, got {given!r:.80}") from error
    if array.dtype == object and all(isinstance(entry, int) for entry in array.flat):
        raise RaggednessError(f"{name} must fit in int64, got {given!r:.80}")
    if array.dtype.kind not in "iuf":
        raise RaggednessError(f"{name} must be a sequence of integers, got {array.dtype} in {given!r:.80}")
    if array.dtype == np.uint64:
        raise RaggednessError(f"{name} must fit in int64, got uint64")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array = array if array.flags.writeable and array.flags.c_contiguous else array.copy()
    return torch.as_tensor(array, device="cpu")  # which a trace sees, unlike torch.from_numpy


def _shares_memory(made: torch.Tensor, given: Any) -> bool:
    """Whether `made` may share memory with `given`: it never does with a list, and may with a foreign buffer."""
    if isinstance(given, torch.Tensor):
        return made.data_ptr() == host.settled(given).data_ptr()
    if isinstance(given, np.ndarray):
        return bool(np.shares_memory(made.numpy(), given))
    return not isinstance(given, (list, tuple, range))


def offsets_from_lengths(lengths: torch.Tensor, total: int | None) -> torch.Tensor:
    """The offsets [0, l0, l0+l1, …]: int32 if the lengths are int32 and the total is known to fit, else int64."""
    narrow = lengths.dtype == torch.int32 and total is not None and total <= INT32_MAX
    offsets = torch.zeros(lengths.numel() + 1, dtype=torch.int32 if narrow else torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, dtype=offsets.dtype, out=offsets[1:])
    return offsets


def cut_by_offsets(
    given: Any, num_values: int | None, copy: bool, validate: bool, name: str, cuts: str
) -> tuple[torch.Tensor, int, bool]:
    """Offsets that nobody else writes to, the number of values that they cut, and whether only a device knows them."""
    offsets = as_index_vector(given, name)
    if offsets.numel() == 0:
        raise RaggednessError(f"{name} must have one entry more than there are components, so at least 1; got none")
    if offsets.device.type != "cpu":
        if num_values is None:
            num_values = int(host.read(offsets[-1], "asking how many values offsets cover"))
        safe = _in_bounds(offsets, num_values)
        if validate:
            _defer_offset_check(offsets, safe, num_values, name, cuts)
        return safe, num_values, True
    unseen = abstract.current() is not None
    if validate and not unseen:
        check_offsets(offsets, num_values, name, cuts)
    total = abstract.number(offsets[-1], name) if num_values is None else num_values
    return offsets.clone() if copy and not unseen and _shares_memory(offsets, given) else offsets, total, False


def cut_by_lengths(given: Any, num_values: int | None, validate: bool, name: str) -> tuple[torch.Tensor, int, bool]:
    """What `cut_by_offsets` gives, from lengths."""
    lengths = as_index_vector(given, name)
    if lengths.device.type != "cpu":
        if num_values is None:
            num_values = int(host.read(lengths.sum(), "adding up lengths born on a device"))
        raw = offsets_from_lengths(lengths, num_values)
        if validate:
            _defer_length_check(lengths, raw, num_values, name)
        return _in_bounds(raw, num_values), num_values, True
    if validate and abstract.current() is None:
        _check_lengths(lengths, num_values, name)
    wide = offsets_from_lengths(lengths, None)
    total = abstract.number(wide[-1], name) if num_values is None else num_values
    narrow = lengths.dtype == torch.int32 and total <= INT32_MAX
    return wide.to(torch.int32) if narrow else wide, total, False


def cut_by_row_ids(given: Any, num_components: Any, name: str) -> tuple[torch.Tensor, int, bool]:
    """What `cut_by_offsets` gives, from the number of the component that each value belongs to."""
    ids = as_index_vector(given, name)
    count = as_count(num_components, "the number of rows")
    falls = torch.zeros_like(ids, dtype=torch.bool)
    falls[1:] = ids[1:] < ids[:-1]

    def error(i: int) -> RaggednessError:
        where = f"position {i} holds {int(ids[i])}"
        if bool(falls[i]):
            return RaggednessError(f"{name} must never decrease, but {where} after {int(ids[i - 1])}")
        rows = f"lie in 0 .. {count - 1}" if count else "be none, as there are no rows"
        return RaggednessError(f"{name} must {rows}, but {where}")

    host.defer(host.first_fault(falls | (ids < 0) | (ids >= count)), error)
    bounds = torch.arange(count + 1, dtype=ids.dtype, device=ids.device)
    offsets = torch.searchsorted(ids, bounds).to(ids.dtype)
    on_device = ids.device.type != "cpu"
    return _in_bounds(offsets, ids.numel()) if on_device else offsets, ids.numel(), on_device


def _in_bounds(offsets: torch.Tensor, num_values: int) -> torch.Tensor:
    """Offsets that never decrease and lie in 0 .. N, whatever was given: an error on a device is raised only later."""
    return offsets.clamp(0, num_values).cummax(0).values


def check_offsets(offsets: torch.Tensor, num_values: int | None, name: str, cuts: str) -> None:
    """A RaggednessError unless host offsets start with 0, never decrease and end with `num_values`."""
    array = host.array(offsets)  # numpy is faster here: it does not write a mask to memory, as torch does.
    if array[0] != 0:
        raise RaggednessError(f"{name} must start with 0, but position 0 holds {array[0]}")
    grows = array[1:] >= array[:-1]
    if not grows.all():
        i = int(grows.argmin()) + 1
        raise RaggednessError(f"{name} must never decrease, but position {i} holds {array[i]} after {array[i - 1]}")
    if num_values is not None and array[-1] != num_values:
        raise RaggednessError(
            f"{name} must end with the number of {cuts} they cut, {num_values}, "
            f"but the last, position {array.size - 1}, holds {array[-1]}"
        )


def _check_lengths(lengths: torch.Tensor, num_values: int | None, name: str) -> None:
    """A RaggednessError unless host lengths are 0 or more and add up to `num_values`."""
    least, longest = (int(v) for v in torch.aminmax(lengths)) if lengths.numel() else (0, 0)
    if least < 0:
        i = int((lengths < 0).to(torch.uint8).argmax())
        raise RaggednessError(f"{name} must be 0 or more, but position {i} holds {int(lengths[i])}")
    # Where the lengths are such that a sum of int64 may overflow, the sum in floats tells whether it does.
    if lengths.numel() * longest >= 2**63 and float(lengths.sum(dtype=torch.float64)) >= 2.0**63:
        raise RaggednessError(f"{name} add up to more than an int64 holds")
    total = int(lengths.sum(dtype=torch.int64))
    if num_values is not None and total != num_values:
        raise RaggednessError(f"{name} must add up to the number of values, {num_values}, but add up to {total}")


def _defer_offset_check(given: torch.Tensor, safe: torch.Tensor, num_values: int, name: str, cuts: str) -> None:
    """The check of `check_offsets` for a device; a later call raises. `safe` are the offsets that `_in_bounds` made."""
    bad = given != safe
    bad[0] |= given[0] != 0
    bad[-1] |= given[-1] != num_values

    def error(i: int) -> RaggednessError:
        return RaggednessError(
            f"{name} must start with 0, never decrease and end with the number of {cuts}, {num_values}, "
            f"but position {i} holds {int(given[i])}" + (f" after {int(given[i - 1])}" if i else "")
        )

    host.defer(host.first_fault(bad), error)


def _defer_length_check(given: torch.Tensor, raw: torch.Tensor, num_values: int, name: str) -> None:
    """The check of `_check_lengths` for a device; a later call raises. `raw` are the offsets of these lengths."""
    bad = torch.cat([given < 0, (raw[-1:] != num_values)])

    def error(i: int) -> RaggednessError:
        if i < given.numel():
            return RaggednessError(f"{name} must be 0 or more, but position {i} holds {int(given[i])}")
        total = int(given.sum())
        return RaggednessError(f"{name} must add up to the number of values, {num_values}, but add up to {total}")

    host.defer(host.first_fault(bad), error)


def preview_lengths(offsets: torch.Tensor, edge: int = 3) -> str:
    """The lengths between `offsets` as text, elided past a few, in constant time: `[1, 2, 3, …, 7, 8, 9]`.

    Where the host must not wait for them, the text says only where they are, so that an error can still be raised.
    """
    if offsets.device.type != "cpu" and not host.may_wait():
        return f"[… on {offsets.device}]"
    if offsets.numel() - 1 <= 2 * edge + 2:
        return str(torch.diff(host.read_if_device(offsets, "printing lengths")).tolist())
    ends = torch.stack([offsets[: edge + 1], offsets[-edge - 1 :]])
    head, tail = torch.diff(host.read_if_device(ends, "printing lengths")).tolist()
    return "[" + ", ".join(map(str, head)) + ", …, " + ", ".join(map(str, tail)) + "]"
