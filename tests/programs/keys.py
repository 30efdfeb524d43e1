"""Keys of every form, right and wrong: as text, and as what the oracle reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tests.programs.leaves import like, random_leaf
from tests.programs.mapped import Lengths, Mapped, cells, parents, size_at
from tests.programs.program import Draw

Entry = Any


@dataclass(frozen=True)
class Key:
    """What stands between the brackets."""

    text: str
    entries: tuple[Any, ...]
    """Ints, slices, None, `...` and arrays; or the name of a ragged mask or index, which stands alone."""
    uses: tuple[str, ...] = ()

    @property
    def has_arrays(self) -> bool:
        return any(isinstance(e, (np.ndarray, str)) for e in self.entries)

    @property
    def repeats(self) -> bool:
        """Whether it may name an element twice."""
        return any(isinstance(e, str) or (isinstance(e, np.ndarray) and e.dtype != bool) for e in self.entries)


def random_key(draw: Draw, x: Mapped) -> Key:
    """A key for x: basic entries, an array, points, masks, ragged masks and indices; now and then a wrong one."""
    forms = [basic, basic, basic, basic, with_array, with_array, meeting, features, dense_mask, wrong, odd]
    if x.is_ragged:
        forms += [ragged_mask, ragged_mask, ragged_index, ragged_index]
    for _ in range(8):
        made = draw.choice(forms)(draw, x)
        if made is not None:
            return made
    return basic(draw, x)


def least(x: Mapped, axis: int) -> int:
    """The shortest length of an axis."""
    size = x.axes[axis]
    return min(size.table.values(), default=0) if isinstance(size, Lengths) else size


def longest(x: Mapped, axis: int) -> int:
    size = x.axes[axis]
    return max(size.table.values(), default=0) if isinstance(size, Lengths) else size


# ------------------------------------------------------------------------------------------------------ entries


def random_slice(draw: Draw) -> slice:
    if draw.chance(0.35):
        return slice(None)
    bound = [None, *range(-4, 5)]
    return slice(draw.choice(bound), draw.choice(bound), draw.choice((None, None, None, 1, 2, 3, -1, -1, -2)))


def random_int(draw: Draw, x: Mapped, axis: int) -> int | None:
    size = least(x, axis)
    if draw.chance(0.1):
        size = longest(x, axis)
    return draw.integer(-size, size - 1) if size else None


def basic_entry(draw: Draw, x: Mapped, axis: int) -> Entry:
    found = random_int(draw, x, axis) if draw.chance(0.35) else None
    return random_slice(draw) if found is None else found


def random_array(draw: Draw, size: int, *, shape: Sequence[int] | None = None, distinct: bool = False) -> np.ndarray:
    """Positions of an axis of that size, from both ends."""
    if shape is None:
        shape = draw.choice([(0,), (1,), (2,), (2,), (3,), (3,), (2, 2), (1, 2)])
    if size == 0:
        return np.zeros((0,) if len(shape) == 1 else (0, 2), dtype=np.int64)
    numbers = [draw.integer(-size, size - 1) for _ in range(int(np.prod(shape)))]
    return np.array(numbers, dtype=np.int64).reshape(shape)


def text_of(draw: Draw, entry: Entry) -> str:
    if isinstance(entry, np.ndarray):
        nested = entry.tolist()
        kind = draw.choice(("list", "torch", "numpy")) if entry.size and entry.ndim else "torch"
        if kind == "list":
            return str(nested)
        dtype = "bool" if entry.dtype == bool else "int64"
        made = (
            f"torch.tensor({nested}, dtype=torch.{dtype})"
            if kind == "torch"
            else f"np.array({nested}, dtype={dtype!r})"
        )
        return f"{made}.reshape({tuple(entry.shape)})" if not entry.size and entry.ndim > 1 else made
    if isinstance(entry, slice):
        parts = ["" if p is None else str(p) for p in (entry.start, entry.stop)]
        return ":".join(parts) + ("" if entry.step is None else f":{entry.step}")
    return "..." if entry is Ellipsis else str(entry)


def made(draw: Draw, entries: Sequence[Entry]) -> Key:
    text = ", ".join(text_of(draw, e) for e in entries)
    return Key(f"{text}," if len(entries) == 1 and draw.chance(0.1) else text, tuple(entries))


def decorated(draw: Draw, x: Mapped, entries: list[Entry], *, new_axes: bool = True) -> Key:
    """Entries for all axes, with those at the end left out, or `...` for a run of whole ones, and new axes."""
    entries = list(entries)
    while entries and isinstance(entries[-1], slice) and entries[-1] == slice(None) and draw.chance(0.7):
        entries.pop()
    runs = [i for i, e in enumerate(entries) if isinstance(e, slice) and e == slice(None)]
    if runs and draw.chance(0.25) and len(entries) == x.ndim:
        start = draw.choice(runs)
        stop = start + 1
        while stop in runs and draw.chance(0.7):
            stop += 1
        entries[start:stop] = [Ellipsis]
    elif draw.chance(0.1):
        entries.insert(len(entries), Ellipsis)
    if new_axes and draw.chance(0.15):
        entries.insert(draw.integer(0, len(entries)), None)
    return made(draw, entries or [Ellipsis])


# ------------------------------------------------------------------------------------------------------ forms


def basic(draw: Draw, x: Mapped) -> Key:
    """Integers, slices, None and `...`."""
    entries = [basic_entry(draw, x, a) if draw.chance(0.7) else slice(None) for a in range(x.ndim)]
    return decorated(draw, x, entries)


def with_array(draw: Draw, x: Mapped) -> Key | None:
    """One array or mask among basic entries."""
    if not x.ndim:
        return None
    entries: list[Entry] = [basic_entry(draw, x, a) if draw.chance(0.5) else slice(None) for a in range(x.ndim)]
    at = draw.integer(0, x.ndim - 1)
    size = x.axes[at]
    if isinstance(size, int) and draw.chance(0.35):
        entries[at] = np.array([draw.chance(0.5) for _ in range(size)], dtype=bool)
    else:
        entries[at] = random_array(draw, least(x, at))
    return decorated(draw, x, entries)


def meeting(draw: Draw, x: Mapped) -> Key | None:
    """Arrays on the outermost axes, point by point."""
    if x.ndim < 2:
        return None
    count = draw.integer(2, x.ndim)
    shape = draw.choice([(1,), (2,), (3,), (2, 2)])
    rows = [index[:count] for index in x.indices] or [(0,) * count]
    points = np.array([draw.choice(rows) for _ in range(int(np.prod(shape)))], dtype=np.int64)
    entries: list[Entry] = [points[:, a].reshape(shape) for a in range(count)]
    if draw.chance(0.15):
        entries[draw.integer(0, count - 1)] = random_array(draw, longest(x, 0), shape=(1,))
    entries += [basic_entry(draw, x, a) if draw.chance(0.4) else slice(None) for a in range(count, x.ndim)]
    if draw.chance(0.1):
        entries.insert(draw.integer(0, len(entries)), draw.choice((None, slice(None))))
    return decorated(draw, x, entries[: x.ndim], new_axes=False)


def is_feature(x: Mapped, axis: int) -> bool:
    return isinstance(x.axes[axis], int) and all(axis not in parents(a) for a in x.axes)


def features(draw: Draw, x: Mapped) -> Key | None:
    """Arrays on features, next to each other or apart."""
    found = [a for a in range(x.ndim) if is_feature(x, a)]
    if len(found) < 2:
        return None
    on = draw.random.sample(found, 2)
    entries: list[Entry] = [basic_entry(draw, x, a) if draw.chance(0.3) else slice(None) for a in range(x.ndim)]
    for a in on:
        entries[a] = random_array(draw, least(x, a), shape=(2,))
    return decorated(draw, x, entries, new_axes=False)


def dense_mask(draw: Draw, x: Mapped) -> Key | None:
    """A dense mask over one or several uniform axes, or a 0-d one."""
    if draw.chance(0.1):
        return made(draw, [np.array(draw.chance(0.5))])
    uniform = 0
    while uniform < x.ndim and isinstance(x.axes[uniform], int):
        uniform += 1
    if uniform == 0:
        return None
    sizes = [n for n in x.axes[: draw.integer(1, uniform)] if isinstance(n, int)]
    if draw.chance(0.1):
        sizes[draw.integer(0, len(sizes) - 1)] = draw.choice((0, 0, 5))
    mask = np.array([draw.chance(0.5) for _ in range(int(np.prod(sizes)))], dtype=bool).reshape(sizes)
    entries: list[Entry] = [mask, *[basic_entry(draw, x, a) for a in range(len(sizes), x.ndim) if draw.chance(0.5)]]
    return made(draw, entries)


def outer_part(draw: Draw, x: Mapped) -> Mapped | None:
    """The outer axes of x, as a tensor that shows a structure."""
    options = [
        n
        for n in range(1, x.ndim + 1)
        if all(p < n for axis in x.axes[:n] for p in parents(axis)) and any(parents(a) for a in x.axes[:n])
    ]
    if not options:
        return None
    count = draw.choice(options)
    return shape_only(x.axes[:count])


def shape_only(axes: Sequence[Any]) -> Mapped:
    return Mapped.of(axes, torch.zeros(len(cells(axes))))


def ragged_mask(draw: Draw, x: Mapped) -> Key | None:
    """A mask of the shape of some outer axes of x; now and then one that does not fit."""
    outer = outer_part(draw, x)
    leaf = None if outer is None else like(draw.random, outer, torch.bool)
    if leaf is None:
        return None
    if draw.chance(0.05):
        leaf = random_leaf(draw.random, torch.bool)
        if not leaf.is_ragged:
            return None
    name = draw.given(leaf)
    return Key(name, (name,), (name,))


def ragged_index(draw: Draw, x: Mapped) -> Key | None:
    """Positions within the rows of an axis of x."""
    outer = outer_part(draw, x)
    if outer is None:
        return None
    last = outer.ndim - 1
    if not all(p < last for axis in outer.axes[:last] for p in parents(axis)) or last == 0:
        return None
    keys = cells(outer.axes, range(last))
    parents_of_last = tuple(range(last)) if draw.chance(0.7) else tuple(sorted(parents(outer.axes[last])))
    if not parents_of_last:
        return None
    sizes = {k: size_at(outer.axes, last, k) for k in keys}
    table = {key: draw.integer(0, 3) for key in cells(outer.axes, parents_of_last)}
    for k in keys:
        if sizes[k] == 0:
            table[tuple(k[p] for p in parents_of_last)] = 0
    shape = shape_only((*outer.axes[:last], Lengths(parents_of_last, table)))
    wrong = draw.chance(0.1)
    values = {}
    for index in shape.indices:
        n = sizes[index[:-1]]
        values[index] = draw.integer(-n, n - 1) + (3 if wrong else 0)
    leaf = like(draw.random, shape, draw.choice((torch.int64, torch.int64, torch.int32)), values=values)
    if leaf is None:
        return None
    name = draw.given(leaf)
    return Key(name, (name,), (name,))


def wrong(draw: Draw, x: Mapped) -> Key | None:
    """Out of range, too many, twice `...`."""
    entries: list[Entry] = [slice(None)] * x.ndim
    kind = draw.choice(("far", "many", "dots", "array"))
    if kind == "far" and x.ndim:
        at = draw.integer(0, x.ndim - 1)
        entries[at] = draw.choice((longest(x, at), -longest(x, at) - 1, 7, -8))
        return made(draw, entries[: draw.integer(at + 1, x.ndim)])
    if kind == "array" and x.ndim:
        at = draw.integer(0, x.ndim - 1)
        entries[at] = np.array([longest(x, at)], dtype=np.int64)
        return made(draw, entries)
    if kind == "dots":
        return made(draw, [Ellipsis, Ellipsis])
    return made(draw, [slice(None)] * (x.ndim + 1))


def odd(draw: Draw, x: Mapped) -> Key | None:
    """Arrays anywhere: what is right is right by numpy's rules, and may be refused."""
    if x.ndim < 2:
        return None
    entries: list[Entry] = [basic_entry(draw, x, a) if draw.chance(0.6) else slice(None) for a in range(x.ndim)]
    for a in draw.random.sample(range(x.ndim), 2):
        entries[a] = random_array(draw, least(x, a), shape=(2,))
    return decorated(draw, x, entries)
