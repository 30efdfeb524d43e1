"""Memory of the checking interpreter: bounds, never-stored elements, double stores, holes and races.

Every access carries a strand, which says by whom it is made: (0, block, epoch, thread, loop, iteration, ...), where the
epoch counts the barriers of the block, and each Thread, Simd or Vectorize loop that is being run adds its number and
the iteration. Reading strands as (where, who) pairs, two accesses are concurrent if and only if the first pair in which
they differ has the same `where`: blocks of one grid, threads between the same barriers, iterations of the same loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

Strand = tuple[int, ...]


class Violation(AssertionError):
    """A kernel has broken a rule; `what` names it, `where` says at which statement, block, thread and indices."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(f"{what}\n{where}" if where else what)
        self.what = what


def conflict(one: Strand, other: Strand) -> int | None:
    """Where concurrent strands part (0 blocks, 1 threads, 2 and more loops), None if they are ordered."""
    for place in range(0, min(len(one), len(other)), 2):
        if one[place] != other[place]:
            return None
        if one[place + 1] != other[place + 1]:
            return place // 2
    return None


def _race(name: str, index: int, access: str, strand: Strand, earlier: str, other: Strand, place: int) -> NoReturn:
    who = ("blocks", "threads of a block")[place] if place < 2 else "iterations of a parallel loop"
    pair = f"{other[2 * place + 1]} {earlier} and {strand[2 * place + 1]} {access}"
    raise Violation(f"race between two {who} on {name}[{index}]: {pair} it")


def outside(name: str, index: int, size: int) -> NoReturn:
    """Report an access past either end of a buffer."""
    raise Violation(f"out of bounds: {name}[{index}] of {size}")


def never_stored(name: str, index: int) -> NoReturn:
    """Report a load of an element that holds nothing yet."""
    raise Violation(f"load of {name}[{index}], which was never stored (or not before the last barrier)")


def bad_load(name: str, index: int, size: int) -> NoReturn:
    """Report a load that failed, whichever way."""
    if not 0 <= index < size:
        outside(name, index, size)
    never_stored(name, index)


class SharedMemory:
    """Memory that several strands see: that of a block, or of a thread around a parallel loop.

    `entry` counts how often a thread has come past the allocation, which makes the contents uninitialised again. The
    memory stays the same one, so that accesses of different entries still race.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.values: list[Any] = [None] * size  # None: never stored
        self.entries = [0] * size
        self.writers: list[Strand | None] = [None] * size
        self.readers: dict[int, list[Strand]] = {}  # since the last store

    def load(self, index: int, strand: Strand, entry: int = 0) -> Any:
        """The element, if it may be loaded."""
        if not 0 <= index < self.size:
            outside(self.name, index, self.size)
        writer = self.writers[index]
        if writer is not None and writer is not strand:
            place = conflict(writer, strand)
            if place is not None:
                _race(self.name, index, "loads", strand, "stores", writer, place)
        value = self.values[index]
        if value is None or self.entries[index] != entry:
            never_stored(self.name, index)
        readers = self.readers.setdefault(index, [])
        if not readers or readers[-1] is not strand:
            readers.append(strand)
        return value

    def store(self, index: int, value: Any, strand: Strand, entry: int = 0) -> None:
        """Store, if it may be stored."""
        if not 0 <= index < self.size:
            outside(self.name, index, self.size)
        writer = self.writers[index]
        if writer is not None and writer is not strand:
            place = conflict(writer, strand)
            if place is not None:
                _race(self.name, index, "stores", strand, "stores", writer, place)
        # Forgetting the readers is safe: who is concurrent with one of them is concurrent with this store.
        for reader in self.readers.pop(index, ()):
            place = conflict(reader, strand)
            if place is not None:
                _race(self.name, index, "stores", strand, "loads", reader, place)
        self.values[index] = value
        self.writers[index] = strand
        self.entries[index] = entry


class GlobalMemory(SharedMemory):
    """A buffer that the kernel writes, each element once; `elements` says which positions are no holes."""

    def __init__(
        self, name: str, size: int, initial: Sequence[Any] | None, elements: np.ndarray | None, fill: Any
    ) -> None:
        super().__init__(name, size)
        if initial is not None:
            self.values[:] = initial[:size]
        self.stored = bytearray(size)
        self.holes = None if elements is None else (~elements).tolist()
        self.fill = fill  # None: holes are not to be stored

    def store(self, index: int, value: Any, strand: Strand, entry: int = 0) -> None:
        """Store, if it may be stored."""
        super().store(index, value, strand, entry)
        if self.stored[index]:
            raise Violation(f"{self.name}[{index}] is stored twice")
        self.stored[index] = 1
        if self.fill is None and self.holes is not None and self.holes[index]:
            raise Violation(f"store to the hole {self.name}[{index}], for which no fill was asked")

    def load(self, index: int, strand: Strand, entry: int = 0) -> Any:
        """A draft, if it may be loaded: what an output is to hold is not read again."""
        value = super().load(index, strand, entry)
        if self.stored[index]:
            raise Violation(f"load of {self.name}[{index}] after its element was stored there")
        return value

    def draft(self, index: int, value: Any, strand: Strand) -> None:
        """Store a value that is not yet the element, which must be stored later."""
        super().store(index, value, strand)
        if self.stored[index]:
            raise Violation(f"a draft is stored to {self.name}[{index}], which was stored already")
        if self.holes is not None and self.holes[index]:
            raise Violation(f"a draft is stored to the hole {self.name}[{index}]")

    def finish(self) -> None:
        """Check that all elements were stored, and that holes hold the fill where one was asked."""
        for index in range(self.size):
            if self.holes is None or not self.holes[index]:
                if not self.stored[index]:
                    raise Violation(f"{self.name}[{index}] is an element that was never stored")
            elif self.fill is not None:
                value = self.values[index]
                if value is None or not (value == self.fill or (value != value and self.fill != self.fill)):
                    raise Violation(f"fill missing: the hole {self.name}[{index}] holds {value}, not {self.fill}")
