"""Random layouts: regular and ragged axes that the tensors of a fusion share, and inputs over some or all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import torch

from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorDomain, TensorView, symbol
from serrate.fusion.binding import TORCH
from serrate.fusion.dtypes import COMPLEX, UNSIGNED
from serrate.tensor import bits

FLOATS = ("float32", "float64", "float16", "bfloat16")
WHOLE = (*UNSIGNED, "int8", "int16", "int32", "int64")
LONGEST = 5  # no row is longer


@dataclass(frozen=True)
class Axis:
    """An axis of a layout; a ragged one is nested in the axes `parents`, of which it has a row for each index tuple."""

    size: str | int
    actual: int  # the extent; of a ragged axis, that of all its rows together
    parents: tuple[int, ...] = ()
    offsets: torch.Tensor | None = None


def regular(random: Random, name: str) -> Axis:
    """A regular axis; its size is a symbol or a constant."""
    actual = random.choice([0, 1, 2, 2, 3, 4, 4, 5, 6, 7])
    return Axis(name if random.random() < 0.5 else actual, actual)


def nested(random: Random, name: str, rows: int, parents: tuple[int, ...]) -> Axis:
    """A ragged axis of so many rows; short ones, if it is deep inside of others."""
    kind = random.choice(["mixed", "mixed", "mixed", "equal", "empty", "sparse"])
    longest = LONGEST if len(parents) < 3 else 2
    same = random.randint(1, longest)
    lengths = {
        "mixed": [random.randint(0, longest) for _ in range(rows)],
        "equal": [same] * rows,
        "empty": [0] * rows,
        "sparse": [random.choice([0, 0, longest]) for _ in range(rows)],
    }[kind]
    offsets = torch.tensor([0, *itertools.accumulate(lengths)])
    return Axis(name, int(offsets[-1]), parents, offsets)


def layout(random: Random) -> tuple[tuple[Axis, ...], bool]:
    """The axes of the tensors of a program, and whether ragged ones are made by view_as_nested."""
    kind = random.choice(["uniform", "rows", "rows", "rows", "two", "three", "four", "pair"])
    if kind == "uniform":
        return tuple(regular(random, name) for name in "abc"[: random.randint(1, 3)]), False
    axes = [regular(random, "b")] if kind == "rows" and random.random() < 0.15 else []
    component = len(axes)
    count = random.choice([0, 1, 2, 3, 4, 5] if kind == "rows" else [0, 1, 2, 3])
    axes.append(Axis("k", count))
    parents: tuple[int, ...] = (component,)
    depth = {"rows": 1, "two": 2, "three": 3, "four": 4, "pair": 2}[kind]
    for level in range(depth):
        rows = count if kind == "pair" else axes[parents[-1]].actual
        axes.append(nested(random, f"n{level}", rows, parents))
        if kind != "pair":
            parents = (*parents, len(axes) - 1)
    features = random.randint(0, 2 if kind == "rows" else 1)
    axes += [regular(random, name) for name in "de"[:features]]
    return tuple(axes), kind != "pair" and random.random() < 0.7


@dataclass
class Inputs:
    """A fusion whose inputs have the axes of a layout, and tensors for them."""

    random: Random
    axes: tuple[Axis, ...]
    dtype: str
    special: bool  # some elements are NaN or infinite
    as_view: bool  # ragged inputs are nested by view_as_nested
    longest: int | None  # the bound of row lengths that the host knows
    offsets_dtype: str
    fusion: Fusion = field(default_factory=Fusion)
    inputs: list[torch.Tensor] = field(default_factory=list)
    offsets: dict[int, TensorView] = field(default_factory=dict)

    def start(self) -> None:
        """The offsets, and a tensor that has each size the host must know."""
        for at, axis in enumerate(self.axes):
            if axis.offsets is not None:
                rows = self.axes[axis.parents[-1]].size
                count = symbol(rows) + 1 if isinstance(rows, str) else rows + 1
                self.offsets[at] = self.fusion.input(f"offsets{at}", [count], self.offsets_dtype)
                self.inputs.append(axis.offsets.to(TORCH[self.offsets_dtype]))
        for at, axis in enumerate(self.axes):
            if isinstance(axis.size, str):
                self.fusion.input(f"size{at}", [axis.size], "float32")
                self.inputs.append(torch.zeros(axis.actual))

    def input(self, mask: Sequence[bool], dtype: str | None = None) -> TensorView:
        """A new input that has the axes of the mask, with axes of extent 1 for the others if any is inside."""
        dtype = dtype or self.dtype
        chosen = [at for at, taken in enumerate(mask) if taken]
        name = f"x{len(self.fusion.inputs)}"
        ragged = [at for at in chosen if self.axes[at].parents]
        strides = [None] * len(self._shape(chosen)) if self.random.random() < 0.15 else None
        if self.as_view and ragged:
            outer = [self.axes[ragged[0]].parents[0], *ragged[:-1]]  # what the innermost rows are nested in
            place = chosen.index(outer[0])
            sizes = [self.axes[at].size for at in chosen if at not in outer]
            tensor = self.fusion.input(name, sizes, dtype, strides=strides)
            for at in reversed(ragged):
                size = self.axes[at].size
                rows = RaggedIterDomain.from_offsets(self.offsets[at], size=size, longest=self.longest)
                tensor = self.fusion.view_as_nested(tensor, rows.raggedness, place)
        else:
            tensor = self.fusion.input(name, TensorDomain(self._domains(chosen)), dtype, strides=strides)
        data = self._data(self._shape(chosen), dtype)
        self.inputs.append(data if strides is None else self._apart(data))
        first = chosen[0] if chosen and self.random.random() < 0.5 else 0
        new = [not taken for taken in mask][first:]
        return self.fusion.broadcast(tensor, new) if any(new) else tensor

    def _domains(self, chosen: Sequence[int]) -> list[IterDomain]:
        made: dict[tuple[int, ...], IterDomain] = {}
        for at in chosen:
            axis = self.axes[at]
            if axis.parents:
                component = made[axis.parents]
                rows = RaggedIterDomain.from_offsets(
                    self.offsets[at], size=axis.size, longest=self.longest, component=component, name=f"r{at}"
                )
                made[(at,)] = rows
                if any(self.axes[other].parents == (*axis.parents, at) for other in chosen):
                    made[(*axis.parents, at)] = IterDomain.combine(component, rows)
            else:
                made[(at,)] = IterDomain(axis.size, name=f"a{at}")
        return [made[(at,)] for at in chosen]

    def _shape(self, chosen: Sequence[int]) -> list[int]:
        """How a tensor of these axes lies in memory: all that is nested in one component axis as one."""
        shape: list[int] = []
        for at in chosen:
            if self.axes[at].parents:
                continue
            nested = [other for other in chosen if self.axes[other].parents[:1] == (at,)]
            if len(nested) == 2 and self.axes[nested[0]].parents == self.axes[nested[1]].parents:
                shape.append(sum(a * b for a, b in zip(*(self._lengths(n) for n in nested), strict=True)))
            else:
                shape.append(self.axes[nested[-1] if nested else at].actual)
        return shape

    def _lengths(self, at: int) -> list[int]:
        offsets = self.axes[at].offsets
        assert offsets is not None
        return offsets.diff().tolist()

    def _data(self, shape: Sequence[int], dtype: str) -> torch.Tensor:
        count, random = math.prod(shape), Random(self.random.getrandbits(16))
        if dtype in FLOATS:
            values = [random.randint(-8, 8) / 4 for _ in range(count)]
            for at in range(count):
                if self.special and random.random() < 0.2:
                    values[at] = random.choice([math.nan, math.inf, -math.inf])
        elif dtype in COMPLEX:
            values = [complex(random.randint(-4, 4) / 2, random.randint(-4, 4) / 2) for _ in range(count)]
        else:
            values = [random.randint(0 if dtype in UNSIGNED else -2, 2) for _ in range(count)]
        return torch.tensor(values, dtype=TORCH[dtype]).reshape(*shape)

    def _apart(self, data: torch.Tensor) -> torch.Tensor:
        """The same elements in memory of another order, with others between them."""
        order = self.random.sample(range(data.ndim), data.ndim)
        steps = [self.random.choice([1, 1, 2, 3]) for _ in order]
        memory = data.new_zeros([data.shape[at] * step for at, step in zip(order, steps, strict=True)])
        cut = memory[tuple(slice(None, None, step) for step in steps)]
        made = cut.permute([order.index(at) for at in range(data.ndim)])
        bits.as_carrier(made).copy_(bits.as_carrier(data))
        return made

    def any_input(self, dtype: str | None = None) -> TensorView:
        """An operand that fits the layout: all of its axes, or some."""
        mask = [self.random.random() < 0.6 for _ in self.axes]
        for at, axis in reversed(list(enumerate(self.axes))):
            for parent in axis.parents if mask[at] else ():
                mask[parent] = True
        return self.input(mask if any(mask) else [True] * len(mask), dtype)
