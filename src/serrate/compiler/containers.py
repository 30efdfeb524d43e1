"""Containers: what holds the tensors that a function takes and gives, besides tuples, lists and dicts.

These are dicts of other classes, dataclasses, and what is registered as a tree with torch. A program knows tuples,
lists and dicts alone; a result of another kind is a `Made` there, which says how it is put together.
"""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch.utils import _pytree as pytree

from serrate.tensor.tensor import Tensor


class Parts(NamedTuple):
    """A container, taken apart."""

    key: Any
    """What tells it from containers of the same class that are put together in another way."""
    parts: tuple[Any, ...]
    make: Callable[[Any], Any]
    """From other parts to such a container."""


class Made(tuple[Any, ...]):
    """A container among the outputs of a program: what puts it together, and its parts."""

    _fields = ()

    def __new__(cls, make: Callable[[Any], Any], *parts: Any) -> Made:
        """A container that `make` puts together from these parts."""
        return super().__new__(cls, (make, *parts))


def parts_of(given: Any) -> Parts | None:
    """The parts of a container; None for a tuple, a list, a dict, and for what is no container."""
    kind = type(given)
    if kind in (tuple, list, dict) or isinstance(given, (Tensor, type)):
        return None
    if isinstance(given, dict):
        return Parts(tuple(given), tuple(given.values()), _Refilled(given))
    if isinstance(given, (set, frozenset)):
        return Parts(None, tuple(given), kind)
    if kind in pytree.SUPPORTED_NODES and not (isinstance(given, tuple) and hasattr(given, "_fields")):
        parts, context = pytree.SUPPORTED_NODES[kind].flatten_fn(given)
        return Parts(_key(context), tuple(parts), _Unflattened(kind, context))
    if dataclasses.is_dataclass(given):
        names = tuple(each.name for each in dataclasses.fields(given) if hasattr(given, each.name))
        return Parts(names, tuple(getattr(given, name) for name in names), _Replaced(given, names))
    return None


@dataclasses.dataclass(frozen=True, eq=False)
class _Refilled:
    """Makes a dict of a class of its own, with other values."""

    given: Any

    def __call__(self, parts: Any) -> Any:
        made = copy.copy(self.given)
        for name, part in zip(self.given, parts, strict=True):
            dict.__setitem__(made, name, part)
        return made


@dataclasses.dataclass(frozen=True, eq=False)
class _Unflattened:
    """Makes what is registered as a tree."""

    kind: type
    context: Any

    def __call__(self, parts: Any) -> Any:
        return pytree.SUPPORTED_NODES[self.kind].unflatten_fn(list(parts), self.context)


@dataclasses.dataclass(frozen=True, eq=False)
class _Replaced:
    """Makes a dataclass with other fields."""

    given: Any
    names: tuple[str, ...]

    def __call__(self, parts: Any) -> Any:
        made = copy.copy(self.given)
        for name, part in zip(self.names, parts, strict=True):
            object.__setattr__(made, name, part)
        return made


def _key(context: Any) -> Any:
    """The context of a tree as a part of a signature."""
    if isinstance(context, (list, tuple)):
        return tuple(map(_key, context))
    try:
        hash(context)
    except TypeError:
        return repr(context)
    return context


def opened(given: Any) -> Any:
    """A result in which other containers than tuples, lists and dicts are `Made`."""
    found = parts_of(given)
    if found is not None:
        return Made(_without_tensors(found), *map(opened, found.parts))
    if isinstance(given, (tuple, list)):
        return _again(given, [opened(part) for part in given])
    return {name: opened(part) for name, part in given.items()} if isinstance(given, dict) else given


def closed(given: Any) -> Any:
    """A result in which each `Made` is the container that it stands for."""
    if isinstance(given, Made):
        return given[0]([closed(part) for part in given[1:]])
    if isinstance(given, (tuple, list)):
        return _again(given, [closed(part) for part in given])
    return {name: closed(part) for name, part in given.items()} if isinstance(given, dict) else given


def has_made(given: Any) -> bool:
    """Whether a `Made` is among the parts."""
    if isinstance(given, Made):
        return True
    parts = given.values() if isinstance(given, dict) else given if isinstance(given, (tuple, list)) else ()
    return any(map(has_made, parts))


def tensors_hidden_in(given: Any) -> Iterator[Any]:
    """What an object that is no container holds itself, if it is an object of a class with attributes."""
    if isinstance(given, (types.FunctionType, types.ModuleType, type)):
        return
    own = getattr(given, "__dict__", None)
    if isinstance(own, dict):
        yield from own.values()


def _again(given: Any, parts: list[Any]) -> Any:
    if isinstance(given, tuple) and hasattr(given, "_fields"):
        return type(given)(*parts)
    return tuple(parts) if isinstance(given, tuple) else parts


def _without_tensors(found: Parts) -> Callable[[Any], Any]:
    """What puts a container together, without the parts of the one that was seen."""
    make = found.make
    if isinstance(make, (_Refilled, _Replaced)):
        return type(make)(make([None] * len(found.parts)), *([make.names] if isinstance(make, _Replaced) else []))
    return make
