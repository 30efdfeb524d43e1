"""Whether a tensor is of a type: symbols and partitions of the type are bound to what the tensor has."""

from __future__ import annotations

from typing import Any

import torch
from tests.ops.matrix import arguments

import serrate as sr
from serrate.ops.meta import Typed, meta
from serrate.ops.record import Op
from serrate.program.abstract import AbstractRun, mapped
from serrate.program.partitions import AbstractPartition, Expression
from serrate.program.points import SCALES, Point
from serrate.program.sizes import Polynomial, Size, Symbol
from serrate.program.types import RaggedAxis, TensorType, Value
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged


def sample_arguments(text: str, kind: TensorType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a sample with types in the place of tensors, `x` being of a type."""
    unknown = [size for size in (kind.rows, *kind.features) if isinstance(size, Polynomial)]
    run = AbstractRun(point=Point({}, scale=SCALES[len(unknown) > 1]))
    with run.entered():
        x = run.tensor(kind)

        def as_type(part: Any) -> Any:
            if isinstance(part, sr.Tensor | torch.Tensor):
                return Value(kind, "x") if part is x else run.type_of(part)
            if isinstance(part, Ragged):
                return RaggedAxis(part.partition.expression, part.parents)
            if isinstance(part, AbstractPartition):
                return part.expression
            return run.size(part) if type(part) is int else part

        return mapped(arguments(text, x), as_type)  # type: ignore[no-any-return]


def typed(op: Op, text: str, kind: TensorType) -> Typed:
    """The types of a sample's results, `x` being of a type."""
    return meta(op, *sample_arguments(text, kind))


class Bindings:
    """What the symbols and expressions of types are in one run."""

    def __init__(self) -> None:
        self.numbers: dict[Symbol, int] = {}
        self.partitions: dict[Expression, Partition] = {}

    def check(self, kind: Any, made: Any) -> None:
        """An AssertionError unless `made` is of the type; what the type leaves open is bound."""
        if isinstance(kind, TensorType):
            self._tensor(kind, made if isinstance(made, sr.Tensor) else sr.Tensor(made))
        elif isinstance(kind, (tuple, list)):
            assert type(kind) is type(made), (kind, made)
            for one, other in zip(kind, made, strict=True):
                self.check(one, other)
        else:
            assert kind == made, (kind, made)

    def _tensor(self, kind: TensorType, x: sr.Tensor) -> None:
        assert (kind.dtype, kind.device, kind.team) == (x.dtype, x.device, x.team), (kind, x.dtype, x.device)
        assert kind.order == x.order, (kind.order, x.order)
        assert len(kind.axes) == len(x.structure.axes), (str(kind), x.shape)
        for axis, have in zip(kind.axes, x.structure.axes, strict=True):
            if isinstance(axis, RaggedAxis):
                assert isinstance(have, Ragged), (str(kind), x.shape)
                assert axis.parents == have.parents
                self._partition(axis.partition, have.partition)
            else:
                assert isinstance(have, int), (str(kind), x.shape)
                self._size(axis, have, "axis")
        sizes = kind.features if kind.rows is None else (kind.rows, *kind.features)
        assert len(sizes) == x.values.ndim, (str(kind), x.values.shape)
        for size, have in zip(sizes, x.values.shape, strict=True):
            self._size(size, have, "dimension")

    def _partition(self, kind: Expression, p: Partition) -> None:
        known = self.partitions.setdefault(kind, p)
        assert torch.equal(known.offsets.to(torch.int64), p.offsets.to(torch.int64)), (str(kind), known, p)
        self._size(kind.components, p.num_components, "components")
        self._size(kind.values, p.num_values, "values")
        assert kind.host_born == p.is_host_born, ("host_born", str(kind))
        assert kind.exact == p.is_exact, ("exact", str(kind), kind.exact, p)
        assert kind.dtype == p.dtype, ("dtype", str(kind), p.dtype)
        assert kind.device == p.home
        if kind.uniform_length is None:
            assert p.uniform_length is None, ("uniform", str(kind))
        else:
            self._size(kind.uniform_length, p.uniform_length, "uniform length")

    def _size(self, size: Size, have: int, what: str) -> None:
        if isinstance(size, Polynomial):
            self._bind(size, have)
        got = self.number(size)
        assert got == have, (what, str(size), got, have)

    def _bind(self, size: Polynomial, have: int) -> None:
        """Bind the one symbol of a size that is free, if there is one."""
        for monomial, _ in size.terms:
            for part in (part for each in monomial if each.kind in ("least", "most") for part in each.of):
                if isinstance(part, Polynomial):
                    self._bind(part, have)
        free = [(m, c) for m, c in size.terms if not all(map(self._is_bound, m))]
        if len(free) != 1:
            return
        ((monomial, coefficient),) = free
        (unknown,) = [s for s in monomial if not self._is_bound(s)]
        rest = sum(self._product(m, c) for m, c in size.terms if m != monomial)
        times = self._product(tuple(s for s in monomial if s != unknown), coefficient)
        self.numbers[unknown] = (have - rest) // times if times else 0

    def number(self, size: Size) -> int:
        """What a size is in this run."""
        return size if isinstance(size, int) else sum(self._product(m, c) for m, c in size.terms)

    def _product(self, monomial: tuple[Symbol, ...], coefficient: int) -> int:
        for symbol in monomial:
            coefficient *= self._of(symbol)
        return coefficient

    def _is_bound(self, symbol: Symbol) -> bool:
        if symbol.kind == "longest":
            return symbol.of[0] in self.partitions
        return symbol.kind in ("least", "most", "sliced") or symbol in self.numbers

    def _of(self, symbol: Symbol) -> int:
        if symbol.kind in ("least", "most"):
            return (min if symbol.kind == "least" else max)(map(self.number, symbol.of))
        if symbol.kind == "sliced":
            cut = symbol.of[1]
            bounds = (None if part is None else self.number(part) for part in (cut.start, cut.stop, cut.step))
            return len(range(self.number(symbol.of[0]))[slice(*bounds)])
        if symbol.kind == "longest":
            return self.partitions[symbol.of[0]].max_length
        return self.numbers[symbol]


def check_sample(op: Op, text: str, kind: TensorType, result: Typed, x: sr.Tensor) -> None:
    """What the sample gives for x, which is of a type, must be of the types that `meta` found."""
    bindings = Bindings()
    bindings.check(kind, x)
    args, options = arguments(text, x)
    made = op.function(*args, **options)
    bindings.check(result.result, made)
