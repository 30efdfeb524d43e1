"""Rows of nested tables on the CPU, by gather.cpp: its functions, or None where it cannot be compiled."""

from __future__ import annotations

from functools import cache

from serrate.library.loading import Routines, load

DEEPEST = 64
"""So many levels below each other can be walked."""


@cache
def routines() -> Routines | None:
    """The compiled source; None where it cannot be compiled."""
    return load("gather.cpp", ["measure", "pack", "pad"])
