"""Steps that change the shape: permutations, new and removed axes, stretching, reshape, diagonals kept."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tests.programs.broadcast import common, stretched
from tests.programs.leaves import UNSIGNED
from tests.programs.mapped import Axis, Index, Lengths, Mapped, is_chain, parents, uniform_if_alone
from tests.programs.operands import second, small
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.reductions import is_free
from tests.programs.select import one, split_axis, taken
from tests.programs.verdicts import Refused, Undecided


@generator(4)
def permutation(draw: Draw) -> Step | None:
    """Axes in another order: always a view."""
    name = draw.tensor(lambda x: x.ndim > 0)
    if name is None:
        return None
    x = draw[name]
    kind = draw.choice(("permute_dims", "permute_dims", "moveaxis", "matrix_transpose", "mT"))
    order = list(range(x.ndim))
    if kind == "permute_dims":
        draw.random.shuffle(order)
        text = f"sr.permute_dims({name}, {tuple(order)})"
    elif kind == "moveaxis":
        source, target = draw.integer(0, x.ndim - 1), draw.integer(0, x.ndim - 1)
        order.remove(source)
        order.insert(target, source)
        text = f"sr.moveaxis({name}, {source - x.ndim if draw.chance(0.3) else source}, {target})"
    elif x.ndim < 2:
        return None
    else:
        order[-2:] = order[-1], order[-2]
        text = f"{name}.mT" if kind == "mT" else f"sr.matrix_transpose({name})"
    oracle = lambda env: env[name].permuted(order)  # noqa: E731
    return Step("matrix_transpose" if kind == "mT" else kind, text, oracle, (name,), (draw.name(),), waits=False)


@generator(2)
def size_one(draw: Draw) -> Step | None:
    """An axis of size 1 added, or removed."""
    name = draw.tensor()
    if name is None:
        return None
    x = draw[name]
    if draw.chance(0.5) or not x.ndim:
        at = draw.integer(0, x.ndim)
        shown = at - x.ndim - 1 if draw.chance(0.3) else at
        oracle = lambda env: env[name].expanded(at)  # noqa: E731
        return Step(
            "expand_dims", f"sr.expand_dims({name}, axis={shown})", oracle, (name,), (draw.name(),), waits=False
        )
    ones = [a for a, axis in enumerate(x.axes) if axis == 1]
    at = draw.choice(ones) if ones and draw.chance(0.9) else draw.integer(0, x.ndim - 1)

    def squeezed(env: Environment) -> Mapped:
        if env[name].axes[at] != 1:
            raise Refused(ValueError)
        return taken(env[name], {at: one(0)})

    return Step("squeeze", f"sr.squeeze({name}, axis={at}).clone()", squeezed, (name,), (draw.name(),))


@generator(1)
def unstack(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: x.ndim > 0)
    if name is None:
        return None
    x = draw[name]
    axis = draw.integer(0, x.ndim - 1)
    size = x.axes[axis]
    count = size if isinstance(size, int) else 1
    if count == 0:
        return None
    names = tuple(draw.name() for _ in range(count))

    def oracle(env: Environment) -> tuple[Mapped, ...]:
        if isinstance(env[name].axes[axis], Lengths):
            raise Refused(ValueError)
        return tuple(taken(env[name], {axis: one(i)}) for i in range(count))

    words = f"{'*' if count == 1 else ''}[part.clone() for part in sr.unstack({name}, axis={axis})]"
    return Step("unstack", words, oracle, (name,), names)


@generator(1)
def rows(draw: Draw) -> Step | None:
    """One of the entries of the first axis, all of which are views."""
    fits = lambda x: x.is_stored_as_seen and is_chain(x) and x.ndim > 0 and x.axes[0] != 0  # noqa: E731
    name = draw.tensor(lambda x: fits(x) and isinstance(x.axes[0], int))
    if name is None:
        return None
    size = draw[name].axes[0]
    assert isinstance(size, int)
    i = draw.integer(0, size - 1)
    oracle = lambda env: taken(env[name], {0: one(i)}, view=True)  # noqa: E731
    return Step("rows", f"{name}.rows()[{i}]", oracle, (name,), (draw.name(),))


# ------------------------------------------------------------------------------------------------------ stretching


def stretch(x: Mapped, axes: Sequence[Axis]) -> Mapped:
    return Mapped.of(axes, stretched(x, axes))


@generator(2)
def broadcast(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: len(x.indices) < 40)
    if name is None:
        return None
    kind = draw.choice(("arrays", "arrays", "to", "to", "outer"))
    if kind == "outer":
        count = draw.integer(0, 2)

        def outer(env: Environment) -> Mapped:
            x = env[name]
            where = range(1, x.ndim + 1)
            axes = [a.renamed(where) if isinstance(a, Lengths) else a for a in x.axes]
            return stretch(x, [count, *axes])

        words = f"sr.broadcast_to({name}, ({count}, *{name}.shape)).clone()"
        return Step("broadcast_to", words, outer, (name,), (draw.name(),))
    other = second(draw, name, numbers=False).value
    if name in draw.program.plain and other in draw.program.plain:
        return None
    if kind == "arrays":

        def arrays(env: Environment) -> tuple[Mapped, Mapped]:
            axes = common(env[name].axes, env[other].axes)
            return stretch(env[name], axes), stretch(env[other], axes)

        names = (draw.name(), draw.name())
        words = f"[part.clone() for part in sr.broadcast_arrays({name}, {other})]"
        return Step("broadcast_arrays", words, arrays, tuple(dict.fromkeys((name, other))), names)
    if draw.chance(0.5):
        name, other = other, name

    def to(env: Environment) -> Mapped:
        x, y = env[name], env[other]
        axes = common(x.axes, y.axes)
        same = len(axes) == y.ndim and all(_equal(a, b) for a, b in zip(axes, y.axes, strict=True))
        if not same or not small(axes):
            raise Refused(ValueError)
        return stretch(x, axes)

    words = f"sr.broadcast_to({name}, {other}.shape).clone()"
    return Step("broadcast_to", words, to, tuple(dict.fromkeys((name, other))), (draw.name(),))


def _equal(a: Axis, b: Axis) -> bool:
    return (a.sorted() if isinstance(a, Lengths) else a) == (b.sorted() if isinstance(b, Lengths) else b)


# ------------------------------------------------------------------------------------------------------ reshape


def merged(x: Mapped, at: int) -> Mapped:
    """Uniform axes at and at + 1 as one, where the same ragged axes depend on both, or none on either."""
    one_, two = x.axes[at], x.axes[at + 1]
    assert isinstance(one_, int)
    assert isinstance(two, int)
    axes: list[Axis] = []
    where = [a - (a > at) for a in range(x.ndim)]
    for a, own in enumerate(x.axes):
        if a == at + 1:
            continue
        if a == at:
            axes.append(one_ * two)
        elif isinstance(own, Lengths):
            axes.append(_merged_lengths(own, at, two, where))
        else:
            axes.append(own)

    def moved(index: Index) -> Index:
        return (*index[:at], index[at] * two + index[at + 1], *index[at + 2 :])

    return x.moved(axes, {moved(index): index for index in x.indices})


def _merged_lengths(own: Lengths, at: int, size: int, where: Sequence[int]) -> Axis:
    both = {at, at + 1}
    if not both & set(own.parents):
        return own.renamed(where)
    if not both <= set(own.parents) or own.parents.index(at + 1) != own.parents.index(at) + 1:
        raise Undecided
    k = own.parents.index(at)
    parents_ = tuple(where[p] for p in own.parents if p != at + 1)
    table = {(*key[:k], key[k] * size + key[k + 1], *key[k + 2 :]): n for key, n in own.table.items()}
    return uniform_if_alone(Lengths(parents_, table, own.loose))


def _depend_on(x: Mapped, axis: int) -> list[int]:
    return [a for a, own in enumerate(x.axes) if axis in parents(own)]


def _numbers_rows_of_one(x: Mapped) -> bool:
    """Whether an axis of size 1 or 0 numbers rows: where there are two of them it cannot be seen which does."""
    return any(x.axes[p] in (0, 1) for axis in x.axes for p in parents(axis))


@generator(2)
def reshape(draw: Draw) -> Step | None:
    """Two uniform axes merged, or one split; those that number rows only if they number the same ones."""
    name = draw.tensor(lambda x: x.ndim > 0)
    if name is None:
        return None
    x = draw[name]
    uniform = [a for a, axis in enumerate(x.axes) if isinstance(axis, int)]
    pairs = [a for a in uniform if a + 1 in uniform]
    alike = [a for a in pairs if _depend_on(x, a) == _depend_on(x, a + 1)]
    sized = [a for a in uniform if x.axes[a] in (4, 6) or (x.axes[a] in (2, 3) and is_free(x, [a]))]
    shape = [f"{name}.shape[{a}]" for a in range(x.ndim)]
    if pairs and draw.chance(0.6):
        at = draw.choice(alike if alike and draw.chance(0.9) else pairs)
        both = x.axes[at] * x.axes[at + 1]  # type: ignore[operator]
        shape[at : at + 2] = [str(both) if draw.chance(0.7) or not x.indices else "-1"]

        def merge(env: Environment) -> Mapped:
            x = env[name]
            one_, two = _depend_on(x, at), _depend_on(x, at + 1)
            if one_ != two or (one_ and {x.axes[at], x.axes[at + 1]} & {0, 1}):
                raise Undecided
            return merged(x, at)

        return Step("reshape", f"sr.reshape({name}, ({', '.join(shape)},)).clone()", merge, (name,), (draw.name(),))
    if not sized:
        return None
    at = draw.choice(sized)
    size = x.axes[at]
    assert isinstance(size, int)
    first = draw.choice([n for n in range(1, size + 1) if size % n == 0])
    first = first if is_free(x, [at]) else 2
    shape[at : at + 1] = [str(first), str(size // first)]

    def split(env: Environment) -> Mapped:
        x = env[name]
        if 1 in (first, size // first) and (_numbers_rows_of_one(x) or not is_free(x, [at])):
            raise Undecided
        return split_axis(x, at, (first, size // first)).copied()

    return Step("reshape", f"sr.reshape({name}, ({', '.join(shape)},)).clone()", split, (name,), (draw.name(),))


@generator(1)
def triangle(draw: Draw) -> Step | None:
    """tril and triu compare positions along the last two axes."""
    name = draw.tensor(lambda x: x.ndim > 1 and x.dtype not in UNSIGNED)
    if name is None:
        return None
    function = draw.choice(("tril", "triu"))
    k = draw.integer(-2, 2)

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        keep = [j - i <= k if function == "tril" else j - i >= k for *_, i, j in x.indices]
        return x.computed(torch.where(torch.tensor(keep, dtype=torch.bool), x.flat, torch.zeros((), dtype=x.dtype)))

    return Step(function, f"sr.{function}({name}, k={k})", oracle, (name,), (draw.name(),), same_shape=True)
