"""Steps that join tensors: concat and stack."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tests.programs.broadcast import promoted
from tests.programs.keys import shape_only
from tests.programs.leaves import like, random_leaf
from tests.programs.mapped import Axis, Index, Lengths, Mapped, cells, is_chain, is_loose, parents, same_axes
from tests.programs.operands import small
from tests.programs.program import Draw, Step, generator
from tests.programs.reductions import is_free
from tests.programs.verdicts import Refused, Undecided


def joined(parts: Sequence[Mapped], axis: int) -> Mapped:
    """Parts one after the other along an axis; on a ragged one row by row."""
    if len({p.ndim for p in parts}) > 1:
        raise Refused(ValueError)
    ragged = next((p.axes[axis] for p in parts if isinstance(p.axes[axis], Lengths)), None)
    shapes = [_with_ragged(p, axis, ragged) for p in parts]
    first = shapes[0]
    _check_joined(shapes, axis)
    starts: list[dict[Index, int]] = []
    ends: dict[Index, int] = {}
    for shape in shapes:
        starts.append(dict(ends))
        for key in _keys(shape[axis]):
            ends[key] = ends.get(key, 0) + _at(shape[axis], key)
    dtype = parts[0].dtype
    for part in parts[1:]:
        dtype = promoted(dtype, part.dtype)

    def moved(k: int, index: Sequence[int], own: tuple[int, ...] | None = None) -> Index:
        """An index of part k, along all axes or some, in the whole."""
        nest = tuple(range(len(first))) if own is None else own
        row = tuple(index[nest.index(p)] for p in parents(first[axis])) if axis in nest else ()
        return tuple(i + starts[k].get(row, 0) if a == axis else i for a, i in zip(nest, index, strict=True))

    axes: list[Axis] = []
    for a, own in enumerate(first):
        if a == axis:
            axes.append(Lengths(own.parents, ends, own.loose) if isinstance(own, Lengths) else ends[()])
        elif isinstance(own, Lengths) and axis in own.parents:
            table = {
                moved(k, key, own.parents): n
                for k, shape in enumerate(shapes)
                for key, n in _same_order(shape[a], own).table.items()
            }
            axes.append(Lengths(own.parents, table, own.loose))
        else:
            axes.append(own)
    where: dict[Index, torch.Tensor] = {}
    for k, part in enumerate(parts):
        flat = part.flat.to(dtype)
        where |= {moved(k, index): flat[r] for r, index in enumerate(part.indices)}
    made = [where[index] for index in cells(axes)]
    return Mapped.of(axes, torch.stack(made) if made else torch.cat([p.flat.to(dtype)[:0] for p in parts]))


def _with_ragged(part: Mapped, axis: int, ragged: Axis | None) -> list[Axis]:
    """The axes of a part; a uniform one that joins a ragged one brings as many entries to every row."""
    axes = list(part.axes)
    size = axes[axis]
    if isinstance(ragged, Lengths) and isinstance(size, int):
        axes[axis] = Lengths(ragged.parents, dict.fromkeys(ragged.table, size), ragged.loose)
    return axes


def _keys(axis: Axis) -> list[Index]:
    return list(axis.table) if isinstance(axis, Lengths) else [()]


def _at(axis: Axis, key: Index) -> int:
    return axis.table[key] if isinstance(axis, Lengths) else axis


def _same_order(axis: Axis, like_: Lengths) -> Lengths:
    assert isinstance(axis, Lengths)
    order = [axis.parents.index(p) for p in like_.parents]
    return Lengths(like_.parents, {tuple(key[i] for i in order): n for key, n in axis.table.items()}, axis.loose)


def _check_joined(shapes: Sequence[Sequence[Axis]], axis: int) -> None:
    first = shapes[0]
    for shape in shapes[1:]:
        for a, (one, other) in enumerate(zip(first, shape, strict=True)):
            if isinstance(one, Lengths) is not isinstance(other, Lengths):
                raise Refused(ValueError)
            if isinstance(one, Lengths) and isinstance(other, Lengths):
                if one.parents != other.parents:
                    if set(one.parents) == set(other.parents) and is_loose([one, other]):
                        raise Undecided
                    raise Refused(ValueError)
                if a != axis and axis not in one.parents and one != other:
                    raise Refused(ValueError)
                if a == axis and one.table.keys() != other.table.keys():
                    raise Refused(ValueError)
            elif a != axis and one != other:
                raise Refused(ValueError)


@generator(4)
def concat(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: x.ndim > 0 and len(x.indices) < 40)
    if name is None:
        return None
    x = draw[name]
    axis = draw.integer(0, x.ndim - 1)
    names = [name]
    for _ in range(draw.choice((1, 1, 1, 2))):
        other = _other_part(draw, name, axis)
        names.insert(draw.integer(0, len(names)), other)
    if all(n in draw.program.plain for n in names) or not small_enough(draw, names):
        return None
    shown = axis - x.ndim if draw.chance(0.3) else axis
    oracle = lambda env: joined([env[n] for n in names], axis)  # noqa: E731
    uses = tuple(dict.fromkeys(names))
    quiet = all(is_chain(draw[n]) and same_axes(draw[n].axes, x.axes) for n in uses) and is_free(x, [axis])
    words = f"sr.concat([{', '.join(names)}], axis={shown})"
    return Step("concat", words, oracle, uses, (draw.name(),), waits=not quiet)


def small_enough(draw: Draw, names: Sequence[str]) -> bool:
    return sum(len(draw[n].indices) for n in names) <= 150


def _other_part(draw: Draw, name: str, axis: int) -> str:
    """Something that joins along an axis: the same, or other lengths there, or a dense part, or what does not fit."""
    x = draw[name]
    kind = draw.choice(("itself", "same", "longer", "longer", "longer", "there", "dense", "any"))
    if kind == "there":
        return draw.choice([n for n, y in draw.program.environment.items() if y.ndim == x.ndim])
    if kind == "any" and draw.chance(0.3):
        return draw.given(random_leaf(draw.random, x.dtype))
    shape = x
    if kind in ("longer", "dense"):
        changed = _changed(draw, x, axis, kind == "dense")
        if changed is not None and small(changed):
            shape = shape_only(changed)
    leaf = None if kind == "itself" else like(draw.random, shape, x.dtype)
    return name if leaf is None else draw.like(leaf)


def _changed(draw: Draw, x: Mapped, axis: int, dense: bool) -> list[Axis] | None:
    """The axes of x with other lengths along one, and along those that depend on it."""
    axes: dict[int, Axis] = {}
    size = x.axes[axis]
    for a in sorted(range(x.ndim), key=lambda a: len(parents(x.axes[a]))):
        own = x.axes[a]
        if a == axis:
            if isinstance(size, Lengths) and not dense:
                axes[a] = Lengths(size.parents, {key: draw.integer(0, 2) for key in size.table}, size.loose)
            else:
                axes[a] = draw.integer(0, 2)
        elif isinstance(own, Lengths) and (axis in own.parents):
            if dense and isinstance(size, Lengths):
                return None
            known = [axes.get(b, 0) for b in range(x.ndim)]
            axes[a] = Lengths(own.parents, {key: draw.integer(0, 2) for key in cells(known, own.parents)}, own.loose)
        else:
            axes[a] = own
    return [axes[a] for a in range(x.ndim)]


@generator(2.5)
def stack(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: len(x.indices) < 30)
    if name is None:
        return None
    x = draw[name]
    axis = draw.integer(0, x.ndim)
    names = [name]
    for _ in range(draw.choice((0, 1, 1, 2))):
        at = [a for a in range(axis, x.ndim) if isinstance(x.axes[a], Lengths)]
        names.append(
            _other_part(draw, name, draw.choice(at)) if at and draw.chance(0.6) else _other_part_same(draw, name)
        )
    if all(n in draw.program.plain for n in names) or not small_enough(draw, names):
        return None
    shown = axis - x.ndim - 1 if draw.chance(0.3) else axis
    oracle = lambda env: stacked([env[n] for n in names], axis)  # noqa: E731
    uses = tuple(dict.fromkeys(names))
    return Step("stack", f"sr.stack([{', '.join(names)}], axis={shown})", oracle, uses, (draw.name(),))


def _other_part_same(draw: Draw, name: str) -> str:
    leaf = like(draw.random, draw[name], draw[name].dtype) if draw.chance(0.7) else None
    return name if leaf is None else draw.like(leaf)


def stacked(parts: Sequence[Mapped], axis: int) -> Mapped:
    """Parts along a new axis; ragged axes behind it depend on it, those before it must agree."""
    if len({p.ndim for p in parts}) > 1:
        raise Refused(ValueError)
    first = parts[0].axes
    for part in parts:
        for a, (one, other) in enumerate(zip(first, part.axes, strict=True)):
            if isinstance(one, Lengths) is not isinstance(other, Lengths):
                raise Refused(ValueError)
            if isinstance(one, Lengths) and isinstance(other, Lengths):
                if a < axis and any(p >= axis and isinstance(first[p], Lengths) for p in one.parents):
                    raise Refused(ValueError)
                if one.parents != other.parents and set(one.parents) == set(other.parents):
                    raise Undecided
                if one.parents != other.parents or (a < axis and one != other):
                    raise Refused(ValueError)
            elif one != other:
                raise Refused(ValueError)
    where = [a + (a >= axis) for a in range(len(first))]
    axes: list[Axis] = []
    for a, own in enumerate(first):
        if isinstance(own, Lengths) and a >= axis:
            table = {(k, *key): n for k, p in enumerate(parts) for key, n in _same_order(p.axes[a], own).table.items()}
            axes.append(Lengths((axis, *[where[p] for p in own.parents]), table, True))
        else:
            axes.append(own.renamed(where) if isinstance(own, Lengths) else own)
    axes.insert(axis, len(parts))
    dtype = parts[0].dtype
    for part in parts[1:]:
        dtype = promoted(dtype, part.dtype)
    found = {}
    for k, part in enumerate(parts):
        flat = part.flat.to(dtype)
        found |= {(*index[:axis], k, *index[axis:]): flat[r] for r, index in enumerate(part.indices)}
    made = [found[index] for index in cells(axes)]
    return Mapped.of(axes, torch.stack(made) if made else parts[0].flat.to(dtype)[:0])
