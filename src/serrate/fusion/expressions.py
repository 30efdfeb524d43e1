"""The axis table: what can be made of axes, one class per row.

Each row says which extents come out, how an index goes forward (from inputs to outputs) and backward, and how the set
of unsafe axes, those whose index may be out of bounds, is carried along: `walk_forward` and `walk_backward` name the
axes to predicate on the way and those that are unsafe afterwards. Theorems are those of the divisibility seed; N is an
extent, f a factor, c a component, e[c] its extent, off[c] its offset.

    Split(f)      I → O, J         ⌈N/f⌉, f     i = o·f + j            holes in I unless f divides N
    Merge         A, B → M         Na·Nb        m = a·Nb + b           none
    Resize(l, r)  I → R            N + l + r    r = i + l              positive l, r add, negative cut
    Swizzle       X, Y → X, Y′     same         y′ = s(x, y)           none
    Partition     I → C, R         K, e[c]      i = off[c] + r         none if R is predicated
    Combine       C, R → I         Σe           i = off[c] + r         none
    Cover         R → P            max e        p = r                  in P, for each component

A ragged axis is split, merged and resized component by component; its component index is then needed for its extent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from serrate.errors import RaggednessError
from serrate.fusion.axes import IterDomain, RaggedIterDomain, ragged
from serrate.fusion.raggedness import Listed, Product, Raggedness, Scaled
from serrate.fusion.scalar import TRUE, Scalar, bitwise_xor, less

IndexOf = Callable[[IterDomain], Scalar]
Walk = tuple[tuple[IterDomain, ...], tuple[IterDomain, ...]]  # (to predicate, unsafe afterwards)


def extent_of(axis: IterDomain, index_of: IndexOf) -> Scalar:
    """The extent of an axis where the component of a ragged one has the index `index_of` says."""
    if not axis.is_ragged:
        return axis.extent
    return ragged(axis).raggedness.extent_at(index_of(component_of(axis)))


def component_of(axis: IterDomain) -> IterDomain:
    """The component axis of a ragged one."""
    component = ragged(axis).component
    if component is None:
        raise RaggednessError(f"{axis} has no component axis; put it into a TensorDomain, or name its `component`")
    return component


def divides(factor: Scalar, extent: Scalar) -> bool:
    """Whether `factor` is proven to divide `extent`."""
    if factor == extent or (factor.is_const and factor.value == 1):
        return True
    if extent.is_const:
        return factor.is_const and factor.value > 0 and extent.value % factor.value == 0
    return extent.op == "multiply" and any(divides(factor, part) for part in extent.args)


def divides_all(factor: Scalar, axis: IterDomain) -> bool:
    """Whether `factor` is proven to divide the extent of the axis, of every component if it is ragged."""
    return _divides_each(factor, ragged(axis).raggedness) if axis.is_ragged else divides(factor, axis.extent)


def _divides_each(factor: Scalar, raggedness: Raggedness) -> bool:
    match raggedness:
        case Listed(extents):
            return all(divides(factor, extent) for extent in extents)
        case Scaled(base, by):
            return divides(factor, by) or _divides_each(factor, base)
        case Product(left, right):
            return _divides_each(factor, left) or _divides_each(factor, right)
    return factor.is_const and factor.value == 1


def is_positive(extent: Scalar) -> bool:
    """Whether an extent is proven not to be 0."""
    if extent.is_const:
        return bool(extent.value > 0)
    return extent.op == "multiply" and all(is_positive(part) for part in extent.args)


@dataclass(frozen=True, eq=False)
class AxisExpression:
    """One step in the history of an axis."""

    inputs: tuple[IterDomain, ...]
    outputs: tuple[IterDomain, ...]

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        for axis in self.outputs:
            axis.definition = self

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two such steps alike besides their axes."""
        return (self.kind,)

    @property
    def needs(self) -> tuple[IterDomain, ...]:
        """Component axes whose index is needed besides those of inputs or outputs."""
        return ()

    def forward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        """The indices of the outputs from those of the inputs."""
        raise NotImplementedError

    def backward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        """The indices of the inputs from those of the outputs."""
        raise NotImplementedError

    def walk_forward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        raise NotImplementedError

    def walk_backward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        raise NotImplementedError

    @property
    def makes_holes(self) -> bool:
        """Whether the outputs together have more indices than the inputs."""
        return False

    def condition(self, forward: bool, indices: Sequence[Scalar]) -> Scalar:
        """What must hold of indices that are in bounds, for the step to be taken at all."""
        return TRUE

    def __repr__(self) -> str:
        return f"{self.label}: {', '.join(map(repr, self.inputs))} → {', '.join(map(repr, self.outputs))}"

    @property
    def label(self) -> str:
        return self.kind


