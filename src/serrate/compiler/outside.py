"""Outside: what a function finds besides its arguments, and how a compiled one knows that it is still the same.

That is what its closure and its defaults hold, the globals that it names, the attributes of the objects and modules
that it reaches, and the same of the functions that it calls. Tensors become inputs of the program; all else is part of
it, so that another value is another program. What nobody names in these functions does not count.

Each call looks whether the places that were read hold what they held; where one does not, the function is looked at
again, and what it finds decides which programs are its.
"""

from __future__ import annotations

import builtins
import dis
import functools
import operator
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch

from serrate.compiler.constants import DEEPEST, KEPT, MOST, PLAIN, Held, alone
from serrate.tensor.tensor import Tensor

_LIBRARIES = frozenset({"serrate", "torch", "numpy"}) | sys.stdlib_module_names
"""Packages whose functions are not followed: what they find outside is no concern of a user's function."""
_FOLLOWED = 4096
"""Things that are looked at for one function; what is further away counts by its identity."""
_STATES = 256
"""Different states of what is outside that are told apart before all of them are forgotten."""
_BASE = frozenset(vars(torch.nn.Module()))
_ENTRIES = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
_ASKING = frozenset({"getattr", "vars", "__dict__", "__getattr__", "__getattribute__", "attrgetter"})
"""Names by which a function reads attributes whose names nobody sees."""


@dataclass(frozen=True)
class _State:
    """What was found, and where."""

    reads: tuple[tuple[Callable[[Any], Any], Any], ...]
    """Functions of one argument, and that argument, which give what a place holds."""
    read: tuple[Any, ...]
    views: tuple[Any, ...]
    """Containers, all of whose entries count."""
    full: tuple[Any, ...]
    """Those that hold something."""
    viewed: tuple[Any, ...]
    token: int

    def holds(self) -> bool:
        """Whether all places hold what they held."""
        if not all(map(operator.is_, [get(name) for get, name in self.reads], self.read)):
            return False
        if sum(map(len, self.views)) != len(self.viewed):
            return False
        return all(map(operator.is_, chain.from_iterable(self.full), self.viewed))


class Outside:
    """What one function finds outside."""

    def __init__(self, function: Callable[..., Any], *, entirely: bool = False) -> None:
        """All attributes count if they do `entirely`, as those of an argument, which others read."""
        self._function = function
        self._names = frozenset({"__call__", "forward", *(_ASKING if entirely else ())})
        self._tokens: dict[tuple[Any, ...], int] = {}
        self._state: _State | None = None
        self._lock = threading.Lock()
        self._count = 0
        self.communicating = ""
        """The class of a module inside that communicates in each call; empty if there is none."""

    def key(self) -> int:
        """The number of what is found now: the same number stands for the same things."""
        state = self._state
        if state is None or not state.holds():
            state = self._looked()
        return state.token

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
            self.communicating = walk.communicating
            known = tuple(walk.parts)
            if known not in self._tokens:
                self._count += 1
                self._tokens[known] = self._count
            full = tuple(each for each in walk.views if len(each))
            self._state = _State(
                tuple(walk.reads), tuple(get(name) for get, name in walk.reads),
                tuple(walk.views), full, tuple(chain.from_iterable(full)), self._tokens[known],
            )  # fmt: skip
            return self._state


