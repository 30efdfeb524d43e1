"""Monoids: the ways to make one number of many, one row each. A new one is a new row.

A monoid is a state (one or more numbers), its neutral value, how an element enters it, how two states become one, and
what is read at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from serrate.fusion.analysis import reads
from serrate.fusion.dtypes import BOOL, COMPLEX, FLOATS, INDEX, UNSIGNED, accumulator, kind_of
from serrate.fusion.scalar import (
    TRUE,
    Operand,
    Scalar,
    both,
    call,
    cast,
    const,
    either,
    equal,
    less,
    less_equal,
    logical_not,
    maximum,
    minimum,
    symbol,
    where,
)

State = tuple[Scalar, ...]


def _unchanged(dtype: str) -> str:
    return dtype


def _int64(_: str) -> str:
    return "int64"


def _summed(dtype: str) -> str:
    """Whole numbers are added up and multiplied in int64, those without a sign in uint64."""
    if dtype in FLOATS or dtype in COMPLEX:
        return dtype
    return "uint64" if dtype in UNSIGNED else "int64"


@dataclass(frozen=True, eq=False)
class Monoid:
    """A way to make one number of many."""

    name: str
    parts: tuple[str, ...]
    """The numbers of a state, by name."""
    result: int
    """The number of the state that is to hold the result in the end."""
    init: Callable[[str], State]
    """The neutral state, for elements of a dtype."""
    step: Callable[[State, Scalar, Scalar], State]
    """A state, an element and its position in its row to the next state."""
    combine: Callable[[State, State], State]
    """Two states to one."""
    finish: Callable[[State], Scalar]
    """The result of a state."""
    reference: Callable[..., torch.Tensor]
    """(values, group of each, number of groups, positions in their rows) to the results, by torch."""
    kinds: tuple[str, ...] = ("float", "complex", "int", "bool")
    """The kinds of dtypes it takes."""
    enters: Callable[[str], str] = _unchanged
    """From the dtype of a tensor to the one in which its elements enter the state."""
    gives: Callable[[str], str] = _unchanged
    """From the dtype of a tensor to that of the result."""
    neutral: float | None = None
    """What holes must hold to be read without a predicate; None if nothing does."""
    by_blocks: bool = False
    """Whether it adds up, so that float32 is gathered by blocks, and the blocks in float64: errors stay small."""
    rejoins: bool = False
    """Whether results can be reduced again by the same monoid."""
    operator: str = ""
    """How C's lanes add it up together; "" if they do not."""
    positions: bool = False
    """Whether it reads positions, so that it goes along one axis."""

    def reads_once(self, dtype: str) -> bool:
        """Whether a step reads its element no more than once, for tensors of a dtype."""
        entering = accumulator(self.enters(dtype))
        state = tuple(symbol(f"state{n}", each.dtype) for n, each in enumerate(self.init(entering)))
        element = symbol("element", entering)
        values = self.step(state, element, symbol("position", INDEX))
        return sum(reads(value).get(element, 0) for value in values) <= 1


MONOIDS: dict[str, Monoid] = {}
"""All monoids by name."""


def enter(row: Monoid) -> Monoid:
    """Put a monoid into the table."""
    if row.name in MONOIDS:
        raise ValueError(f"there is a monoid {row.name!r} already")
    MONOIDS[row.name] = row
    return row


def _least(dtype: str) -> float:
    return -math.inf if dtype in FLOATS else 0 if dtype == BOOL else torch.iinfo(getattr(torch, dtype)).min


def _most(dtype: str) -> float:
    return math.inf if dtype in FLOATS else 1 if dtype == BOOL else torch.iinfo(getattr(torch, dtype)).max


_ORDERED = ("float", "int", "bool")  # complex numbers have no order

# One number: joined with each element, and with other results.


def _joined(
    name: str,
    part: str,
    first: Callable[[str], float],
    join: Callable[[Operand, Operand], Scalar],
    how: np.ufunc,
    neutral: float,
    enters: Callable[[str], str] = _unchanged,
    by_blocks: bool = False,
    kinds: tuple[str, ...] = Monoid.kinds,
    operator: str = "",
) -> None:
    def reference(values: torch.Tensor, groups: torch.Tensor, count: int, _: torch.Tensor) -> torch.Tensor:
        dtype = enters(str(values.dtype).removeprefix("torch."))
        made = np.full(count, first(dtype), dtype)
        with np.errstate(all="ignore"):
            how.at(made, groups.numpy(), values.numpy().astype(dtype))
        return torch.from_numpy(made)

    enter(Monoid(
        name,
        (part,),
        0,
        init=lambda dtype: (const(first(dtype), dtype),),
        step=lambda state, element, _: (join(state[0], element),),
        combine=lambda left, right: (join(left[0], right[0]),),
        finish=lambda state: state[0],
        reference=reference,
        kinds=kinds,
        enters=enters,
        gives=enters,
        neutral=neutral,
        by_blocks=by_blocks,
        rejoins=True,
        operator=operator,
    ))  # fmt: skip


