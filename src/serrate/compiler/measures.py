"""Measures: the numbers that stand for symbols in one call, told by the shapes of tensors that are given or made.

The numbers are ints, or those that torch's compilers put in the place of sizes (`torch.SymInt`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from serrate.program.partitions import Expression
from serrate.program.sizes import Polynomial, Size, Symbol
from serrate.program.types import RaggedAxis, TensorType
from serrate.tensor.partition import Partition
from serrate.tensor.tensor import Tensor

Number = Any
"""An int, or a `torch.SymInt`."""


class Measures:
    """What is known of sizes in one call."""

    def __init__(self) -> None:
        self.numbers: dict[Symbol, Number] = {}
        self.partitions: dict[Expression, Partition] = {}
        """Partitions of the call, where it has elements: they tell sizes, too."""

    def tell(self, size: Size, number: Number) -> None:
        """A size is this number."""
        if isinstance(size, Polynomial) and len(size.terms) == 1:
            ((monomial, coefficient),) = size.terms
            if len(monomial) == 1:
                self.numbers.setdefault(monomial[0], number if coefficient == 1 else number // coefficient)

    def tell_shape(self, kind: TensorType, shape: Sequence[Number]) -> None:
        """The values of a tensor of a type have this shape."""
        sizes = kind.features if kind.rows is None else (kind.rows, *kind.features)
        for size, number in zip(sizes, shape, strict=True):
            self.tell(size, number)

    def tell_tensor(self, kind: TensorType, tensor: Any) -> None:
        """A tensor of a type is this one."""
        if isinstance(tensor, Tensor):
            self.tell_shape(kind, tensor.values.shape)
            for axis, real in zip(kind.axes, tensor.structure.axes, strict=True):
                if isinstance(axis, RaggedAxis) and not isinstance(real, int):
                    self.tell_partition(axis.partition, real.partition)
                elif isinstance(real, int) and not isinstance(axis, RaggedAxis):
                    self.tell(axis, real)
        else:
            self.tell_shape(kind, tensor.shape)

    def tell_partition(self, each: Expression, partition: Partition) -> None:
        """A partition of a type is this one."""
        if self.partitions.setdefault(each, partition) is partition:
            self.tell(each.components, partition.num_components)
            self.tell(each.values, partition.num_values)

    def tells(self, symbol: Symbol) -> bool:
        """Whether the number of a symbol is known."""
        return symbol in self.numbers or self._computed(symbol) is not None

    def of(self, size: Size, unknown: Callable[[Symbol], Number] | None = None) -> Number:
        """The number of a size; `unknown` is asked for the number of a symbol that nothing tells."""
        if isinstance(size, int):
            return size
        total: Number = 0
        for monomial, coefficient in size.terms:
            product: Number = coefficient
            for symbol in monomial:
                product = product * self._number(symbol, unknown)
            total = total + product
        return total

    def _number(self, symbol: Symbol, unknown: Callable[[Symbol], Number] | None) -> Number:
        if symbol not in self.numbers:
            found = self._computed(symbol)
            if found is None and unknown is not None:
                found = unknown(symbol)
            if found is None:
                raise LookupError(f"nothing that a program is given or gives says what the size {symbol} is")
            self.numbers[symbol] = found
        return self.numbers[symbol]

    def _computed(self, symbol: Symbol) -> Number | None:
        """The number of a symbol that follows from others; None if these are not known."""
        of = symbol.of
        if symbol.kind in ("least", "most"):
            sizes = [each for each in of if isinstance(each, (int, Polynomial))]
            if all(self.tells(inner) for size in sizes for inner in symbols_of(size)):
                numbers = [self.of(size) for size in sizes]
                return torch.sym_min(*numbers) if symbol.kind == "least" else torch.sym_max(*numbers)  # type: ignore[no-untyped-call]
        elif (
            isinstance(of[0], Expression) and of[0] in self.partitions and symbol.kind in ("values", "longest", "total")
        ):
            partition = self.partitions[of[0]]
            return {"values": partition.num_values, "longest": partition.max_length, "total": partition.total}[
                symbol.kind
            ]
        return None


def symbols_of(size: Size) -> Iterator[Symbol]:
    """The symbols in a size."""
    if not isinstance(size, int):
        for monomial, _ in size.terms:
            yield from monomial
