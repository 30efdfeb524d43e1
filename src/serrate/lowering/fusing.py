"""Fusing: instructions of a program as one fusion, its inputs, and the values that come out of it.

A value is a tensor view with the axes that its user sees. Values that are given come as they are stored: the packed
rows are cut by offsets, innermost level first, and permuted to the order of the user; results are permuted back. What a
fusion cannot be made of is a `NotFused`, and a library call computes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from serrate.fusion import Fusion, IterDomain, RaggedIterDomain, TensorView
from serrate.fusion.axes import ragged
from serrate.fusion.raggedness import Raggedness
from serrate.fusion.scalar import Scalar, const, symbol
from serrate.program.guards import Known
from serrate.program.partitions import Expression
from serrate.program.sizes import Polynomial, Size, Symbol
from serrate.program.types import RaggedAxis, TensorType, Value


class NotFused(TypeError):
    """This error is raised for an instruction that no fusion computes, and says why."""


@dataclass(frozen=True)
class Feed:
    """What an input of a fusion is given."""

    kind: str
    """"values" for the packed values of a tensor, "offsets" for the offsets of a partition, and "size" for a tensor
    that says what a size is by its shape, and whose elements nobody reads."""
    of: Value | Expression | Polynomial
    name: str
    """The name of the input."""


@dataclass(frozen=True)
class Backwards:
    """The elements of a view, one axis from its end to its beginning. Only scans read them, which then go backwards."""

    view: TensorView
    axis: int


class Fusing:
    """A fusion that grows by one instruction after another."""

    def __init__(self, known: Known | None = None, target: str = "cpp") -> None:
        self.fusion = Fusion()
        self.known = known or Known()
        """What is taken for equal, so that equal sizes and partitions have one name."""
        self.target = target
        """What its kernels are made for."""
        self.feeds: list[Feed] = []
        self.outputs: list[Value] = []
        self._views: dict[Value, TensorView] = {}
        self._backwards: dict[Value, Backwards] = {}
        self._rows: dict[Expression, Raggedness] = {}
        self._made: set[Expression] = set()
        """The partitions whose rows the fusion makes, and does not read from offsets."""
        self._symbols: dict[Symbol, str] = {}
        self._bound: set[Symbol] = set()
        self._names: set[str] = set()

    # --------------------------------------------------------------------------------------------- names and sizes

    def _name(self, wanted: str) -> str:
        """A name for a tensor or a size of the fusion, which may hold letters, digits and underscores."""
        plain = re.sub(r"\W+", "_", wanted).strip("_") or "value"
        plain = f"{plain}_" if re.fullmatch(r"t\d+", plain) else plain  # the fusion gives such names itself
        name, number = plain, 2
        while name in self._names:
            name, number = f"{plain}_{number}", number + 1
        self._names.add(name)
        return name

    def extent(self, size: Size) -> Scalar:
        """A size of a type as an extent of the fusion."""
        size = self.known.size(size)
        if isinstance(size, int):
            return const(size)
        total: Scalar = const(0)
        for monomial, coefficient in size.terms:
            product = const(coefficient)
            for each in monomial:
                product = product * self._symbol(each)
            total = total + product
        return total

    def _symbol(self, of: Symbol) -> Scalar:
        if of not in self._symbols:
            self._symbols[of] = self._name(str(of))
        return symbol(self._symbols[of])

    def _note_bound(self, size: Size) -> None:
        """Note that an input has an axis of this size, which says what its symbol is, if it is one symbol."""
        size = self.known.size(size)
        if isinstance(size, Polynomial) and len(size.terms) == 1:
            ((monomial, coefficient),) = size.terms
            if len(monomial) == 1 and coefficient == 1:
                self._bound.add(monomial[0])

    def bind_sizes(self) -> None:
        """Let inputs say what those sizes are that no other input has."""
        for each, name in list(self._symbols.items()):
            if each not in self._bound:
                feed = self._name(f"{name}_extent")
                self.fusion.input(feed, [symbol(name)], "uint8", strides=[0])
                self.feeds.append(Feed("size", Polynomial((((each,), 1),)), feed))
                self._bound.add(each)

    # ------------------------------------------------------------------------------------------------ structures

    def rows_of(self, partition: Expression) -> Raggedness:
        """The raggedness of a partition, whose offsets become an input."""
        partition = self.known.partition(partition)
        if partition not in self._rows:
            count, total = self.extent(partition.components), self.extent(partition.values)
            self._note_bound(partition.components)
            name = self._name(f"{partition}_offsets")
            dtype = str(partition.dtype).removeprefix("torch.")
            made = self.fusion.input(name, [count + 1], dtype)
            self.feeds.append(Feed("offsets", partition, name))
            self._rows[partition] = RaggedIterDomain.from_offsets(
                made, count=count, size=total, exact=partition.exact
            ).raggedness
        return self._rows[partition]

    def axes_of(self, kind: TensorType) -> list[IterDomain]:
        """Axes for a tensor of a type, in the order of its user: those of a tensor with the same rows, if there is one,
        so that the two are walked together."""
        check_chain(kind)
        stored = self._like(kind)
        if stored is None:
            stored = []
            cells: IterDomain | None = None
            for axis in kind.axes:
                if isinstance(axis, RaggedAxis):
                    assert cells is not None
                    name = f"r{len(stored)}"
                    made: IterDomain = RaggedIterDomain.of(self.rows_of(axis.partition), component=cells, name=name)
                    cells = IterDomain.combine(cells, made)
                else:
                    cells = made = IterDomain(self.extent(axis), name="b")
                stored.append(made)
        stored += [IterDomain(self.extent(size)) for size in kind.features[len(stored) - len(kind.axes) :]]
        return [stored[place] for place in kind.order]

    def _like(self, kind: TensorType) -> list[IterDomain] | None:
        """The axes of a tensor that has the packed axes of a type, and its features if it has the same."""
        for value, view in self._views.items():
            other = value.type
            if other.axes != kind.axes or not kind.axes:
                continue
            alike = other.features == kind.features
            places = range(len(kind.axes) + (len(kind.features) if alike else 0))
            axes = [view.domain.kept[other.order.index(place)] for place in places]
            if not any(axis.is_broadcast or axis.is_reduction for axis in axes):
                return axes
        return None

    # ---------------------------------------------------------------------------------------------------- values

    def view(self, value: Value) -> TensorView:
        """The tensor view of a value; one that no instruction made is an input."""
        if value in self._backwards:
            raise NotFused("only a scan reads an axis backwards")
        if value not in self._views:
            self._views[value] = self._loaded(value)
        return self._views[value]

    def has(self, value: Value) -> bool:
        """Whether an instruction of this fusion made the value."""
        return value in self._views

    def _loaded(self, value: Value) -> TensorView:
        kind = value.type
        check_chain(kind)
        sizes = [*([] if kind.rows is None else [kind.rows]), *kind.features]
        name = self._name(str(value.name))
        made = self.fusion.input(name, [self.extent(size) for size in sizes], dtype_of(kind.dtype))
        self.feeds.append(Feed("values", value, name))
        for size in sizes:
            self._note_bound(size)
        for place in range(len(kind.axes) - 1, 0, -1):
            axis = kind.axes[place]
            assert isinstance(axis, RaggedAxis)
            partition = self.known.partition(axis.partition)
            if partition in self._made and partition in self.known.partitions.values():
                raise NotFused(
                    f"the rows of {value.name} are equal to rows that are made in the kernel by a guard alone"
                )
            names = ("b" if place == 1 else f"c{place}", f"r{place}")
            made = self.fusion.view_as_nested(
                made, self.rows_of(axis.partition), exact=axis.partition.exact, names=names
            )
        made = self.with_broadcast_ones(made)
        return self.permuted(made, kind.order)

    def with_broadcast_ones(self, x: TensorView) -> TensorView:
        """The tensor with each axis that is known to have one index as a broadcast axis."""
        ones = [not axis.is_broadcast and not axis.is_ragged and axis.extent == const(1) for axis in x.domain.kept]
        if not any(ones):
            return x
        for at in reversed(range(x.ndim)):
            if ones[at]:
                x = self.fusion.squeeze(x, at)
        return self.fusion.broadcast(x, ones)

    def permuted(self, x: TensorView, order: Sequence[int]) -> TensorView:
        """The tensor with its axes in another order."""
        return x if list(order) == list(range(x.ndim)) else self.fusion.permute(x, order)

    def expanded(self, x: TensorView, kind: TensorType) -> TensorView:
        """The tensor stretched to all axes of a type."""
        lacks = len(kind.order) > x.ndim or any(
            axis.is_broadcast and size != 1 for axis, size in zip(x.domain.kept, kind.shape, strict=True)
        )
        if not lacks:
            return x
        if any(size == 1 for size in kind.shape):
            raise NotFused("a tensor is stretched to a shape that has axes of size 1")
        return self.fusion.expand(x, self.axes_of(kind))

    def read_backwards(self, value: Value) -> Backwards | None:
        """The elements of a value, if it is another one backwards."""
        return self._backwards.get(value)

    def backwards(self, value: Value, axis: int) -> TensorView | Backwards:
        """A value with one axis from its end to its beginning."""
        found = self._backwards.get(value)
        if found is not None and found.axis == axis:
            return found.view
        return Backwards(self.view(value), axis)

    def define(self, value: Value, made: TensorView | Backwards) -> None:
        """Let a tensor view be a value that an instruction made."""
        kind = value.type
        if isinstance(made, Backwards):
            self._backwards[value] = made
            return
        view = made
        if view.dtype != dtype_of(kind.dtype):
            raise NotFused(f"a kernel gives {view.dtype} where {kind.dtype} is wanted")
        if view.ndim != len(kind.order):
            raise NotFused(f"a kernel gives {view.ndim} axes where {len(kind.order)} are wanted")
        for axis, wanted in zip(view.domain.kept, kind.shape, strict=True):
            if axis.is_ragged != isinstance(wanted, RaggedAxis):
                raise NotFused(f"a kernel gives {axis} where {wanted} is wanted")
            if isinstance(wanted, RaggedAxis):
                self._note_rows(wanted.partition, ragged(axis).raggedness)
        self._views[value] = view

    def _note_rows(self, partition: Expression, rows: Raggedness) -> None:
        """Note which rows a kernel computes for a partition, which may be the first that there is of it."""
        same = self.known.partition(partition)
        if same.kind == "input" or same != partition:
            if self._rows.get(same) is not rows:
                raise NotFused(f"its rows are made in the kernel, and are equal to those of {same} by a guard alone")
        elif same not in self._rows:
            self._rows[same] = rows
            self._made.add(same)

    def store(self, value: Value) -> None:
        """Let a value be an output, stored as its type says."""
        kind = value.type
        check_chain(kind)
        view = self.view(value)
        if len(set(kind.order)) != view.ndim:
            raise NotFused(f"{value.name} has axes that are no axes of its storage")
        stored = self.permuted(view, [kind.order.index(place) for place in range(view.ndim)])
        self.fusion.output(stored, self._name(f"{value.name}"))
        self.outputs.append(value)


def check_chain(kind: TensorType) -> None:
    """Refuse a type whose ragged axes do not each depend on all axes outside."""
    for place, axis in enumerate(kind.axes):
        if place == 0 and isinstance(axis, RaggedAxis):
            raise NotFused(f"the first axis of {kind} is ragged")
        if place and not (isinstance(axis, RaggedAxis) and axis.parents == tuple(range(place))):
            raise NotFused(f"axis {place} of {kind} is not ragged on all axes outside of it")
    if kind.origin is not None or kind.team is not None:
        raise NotFused(f"{kind} is a tensor of a class of its own")


def dtype_of(dtype: torch.dtype) -> str:
    """A dtype by the name that kernels know."""
    return str(dtype).removeprefix("torch.")
