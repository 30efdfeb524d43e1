"""Partitions in types: expressions that say how a partition came about, and partitions without elements that bear them.

A partition in a type is an input, or made of others: `slice(p, 0, 3)`, `cut(p, :2)`, `scaled(p, 2)`. Two expressions of
the same text are the same partition, so tensors that were sliced alike have the same type. What has no name of its own
is named after the call that made it: the operation, the structure of its operands, its attributes, and the operands
whose elements decide about it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch

from serrate.program.devices import Device, stand_in, stood_for
from serrate.program.sizes import Size, symbol
from serrate.tensor.partition import Partition

if TYPE_CHECKING:
    from serrate.program.abstract import AbstractRun


@dataclass(frozen=True)
class Call:
    """A call of an operation, as the name of partitions that it makes: all that decides about them."""

    operation: str
    arguments: tuple[Hashable, ...]

    def __str__(self) -> str:
        return ", ".join(dict.fromkeys(map(str, _expressions(self.arguments))))


def _expressions(parts: Any) -> Iterator[Expression]:
    """The expressions in the arguments of a call."""
    if isinstance(parts, Expression):
        yield parts
    elif isinstance(parts, Call):
        yield from _expressions(parts.arguments)
    elif isinstance(parts, tuple):
        for part in parts:
            yield from _expressions(part)
    elif hasattr(parts, "partition"):
        yield from _expressions(parts.partition)


_LONGEST = 200
"""The most characters of the text of an expression."""


@dataclass(frozen=True, eq=False)
class Expression:
    """A partition in a type; equal expressions are the same partition.

    What it was made of tells it from others. Its sizes follow from that, and are known by other names once some of them
    were found equal.
    """

    kind: str
    """"input", the name of a method of `Partition` that made it, or the name of the operation that did."""
    operands: tuple[Hashable, ...]
    """What it was made of: expressions, sizes, attributes, and for an input its name."""
    components: Size
    """How many components it has."""
    capacity: Size | None
    """How many values it has room for; None where it has just as many as its lengths say, and they are data."""
    host_born: bool
    """Whether the host knows its lengths."""
    exact: bool
    """Whether no value is undefined."""
    dtype: torch.dtype
    """That of its offsets; more values than an int32 counts have int64 offsets all the same."""
    device: Device
    """Where its offsets were born."""
    uniform_length: Size | None = None
    """The one length of all components, where that was declared."""
    bound: Size | None = None
    """A length that no component exceeds, where only the device knows the lengths."""
    same_lengths: Expression | None = None
    """A partition that has the same lengths, and perhaps other room or another home."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.kind, self.operands)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expression) or hash(self) != hash(other):
            return False  # without a look at what both were made of
        mine, theirs = ((x.kind, x.operands, x.host_born, x.exact, x.dtype, x.device) for x in (self, other))
        return mine == theirs

    def __reduce__(self) -> tuple[Any, ...]:
        return Expression, tuple(getattr(self, each.name) for each in fields(self))  # hashes differ between processes

    @property
    def values(self) -> Size:
        """How many values it has room for."""
        return symbol("values", self) if self.capacity is None else self.capacity

    @property
    def longest(self) -> Size:
        """The length of the longest component."""
        if self.same_lengths is not None:
            return self.same_lengths.longest
        return symbol("longest", self) if self.uniform_length is None else self.uniform_length

    @cached_property
    def depth(self) -> int:
        """How many expressions it is made of, one inside of the other, itself among them."""
        return 1 + max((each.depth for each in _expressions(self.operands)), default=0)

    @cached_property
    def text(self) -> str:
        """The expression as it is shown: where that is long, with a digest in the place of what it was made of, since
        the same expression may stand in it many times."""
        if self.kind == "input":
            return str(self.operands[0])
        whole = f"{self.kind}({', '.join(map(str, self.operands))})"
        return whole if len(whole) <= _LONGEST else f"{self.kind}({sha256(whole.encode()).hexdigest()[:12]})"

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class AbstractPartition(Partition):
    """A partition without elements in its offsets; what only elements tell is a symbol of its expression."""

    __slots__ = ("expression", "run")

    expression: Expression
    run: AbstractRun

    @classmethod
    def of(cls, expression: Expression, run: AbstractRun) -> AbstractPartition:
        """The partition of an expression."""
        offsets = torch.empty(
            run.number(expression.components) + 1, dtype=expression.dtype, device=stand_in(expression.device)
        )
        made = object.__new__(cls)
        made._hold(
            offsets,
            run.number(expression.values),
            not expression.host_born,
            expression.exact,
            True,
            None if expression.bound is None else run.number(expression.bound),
            None if expression.uniform_length is None else run.number(expression.uniform_length),
        )
        made.expression, made.run = expression, run
        return made

    def _made(
        self,
        kind: str,
        *operands: Any,
        components: int,
        capacity: int | None,
        exact: bool = True,
        device_born: bool | None = None,
        device: torch.device | None = None,
        uniform_length: int | None = None,
        bound: int | None = None,
        same_lengths: bool = False,
    ) -> AbstractPartition:
        """The partition made of this one; numbers, slices and partitions among the operands become those of types."""
        run, size = self.run, self.run.size

        def named(operand: Any) -> Hashable:
            if isinstance(operand, AbstractPartition):
                return operand.expression
            if isinstance(operand, slice):
                return run.slice(operand)
            return size(operand) if type(operand) is int else operand

        return run.partition(
            Expression(
                kind,
                tuple(map(named, operands)),
                size(components),
                None if capacity is None else size(capacity),
                not (self._device_born if device_born is None else device_born),
                exact,
                self.dtype,
                stood_for(self.home if device is None else device),
                None if uniform_length is None else size(uniform_length),
                None if bound is None else size(bound),
                self.expression if same_lengths else None,
            )
        )

    # ------------------------------------------------------------------------------------- what only elements tell

    @property
    def total(self) -> int:
        """How many values are in a component."""
        return self._num_values if self._exact else self.run.number(symbol("total", self.expression))

    @property
    def max_length(self) -> int:
        """The length of the longest component."""
        return self.run.number(self.expression.longest)

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """As many values as components start .. stop own; where they begin is not known, and 0 stands for it."""
        return 0, self.slice(start, stop).num_values

    # ---------------------------------------------------------------------------------------------- new from old

    def slice(self, start: int, stop: int) -> Partition:
        """Components start .. stop as a partition of their own values."""
        if start == 0 and stop == self.num_components:
            return self
        return self._made(
            "slice", self.expression, start, stop, components=stop - start, capacity=None, bound=self._bound
        )

    def trimmed(self, components: int) -> Partition:
        """The first components as an exact partition."""
        if self._exact and components == self.num_components:
            return self
        return self._made(
            "trimmed",
            self.expression,
            components,
            components=components,
            capacity=None,
            bound=self._bound,
            same_lengths=components == self.num_components,
        )

    def with_lengths(
        self,
        lengths: torch.Tensor,
        *,
        capacity: int | None = None,
        bound: int | None = None,
        exact: bool = False,
        name: tuple[Any, ...] = (),
    ) -> Partition:
        """A partition with other lengths, which has a `name` if this partition and the name decide about them."""
        host_born = not self._device_born
        kind, *operands = (name[0], self.expression, *name[1:]) if name else self.run.name()
        return self._made(
            str(kind),
            *operands,
            components=lengths.shape[0],
            capacity=capacity if exact or not host_born else None,
            exact=host_born or exact or capacity is None,
            bound=None if host_born else bound,
        )

    def scaled(self, factor: int) -> Partition:
        """Every length times `factor`."""
        length = self.uniform_length
        return self._made(
            "scaled",
            self.expression,
            factor,
            components=self.num_components,
            capacity=self._num_values * factor,
            exact=self._exact,
            uniform_length=None if length is None else length * factor,
        )

    def coarsened(self, outer: Partition | int, count: int) -> Partition:
        """Components merged as `outer` groups them."""
        length = self._declared.get(outer) if isinstance(outer, int) else None
        if length is not None:
            return Partition.uniform(count, length, dtype=self.dtype)
        return self._made(
            "coarsened", self.expression, outer, components=count, capacity=self._num_values, exact=self._exact
        )

    def moved(self, device: torch.device) -> Partition:
        """This partition for a tensor on `device`."""
        if not self._device_born or device == self.home:
            return self
        return self._made(
            "moved",
            self.expression,
            str(stood_for(device)),
            components=self.num_components,
            capacity=self._num_values,
            exact=self._exact,
            device_born=device.type != "cpu" or not self._exact,
            device=device,
            bound=self._bound,
            same_lengths=True,
        )

    def pinned(self) -> Partition:
        """The same partition: a type does not say which memory is page-locked."""
        return self

    # -------------------------------------------------------------------------------------------------- equality

    def same_as(self, other: Partition) -> bool:
        """Whether both are the same partition. Where that is not known, the run begins anew and takes it for given."""
        if self is other:
            return True
        assert isinstance(other, AbstractPartition)
        return self.run.meet(self.expression, other.expression)

    def __eq__(self, other: object) -> bool:
        return self.same_as(other) if isinstance(other, Partition) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.expression)

    def preview(self) -> str:
        """The expression as a text."""
        return str(self.expression)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a partition without elements is not pickled")
