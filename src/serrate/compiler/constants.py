"""Constants: things that are no tensors, as parts of a signature, by what they hold where that says all.

Numbers, texts and their like count by value. All else counts by its identity, with what it holds now, so that an object
that was changed is another one.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from typing import Any

import torch

from serrate.tensor.tensor import Tensor

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, enum.Enum, range, type(Ellipsis))
"""What counts by its value."""
MOST = 64
"""Entries of a container, and attributes of an object, that are looked at; more are told by its identity alone."""
DEEPEST = 6
"""How many objects inside of each other are looked at."""
KEPT = "_serrate_jitted"
"""The attribute of an object that keeps the compiled functions of its methods."""


class Held:
    """An object as a part of a signature: told from others by its identity, and kept so that it stays its own."""

    __slots__ = ("given",)

    def __init__(self, given: Any) -> None:
        self.given = given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and other.given is self.given

    def __hash__(self) -> int:
        return id(self.given)


def seen(given: Any, depth: int = 0) -> Any:
    """A thing as a part of a signature: plain values by value, all else by identity and by what it holds now."""
    if isinstance(given, PLAIN):
        return alone(given)
    if isinstance(given, (set, frozenset)):
        return type(given), frozenset(seen(each, depth + 1) for each in given)
    held = contents(given)
    if held is None or depth >= DEEPEST:
        return Held(given)
    return Held(given), tuple(seen(each, depth + 1) for each in held)


def alone(given: Any) -> Any:
    """A plain value, told from equal ones of other types, and -0.0 from 0.0."""
    return type(given), repr(given) if isinstance(given, (float, complex)) else given


def contents(given: Any) -> Iterable[Any] | None:
    """What a container or an object holds now, without names; None if nobody looks into it."""
    if isinstance(given, (Tensor, torch.Tensor, torch.nn.Module, type, types.ModuleType)) or is_function(given):
        return None
    parts: list[Any] = []
    if isinstance(given, dict):
        parts = [*given, *given.values()]
    elif isinstance(given, (list, tuple, set, frozenset)):
        parts = [*given]
    own = getattr(given, "__dict__", None)
    if isinstance(own, dict):
        parts += [each for name, each in own.items() if name != KEPT]
    parts += slots_of(given)
    return parts if len(parts) <= 2 * MOST else None


def slots_of(given: Any) -> list[Any]:
    """The attributes of an object that its class has slots for, where they are set."""
    names = [
        name
        for kind in type(given).__mro__
        for name in _names(kind.__dict__.get("__slots__", ()))
        if not name.startswith("__")
    ]
    return [getattr(given, name) for name in names if hasattr(given, name)]


def _names(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def is_function(given: Any) -> bool:
    """Whether a thing is a function, of Python or of C."""
    return isinstance(given, (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType))
