"""What fusions compute: tables of pointwise operations and of reductions.

A pointwise operation is a function of scalars, and the torch function that means the same. A reduction is a state (one
or more numbers), its neutral value, how an element enters it, how two states become one, and what is read at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from serrate.fusion import scalar as s
from serrate.fusion.scalar import FLOATS, Scalar, call, cast, const, select

Pointwise = Callable[..., Scalar]


def accumulator(dtype: str) -> str:
    """What is computed in: half types in float32, index in itself."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _number(value: float, like: Scalar) -> Scalar:
    return const(value, like.dtype)


def _sigmoid(a: Scalar) -> Scalar:
    return s.fdiv(_number(1, a), s.add(_number(1, a), call("exp", call("neg", a))))


UNARY: dict[str, tuple[Pointwise, Callable[[torch.Tensor], torch.Tensor]]] = {
    "neg": (lambda a: call("neg", a), torch.neg),
    "abs": (lambda a: call("abs", a), torch.abs),
    "exp": (lambda a: call("exp", a), torch.exp),
    "log": (lambda a: call("log", a), torch.log),
    "sqrt": (lambda a: call("sqrt", a), torch.sqrt),
    "rsqrt": (lambda a: call("rsqrt", a), torch.rsqrt),
    "reciprocal": (lambda a: s.fdiv(_number(1, a), a), torch.reciprocal),
    "tanh": (lambda a: call("tanh", a), torch.tanh),
    "erf": (lambda a: call("erf", a), torch.erf),
    "sin": (lambda a: call("sin", a), torch.sin),
    "cos": (lambda a: call("cos", a), torch.cos),
    "floor": (lambda a: call("floor", a), torch.floor),
    "ceil": (lambda a: call("ceil", a), torch.ceil),
    "relu": (lambda a: select(s.lt(a, _number(0, a)), _number(0, a), a), torch.relu),
    "sigmoid": (_sigmoid, torch.sigmoid),
    "silu": (lambda a: s.mul(a, _sigmoid(a)), torch.nn.functional.silu),
    "gelu": (
        lambda a: s.mul(
            s.mul(_number(0.5, a), a), s.add(_number(1, a), call("erf", s.mul(a, _number(1 / math.sqrt(2), a))))
        ),
        torch.nn.functional.gelu,
    ),
    "square": (lambda a: s.mul(a, a), torch.square),
}