_joined("sum", "sum", lambda _: 0, lambda a, b: call("add", a, b), np.add, 0, _summed, by_blocks=True, operator="+")
_joined("prod", "product", lambda _: 1, lambda a, b: call("multiply", a, b), np.multiply, 1, _summed, operator="*")
_joined("max", "max", _least, maximum, np.maximum, -math.inf, kinds=_ORDERED)
_joined("min", "min", _most, minimum, np.minimum, math.inf, kinds=_ORDERED)
# By bits, since those evaluate both operands and so are vectorized.
_joined("any", "any", lambda _: False, lambda a, b: call("bitwise_or", a, b), np.logical_or, 0, lambda _: BOOL)
_joined("all", "all", lambda _: True, lambda a, b: call("bitwise_and", a, b), np.logical_and, 1, lambda _: BOOL)


def _count_reference(values: torch.Tensor, groups: torch.Tensor, count: int, _: torch.Tensor) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64).scatter_add(0, groups, (values != 0).long())


enter(Monoid(
    "count_nonzero",
    ("count",),
    0,
    init=lambda _: (const(0, "int64"),),
    step=lambda state, element, _: (state[0] + cast(call("not_equal", element, 0), "int64"),),
    combine=lambda left, right: (left[0] + right[0],),
    finish=lambda state: state[0],
    reference=_count_reference,
    gives=_int64,
    neutral=0,
))  # fmt: skip


# Averages


def _mean_reference(values: torch.Tensor, groups: torch.Tensor, count: int, _: object = None) -> torch.Tensor:
    zeros = torch.zeros(count, dtype=values.dtype)
    return zeros.scatter_add(0, groups, values) / zeros.scatter_add(0, groups, torch.ones_like(values))


enter(Monoid(
    "mean",
    ("mean", "count"),
    0,
    init=lambda dtype: (const(0, dtype), const(0, "int64")),
    step=lambda state, element, _: (state[0] + element, state[1] + 1),
    combine=lambda left, right: (left[0] + right[0], left[1] + right[1]),
    finish=lambda state: state[0] / cast(state[1], state[0].dtype),
    reference=_mean_reference,
    kinds=("float", "complex"),
    by_blocks=True,
))  # fmt: skip


def _welford(state: State, element: Scalar, _: Scalar) -> State:
    spread, mean, count = state
    more = count + 1
    delta = element - mean
    moved = mean + delta / cast(more, mean.dtype)
    return spread + delta * (element - moved), moved, more


def _welford_combine(left: State, right: State) -> State:
    count = left[2] + right[2]
    dtype = left[0].dtype
    share = cast(right[2], dtype) / cast(count, dtype)
    delta = right[1] - left[1]
    mean = left[1] + delta * share
    spread = left[0] + right[0] + delta * delta * (cast(left[2], dtype) * share)
    # A side of no elements has nothing to say: its mean is a mere 0, and NaN or inf on the other side must stay.
    none_left, none_right = equal(left[2], 0), equal(right[2], 0)
    kept = [
        where(none_left, r, where(none_right, a, b))
        for a, r, b in zip(left[:2], right[:2], (spread, mean), strict=True)
    ]
    return kept[0], kept[1], count


def _variance_reference(values: torch.Tensor, groups: torch.Tensor, count: int, _: object = None) -> torch.Tensor:
    return _mean_reference((values - _mean_reference(values, groups, count)[groups]).square(), groups, count)


enter(Monoid(
    "var",
    ("var", "mean", "count"),
    0,
    init=lambda dtype: (const(0, dtype), const(0, dtype), const(0, "int64")),
    step=_welford,
    combine=_welford_combine,
    finish=lambda state: state[0] / cast(state[2], state[0].dtype),
    reference=_variance_reference,
    kinds=("float",),
    by_blocks=True,
))  # fmt: skip


# The logarithm of a sum of exponentials: the greatest element so far, and the sum relative to it.


def _online_combine(left: State, right: State) -> State:
    greatest = maximum(left[0], right[0])
    return greatest, _rescaled(left, greatest) + _rescaled(right, greatest)


