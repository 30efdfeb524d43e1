"""Steps that order and find: sorting, searching, distinct elements, positions of what is not 0."""

from __future__ import annotations

from typing import Any

import torch
from tests.programs.broadcast import kind_of
from tests.programs.leaves import like
from tests.programs.lines import chosen, groups, kept, positions, resized
from tests.programs.mapped import Lengths, Mapped, cells, is_chain
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.reductions import is_free
from tests.programs.scans import chosen_axis, ordinary
from tests.programs.verdicts import Refused, Undecided


def order_of(row: torch.Tensor, descending: bool) -> torch.Tensor:
    return torch.sort(row, stable=True, descending=descending).indices


def ordered(x: Mapped, axis: int, descending: bool) -> tuple[Mapped, Mapped]:
    """Entries in order, and their positions along the axis."""
    values = kept(x, [axis], lambda row: row[order_of(row, descending)])
    where = positions(x, axis)
    pairs = []
    for members in groups(x, [axis]).values():
        order = order_of(x.flat[torch.tensor(members)].detach(), descending).tolist()
        pairs += list(zip(members, [members[k] for k in order], strict=True))
    found = torch.tensor([source for _, source in sorted(pairs)], dtype=torch.int64)
    return values, x.computed(where.flat[found])


@generator(3)
def sorting(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: ordinary(x) and kind_of(x.dtype) < 3)
    if name is None:
        return None
    x = draw[name]
    found = chosen_axis(draw, x)
    if found is None:
        return None
    text, axis = found
    function = draw.choice(("sort", "sort", "argsort"))
    descending = draw.chance(0.4)
    which = 0 if function == "sort" else 1
    words = f"sr.{function}({name}{text}{', descending=True' if descending else ''})"
    quiet = is_chain(x) and is_free(x, [axis])
    oracle = lambda env: ordered(env[name], axis, descending)[which]  # noqa: E731
    return Step(function, words, oracle, (name,), (draw.name(),), waits=not quiet, same_shape=True)


@generator(2)
def topk(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: ordinary(x) and kind_of(x.dtype) < 3)
    if name is None:
        return None
    x = draw[name]
    found = chosen_axis(draw, x)
    if found is None:
        return None
    text, axis = found
    k = draw.integer(0, 3)
    largest = draw.chance(0.6)

    def oracle(env: Environment) -> tuple[Mapped, Mapped]:
        x = env[name]
        size = x.axes[axis]
        if isinstance(size, int) and k > size:
            if not is_free(x, [axis]):
                raise Undecided
            raise Refused(ValueError, IndexError)
        values = resized(x, axis, lambda row: row[order_of(row, largest)[:k]])
        where = positions(x, axis)
        picked: dict[Any, list[int]] = {}
        for index, members in groups(x, [axis]).items():
            order = order_of(x.flat[torch.tensor(members)].detach(), largest).tolist()[:k]
            picked[index] = [int(where.flat[members[i]]) for i in order]
        flat = [picked[(*i[:axis], *i[axis + 1 :])][i[axis]] for i in values.indices]
        return values, Mapped.of(values.axes, torch.tensor(flat, dtype=torch.int64))

    words = f"sr.topk({name}, {k}{text}{'' if largest else ', largest=False'})"
    quiet = is_chain(x) and is_free(x, [axis])
    return Step("topk", words, oracle, (name,), (draw.name(), draw.name()), waits=not quiet)


@generator(1.5)
def searchsorted(draw: Draw) -> Step | None:
    """How many entries of each sorted row stand before numbers: one for all rows, or a tensor's own elements."""
    name = draw.tensor(lambda x: ordinary(x) and kind_of(x.dtype) in (1, 2) and x.ndim > 0)
    if name is None:
        return None
    x = draw[name]
    axis = draw.integer(0, x.ndim - 1)
    if not is_free(x, [axis]):
        return None
    side = draw.choice(("left", "right"))
    if draw.chance(0.3):
        other = name
    else:
        shape = list(x.axes)
        size = x.axes[axis]
        if isinstance(size, Lengths):
            shape[axis] = Lengths(size.parents, {key: draw.integer(0, 2) for key in size.table}, size.loose)
        else:
            shape[axis] = draw.integer(0, 3)
        leaf = like(draw.random, Mapped.of(shape, torch.zeros(len(cells(shape)))), x.dtype)
        if leaf is None:
            return None
        other = draw.like(leaf, grad=False)

    def oracle(env: Environment) -> Mapped:
        x, v = env[name], env[other]
        rows = groups(x, [axis])
        held = x.flat.tolist()
        flat = []
        for index, value in zip(v.indices, v.flat.tolist(), strict=True):
            members = rows.get((*index[:axis], *index[axis + 1 :]), [])
            row = [held[k] for k in members]
            flat.append(sum(e < value or (side == "right" and e == value) for e in row))
        return Mapped.of(v.axes, torch.tensor(flat, dtype=torch.int64))

    shown = axis - x.ndim if draw.chance(0.3) else axis
    words = f"sr.searchsorted(sr.sort({name}, axis={shown}), {other}, side={side!r}, axis={shown})"
    return Step("searchsorted", words, oracle, tuple(dict.fromkeys((name, other))), (draw.name(),))


