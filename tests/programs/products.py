"""Steps that multiply and add up: einsum, matmul, outer, vecdot, tensordot, linear."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tests.programs.broadcast import kind_of, promoted
from tests.programs.keys import shape_only
from tests.programs.leaves import UNSIGNED, like
from tests.programs.lines import without
from tests.programs.mapped import Axis, Lengths, Mapped, cells, is_loose, parents
from tests.programs.operands import small
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.verdicts import Refused, Undecided, Verdict, either

import serrate as sr


def multiplies(x: Mapped) -> bool:
    return kind_of(x.dtype) > 0 and x.dtype not in UNSIGNED and not is_loose(x.axes) and x.ndim <= 8


def contract(parts: Sequence[tuple[str, Mapped]], out: str) -> Mapped | Verdict:
    """The sum of products over labels, where an AxisError may say that these axes cannot be multiplied one by one."""
    made = multiplied(parts, out)
    return made if is_plain(parts, out) else either(made, sr.errors.AxisError)


def is_plain(parts: Sequence[tuple[str, Mapped]], out: str) -> bool:
    """Products that are always computed.

    One operand is dense, and the result keeps the packed axes that it shares with the other; or both have the same
    packed axes, all kept; or every ragged axis depends on the same axes, which both have and the result keeps.
    """
    packed = [_packed(names, x) for names, x in parts]
    if len(parts) == 1:
        return True
    if not all(packed):
        shared = {c for names, _ in parts for c in names if all(c in other for other, _ in parts)}
        return shared & set().union(*packed) <= set(out)
    if packed[0] == packed[1]:
        return packed[0] <= set(out)
    found = {frozenset(names[p] for p in axis.parents) for names, x in parts for axis in x.axes if parents(axis)}
    return len(found) == 1 and next(iter(found)) <= set(out) and all(next(iter(found)) <= set(n) for n, _ in parts)


def _packed(names: str, x: Mapped) -> set[str]:
    return {names[a] for a, axis in enumerate(x.axes) if parents(axis)} | {names[p] for a in x.axes for p in parents(a)}


def multiplied(parts: Sequence[tuple[str, Mapped]], out: str) -> Mapped:
    labels = "".join(dict.fromkeys("".join(names for names, _ in parts)))
    axes = _labelled(labels, parts)
    if not small(axes):
        raise Undecided
    dtype = parts[0][1].dtype
    for _, x in parts[1:]:
        dtype = promoted(dtype, x.dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    indices = cells(axes)
    product = torch.ones(len(indices), dtype=wide)
    for names, x in parts:
        at = [labels.index(name) for name in names]
        ranks = torch.tensor([x.rank[tuple(index[a] for a in at)] for index in indices], dtype=torch.int64)
        product = product * x.flat.to(wide)[ranks]
    kept = [labels.index(name) for name in out]
    left = without(axes, [a for a in range(len(labels)) if a not in kept])
    order = sorted(kept)
    made = [left[order.index(a)] for a in kept]
    where = {order.index(a): k for k, a in enumerate(kept)}
    made = [axis.renamed(where) if isinstance(axis, Lengths) else axis for axis in made]
    rank = {index: k for k, index in enumerate(cells(made))}
    to = torch.tensor([rank[tuple(index[a] for a in kept)] for index in indices], dtype=torch.int64)
    flat = torch.zeros(len(rank), dtype=wide).index_add(0, to, product)
    return Mapped.of(made, flat.to(dtype))


def _labelled(labels: str, parts: Sequence[tuple[str, Mapped]]) -> list[Axis]:
    """One axis per label, its parents by the labels' numbers; Refused where operands do not agree."""
    found: dict[str, Axis] = {}
    for names, x in parts:
        number = {a: labels.index(name) for a, name in enumerate(names)}
        for name, axis in zip(names, x.axes, strict=True):
            own = axis.renamed(number).sorted() if isinstance(axis, Lengths) else axis
            own = Lengths(own.parents, own.table, True) if isinstance(own, Lengths) else own
            if name in found and found[name] != own:
                if _could_be_one(found[name], own):
                    raise Undecided
                raise Refused(ValueError)
            found[name] = own
    return [found[name] for name in labels]


def _could_be_one(one_: Axis, other: Axis) -> bool:
    return 1 in (one_, other)  # torch's einsum stretches size 1


# ------------------------------------------------------------------------------------------------------ einsum


@generator(4)
def einsum(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: multiplies(x) and len(x.indices) < 40)
    if name is None:
        return None
    x = draw[name]
    labels = "abcdefghij"[: x.ndim]
    other = _partner(draw, name, labels) if draw.chance(0.85) else None
    parts = [(labels, name)] if other is None else [(labels, name), other]
    if draw.chance(0.3):
        parts.reverse()
    if all(n in draw.program.plain for _, n in parts):
        return None
    every = list(dict.fromkeys("".join(names for names, _ in parts)))
    kept = [c for c in every if draw.chance(0.7)]
    draw.random.shuffle(kept)
    if draw.chance(0.5):
        kept.sort()
    out = "".join(kept)
    equation = f"{','.join(names for names, _ in parts)}->{out}"

    def oracle(env: Environment) -> Mapped | Verdict:
        return contract([(names, env[n]) for names, n in parts], out)

    uses = tuple(dict.fromkeys(n for _, n in parts))
    words = f"sr.einsum({equation!r}, {', '.join(n for _, n in parts)})" + (".clone()" if len(parts) == 1 else "")
    return Step("einsum", words, oracle, uses, (draw.name(),))


def _partner(draw: Draw, name: str, labels: str) -> tuple[str, str] | None:
    """A tensor on some of the axes of another, closed under parents, with a new axis or two."""
    x = draw[name]
    chosen = {a for a in range(x.ndim) if draw.chance(0.5)}
    while more := {p for a in chosen for p in parents(x.axes[a])} - chosen:
        chosen |= more
    order = sorted(chosen)
    axes: list[Axis] = []
    where = {a: k for k, a in enumerate(order)}
    for a in order:
        axis = x.axes[a]
        axes.append(axis.renamed(where) if isinstance(axis, Lengths) else axis)
    names = "".join(labels[a] for a in order)
    uniform = [k for k, axis in enumerate(axes) if isinstance(axis, int)]
    if draw.chance(0.4) and uniform:
        own = (draw.choice(uniform),)
        axes.append(Lengths(own, {key: draw.integer(0, 2) for key in cells(axes, own)}))
        names += "x"
    if draw.chance(0.5):
        axes.append(draw.integer(0, 3))
        names += "y"
    if len(cells(axes)) > 60:
        return None
    leaf = like(draw.random, shape_only(axes), x.dtype)
    return None if leaf is None else (names, draw.like(leaf))
