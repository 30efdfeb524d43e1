"""Outside: what a function finds besides its arguments, and how a compiled one knows that it is still the same.

That is what its closure and its defaults hold, the globals that it names, the attributes of the objects and modules
that it reaches, and the same of the functions that it calls. Tensors become inputs of the program; all else is part of
it, so that another value is another program. What nobody names in these functions does not count.

Each call looks whether the places that were read hold what they held; where one does not, the function is looked at
again, and what it finds decides which programs are its.
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
import itertools
import operator
import sys
import threading
import types
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from itertools import chain
from typing import Any

import numpy as np
import torch

from serrate.compiler.constants import KEPT, MOST, PLAIN, Held, Unreadable, alone, elements_of, slots
from serrate.compiler.naming import ASKING, is_installed, is_users, is_users_function, names_in
from serrate.tensor.tensor import Tensor

_OPENED = frozenset({"types", "argparse", "collections"})
"""Those of them whose objects are looked at, since they hold what a user put there."""
_FOLLOWED = 4096
"""Things that are looked at for one function; what is further away counts by its identity."""
_READ = 4096
"""Places that are read for one function, before what is further away counts by its identity."""
_INTO = 4
"""How far the things of installed packages are followed into each other."""
_STATES = 256
"""Different states of what is outside that are told apart before all of them are forgotten."""
_OURS = ("torch.", "serrate.")
_BASE = frozenset(vars(torch.nn.Module()))
_ENTRIES = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or"
_IMPLICIT = frozenset(
    f"__{name}__"
    for name in (
        "call get set delete getattr getattribute setattr delattr len length_hint getitem setitem delitem missing "
        "iter next reversed contains enter exit bool int float complex index round trunc floor ceil hash eq ne lt le "
        "gt ge neg pos abs invert instancecheck subclasscheck class_getitem str repr format "
        + " ".join(f"{name} r{name} i{name}" for name in _BINARY.split())
    ).split()
)
"""Methods that a function calls without naming them."""
_WRITTEN = frozenset({"__repr__", "__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__"})
"""Those that dataclasses have written for them. They name all attributes, of which few count."""
_MAKERS = frozenset({"__new__", "__init__", "__post_init__"})
"""Methods that make an object of a class."""
_NOTHING = object()
"""What is found in a place that has no such name."""
_CONTENT = operator.attrgetter("cell_contents")
_OF_FUNCTIONS = tuple(map(operator.attrgetter, ("__code__", "__defaults__", "__kwdefaults__")))
_numbers = itertools.count(1)


class _State:
    """What one look found, and where."""

    def __init__(self, walk: _Walk, token: int) -> None:
        self.token = token
        calls: list[Callable[[], Any]] = [functools.partial(get, name, _NOTHING) for get, name in walk.reads]
        calls += [functools.partial(get, each) for each in walk.functions for get in _OF_FUNCTIONS]
        calls += [functools.partial(_CONTENT, each) for each in walk.cells]
        calls += [functools.partial(type, each) for each in walk.objects]
        lacking = [(place, names.difference(place)) for place, names in walk.places.values()]
        calls += [functools.partial(place.keys().isdisjoint, names) for place, names in lacking if names]
        self._calls = tuple(calls)
        self._views = (*walk.views, *walk.sizes)
        self._full = tuple(each for each in walk.views if len(each))
        self._size = sum(map(len, self._views))
        self._held = tuple(self._now())
        self._arrays, self._elements = tuple(walk.arrays), tuple(map(elements_of, walk.arrays))
        places = [(getattr(get, "__self__", None), name) for get, name in walk.reads]
        places += [(place, name) for place, names in lacking for name in names]
        self._places = [(place, name) for place, name in places if isinstance(place, dict)]
        self._entries = [place.get(name, _NOTHING) for place, name in self._places]
        self._cells = [(cell, _CONTENT(cell)) for cell in walk.cells]
        self._containers = [(each, _entries_of(each)) for each in walk.views if type(each) in (list, dict, set)]

    def _now(self) -> Iterable[Any]:
        """What all places hold."""
        return chain(map(operator.call, self._calls), chain.from_iterable(self._full))

    def restore(self) -> None:
        """Let attributes, globals and containers hold what they held: what a trace did is done again by a call."""
        for (place, name), was in zip(self._places, self._entries, strict=True):
            if was is _NOTHING:
                place.pop(name, None)
            elif place.get(name, _NOTHING) is not was:
                place[name] = was
        for cell, was in self._cells:
            if _CONTENT(cell) is not was:
                cell.cell_contents = was
        for container, entries in self._containers:
            now = _entries_of(container)
            if len(now) != len(entries) or not all(map(operator.is_, now, entries)):
                container.clear()
                if isinstance(container, dict):
                    container.update(zip(entries[::2], entries[1::2], strict=True))
                else:
                    (container.extend if isinstance(container, list) else container.update)(entries)

    def holds(self) -> bool:
        """Whether all places hold what they held."""
        if sum(map(len, self._views)) != self._size:
            return False
        try:
            return all(map(operator.is_, self._now(), self._held)) and (
                not self._arrays or tuple(map(elements_of, self._arrays)) == self._elements
            )
        except (ValueError, RuntimeError, Unreadable):  # a cell was emptied, or another thread adds entries
            return False


def _entries_of(container: Any) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(container.items())) if isinstance(container, dict) else tuple(container)


class Outside:
    """What one function finds outside."""

    def __init__(self, function: Callable[..., Any], *, entirely: bool = False) -> None:
        """All attributes count if they do `entirely`, as those of an argument, which others read."""
        self._function = function
        self._names = frozenset({"__call__", "forward", *(ASKING if entirely else ())})
        self._tokens: dict[tuple[Any, ...], int] = {}
        self._state: _State | None = None
        self._lock = threading.Lock()
        self.names: set[str] = set()
        """The attributes and globals that the function and its helpers name."""
        self.asks_for_classes = False
        """Whether the classes of numbers decide what it does."""
        self.reason = ""
        """Why the function runs eagerly with what is found now; empty if it need not."""

    def key(self) -> int:
        """The number of what is found now: the same number stands for the same things, and for those of no other."""
        state = self._state
        if state is None or not state.holds():
            state = self._looked()
        return state.token

    def found(self) -> _State:
        """What is found now."""
        self.key()
        assert self._state is not None
        return self._state

    def _looked(self) -> _State:
        with self._lock:
            names = self._names
            while True:  # functions that are found name further attributes
                walk = _Walk(names)
                walk.run(self._function)
                if walk.named == names:
                    break
                names = frozenset(walk.named)
            if len(self._tokens) >= _STATES:
                self._tokens.clear()
            self.reason, self.names = walk.reason, walk.named | walk.outer
            self.asks_for_classes = walk.asks_for_classes
            if "fork_rng" in self.names:
                self.reason = "the function draws random numbers from a generator that it forks"
            known = tuple(walk.parts)
            if known not in self._tokens:
                self._tokens[known] = next(_numbers)
            self._state = _State(walk, self._tokens[known])
            return self._state


class _Walk:
    """One look at a function: the places that it reads, and what they hold."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.named: set[str] = set(names)
        self.outer: set[str] = set()
        self.reads: list[tuple[Callable[[Any, Any], Any], Any]] = []
        self.places: dict[int, tuple[Any, frozenset[str]]] = {}
        """Dicts of attributes and of globals, and the names that count there."""
        self.functions: list[types.FunctionType] = []
        self.objects: list[Any] = []
        self.cells: list[Any] = []
        self.views: list[Any] = []
        """Containers, all of whose entries count."""
        self.sizes: list[Any] = []
        """Containers that are too long for that."""
        self.arrays: list[Any] = []
        self.parts: list[Any] = []
        self.reason = ""
        self.asks_for_classes = False
        self.owner: Any = None
        self._read_before: set[tuple[int, str]] = set()
        self._classes: set[type] = set()
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no two of them have the same identity
        self._left: deque[Any] = deque()
        self._later: deque[Any] = deque()
        """Things of installed packages, which are looked at after all others."""

    def run(self, function: Any) -> None:
        """Look at a function and at all that it reaches."""
        self.owner = getattr(function, "__self__", None)
        self._see(function)
        for _ in range(1 + _INTO):
            while self._left:
                self._open(self._left.popleft())
            self._left, self._later = self._later, deque()

    def _see(self, given: Any) -> None:
        if isinstance(given, PLAIN):
            self.parts.append(alone(given))
            return
        if isinstance(given, types.MethodType):  # which is another object each time
            self._see(given.__self__)
            self._see(given.__func__)
            return
        if isinstance(given, (staticmethod, classmethod)):
            given = given.__func__
        number = self._numbers.setdefault(id(given), len(self._numbers))
        if number < len(self._kept):
            self.parts.append(number)
            return
        self._kept.append(given)
        self.parts.append(Held(given))
        if number < _FOLLOWED and len(self.reads) < _READ:
            (self._later if is_installed(_home(given)) else self._left).append(given)

    def _read(self, own: Any, name: str) -> None:
        """Look at what a dict holds of a name."""
        if (id(own), name) not in self._read_before:
            self._read_before.add((id(own), name))
            self.reads.append((own.get, name))
        self.parts.append(name)
        self._see(own.get(name, _NOTHING))

    def _read_by(self, get: Callable[[Any, Any], Any], name: str = "") -> None:
        """Look at what a function gives for a name."""
        self.reads.append((get, name))
        self._see(get(name, _NOTHING))

    def _open(self, given: Any) -> None:
        from serrate.compiler.function import Jitted

        if isinstance(given, torch.nn.Module):
            self._open_module(given)
        elif isinstance(given, (Tensor, torch.Tensor)):
            return
        elif isinstance(given, Jitted):
            self._see(given.function)
        elif isinstance(given, types.FunctionType):
            self._open_function(given)
        elif isinstance(given, (np.ndarray, bytearray, array)):
            self._open_array(given)
        elif isinstance(given, ContextVar):
            self._read_by(functools.partial(_current, given))
        elif isinstance(given, type):
            self._open_class(given)
        elif isinstance(given, types.ModuleType):
            if is_installed(given.__name__):
                self._named(vars(given), self.names)
            elif is_users(given.__name__):
                self._attributes(vars(given), self.names, all_of_them=hasattr(given, "__getattr__"))
        elif isinstance(given, (dict, types.MappingProxyType, list, tuple, set, frozenset, deque)):
            self._entries(given)
            self._open_object(given)
        elif isinstance(given, (operator.attrgetter, operator.methodcaller)):
            for each in given.__reduce__()[1]:
                self.named.update(str(each).split("."))
        else:
            for each in _inside(given):
                self._see(each)
            self._open_object(given)

    def _entries(self, given: Any) -> None:
        self.parts.append(len(given))
        if len(given) > MOST:
            self.sizes.append(given)
            return
        if isinstance(given, defaultdict):
            self._read_by(functools.partial(getattr, given), "default_factory")
        if isinstance(given, Mapping):
            self.views += [given, given.values()]
            for name, each in given.items():
                self._see(name)
                self._see(each)
            return
        if not isinstance(given, (tuple, frozenset)):
            self.views.append(given)
        for each in given:
            self._see(each)

    def _open_array(self, given: Any) -> None:
        try:
            self.parts.append(elements_of(given))
            self.arrays.append(given)
        except Unreadable as error:
            self.reason = str(error)

    def _open_function(self, function: types.FunctionType) -> None:
        if not is_users(function.__module__):
            return
        found, place = names_in(function.__code__), function.__globals__
        self.functions.append(function)
        self.parts.append(Held(function.__code__))
        self.named |= found.attributes
        self.asks_for_classes |= found.asks_for_classes
        self.outer.update(found.outer)
        own = [name for name in found.outer if name in place or not hasattr(builtins, name)]
        for name in own:
            self._read(place, name)
        self._lacks(place, frozenset(found.outer) - frozenset(own))
        for level, name in found.imported:
            self._import(level, name, place)
        for cell in function.__closure__ or ():
            self._open_cell(cell)
        if function.__defaults__:
            self._see(function.__defaults__)
        if function.__kwdefaults__:
            self._see(function.__kwdefaults__)
        if vars(function):
            self._attributes(vars(function), self.names | {"registry"})  # of functions that choose by a class

    def _open_cell(self, cell: Any) -> None:
        try:
            self._see(cell.cell_contents)
            self.cells.append(cell)
        except ValueError:  # it is empty yet
            self._read_by(functools.partial(_content, cell))

    def _import(self, level: int, name: str, place: dict[str, Any]) -> None:
        """Look at the modules that a function imports."""
        if level:
            name = importlib.util.resolve_name("." * level + name, place.get("__package__") or "")
        first = name.partition(".")[0]
        for each in dict.fromkeys([first, name]):
            if is_users(first):
                self._read(sys.modules, each)

    def _lacks(self, place: Any, names: frozenset[str]) -> None:
        """Note down names that count as soon as a place has them."""
        _, others = self.places.get(id(place), (place, frozenset()))
        self.places[id(place)] = place, others | names

    def _open_class(self, given: type) -> None:
        """Look at a class that a function reads, and may make objects of."""
        if not is_users(given.__module__):
            return
        if is_users(type(given).__module__):
            self._see(type(given))
        for kind in given.__mro__:
            if is_users(kind.__module__):
                self._see_class(kind)
                if not is_installed(kind.__module__):
                    self._named(vars(kind), _MAKERS)

    def _see_classes_of(self, given: Any) -> None:
        self.objects.append(given)
        self.parts.append(Held(type(given)))
        for kind in type(given).__mro__:
            if is_users(kind.__module__):
                self._see_class(kind)

    def _see_class(self, kind: type) -> None:
        """Look at the attributes of a class that somebody names, and at those that are called without a name."""
        if kind in self._classes:
            return
        self._classes.add(kind)
        own, names = vars(kind), self.names | _IMPLICIT
        if "__dataclass_fields__" in own:
            names -= _WRITTEN
        if is_installed(kind.__module__):
            self._named(own, self.names)
        else:
            self._attributes(own, names)
        if "__match_args__" in self.names:
            self.named.update(own.get("__match_args__", ()))

    def _open_object(self, given: Any) -> None:
        kind = type(given)
        if not is_users(kind.__module__, _OPENED) or is_users_function(given):
            return
        own = getattr(given, "__dict__", None)
        if isinstance(own, dict):
            self._attributes(own, self.names, all_of_them=_answers(kind))
        for each in kind.__mro__:
            for name in slots(each):
                self._read_by(functools.partial(getattr, given), name)
        self._see_classes_of(given)

    def _asks(self, kind: type | None = None) -> bool:
        """Whether somebody reads attributes whose names nobody sees, of anything or of objects of a class."""
        return bool(self.names & ASKING) or (kind is not None and _answers(kind))

    def _attributes(self, own: Any, names: frozenset[str], *, all_of_them: bool = False) -> None:
        """Look at the attributes of a thing that somebody names, or `all_of_them`."""
        if all_of_them or self._asks():
            self.views.append(own)
            names = names.union(name for name in own if not name.startswith("__"))
        self._named(own, names)

    def _named(self, own: Any, names: frozenset[str]) -> None:
        """Look at the attributes of these names, as soon as there are some."""
        self._lacks(own, names)
        for name in list(own):
            if name in names and name != KEPT:
                self._read(own, name)

    def _open_module(self, module: torch.nn.Module) -> None:
        """Look at a module and those inside: parameters, buffers, modes, hooks, and its own attributes."""
        own = vars(module)
        is_owner = module is self.owner
        if not is_owner and communicates(module):
            self.reason = f"the hooks of a {type(module).__name__} inside communicate in each call"
        for name in _BACKWARD_HOOKS:
            self.views.append(own[name])
            if own[name] and not is_owner:
                self.reason = f"a {type(module).__name__} inside has backward hooks, which compiled code never calls"
        for name in _ENTRIES:
            entries = own[name]
            self.views += [entries, entries.values()] if entries else [entries]
            self.parts.append(len(entries))
            for key, each in entries.items():
                if "hooks" not in name:
                    self.parts.append(key)
                if "hooks" in name and is_owner:  # they run around what is compiled
                    self.parts.append(Held(each))
                else:
                    self._see(each)
        names, others = {"training", *(self.names - _BASE)}, own.keys() - _BASE
        if self._asks(type(module)):
            self.views.append(own)
            names |= others
        elif any(kind.__module__.startswith(_OURS) and kind is not torch.nn.Module for kind in type(module).__mro__):
            names |= others  # functions of libraries read them, which nobody follows
        else:
            names.update(name for name in others if isinstance(own[name], PLAIN))
        self._named(own, frozenset(names))
        self._see_classes_of(module)


