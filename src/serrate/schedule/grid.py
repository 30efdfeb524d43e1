"""How the loops of one kernel become blocks and threads of a GPU: the analytic model, and what it decides.

The innermost loop is that of neighbouring threads (TIDx), each with one access of 16 bytes where elements lie so. The
loop around it is taken by rows of threads (TIDy), and what is outside of that by blocks. Where rows of a ragged axis
need not be walked together, a block takes a tile of rows, and finds the component by its number; where they are reduced
the threads of a block do, and combine what they found; where they are scanned a thread goes through them alone. If rows
are short, a block takes several components (`short`), and a row is walked by one thread for each feature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod

from serrate.errors import ScheduleError
from serrate.fusion.binding import TORCH
from serrate.fusion.types import ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel.choosing import choose_kept
from serrate.schedule.lanes import with_ones_outside
from serrate.schedule.loops import merge_runs
from serrate.schedule.structure import Structure

THREADS = 128
"""Threads of a block."""

WARP = 32
"""Threads that exchange numbers without a barrier."""

ACCESS = 16
"""The bytes that a thread loads or stores at once."""

PARTS = 264
"""Blocks among which a loop is divided that is reduced: two for each multiprocessor of an H200."""

TILED = 8
"""Rows of a tile that a thread takes, so that it looks for the component of several at once."""

SMALL = 1024
"""Elements that are no work for more than one block."""


@dataclass(frozen=True)
class Grid:
    """What is decided about the loops of one kernel.

    `runs` are the loops, outermost first, each the numbers of the axes of the reference that it walks as one.
    """

    runs: tuple[tuple[int, ...], ...]
    x: int = 0
    """Neighbouring threads, which take the innermost loop; 0 if each goes through all of it."""
    lanes: int = 0
    """Elements of the innermost loop that a thread loads or stores at once."""
    y: int = 0
    """Rows of threads, which take the loop around."""
    rows: int = 0
    """The loop that rows of threads take."""
    tile: bool = False
    """Whether that loop, cut into tiles, is one loop with that of its components."""
    parts: int = 0
    """If not 0, the outermost loop is reduced, and first cut into so many parts, which blocks take."""
    keep: bool = False
    """Whether values that several phases use are kept, where computing them again costs more."""

    def __str__(self) -> str:
        loops = ", ".join("·".join(map(str, run)) for run in self.runs)
        named = {"x": self.x, "lanes": self.lanes, "y": self.y, "parts": self.parts}
        words = [f"loops ({loops})", *(f"{name} {number}" for name, number in named.items() if number)]
        flags = {"tile": self.tile, "keep": self.keep}
        return ", ".join([*words, *(name for name, on in flags.items() if on)])

    def simpler(self, structure: Structure) -> list[Grid]:
        """What is tried one after another, what is wanted first, and then with less and less of it."""
        alone = tuple((at,) for run in self.runs for at in run)
        unjoined = grid(structure, alone, self.keep)
        found = [
            self,
            replace(self, lanes=0),
            replace(self, lanes=0, keep=False),
            replace(self, lanes=0, keep=False, tile=False, y=0),
            replace(unjoined, lanes=0, keep=False),
            replace(unjoined, lanes=0, keep=False, tile=False, y=0),
        ]
        return list(dict.fromkeys(found))

    def schedule(self, structure: Structure, target: str) -> list[TensorView]:
        """Schedule the reference, and choose what is kept. Returns the tensors that are."""
        reference = structure.reference
        first = merge_runs(structure, self.runs)
        walked = [structure.is_walked(run) for run in self.runs]
        if not self.runs:
            return []
        places = [first + number for number in range(len(self.runs))]
        if self.lanes:
            reference.vectorize(places[-1], self.lanes)
        if self.parts:
            reference.split(places[0], self.parts, inner_split=False).parallelize(places[0], ParallelType.BIDx)
            places = [place + 1 for place in places]
        is_flat = len(self.runs) == 1
        if self.x:
            reference.split(places[-1], self.x).parallelize(places[-1] + 1, ParallelType.TIDx)
        if self.y:
            row = places[self.rows]
            if self.tile:
                reference.split(row, self.y * TILED).split(row + 1, self.y).parallelize(row + 1, ParallelType.Unroll)
                reference.parallelize(row + 2, ParallelType.TIDy).combine(row - 1)
            else:
                reference.split(row, self.y).parallelize(row + 1, ParallelType.TIDy)
        if self.parts:
            return self._kept(structure, target)
        blocks = [ParallelType.BIDy, ParallelType.BIDx]
        free = next((number for number, is_walked in enumerate(walked) if is_walked), len(walked))
        if not free and not is_small(structure):
            raise ScheduleError("a GPU would compute all of it by one block")
        for number, place in enumerate(places):
            if walked[number] or not blocks or (self.tile and number == self.rows):
                break
            if number == len(self.runs) - 1 and not is_flat and self.x:
                break
            reference.parallelize(place, blocks.pop())
        return self._kept(structure, target)

    def _kept(self, structure: Structure, target: str) -> list[TensorView]:
        return choose_kept(structure.fusion, structure.reference, target=target) if self.keep else []


def is_small(structure: Structure) -> bool:
    """Whether there is no work for more than one block."""
    size = structure.size(range(len(structure.axes)))
    return size is not None and size <= SMALL


def on_grid(structure: Structure, keep: bool) -> Grid:
    """What is wanted for a fusion."""
    return grid(structure, with_ones_outside(structure, structure.runs), keep)


def grid(structure: Structure, runs: tuple[tuple[int, ...], ...], keep: bool) -> Grid:
    """What is wanted for these loops."""
    if not runs:
        return Grid(runs)
    walked = [structure.is_walked(run) for run in runs]
    scanned = any(structure.scanned[at] for at in runs[-1])
    lanes = 0 if scanned else _lanes(structure, runs)
    x = 0 if scanned else _neighbours(structure, runs, lanes)
    made = Grid(runs, x, lanes, keep=keep)
    if walked[0]:
        if any(structure.scanned[at] for at in runs[0]):
            return made
        size = structure.size(runs[0])
        if size is not None and size <= SMALL:
            return made
        return replace(made, parts=PARTS, y=THREADS // max(x, 1) if len(runs) > 1 else 0)
    return with_rows(structure, made)


def with_rows(structure: Structure, wanted: Grid, short: bool = False) -> Grid:
    """Rows of threads for a loop outside of the innermost one; if rows are short, for the one of components."""
    runs, axes = wanted.runs, structure.axes
    y = THREADS // max(wanted.x, 1)
    outer = len(runs) - 2 if wanted.x else len(runs) - 1
    if outer < 0 or y < 2:
        return wanted
    walked = [structure.is_walked(run) for run in runs]
    if any(structure.scanned[at] for run in runs[: outer + 1] for at in run) or (short and walked[outer]):
        outer = 0
    if walked[outer]:
        return replace(wanted, y=y, rows=outer)
    run = runs[outer]
    is_ragged = axes[run[0]].is_ragged
    if is_ragged and (outer == 0 or walked[outer - 1] or len(run) > 1):
        return wanted
    size = structure.size(run)
    if size is not None and size < y and outer > 0:
        return wanted
    return replace(wanted, y=y, rows=outer, tile=is_ragged)


def _lanes(structure: Structure, runs: tuple[tuple[int, ...], ...]) -> int:
    """How many elements a thread loads at once: those of 16 bytes, if they lie one behind the other."""
    run = runs[-1]
    widest = max([TORCH[dtype].itemsize for dtype in structure.dtypes_along(run)], default=ACCESS)
    if structure.axes[run[0]].is_ragged:
        return 0  # rows begin anywhere
    known = prod(structure.size((at,)) or 1 for at in run)  # which divides their number, whatever the others are
    return gcd(ACCESS // widest, known) if known % 2 == 0 else 0


def _neighbours(structure: Structure, runs: tuple[tuple[int, ...], ...], lanes: int) -> int:
    """How many threads take the innermost loop."""
    run = runs[-1]
    size = structure.size(run)
    is_walked = structure.is_walked(run)
    if len(runs) == 1:
        return THREADS
    if size is None:
        return WARP if is_walked else THREADS // 2
    steps = size // max(lanes, 1)
    most = WARP if is_walked and steps <= 32 * WARP else THREADS
    return max(1, min(most, 1 << (steps - 1).bit_length() if steps > 1 else 1))
