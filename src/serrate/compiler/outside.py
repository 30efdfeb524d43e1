"""Outside: what a function finds besides its arguments, and how a compiled one knows that it is still the same.

That is what its closure holds, the numbers, tensors and modules among the globals that it names, the module that it is
a method of, and the parameters and flags of those modules. Tensors become inputs of the program; all else is part of
it, so that another value is another program.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from serrate.compiler.signature import Held
from serrate.tensor.tensor import Tensor

_VALUES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class Outside:
    """What one function finds outside."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._cells: tuple[Any, ...] = ()
        self._globals: tuple[tuple[dict[str, Any], str], ...] = ()
        self._modules: list[_Module] = []
        self._owner: Any = None
        inner = function
        if isinstance(function, torch.nn.Module):
            self._modules.append(_Module(function))
            inner = type(function).forward
        elif isinstance(function, types.MethodType):
            if isinstance(function.__self__, torch.nn.Module):
                self._modules.append(_Module(function.__self__))
            else:
                self._owner = function.__self__
            inner = function.__func__
        if isinstance(inner, types.FunctionType):
            self._cells = tuple(cell for cell in inner.__closure__ or () if not _is_function(_content(cell)))
            names = inner.__globals__
            self._globals = tuple(
                (names, name) for name in inner.__code__.co_names if name in names and _counts(names[name])
            )
            found = [_content(cell) for cell in self._cells] + [names[name] for names, name in self._globals]
            self._modules += [_Module(each) for each in found if isinstance(each, torch.nn.Module)]

    def key(self) -> tuple[Any, ...]:
        """What tells programs apart."""
        made = [_seen(_content(cell)) for cell in self._cells]
        made += [_seen(names.get(name)) for names, name in self._globals]
        made += [module.token() for module in self._modules]
        if self._owner is not None:
            made.append(_inside(self._owner))
        return tuple(made)


class _Module:
    """The parameters, buffers and flags of a module, and a number for what they were."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self._known: list[tuple[dict[str, Any], str, Any]] = []
        self._flags: list[tuple[torch.nn.Module, bool]] = []
        self._token = 0
        self._read()

    def _read(self) -> None:
        self._known = list(_entries(self.module))
        self._flags = [(each, each.training) for each in self.module.modules()]

    def token(self) -> Any:
        """The number, which is another one where a parameter, a buffer or a flag has changed; and the flags."""
        for entries, name, given in self._known:
            if entries.get(name) is not given:
                self._changed()
                break
        for each, training in self._flags:
            if each.training is not training:
                self._changed()
                break
        return Held(self.module), self._token, tuple(training for _, training in self._flags)

    def _changed(self) -> None:
        before = self._known
        self._read()
        same = len(before) == len(self._known) and all(
            one[0] is other[0] and one[1] == other[1] and one[2] is other[2]
            for one, other in zip(before, self._known, strict=True)
        )
        if not same:
            self._token += 1


def _entries(module: torch.nn.Module) -> Iterator[tuple[dict[str, Any], str, Any]]:
    for each in module.modules():
        for entries in (each._parameters, each._buffers, each._modules):
            for name, given in entries.items():
                yield entries, name, given


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None


def _is_function(given: Any) -> bool:
    return isinstance(given, (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type))


def _counts(given: Any) -> bool:
    if isinstance(given, (*_VALUES, Tensor, torch.Tensor, torch.nn.Module)):
        return True
    return isinstance(given, (dict, list, tuple)) and len(given) <= _MOST


_MOST = 64
"""Entries of a dict or a list, and attributes of an object, that are looked at; more are told by its identity alone."""


def _seen(given: Any) -> Any:
    """A thing as a part of a signature: plain values by value, all else by identity and by what it holds."""
    if isinstance(given, (Tensor, torch.Tensor, torch.nn.Module)):
        return Held(given)
    return _alone(given) if isinstance(given, _VALUES) else _inside(given)


def _inside(given: Any) -> Any:
    """A container or an object, with what it holds now."""
    parts: Any = ()
    if isinstance(given, dict):
        parts = given.items()
    elif isinstance(given, (list, tuple)):
        parts = enumerate(given)
    elif hasattr(given, "__dict__") and not _is_function(given):
        parts = [pair for pair in vars(given).items() if pair[0] != KEPT]
    if len(parts) > _MOST if hasattr(parts, "__len__") else len(given) > _MOST:
        return Held(given)
    return Held(given), tuple((str(name), _alone(each)) for name, each in parts)


def _alone(given: Any) -> Any:
    if isinstance(given, (float, complex)):
        return type(given), repr(given)
    return (type(given), given) if isinstance(given, _VALUES) else Held(given)


KEPT = "_serrate_jitted"
"""The attribute of an object that keeps the compiled functions of its methods."""