def communicates(module: torch.nn.Module) -> bool:
    """Whether a module exchanges tensors with other processes in each call, by what wraps it."""
    return any(kind.__name__ in _COMMUNICATING and not is_users(kind.__module__) for kind in type(module).__mro__)


_COMMUNICATING = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")


def _home(given: Any) -> str | None:
    """Where a thing is from; None for modules of torch's kind, which are looked at wherever they are from."""
    if isinstance(given, types.ModuleType):
        return given.__name__
    if isinstance(given, torch.nn.Module):
        return None
    home: str | None = (given if isinstance(given, (type, types.FunctionType)) else type(given)).__module__
    return home


def _answers(kind: type) -> bool:
    """Whether methods read attributes of the objects of a class whose names nobody sees."""
    return any(
        each.__module__ == "collections"
        or (is_users(each.__module__) and not vars(each).keys().isdisjoint(("__getattr__", "__getattribute__")))
        for each in kind.__mro__
    )


def _inside(given: Any) -> tuple[Any, ...]:
    """What an object of a library calls, or calls it with."""
    if isinstance(given, (functools.partial, functools.partialmethod)):
        return given.func, given.args, given.keywords
    if isinstance(given, property):
        return (given.fget,)
    if isinstance(given, functools.cached_property):
        return (given.func,)
    return (given.__wrapped__,) if isinstance(given, functools._lru_cache_wrapper) else ()


def _current(variable: ContextVar[Any], _: str, unset: Any) -> Any:
    return variable.get(unset)


def _content(cell: Any, _: str, empty: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return empty
