"""Numbers: Python numbers that differ from call to call, which a program is given as tensors of one element.

They count as Python numbers do when dtypes are chosen. What needs a number when the function is traced, such as an
axis, a size or a branch, is a `Pinned`: the function is traced again, with the number as a part of its signature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from serrate.program.types import Value
from serrate.tensor import promotion
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.compiler.tracing import Trace

DTYPES = {int: torch.int64, float: torch.float64, complex: torch.complex128}
"""What numbers are given as."""


class Pinned(Exception):
    """This exception ends a trace: the number at this place among the variables must be known when it is traced."""

    def __init__(self, places: frozenset[int]) -> None:
        super().__init__(f"numbers {sorted(places)} are asked for")
        self.places = places


class TracedNumber:
    """What a function sees in place of a Python number that differs from call to call."""

    __slots__ = ("kind", "places", "trace", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Value, kind: type, places: frozenset[int], trace: Trace) -> None:
        self.value, self.kind, self.places, self.trace = value, kind, places, trace

    def beside(self, dtype: torch.dtype) -> Value:
        """The number as a tensor of the dtype that it has beside tensors of another one."""
        sample = {int: 1, float: 0.5, complex: 0.5j}[self.kind]
        return self.trace.cast(self.value, promotion.beside(dtype, sample))

    def pin(self, *_: Any) -> NoReturn:
        """End the trace: the number must be known."""
        raise Pinned(self.places)

    def __neg__(self) -> Any:
        return self.trace.arithmetic("negative", self)

    def __pos__(self) -> Any:
        return self

    def __repr__(self) -> str:
        return f"<traced number {self.value.name}>"


def _operator(name: str, reflected: bool) -> Callable[[TracedNumber, Any], Any]:
    def operator(self: TracedNumber, other: Any) -> Any:
        pair = (other, self) if reflected else (self, other)
        if isinstance(other, (Tensor, torch.Tensor)):
            return self.trace.beside_tensor(name, *pair)
        if not isinstance(other, (TracedNumber, int, float, complex)) or isinstance(other, bool):
            return NotImplemented
        return self.trace.arithmetic(name, *pair) if name in _ARITHMETIC else self.pin()

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
for _python in (*_REFUSED.split(), "or", "ror", "xor", "rxor", "invert", "format"):
    setattr(TracedNumber, f"__{_python}__", TracedNumber.pin)


def kind_of(*numbers: Any) -> type:
    """The type of what Python computes of numbers by addition and multiplication."""
    kinds = [each.kind if isinstance(each, TracedNumber) else type(each) for each in numbers]
    return next(kind for kind in (complex, float, int) if kind in kinds)
