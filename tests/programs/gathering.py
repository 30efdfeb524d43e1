"""Steps that move entries by index: take, take_along_axis, gather, scatter, index_add, embedding and bags."""

from __future__ import annotations

from typing import Any

import torch
from tests.programs.broadcast import fits, kind_of, stretched
from tests.programs.keys import longest, shape_only
from tests.programs.leaves import UNSIGNED, Leaf, like, random_leaf, random_shape, random_values
from tests.programs.lines import groups, without
from tests.programs.mapped import Axis, Index, Lengths, Mapped, cells, is_loose, parents, size_at
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.reductions import is_free, random_axes
from tests.programs.select import one, select, several, taken, wrapped
from tests.programs.verdicts import Refused, Undecided


def with_position(index: Index, axis: int, to: int) -> Index:
    return (*index[:axis], to, *index[axis + 1 :])


# ------------------------------------------------------------------------------------------------------ take


@generator(2)
def take(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: x.ndim > 0)
    if name is None:
        return None
    x = draw[name]
    found = random_axes(draw, x, several=False, none=False)
    if found is None:
        return None
    text, (axis,) = found
    size = longest(x, axis)
    reach = draw.choice((size, size, size + 1))
    which: Any = [draw.integer(-reach, reach) if reach else 0 for _ in range(draw.integer(0, 3))]
    if draw.chance(0.4):
        which = draw.integer(-reach, reach)
    fill = draw.choice((0, 1)) if draw.chance(0.6) else None
    if x.dtype == torch.bool and fill is not None:
        fill = bool(fill)

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        pick = one(which) if isinstance(which, int) else several(which)
        return taken(x, {axis: pick}) if fill is None else _filled(x, axis, which, fill)

    shown = which if isinstance(which, int) or draw.chance(0.5) else f"torch.tensor({which}, dtype=torch.int64)"
    more = "" if fill is None else f", fill={fill}"
    return Step("take", f"sr.take({name}, {shown}{text}{more})", oracle, (name,), (draw.name(),))


def _filled(x: Mapped, axis: int, which: Any, fill: Any) -> Mapped:
    """What a row lacks is filled; what depends on a missing entry is left empty."""
    wanted = [which] if isinstance(which, int) else which
    others = [a for a in range(x.ndim) if a != axis]
    axes: dict[int, Axis] = {axis: len(wanted)}

    def source(index: dict[int, int]) -> dict[int, int] | None:
        """The old index of a new one, known along enough axes; None where there is none."""
        n = size_at(x.axes, axis, index)
        i = wanted[index[axis]]
        return index | {axis: i + n if i < 0 else i} if -n <= i < n else None

    for a in sorted(others, key=lambda a: len(parents(x.axes[a]))):
        own = x.axes[a]
        if not isinstance(own, Lengths) or axis not in own.parents:
            axes[a] = own
            continue
        table = {}
        for key in cells([axes.get(b, 0) for b in range(x.ndim)], own.parents):
            old = source(dict(zip(own.parents, key, strict=True)))
            table[key] = 0 if old is None else own.table[tuple(old[p] for p in own.parents)]
        axes[a] = Lengths(own.parents, table, own.loose)
    shape = [axes[a] for a in range(x.ndim)]
    flat = []
    for index in cells(shape):
        old = source(dict(enumerate(index)))
        value = (
            torch.tensor(fill, dtype=x.dtype) if old is None else x.flat[x.rank[tuple(old[a] for a in range(x.ndim))]]
        )
        flat.append(value)
    made = Mapped.of(shape, torch.stack(flat) if flat else x.flat[:0])
    return taken(made, {axis: one(0)}) if isinstance(which, int) else made


# ------------------------------------------------------------------------------------------------------ along an axis


