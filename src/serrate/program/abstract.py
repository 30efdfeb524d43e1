"""An abstract run: an operation's implementation, run on tensors without elements, gives the type of the result.

So the rule for types is written once, in the code that computes. Values and offsets are torch's fake tensors, which
know sizes, dtypes and devices; the sizes are the numbers of a `Point`, each of which stands for a size of the type.

Where eager code finds two sizes or partitions that have to be equal and are not known to be, the run ends with a
`Meeting`. It is run again with both taken for equal, and that becomes a guard of the result.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from serrate.program.devices import stand_in, stood_for
from serrate.program.guards import Known, Meeting
from serrate.program.partitions import AbstractPartition, Call, Expression
from serrate.program.points import Point
from serrate.program.sizes import Size, Slice, is_said, symbol
from serrate.program.types import RaggedAxis, TensorType, TypeAxis
from serrate.tensor import abstract
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor

_RUNNING = (torch.ops.aten.cumsum.default, torch.ops.aten.cumprod.default)


class _Fakes(FakeTensorMode):  # type: ignore[no-untyped-call]
    """torch's fake tensors, but for running sums and products, whose type torch finds from all pairs of entries: of
    these there may be more than it can count."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func in _RUNNING:
            counted = args[0].dtype.is_floating_point or args[0].dtype.is_complex
            dtype = named.get("dtype") or (args[0].dtype if counted else torch.int64)
            func, args, named = torch.ops.aten.empty_like.default, args[:1], {"dtype": dtype}
        elif func is torch.ops.aten.cumsum.out:
            return named["out"]
        return super().__torch_dispatch__(func, types, args, named)


def _is_of_others(_: logging.LogRecord) -> bool:
    """Whether a message is none of an abstract run, which asks torch what it thinks of numbers that mean nothing."""
    return abstract.current() is None


logging.getLogger("torch._subclasses.fake_tensor").addFilter(_is_of_others)


class _Mode(threading.local):
    """torch's mode for fake tensors, one for each thread."""

    @cached_property
    def fake(self) -> _Fakes:
        """Made when it is asked for, since torch imports its own compiler for it, which takes most of a second."""
        return _Fakes(allow_non_fake_inputs=True)


_mode = _Mode()