@dataclass(frozen=True, eq=False, repr=False)
class Split(AxisExpression):
    """I → O, J; J has extent `factor`, or O if not `inner_split`. Ragged I: each component is split."""

    factor: Scalar
    inner_split: bool

    kind: ClassVar[str] = "Split"

    @property
    def key(self) -> tuple[object, ...]:
        return (self.kind, self.factor, self.inner_split)

    @property
    def is_divisible(self) -> bool:
        return divides_all(self.factor, self.inputs[0])

    @property
    def makes_holes(self) -> bool:
        return not self.is_divisible

    @property
    def needs(self) -> tuple[IterDomain, ...]:
        return (component_of(self.outputs[1]),) if self.outputs[1].is_ragged else ()

    def _inner(self, index_of: IndexOf) -> Scalar:
        return extent_of(self.outputs[1], index_of)

    def forward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        inner = self._inner(index_of)
        return indices[0] // inner, indices[0] % inner

    def backward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        return (indices[0] * self._inner(index_of) + indices[1],)

    def walk_forward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        axis, outer = self.inputs[0], self.outputs[0]
        if not unsafe(axis):
            return (), ()
        # o < ⌈N/f⌉ admits holes; and ⌈N/f⌉ may be 0, which only i < N excludes.
        if not self.is_divisible or not self.inner_split or not is_positive(self.factor):
            return (axis,), ()
        return (), (outer,)

    def walk_backward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        outer, inner = self.outputs
        after = self.inputs if unsafe(outer) or not self.is_divisible else ()  # Theorem 1
        return ((inner,) if unsafe(inner) else ()), after

    @property
    def label(self) -> str:
        return f"Split({self.factor}{'' if self.inner_split else ', outer'})"


@dataclass(frozen=True, eq=False, repr=False)
class Merge(AxisExpression):
    """A, B → M. Of ragged axes: Merge(R, B), Merge(A, R), and Merge(R, S) of two with the same component."""

    kind: ClassVar[str] = "Merge"

    @property
    def needs(self) -> tuple[IterDomain, ...]:
        return (component_of(self.inputs[1]),) if self.inputs[1].is_ragged else ()

    def forward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        return (indices[0] * extent_of(self.inputs[1], index_of) + indices[1],)

    def backward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        inner = extent_of(self.inputs[1], index_of)
        return indices[0] // inner, indices[0] % inner

    def walk_forward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        outer, inner = self.inputs
        return ((inner,) if unsafe(inner) else ()), (self.outputs if unsafe(outer) else ())

    def walk_backward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        outer, inner = self.inputs
        if not unsafe(self.outputs[0]):
            return (), ()
        if inner.is_ragged or not is_positive(inner.extent):
            return self.outputs, ()  # m < extent excludes an empty divisor; guarding the divisor alone would not do
        return (), (outer,)  # Theorem 2


@dataclass(frozen=True, eq=False, repr=False)
class Resize(AxisExpression):
    """I → R, `left` more at the beginning and `right` more at the end; fewer where negative."""

    left: int
    right: int

    kind: ClassVar[str] = "Resize"

    @property
    def key(self) -> tuple[object, ...]:
        return (self.kind, self.left, self.right)

    @property
    def makes_holes(self) -> bool:
        return self.left > 0 or self.right > 0

    @property
    def cuts(self) -> bool:
        return self.left < 0 or self.right < 0

    def forward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        return (indices[0] + self.left,)

    def backward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        return (indices[0] - self.left,)

    def walk_forward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        was, adds = unsafe(self.inputs[0]), self.makes_holes
        return (self.inputs if was and adds else ()), (self.outputs if self.cuts or (was and not adds) else ())

    def walk_backward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        was, cuts = unsafe(self.outputs[0]), self.cuts  # Theorem 3 needs left, right ≥ 0
        return (self.outputs if was and cuts else ()), (self.inputs if self.makes_holes or (was and not cuts) else ())

    @property
    def label(self) -> str:
        return f"Resize({self.left}, {self.right})"


