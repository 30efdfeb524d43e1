"""Signatures: what of the arguments of a call decides about the program, and never lengths or batch sizes.

A signature has two parts. The *skeleton* says what kind of things the arguments are. The *variables* are the numbers
among them: sizes of features, and Python numbers. They are parts of the signature until one of them changes; from then
on it is an input of the program, and no signature asks for it.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Iterator
from typing import Any

import torch

from serrate.compiler.constants import Held, Unreadable, alike, seen
from serrate.compiler.containers import is_sequence, names_of, parts_of
from serrate.compiler.naming import is_users
from serrate.compiler.outside import Outside
from serrate.tensor.structure import DENSE, Ragged, Structure
from serrate.tensor.tensor import Tensor

Place = tuple[int, int]
"""A number among the variables: which variable, and which of its sizes; -1 for a Python number."""
_PLAIN = (type(None), bool, str, bytes, torch.dtype, torch.device, type(Ellipsis))


class Arguments:
    """The arguments of a call, taken apart."""

    __slots__ = ("arguments", "named", "names", "numbers", "partitions", "skeleton", "static", "tensors", "variables")

    def __init__(self, arguments: tuple[Any, ...], named: dict[str, Any], static: frozenset[Any]) -> None:
        self.arguments, self.named, self.static = arguments, named, static
        self.tensors: list[Any] = []
        self.names: list[str] = []
        self.numbers: list[Any] = []
        self.skeleton: list[Any] = []
        self.variables: list[Any] = []
        self.partitions: dict[int, int] = {}
        for place, each in enumerate(arguments):
            if static and place in static:
                self._look_at_static(each)
            else:
                self._look(each)
        for name, each in named.items():
            self.skeleton.append(("name", name))
            if static and name in static:
                self._look_at_static(each)
            else:
                self._look(each)

    def _look(self, part: Any) -> None:
        kind = type(part)
        if kind is Tensor:
            values, structure = part.values, part.structure
            self.tensors.append(part)
            if structure is DENSE:
                shape = values.shape
                self.skeleton.append(
                    (Tensor, values.dtype, values.device, part.order, values.requires_grad, len(shape))
                )
                self.variables.append((1 if shape[0] == 1 else -1, *shape[1:]) if shape else ())
            else:
                axes, partitions = signature_of(structure)
                known = self.partitions
                numbers = tuple([known.setdefault(id(each), len(known)) for each in partitions])
                self.skeleton.append(
                    (Tensor, values.dtype, values.device, part.order, values.requires_grad, values.ndim, axes, numbers)
                )
                self.variables.append(tuple(values.shape[1:]))
        elif isinstance(part, torch.nn.Parameter):  # the size of its first axis is the same in all calls, too
            self.tensors.append(part)
            self.skeleton.append((torch.nn.Parameter, part.dtype, part.device, part.requires_grad, tuple(part.shape)))
            self.variables.append(())
        elif isinstance(part, torch.Tensor):
            shape = part.shape
            self.tensors.append(part)
            self.skeleton.append((torch.Tensor, part.dtype, part.device, part.requires_grad, len(shape)))
            self.variables.append((1 if shape[0] == 1 else -1, *shape[1:]) if shape else ())
        elif kind is float or kind is int or kind is complex:
            self.numbers.append(part)
            self.skeleton.append(kind)
            self.variables.append(repr(part) if kind is not int else part)
        elif kind in _PLAIN:
            self.skeleton.append(part)
        elif is_sequence(part):
            self.skeleton.append((kind, len(part)))
            for each in part:
                self._look(each)
        elif kind is dict:
            self.skeleton.append((dict, names_of(part)))
            for each in part.values():
                self._look(each)
        elif kind is slice:
            self.skeleton.append(slice)
            for each in (part.start, part.stop, part.step):
                self._look(each)
        elif isinstance(part, Tensor):
            raise Unsupported(f"a {kind.__name__} is no argument of a program")
        else:
            self._look_inside(part)

    def _look_inside(self, part: Any) -> None:
        """Look at a thing that is no tensor, no number and no tuple, list or dict."""
        kind = type(part)
        if isinstance(part, (torch.nn.Module, type)) or callable(part):
            self.skeleton.append((kind, *_found_in(part)))
        elif isinstance(part, Iterator):
            raise Unsupported(f"a {kind.__name__} can be read once, and a program is made by one more reading of it")
        elif kind in (set, frozenset) or (found := parts_of(part)) is None:
            self.skeleton.append((kind, _constant(part)))
        else:
            self.skeleton.append((kind, found.key, len(found.parts)))
            for each in found.parts:
                self._look(each)

    def _look_at_static(self, part: Any) -> None:
        """Look at an argument that is a part of the signature with all that it holds."""
        is_found = isinstance(part, (torch.nn.Module, type)) or callable(part)
        self.skeleton.append((type(part), _found_in(part) if is_found else _constant(part, is_static=True)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the first axes of the tensors, which are no part of a signature."""
        return tuple(map(_first, self.tensors))

    def rebuilt(self, tensors: Any, numbers: Any = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with other things in the places of tensors, and of numbers too if some are given."""
        left = iter(tensors)
        counted = None if numbers is None else iter(numbers)

        def again(part: Any) -> Any:
            if part is HOLE or isinstance(part, (Tensor, torch.Tensor)):
                return next(left)
            if type(part) in (int, float, complex):
                return part if counted is None else next(counted)
            if is_sequence(part):
                parts = [again(each) for each in part]
                return type(part)(*parts) if hasattr(part, "_fields") else type(part)(parts)
            if type(part) is dict:
                return {name: again(each) for name, each in part.items()}
            if type(part) is slice:
                return slice(again(part.start), again(part.stop), again(part.step))
            if type(part) in _PLAIN or isinstance(part, (set, frozenset)) or callable(part):
                return part
            found = parts_of(part)
            return part if found is None else found.make([again(each) for each in found.parts])

        positional = tuple(each if place in self.static else again(each) for place, each in enumerate(self.arguments))
        return positional, {name: each if name in self.static else again(each) for name, each in self.named.items()}

    def without_tensors(self) -> Arguments:
        """The same arguments, which keep no tensor, for `rebuilt` alone."""
        made = object.__new__(Arguments)
        made.static, made.numbers, made.variables = self.static, self.numbers, self.variables
        made.arguments, made.named = self.rebuilt([HOLE] * len(self.tensors))
        return made


HOLE = object()
"""What stands where a tensor was."""


class Unsupported(TypeError):
    """This error is raised for an argument that no program can be given."""


_OUTSIDE: dict[tuple[int, ...], tuple[Any, Outside]] = {}
"""What modules and functions that are arguments find outside, by their identity; they are kept as long as this is."""
_OTHERS = 1024
"""How many of them are kept before the one that came first is forgotten."""
_lock = threading.Lock()


def _found_in(given: Any) -> tuple[Any, ...]:
    """A module or a function as a part of a signature: which it is, and what it holds and finds outside."""
    inner = getattr(given, "__func__", given)
    if isinstance(inner, types.FunctionType) and not is_users(inner.__module__):
        return Held(inner), 0
    parts = (given.__self__, inner) if isinstance(given, types.MethodType) else (given,)
    key = tuple(map(id, parts))
    kept = _OUTSIDE.get(key)
    if kept is None:
        with _lock:
            if len(_OUTSIDE) >= _OTHERS:
                del _OUTSIDE[next(iter(_OUTSIDE))]
            kept = _OUTSIDE[key] = given, Outside(given, entirely=True)
    number = kept[1].key()
    if kept[1].reason:
        raise Unsupported(kept[1].reason)
    return (*map(Held, parts), number)


def _constant(given: Any, *, is_static: bool = False) -> Any:
    """A thing that is no tensor as a part of a signature."""
    try:
        return alike(given) if is_static else seen(given)
    except Unreadable as error:
        raise Unsupported(str(error)) from error


def masked(variables: list[Any], loose: frozenset[Place]) -> tuple[Any, ...]:
    """The variables that are a part of the signature: all but the loose ones, and of these the sizes of 0 and 1."""
    if not loose:
        return tuple(variables)
    made = list(variables)
    for which, place in loose:
        if place < 0:
            made[which] = None
        else:
            sizes = list(made[which])
            sizes[place] = sizes[place] if sizes[place] <= 1 else -1
            made[which] = tuple(sizes)
    return tuple(made)


def changed(before: list[Any], now: list[Any]) -> set[Place]:
    """The numbers that differ between the variables of two calls. Sizes of 0 and 1 mean something of their own."""
    found: set[Place] = set()
    for which, (one, other) in enumerate(zip(before, now, strict=True)):
        if isinstance(one, tuple) and isinstance(other, tuple):
            if len(one) == len(other):
                found |= {
                    (which, place)
                    for place, (a, b) in enumerate(zip(one, other, strict=True))
                    if a != b and min(a, b) > 1
                }
        elif one != other:
            found.add((which, -1))
    return found


def signature_of(structure: Structure) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What a signature has of a structure, and its partitions, whose identity counts."""
    return structure.derived("signature", _of_structure)


def _of_structure(structure: Structure) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    axes: list[Any] = []
    partitions = []
    for number, axis in enumerate(structure.axes):
        if isinstance(axis, Ragged):
            each = axis.partition
            axes.append((axis.parents, each.is_host_born, each.is_exact, each.dtype, each.home, each.uniform_length))
            partitions.append(each)
        else:
            axes.append(axis if number else -1)
    return tuple(axes), tuple(partitions)


def _first(given: Tensor | torch.Tensor) -> int:
    """The size of the first axis as it is stored; -1 if there is none."""
    if isinstance(given, Tensor) and given.structure is not DENSE:
        first = given.structure.axes[0]
        return first if isinstance(first, int) else -1
    shape = given.values.shape if isinstance(given, Tensor) else given.shape
    return shape[0] if shape else -1
