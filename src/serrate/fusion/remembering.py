"""What was found out about the contents of a tensor is remembered with it, until it is written to or gone.

Offsets are checked, and others computed from them, once for each tensor of offsets and not at each call. torch counts
in `_version` how often a tensor was written to, so that what was found out before is then forgotten.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch

T = TypeVar("T")
Memory = dict[Hashable, Any]

_known: dict[int, tuple[weakref.ref[torch.Tensor], int, Memory]] = {}  # by the identity of the tensor


def memory_of(tensor: torch.Tensor) -> Memory:
    """What is remembered about the contents of a tensor: a dictionary, which is another one after it was written to.

    A tensor of inference mode does not count how often it was written to, so that nothing about it is remembered.

    >>> import torch
    >>> offsets = torch.tensor([0, 2, 5])
    >>> memory_of(offsets)["last"] = 5
    >>> memory_of(offsets)
    {'last': 5}
    >>> offsets[-1] = 7
    >>> memory_of(offsets)
    {}
    """
    found = _known.get(id(tensor))
    if found is not None and found[0]() is tensor and found[1] == tensor._version:
        return found[2]
    if tensor.is_inference():
        return {}
    number = id(tensor)

    # `known` is an argument, as the names of this module are gone before the last tensors of a process are.
    def forget(gone: weakref.ref[torch.Tensor], known: dict[int, Any] = _known) -> None:
        last = known.get(number)
        if last is not None and last[0] is gone:  # another tensor may have come to lie there
            del known[number]

    made: Memory = {}
    _known[number] = weakref.ref(tensor, forget), tensor._version, made
    return made


def remembered(tensors: Sequence[torch.Tensor], key: Hashable, make: Callable[[], T]) -> T:
    """What `make` gives, which depends on the contents of these tensors and on `key`: made once for them."""
    memories = [memory_of(tensor) for tensor in tensors]
    found: tuple[list[Memory], T] | None = memories[0].get(key)
    if found is not None and all(mine is then for mine, then in zip(memories, found[0], strict=True)):
        return found[1]
    made = make()
    memories[0][key] = memories, made
    return made


def forgetting(tensor: torch.Tensor, error: Callable[[int], Exception]) -> Callable[[int], Exception]:
    """An error about the contents of a tensor which a device reports later. When it is raised, what is remembered of
    the tensor is forgotten, so that the next call looks at it and reports it again."""

    def raised(position: int) -> Exception:
        _known.pop(id(tensor), None)
        return error(position)

    return raised