def _rescaled(state: State, greatest: Scalar) -> Scalar:
    """A sum of exponentials, relative to another maximum; both −inf: nothing was added yet, or only −inf was."""
    same = equal(state[0], greatest)  # also keeps inf − inf from being NaN
    return state[1] * where(same, const(1, greatest.dtype), call("exp", state[0] - greatest))


def _online_step(state: State, element: Scalar, _: Scalar) -> State:
    """One exponential for each element: of what is less by what is greater."""
    greatest, total = state
    same = equal(greatest, element)
    ratio = where(same, const(1, element.dtype), call("exp", minimum(greatest, element) - maximum(greatest, element)))
    return maximum(greatest, element), where(less(greatest, element), total * ratio + 1, total + ratio)


def _relative_finish(state: State) -> Scalar:
    """The sum relative to the greatest element; where that is infinite, its distance to itself is no number."""
    infinite = both(equal(abs(state[0]), math.inf), less(0, state[1]))
    return where(infinite, const(math.nan, state[1].dtype), state[1])


def _relative_reference(values: torch.Tensor, groups: torch.Tensor, count: int, _: object = None) -> torch.Tensor:
    rows = [values[groups == group] for group in range(count)]
    return (
        torch.stack([(row - row.max()).exp().sum() if len(row) else row.sum() for row in rows]) if count else values[:0]
    )


def _online_finish(state: State) -> Scalar:
    return where(equal(abs(state[0]), math.inf), state[0], state[0] + call("log", state[1]))


def _logsumexp_reference(values: torch.Tensor, groups: torch.Tensor, count: int, _: object = None) -> torch.Tensor:
    return torch.stack([values[groups == group].logsumexp(0) for group in range(count)]) if count else values[:0]


enter(Monoid(
    "logsumexp",
    ("max", "sum"),
    0,
    init=lambda dtype: (const(-math.inf, dtype), const(0, dtype)),
    step=_online_step,
    combine=_online_combine,
    finish=_online_finish,
    reference=_logsumexp_reference,
    kinds=("float",),
    by_blocks=True,
))  # fmt: skip
enter(Monoid(
    "relative_exp_sum",
    ("max", "sum"),
    1,
    init=lambda dtype: (const(-math.inf, dtype), const(0, dtype)),
    step=_online_step,
    combine=_online_combine,
    finish=_relative_finish,
    reference=_relative_reference,
    kinds=("float",),
))  # fmt: skip


# Positions


def _arg(
    name: str,
    better: Callable[[Scalar, Scalar], Scalar],
    worst: Callable[[str], float],
    best: Callable[..., Any],
) -> None:
    def combine(left: State, right: State, is_element: Scalar | None = None) -> State:
        # NaN beats everything; of equals the earlier position, whatever the order of combining.
        a, i = left
        b, j = right
        wins, same = better(b, a), equal(a, b)
        if a.dtype in FLOATS:
            none_left, none_right = call("isnan", a), call("isnan", b)
            wins = either(wins, both(none_right, logical_not(none_left)))
            same = either(same, both(none_left, none_right))
        found = less_equal(0, j) if is_element is None else is_element
        earlier = both(same, found, either(less(j, i), less(i, 0)))
        takes = either(wins, earlier)
        return where(takes, b, a), where(takes, j, i)

    def reference(values: torch.Tensor, groups: torch.Tensor, count: int, positions: torch.Tensor) -> torch.Tensor:
        found = torch.full((count,), -1)
        for group in range(count):
            row = values[groups == group]
            if row.numel():
                found[group] = positions[groups == group][int(best(row.numpy()))]
        return found

    enter(Monoid(
        name,
        ("value", "position"),
        1,
        init=lambda dtype: (const(worst(dtype), dtype), const(-1, "int64")),
        step=lambda state, element, position: combine(state, (element, cast(position, "int64")), TRUE),
        combine=combine,
        finish=lambda state: state[1],
        reference=reference,
        kinds=_ORDERED,
        gives=_int64,
        positions=True,
    ))  # fmt: skip


_arg("argmax", lambda b, a: less(a, b), _least, np.argmax)
_arg("argmin", lambda b, a: less(b, a), _most, np.argmin)


def check_kind(row: Monoid, dtype: str, what: object) -> None:
    """Refuse a dtype that a monoid is not for."""
    if kind_of(dtype) not in row.kinds:
        instead = "take real, imag or abs of it" if dtype in COMPLEX else "cast it"
        raise TypeError(f"{row.name} takes {' and '.join(row.kinds)}, got {what}; {instead}")
