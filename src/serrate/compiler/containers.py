"""Containers: what holds the tensors that a function takes and gives, besides tuples, lists and dicts.

These are dicts of other classes, dataclasses, and what is registered as a tree with torch. A program knows tuples,
lists and dicts alone; a result of another kind is a `Made` there, which says how it is put together.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch.utils import _pytree as pytree

from serrate.compiler.constants import KEPT, Held, alike
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
    if isinstance(given, (set, frozenset)):
        return Parts(None, tuple(given), kind)
    if isinstance(given, dict):
        return _with_attributes(given)
    if kind in pytree.SUPPORTED_NODES and not (isinstance(given, tuple) and hasattr(given, "_fields")):
        parts, context = pytree.SUPPORTED_NODES[kind].flatten_fn(given)
        return Parts(alike(context), tuple(parts), _Unflattened(kind, context))
    if isinstance(given, (tuple, list)):
        return None if is_sequence(given) else _with_attributes(given)
    if dataclasses.is_dataclass(kind):
        names = tuple(each.name for each in dataclasses.fields(given) if hasattr(given, each.name))
        names += tuple(name for name in attributes_of(given) if name not in names)
        return Parts(names, tuple(getattr(given, name) for name in names), _Replaced(given, names))
    return None


def is_sequence(given: Any) -> bool:
    """Whether a thing is a tuple or a list, of any class, that has nothing but its entries."""
    kind = type(given)
    return kind is tuple or kind is list or (isinstance(given, (tuple, list)) and not attributes_of(given))


def attributes_of(given: Any) -> dict[str, Any]:
    """The attributes that an object itself has, as far as they are not those of `sr.jit`."""
    own = getattr(given, "__dict__", None)
    return {name: each for name, each in own.items() if name != KEPT} if isinstance(own, dict) else {}


def names_of(given: dict[Any, Any]) -> tuple[Any, ...]:
    """The names in a dict as a part of a signature, in their order."""
    return tuple([name if type(name) is str else alike(name) for name in given])


def _with_attributes(given: Any) -> Parts:
    """The parts of a dict, a list or a tuple of a class of its own: its entries, and then its attributes."""
    attributes = attributes_of(given)
    names = names_of(given) if isinstance(given, dict) else len(given)
    entries = given.values() if isinstance(given, dict) else given
    made_by = _factory(given.default_factory) if isinstance(given, collections.defaultdict) else None
    return Parts((names, tuple(attributes), made_by), (*entries, *attributes.values()), _Refilled(given))


def _factory(given: Any) -> Any:
    """What makes the missing entries of a dict as a part of a signature: functions of equal code are the same."""
    if isinstance(given, types.FunctionType) and not given.__closure__:
        return Held(given.__code__), Held(given.__globals__), alike((given.__defaults__, given.__kwdefaults__))
    return alike(given)


@dataclasses.dataclass(frozen=True, eq=False)
class _Refilled:
    """Makes a dict, a list or a tuple of a class of its own, with other entries and attributes."""

    given: Any

    def __call__(self, parts: Any) -> Any:
        given, count = self.given, len(self.given)
        made: Any = tuple.__new__(type(given), parts[:count]) if isinstance(given, tuple) else copy.copy(given)
        if isinstance(given, dict):
            for name, part in zip(given, parts[:count], strict=True):
                dict.__setitem__(made, name, part)
        elif isinstance(given, list):
            list.__setitem__(made, slice(None), parts[:count])
        if names := attributes_of(given):
            vars(made).update(zip(names, parts[count:], strict=True))
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


def held_by(given: Any) -> Any:
    """What containers hold, one inside of another: other parts in the same places are another result."""
    if isinstance(given, dict):
        return type(given), tuple((name, held_by(part)) for name, part in given.items())
    if isinstance(given, (tuple, list)):
        return type(given), tuple(map(held_by, given))
    found = None if isinstance(given, (set, frozenset)) else parts_of(given)
    return id(given) if found is None else (id(given), tuple(map(held_by, found.parts)))


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
    if hasattr(type(given), "n_sequence_fields"):  # as torch's functions of several results give
        return type(given)(parts)
    return tuple(parts) if isinstance(given, tuple) else parts


def _without_tensors(found: Parts) -> Callable[[Any], Any]:
    """What puts a container together, without the parts of the one that was seen."""
    make = found.make
    if isinstance(make, (_Refilled, _Replaced)):
        return type(make)(make([None] * len(found.parts)), *([make.names] if isinstance(make, _Replaced) else []))
    return make
