"""Tickets: tensors of one number, for which a graph of torch's compilers can hold what is no tensor.

The record of a library call is a Python object that the way back needs. A ticket stands for it in a graph. The memory
of the ticket holds the record, so that both are freed together, whatever views and copies of the tensor are made.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch


class _Kept(np.ndarray):
    """The memory of a ticket."""

    record: torch.Tensor


_KEPT: WeakValueDictionary[int, _Kept] = WeakValueDictionary()
_numbers = itertools.count()


def ticket(record: torch.Tensor) -> torch.Tensor:
    """A ticket for a record."""
    number = next(_numbers)
    memory = np.array([number]).view(_Kept)
    memory.record = record
    _KEPT[number] = memory
    return torch.from_numpy(memory)


def record_of(given: torch.Tensor) -> torch.Tensor:
    """The record that a ticket stands for."""
    memory = _KEPT.get(int(given))
    if memory is None:
        raise RuntimeError("the record of a library call was freed before the way back asked for it")
    return memory.record


def held(made: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors that the records among some tensors were made of, and those that they give."""
    for each in made:
        tape = getattr(each, "tape", None)
        if tape is not None:
            yield from tape.tensors()