BINARY: dict[str, tuple[Pointwise, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "add": (s.add, torch.add),
    "sub": (s.sub, torch.sub),
    "mul": (s.mul, torch.mul),
    "div": (s.fdiv, torch.true_divide),
    "maximum": (s.maximum, torch.maximum),
    "minimum": (s.minimum, torch.minimum),
    "lt": (s.lt, torch.lt),
    "le": (s.le, torch.le),
    "eq": (s.equal, torch.eq),
    "ne": (lambda a, b: s.compare("ne", a, b), torch.ne),
}


@dataclass(frozen=True)
class Reduction:
    """A way to make one number of many. `step(state, element, position)`: position is that in its row."""

    parts: tuple[str, ...]  # the numbers of a state, by name
    result: int  # the number that is to hold the result in the end
    init: Callable[[str], tuple[Scalar, ...]]
    step: Callable[[tuple[Scalar, ...], Scalar, Scalar], tuple[Scalar, ...]]
    combine: Callable[[tuple[Scalar, ...], tuple[Scalar, ...]], tuple[Scalar, ...]]
    finish: Callable[[tuple[Scalar, ...]], Scalar]
    reference: Callable[..., torch.Tensor]  # (values, group of each, number of groups, positions in their rows)
    neutral: float | None = None  # what holes must hold to be read without a predicate


_LEAST = {"bool": 0, "uint8": 0, "int8": -(2**7), "int16": -(2**15), "int32": -(2**31), "int64": -(2**63)}
_MOST = {"bool": 1, "uint8": 2**8 - 1, "int8": 2**7 - 1, "int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1}


def _least(dtype: str) -> float:
    return -math.inf if dtype in FLOATS else _LEAST[dtype]


def _most(dtype: str) -> float:
    return math.inf if dtype in FLOATS else _MOST[dtype]


def _simple(
    name: str, neutral: Callable[[str], float], join: Callable[[Scalar, Scalar], Scalar], how: str, value: float
) -> Reduction:
    def reference(values: torch.Tensor, groups: torch.Tensor, count: int, _: torch.Tensor) -> torch.Tensor:
        start = torch.full((count,), neutral(str(values.dtype).removeprefix("torch.")), dtype=values.dtype)
        return start.scatter_reduce(0, groups, values, how, include_self=True)

    return Reduction(
        (name,),
        0,
        lambda dtype: (const(neutral(dtype), dtype),),
        lambda state, element, _: (join(state[0], element),),
        lambda left, right: (join(left[0], right[0]),),
        lambda state: state[0],
        reference,
        value,
    )


def _mean_reference(values: torch.Tensor, groups: torch.Tensor, count: int, _: object = None) -> torch.Tensor:
    zeros = torch.zeros(count, dtype=values.dtype)
    return zeros.scatter_add(0, groups, values) / zeros.scatter_add(0, groups, torch.ones_like(values))


def _variance_reference(values: torch.Tensor, groups: torch.Tensor, count: int, _: object = None) -> torch.Tensor:
    return _mean_reference((values - _mean_reference(values, groups, count)[groups]).square(), groups, count)


def _logsumexp_reference(values: torch.Tensor, groups: torch.Tensor, count: int, _: object = None) -> torch.Tensor:
    return torch.stack([values[groups == group].logsumexp(0) for group in range(count)]) if count else values[:0]


def _welford(state: tuple[Scalar, ...], element: Scalar, _: Scalar) -> tuple[Scalar, ...]:
    spread, mean, count = state
    more = s.add(count, 1)
    delta = s.sub(element, mean)
    moved = s.add(mean, s.fdiv(delta, cast(more, mean.dtype)))
    return s.add(spread, s.mul(delta, s.sub(element, moved))), moved, more


def _welford_combine(left: tuple[Scalar, ...], right: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    count = s.add(left[2], right[2])
    dtype = left[0].dtype
    share = s.fdiv(cast(right[2], dtype), cast(count, dtype))
    delta = s.sub(right[1], left[1])
    mean = s.add(left[1], s.mul(delta, share))
    spread = s.add(s.add(left[0], right[0]), s.mul(s.mul(delta, delta), s.mul(cast(left[2], dtype), share)))
    # A side of no elements has nothing to say: its mean is a mere 0, and NaN or inf on the other side must stay.
    none_left, none_right = s.equal(left[2], 0), s.equal(right[2], 0)
    kept = [
        select(none_left, r, select(none_right, a, b))
        for a, r, b in zip(left[:2], right[:2], (spread, mean), strict=True)
    ]
    return kept[0], kept[1], count


def _online(state: tuple[Scalar, ...], element: Scalar, _: Scalar) -> tuple[Scalar, ...]:
    return _online_combine(state, (element, _number(1, element)))


def _online_combine(left: tuple[Scalar, ...], right: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    greatest = s.maximum(left[0], right[0])
    low = _number(-math.inf, greatest)
    return greatest, s.add(_rescaled(left, greatest, low), _rescaled(right, greatest, low))


def _rescaled(state: tuple[Scalar, ...], greatest: Scalar, low: Scalar) -> Scalar:
    """A sum of exponentials, relative to another maximum; both −inf: nothing was added yet, or only −inf was."""
    same = s.equal(state[0], greatest)  # also keeps inf − inf from being NaN
    return s.mul(state[1], select(same, _number(1, low), call("exp", s.sub(state[0], greatest))))


def _online_finish(state: tuple[Scalar, ...]) -> Scalar:
    infinite = s.equal(call("abs", state[0]), _number(math.inf, state[0]))
    return select(infinite, state[0], s.add(state[0], call("log", state[1])))


def _arg(better: Callable[[Scalar, Scalar], Scalar], worst: Callable[[str], float], flip: bool) -> Reduction:
    def combine(
        left: tuple[Scalar, ...], right: tuple[Scalar, ...], is_element: Scalar | None = None
    ) -> tuple[Scalar, ...]:
        # NaN beats everything; of equals the earlier position, whatever the order of combining.
        a, i = left
        b, j = right
        wins = (
            s.either(better(b, a), s.both(call("isnan", b), s.negation(call("isnan", a))))
            if a.dtype in FLOATS
            else better(b, a)
        )
        same = s.equal(a, b)
        if a.dtype in FLOATS:
            same = s.either(same, s.both(call("isnan", a), call("isnan", b)))
        found = s.le(0, j) if is_element is None else is_element
        earlier = s.both(same, found, s.either(s.lt(j, i), s.lt(i, 0)))
        takes = s.either(wins, earlier)
        return select(takes, b, a), select(takes, j, i)

    def reference(values: torch.Tensor, groups: torch.Tensor, count: int, positions: torch.Tensor) -> torch.Tensor:
        found = torch.full((count,), -1)
        for group in range(count):
            row = values[groups == group]
            if row.numel():
                found[group] = positions[groups == group][row.argmin() if flip else row.argmax()]
        return found

    return Reduction(
        ("value", "position"),
        1,
        lambda dtype: (const(worst(dtype), dtype), const(-1, "int64")),
        lambda state, element, position: combine(state, (element, cast(position, "int64")), s.TRUE),
        combine,
        lambda state: state[1],
        reference,
    )


REDUCTIONS: dict[str, Reduction] = {
    "sum": _simple("sum", lambda _: 0, s.add, "sum", 0),
    "prod": _simple("product", lambda _: 1, s.mul, "prod", 1),
    "max": _simple("max", _least, s.maximum, "amax", -math.inf),
    "min": _simple("min", _most, s.minimum, "amin", math.inf),
    "mean": Reduction(
        ("mean", "count"),
        0,
        lambda dtype: (const(0, dtype), const(0, "int64")),
        lambda state, element, _: (s.add(state[0], element), s.add(state[1], 1)),
        lambda left, right: (s.add(left[0], right[0]), s.add(left[1], right[1])),
        lambda state: s.fdiv(state[0], cast(state[1], state[0].dtype)),
        _mean_reference,
    ),
    "var": Reduction(
        ("var", "mean", "count"),
        0,
        lambda dtype: (const(0, dtype), const(0, dtype), const(0, "int64")),
        _welford,
        _welford_combine,
        lambda state: s.fdiv(state[0], cast(state[2], state[0].dtype)),
        _variance_reference,
    ),
    "logsumexp": Reduction(
        ("max", "sum"),
        0,
        lambda dtype: (const(-math.inf, dtype), const(0, dtype)),
        _online,
        _online_combine,
        _online_finish,
        _logsumexp_reference,
    ),
    "argmax": _arg(lambda b, a: s.lt(a, b), _least, False),
    "argmin": _arg(lambda b, a: s.lt(b, a), _most, True),
}


def result_dtype(reduction: str, dtype: str) -> str:
    """Integer sums are int64, arg-reductions too, means of whole numbers are not defined here."""
    if reduction.startswith("arg"):
        return "int64"
    if reduction in ("sum", "prod") and dtype not in FLOATS:
        return "int64"
    return dtype