class AbstractRun:
    """One run on tensors without elements, with what is known to be equal.

    `call` is the call whose result is asked for; without one, whatever the run makes is told from all else. `program`
    is the one that operands and results are of.
    """

    def __init__(
        self,
        known: Known | None = None,
        call: Call | None = None,
        point: Point | None = None,
        program: int | None = None,
    ) -> None:
        self.program = program
        self.known = known or Known()
        self.call = Call("made", (object(),)) if call is None else call
        self.point = Point(self.known.sizes) if point is None else point
        self._partitions: dict[Expression, AbstractPartition] = {}
        self._made = 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Eager code of this thread runs on tensors without elements."""
        with torch.no_grad(), _mode.fake, abstract.entered(self):
            yield

    # -------------------------------------------------------------------------------------------- what eager code asks

    def count(self, why: str) -> int:
        """A number that only elements tell."""
        return self.number(symbol("count", *self.name(), why))

    def least(self, one: int, other: int) -> int:
        """The smaller of two numbers."""
        a, b = self.size(one), self.size(other)
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return one if a == b else self.number(symbol("least", a, b))

    def most(self, one: int, other: int) -> int:
        """The greater of two numbers."""
        a, b = self.size(one), self.size(other)
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return one if a == b else self.number(symbol("most", a, b))

    def differ(self, one: int, other: int) -> bool:
        """Whether two sizes that have to be equal are known to differ; where nobody knows, a `Meeting`."""
        a, b = self.size(one), self.size(other)
        if isinstance(a, int) and isinstance(b, int):
            return a != b
        raise Meeting(a, b)

    def sliced(self, size: int, key: slice) -> tuple[int, int]:
        """Where a slice of an axis begins, and how many positions it has."""
        extent, cut = self.size(size), self.slice(key)
        if all(part is None or isinstance(part, int) for part in (extent, cut.start, cut.stop, cut.step)):
            chosen = range(size)[key]
            return chosen.start, len(chosen)
        if cut == Slice(None, None, -1):
            return size - 1, size
        if cut.start in (None, 0) and cut.stop in (None, extent) and cut.step in (None, 1):
            return 0, size
        start = 0 if cut.start in (None, 0) else self.number(symbol("start", extent, cut))
        return start, self.number(symbol("sliced", extent, cut))

    def slice(self, key: slice) -> Slice:
        """A slice whose bounds are the sizes that its numbers stand for."""
        return Slice(*(None if bound is None else self.size(bound) for bound in (key.start, key.stop, key.step)))

    def is_known(self, size: int) -> bool:
        """Whether the size is a number."""
        return isinstance(self.size(size), int)

    def meet(self, one: Expression, other: Expression) -> bool:
        """Whether two partitions are the same; where nobody knows, a `Meeting`."""
        one, other = self.known.partition(one), self.known.partition(other)
        if one == other:
            return True
        pairs = ((one.components, other.components), (one.values, other.values))
        if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            return False
        raise Meeting(one, other)

    def born(
        self,
        offsets: torch.Tensor,
        num_values: int,
        device_born: bool,
        exact: bool,
        bound: int | None,
        uniform_length: int | None,
    ) -> AbstractPartition:
        """A partition that eager code made of offsets."""
        components = self.size(offsets.shape[0] - 1)
        length = None if uniform_length is None else self.size(uniform_length)
        kind, *operands = self.name() if length is None else ("uniform", components, length)
        return self.partition(
            Expression(
                str(kind),
                tuple(operands),
                components,
                self.size(num_values),
                not device_born,
                exact,
                offsets.dtype,
                stood_for(offsets.device),
                length,
                None if bound is None else self.size(bound),
            )
        )

    def name(self) -> tuple[Hashable, ...]:
        """The kind and the operands of what the call makes next."""
        self._made += 1
        return self.call.operation, self.call, f"#{self._made}"

    def restart_names(self) -> None:
        """Name what is made from now on as if nothing had been made: another call begins."""
        self._made = 0

    # ---------------------------------------------------------------------------------------- between types and tensors

    def number(self, size: Size) -> int:
        """The number that stands for a size."""
        return self.point.number(size)

    def size(self, number: int) -> Size:
        """The size that a number stands for."""
        return self.point.size(number)

    def said(self, text: str) -> str:
        """A text with the sizes that its large numbers stand for."""

        def shown(found: re.Match[str]) -> str:
            size = self.size(int(found[0]))
            return str(size) if is_said(size) else found[0]

        return re.sub(r"\d{4,}", shown, text)

    def partition(self, expression: Expression) -> AbstractPartition:
        """The partition of an expression, one for all of the same name."""
        expression = self.known.partition(expression)
        found = self._partitions.get(expression)
        if found is None:
            found = self._partitions[expression] = AbstractPartition.of(expression, self)
        return found

    def axis(self, axis: TypeAxis) -> Axis:
        """An axis of a type as eager code sees it."""
        if isinstance(axis, RaggedAxis):
            return Ragged(self.partition(axis.partition), axis.parents)
        return self.number(axis)

    def structure(self, axes: Sequence[TypeAxis], rows: int | None = None) -> Structure:
        """The structure of packed axes."""
        return Structure(map(self.axis, axes), rows)

    def tensor(self, kind: TensorType) -> Tensor:
        """A tensor of a type."""
        sizes = [self.number(size) for size in kind.features]
        structure = DENSE
        if kind.rows is not None:
            sizes.insert(0, self.number(kind.rows))
            structure = self.structure(kind.axes, sizes[0])
        values = torch.empty(sizes, dtype=kind.dtype, device=stand_in(kind.device))
        made = Tensor(values, structure, kind.order, kind.team)
        return made if kind.origin is None else kind.origin.restored(self, made)

    def type_of(self, x: Tensor | torch.Tensor) -> TensorType:
        """The type of a tensor; some of its sizes may be such as no type can say."""
        if isinstance(x, torch.Tensor):
            x = Tensor(x)
        sizes = [self.size(number) for number in x.values.shape]
        rows = sizes.pop(0) if x.is_ragged else None
        origin_in = getattr(x, "origin_in", None)
        origin = None if origin_in is None else origin_in(self)
        axes = self.axes_of(x.structure)
        return TensorType(x.dtype, stood_for(x.device), axes, rows, tuple(sizes), x.order, x.team, origin, self.program)

    def expression_of(self, partition: Partition) -> Expression:
        """The expression of a partition."""
        assert isinstance(partition, AbstractPartition)
        return partition.expression

    def axes_of(self, structure: Structure) -> tuple[TypeAxis, ...]:
        """The packed axes of a structure as a type has them."""
        axes: list[TypeAxis] = []
        for axis in structure.axes:
            if isinstance(axis, Ragged):
                axes.append(RaggedAxis(self.expression_of(axis.partition), axis.parents))
            else:
                axes.append(self.size(axis))
        return tuple(axes)


def unsaid(kind: TensorType) -> Size | None:
    """A size in the type that follows from others in a way that no type can say; None if there is none."""
    sizes: list[Size] = list(kind.features)
    sizes += [axis for axis in kind.axes if not isinstance(axis, RaggedAxis)]
    sizes += [size for each in kind.partitions for size in (each.components, each.values)]
    if kind.rows is not None:
        sizes.append(kind.rows)
    return next((size for size in sizes if not is_said(size)), None)


def mapped(given: Any, change: Callable[[Any], Any]) -> Any:
    """`given` with `change` applied to everything inside of lists, tuples and dicts."""
    if isinstance(given, tuple):
        parts = [mapped(part, change) for part in given]
        return type(given)(*parts) if hasattr(given, "_fields") else tuple(parts)
    if isinstance(given, list):
        return [mapped(part, change) for part in given]
    if isinstance(given, dict):
        return {key: mapped(value, change) for key, value in given.items()}
    return change(given)
