"""This module loads the functions of gather.cpp and rectangles.cpp, which copy rows of nested tables on the CPU."""

from __future__ import annotations

from functools import cache

from serrate.native.loading import Routines, load

DEEPEST = 64
"""The largest number of levels below each other that rectangles.cpp can walk."""


@cache
def routines() -> Routines | None:
    """Return the functions that sort rows by their sources, measure and pack them; None if there is no library."""
    return load("gather.cpp", ["locate", "group", "measure", "pack"])


@cache
def padding_routines() -> Routines | None:
    """Return the function that pads measured rows; None if there is no library."""
    return load("rectangles.cpp", ["pad_measured"])