# ------------------------------------------------------------------------------------------------------ sets


def distinct(row: torch.Tensor) -> list[int]:
    """The first occurrence of each distinct element, in order of the elements."""
    found = row.detach().tolist()
    firsts: list[int] = []
    for k, value in enumerate(found):
        if value not in [found[f] for f in firsts]:
            firsts.append(k)
    return sorted(firsts, key=lambda k: (found[k].real, found[k].imag) if isinstance(found[k], complex) else found[k])


SETS = {
    "unique_values": ("values",),
    "unique_counts": ("values", "counts"),
    "unique_inverse": ("values", "inverse"),
    "unique_all": ("values", "indices", "inverse", "counts"),
}


@generator(2)
def sets(draw: Draw) -> Step | None:
    """Distinct elements; whether they have gradients is left open, so those of gradients' leaves are not asked for."""
    name = draw.tensor(lambda x: ordinary(x) and not x.flat.requires_grad)
    if name is None:
        return None
    x = draw[name]
    function = draw.choice(list(SETS))
    parts = SETS[function]
    counts_packed = "inverse" in parts or "indices" in parts
    everything = (not x.ndim or draw.chance(0.2)) and (not counts_packed or x.is_stored_as_seen)
    found = None if everything else chosen_axis(draw, x)
    if found is None and not everything:
        return None
    names = tuple(draw.name() for _ in parts)
    if found is None:
        oracle = lambda env: _unique_of_all(env[name], parts)  # noqa: E731
        words = f"sr.{function}({name})"
    else:
        text, axis = found
        oracle = lambda env: _unique_of_rows(env[name], axis, parts)  # noqa: E731
        words = f"sr.{function}({name}{text})"
    return Step(function, words, oracle, (name,), names)


def _unique_of_all(x: Mapped, parts: tuple[str, ...]) -> tuple[Mapped, ...]:
    flat = x.flat.detach()
    firsts = distinct(flat)
    found = flat.tolist()
    values = [found[k] for k in firsts]
    made = {
        "values": Mapped.dense(flat[torch.tensor(firsts, dtype=torch.int64)]),
        "indices": Mapped.dense(torch.tensor(firsts, dtype=torch.int64)),
        "counts": Mapped.dense(torch.tensor([found.count(v) for v in values], dtype=torch.int64)),
        "inverse": x.computed(torch.tensor([values.index(v) for v in found], dtype=torch.int64)),
    }
    return tuple(made[part] for part in parts)


def _unique_of_rows(x: Mapped, axis: int, parts: tuple[str, ...]) -> tuple[Mapped, ...]:
    flat = x.flat.detach()
    plain = Mapped.of(x.axes, flat)
    where = positions(x, axis).flat
    rows = groups(x, [axis])
    values = chosen(plain, axis, lambda row: row[torch.tensor(distinct(row), dtype=torch.int64)])
    made = {"values": values}
    counts, indices = [], []
    for index in values.indices:
        members = rows[(*index[:axis], *index[axis + 1 :])]
        row = flat[torch.tensor(members)]
        first = distinct(row)[index[axis]]
        indices.append(int(where[members[first]]))
        counts.append(row.tolist().count(row[first].item()))
    made["counts"] = Mapped.of(values.axes, torch.tensor(counts, dtype=torch.int64))
    made["indices"] = Mapped.of(values.axes, torch.tensor(indices, dtype=torch.int64))
    inverse = [0] * len(x.indices)
    for members in rows.values():
        row = flat[torch.tensor(members)]
        found = [row[k].item() for k in distinct(row)]
        for k, value in zip(members, row.tolist(), strict=True):
            inverse[k] = found.index(value)
    made["inverse"] = x.computed(torch.tensor(inverse, dtype=torch.int64))
    return tuple(made[part] for part in parts)


@generator(1)
def nonzero(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: x.ndim > 0)
    if name is None:
        return None
    x = draw[name]
    found = chosen_axis(draw, x)
    if draw.chance(0.3):
        names = tuple(draw.name() for _ in x.axes)

        def everywhere(env: Environment) -> tuple[Mapped, ...]:
            x = env[name]
            held = [index for index, v in zip(x.indices, x.flat.tolist(), strict=True) if v]
            return tuple(Mapped.dense(torch.tensor([i[a] for i in held], dtype=torch.int64)) for a in range(x.ndim))

        return Step("nonzero", f"{'*' if len(names) == 1 else ''}sr.nonzero({name})", everywhere, (name,), names)
    assert found is not None
    text, axis = found

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        held = [bool(v) for v in x.flat.tolist()]
        where = positions(x, axis)
        coded = Mapped.of(
            x.axes,
            torch.tensor([int(w) if h else -1 for w, h in zip(where.flat, held, strict=True)], dtype=torch.int64),
        )
        return chosen(coded, axis, lambda row: row[row >= 0])

    return Step("nonzero", f"sr.nonzero({name}{text})", oracle, (name,), (draw.name(),))
