"""Every name of the array API, function, attribute, method or operator: it is there, and is called in the same way."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import array_api_strict as strict
import pytest

import serrate as sr

OWN = {"Device", "ArrayAPIStrictFlags", "__version__"} | {name for name in strict.__all__ if "flags" in name}
NEWER = {"isin"} - set(sr.__all__)  # of 2025.12; `sr.broadcast_shapes` is there already
NAMES = [name for name in strict.__all__ if name not in OWN | NEWER]
ARRAY = type(strict.asarray(0))
MEMBERS = [
    name
    for name in dir(ARRAY)
    if name not in dir(object) and (not name.startswith("_") or name.startswith("__")) and name not in ("__slots__",)
]
# What is no part of the standard: how array_api_strict itself is made, and how numpy reads it.
MEMBERS = [name for name in MEMBERS if name not in ("__annotations__", "__module__", "__weakref__", "__buffer__")]
COMPARISONS = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]


def functions(ours: Any, theirs: Any, names: list[str]) -> list[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    found = [(name, getattr(ours, name, None), getattr(theirs, name)) for name in names]
    return [(n, mine, each) for n, mine, each in found if inspect.isfunction(each) and n != "__new__"]


def differences(ours: Callable[..., Any], theirs: Callable[..., Any]) -> list[str]:
    """How the call of `ours` differs from that of `theirs`; further parameters with defaults are allowed."""
    mine = dict(inspect.signature(ours).parameters)
    found = []
    ordered = [p.name for p in inspect.signature(theirs).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    if [name for name in mine if name in ordered] != ordered:
        found.append(f"positional parameters {list(mine)} instead of {ordered}")
    for name, wanted in inspect.signature(theirs).parameters.items():
        got = mine.pop(name, None)
        if got is None:
            found.append(f"no {name}")
        elif got.kind is not wanted.kind and not (name == "self" or got.kind is got.POSITIONAL_OR_KEYWORD):
            found.append(f"{name} is {got.kind.description}, not {wanted.kind.description}")
        elif (got.default is got.empty) != (wanted.default is wanted.empty) and got.default is got.empty:
            found.append(f"{name} has no default")
    found += [f"{p.name} has no default" for p in mine.values() if p.default is p.empty and p.kind not in (2, 4)]
    return found


def test_every_name_is_there():
    missing = [name for name in NAMES if not hasattr(sr, name)]
    for extension in ("linalg", "fft"):
        home = getattr(sr, extension, None)
        missing += [f"{extension}.{n}" for n in getattr(strict, extension).__all__ if not hasattr(home, n)]
    assert missing == []
    assert [name for name in NAMES if name not in sr.__all__] == []


def test_every_attribute_method_and_operator_is_there():
    assert [name for name in MEMBERS + COMPARISONS if name not in dir(sr.Tensor)] == []
    x = sr.ones((2, 3))
    assert [name for name in ("dtype", "device", "mT", "T", "ndim", "shape", "size") if not hasattr(x, name)] == []


def test_functions_are_called_alike():
    wrong = {n: d for n, ours, theirs in functions(sr, strict, NAMES) if ours and (d := differences(ours, theirs))}
    assert wrong == {}


@pytest.mark.parametrize("extension", ["linalg", "fft"])
def test_functions_of_extensions_are_called_alike(extension):
    ours, theirs = getattr(sr, extension), getattr(strict, extension)
    found = functions(ours, theirs, list(theirs.__all__))
    assert len(found) > 10
    assert {n: d for n, mine, each in found if mine and (d := differences(mine, each))} == {}


def test_methods_are_called_alike():
    # Operators take their operand by position: what it is called is nobody's business.
    found = functions(sr.Tensor, ARRAY, MEMBERS)
    assert len(found) > 40
    wrong = {}
    for name, ours, theirs in found:
        if name == "to_device":  # the standard has `stream` by keyword only, array_api_strict by position too
            assert inspect.signature(ours).parameters["stream"].kind is inspect.Parameter.KEYWORD_ONLY
            continue
        if difference := differences(ours, theirs):
            wrong[name] = difference
    assert wrong == {}


def test_a_difference_would_be_found():
    def theirs(x, /, *, axis=None):
        pass

    def other_name(x, /, *, dim=None):
        pass

    def no_default(x, /, *, axis):
        pass

    def another(x, y, /, *, axis=None):
        pass

    def by_position(x, axis=None, /):
        pass

    def more(x, /, *, axis=None, fill=0):
        pass

    assert differences(theirs, theirs) == differences(more, theirs) == []
    assert all(differences(each, theirs) for each in (other_name, no_default, another, by_position))