def random_index(draw: Draw, x: Mapped, axis: int, *, distinct: bool, negative: bool) -> str | None:
    """Positions along an axis for other lengths there, each of them one that the other positions have."""
    if not is_free(x, [axis]) or is_loose(x.axes):
        return None
    size = x.axes[axis]
    shape: list[Axis] = list(x.axes)
    if isinstance(size, Lengths):
        table = {key: draw.integer(0, n) if distinct or n == 0 else draw.integer(0, 3) for key, n in size.table.items()}
        shape[axis] = size if draw.chance(0.3) else Lengths(size.parents, table)
    elif draw.chance(0.5):
        shape[axis] = draw.integer(0, size) if distinct or size == 0 else draw.integer(0, 3)
    values: dict[Index, int] = {}
    wrong = draw.chance(0.04)
    for others, ranks in groups(shape_only(shape), [axis]).items():
        key = (*others[:axis], 0, *others[axis:])
        n = size_at(x.axes, axis, key)
        order = draw.random.sample(range(n), n) if distinct else [draw.integer(0, n - 1) for _ in ranks]
        for k in range(len(ranks)):
            at = order[k] + (n if wrong else 0)
            values[with_position(key, axis, k)] = at - n if negative and draw.chance(0.4) else at
    leaf = like(draw.random, shape_only(shape), torch.int64, values=values)
    return None if leaf is None else draw.given(leaf)


def resolve(x: Mapped, axis: int, index: Index, to: int, negative: bool) -> Index:
    """The index of x that an entry of an index tensor means."""
    n = size_at(x.axes, axis, index)
    if to < 0 and not negative:
        raise Refused(IndexError)
    return with_position(index, axis, wrapped(to, n))


@generator(3)
def gather(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: x.ndim > 0)
    if name is None:
        return None
    x = draw[name]
    axis = draw.integer(0, x.ndim - 1)
    function = draw.choice(("gather", "take_along_axis"))
    negative = function == "take_along_axis"
    if negative and draw.chance(0.25) and is_free(x, [axis]):
        return _along_stretched(draw, name, axis)
    at = random_index(draw, x, axis, distinct=False, negative=negative)
    if at is None:
        return None
    shown = axis - x.ndim if draw.chance(0.3) else axis

    def oracle(env: Environment) -> Mapped:
        x, where = env[name], env[at]
        pairs = zip(where.indices, where.flat.tolist(), strict=True)
        found = [x.rank[resolve(x, axis, index, int(to), negative)] for index, to in pairs]
        return Mapped.of(where.axes, x.flat[torch.tensor(found, dtype=torch.int64)])

    return Step(function, f"sr.{function}({name}, {at}, axis={shown})", oracle, (name, at), (draw.name(),))


def _along_stretched(draw: Draw, name: str, axis: int) -> Step:
    """Positions that are the same for some rows: a dense index whose other axes have size 1 or that of the tensor."""
    x = draw[name]
    own = x.axes[axis]
    least = min(own.table.values(), default=0) if isinstance(own, Lengths) else own
    sizes = [a if isinstance(a, int) and draw.chance(0.5) else 1 for a in x.axes]
    sizes[axis] = draw.integer(0, 3) if least else 0
    values = [draw.integer(-least, least - 1) for _ in cells(sizes)]
    at = draw.given(Leaf(tuple(sizes), tuple(values), torch.int64, plain=draw.chance(0.5)))

    def oracle(env: Environment) -> Mapped:
        x, where = env[name], env[at]
        axes = [where.axes[axis] if a == axis else size for a, size in enumerate(x.axes)]
        order = cells(axes)
        places = zip(order, stretched(where, axes).tolist(), strict=True)
        found = [x.rank[resolve(x, axis, index, int(to), True)] for index, to in places]
        return Mapped.of(axes, x.flat[torch.tensor(found, dtype=torch.int64)])

    words = f"sr.take_along_axis({name}, {at}, axis={axis})"
    return Step("take_along_axis", words, oracle, (name, at), (draw.name(),))


