"""Steps that sort rows into groups: group_by and the way back, bincount, reductions by id."""

from __future__ import annotations

import torch
from tests.programs.broadcast import kind_of
from tests.programs.gathering import random_ids
from tests.programs.keys import shape_only
from tests.programs.leaves import UNSIGNED, Leaf, like, random_values
from tests.programs.lines import groups, without
from tests.programs.mapped import Lengths, Mapped, cells, closed, parents
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.reductions import added, extreme, precise


def packed_axes(x: Mapped) -> int:
    """How many axes are packed; the others come after them, if x is stored as it is seen."""
    return len(closed(x.axes, [a for a, axis in enumerate(x.axes) if parents(axis)])) or 1


@generator(2)
def group_by(draw: Draw) -> Step | None:
    """Rows of a dense or ragged tensor by their keys, and back."""
    name = draw.tensor(lambda x: x.is_stored_as_seen and x.ndim > 0 and x.dtype not in UNSIGNED)
    if name is None or name in draw.program.plain:
        return None
    x = draw[name]
    count = draw.integer(1, 3)
    copies = draw.choice((None, None, 1, 2)) if not x.is_ragged else None
    # Rows of a dense tensor stand on the axes that keys have; keys for several groups have all but the last, or one.
    most = max(len(x.axes) - 1, 1)
    packed = packed_axes(x) if x.is_ragged else draw.integer(1, most) if copies is None else most
    outer = shape_only(x.axes[:packed])
    values = {index: draw.integer(-1, count - 1) for index in outer.indices}
    if copies is None:
        leaf = like(draw.random, outer, torch.int64, values=values)
    else:
        numbers = [draw.integer(-1, count - 1) for _ in range(len(outer.indices) * copies)]
        leaf = Leaf((*x.axes[:packed], copies), tuple(numbers), torch.int64, plain=True)
    if leaf is None:
        return None
    keys = draw.given(leaf)
    back = draw.chance(0.5) and x.dtype != torch.bool

    def oracle(env: Environment) -> Mapped:
        x, k = env[name], env[keys]
        outer = shape_only(x.axes[:packed])
        features = x.axes[packed:]
        width = len(cells(features))
        rows = x.flat.reshape(len(outer.indices), width)
        wanted = k.flat.reshape(len(outer.indices), copies or 1).tolist()
        members = [[i for i, own in enumerate(wanted) for key in own if key == g] for g in range(count)]
        if back:
            dtype = torch.int64 if kind_of(x.dtype) == 1 else x.dtype
            times = torch.tensor([sum(key >= 0 for key in own) for own in wanted])
            return Mapped.of(x.axes, (rows.to(dtype) * 3 * times[:, None].to(dtype)).reshape(-1))
        order = torch.tensor([i for group in members for i in group], dtype=torch.int64)
        axis = Lengths((0,), {(g,): len(group) for g, group in enumerate(members)})
        return Mapped.of((count, axis, *features), rows[order].reshape(-1))

    made = f"sr.group_by({name}, {keys}, {count})"
    words = f"(lambda g: g.ungroup(g * 3))({made})" if back else made
    return Step("group_by", words, oracle, (name, keys), (draw.name(),))


@generator(1.5)
def bincount(draw: Draw) -> Step | None:
    name = random_ids(draw, 4)
    if name is None or name in draw.program.plain or not draw[name].ndim:
        return None
    x = draw[name]
    axis = draw.integer(0, x.ndim - 1) if draw.chance(0.7) else None
    bins = draw.integer(4, 5)
    leaf = like(draw.random, x, torch.float64) if draw.chance(0.4) else None
    weights = None if leaf is None else draw.like(leaf)

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        flat = torch.ones(len(x.indices), dtype=torch.int64) if weights is None else env[weights].flat
        along = list(range(x.ndim)) if axis is None else [axis]
        axes = without(x.axes, along)
        found = groups(x, along)
        made = []
        for index in cells(axes):
            members = torch.tensor(found.get(index, []), dtype=torch.int64)
            made.append(
                torch.zeros(bins, dtype=flat.dtype).index_add(0, x.flat[members].to(torch.int64), flat[members])
            )
        return Mapped.of((*axes, bins), torch.cat(made) if made else flat[:0])

    options = f", minlength={bins}" + ("" if axis is None else f", axis={axis}")
    options += f", weights={weights}" if weights else ""
    uses = (name, weights) if weights else (name,)
    return Step("bincount", f"sr.bincount({name}{options})", oracle, uses, (draw.name(),))


@generator(2)
def segments(draw: Draw) -> Step | None:
    """Rows of a dense tensor reduced by unsorted ids."""
    dtype = draw.dtype if draw.dtype not in UNSIGNED else torch.int64
    kind = draw.choice(("sum", "mean", "max", "min", "prod", "softmax"))
    if (kind in ("mean", "softmax") and kind_of(dtype) != 2) or (dtype == torch.bool and kind != "sum"):
        dtype = torch.float64
    if kind in ("max", "min") and dtype.is_complex:
        dtype = torch.float64
    rows, width, count = draw.integer(0, 5), draw.integer(0, 2), draw.integer(1, 3)
    shape = (rows, width) if draw.chance(0.5) else (rows,)
    values = random_values(draw.random, len(cells(shape)), dtype)
    name = draw.like(Leaf(shape, values, dtype, plain=True))
    ids = [draw.integer(0, count - 1) for _ in range(rows)]
    given = draw.given(Leaf((rows,), tuple(ids), torch.int64, plain=True))

    def total(name_: str):  # type: ignore[no-untyped-def]
        made = added(name_, None)
        return lambda v: made(v).to(torch.int64) if kind_of(v.dtype) < 2 else made(v)

    def oracle(env: Environment) -> Mapped:
        table = env[name].flat.reshape(rows, -1) if rows else env[name].flat.reshape(0, width if len(shape) > 1 else 1)
        wanted = env[given].flat.tolist()
        columns = table.shape[1]
        if kind == "softmax":
            made = {}
            for g in range(count):
                members = [i for i, own in enumerate(wanted) if own == g]
                part = precise(lambda v: torch.softmax(v, 0))(table[torch.tensor(members, dtype=torch.int64)])
                made |= {i: part[k] for k, i in enumerate(members)}
            return Mapped.of(
                shape, torch.stack([made[i] for i in range(rows)]).reshape(-1) if rows else table.reshape(-1)
            )
        mean = precise(lambda v: v.sum() / v.numel() if v.numel() else v.sum() + float("nan"))
        function = {
            "sum": total("sum"),
            "prod": total("prod"),
            "mean": mean,
            "max": extreme("max"),
            "min": extreme("min"),
        }[kind]
        made = []
        for g in range(count):
            members = torch.tensor([i for i, own in enumerate(wanted) if own == g], dtype=torch.int64)
            made += [function(table[members, c]) for c in range(columns)]
        flat = torch.stack(made) if made else function(table.reshape(-1)[:0]).reshape(1)[:0]
        return Mapped.of((count, *shape[1:]), flat)

    return Step(
        f"segment_{kind}", f"sr.segment_{kind}({name}, {given}, {count})", oracle, (name, given), (draw.name(),)
    )
