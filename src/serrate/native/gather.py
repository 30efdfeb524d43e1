"""Rows of nested tables on the CPU, by gather.cpp and rectangles.cpp: their functions, where they can be compiled."""

from __future__ import annotations

from functools import cache

from serrate.native.loading import Routines, load

DEEPEST = 64
"""So many levels below each other can be walked."""


@cache
def routines() -> Routines | None:
    """What sorts rows by their sources, measures and packs them; None where it cannot be compiled."""
    return load("gather.cpp", ["locate", "group", "measure", "pack"], headers=["gather.h"])


@cache
def padding_routines() -> Routines | None:
    """What pads measured rows; None where it cannot be compiled."""
    return load("rectangles.cpp", ["pad"], headers=["gather.h"])
