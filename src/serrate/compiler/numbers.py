"""Numbers: Python numbers that differ from call to call, which a program is given as tensors of one element.

They count as Python numbers do when dtypes are chosen. What needs a number when the function is traced, such as an
axis, a size or a branch, is a `Pinned`: the function is traced again, with the number as a part of its signature.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from serrate.compiler.refusing import is_users_frame, note, refuse
from serrate.lowering import parts
from serrate.ops.record import TABLE
from serrate.program.partitions import Call
from serrate.program.types import TensorType, Value
from serrate.tensor import promotion
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.compiler.tracing import Trace

DTYPES = {int: torch.int64, float: torch.float64, complex: torch.complex128}
"""What numbers are given as."""


class Pinned(BaseException):
    """This exception ends a trace: the number at this place among the variables must be known when it is traced."""

    def __init__(self, places: frozenset[int]) -> None:
        super().__init__(f"numbers {sorted(places)} are asked for")
        self.places = places


class Limit(NamedTuple):
    """What a number must be for a program to be right."""

    low: int = -(2**63)
    high: int = 2**63 - 1
    is_zero: bool = True
    """Whether it may be 0."""

    def admits(self, number: Any) -> bool:
        """Whether a program is right for the number."""
        return (self.is_zero or number != 0) and (type(number) is not int or self.low <= number <= self.high)


GIVEN = 2**20
"""Up to the sign the greatest whole number that programs compute with before it meets a tensor."""


class TracedNumber:
    """What a function sees in place of a Python number that differs from call to call."""

    __slots__ = ("greatest", "is_given", "kind", "places", "trace", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, value: Value, kind: type, places: frozenset[int], trace: Trace, greatest: int, *, is_given: bool = False
    ) -> None:
        self.value, self.kind, self.places, self.trace = value, kind, places, trace
        self.greatest, self.is_given = greatest, is_given
        # Whole numbers are at most `greatest`, up to the sign. A number that `is_given` may be limited for each call.

    def beside(self, dtype: torch.dtype) -> Value:
        """The number as a tensor of the dtype that it has beside tensors of another one."""
        sample = {int: 1, float: 0.5, complex: 0.5j}[self.kind]
        wanted = promotion.beside(dtype, sample)
        if self.kind is int and not wanted.is_floating_point and not wanted.is_complex:
            self.limit(torch.iinfo(wanted).min, torch.iinfo(wanted).max)
        return self.trace.cast(self.value, wanted)

    def limit(self, low: int, high: int, *, is_zero: bool = True) -> None:
        """Let a call whose number is outside of these run eagerly, which raises or computes with longer numbers."""
        if self.is_given:
            (place,) = self.places
            before = self.trace.limits.get(place, Limit())
            self.trace.limits[place] = Limit(max(low, before.low), min(high, before.high), is_zero and before.is_zero)
        elif self.greatest > min(high, -low if low < 0 else high) or (low >= 0 and self.places):
            self.pin()

    def pin(self, *_: Any) -> NoReturn:
        """End the trace: the number must be known."""
        if not self.places:
            refuse(
                "a size is used as a Python number",
                "it is known only when the function is called; it can be added, multiplied, divided, and given to "
                "operations",
            )
        raise note(Pinned(self.places))

    def __neg__(self) -> Any:
        return arithmetic(self.trace, "negative", self)

    def __pos__(self) -> Any:
        return self

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Its class: a user's function that asks, as by `isinstance`, has to know the number."""
        if is_users_frame(sys._getframe(1)):
            self.pin()
        return TracedNumber

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") or not hasattr(self.kind, name):
            raise AttributeError(f"a {self.kind.__name__} has no attribute {name!r}")
        self.pin()


def _operator(name: str, reflected: bool) -> Callable[[TracedNumber, Any], Any]:
    def operator(self: TracedNumber, other: Any) -> Any:
        pair = (other, self) if reflected else (self, other)
        if isinstance(other, (Tensor, torch.Tensor)):
            return self.trace.beside_tensor(name, *pair)
        if not isinstance(other, (TracedNumber, int, float, complex)) or isinstance(other, bool):
            return NotImplemented
        return arithmetic(self.trace, name, *pair) if name in _ARITHMETIC else self.pin()

    return operator


