"""Steps that multiply by other names than einsum: matmul, outer, vecdot, tensordot, linear."""

from __future__ import annotations

import torch
from tests.programs.broadcast import kind_of
from tests.programs.keys import shape_only
from tests.programs.leaves import Leaf, like, random_values
from tests.programs.mapped import Axis, Lengths, Mapped, cells, parents
from tests.programs.products import contract, multiplied, multiplies
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.select import Pick, one, taken
from tests.programs.verdicts import Undecided, Verdict


def stretched_labels(x: Mapped, y: Mapped, inner: int) -> tuple[list[str], list[str], Mapped, Mapped, str]:
    """Labels of the axes before the last `inner` ones, right-aligned; size 1 that meets more is left out."""
    one_, two = list(range(x.ndim - inner)), list(range(y.ndim - inner))
    depth = max(len(one_), len(two))
    names = "ABCDEFGH"[:depth]
    left: list[str] = []
    right: list[str] = []
    drop_x, drop_y = [], []
    for k, name in enumerate(names):
        a, b = k - (depth - len(one_)), k - (depth - len(two))
        both = a >= 0 and b >= 0
        if both and x.axes[a] == 1 and y.axes[b] != 1:
            drop_x.append(a)
            right.append(name)
        elif both and y.axes[b] == 1 and x.axes[a] != 1:
            drop_y.append(b)
            left.append(name)
        else:
            left += [name] if a >= 0 else []
            right += [name] if b >= 0 else []
    for tensor, drops in ((x, drop_x), (y, drop_y)):
        if any(set(parents(axis)) & set(drops) for axis in tensor.axes):
            return stretched_labels(*_stretched(x, y, inner, depth, drop_x, drop_y), inner)
    x = taken(x, {a: one(0) for a in drop_x})
    y = taken(y, {b: one(0) for b in drop_y})
    return left, right, x, y, names


def _stretched(
    x: Mapped, y: Mapped, inner: int, depth: int, drop_x: list[int], drop_y: list[int]
) -> tuple[Mapped, Mapped]:
    """Both with batch axes of size 1 repeated as often as the other has entries there: what depends on them, too."""
    shift_x, shift_y = depth - (x.ndim - inner), depth - (y.ndim - inner)
    sizes_x = {a: y.axes[a + shift_x - shift_y] for a in drop_x}
    sizes_y = {b: x.axes[b + shift_y - shift_x] for b in drop_y}
    return _repeated(x, sizes_x), _repeated(y, sizes_y)


def _repeated(x: Mapped, sizes: dict[int, Axis]) -> Mapped:
    if any(isinstance(n, Lengths) for n in sizes.values()):
        raise Undecided  # an axis of size 1 that becomes ragged itself
    return taken(x, {a: Pick(lambda n, count=count: [0] * int(count)) for a, count in sizes.items()})


def matmul_oracle(x: Mapped, y: Mapped) -> Mapped | Verdict:
    x_vector, y_vector = x.ndim == 1, y.ndim == 1
    if x_vector and y_vector:
        return contract([("k", x), ("k", y)], "")
    if x_vector:
        if y.ndim < 2:
            raise Undecided
        names = "ABCDEFGH"[: y.ndim - 2]
        return contract([("k", x), (names + "km", y)], names + "m")
    if y_vector:
        names = "ABCDEFGH"[: x.ndim - 2]
        return contract([(names + "nk", x), ("k", y)], names + "n")
    left, right, x, y, names = stretched_labels(x, y, 2)
    return contract([("".join(left) + "nk", x), ("".join(right) + "km", y)], names + "nm")


@generator(4)
def matmul(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: multiplies(x) and 0 < x.ndim < 6 and len(x.indices) < 40)
    if name is None:
        return None
    other = _right_factor(draw, name)
    if other is None:
        return None
    swapped = draw.chance(0.3) and draw[name].ndim > 1 and draw[other].ndim > 1
    first, then = (f"{other}.mT", f"{name}.mT") if swapped else (name, other)
    if name in draw.program.plain and (swapped or other in draw.program.plain):
        return None
    if swapped and (name in draw.program.plain or other in draw.program.plain):
        return None

    def oracle(env: Environment) -> Mapped:
        x, y = env[name], env[other]
        if swapped:
            order = lambda t: [*range(t.ndim - 2), t.ndim - 1, t.ndim - 2]  # noqa: E731
            return matmul_oracle(y.permuted(order(y)), x.permuted(order(x)))
        return matmul_oracle(x, y)

    words = f"sr.matmul({first}, {then})" if draw.chance(0.5) or name in draw.program.plain else f"{first} @ {then}"
    return Step("matmul", words, oracle, tuple(dict.fromkeys((name, other))), (draw.name(),))


def _right_factor(draw: Draw, name: str) -> str | None:
    """Something that x multiplies: a matrix, a matrix for each component, a vector."""
    x = draw[name]
    last = x.axes[-1]
    if isinstance(last, int) and draw.chance(0.4):
        shape: list[Axis] = [last] if draw.chance(0.2) else [last, draw.integer(0, 3)]
        if draw.chance(0.3) and x.ndim > 2:
            outer = x.axes[x.ndim - 3]
            shape = [outer if isinstance(outer, int) else 1, last, draw.integer(1, 3)]
        values = random_values(draw.random, len(cells(shape)), x.dtype)
        return draw.like(Leaf(tuple(shape), values, x.dtype, plain=draw.chance(0.7)))
    if x.ndim < 2:
        return None
    row = x.ndim - 2
    if any(row in parents(axis) for axis in x.axes):
        return None
    batch = list(range(row))
    keep = [a for a in range(x.ndim) if a != row]
    where = {a: k for k, a in enumerate(keep)}
    axes: list[Axis] = [axis.renamed(where) if isinstance(axis := x.axes[a], Lengths) else axis for a in keep]
    kind = draw.choice(("uniform", "ragged", "same"))
    if kind == "same" and isinstance(x.axes[row], Lengths) and all(p in batch for p in parents(x.axes[row])):
        axes.append(x.axes[row].renamed(where) if isinstance(x.axes[row], Lengths) else 1)
    elif kind == "ragged" and batch and isinstance(x.axes[0], int):
        axes.append(Lengths((0,), {(i,): draw.integer(0, 2) for i in range(x.axes[0])}))
    else:
        axes.append(draw.integer(0, 3))
    if len(cells(axes)) > 60:
        return None
    leaf = like(draw.random, shape_only(axes), x.dtype)
    return None if leaf is None else draw.like(leaf)


