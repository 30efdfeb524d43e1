"""Questions about types that were answered are remembered: what a call gives, and what a body calls.

An answer follows from the types in its question alone, so it holds for every program that asks the same. The questions
of one piece of work can be noted down: with their answers they are what a later process begins with, which then runs
nothing on tensors without elements (`program.abstract`), and need not even import what that takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from serrate.program.canonical import canonical
from serrate.program.program import replaced
from serrate.program.types import TensorType, Value
from serrate.tensor import regions

MOST = 1 << 14
"""How many answers are kept; of more, the oldest are forgotten."""
LONGEST = 1 << 16
"""The bytes of the longest question that is kept: one may hold a tensor."""
_answers: dict[bytes, Any] = {}
_notes: ContextVar[dict[bytes, Any] | None] = ContextVar("serrate notes", default=None)


def question(*parts: Any) -> bytes | None:
    """A question as a key, the same in every process. None if it holds something that has no name in another process.

    Values count by their types and by which of them are the same. What torch was told for all calls is a part of it:
    the default dtype, where new tensors are made, and which dtypes autocast casts to.
    """
    places: dict[Value, int] = {}

    def numbered(part: Any) -> Any:
        if isinstance(part, Value):
            return numbered(part.type), places.setdefault(part, len(places))
        return dataclasses.replace(part, program=None) if isinstance(part, TensorType) else part

    casts = tuple(torch.get_autocast_dtype(on) for on in ("cpu", "cuda") if torch.is_autocast_enabled(on))
    written = canonical((torch.get_default_dtype(), regions.default(), casts, replaced(parts, numbered)))
    return None if written is None or len(written) > LONGEST else written


def answer_to(asked: bytes | None, program: int | None) -> Any:
    """What was found before, in terms of the types of a program; None if nothing was."""
    if asked is None:
        return None
    found = _answers.get(asked)
    if found is None:
        return None
    _note(asked, found)
    return _of_program(found, program)


def remember(asked: bytes | None, found: Any) -> None:
    """Keep the answer to a question."""
    if asked is None:
        return
    while len(_answers) >= MOST:
        _answers.pop(next(iter(_answers)), None)
    _answers[asked] = found
    _note(asked, found)


@contextmanager
def noted(known: dict[bytes, Any]) -> Iterator[dict[bytes, Any]]:
    """Note down all questions that are answered in here, which may begin with some that are `known`."""
    for asked, found in known.items():
        _answers.setdefault(asked, found)
    notes: dict[bytes, Any] = {}
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def _note(asked: bytes, found: Any) -> None:
    notes = _notes.get()
    if notes is not None:
        notes[asked] = found


def _of_program(found: Any, program: int | None) -> Any:
    """An answer whose types are of another program, as those of this one."""

    def stamped(part: Any) -> Any:
        if isinstance(part, Value):
            kind = stamped(part.type)
            return part if kind is part.type else Value(kind, part.name)
        if isinstance(part, TensorType) and part.program != program:
            return dataclasses.replace(part, program=program)
        return part

    return replaced(found, stamped)
