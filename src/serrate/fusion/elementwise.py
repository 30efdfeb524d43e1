"""Elementwise operations by name: the scalar functions, and what is composed of them.

`call("silu", x)` and `elementwise.silu(x)` give the expression of any of them. `enter` adds one that is composed: a
Python function of Scalars, whose keyword arguments are the options of the operation.

>>> from serrate.fusion import elementwise, symbol
>>> elementwise.silu(symbol("x", "float32"))
x * (1.0 / (1.0 + exp(-x)))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from serrate.fusion import scalar
from serrate.fusion.analysis import reads
from serrate.fusion.dtypes import INTEGERS, accumulator
from serrate.fusion.functions import FUNCTIONS, Function
from serrate.fusion.scalar import Operand, Scalar, cast, symbol

Expression = Callable[..., Scalar]
_ANSWERS = 256  # questions of which an operation keeps the answers


@dataclass(frozen=True, eq=False)
class Elementwise:
    """One elementwise operation."""

    name: str
    arity: int
    expression: Expression
    """Scalars, and options by keyword, to the Scalar of the result."""
    reference: Callable[..., torch.Tensor]
    """The function of torch tensors, with the same options, that means the same."""
    options: Mapping[str, Any]
    """The options with their defaults."""
    in_floats: bool = False
    """Whether whole numbers become float32 before it is computed."""
    in_own_dtype: bool = False
    """Whether it is computed in half types themselves, where others are computed in float32."""
    _answers: dict[tuple[Any, ...], tuple[str, tuple[int, ...]]] = field(default_factory=dict, repr=False)

    def __call__(self, *operands: Operand, **options: Any) -> Scalar:
        """The expression for these operands."""
        if len(operands) != self.arity:
            raise TypeError(f"{self.name} takes {self.arity} operands, got {len(operands)}")
        unknown = [name for name in options if name not in self.options]
        if unknown:
            known = ", ".join(self.options) or "none"
            raise TypeError(f"{self.name} has no option {', '.join(unknown)}; its options: {known}")
        if self.in_floats:
            operands = tuple(_in_floats(operand) for operand in operands)
        return self.expression(*operands, **options)

    def result_dtype(self, given: Sequence[str | complex], options: Mapping[str, Any]) -> str:
        """The dtype of the result, `given` the dtypes of tensors, and numbers; what is computed of half types is of
        that type again."""
        made, _ = self._asked(given, options)
        narrow = {accumulator(each): each for each in given if isinstance(each, str)}
        return narrow.get(made, made)

    def reads(self, given: Sequence[str | complex], options: Mapping[str, Any]) -> tuple[int, ...]:
        """How often the expression reads each of its operands; more than once counts as 2."""
        return self._asked(given, options)[1]

    def _asked(self, given: Sequence[str | complex], options: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
        """The dtype of the expression, and how often it reads each of its operands; kept for the next time."""
        key = (*((type(each), repr(each)) for each in given), *sorted((n, repr(v)) for n, v in options.items()))
        if key not in self._answers:
            operands = _symbols(given)
            made = self(*operands, **options)
            found = reads(made)
            many = tuple(found.get(each, 0) if isinstance(each, Scalar) else 1 for each in operands)
            if len(self._answers) == _ANSWERS:
                self._answers.clear()
            self._answers[key] = made.dtype, many
        return self._answers[key]


def _symbols(given: Sequence[str | complex]) -> list[Operand]:
    """A symbol for each dtype; numbers as they are."""
    return [
        symbol(f"x{place}", accumulator(each)) if isinstance(each, str) else each for place, each in enumerate(given)
    ]


def _in_floats(operand: Operand) -> Operand:
    whole = isinstance(operand, Scalar) and operand.dtype in INTEGERS
    return cast(operand, "float32") if whole and isinstance(operand, Scalar) else operand


COMPOSED: dict[str, Elementwise] = {}
"""The operations that are composed of others, by name."""


def enter(
    name: str,
    arity: int,
    expression: Expression,
    reference: Callable[..., torch.Tensor],
    *,
    in_floats: bool = False,
    in_own_dtype: bool = False,
) -> Elementwise:
    """Add an operation that is composed of others. Options are the keyword arguments of the expression, all of which
    have defaults; `reference` takes them by the same names.

    >>> from serrate.fusion import elementwise
    >>> import torch
    >>> def expression(x, *, low=-1.0, high=1.0):
    ...     return elementwise.minimum(elementwise.maximum(x, low), high)
    >>> squeezed = elementwise.enter("squeezed", 1, expression, lambda x, low=-1.0, high=1.0: x.clamp(low, high))
    >>> squeezed(symbol("x", "float32"), high=2.0)
    minimum(maximum(x, -1.0), 2.0)
    >>> del elementwise.COMPOSED["squeezed"]
    """
    if is_known(name):
        raise ValueError(f"there is an elementwise operation {name!r} already")
    parameters = inspect.signature(expression).parameters.values()
    options = {each.name: each.default for each in parameters if each.kind == each.KEYWORD_ONLY}
    COMPOSED[name] = Elementwise(name, arity, expression, reference, options, in_floats, in_own_dtype)
    return COMPOSED[name]


def is_known(name: str) -> bool:
    """Whether there is an operation of this name."""
    return name in COMPOSED or (name in FUNCTIONS and FUNCTIONS[name].reference is not None)


def names(arity: int | None = None) -> list[str]:
    """The names of all operations, or of those with so many operands."""
    primitive = [name for name in FUNCTIONS if is_known(name)]
    return [name for name in (*primitive, *COMPOSED) if arity in (None, named(name).arity)]


def named(name: str) -> Elementwise:
    """The operation of this name."""
    if name in COMPOSED:
        return COMPOSED[name]
    if not is_known(name):
        raise ValueError(f"no elementwise operation {name!r}; there are {', '.join(names())}")
    return _primitive(FUNCTIONS[name])


@cache
def _primitive(row: Function) -> Elementwise:
    """The operation that a scalar function is."""
    assert row.reference is not None

    def expression(*operands: Operand) -> Scalar:
        return scalar.call(row.name, *operands)

    in_floats = row.operands == "float"
    return Elementwise(row.name, row.arity, expression, row.reference, {}, in_floats, row.in_own_dtype)


def call(name: str, *operands: Operand, **options: Any) -> Scalar:
    """The expression of an operation."""
    return named(name)(*operands, **options)


def __getattr__(name: str) -> Callable[..., Scalar]:
    if not is_known(name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}, and there is no operation of that name")
    return named(name)
