"""The analytic model: every number that a schedule of the CPU depends on, and the rules that use it.

All rules look at what is known before a kernel runs: extents that are constants, dtypes, which axes are reduced. None
looks at data. Numbers are what the schedules by hand in `benchmarks/` were measured with.
"""

from __future__ import annotations

from collections.abc import Sequence

from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import TORCH
from serrate.fusion.dtypes import accumulator
from serrate.fusion.view import TensorView

REGISTER_BYTES = 64
"""The widest register of a processor; what is run as lanes is at least this long, where there is so much."""

MOST_LANES = 1024
"""Features that are run as lanes all at once; states of reductions and sums of blocks have room for each of them."""

FEATURE_BLOCK = 128
"""Of more features than that, or of a number that is not a constant, so many are run as lanes at once."""

PARTS = 64
"""Parts of a loop that threads take, where something is reduced over it: each part has a result of its own."""

STATE_BYTES = 1 << 16
"""Memory that the results of these parts may take together; where a state is long there are fewer parts."""


def lanes(tensors: Sequence[TensorView]) -> int:
    """How many elements of the widest of these tensors a register holds.

    Half precision is computed in float32, so that it counts as that.
    """
    widths = [TORCH[accumulator(tensor.dtype)].itemsize for tensor in tensors]
    return max(REGISTER_BYTES // max([4, *widths]), 2)


def are_few(axis: IterDomain) -> bool:
    """Whether all indices of an axis can be lanes at once."""
    return not axis.is_ragged and axis.extent.is_const and 0 < int(axis.extent.value) <= MOST_LANES


def parts(state: int) -> int:
    """Into how many parts a reduced loop is cut for threads, if a state has so many elements.

    >>> parts(1), parts(128), parts(4096)
    (64, 64, 8)
    """
    return max(min(PARTS, STATE_BYTES // (8 * max(state, 1))), 8)
