"""Constants: things that are no tensors, as parts of a signature, by what they hold where that says all.

Numbers, texts and their like count by value. All else counts by its identity, with what it holds now, so that an object
that was changed is another one.
"""

from __future__ import annotations

import enum
import types
from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
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
_LARGEST = 1 << 16
"""Bytes of an array of numpy that are compared in each call."""


class Held:
    """An object as a part of a signature: told from others by its identity, and kept so that it stays its own."""

    __slots__ = ("given",)

    def __init__(self, given: Any) -> None:
        self.given = given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and other.given is self.given

    def __hash__(self) -> int:
        return id(self.given)


class Unreadable(TypeError):
    """This error is raised for a thing that may change at any time, where nobody could see in each call that it did."""


def seen(given: Any, depth: int = 0) -> Any:
    """A thing as a part of a signature: plain values by value, all else by identity and by what it holds now."""
    if isinstance(given, PLAIN):
        return alone(given)
    if isinstance(given, (set, frozenset)):
        return type(given), frozenset(seen(each, depth + 1) for each in given)
    if isinstance(given, (np.ndarray, np.generic, bytearray, array)):
        return elements_of(given)
    held = contents(given)
    if held is None or depth >= DEEPEST:
        return Held(given)
    return Held(given), tuple(seen(each, depth + 1) for each in held)


def alike(given: Any, depth: int = 0) -> Any:
    """A thing as a part of a signature, where equal tuples, lists, dicts and frozen dataclasses are the same."""
    if depth < DEEPEST:
        if type(given) is dict:
            return dict, tuple((alike(name, depth + 1), alike(each, depth + 1)) for name, each in given.items())
        if isinstance(given, (tuple, list)) and not getattr(given, "__dict__", None):
            return type(given), tuple(alike(each, depth + 1) for each in given)
        if is_frozen(given):
            names = dict.fromkeys([*given.__dataclass_fields__, *getattr(given, "__dict__", ())])
            return type(given), tuple((name, alike(getattr(given, name, None), depth + 1)) for name in names)
    return seen(given, depth)


def alone(given: Any) -> Any:
    """A plain value, told from equal ones of other types, -0.0 from 0.0, and ranges from others of the same numbers."""
    return type(given), repr(given) if isinstance(given, (float, complex, range)) else given


def elements_of(given: Any) -> Any:
    """An array or a number of numpy, or an array of bytes, as a part of a signature: by its elements."""
    if isinstance(given, (bytearray, array)):
        size, kind = memoryview(given).nbytes, getattr(given, "typecode", "")
    else:
        size, kind = given.nbytes, (given.dtype.str, given.shape)
        if given.dtype.hasobject:
            raise Unreadable("an array of objects may have changed, which nobody looks for in each call")
    if size > _LARGEST:
        raise Unreadable(f"an array of {size} bytes may have changed, which nobody looks for in each call")
    return type(given), kind, bytes(given) if isinstance(given, bytearray) else given.tobytes()


def is_frozen(given: Any) -> bool:
    """Whether a thing is a frozen dataclass."""
    parameters = getattr(type(given), "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def contents(given: Any) -> Iterable[Any] | None:
    """What a container or an object holds now, with the names of attributes; None if nobody looks into it."""
    if isinstance(given, (Tensor, torch.Tensor, torch.nn.Module, type, types.ModuleType)) or is_function(given):
        return None
    parts: list[Any] = []
    if isinstance(given, dict):
        parts = [*given, *given.values()]
    elif isinstance(given, (list, tuple, set, frozenset)):
        parts = [*given]
    own = getattr(given, "__dict__", None)
    if isinstance(own, dict):
        names = [name for name in own if name != KEPT]
        parts += [*names, *(own[name] for name in names)]
    parts += slots_of(given)
    return parts if len(parts) <= 3 * MOST else None


def slots_of(given: Any) -> list[Any]:
    """The attributes of an object that its class has slots for, where they are set, with their names."""
    names = [name for kind in type(given).__mro__ for name in slots(kind) if hasattr(given, name)]
    return [*names, *(getattr(given, name) for name in names)]


def slots(kind: type) -> tuple[str, ...]:
    """The names of the attributes that a class itself has slots for."""
    names = kind.__dict__.get("__slots__", ())
    return tuple(each for each in ((names,) if isinstance(names, str) else names) if not each.startswith("__"))


def is_function(given: Any) -> bool:
    """Whether a thing is a function, of Python or of C."""
    return isinstance(given, (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType))
