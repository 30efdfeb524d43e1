"""Steps that rearrange: flip, roll, repeat, tile, split."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tests.programs.keys import longest, shape_only
from tests.programs.leaves import like
from tests.programs.mapped import Index, Lengths, Mapped, cells, is_chain, is_loose, parents, same_axes
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.reductions import is_free, random_axes
from tests.programs.select import Pick, check_order, taken, within_rows
from tests.programs.verdicts import Refused, Undecided


def along(axis: int, positions: Callable[[int], Sequence[int]]) -> dict[int, Pick]:
    return {axis: Pick(positions)}


@generator(2)
def flip(draw: Draw) -> Step | None:
    name = draw.tensor()
    if name is None:
        return None
    x = draw[name]
    found = random_axes(draw, x)
    if found is None:
        return None
    text, axes = found
    picks = {a: Pick(lambda n: range(n - 1, -1, -1)) for a in axes}
    quiet = is_chain(x) and is_free(x, axes)
    oracle = lambda env: taken(env[name], picks)  # noqa: E731
    return Step("flip", f"sr.flip({name}{text})", oracle, (name,), (draw.name(),), waits=not quiet)


@generator(1.5)
def roll(draw: Draw) -> Step | None:
    name = draw.tensor()
    if name is None:
        return None
    x = draw[name]
    shift = draw.integer(-4, 4)
    if draw.chance(0.2) and x.is_stored_as_seen:
        oracle: Callable[[Environment], Mapped] = lambda env: env[name].computed(env[name].flat.roll(shift))  # noqa: E731
        return Step("roll", f"sr.roll({name}, {shift})", oracle, (name,), (draw.name(),))
    found = random_axes(draw, x, several=False, none=False)
    if found is None:
        return None
    text, (axis,) = found
    oracle = lambda env: taken(env[name], along(axis, lambda n: [(i - shift) % n for i in range(n)]))  # noqa: E731
    quiet = is_chain(x) and is_free(x, [axis])
    return Step("roll", f"sr.roll({name}, {shift}{text})", oracle, (name,), (draw.name(),), waits=not quiet)


@generator(2)
def repeat(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: len(x.indices) < 40)
    if name is None:
        return None
    x = draw[name]
    found = random_axes(draw, x, several=False, none=False)
    if found is None:
        return None
    text, (axis,) = found
    size = x.axes[axis]
    if isinstance(size, int) and draw.chance(0.5):
        counts = [draw.integer(0, 2) for _ in range(size)]
        each = [i for i, count in enumerate(counts) for _ in range(count)]
        given = draw.choice((str(counts), f"torch.tensor({counts}, dtype=torch.int64)"))
        oracle = lambda env: taken(env[name], along(axis, lambda n: each))  # noqa: E731
        return Step("repeat", f"sr.repeat({name}, {given}{text})", oracle, (name,), (draw.name(),))
    if isinstance(size, Lengths) and draw.chance(0.5) and not is_loose(x.axes):
        made = _by_counts(draw, name, text, axis)
        if made is not None:
            return made
    count = draw.integer(0, 2)
    oracle = lambda env: taken(env[name], along(axis, lambda n: [i for i in range(n) for _ in range(count)]))  # noqa: E731
    quiet = is_chain(x) and is_free(x, [axis])
    return Step("repeat", f"sr.repeat({name}, {count}{text})", oracle, (name,), (draw.name(),), waits=not quiet)


def _by_counts(draw: Draw, name: str, text: str, axis: int) -> Step | None:
    """A count for each entry of each row."""
    x = draw[name]
    if any(p >= axis for a in x.axes[: axis + 1] for p in parents(a)):
        return None
    shape = shape_only(x.axes[: axis + 1])
    values = {index: draw.integer(0, 2) for index in shape.indices}
    leaf = like(draw.random, shape, torch.int64, values=values)
    if leaf is None:
        return None
    counts = draw.given(leaf)

    def oracle(env: Environment) -> Mapped:
        given = env[counts]
        x = env[name]
        if not same_axes(given.axes, x.axes[: axis + 1]):
            raise Refused(ValueError)
        check_order(x, axis + 1)
        lengths = dict.fromkeys(cells(x.axes, range(axis)), 0)
        source: dict[Index, Index] = {}
        for index, count in zip(given.indices, given.flat.tolist(), strict=True):
            for _ in range(count):
                source[(*index[:-1], lengths[index[:-1]])] = index
                lengths[index[:-1]] += 1
        return within_rows(x, axis, lengths, source)

    return Step("repeat", f"sr.repeat({name}, {counts}{text})", oracle, (name, counts), (draw.name(),))


@generator(1)
def tile(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: len(x.indices) < 20)
    if name is None:
        return None
    x = draw[name]
    counts = [draw.choice((1, 1, 2, 0)) for _ in range(draw.integer(1, max(x.ndim, 1) + draw.choice((0, 0, 1))))]

    def oracle(env: Environment) -> Mapped:
        made = env[name]
        for _ in range(len(counts) - made.ndim):
            made = made.expanded(0)
        picks = {}
        for axis, count in zip(range(made.ndim - len(counts), made.ndim), counts, strict=True):
            picks[axis] = Pick(lambda n, count=count: list(range(n)) * count)
        return taken(made, picks)

    return Step("tile", f"sr.tile({name}, {tuple(counts)})", oracle, (name,), (draw.name(),))


@generator(1.5)
def split(draw: Draw) -> Step | None:
    name = draw.tensor()
    if name is None:
        return None
    x = draw[name]
    found = random_axes(draw, x, several=False, none=False)
    if found is None:
        return None
    text, (axis,) = found
    total = longest(x, axis)
    if draw.chance(0.5):
        size = draw.integer(1, 3)
        given: Any = size
        ends = [size * k for k in range(max(-(-total // size), 1) + 1)]
    else:
        sizes = [draw.integer(0, 2)]
        sizes.append(total - sizes[0] if total >= sizes[0] else 0)
        if draw.chance(0.1):
            sizes[-1] += draw.choice((1, -1))
        given = sizes
        ends = [0, sizes[0], sum(sizes)]

    def oracle(env: Environment) -> tuple[Mapped, ...]:
        x = env[name]
        if isinstance(given, list):
            least = longest(x, axis)
            if min(given) < 0 or sum(given) < least or (isinstance(x.axes[axis], int) and sum(given) != least):
                raise Refused(ValueError)
        elif len(ends) - 1 != max(-(-longest(x, axis) // given), 1):
            raise Undecided
        return tuple(
            taken(x, along(axis, lambda n, a=a, b=b: range(min(a, n), min(b, n)))) for a, b in itertools.pairwise(ends)
        )

    names = tuple(draw.name() for _ in ends[1:])
    words = f"[part.clone() for part in sr.split({name}, {given}{text})]"
    return Step("split", f"{'*' if len(names) == 1 else ''}{words}", oracle, (name,), names)
