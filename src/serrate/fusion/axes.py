"""Axes: an IterDomain is one axis of a tensor, a RaggedIterDomain one whose extent differs between components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion.raggedness import Listed, Raggedness, Stored
from serrate.fusion.scalar import Scalar, scalar, symbol
from serrate.fusion.types import IterType, ParallelType

if TYPE_CHECKING:
    from serrate.fusion.expressions import AxisExpression
    from serrate.fusion.view import TensorView


def _extent(value: Scalar | int | str) -> Scalar:
    if isinstance(value, str):
        return symbol(value)
    if isinstance(value, int) and value < 0:
        raise ValueError(f"an extent must be 0 or more, got {value}")
    return scalar(value)


class IterDomain:
    """An axis: indices from `start` to `extent`. Axes are told apart by identity; two may look alike.

    >>> from serrate.fusion import IterDomain
    >>> outer, inner = IterDomain.split(IterDomain(15), 6)
    >>> outer, inner
    (iS{3}, iS{6})
    >>> IterDomain.merge(outer, inner)
    iS{18}
    """

    def __init__(
        self,
        extent: Scalar | int | str,
        *,
        start: int = 0,
        iter_type: IterType = IterType.Iteration,
        parallel_type: ParallelType = ParallelType.Serial,
        name: str | None = None,
        is_rfactor_domain: bool = False,
        is_padded_dimension: bool = False,
        is_clustered_dimension: bool = False,
        padded_to_size: int | None = None,
    ) -> None:
        self.extent = _extent(extent)
        self.start = start
        self.iter_type = iter_type
        self.parallel_type = parallel_type
        self.name = name
        self.is_rfactor_domain = is_rfactor_domain
        self.is_padded_dimension = is_padded_dimension
        self.is_clustered_dimension = is_clustered_dimension
        self.padded_to_size = padded_to_size
        self.definition: AxisExpression | None = None  # what made this axis of others
        self._bound: Scalar | None = None
        self._whole: RaggedIterDomain | None = None  # the ragged axis that this axis is one component of

    @property
    def is_ragged(self) -> bool:
        return False

    @property
    def is_reduction(self) -> bool:
        return self.iter_type == IterType.Reduction

    @property
    def is_broadcast(self) -> bool:
        return self.iter_type == IterType.Broadcast

    @property
    def bound(self) -> Scalar:
        """What the host knows the extent not to exceed."""
        return self.extent if self._bound is None else self._bound

    def bounded_by(self, bound: Scalar) -> IterDomain:
        """This axis, whose extent is known on the device only, and on the host not to exceed `bound`."""
        self._bound = bound
        return self

    def parallelize(self, parallel_type: ParallelType) -> None:
        """Say how the loop over this axis is run."""
        if self._whole is not None:
            raise ScheduleError(
                f"{self} is one component of {self._whole}, whose components are all run alike: parallelize that axis"
            )
        self.parallel_type = parallel_type

    def clone(self) -> IterDomain:
        """An axis like this one, made of nothing, run serially."""
        made = IterDomain(
            self.extent,
            start=self.start,
            iter_type=self.iter_type,
            name=self.name,
            is_rfactor_domain=self.is_rfactor_domain,
        )
        return made.bounded_by(self.bound)

    @staticmethod
    def split(axis: IterDomain, factor: Scalar | int, inner_split: bool = True) -> tuple[IterDomain, IterDomain]:
        """(outer, inner), of which inner has extent `factor`, or outer if not `inner_split`."""
        from serrate.fusion.transforms import split

        return split(axis, factor, inner_split)

    @staticmethod
    def merge(outer: IterDomain, inner: IterDomain) -> IterDomain:
        """One axis that walks `inner` for each index of `outer`."""
        from serrate.fusion.transforms import merge

        return merge(outer, inner)

    @staticmethod
    def resize(axis: IterDomain, left: int, right: int) -> IterDomain:
        """The axis made longer (or, by negative numbers, shorter) at its ends."""
        from serrate.fusion.transforms import resize

        return resize(axis, left, right)

    @staticmethod
    def swizzle(x: IterDomain, y: IterDomain, kind: str = "xor") -> tuple[IterDomain, IterDomain]:
        """(x, y′) where y′ walks y in an order that depends on x."""
        from serrate.fusion.transforms import swizzle

        return swizzle(x, y, kind)

    @staticmethod
    def partition(axis: IterDomain, raggedness: Raggedness) -> tuple[IterDomain, RaggedIterDomain]:
        """(component, ragged): the axis cut into rows at the offsets."""
        from serrate.fusion.transforms import partition

        return partition(axis, raggedness)

    @staticmethod
    def combine(component: IterDomain, ragged: IterDomain) -> IterDomain:
        """The axis of all rows: a component axis and its ragged axis as one."""
        from serrate.fusion.transforms import combine

        return combine(component, ragged)

    def __repr__(self) -> str:
        return f"{self.iter_type.value}{self.parallel_type.value}{self._name()}{{{self.size}}}"

    def _name(self) -> str:
        return f"_{self.name}" if self.name else ""

    @property
    def size(self) -> str:
        return repr(self.extent)


class RaggedIterDomain(IterDomain):
    """A ragged axis, made of one IterDomain for each component; all start at 0 and are run alike.

    >>> from serrate.fusion import IterDomain, RaggedIterDomain
    >>> ragged = RaggedIterDomain([IterDomain(3), IterDomain(5), IterDomain(2)])
    >>> ragged.extent, ragged.extent_for_component(1), ragged.offsets
    (10, 5, (0, 3, 8, 10))
    >>> outer, inner = IterDomain.split(ragged, 2)
    >>> outer, inner
    (iS{[2, 3, 1]}, iS{2})
    >>> IterDomain.merge(ragged, IterDomain(4))
    iS{[12, 20, 8]}
    """

    _nested: tuple[IterDomain, ...] | None

    def __init__(
        self, nested_domains: Sequence[IterDomain], *, component: IterDomain | None = None, name: str | None = None
    ) -> None:
        domains = tuple(nested_domains)
        _validate(domains)
        first = domains[0]
        raggedness = Listed(tuple(domain.extent for domain in domains))
        self._setup(raggedness, component, first.iter_type, first.parallel_type, name, first.is_rfactor_domain)
        self._nested = self._own(domains)

    def _setup(
        self,
        raggedness: Raggedness,
        component: IterDomain | None,
        iter_type: IterType,
        parallel_type: ParallelType,
        name: str | None,
        is_rfactor_domain: bool,
    ) -> None:
        super().__init__(
            raggedness.total,
            iter_type=iter_type,
            parallel_type=parallel_type,
            name=name,
            is_rfactor_domain=is_rfactor_domain,
        )
        self.raggedness = raggedness
        self.component = component  # the axis whose index says which extent holds
        self._nested = None
        if component is not None:
            _check_component(self, component)

    @classmethod
    def of(
        cls,
        raggedness: Raggedness,
        *,
        component: IterDomain | None = None,
        iter_type: IterType = IterType.Iteration,
        parallel_type: ParallelType = ParallelType.Serial,
        name: str | None = None,
        is_rfactor_domain: bool = False,
    ) -> RaggedIterDomain:
        """The ragged axis of these extents."""
        made = cls.__new__(cls)
        made._setup(raggedness, component, iter_type, parallel_type, name, is_rfactor_domain)
        return made

    def _own(self, domains: Sequence[IterDomain]) -> tuple[IterDomain, ...]:
        """The domains as components of this axis; one that belongs to another ragged axis is copied."""
        owned = tuple(domain if domain._whole is None else domain.clone() for domain in dict.fromkeys(domains))
        for domain in owned:
            domain._whole = self
        places = dict(zip(dict.fromkeys(domains), owned, strict=True))
        return tuple(places[domain] for domain in domains)

    @classmethod
    def from_offsets(
        cls,
        offsets: TensorView | str,
        *,
        count: Scalar | int | str | None = None,
        size: Scalar | int | str | None = None,
        longest: Scalar | int | None = None,
        exact: bool = True,
        component: IterDomain | None = None,
        name: str | None = None,
    ) -> RaggedIterDomain:
        """A ragged axis whose offsets (K + 1 entries) are the data of a tensor, or of an array named here.

        The host need not know more than `size`, which the last offset equals, or does not exceed if not `exact`. If it
        also knows that no extent exceeds `longest`, loops that do not know the component need not run to `size`. What
        is said here of offsets that are data is checked when a fusion or a kernel is called.
        """
        if not isinstance(offsets, str):
            if offsets.strides is not None:
                raise RaggednessError(f"offsets lie contiguously in memory, but {offsets} was given strides")
            count, offsets = _count(offsets, count), offsets.name
        if count is None:
            raise ValueError("the number of components must be given for offsets that are only named")
        total = symbol(f"{offsets}_total") if size is None else _extent(size)
        bound = None if longest is None else _extent(longest)
        stored = Stored(offsets, _extent(count), total, bound, exact)
        return cls.of(stored, component=component, name=name)

    @classmethod
    def from_extents(
        cls, extents: TensorView | str, *, count: Scalar | int | str | None = None, **options: Any
    ) -> RaggedIterDomain:
        """A ragged axis whose extents are the data of a tensor; the offsets are their running sum, computed where the
        extents are."""
        if not isinstance(extents, str):
            from serrate.fusion.view import offsets_of_extents

            return cls.from_offsets(offsets_of_extents(extents), **options)
        return cls.from_offsets(f"{extents}_offsets", count=count, **options)

    @property
    def is_ragged(self) -> bool:
        return True

    @property
    def bound(self) -> Scalar:
        return self.raggedness.longest_bound

    @property
    def nested_domains(self) -> tuple[IterDomain, ...]:
        """One axis for each component; only where the extents are known. All have the properties of the ragged axis,
        which alone can be parallelized."""
        if self._nested is None:
            if not self.raggedness.count.is_const:
                raise ValueError(f"the components of {self} are known only when it runs")
            components = (scalar(c) for c in range(self.raggedness.count.value))
            self._nested = self._own([IterDomain(self.raggedness.extent_at(c)) for c in components])
        for domain in self._nested:
            domain.iter_type, domain.parallel_type = self.iter_type, self.parallel_type
            domain.is_rfactor_domain = self.is_rfactor_domain
        return self._nested

    def extent_for_component(self, index: int) -> Scalar:
        """The extent of one component."""
        return self.raggedness.extent_at(self._component(index))

    def offset_for_component(self, index: int) -> Scalar:
        """Where a component begins, all components one after another."""
        return self.raggedness.offset_at(self._component(index))

    def _component(self, index: int) -> Scalar:
        count = self.raggedness.count
        if index < 0 or (count.is_const and index >= count.value):
            raise IndexError(f"component {index} of {count}")
        return scalar(index)

    @property
    def offsets(self) -> tuple[Scalar, ...]:
        """The K + 1 offsets; only where the number of components is known."""
        count = self.raggedness.count
        if not count.is_const:
            raise ValueError(f"{self} has {count} components, a number known only when it runs")
        starts = [self.raggedness.offset_at(scalar(c)) for c in range(count.value)]
        return (*starts, self.raggedness.total)

    def clone(self) -> RaggedIterDomain:
        return RaggedIterDomain.of(
            self.raggedness,
            component=self.component,
            iter_type=self.iter_type,
            name=self.name,
            is_rfactor_domain=self.is_rfactor_domain,
        )

    @property
    def size(self) -> str:
        count = self.raggedness.count
        if isinstance(self.raggedness, Stored) or not count.is_const:
            return f"[{self.raggedness.array}]"
        extents = [self.raggedness.extent_at(scalar(c)) for c in range(count.value)]
        is_data = any(node.op == "load" for extent in extents for node in extent.walk())
        return f"[{self.raggedness.array}]" if is_data else repr(extents)


def ragged(axis: IterDomain) -> RaggedIterDomain:
    """The axis, known to be ragged."""
    assert axis.is_ragged
    return cast(RaggedIterDomain, axis)


def _count(offsets: TensorView, count: Scalar | int | str | None) -> Scalar:
    """The number of components that a tensor of offsets has; the one that is given, if the two may be the same."""
    if offsets.dtype not in ("int32", "int64"):
        raise TypeError(f"offsets must be int32 or int64, got {offsets}")
    if len(offsets.domain.logical) != 1:
        raise ValueError(f"offsets must have one axis, got {offsets}")
    found = offsets.domain.logical[0].extent - 1
    if count is None:
        return found
    given = _extent(count)
    if given.is_const and found.is_const and given != found:
        raise RaggednessError(f"{given} components have {given + 1} offsets, got {offsets}")
    return given


def _check_component(rows: RaggedIterDomain, component: IterDomain) -> None:
    """Refuse a component axis that does not have an index for each extent, where both numbers are known; where they
    are not, it is refused when it runs (see `fusion.requirements`)."""
    if component.is_ragged:
        raise RaggednessError(
            f"{component} cannot be the component axis of {rows}: it is ragged; combine it with its own component axis"
        )
    count, extent = rows.raggedness.count, component.extent
    if count.is_const and extent.is_const and count != extent:
        raise RaggednessError(f"{rows} has {count} components, but its component axis {component} has {extent} indices")


def _validate(domains: tuple[IterDomain, ...]) -> None:
    """The seed's uniformity: what may not differ, and what may not be set."""
    if not domains:
        raise ValueError("a ragged axis needs at least one component")
    if any(domain.is_ragged for domain in domains):
        raise ValueError("the components of a ragged axis must be regular axes; nest by its component axis instead")
    first = domains[0]
    for number, domain in enumerate(domains):
        where = f"component {number} ({domain}) of a ragged axis"
        if domain.parallel_type != first.parallel_type:
            raise ValueError(
                f"{where} has parallel type {domain.parallel_type.name}, others {first.parallel_type.name}"
            )
        if domain.iter_type != first.iter_type:
            raise ValueError(f"{where} has iter type {domain.iter_type.name}, others {first.iter_type.name}")
        if domain.start != 0:
            raise ValueError(f"{where} starts at {domain.start}, not at 0")
        if domain.is_rfactor_domain != first.is_rfactor_domain:
            raise ValueError(f"{where} is {'' if domain.is_rfactor_domain else 'not '}an rfactor axis, unlike others")
        if domain.is_padded_dimension:
            raise ValueError(f"{where} is padded (is_padded_dimension), which a ragged axis cannot be")
        if domain.is_clustered_dimension:
            raise ValueError(f"{where} is clustered (is_clustered_dimension), which a ragged axis cannot be")
        if domain.padded_to_size is not None:
            raise ValueError(
                f"{where} is padded to size {domain.padded_to_size} (padded_to_size), which is not allowed"
            )
