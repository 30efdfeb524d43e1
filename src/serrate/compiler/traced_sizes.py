"""Sizes and partitions of traced tensors: what can be computed with while nobody knows the numbers."""

from __future__ import annotations

import numbers
import operator
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch

from serrate.compiler.refusing import is_users_frame, note, refuse
from serrate.program.partitions import Expression
from serrate.program.sizes import Polynomial, Size, sum_of
from serrate.program.sizes import product_of as times
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor


class TracedSize(torch.SymInt):
    """A size that differs from batch to batch. It can be added, multiplied, and given to operations as a size.

    torch's functions take it as the size that it is, and show it to the trace.
    """

    __slots__ = ("size",)

    def __init__(self, size: Size) -> None:
        self.size = size

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """A whole number, where a user's function asks, as by `isinstance`."""
        return int if is_users_frame(sys._getframe(1)) else TracedSize

    def __add__(self, other: Any) -> Any:
        given = _size_of(other)
        return self._computed("add", other) if given is None else traced_size(sum_of(self.size, given))

    def __radd__(self, other: Any) -> Any:
        return self._computed("radd", other) if _size_of(other) is None else self + other

    def __mul__(self, other: Any) -> Any:
        given = _size_of(other)
        return self._computed("mul", other) if given is None else traced_size(times(self.size, given))

    def __rmul__(self, other: Any) -> Any:
        return self._computed("rmul", other) if _size_of(other) is None else self * other

    def __neg__(self) -> Any:
        return traced_size(times(self.size, -1))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if not str(self.size).startswith("-") else self._refused()

    def __sub__(self, other: Any) -> Any:
        given = _size_of(other)
        return self._computed("sub", other) if given is None else traced_size(sum_of(self.size, times(given, -1)))

    def __rsub__(self, other: Any) -> Any:
        return self._computed("rsub", other) if _size_of(other) is None else -self + other

    def __truediv__(self, other: Any) -> Any:
        return self._computed("truediv", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._computed("rtruediv", other)

    def _computed(self, name: str, other: Any) -> Any:
        """What an operator gives with something that is no size: a number that the program computes."""
        from serrate.compiler.numbers import size_as_number
        from serrate.compiler.tracing import current

        trace = current()
        given = size_as_number(trace, other.size) if isinstance(other, TracedSize) else other
        return getattr(size_as_number(trace, self.size), f"__{name}__")(given)

    def _asked(self, other: Any, compare: Callable[[Any, Any], bool]) -> Any:
        """Compare with another size. The same expression is the same number, and the first axis of a dense argument is
        never 1 where it is no number; all else only a call knows. A comparison with a tensor is a tensor."""
        if isinstance(other, (Tensor, torch.Tensor)):
            return self._computed(compare.__name__, other)
        given = _size_of(other)
        if given is None and not isinstance(other, (numbers.Number, np.generic)) and not is_number(other):
            return compare is operator.ne if compare in (operator.eq, operator.ne) else NotImplemented
        if given == self.size:
            return compare in (operator.eq, operator.le, operator.ge)
        if given != 1 or compare not in (operator.eq, operator.ne) or not self._is_never_one():
            _pin(self.size, given)
            refuse(
                f"the size {self.size} is compared with {other if given is None else given}",
                "a compiled function serves all batches, so that its control flow cannot depend on their sizes; use "
                "sr.where, or give the size as an argument that is named in static=",
            )
        return compare is operator.ne

    def _is_never_one(self) -> bool:
        from serrate.compiler.tracing import current

        return self.size in current().not_one

    def __eq__(self, other: object) -> Any:
        return self._asked(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._asked(other, operator.ne)

    def __lt__(self, other: Any) -> Any:
        return self._asked(other, operator.lt)

    def __le__(self, other: Any) -> Any:
        return self._asked(other, operator.le)

    def __gt__(self, other: Any) -> Any:
        return self._asked(other, operator.gt)

    def __ge__(self, other: Any) -> Any:
        return self._asked(other, operator.ge)

    def _refused(self, *_: Any) -> NoReturn:
        _pin(self.size)
        refuse(
            f"the size {self.size} is used as a Python number",
            "it is known only when the function is called; sizes can be added, multiplied, divided, and given to "
            "operations",
        )

    __str__ = __format__ = _refused  # a text of it would be another one in each call
    __index__ = __int__ = __float__ = __complex__ = __bool__ = __hash__ = _refused
    __round__ = __trunc__ = __floor__ = __ceil__ = __divmod__ = __rdivmod__ = __invert__ = _refused
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refused
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __and__ = __rand__ = _refused
    __or__ = __ror__ = __xor__ = __rxor__ = _refused

    def __repr__(self) -> str:
        return str(self.size)


def _pin(*sizes: Size | None) -> None:
    """End the trace if the sizes are those of features, which the next one knows as numbers."""
    from serrate.compiler.numbers import Pinned
    from serrate.compiler.tracing import current

    pins = current().pins
    symbols = [s for size in sizes if isinstance(size, Polynomial) for term, _ in size.terms for s in term]
    if pins.keys() >= set(symbols):
        raise note(Pinned(frozenset(pins[each] for each in symbols)))


def traced_size(size: Size) -> Any:
    """A size as a function sees it: a number, if it is one."""
    return size if isinstance(size, int) else TracedSize(size)


def is_number(given: Any) -> bool:
    """Whether something is a Python number that differs from call to call."""
    from serrate.compiler.numbers import TracedNumber

    return isinstance(given, TracedNumber)


def _size_of(given: Any) -> Size | None:
    if isinstance(given, TracedSize):
        return given.size
    return given if isinstance(given, int) else None


class TracedPartition(Partition):
    """The partition of a traced tensor: it can stand in shapes, and be compared with others."""

    __slots__ = ("expression",)

    expression: Expression

    @classmethod
    def of(cls, expression: Expression) -> TracedPartition:
        """The partition of an expression."""
        made = object.__new__(cls)
        made.expression = expression
        return made

    @property
    def num_components(self) -> Any:
        """How many components it has."""
        return traced_size(self.expression.components)

    @property
    def num_values(self) -> Any:
        """How many values it has."""
        return traced_size(self.expression.values)

    @property
    def is_host_born(self) -> bool:
        """Whether the host knows the lengths."""
        return self.expression.host_born

    def same_as(self, other: Partition) -> bool:
        """Whether both are the same expression; whether others are equal only a call knows."""
        if not isinstance(other, TracedPartition) or other.expression != self.expression:
            self._refuse_to_compare()
        return True

    def _refuse_to_compare(self) -> NoReturn:
        refuse(
            "whether the rows of two tensors have the same lengths is asked for",
            "operations on both raise an error if they have not; tensors that are made of each other share their rows",
        )

    def __eq__(self, other: object) -> bool:
        return self.same_as(other) if isinstance(other, Partition) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.expression)

    def preview(self) -> str:
        """The expression as a text."""
        return str(self.expression)

    def __getattr__(self, name: str) -> NoReturn:
        refuse(f"{name} of a partition is asked for", "x.lengths and x.offsets of a traced tensor can be computed with")