# ------------------------------------------------------------------------------------------------------ others


@generator(1.5)
def outer(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: multiplies(x) and 0 < x.ndim < 5 and len(x.indices) < 25)
    if name is None:
        return None
    x = draw[name]
    axes: list[Axis] = list(x.axes[:-1])
    if any(x.ndim - 1 in parents(axis) for axis in x.axes):
        return None
    last = x.axes[-1]
    if isinstance(last, Lengths) and draw.chance(0.7):
        axes.append(Lengths(last.parents, {key: draw.integer(0, 2) for key in last.table}))
    else:
        axes.append(draw.integer(0, 3))
    leaf = like(draw.random, shape_only(axes), x.dtype)
    if leaf is None:
        return None
    other = draw.like(leaf)
    if name in draw.program.plain and other in draw.program.plain:
        return None

    def oracle(env: Environment) -> Mapped:
        left, right, a, b, names = stretched_labels(env[name], env[other], 1)
        return contract([("".join(left) + "q", a), ("".join(right) + "k", b)], names + "qk")

    return Step("outer", f"sr.outer({name}, {other})", oracle, (name, other), (draw.name(),))


@generator(1.5)
def vecdot(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: multiplies(x) and x.ndim > 0)
    if name is None:
        return None
    x = draw[name]
    axis = draw.integer(0, x.ndim - 1)
    leaf = like(draw.random, x, x.dtype)
    other = name if leaf is None or draw.chance(0.2) else draw.like(leaf)
    if name in draw.program.plain and other in draw.program.plain:
        return None
    labels = "abcdefghij"[: x.ndim]

    def oracle(env: Environment) -> Mapped:
        a, b = env[name], env[other]
        a = a.computed(a.flat.conj().resolve_conj()) if a.dtype.is_complex else a
        return contract([(labels, a), (labels, b)], labels.replace(labels[axis], ""))

    words = f"sr.vecdot({name}, {other}, axis={axis - x.ndim})"
    return Step("vecdot", words, oracle, tuple(dict.fromkeys((name, other))), (draw.name(),))


@generator(1.5)
def tensordot(draw: Draw) -> Step | None:
    """The last axes of one with the first of another, or pairs of axes."""
    name = draw.tensor(lambda x: multiplies(x) and x.ndim > 0 and len(x.indices) < 40)
    if name is None:
        return None
    x = draw[name]
    uniform = [a for a in range(x.ndim) if isinstance(x.axes[a], int) and all(a not in parents(b) for b in x.axes)]
    if not uniform:
        return None
    at = draw.choice(uniform)
    size = x.axes[at]
    assert isinstance(size, int)
    shape = (size, draw.integer(0, 3)) if draw.chance(0.7) else (size,)
    values = random_values(draw.random, len(cells(shape)), x.dtype)
    other = draw.like(Leaf(shape, values, x.dtype, plain=True))
    if name in draw.program.plain:
        return None
    labels = "abcdefghij"[: x.ndim]
    names = labels[at] + "y"[: len(shape) - 1]
    axes = "1" if at == x.ndim - 1 and draw.chance(0.5) else f"([{at}], [0])"

    def oracle(env: Environment) -> Mapped | Verdict:
        return contract([(labels, env[name]), (names, env[other])], labels.replace(labels[at], "") + names[1:])

    return Step("tensordot", f"sr.tensordot({name}, {other}, axes={axes})", oracle, (name, other), (draw.name(),))


@generator(2)
def linear(draw: Draw) -> Step | None:
    fits = lambda x: kind_of(x.dtype) >= 2 and x.ndim > 0 and isinstance(x.axes[-1], int) and multiplies(x)  # noqa: E731
    name = draw.tensor(lambda x: fits(x) and all(x.ndim - 1 not in parents(a) for a in x.axes))
    if name is None:
        return None
    x = draw[name]
    size, width = x.axes[-1], draw.integer(0, 3)
    assert isinstance(size, int)
    weight = draw.like(Leaf((width, size), random_values(draw.random, width * size, x.dtype), x.dtype, plain=True))
    bias = (
        draw.like(Leaf((width,), random_values(draw.random, width, x.dtype), x.dtype, plain=True))
        if draw.chance(0.5)
        else None
    )
    labels = "abcdefghij"[: x.ndim]

    def oracle(env: Environment) -> Mapped:
        made = multiplied([(labels, env[name]), ("z" + labels[-1], env[weight])], labels[:-1] + "z")
        if bias is None:
            return made
        last = torch.tensor([index[-1] for index in made.indices], dtype=torch.int64)
        return made.computed(made.flat + env[bias].flat[last])

    given = [name, weight] if bias is None else [name, weight, bias]
    return Step("linear", f"sr.linear({', '.join(given)})", oracle, tuple(given), (draw.name(),))
