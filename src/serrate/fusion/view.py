"""TensorView: a tensor of a fusion, its axes, and how its loops are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serrate.errors import AxisError, ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.domain import TensorDomain, check_allocation, existing, history
from serrate.fusion.drawing import drawn
from serrate.fusion.expressions import Combine, Merge, Split, divides_all
from serrate.fusion.raggedness import Raggedness
from serrate.fusion.scalar import Scalar
from serrate.fusion.transforms import check_merge, combine, merge, partition, split, swizzle
from serrate.fusion.types import Memory, ParallelType

if TYPE_CHECKING:
    from serrate.fusion.fusion import Fusion


@dataclass(frozen=True, eq=False)
class Operation:
    """How a tensor is computed. `axes` pairs axes of the inputs (logical) with axes of the output (root) that have the
    same indices."""

    kind: str  # "pointwise", "reduce", "broadcast", "nest", "offsets", or one of mapping.MOVED
    name: str  # the row of its table
    inputs: tuple[TensorView, ...]
    axes: tuple[tuple[IterDomain, IterDomain], ...]
    options: tuple[Any, ...] = ()  # of a pointwise operation: the numbers among its operands, None for each tensor
    settings: tuple[tuple[str, Any], ...] = ()  # the keyword options of a pointwise operation

    @property
    def operands(self) -> tuple[TensorView | float, ...]:
        """The tensors and numbers of a pointwise operation, in their order."""
        tensors = iter(self.inputs)
        return tuple(next(tensors) if o is None else o for o in self.options or (None,) * len(self.inputs))

    def __repr__(self) -> str:
        if self.kind == "pointwise":
            operands = [x.name if isinstance(x, TensorView) else _option(x) for x in self.operands]
            operands += [f"{name}={value!r}" for name, value in self.settings]
            return f"{self.name}({', '.join(operands)})"
        given = [tensor.name for tensor in self.inputs] + [_option(option) for option in self.options]
        return f"{self.name}({', '.join(given)})"


def _option(option: Any) -> str:
    """An option as text: rows by the name of their offsets."""
    return f"[{option.array}]" if isinstance(option, Raggedness) else repr(option)


class TensorView:
    """A tensor in a fusion. Scheduling methods change its loops and return it; they never change what it is.

    >>> from serrate.fusion import Fusion, ParallelType
    >>> fusion = Fusion()
    >>> x = fusion.input("x", ["n", 128])
    >>> y = fusion.output(fusion.unary("exp", x), "y")
    >>> y.split(1, 32).parallelize(0, ParallelType.Thread)
    y[iT_i{n}, iS_d_outer{4}, iS_d_inner{32}] float32
    """

    def __init__(
        self, fusion: Fusion, name: str, domain: TensorDomain, dtype: str, definition: Operation | None = None
    ) -> None:
        _check_starts(name, domain)
        self.fusion = fusion
        self.name = name
        self.domain = domain
        self.dtype = dtype
        self.definition = definition
        self.memory = Memory.GLOBAL if definition is None else Memory.REGISTER
        self.is_cached = False  # kept in memory of the kernel, if not an output
        self.fill: float | None = None
        self.reads_holes = False
        self.kept_in: TensorView | None = None
        self.is_prefetched = False
        self.strides: tuple[Scalar, ...] | None = None  # of an input that need not lie contiguously, for each axis

    @property
    def ndim(self) -> int:
        """The number of axes, reduced ones left out."""
        return len(self.domain.kept)

    @property
    def is_scheduled(self) -> bool:
        """Whether its loops were changed, or are run other than serially."""
        axes = {*self.domain.root, *self.domain.logical}
        return any(a not in axes or a.parallel_type != ParallelType.Serial for a in self.loop)

    @property
    def box_axes(self) -> tuple[IterDomain, ...]:
        """The dimensions of the boxes that it is copied by, which are none if it is not."""
        return tuple(axis for axis in self.loop if axis.parallel_type == ParallelType.Bulk)

    @property
    def loop(self) -> tuple[IterDomain, ...]:
        """The loop axes, outermost first."""
        return self.domain.loop

    def _loop_axis(self, axis: int) -> int:
        count = len(self.domain.loop)
        if not -count <= axis < count:
            raise AxisError(f"{self.name} has {count} loop axes, got axis {axis}")
        return axis % count

    def _replace(self, at: int, count: int, axes: Sequence[IterDomain]) -> TensorView:
        loop = self.domain.loop
        self.domain.loop = (*loop[:at], *axes, *loop[at + count :])
        return self

    def _not_parallel(self, *axes: IterDomain) -> None:
        for axis in axes:
            if axis.parallel_type != ParallelType.Serial:
                raise ScheduleError(f"{axis} of {self.name} is parallelized already; transform it before")

    def split(self, axis: int, factor: Scalar | int, inner_split: bool = True) -> TensorView:
        """A loop axis as two, the inner one of `factor` indices (the outer one if not `inner_split`)."""
        at = self._loop_axis(axis)
        if not isinstance(factor, (int, Scalar)) or isinstance(factor, bool):
            raise TypeError(f"axis {axis} of {self.name} is split by an int, got {factor!r}")
        self._not_parallel(self.loop[at])
        return self._replace(at, 1, split(self.loop[at], factor, inner_split))

    def merge(self, axis: int, other: int | None = None) -> TensorView:
        """A loop axis and the next one (or `other`) as one, in the place of the first; a component axis and its ragged
        axis are combined."""
        at = self._loop_axis(axis)
        second = self._loop_axis(at + 1 if other is None else other)
        if second == at:
            raise AxisError(f"axis {axis} of {self.name} cannot be merged with itself")
        before = self.domain.loop
        try:
            return self._merge(at, second)
        except ValueError:
            self.domain.loop = before
            raise

    def _merge(self, at: int, second: int) -> TensorView:
        if second != at + 1:
            self.reorder({second: at + 1 if second > at else at})
            at = at if second > at else at - 1
        outer, inner = self.loop[at], self.loop[at + 1]
        self._not_parallel(outer, inner)
        check_merge(outer, inner, self.domain.logical)
        known = self._as_component(Combine, outer, inner) or self._as_component(Merge, outer, inner)
        return self._replace(at, 2, [known or merge(outer, inner)])

    def _as_component(self, kind: type[Combine | Merge], outer: IterDomain, inner: IterDomain) -> IterDomain | None:
        """The axis of two that rows of rows have as their component already."""
        return existing(kind, (outer, inner), (*self.domain.logical, *self.loop))

    def combine(self, axis: int) -> TensorView:
        """A component axis and its ragged axis, the next one, as the axis of all rows."""
        at = self._loop_axis(axis)
        if at + 1 >= len(self.loop):
            raise AxisError(f"axis {axis} of {self.name} is the last one, there is none to combine it with")
        outer, inner = self.loop[at : at + 2]
        self._not_parallel(outer, inner)
        return self._replace(at, 2, [self._as_component(Combine, outer, inner) or combine(outer, inner)])

    def partition(self, axis: int, offsets: TensorView | Raggedness) -> TensorView:
        """A loop axis cut into components and rows at these offsets."""
        at = self._loop_axis(axis)
        self._not_parallel(self.loop[at])
        if isinstance(offsets, TensorView):
            from serrate.fusion.axes import RaggedIterDomain

            offsets = RaggedIterDomain.from_offsets(offsets, size=self.loop[at].extent).raggedness
        made = partition(self.loop[at], offsets)
        if offsets.total != self.loop[at].extent:
            raise ScheduleError(f"{self.loop[at]} of {self.name} would be walked only as far as {offsets.total}")
        return self._replace(at, 1, made)

    def swizzle(self, axis: int, other: int, kind: str = "xor") -> TensorView:
        """Loop axis `other` in an order that depends on `axis`."""
        first, second = self._loop_axis(axis), self._loop_axis(other)
        if first == second:
            raise AxisError(f"axis {axis} of {self.name} cannot be swizzled by itself")
        self._not_parallel(self.loop[first], self.loop[second])
        x, y = swizzle(self.loop[first], self.loop[second], kind)
        loop = list(self.loop)
        loop[first], loop[second] = x, y
        self.domain.loop = tuple(loop)
        return self

    def reorder(self, order: Mapping[int, int] | Sequence[int]) -> TensorView:
        """Loop axes moved: {old: new, …}, the others in their order between them; or the whole new order."""
        count = len(self.loop)
        if isinstance(order, Mapping):
            moves = {self._loop_axis(old): self._loop_axis(new) for old, new in order.items()}
            if len(set(moves.values())) != len(moves):
                raise AxisError(f"two axes of {self.name} would come to one place: {order}")
            rest = iter([old for old in range(count) if old not in moves])
            back = {new: old for old, new in moves.items()}
            wanted = [back[new] if new in back else next(rest) for new in range(count)]
        else:
            wanted = [self._loop_axis(axis) for axis in order]
            if sorted(wanted) != list(range(count)):
                raise AxisError(f"an order of {self.name} must name each of {count} loop axes once, got {list(order)}")
        self.domain.loop = tuple(self.loop[old] for old in wanted)
        return self

    def parallelize(self, axis: int, parallel_type: ParallelType) -> TensorView:
        """Say how a loop is run: serially, unrolled, by threads or blocks, or as lanes."""
        at = self._loop_axis(axis)
        if not isinstance(parallel_type, ParallelType):
            raise TypeError(f"axis {axis} of {self.name} is run as a ParallelType, got {parallel_type!r}")
        if parallel_type.is_lanes:
            self._check_lanes(self.loop[at], parallel_type)
        self.loop[at].parallelize(parallel_type)
        return self

    def _check_lanes(self, axis: IterDomain, parallel_type: ParallelType) -> None:
        """Theorem 5 and its corollary: lanes cannot be predicated one by one. Those that scan need not be."""
        scans = any(t.definition is not None and t.definition.kind == "scan" for t in self.fusion.tensors)
        if (axis.is_ragged or not axis.extent.is_const) and not (scans and parallel_type == ParallelType.Simd):
            raise ScheduleError(
                f"{axis} of {self.name} cannot be {parallel_type.name}: the number of lanes is a constant"
            )
        made = axis.definition
        if parallel_type != ParallelType.Vectorize or not isinstance(made, Split):
            return
        source = made.inputs[0]
        if not made.is_divisible and (source.is_ragged or source.extent.is_const):
            raise ScheduleError(
                f"{axis} of {self.name} cannot be vectorized: {made.factor} does not divide {source}, and the lanes of "
                f"an indivisible split cannot be predicated one by one"
            )
        merged = source.definition
        if isinstance(merged, Merge) and not _contiguous(self.domain, merged):
            inner = merged.inputs[1]
            if not divides_all(made.factor, inner):
                raise ScheduleError(
                    f"{axis} of {self.name} cannot be vectorized: {made.factor} does not divide {inner}, the inner "
                    f"axis of a merge of axes that do not follow each other in memory (Theorem 5)"
                )

    def vectorize(self, axis: int, width: int, parallel_type: ParallelType = ParallelType.Vectorize) -> TensorView:
        """`width` indices of a loop axis at once."""
        at = self._loop_axis(axis)
        before = self.domain.loop
        self.split(at, width)
        try:
            return self.parallelize(at + 1, parallel_type)
        except ScheduleError:
            self.domain.loop = before
            raise

    def unroll(self, axis: int, factor: int) -> TensorView:
        """`factor` iterations of a loop written one after another."""
        at = self._loop_axis(axis)
        self.split(at, factor)
        return self.parallelize(at + 1, ParallelType.Unroll)

    def select(self, axis: int, index: int) -> TensorView:
        """The tensor at one index of an axis; of a component axis, the row: its ragged axis becomes regular."""
        return self.fusion.select(self, axis, index)

    def rfactor(self, *loop_axes: int) -> TensorView:
        """Some reduced loop axes first: returns a new tensor that reduces the others, which this one then reduces."""
        return self.fusion.rfactor(self, [self._loop_axis(axis) for axis in loop_axes])

    def cache_after(self, memory: Memory = Memory.REGISTER) -> TensorView:
        """A copy of this tensor, in `memory`, that its users read instead."""
        return self.fusion.cache_after(self, memory)

    def cache_before(self, memory: Memory = Memory.REGISTER) -> TensorView:
        """A tensor, in `memory`, that takes over how this one is computed; this one copies it."""
        return self.fusion.cache_before(self, memory)

    def set_allocation_domain(self, axes: Sequence[IterDomain], fill: float | None = None) -> TensorView:
        """Lay the tensor out by these axes, made of its logical ones. Holes hold `fill`, if one is given."""
        check_allocation(axes, self.domain.kept, f" of {self.name}")
        self.domain.allocation = tuple(axes)
        self.fill = fill
        return self

    def set_memory_type(self, memory: Memory) -> TensorView:
        """Where the values are kept between phases."""
        self.memory = memory
        self.is_cached = memory != Memory.GLOBAL
        return self

    def keep_in(self, output: TensorView) -> TensorView:
        """Keep the values, until `output` is stored, in its memory."""
        self.kept_in = output
        self.is_cached, self.memory = True, Memory.REGISTER
        return self

    def prefetch(self) -> TensorView:
        """Of an input that several phases read row by row: while a later one reads a row again, from the cache, fetch
        what the first one will read next. For the CPU."""
        if self.definition is not None:
            raise ScheduleError(f"{self} cannot be prefetched: it is not an input")
        self.is_prefetched = True
        return self

    def read_holes(self) -> TensorView:
        """Let a reduction walk the whole allocation of its operand, an input that holds the neutral element in its
        holes, without predicates."""
        if self.definition is None or self.definition.kind != "reduce":
            raise ScheduleError(f"{self} is not a reduction")
        self.reads_holes = True
        return self

    def draw(self) -> Any:
        """A drawing of the axes, from root to loops; shown by notebooks. `serrate.viz` has to be imported."""
        return drawn("tensor", self)

    def __add__(self, other: TensorView | float) -> TensorView:
        return self.fusion.binary("add", self, other)

    def __radd__(self, other: float) -> TensorView:
        return self.fusion.binary("add", other, self)

    def __sub__(self, other: TensorView | float) -> TensorView:
        return self.fusion.binary("subtract", self, other)

    def __rsub__(self, other: float) -> TensorView:
        return self.fusion.binary("subtract", other, self)

    def __mul__(self, other: TensorView | float) -> TensorView:
        return self.fusion.binary("multiply", self, other)

    def __rmul__(self, other: float) -> TensorView:
        return self.fusion.binary("multiply", other, self)

    def __truediv__(self, other: TensorView | float) -> TensorView:
        return self.fusion.binary("divide", self, other)

    def __rtruediv__(self, other: float) -> TensorView:
        return self.fusion.binary("divide", other, self)

    def __neg__(self) -> TensorView:
        return self.fusion.unary("negative", self)

    def __repr__(self) -> str:
        return f"{self.name}{self.domain} {self.dtype}"


def offsets_of_extents(extents: TensorView) -> TensorView:
    """The offsets of components of these extents: K + 1 entries."""
    return extents.fusion.offsets_of_extents(extents)


def _check_starts(name: str, domain: TensorDomain) -> None:
    """Indices begin at 0, and so do those of all axes that the axes of a tensor are made of."""
    axes = (*domain.root, *domain.logical, *domain.loop)
    for axis in (*axes, *(before for step in history(axes) for before in step.inputs)):
        if axis.start != 0:
            raise ValueError(f"{axis} of {name} starts at {axis.start}: the axes of a tensor start at 0; slice it")


def _contiguous(domain: TensorDomain, step: Merge) -> bool:
    """Whether the two merged axes follow each other in memory; packed rows do."""
    order = [part for axis in domain.allocation for part in _merged_of(axis)]
    parts = [part for axis in step.inputs for part in _merged_of(axis)]
    return any(order[at : at + len(parts)] == parts for at in range(len(order)))


def _merged_of(axis: IterDomain) -> list[IterDomain]:
    """The axes that an axis was merged of, outermost first."""
    step = axis.definition
    return (
        [part for given in step.inputs for part in _merged_of(given)] if isinstance(step, (Combine, Merge)) else [axis]
    )