@generator(2)
def scatter(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: x.ndim > 0 and x.dtype not in UNSIGNED)
    if name is None:
        return None
    x = draw[name]
    axis = draw.integer(0, x.ndim - 1)
    reduce = draw.choice((None, None, "sum", "prod", "amax", "amin")) if kind_of(x.dtype) in (1, 2) else None
    at = random_index(draw, x, axis, distinct=reduce is None, negative=False)
    if at is None:
        return None
    leaf = like(draw.random, draw[at], x.dtype)
    if leaf is None or draw.chance(0.2):
        (value,) = random_values(draw.random, 1, x.dtype)
        source: Any = value
    else:
        source = draw.like(leaf)

    def oracle(env: Environment) -> Mapped:
        x, where = env[name], env[at]
        given = (
            env[source].flat
            if isinstance(source, str)
            else torch.tensor(source, dtype=x.dtype).expand(len(where.indices))
        )
        pairs = zip(where.indices, where.flat.tolist(), strict=True)
        found = [x.rank[resolve(x, axis, index, int(to), False)] for index, to in pairs]
        to = torch.tensor(found, dtype=torch.int64)
        if reduce is None:
            return x.computed(x.flat.index_put((to,), given))
        members: dict[int, list[torch.Tensor]] = {k: [x.flat[k]] for k in range(len(x.indices))}
        for k, value in zip(found, given, strict=True):
            members[k].append(value)
        combine = {"sum": torch.sum, "prod": torch.prod, "amax": torch.amax, "amin": torch.amin}[reduce]
        made = [combine(torch.stack(m)).to(x.dtype) for m in members.values()]
        return x.computed(torch.stack(made) if made else x.flat)

    uses = (name, at, source) if isinstance(source, str) else (name, at)
    more = "" if reduce is None else f", reduce={reduce!r}"
    words = f"sr.scatter({name}, {at}, {source}, axis={axis}{more})"
    return Step("scatter", words, oracle, uses, (draw.name(),), same_shape=True)


@generator(1.5)
def index_add(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: x.ndim > 0 and kind_of(x.dtype) > 0 and x.dtype not in UNSIGNED)
    if name is None:
        return None
    x = draw[name]
    axis = draw.integer(0, x.ndim - 1)
    if not is_free(x, [axis]):
        return None
    size = x.axes[axis]
    least = min(size.table.values(), default=2) if isinstance(size, Lengths) else size
    which = [draw.integer(0, least - 1) for _ in range(draw.integer(0, 3))] if least else []
    if draw.chance(0.05):
        which = [*which, 4]
    alpha = draw.choice((1, 1, 2))
    source = _added_source(draw, x, axis, len(which))

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        numbered = Mapped.of(x.axes, torch.arange(len(x.indices)))
        try:
            axes, where = select(numbered, {axis: several(which)})
        except Refused:
            if not x.indices and isinstance(x.axes[axis], int):
                raise Undecided from None  # nobody looks at positions where there is nothing to add to
            raise
        order = cells(axes)
        to = torch.tensor([x.rank[where[index]] for index in order], dtype=torch.int64)
        if isinstance(source, str):
            given = env[source]
            if not fits(given, axes):
                raise Refused(ValueError)
            added = stretched(given, axes)
        else:
            added = torch.tensor(source, dtype=x.dtype).expand(len(order))
        return x.computed(x.flat.index_add(0, to, (added * alpha).to(x.dtype)))

    uses = (name, source) if isinstance(source, str) else (name,)
    words = f"sr.index_add({name}, torch.tensor({which}, dtype=torch.int64), {source}, axis={axis}, alpha={alpha})"
    return Step("index_add", words, oracle, uses, (draw.name(),), same_shape=True)


def _added_source(draw: Draw, x: Mapped, axis: int, count: int) -> Any:
    axes = list(x.axes)
    axes[axis] = count
    leaf = like(draw.random, shape_only(axes), x.dtype)
    if leaf is None or draw.chance(0.3):
        return random_values(draw.random, 1, x.dtype)[0]
    return draw.like(leaf)


