"""Steps that make tensors of a shape, change dtypes, pad, and undo cuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.programs.broadcast import kind_of
from tests.programs.grouping import packed_axes
from tests.programs.keys import longest, shape_only
from tests.programs.leaves import DTYPES, UNSIGNED
from tests.programs.lines import positions
from tests.programs.mapped import Axis, Index, Lengths, Mapped, cells, parents
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.verdicts import Refused, Undecided


@generator(2)
def of_shape(draw: Draw) -> Step | None:
    """One number everywhere in the shape of a tensor."""
    name = draw.tensor()
    if name is None:
        return None
    function = draw.choice(("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "empty", "empty_like"))
    dtype = draw.choice(DTYPES) if draw.chance(0.5) or not function.endswith("_like") else None
    value = {"zeros": 0, "ones": 1, "empty": 0}.get(function.removesuffix("_like"), 1)
    shape = name if function.endswith("_like") else f"{name}.shape"
    words = f"sr.{function}({shape}{', 1' if 'full' in function else ''}{f', dtype={dtype}' if dtype else ''})"
    words = f"sr.zeros_like({words})" if "empty" in function else words

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        return x.computed(torch.full((len(x.indices),), value, dtype=dtype or x.dtype))

    return Step(function, words, oracle, (name,), (draw.name(),), same_shape=True)


DENSE: list[tuple[str, str, Callable[[], torch.Tensor]]] = [
    ("arange", "sr.arange(5)", lambda: torch.arange(5)),
    ("arange", "sr.arange(1, 6, 2)", lambda: torch.arange(1, 6, 2)),
    ("arange", "sr.arange(3.0)", lambda: torch.arange(3.0)),
    ("linspace", "sr.linspace(0, 1, 5)", lambda: torch.linspace(0, 1, 5)),
    ("linspace", "sr.linspace(0, 1, 4, endpoint=False)", lambda: torch.tensor([0, 0.25, 0.5, 0.75])),
    ("eye", "sr.eye(2, 3, k=-1)", lambda: torch.tensor([[0.0, 0, 0], [1, 0, 0]])),
    ("meshgrid", "sr.meshgrid(sr.arange(3), torch.arange(2))[0].clone()", lambda: torch.arange(3).expand(2, 3)),
    ("fft.fftfreq", "sr.fft.fftfreq(4)", lambda: torch.fft.fftfreq(4)),
    ("fft.rfftfreq", "sr.fft.rfftfreq(5)", lambda: torch.fft.rfftfreq(5)),
]


@generator(0.7)
def dense(draw: Draw) -> Step:
    operation, words, reference = draw.choice(DENSE)
    oracle = lambda env: Mapped.dense(reference().contiguous())  # noqa: E731
    return Step(operation, words, oracle, (), (draw.name(),))


@generator(2)
def astype(draw: Draw) -> Step | None:
    name = draw.tensor()
    if name is None:
        return None
    x = draw[name]
    dtype = draw.choice(DTYPES)
    shown = f"sr.astype({name}, {dtype})" if draw.chance(0.6) else f"{name}.to({dtype}).clone()"
    standard = shown.startswith("sr.")
    if name in draw.program.plain and not standard:
        return None

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        if kind_of(x.dtype) == 3 and kind_of(dtype) < 3:
            if standard:
                raise Refused(TypeError)
            raise Undecided
        wide = x.flat.to(torch.int64) if x.dtype in UNSIGNED and dtype != torch.bool else x.flat
        if kind_of(dtype) == 1 and not dtype.is_signed and bool((x.flat.to(torch.float64) < 0).any()):
            raise Undecided  # a negative number as an unsigned one
        return x.computed(wide.to(dtype))

    return Step("astype", shown, oracle, (name,), (draw.name(),), same_shape=standard and dtype != x.dtype)


@generator(1)
def dropout(draw: Draw) -> Step | None:
    """Nothing dropped, everything dropped, or each element either 0 or divided by what is kept."""
    name = draw.tensor(lambda x: kind_of(x.dtype) >= 2)
    if name is None or name in draw.program.plain:
        return None
    kind = draw.choice(("all", "none", "eval", "some"))
    if kind == "some" and (draw.grad or draw[name].dtype not in (torch.float64, torch.float32)):
        kind = "all"
    shown = {
        "all": f"sr.dropout({name}, 1.0)",
        "none": f"sr.dropout({name}, 0.0).clone()",
        "eval": f"sr.dropout({name}, 0.5, training=False).clone()",
        "some": f"(lambda d: sr.abs(d * (d - {name} * 2)) * 1e-3)(sr.dropout({name}, 0.5, key=sr.random.Key(3)))",
    }[kind]

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        return x.copied() if kind in ("none", "eval") else x.computed(x.flat * 0)

    return Step("dropout", shown, oracle, (name,), (draw.name(),))


# ------------------------------------------------------------------------------------------------------ of the tensor


@generator(1.5)
def to_dense(draw: Draw) -> Step | None:
    """Every ragged axis as long as its longest row, what is missing filled."""
    name = draw.tensor(lambda x: x.is_ragged)
    if name is None:
        return None
    fill: Any = draw.choice((0, 1))
    if draw[name].dtype == torch.bool:
        fill = bool(fill)

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        sizes = [longest(x, a) for a in range(x.ndim)]
        order = cells(sizes)
        if len(order) > 400:
            raise Undecided
        rank = {index: k for k, index in enumerate(order)}
        padded = torch.full((len(order),), fill, dtype=x.dtype)
        at = torch.tensor([rank[index] for index in x.indices], dtype=torch.int64)
        if x.dtype in UNSIGNED:
            wide = padded.to(torch.int64).index_put((at,), x.flat.to(torch.int64))
            return Mapped.of(sizes, wide.to(x.dtype))
        return Mapped.of(sizes, padded.index_put((at,), x.flat))

    return Step("to_dense", f"{name}.to_dense({fill})", oracle, (name,), (draw.name(),))


@generator(0.7)
def places(draw: Draw) -> Step | None:
    """The position of every packed row along a packed axis."""
    name = draw.tensor(lambda x: x.is_ragged and x.is_stored_as_seen)
    if name is None:
        return None
    packed = packed_axes(draw[name])
    axis = draw.integer(0, packed - 1)
    oracle = lambda env: positions(shape_only(env[name].axes[:packed]), axis)  # noqa: E731
    return Step("positions", f"sr.positions({name}, {axis})", oracle, (name,), (draw.name(),))


@generator(2)
def uncut(draw: Draw) -> Step | None:
    """flat() and combine(axis): views that undo cuts."""
    chain = lambda x: x.is_stored_as_seen and all(len(parents(a)) in (0, i) for i, a in enumerate(x.axes))  # noqa: E731
    name = draw.tensor(lambda x: x.is_ragged and chain(x))
    if name is None:
        return None
    x = draw[name]
    ragged = [a for a, axis in enumerate(x.axes) if isinstance(axis, Lengths)]
    if draw.chance(0.4):
        last = ragged[-1]

        def flat(env: Environment) -> Mapped:
            x = env[name]
            rows = cells(x.axes[: last + 1])
            source = {(rows.index(i[: last + 1]), *i[last + 1 :]): i for i in x.indices}
            return x.seen((len(rows), *x.axes[last + 1 :]), source)

        return Step("flat", f"{name}.flat()", flat, (name,), (draw.name(),))
    axis = draw.choice(ragged)
    oracle = lambda env: _combined(env[name], axis)  # noqa: E731
    return Step("combine", f"{name}.combine({axis})", oracle, (name,), (draw.name(),))


def _combined(x: Mapped, axis: int) -> Mapped:
    """Axis `axis` merged with the one before it."""
    merged: dict[Index, Index] = {}
    counts: dict[Index, int] = dict.fromkeys(cells(x.axes[: axis - 1]), 0)
    for index in cells(x.axes[: axis + 1]):
        outer = index[: axis - 1]
        merged[index] = (*outer, counts[outer])
        counts[outer] += 1
    new: Axis = Lengths(tuple(range(axis - 1)), counts) if axis > 1 else counts[()]
    axes: list[Axis] = [*x.axes[: axis - 1], new]
    for own in x.axes[axis + 1 :]:
        if isinstance(own, Lengths):
            table = {(*merged[key[: axis + 1]], *key[axis + 1 :]): n for key, n in own.table.items()}
            own = Lengths(tuple(range(len(own.parents) - 1)), table)
        axes.append(own)
    return x.seen(axes, {(*merged[i[: axis + 1]], *i[axis + 1 :]): i for i in x.indices})
