"""Second operands: tensors that meet a first one, as they are or stretched, numbers, and some that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tests.programs.assigning import stretching
from tests.programs.broadcast import KINDS, common, kind_of
from tests.programs.leaves import DTYPES, FLOATS, INTS, like, random_leaf, random_values
from tests.programs.mapped import Mapped, cells
from tests.programs.program import Draw, Environment
from tests.programs.verdicts import Refused, Undecided

from serrate.ops.record import TABLE


@dataclass(frozen=True)
class Operand:
    """A tensor's name or a number."""

    value: Any

    @property
    def text(self) -> str:
        return str(self.value)

    @property
    def uses(self) -> tuple[str, ...]:
        return (self.value,) if isinstance(self.value, str) else ()

    def read(self, env: Environment) -> Any:
        return env[self.value] if isinstance(self.value, str) else self.value


def meets(x: Mapped, y: Mapped) -> bool:
    try:
        made = common(x.axes, y.axes)
    except (Refused, Undecided):
        return False
    return small(made)


def small(axes: Sequence[Any]) -> bool:
    """Whether a shape has few enough elements to go on with."""
    return len(cells(axes)) <= 150


def second(draw: Draw, name: str, *, dtype: torch.dtype | None = None, numbers: bool = True) -> Operand:
    """Something to compute with a tensor: another that meets it, a number, rarely one that does not fit."""
    x = draw[name]
    kind = draw.choice(("there", "there", "same", "same", "stretch", "stretch", "wide", "number", "any"))
    dtype = dtype or x.dtype
    if kind == "number" and numbers:
        return Operand(number(draw, dtype))
    if kind == "there":
        found = [n for n, y in draw.program.environment.items() if y.dtype == dtype and meets(x, y)]
        if found:
            return Operand(draw.choice(found))
    if draw.chance(0.1):
        dtype = other_dtype(draw, dtype)
    leaf = None
    if kind == "any" and draw.chance(0.3):
        leaf = random_leaf(draw.random, dtype)
    elif kind == "stretch":
        leaf = like(draw.random, stretching(draw, x), dtype)
    elif kind == "wide" and 1 in x.axes:
        sizes = [draw.integer(0, 3) if axis == 1 else 1 for axis in x.axes]
        if len(x.indices) * len(cells(sizes)) <= 150:
            leaf = like(draw.random, Mapped.of(sizes, torch.zeros(len(cells(sizes)))), dtype)
    if leaf is None:
        leaf = like(draw.random, x, dtype)
    return Operand(name if leaf is None else draw.like(leaf))


def number(draw: Draw, dtype: torch.dtype) -> Any:
    """A number of the kind of a dtype, rarely of another."""
    (made,) = random_values(draw.random, 1, dtype)
    if draw.chance(0.15):
        made = draw.choice((1, 2, 0.5, 2, 3))
    return made


def other_dtype(draw: Draw, dtype: torch.dtype) -> torch.dtype:
    """Another dtype that computes with one."""
    kind = kind_of(dtype)
    if kind == 0:
        return draw.choice(DTYPES)
    if kind == 1:
        return draw.choice((*INTS, torch.float64))
    return draw.choice((*FLOATS, torch.int64)) if kind == 2 else draw.choice((torch.complex64, torch.float64))


def fitting(draw: Draw, functions: Sequence[str], dtype: torch.dtype) -> str:
    """A function that takes elements of a dtype, as the table says; rarely one that does not."""
    kind = ("bool", "int", "float", "complex")[kind_of(dtype)]
    found = [f for f in functions if kind in TABLE[f].kinds]
    return draw.choice(found if found and draw.chance(0.95) else list(functions))


def check_kinds(kinds: Sequence[str], *operands: Any) -> None:
    """Undecided, unless every operand is of a kind that the table lists."""
    names = ("bool", "int", "float", "complex")
    for x in operands:
        kind = kind_of(x.dtype) if isinstance(x, Mapped) else KINDS.index(type(x))
        if names[kind] not in kinds:
            raise Undecided