# ------------------------------------------------------------------------------------------------------ tables


def random_ids(draw: Draw, rows: int) -> str | None:
    """A tensor of row numbers of a table."""
    axes = random_shape(draw.random)
    values = [draw.integer(0, rows - 1) for _ in cells(axes)]
    leaf = random_leaf(draw.random, draw.choice((torch.int64, torch.int64, torch.int32)), axes=axes, values=values)
    return draw.given(leaf)


def random_table(draw: Draw, rows: int, *sizes: int, dtype: torch.dtype | None = None) -> str:
    dtype = dtype or (draw.dtype if kind_of(draw.dtype) == 2 else torch.float64)
    count = rows
    for n in sizes:
        count *= n
    values = random_values(draw.random, count, dtype)
    return draw.like(Leaf((rows, *sizes), values, dtype, plain=True))


@generator(1.5)
def embedding(draw: Draw) -> Step | None:
    rows, width = draw.integer(1, 4), draw.integer(0, 3)
    ids, table = random_ids(draw, rows), random_table(draw, rows, width)
    if ids is None or ids in draw.program.plain:
        return None

    def oracle(env: Environment) -> Mapped:
        x, weight = env[ids], env[table].dense_values()
        axes = (*x.axes, weight.shape[1])
        return Mapped.of(axes, weight[x.flat.to(torch.int64)].reshape(-1))

    return Step("embedding", f"sr.embedding({ids}, {table})", oracle, (ids, table), (draw.name(),))


@generator(2)
def embedding_bag(draw: Draw) -> Step | None:
    """The last ragged axis, as it is seen, reduced: rows of a table added, averaged, or their greatest."""
    rows, width = draw.integer(1, 4), draw.integer(0, 3)
    ids = random_ids(draw, rows)
    if ids is None or not draw[ids].is_ragged:
        return None
    x = draw[ids]
    table = random_table(draw, rows, width)
    axis = max(a for a, own in enumerate(x.axes) if isinstance(own, Lengths))
    mode = draw.choice(("sum", "mean", "max"))
    weights = None
    if mode == "sum" and draw.chance(0.4):
        leaf = like(draw.random, x, draw[table].dtype)
        weights = None if leaf is None else draw.like(leaf)
    padding = draw.integer(0, rows - 1) if draw.chance(0.2) else None

    def oracle(env: Environment) -> Mapped:
        x, weight = env[ids], env[table].dense_values()
        axes = without(x.axes, [axis])
        found = groups(x, [axis])
        made = []
        for index in cells(axes):
            members = [k for k in found.get(index, []) if padding is None or int(x.flat[k]) != padding]
            picked = weight[x.flat[torch.tensor(members, dtype=torch.int64)].to(torch.int64)]
            if weights is not None:
                picked = picked * env[weights].flat[torch.tensor(members, dtype=torch.int64)][:, None]
            made.append(_bag(picked, mode))
        flat = torch.cat(made) if made else weight.reshape(-1)[:0]
        return Mapped.of((*axes, weight.shape[1]), flat)

    options = f", mode={mode!r}"
    options += f", per_sample_weights={weights}" if weights else ""
    options += f", padding_idx={padding}" if padding is not None else ""
    uses = (ids, table, weights) if weights else (ids, table)
    return Step("embedding_bag", f"sr.embedding_bag({ids}, {table}{options})", oracle, uses, (draw.name(),))


def _bag(rows: torch.Tensor, mode: str) -> torch.Tensor:
    if not rows.shape[0]:
        return rows.sum(0)
    wide = rows.to(torch.float64)
    made = wide.sum(0) if mode == "sum" else wide.mean(0) if mode == "mean" else wide.amax(0)
    return made.to(rows.dtype)
