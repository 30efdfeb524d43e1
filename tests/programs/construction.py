"""Steps that cut dense tensors into rows: by lengths, offsets and row ids, from padded rows, as products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from tests.programs.keys import longest
from tests.programs.leaves import UNSIGNED, Leaf, random_values
from tests.programs.mapped import Axis, Index, Lengths, Mapped, cells
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.verdicts import Undecided


def dense(draw: Draw, axes: int) -> str | None:
    """A dense tensor of at least so many axes, torch's or Serrate's."""
    fits = lambda x: not x.is_ragged and x.ndim >= axes  # noqa: E731
    found = [name for name, x in draw.program.environment.items() if fits(x)]
    if found and draw.chance(0.5):
        return str(draw.choice(found))
    shape = [draw.choice((0, 1, 2, 3, 4, 5)), *(draw.integer(0, 3) for _ in range(draw.integer(axes - 1, 2)))]
    return values_of(draw, shape)


def values_of(draw: Draw, shape: Sequence[int]) -> str:
    """A new dense tensor of this shape."""
    numbers = random_values(draw.random, math.prod(shape), draw.dtype)
    return draw.like(Leaf(tuple(shape), numbers, draw.dtype, plain=draw.chance(0.5)))


def random_lengths(draw: Draw, total: int) -> list[int]:
    """Lengths of rows, some of them empty, that add up to a total."""
    count = draw.integer(0 if total == 0 else 1, 4)
    ends = sorted(draw.integer(0, total) for _ in range(count - 1))
    return [b - a for a, b in zip([0, *ends], [*ends, total], strict=True)] if count else []


def table(keys: Sequence[Index], lengths: Sequence[int], parents: Sequence[int]) -> Lengths:
    return Lengths(tuple(parents), dict(zip(keys, lengths, strict=True)))


def offsets_of(lengths: Sequence[int]) -> list[int]:
    return list(accumulate(lengths, initial=0))


def cut(x: Mapped, axes: Sequence[Axis], at: int, depth: int, *, stored: bool = True) -> Mapped:
    """A view in which `depth` axes stand for axis `at`, whose positions are numbered in the order of their indices."""
    made = cells(axes)
    rows: dict[Index, dict[Index, int]] = {}
    for index in made:
        numbers = rows.setdefault(index[:at], {})
        numbers.setdefault(index[at : at + depth], len(numbers))
    source = {i: (*i[:at], rows[i[:at]][i[at : at + depth]], *i[at + depth :]) for i in made}
    return x.seen(axes, source, stored=stored)


def step(draw: Draw, operation: str, name: str, words: str, view: Any, uses: tuple[str, ...] = ()) -> Step:
    """A step whose result shares the memory of a tensor of Serrate's; of one of torch's it is copied."""
    if name not in draw.program.plain:
        return Step(operation, words, view, (name, *uses), (draw.name(),))
    copied = lambda env: view(env).copied()  # noqa: E731
    return Step(operation, f"{words}.clone()", copied, (name, *uses), (draw.name(),))


@generator(2)
def packed(draw: Draw) -> Step | None:
    """Packed rows cut on one level or two."""
    name = dense(draw, 1)
    if name is None:
        return None
    x = draw[name]
    assert isinstance(x.axes[0], int)
    operation = draw.choice(("from_lengths", "from_offsets", "from_row_ids"))
    inner = random_lengths(draw, x.axes[0])
    levels = [inner] if operation == "from_row_ids" or draw.chance(0.6) else [random_lengths(draw, len(inner)), inner]

    def oracle(env: Environment) -> Mapped:
        axes: list[Axis] = [len(levels[0])]
        for lengths in levels:
            axes.append(table(cells(axes), lengths, range(len(axes))))
        return cut(env[name], [*axes, *env[name].axes[1:]], 0, len(axes))

    given: list[Any] = levels if operation == "from_lengths" else [offsets_of(lengths) for lengths in levels]
    shown = str(given if len(given) > 1 else given[0])
    if operation == "from_row_ids":
        shown = f"{[row for row, n in enumerate(inner) for _ in range(n)]}, {len(inner)}"
    elif len(given) == 1 and draw.chance(0.3):
        shown = f"np.array({shown}, dtype=np.int32)"
    return step(draw, operation, name, f"sr.{operation}({name}, {shown})", oracle)


@generator(1.5)
def nested(draw: Draw) -> Step | None:
    """An axis of a dense tensor cut alike for each outer index, or each time anew."""
    name = dense(draw, 1)
    if name is None:
        return None
    x = draw[name]
    at = draw.integer(0, x.ndim - 1)
    size = x.axes[at]
    assert isinstance(size, int)
    shown = at if draw.chance(0.7) else at - x.ndim
    lengths = random_lengths(draw, size)
    outer = cells(x.axes[:at])
    if at == 0 or not outer or draw.chance(0.5):

        def alike(env: Environment) -> Mapped:
            x = env[name]
            ragged = table(cells([len(lengths)]), lengths, [at])
            return cut(x, [*x.axes[:at], len(lengths), ragged, *x.axes[at + 1 :]], at, 2, stored=at == 0)

        words = f"sr.view_as_nested({name}, {offsets_of(lengths)}, {shown})"
        return step(draw, "view_as_nested", name, words, alike)
    rows = [draw.random.sample(lengths, len(lengths)) for _ in outer]

    def anew(env: Environment) -> Mapped:
        x = env[name]
        keys = cells([*x.axes[:at], len(lengths)])
        ragged = table(keys, [n for row in rows for n in row], range(at + 1))
        return cut(x, [*x.axes[:at], len(lengths), ragged, *x.axes[at + 1 :]], at, 2).copied()

    sizes = [*x.axes[:at], len(lengths) + 1]
    given = f"np.array({[offsets_of(row) for row in rows]}).reshape({sizes})"
    words = f"sr.view_as_nested({name}.clone().contiguous(), {given}, {shown})"
    return Step("view_as_nested", words, anew, (name,), (draw.name(),))


@generator(1)
def product(draw: Draw) -> Step | None:
    """Blocks of two ragged axes on one parent."""
    count = draw.integer(0, 3)
    p, q = ([draw.integer(0, 3) for _ in range(count)] for _ in range(2))
    features = [draw.integer(0, 2) for _ in range(draw.choice((0, 0, 1)))]
    name = values_of(draw, [sum(a * b for a, b in zip(p, q, strict=True)), *features])

    def oracle(env: Environment) -> Mapped:
        axes = [count, *(table(cells([count]), lengths, [0]) for lengths in (p, q))]
        return cut(env[name], [*axes, *env[name].axes[1:]], 0, 3)

    partitions = ", ".join(f"sr.Partition.from_lengths({lengths})" for lengths in (p, q))
    return step(draw, "from_product", name, f"sr.from_product({name}, {partitions})", oracle)


# ------------------------------------------------------------------------------------------------------------- padded


@generator(1)
def back(draw: Draw) -> Step | None:
    """Padded, and packed again."""
    name = draw.tensor(lambda x: x.is_ragged)
    if name is None:
        return None

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        if math.prod(longest(x, a) for a in range(x.ndim)) > 400:
            raise Undecided
        return x.copied()

    words = f"sr.from_dense({name}.to_dense(), like={name})"
    return Step("from_dense", words, oracle, (name,), (draw.name(),), same_shape=True)


@generator(1)
def unpadded(draw: Draw) -> Step | None:
    """The first entries of padded rows, and what is read behind the last."""
    name = dense(draw, 2)
    if name is None:
        return None
    x = draw[name]
    count, size = x.axes[:2]
    assert isinstance(count, int)
    assert isinstance(size, int)
    lengths = [draw.integer(0, size + 1) for _ in range(count)]
    fill: Any = draw.choice((False, True)) if x.dtype == torch.bool else draw.choice((0, 1))

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        axes = [count, table(cells([count]), lengths, [0]), *x.axes[2:]]
        wide = x.flat.to(torch.int64) if x.dtype in UNSIGNED else x.flat
        held = torch.cat([wide, torch.tensor([fill], dtype=wide.dtype)])
        places = [x.rank.get(index, len(x.indices)) for index in cells(axes)]
        return Mapped.of(axes, held[torch.tensor(places, dtype=torch.int64)].to(x.dtype), stored=True)

    how = f"lengths={lengths}" if draw.chance(0.5) else f"offsets={offsets_of(lengths)}"
    words = f"sr.from_dense({name}, {how}, padding_value={fill})"
    return Step("from_dense", words, oracle, (name,), (draw.name(),))


@generator(1)
def masked(draw: Draw) -> Step | None:
    """The entries of padded rows that a mask keeps."""
    name = dense(draw, 2)
    if name is None:
        return None
    shape = draw[name].axes[: draw.integer(2, draw[name].ndim)]
    kept = random_values(draw.random, len(cells(shape)), torch.bool)
    mask = draw.given(Leaf(shape, kept, torch.bool, plain=draw.chance(0.5)))

    def oracle(env: Environment) -> Mapped:
        x, m = env[name], env[mask]
        last = m.ndim - 1
        found: dict[Index, list[Index]] = {key: [] for key in cells(m.axes[:last])}
        for index, holds in zip(m.indices, m.flat.tolist(), strict=True):
            if holds:
                found[index[:last]].append(index)
        ragged = table(list(found), [len(members) for members in found.values()], range(last))
        axes = [*x.axes[:last], ragged, *x.axes[last + 1 :]]
        source = {i: (*found[i[:last]][i[last]], *i[last + 1 :]) for i in cells(axes)}
        return x.seen(axes, source, stored=True).copied()

    words = f"sr.from_dense({name}, mask={mask})"
    return Step("from_dense", words, oracle, (name, mask), (draw.name(),))