@dataclass(frozen=True, eq=False, repr=False)
class Swizzle(AxisExpression):
    """X, Y → X, Y′: for each x another order of y. "xor": y′ = y ^ x, for extents of one power of two. "shift":
    y′ = (y + x) mod Ny."""

    swizzle: str

    kind: ClassVar[str] = "Swizzle"

    @property
    def key(self) -> tuple[object, ...]:
        return (self.kind, self.swizzle)

    def forward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        x, y = indices
        extent = self.inputs[1].extent
        return x, (bitwise_xor(y, x) if self.swizzle == "xor" else (y + x) % extent)

    def backward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        x, y = indices
        extent = self.inputs[1].extent
        # The sum y + (N − x mod N) stays ≥ 0, where the divisions of C and of Euclid agree.
        return x, (bitwise_xor(y, x) if self.swizzle == "xor" else (y + (extent - x % extent)) % extent)

    def walk_forward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        return tuple(axis for axis in self.inputs if unsafe(axis)), ()

    def walk_backward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        return tuple(axis for axis in self.outputs if unsafe(axis)), ()

    @property
    def label(self) -> str:
        return f"Swizzle({self.swizzle})"


class _Rows(AxisExpression):
    """What Partition and Combine share: i = off[c] + r."""

    kind: ClassVar[str] = "Rows"  # one relation, read from either side

    @property
    def _parts(self) -> tuple[IterDomain, RaggedIterDomain]:
        """(component, ragged)."""
        raise NotImplementedError

    @property
    def key(self) -> tuple[object, ...]:
        return (self.kind, self._parts[1].raggedness)

    def _joined(self, indices: Sequence[Scalar]) -> tuple[Scalar, ...]:
        return (self._parts[1].raggedness.offset_at(indices[0]) + indices[1],)

    def _parted(self, index: Scalar) -> tuple[Scalar, ...]:
        raggedness = self._parts[1].raggedness
        component = raggedness.component_of(index)
        return component, index - raggedness.offset_at(component)

    def _walk_joined(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        return tuple(axis for axis in self._parts if unsafe(axis)), ()  # c before off[c] is read, then r < e[c]


@dataclass(frozen=True, eq=False, repr=False)
class Partition(_Rows):
    """I → C, R: an axis cut into rows."""

    @property
    def _parts(self) -> tuple[IterDomain, RaggedIterDomain]:
        return self.outputs[0], ragged(self.outputs[1])

    def forward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        return self._parted(indices[0])

    def backward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        return self._joined(indices)

    def condition(self, forward: bool, indices: Sequence[Scalar]) -> Scalar:
        return TRUE if self.covers or not forward else less(indices[0], self._parts[1].raggedness.total)

    @property
    def covers(self) -> bool:
        """Whether the rows are all of the axis; they need not fill one that is over-allocated."""
        return self._parts[1].raggedness.total == self.inputs[0].extent

    def walk_forward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        return (self.inputs if unsafe(self.inputs[0]) else ()), ()

    def walk_backward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        return self._walk_joined(unsafe)

    @property
    def label(self) -> str:
        return "Partition"


@dataclass(frozen=True, eq=False, repr=False)
class Combine(_Rows):
    """C, R → I: the inverse of Partition."""

    @property
    def _parts(self) -> tuple[IterDomain, RaggedIterDomain]:
        return self.inputs[0], ragged(self.inputs[1])

    def forward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        return self._joined(indices)

    def backward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        return self._parted(indices[0])

    def walk_forward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        return self._walk_joined(unsafe)

    def walk_backward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        return (self.outputs if unsafe(self.outputs[0]) else ()), ()

    @property
    def label(self) -> str:
        return "Combine"


@dataclass(frozen=True, eq=False, repr=False)
class Cover(AxisExpression):
    """R → P: the positions up to the longest row, whatever the component."""

    kind: ClassVar[str] = "Cover"

    @property
    def makes_holes(self) -> bool:
        return True

    def forward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        return (indices[0],)

    def backward(self, indices: Sequence[Scalar], index_of: IndexOf) -> tuple[Scalar, ...]:
        return (indices[0],)

    def walk_forward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        return (self.inputs if unsafe(self.inputs[0]) else ()), ()

    def walk_backward(self, unsafe: Callable[[IterDomain], bool]) -> Walk:
        return (), self.inputs  # p < longest does not imply r < e[c]


TABLE: tuple[type[AxisExpression], ...] = (Split, Merge, Resize, Swizzle, Partition, Combine, Cover)
