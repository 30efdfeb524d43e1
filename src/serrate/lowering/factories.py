"""Factories: functions that make what instructions call, each thing once, and remember what it was made of.

A program can thereby be written down: what it calls is said by the name of a factory and what that was given.

>>> import torch
>>> from serrate.lowering.factories import FACTORIES, made_by
>>> from serrate.lowering.parts import of_torch
>>> made_by(of_torch(torch.relu)) == ("of_torch", (torch.relu,)), FACTORIES["of_torch"] is of_torch
(True, True)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

FACTORIES: dict[str, Callable[..., Any]] = {}
"""All factories by their names."""
_MADE_BY = "_made_by"


def factory(make: Callable[..., Callable[..., Any]]) -> Callable[..., Callable[..., Any]]:
    """A factory that gives the same function for the same arguments."""
    kept: dict[tuple[Any, ...], Callable[..., Any]] = {}

    @functools.wraps(make)
    def made(*of: Any) -> Callable[..., Any]:
        if of not in kept:
            function = make(*of)
            setattr(function, _MADE_BY, (make.__name__, of))
            kept.setdefault(of, function)
        return kept[of]

    FACTORIES[make.__name__] = made
    return made


def made_by(function: Callable[..., Any]) -> tuple[str, tuple[Any, ...]] | None:
    """The name of the factory that made a function, and what it was given; None if none did."""
    return getattr(function, _MADE_BY, None)