_ARITHMETIC = ("add", "subtract", "multiply", "divide")
_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
}
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
_REFUSED = (
    "bool int float complex index abs round divmod rdivmod trunc floor ceil lshift rlshift rshift rrshift and rand"
)

for _python, _name in _OPERATORS.items():
    setattr(TracedNumber, f"__{_python}__", _operator(_name, reflected=False))
    setattr(TracedNumber, f"__r{_python}__", _operator(_name, reflected=True))
for _python, _name in _COMPARISONS.items():
    setattr(TracedNumber, f"__{_python}__", _operator(_name, reflected=False))
for _python in (*_REFUSED.split(), "or", "ror", "xor", "rxor", "invert", "format", "str", "repr"):
    setattr(TracedNumber, f"__{_python}__", TracedNumber.pin)


def limit_exponent(number: Any) -> None:
    """Let a call in which whole numbers are raised to a negative power run eagerly, which raises the error of torch."""
    if isinstance(number, TracedNumber) and number.kind is int:
        number.limit(0, 2**63 - 1)


def kind_of(*numbers: Any) -> type:
    """The type of what Python computes of numbers by addition and multiplication."""
    kinds = [each.kind if isinstance(each, TracedNumber) else type(each) for each in numbers]
    return next(kind for kind in (complex, float, int) if kind in kinds)


def traced_number(trace: Trace, kind: type, place: int) -> TracedNumber:
    """What stands for a Python number that differs from call to call."""
    made = TensorType(DTYPES[kind], torch.device("cpu"), (), None, (), (), program=trace.inputs.program)
    value = Value(made, f"number{place}")
    trace.given.append(value)
    trace.limits[place] = Limit()
    return TracedNumber(value, kind, frozenset({place}), trace, GIVEN, is_given=True)


def arithmetic(trace: Trace, name: str, *numbers: Any) -> TracedNumber:
    """What Python computes of numbers, some of which differ from call to call."""
    kind = float if name == "divide" and kind_of(*numbers) is int else kind_of(*numbers)
    greatest = _greatest(name, numbers) if kind is int else 0
    if name == "divide":
        numbers = numbers[0], _divisor(trace, numbers[1])
    given = [trace.cast(each.value, DTYPES[kind]) if isinstance(each, TracedNumber) else kind(each) for each in numbers]
    places = frozenset[int]().union(*(each.places for each in numbers if isinstance(each, TracedNumber)))
    value = trace.called(TABLE[name], tuple(given), {}, "")
    return TracedNumber(value, kind, places, trace, greatest)


def _divisor(trace: Trace, number: Any) -> Any:
    """A number that is divided by: where it is 0 in a call, an error as of Python's."""
    if not isinstance(number, TracedNumber):
        if number == 0:
            raise ZeroDivisionError("division by zero")
        return number
    if number.is_given:
        number.limit(-(2**63), 2**63 - 1, is_zero=False)
        return number
    call = Call("divisor", (object(),))
    value = trace.entered("divisor", call, parts.divisor, (number.value,), {}, "", parts.divisor)
    return TracedNumber(value, number.kind, number.places, trace, number.greatest)


def _greatest(name: str, numbers: tuple[Any, ...]) -> int:
    """Up to the sign the greatest number that comes of whole numbers. What may be too long is pinned."""
    found = []
    for each in numbers:
        if isinstance(each, TracedNumber) and each.is_given:
            each.limit(-GIVEN, GIVEN)
        found.append(each.greatest if isinstance(each, TracedNumber) else abs(each))
    made: int = math.prod(found) if name == "multiply" else sum(found)
    if made >= 2**63:
        next(each for each in numbers if isinstance(each, TracedNumber)).pin()
    return made


def size_as_number(trace: Trace, size: Any) -> TracedNumber:
    """What stands for the number that a size is, where it is computed with."""
    value = trace.entered("size", Call("size", (object(),)), parts.number, (size,), {}, "", parts.number)
    return TracedNumber(value, int, frozenset(), trace, 2**31 - 1)