class _Walk:
    """One look at a function: the places that it reads, and what they hold."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.named: set[str] = set(names)
        self.reads: list[tuple[Callable[[Any], Any], Any]] = []
        self.views: list[Any] = []
        self.parts: list[Any] = []
        self.communicating = ""
        self.owner: Any = None
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no two of them have the same identity
        self._left: deque[tuple[Any, int]] = deque()

    def run(self, function: Any) -> None:
        """Look at a function and at all that it reaches."""
        self.owner = getattr(function, "__self__", None)
        self._see(function, 0)
        while self._left:
            self._open(*self._left.popleft())

    def _see(self, given: Any, depth: int) -> None:
        if isinstance(given, PLAIN):
            self.parts.append(alone(given))
            return
        if isinstance(given, types.MethodType):  # which is another object each time
            self._see(given.__self__, depth)
            self._see(given.__func__, depth)
            return
        if isinstance(given, (staticmethod, classmethod)):
            given = given.__func__
        number = self._numbers.setdefault(id(given), len(self._numbers))
        if number < len(self._kept):
            self.parts.append(number)
            return
        self._kept.append(given)
        self.parts.append(Held(given))
        if depth < DEEPEST and number < _FOLLOWED:
            self._left.append((given, depth + 1))

    def _read(self, get: Callable[[Any], Any], name: Any, depth: int) -> None:
        self.reads.append((get, name))
        self._see(get(name), depth)

    def _open(self, given: Any, depth: int) -> None:
        from serrate.compiler.function import Jitted

        if isinstance(given, torch.nn.Module):
            self._open_module(given, depth)
        elif isinstance(given, (Tensor, torch.Tensor)):
            return
        elif isinstance(given, Jitted):
            self._see(given.function, depth)
        elif isinstance(given, types.FunctionType):
            self._open_function(given, depth)
        elif isinstance(given, functools.partial):
            for each in (given.func, *given.args):
                self._see(each, depth)
            self._entries(given.keywords, depth)
        elif isinstance(given, property):
            self._see(given.fget, depth)
        elif isinstance(given, type):
            if is_users(given.__module__):
                self._open_named(given, [vars(given)], depth)
        elif isinstance(given, types.ModuleType):
            if is_users(given.__name__):
                self._open_named(given, [vars(given)], depth)
        elif isinstance(given, (dict, list, tuple, set, frozenset)):
            self._entries(given, depth)
            self._open_object(given, depth)
        else:
            self._open_object(given, depth)

    def _entries(self, given: Any, depth: int) -> None:
        if len(given) > MOST:
            return
        if isinstance(given, dict):
            self.views += [given, given.values()]
            self.parts.append(len(given))
            for name, each in given.items():
                self._see(name, depth)
                self._see(each, depth)
            return
        if not isinstance(given, (tuple, frozenset)):
            self.views.append(given)
        self.parts.append(len(given))
        for each in given:
            self._see(each, depth)

    def _open_function(self, function: types.FunctionType, depth: int) -> None:
        if not is_users(function.__module__):
            return
        outer, attributes = names_in(function.__code__)
        self.named |= attributes
        for name in outer:
            if name in function.__globals__ or not hasattr(builtins, name):
                self._read(function.__globals__.get, name, depth)
        for cell in function.__closure__ or ():
            self._read(_content, cell, depth)
        if function.__defaults__:
            self._see(function.__defaults__, depth)
        if function.__kwdefaults__:
            self._see(function.__kwdefaults__, depth)

    def _open_object(self, given: Any, depth: int) -> None:
        kind = type(given)
        if not is_users(kind.__module__, {"types", "argparse"}) or is_users_function(given):
            return
        own = getattr(given, "__dict__", None)
        self._open_named(given, [own] if isinstance(own, dict) else [], depth)
        for each in kind.__mro__:
            for name in _slots(each):
                self._read(functools.partial(_attribute, given), name, depth)
            if is_users(each.__module__):
                self._see(each, depth)

    def _open_named(self, given: Any, places: list[Any], depth: int) -> None:
        """Look at the attributes of a thing that somebody names, among them those that its class has."""
        asks = bool(self.names & _ASKING) or hasattr(type(given), "__getattr__")
        for own in places:
            for name in list(own):
                if name != KEPT and (name in self.names or (asks and not name.startswith("__"))):
                    self._read(own.get, name, depth)
            if not isinstance(given, (type, types.ModuleType)):
                for name in self.names:
                    if name not in own and hasattr(type(given), name):
                        self.reads.append((own.get, name))

    def _open_module(self, module: torch.nn.Module, depth: int) -> None:
        """Look at a module and those inside: parameters, buffers, modes, hooks, and its own attributes."""
        own = vars(module)
        if communicates(module) and module is not self.owner:
            self.communicating = type(module).__name__
        for name in _ENTRIES:
            entries = own[name]
            self.views.append(entries.values())
            self.parts.append(len(entries))
            for each in entries.values():
                if "hooks" in name:  # what hooks note down for themselves is theirs
                    self.parts.append(Held(each))
                else:
                    self._see(each, 0 if name == "_modules" else depth)
        self._read(own.get, "training", depth)
        for name, each in list(own.items()):
            if name not in _BASE and (isinstance(each, PLAIN) or name in self.names):
                self._read(own.get, name, depth)
        for kind in type(module).__mro__:
            if is_users(kind.__module__):
                self._see(kind, depth)


def communicates(module: torch.nn.Module) -> bool:
    """Whether a module exchanges tensors with other processes in each call, by what wraps it."""
    return any(kind.__name__ in _COMMUNICATING and not is_users(kind.__module__) for kind in type(module).__mro__)


_COMMUNICATING = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")


def is_users(module: str | None, also: Iterable[str] = ()) -> bool:
    """Whether a module is the user's, and not one of a library that stays as it is."""
    root = (module or "").partition(".")[0]
    return root not in _LIBRARIES or root in also


def is_users_function(given: Any) -> bool:
    """Whether a thing is a function that is no function of Python."""
    return isinstance(given, (types.BuiltinFunctionType, types.MethodDescriptorType))


@functools.lru_cache(4096)
def names_in(code: types.CodeType) -> tuple[tuple[str, ...], frozenset[str]]:
    """The globals that a function names, and the attributes; those of functions inside of it too."""
    outer: dict[str, None] = {}
    attributes: set[str] = set()
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            outer[each.argval] = None
            if each.argval in _ASKING:
                attributes.add(each.argval)
        elif each.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            attributes.add(each.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, named = names_in(constant)
            outer |= dict.fromkeys(inner)
            attributes |= named
    return tuple(outer), frozenset(attributes)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None


def _attribute(given: Any, name: str) -> Any:
    return getattr(given, name, None)


def _slots(kind: type) -> tuple[str, ...]:
    names = kind.__dict__.get("__slots__", ())
    return tuple(each for each in ((names,) if isinstance(names, str) else names) if not each.startswith("__"))
