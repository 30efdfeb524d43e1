"""The analytic model: every number that a schedule of the CPU depends on, and the rules that use it.

All rules look at what is known before a kernel runs: extents that are constants, dtypes, which axes are reduced. None
looks at data. Numbers are what the schedules by hand in `benchmarks/` were measured with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from serrate.fusion.binding import TORCH
from serrate.fusion.dtypes import accumulator

REGISTER_BYTES = 64
"""The widest register of a processor; what is run as lanes is at least this long, where there is so much."""

ALL_LANES = 256
"""Features that are run as lanes all at once; of more, which a compiler does not hold in registers, a few at a time."""

MOST_LANES = 1024
"""Features that are run as lanes all at once if no register full of them divides their number."""

PHASE_LANES = 512
"""Features of rows that are walked several times: of more, a row of some hundred entries would leave the cache."""

FEATURE_BLOCK = 128
"""Of more features, or if their number is not known, so many at a time are walked by a loop outside of the rows."""

PREFETCHED_BYTES = 2048
"""Rows that are walked several times are fetched ahead if they may be as long; of shorter ones a processor sees by
itself that they follow each other."""

PARTS = 64
"""Parts of a loop that threads take, where something is reduced over it: each part has a result of its own."""

STATE_BYTES = 1 << 18
"""Memory that the results of these parts may take together; where a state is long there are fewer parts."""


REDUCED_LANES = 32
"""Lanes of a reduced loop: few partial results to combine in the end, and enough that adding one need not wait for
another."""


STORED_COST = 25.0
"""What storing an element by one kernel and loading it by another costs, in additions: as much as some exponentials."""

SHORT_ROWS = 48
"""Rows that are shorter than that on the average are walked without lanes along them."""

SHARED_ROWS = 32
"""A row that is more than one part in so many of all rows is shared by all threads."""

SHARED_ELEMENTS = 1 << 18
"""So many elements such a row has at least: sharing it costs some microseconds."""


def lanes(dtypes: Sequence[str]) -> int:
    """How many elements of the widest of these dtypes a register holds.

    Half precision is computed in float32, so that it counts as that.

    >>> lanes(["float32"]), lanes(["float32", "float64"]), lanes(["int8"])
    (16, 8, 16)
    """
    widths = [TORCH[accumulator(dtype)].itemsize for dtype in dtypes]
    return max(REGISTER_BYTES // max([4, *widths]), 2)


def reduced_lanes(size: int, width: int) -> int:
    """How many of `size` elements that are reduced are taken at once, in registers of `width` of them: a divisor, so
    that none are left over; else all, if they are few.

    >>> reduced_lanes(128, 16), reduced_lanes(48, 16), reduced_lanes(10, 16), reduced_lanes(100, 16)
    (32, 16, 10, 32)
    """
    few = size if size <= 2 * REDUCED_LANES else REDUCED_LANES
    return next((lanes for lanes in (REDUCED_LANES, width) if size % lanes == 0), few)


def feature_lanes(size: int, width: int) -> int:
    """How many of `size` features are run at once; 0 if there are too many, and no number divides theirs.

    >>> feature_lanes(128, 16), feature_lanes(300, 16), feature_lanes(768, 16), feature_lanes(5000, 16)
    (128, 300, 32, 0)
    """
    if size <= ALL_LANES:
        return size
    return next((lanes for lanes in (REDUCED_LANES, width) if size % lanes == 0), size if size <= MOST_LANES else 0)


def is_fetched_ahead(size: int | None) -> bool:
    """Whether a row of so many elements is; None if their number is not known."""
    return size is None or 4 * size >= PREFETCHED_BYTES


def parts(sizes: Iterable[int]) -> int:
    """Into how many parts a reduced loop is cut for threads, if a state has so many elements along its axes.

    >>> parts([]), parts([128]), parts([32, 64])
    (64, 64, 16)
    """
    return max(min(PARTS, STATE_BYTES // (8 * max(prod(sizes), 1))), 8)


def least_shared(width: int) -> int:
    """How long a row of so many elements at each position has to be, to be shared by all threads."""
    return SHARED_ELEMENTS // max(width, 1)
