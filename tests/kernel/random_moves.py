"""Random operations that move elements, or name their axes anew: each takes any tensor of a fusion, and gives one that
holds the same numbers, or some of them, or a few more."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from serrate.errors import RaggednessError
from serrate.fusion import Fusion, IterDomain, TensorView
from serrate.fusion.shapes import depends_on, parents_of

Move = Callable[[Random, Fusion, TensorView], TensorView | None]


def moved(random: Random, fusion: Fusion, x: TensorView) -> TensorView:
    """What a random move makes of a tensor; moves that cannot be made of it are passed over."""
    for move in random.sample(MOVES, len(MOVES)):
        try:
            made = move(random, fusion, x)
        except RaggednessError:  # an axis that depends on another stands in the way
            continue
        if made is not None:
            return made
    return fusion.copy(x)


def _ends(x: TensorView) -> list[int]:
    """Axes that no ragged axis depends on."""
    axes = x.domain.kept
    return [
        at
        for at, axis in enumerate(axes)
        if not axis.is_broadcast and not any(other.is_ragged and depends_on(other, axis) for other in axes)
    ]


def _ragged_ends(x: TensorView) -> list[int]:
    return [at for at in _ends(x) if x.domain.kept[at].is_ragged]


def _pad(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    if not _ends(x):
        return None
    left, right = random.randint(0, 2), random.randint(0, 2)
    return fusion.pad(x, random.choice(_ends(x)), left, right, random.choice([0, 1]))


def _slice(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    if not _ends(x):
        return None
    start, stop = (random.choice([None, *range(-4, 5)]) for _ in range(2))
    return fusion.slice(x, random.choice(_ends(x)), start, stop)


def _concat(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    axes = [at for at, axis in enumerate(x.domain.kept) if not axis.is_broadcast]
    if not axes:
        return None
    parts = [x, fusion.unary("negative", x), fusion.copy(x)][: random.randint(1, 3)]
    random.shuffle(parts)
    return fusion.concat(parts, random.choice(axes))


def _select(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    axes = x.domain.kept
    sized = [
        at for at, axis in enumerate(axes) if not axis.is_ragged and axis.extent.is_const and axis.extent.value > 0
    ]
    at = random.choice(sized) if sized else None
    return None if at is None else fusion.select(x, at, random.randrange(axes[at].extent.value))


def _to_dense(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    if not _ragged_ends(x):
        return None
    length = None if random.random() < 0.3 else random.randint(0, 6)
    return fusion.to_dense(x, random.choice(_ragged_ends(x)), length, random.choice([0, 1]))


def _there_and_back(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    if not _ragged_ends(x):
        return None
    dense = fusion.to_dense(x, random.choice(_ragged_ends(x)), random.randint(0, 6), random.choice([0, 1]))
    return fusion.from_dense(dense, x, random.choice([0, 1]))


def _gather(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    """Some of the indices of a regular axis, one after another."""
    regular = [at for at in _ends(x) if not x.domain.kept[at].is_ragged]
    if not regular:
        return None
    at = random.choice(regular)
    places = fusion.positions([x.domain.kept[at]], 0)
    return fusion.gather(x, fusion.slice(places, 0, random.choice([None, 1, -2]), None), at)


def _reversed_rows(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    if not _ragged_ends(x):
        return None
    at = random.choice(_ragged_ends(x))
    axes = x.domain.kept[: at + 1]
    parents = parents_of(axes[-1], axes)
    lengths = fusion.broadcast(fusion.row_lengths(x, at), [axis not in parents for axis in axes])
    return fusion.gather(x, lengths - 1 - fusion.positions(axes, at), at)


def _permute(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    """An order in which ragged axes stand behind those that they depend on."""
    axes, order = x.domain.kept, list[int]()
    while len(order) < x.ndim:
        at = random.choice([at for at in range(x.ndim) if at not in order])
        waits = axes[at].is_ragged and any(axes.index(other) not in order for other in parents_of(axes[at], axes))
        order += [] if waits else [at]
    return fusion.permute(x, order) if order != sorted(order) else None


def _flatten(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    if x.ndim < 2:
        return None
    start, stop = sorted(random.sample(range(x.ndim), 2))
    return fusion.flatten(x, start, stop)


def _unflatten(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    def factors(axis: IterDomain) -> list[int]:
        size = axis.extent.value if axis.extent.is_const and not axis.is_ragged and not axis.is_broadcast else 0
        return [factor for factor in range(1, size + 1) if size % factor == 0]

    choices = [(at, factor) for at, axis in enumerate(x.domain.kept) for factor in factors(axis)]
    if not choices:
        return None
    at, factor = random.choice(choices)
    return fusion.unflatten(x, at, [-1, factor])


def _wider(random: Random, fusion: Fusion, x: TensorView) -> TensorView | None:
    """A new axis of extent 1, taken away again or expanded."""
    at = random.randint(0, x.ndim)
    wide = fusion.broadcast(x, [number == at for number in range(x.ndim + 1)])
    if random.random() < 0.5:
        return fusion.squeeze(wide, at)
    axes: list[IterDomain | int] = list(x.domain.kept)
    return fusion.expand(wide, [*axes[:at], random.randint(0, 3), *axes[at:]])


MOVES: list[Move] = [
    _pad, _slice, _slice, _concat, _concat, _select, _to_dense, _there_and_back, _gather, _reversed_rows, _permute,
    _flatten, _flatten, _unflatten, _wider,
]  # fmt: skip
