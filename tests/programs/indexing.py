"""Steps that index: the oracle of x[key], and which of its results are views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tests.programs.keys import Key, is_feature, random_key
from tests.programs.mapped import Lengths, Mapped, is_chain, parents
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.select import Pick, check_order, indexed, masked, one, part, points, several, split_axis, taken
from tests.programs.verdicts import Refused, Undecided, Verdict, either

Placed = list[tuple[Any, int | None]]
"""Entries with the axis each stands on; None for a new axis."""


def get(env: Environment, x: Mapped, key: Key, *, view: bool = False) -> Mapped | Verdict:
    """x[key]"""
    (first, *more) = key.entries
    if isinstance(first, str):
        mask = env[first]
        return masked(x, mask) if mask.dtype == torch.bool else indexed(x, mask)
    if isinstance(first, np.ndarray) and first.dtype == bool and first.ndim == 0:
        if more:
            raise Refused(IndexError)
        return taken(x.expanded(0), {0: part(slice(0, int(first)))})
    placed = place(x, key.entries)
    arrays = [(a, np.asarray(e)) for e, a in placed if isinstance(e, np.ndarray) and a is not None]
    try:
        return _with_one(x, placed, view) if len(arrays) < 2 else _with_several(x, placed, arrays)
    except Refused:
        if any(is_feature(x, a) for a, _ in arrays) and not x.indices:
            raise Undecided from None  # torch does not look at positions where there is nothing to take
        raise


def place(x: Mapped, entries: Sequence[Any]) -> Placed:
    """Each entry with its axis, `...` and masks taken apart."""
    wide = [
        e.ndim if isinstance(e, np.ndarray) and e.dtype == bool else 0 if e is None or e is Ellipsis else 1
        for e in entries
    ]
    dots = [i for i, e in enumerate(entries) if e is Ellipsis]
    if sum(wide) > x.ndim or len(dots) > 1:
        raise Refused(IndexError)
    at = dots[0] if dots else len(entries)
    whole = [slice(None)] * (x.ndim - sum(wide))
    filled = [*entries[:at], *whole, *entries[at + 1 :]]
    found: Placed = []
    axis = 0
    for e in filled:
        if e is None:
            found.append((None, None))
        elif isinstance(e, np.ndarray) and e.dtype == bool:
            for array in _positions(x, e, axis):
                found.append((array, axis))
                axis += 1
        else:
            found.append((int(e) if isinstance(e, np.ndarray) and e.ndim == 0 else e, axis))
            axis += 1
    return found


def _positions(x: Mapped, mask: np.ndarray, axis: int) -> list[np.ndarray]:
    """Where a mask holds, an array for each of its axes."""
    for d, n in enumerate(mask.shape):
        size = x.axes[axis + d]
        if isinstance(size, Lengths):
            raise Refused(IndexError, ValueError)
        if n != size and n != 0:
            raise Refused(IndexError)
    return [np.asarray(array) for array in np.nonzero(mask)]


def _with_one(x: Mapped, placed: Placed, view: bool) -> Mapped:
    """At most one array: every axis on its own."""
    picks: dict[int, Pick] = {}
    for entry, axis in placed:
        if axis is None:
            continue
        if isinstance(entry, np.ndarray):
            picks[axis] = several(entry.reshape(-1).tolist())
        else:
            picks[axis] = part(entry) if isinstance(entry, slice) else one(entry)
    whole = all(entry is not None and isinstance(entry, slice) and entry == slice(None) for entry, _ in placed)
    made = taken(x, picks, view=view, stored=whole and x.is_stored_as_seen)
    at = 0
    for entry, _ in placed:
        if entry is None:
            made = made.expanded(at)
            at += 1
        elif isinstance(entry, np.ndarray):
            made = made if entry.ndim == 1 else split_axis(made, at, entry.shape)
            at += entry.ndim
        elif isinstance(entry, slice):
            at += 1
    return made if view else made.copied()


def _with_several(x: Mapped, placed: Placed, arrays: list[tuple[int, np.ndarray]]) -> Mapped | Verdict:
    """Arrays meet point by point; which of these are refused, the documents say."""
    entries = {a: e for e, a in placed if a is not None}
    on = [a for a, _ in arrays]
    needed = {p for a in on for p in _ancestors(x, a)}
    joined = [a for a, e in entries.items() if isinstance(e, int) and a in needed]
    left = [a for a in range(x.ndim) if not isinstance(entries[a], int)]
    spots = [left.index(a) for a in on]
    outermost = spots == list(range(len(spots)))
    together = spots == list(range(spots[0], spots[0] + len(spots)))
    all_features = all(is_feature(x, a) for a in on)
    every = sorted([*on, *joined])
    made = _points_then_rest(x, every, entries, spots[0] if together else 0)
    if any(a is None for _, a in placed):
        return Verdict(None)
    if all_features:
        return made
    if outermost and not joined and on == list(range(len(on))):
        check_order(x, len(on))
        return made
    return either(made, IndexError) if outermost or joined else Verdict(None, (IndexError,))


def _points_then_rest(x: Mapped, every: list[int], entries: dict[int, Any], at: int) -> Mapped:
    """Points first, at the front; then what is picked of the other axes; then the points moved to their place."""
    met = [np.asarray(entries[a]) for a in every]
    made = points(x, every, met, 0)
    width = np.broadcast_arrays(*met)[0].ndim
    rest = [entries[a] for a in range(x.ndim) if a not in every]
    made = taken(made, {width + k: part(e) if isinstance(e, slice) else one(e) for k, e in enumerate(rest)})
    order = list(range(width, made.ndim))
    order[at:at] = range(width)
    return made.permuted(order).copied()


def _ancestors(x: Mapped, axis: int) -> set[int]:
    found = set(parents(x.axes[axis]))
    return found.union(*[_ancestors(x, p) for p in found]) if found else found


# ------------------------------------------------------------------------------------------------------ views


def shares_memory(x: Mapped, key: Key) -> bool | None:
    """Whether the documents say that x[key] is a view; None where they do not."""
    if key.has_arrays:
        return False
    try:
        placed = [(e, a) for e, a in place(x, key.entries) if a is not None]
    except Refused:
        return None
    packed = [(e, a) for e, a in placed if a is not None and not is_feature(x, a)]
    dense = [e for e, a in placed if a is not None and is_feature(x, a)]
    if any(isinstance(e, slice) and (e.step or 1) < 0 for e in dense):
        return None
    outer = [e for e, _ in packed]
    if all(isinstance(e, slice) and e == slice(None) for e in outer):
        return True
    if not x.is_stored_as_seen:
        return None
    first = outer.pop(0)
    if (isinstance(first, slice) and first.step not in (None, 1)) or (isinstance(first, int) and not is_chain(x)):
        return None  # a step copies; where an integer takes a parent away, axes between others may have to move
    return True if all(isinstance(e, slice) and e == slice(None) for e in outer) else None


def never_waits(x: Mapped, key: Key) -> bool:
    """Slices along ragged axes of a chain, and whole axes: the size of the result is bounded without a wait."""
    if key.has_arrays:
        return False
    if not is_chain(x) or not x.is_ragged:
        return False
    try:
        placed = place(x, key.entries)
    except Refused:
        return False
    for entry, axis in placed:
        if axis is None or (isinstance(entry, slice) and entry == slice(None)) or is_feature(x, axis):
            continue
        if not isinstance(entry, slice) or not isinstance(x.axes[axis], Lengths):
            return False
    return True


@generator(22)
def getitem(draw: Draw) -> Step | None:
    name = draw.tensor()
    if name is None:
        return None
    x = draw[name]
    key = random_key(draw, x)
    view = shares_memory(x, key)
    made = f"{name}[{key.text}]" + ("" if view is not None else ".clone()")
    return Step(
        "getitem",
        made,
        lambda env: get(env, env[name], key, view=bool(view)),
        (name, *key.uses),
        (draw.name(),),
        waits=not never_waits(x, key),
    )
