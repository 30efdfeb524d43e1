"""Naming: what the code of a function names, and whose the modules are that it comes from."""

from __future__ import annotations

import dis
import functools
import os
import sys
import sysconfig
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_LIBRARIES = frozenset({"serrate", "torch", "numpy"}) | sys.stdlib_module_names
"""Packages whose functions are not followed: what they find outside is no concern of a user's function."""
ASKING = frozenset({"getattr", "vars", "dir", "__dict__", "__getattr__", "__getattribute__", "attrgetter"})
"""Names by which a function reads attributes whose names nobody sees."""


def is_users(module: str | None, also: Iterable[str] = ()) -> bool:
    """Whether a module is the user's, and not one of a library that stays as it is."""
    root = (module or "").partition(".")[0]
    return root not in _LIBRARIES or root in also


def is_installed(module: str | None) -> bool:
    """Whether a module is one that was installed, of which only what somebody names is looked at."""
    return is_users(module) and _is_installed((module or "").partition(".")[0])


@functools.lru_cache(1024)
def _is_installed(root: str) -> bool:
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return any(file.startswith(place) for place in _INSTALLED)


_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))


def is_users_function(given: Any) -> bool:
    """Whether a thing is a function that is no function of Python."""
    return isinstance(given, (types.BuiltinFunctionType, types.MethodDescriptorType))


@dataclass(frozen=True)
class Names:
    """The names in the code of a function, and of those inside of it."""

    outer: tuple[str, ...]
    """Globals."""
    attributes: frozenset[str]
    imported: tuple[tuple[int, str], ...]
    """Modules, with the number of dots before them."""
    asks_for_classes: bool = False
    """Whether it compares what `type` gives with a class of numbers."""


@functools.lru_cache(4096)
def names_in(code: types.CodeType) -> Names:
    """The names that the code of a function has."""
    outer: dict[str, None] = {}
    attributes: set[str] = set()
    imported: dict[tuple[int, str], None] = {}
    steps = list(dis.get_instructions(code))
    for place, each in enumerate(steps):
        if each.opname in _GLOBAL:
            outer[each.argval] = None
            if each.argval in ASKING:
                attributes.add(each.argval)
            elif each.argval == "hasattr":
                attributes.update(text for text in code.co_consts if isinstance(text, str) and text.isidentifier())
        elif each.opname in _ATTRIBUTE:
            attributes.add(each.argval)
        elif each.opname == "IMPORT_NAME":
            imported[steps[place - 2].argval, each.argval] = None
        elif each.opname == "MATCH_CLASS":
            attributes.update(("__match_args__", *steps[place - 1].argval))
    asks = _compares_classes(steps)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = names_in(constant)
            asks |= inner.asks_for_classes
            outer |= dict.fromkeys(inner.outer)
            attributes |= inner.attributes
            imported |= dict.fromkeys(inner.imported)
    return Names(tuple(outer), frozenset(attributes), tuple(imported), asks)


def _compares_classes(steps: list[dis.Instruction]) -> bool:
    """Whether instructions compare what `type` gives with a class of numbers: `type(n) is int`, `type(n) in (int,)`."""
    loaded = {place: each.argval for place, each in enumerate(steps) if each.opname in _GLOBAL}
    asked = [place for place, name in loaded.items() if name == "type"]
    classes = [place for place, name in loaded.items() if name in ("int", "float", "complex")]
    compared = [place for place, each in enumerate(steps) if each.opname in ("IS_OP", "COMPARE_OP", "CONTAINS_OP")]
    return any(
        max(one, other) < place <= min(one, other) + _NEAR for one in asked for other in classes for place in compared
    )


_NEAR = 16
"""Instructions in which a comparison of classes stands."""

_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"})
