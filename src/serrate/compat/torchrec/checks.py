"""This module checks what TorchRec's constructors do not check: lengths, offsets, weights and keys."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from serrate.errors import DeviceMismatchError, OffsetsDeviceError, RaggednessError
from serrate.tensor.partition import Partition


def cut(values: Any, lengths: Any, offsets: Any, name: str) -> Partition:
    """Return the partition of packed `values` into rows; if lengths and offsets are both given, they must agree."""
    if not isinstance(values, torch.Tensor):
        raise TypeError(f"values of a {name} must be a torch.Tensor, got {type(values).__name__}")
    if values.ndim == 0:
        raise RaggednessError(f"values of a {name} must have at least one axis, the packed one; got a 0-d tensor")
    lengths, offsets = _integers(lengths, values, "lengths"), _integers(offsets, values, "offsets")
    if offsets is None:
        if lengths is None:
            raise ValueError(f"a {name} needs lengths or offsets, got neither")
        return Partition.from_lengths(lengths, values.shape[0], name=f"lengths of a {name}")
    if offsets.numel() == 0:  # TorchRec's own empty() and split() return empty offsets if there are no rows
        offsets = offsets.new_zeros(1)
    made = Partition.from_offsets(offsets, values.shape[0], name=f"offsets of a {name}")
    if lengths is not None and not made.same_as(Partition.from_lengths(lengths)):
        raise RaggednessError(f"lengths and offsets must agree, got lengths {lengths} and offsets {offsets}")
    return made


def as_int(given: Any, name: str) -> int:
    """Return `given` as an int; it must be an integer, and a bool is not one."""
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"{name} must be an integer, got {given!r:.60}")
    return operator.index(given)


def _integers(given: Any, values: torch.Tensor, name: str) -> torch.Tensor | None:
    """Return a tensor of integers; an empty one may also hold floats, since `torch.tensor([])` does."""
    if given is None:
        return None
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(given).__name__}")
    if given.device != values.device:
        raise OffsetsDeviceError(f"{name} lie on {given.device}, but values lie on {values.device}")
    made: torch.Tensor = given
    if given.is_floating_point() and given.numel() == 0:
        made = given.to(torch.int64)
    if made.dtype not in (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"{name} must be integers, got {given.dtype}")
    return made


def weights_for(values: torch.Tensor, weights: Any) -> torch.Tensor | None:
    """Return `weights`, which must be None or have one weight for each value."""
    if weights is None:
        return None
    if not isinstance(weights, torch.Tensor):
        raise TypeError(f"weights must be a torch.Tensor, got {type(weights).__name__}")
    if weights.ndim == 0 or weights.shape[0] != values.shape[0]:
        raise RaggednessError(
            f"there must be a weight for each of the {values.shape[0]} values, got weights of shape "
            f"{list(weights.shape)}"
        )
    if weights.device != values.device:
        raise DeviceMismatchError(f"weights lie on {weights.device}, but values lie on {values.device}")
    return weights


def all_of(things: Iterable[Any], kind: type, name: str) -> None:
    """Raise an error unless all things that a function joins are of this library's class."""
    for thing in things:
        if not isinstance(thing, kind):
            theirs = f"; convert it with {kind.__name__}.from_torchrec" if type(thing).__name__ == kind.__name__ else ""
            raise TypeError(f"{name} takes Serrate's {kind.__name__}s, got {_full_name(thing)}{theirs}")


def _full_name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__name__}"


def all_or_none(weights: Sequence[torch.Tensor | None], what: str) -> list[torch.Tensor] | None:
    """Return the weights of all, or None if there are no weights; it is an error if only some have weights."""
    there = [w for w in weights if w is not None]
    if there and len(there) != len(weights):
        raise ValueError(f"either all {what} must have weights or none, but {len(there)} of {len(weights)} have them")
    return there or None


def distinct(keys: Any, name: str) -> list[str]:
    """Return `keys` as a list of strings, which must be distinct."""
    if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
        raise TypeError(f"keys of a {name} must be a list of strings, got {keys!r:.80}")
    made: list[str] = list(keys)
    if len(set(made)) != len(made):
        twice = next(key for key in made if made.count(key) > 1)
        raise ValueError(f"keys of a {name} must be distinct, but {twice!r} is there {made.count(twice)} times")
    return made


def position(key: Any, keys: Sequence[str]) -> int:
    """Return the position of `key` in `keys`."""
    if key not in keys:
        raise KeyError(f"there is no key {key!r}; the keys are {list(keys)}")
    return keys.index(key)


def agree(name: str, given: Any, found: Any) -> None:
    """Raise an error unless a cached value that a caller passes is None or the value that was found."""
    if given is not None and given != found:
        raise ValueError(f"{name} must be {found}, got {given}")
