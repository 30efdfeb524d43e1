"""What TorchRec's constructors leave unchecked: lengths and offsets that cut the values, weights and keys that fit."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from serrate.errors import DeviceMismatchError, OffsetsDeviceError, RaggednessError
from serrate.tensor.partition import Partition


def cut(values: Any, lengths: Any, offsets: Any, name: str) -> Partition:
    """The rows of packed `values`; where both lengths and offsets are given they must say the same."""
    if not isinstance(values, torch.Tensor):
        raise TypeError(f"values of a {name} must be a torch.Tensor, got {type(values).__name__}")
    if values.ndim == 0:
        raise RaggednessError(f"values of a {name} must have at least one axis, the packed one; got a 0-d tensor")
    lengths, offsets = _integers(lengths, values, "lengths"), _integers(offsets, values, "offsets")
    if offsets is None:
        if lengths is None:
            raise ValueError(f"a {name} needs lengths or offsets, got neither")
        return Partition.from_lengths(lengths, values.shape[0], name=f"lengths of a {name}")
    if offsets.numel() == 0:  # what TorchRec's own empty() and split() give for no rows
        offsets = offsets.new_zeros(1)
    made = Partition.from_offsets(offsets, values.shape[0], name=f"offsets of a {name}")
    if lengths is not None and not made.same_as(Partition.from_lengths(lengths)):
        raise RaggednessError(f"lengths and offsets must cut alike, got lengths {lengths} and offsets {offsets}")
    return made


def as_int(given: Any, name: str) -> int:
    """`given` as an int, where it is a whole number; a bool is none."""
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"{name} must be an integer, got {given!r:.60}")
    return operator.index(given)


def _integers(given: Any, values: torch.Tensor, name: str) -> torch.Tensor | None:
    """A vector of integers; an empty one of any dtype passes, since `torch.tensor([])` holds floats."""
    if given is None:
        return None
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(given).__name__}")
    if given.device != values.device:
        raise OffsetsDeviceError(f"{name} lie on {given.device}, values on {values.device}")
    made: torch.Tensor = given
    if given.is_floating_point() and given.numel() == 0:
        made = given.to(torch.int64)
    if made.dtype not in (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"{name} must be integers, got {given.dtype}")
    return made


def weights_for(values: torch.Tensor, weights: Any) -> torch.Tensor | None:
    """`weights`, one for each of the values."""
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
        raise DeviceMismatchError(f"weights lie on {weights.device}, values on {values.device}")
    return weights


def all_of(things: Iterable[Any], kind: type, name: str) -> None:
    """What a function joins must be of this library's class."""
    for thing in things:
        if not isinstance(thing, kind):
            theirs = f"; {kind.__name__}.from_torchrec makes one of it" if type(thing).__name__ == kind.__name__ else ""
            raise TypeError(f"{name} takes Serrate's {kind.__name__}s, got {_full_name(thing)}{theirs}")


def _full_name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__name__}"


def all_or_none(weights: Sequence[torch.Tensor | None], what: str) -> list[torch.Tensor] | None:
    """The weights of all, or None if none has any."""
    there = [w for w in weights if w is not None]
    if there and len(there) != len(weights):
        raise ValueError(f"{what}: either all have weights or none, but {len(there)} of {len(weights)} have")
    return there or None


def distinct(keys: Any, name: str) -> list[str]:
    """`keys` as a list of strings, each there once."""
    if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
        raise TypeError(f"keys of a {name} must be a list of strings, got {keys!r:.80}")
    made: list[str] = list(keys)
    if len(set(made)) != len(made):
        twice = next(key for key in made if made.count(key) > 1)
        raise ValueError(f"keys of a {name} must be distinct, but {twice!r} is there {made.count(twice)} times")
    return made


def position(key: Any, keys: Sequence[str]) -> int:
    """Where `key` stands in `keys`."""
    if key not in keys:
        raise KeyError(f"no key {key!r}; there are {list(keys)}")
    return keys.index(key)


def agree(name: str, given: Any, found: Any) -> None:
    """A cache that a caller hands in must hold what is found."""
    if given is not None and given != found:
        raise ValueError(f"{name} must be {found}, got {given}")
