"""From loop indices to memory indices: the cheapest way through the axis graph, and the predicates on that way.

`route` says which expressions are to be followed, and in which direction; `Indices` follows them, one by one, as loops
are opened, and keeps the set of unsafe axes: those whose index may be out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.expressions import AxisExpression, Combine, Cover, Merge, Partition, Split, component_of, extent_of
from serrate.fusion.mapping import AxisGraph
from serrate.fusion.scalar import TRUE, Scalar, both, const, less, less_equal

_SEARCH, _DIVIDE, _PLAIN = 64.0, 4.0, 1.0


@dataclass(frozen=True)
class Step:
    """An expression followed forward or backward."""

    expression: AxisExpression
    forward: bool

    @property
    def given(self) -> tuple[IterDomain, ...]:
        """Axes whose indices must be known."""
        e = self.expression
        return (*(e.inputs if self.forward else e.outputs), *e.needs)

    @property
    def made(self) -> tuple[IterDomain, ...]:
        return self.expression.outputs if self.forward else self.expression.inputs

    @property
    def cost(self) -> float:
        match self.expression, self.forward:
            case (Partition(), True) | (Combine(), False):
                return _SEARCH
            case (Split(), True) | (Merge(), False):
                return _DIVIDE
        return _PLAIN


def route(graph: AxisGraph, known: Iterable[IterDomain], wanted: Iterable[IterDomain]) -> list[Step]:
    """The steps that make the wanted indices of the known ones, at least cost, in an order that can be followed."""
    cost = dict.fromkeys((graph.find(axis) for axis in known), 0.0)
    how: dict[IterDomain, Step] = {}
    steps = [Step(expression, forward) for expression in graph.expressions for forward in (True, False)]
    steps = [step for step in steps if not (isinstance(step.expression, Cover) and step.forward)]
    changed = True
    while changed:
        changed = False
        for step in steps:
            given = [cost.get(graph.find(axis)) for axis in step.given]
            if any(c is None for c in given):
                continue
            total = step.cost + sum(c for c in given if c is not None)
            for axis in step.made:
                group = graph.find(axis)
                if total < cost.get(group, float("inf")):
                    cost[group], how[group] = total, step
                    changed = True
    order: list[Step] = []
    for axis in wanted:
        _collect(graph, graph.find(axis), cost, how, order)
    return order


def _collect(
    graph: AxisGraph, group: IterDomain, cost: dict[IterDomain, float], how: dict[IterDomain, Step], order: list[Step]
) -> None:
    if group not in cost:
        raise ScheduleError(f"the index of {group} does not follow from the loops; the schedule does not cover it")
    step = how.get(group)
    if step is None or step in order:
        return
    for axis in step.given:
        _collect(graph, graph.find(axis), cost, how, order)
    order.append(step)


@dataclass
class Indices:
    """Indices known at some point of a loop nest, and which of them may be out of bounds."""

    graph: AxisGraph
    known: dict[IterDomain, Scalar] = field(default_factory=dict)
    unsafe: set[IterDomain] = field(default_factory=set)
    done: set[Step] = field(default_factory=set)

    def copy(self) -> Indices:
        return Indices(self.graph, dict(self.known), set(self.unsafe), set(self.done))

    def set(self, axis: IterDomain, index: Scalar, *, unsafe: bool = False) -> None:
        group = self.graph.find(axis)
        self.known[group] = index
        if unsafe:
            self.unsafe.add(group)

    def has(self, axis: IterDomain) -> bool:
        return self.graph.find(axis) in self.known

    def of(self, axis: IterDomain) -> Scalar:
        """The index of an axis."""
        if axis.is_broadcast:
            return const(0)
        group = self.graph.find(axis)
        if group not in self.known:
            raise ScheduleError(f"the index of {axis} is not known here")
        return self.known[group]

    def is_unsafe(self, axis: IterDomain) -> bool:
        return self.graph.find(axis) in self.unsafe

    def extent(self, axis: IterDomain) -> Scalar:
        return extent_of(axis, self.of)

    def predicate(self, axis: IterDomain) -> Scalar:
        """0 ≤ index < extent; the lower bound only where it is not proven."""
        index = self.of(axis)
        upper = less(index, self.extent(axis))
        return upper if is_natural(index) else both(less_equal(const(0), index), upper)

    def guard(self, axis: IterDomain, emit: Callable[[Scalar], None]) -> None:
        """Predicate an axis if it is unsafe; a ragged one after its component, which its extent is read by."""
        if not self.is_unsafe(axis):
            return
        if axis.is_ragged:
            self.guard(component_of(axis), emit)
        emit(self.predicate(axis))
        self.unsafe.discard(self.graph.find(axis))

    def follow(self, step: Step, emit: Callable[[Scalar], None], bind: Callable[[IterDomain, Scalar], Scalar]) -> None:
        """Take a step: predicates are emitted first, then new indices are bound to names."""
        expression = step.expression
        walk = expression.walk_forward if step.forward else expression.walk_backward
        to_predicate, unsafe_after = walk(self.is_unsafe)
        for axis in to_predicate:
            self.guard(axis, emit)
        for axis in expression.needs:
            self.guard(axis, emit)
        sources = [self.of(axis) for axis in (expression.inputs if step.forward else expression.outputs)]
        condition = expression.condition(step.forward, sources)
        if condition != TRUE:
            emit(condition)
        compute = expression.forward if step.forward else expression.backward
        made = compute(sources, self.of)
        for axis, index in zip(step.made, made, strict=True):
            if not self.has(axis):
                self.set(axis, bind(axis, index), unsafe=axis in unsafe_after)
        self.done.add(step)

    def advance(
        self,
        steps: Sequence[Step],
        emit: Callable[[Scalar], None] | None,
        bind: Callable[[IterDomain, Scalar], Scalar],
    ) -> None:
        """Take every step that can be taken by now; without `emit`, every one that takes no predicate."""
        before = None
        while before != len(self.done):  # a step may wait for the component that a later one gives
            before = len(self.done)
            for step in steps:
                if step in self.done or not all(self.has(axis) and self._can_guard(axis) for axis in step.given):
                    continue
                if emit is None and self._takes_predicates(step):
                    continue
                self.follow(step, _refuse if emit is None else emit, bind)

    def _takes_predicates(self, step: Step) -> bool:
        expression = step.expression
        walk = expression.walk_forward if step.forward else expression.walk_backward
        sources = [self.of(axis) for axis in (expression.inputs if step.forward else expression.outputs)]
        if expression.condition(step.forward, sources) != TRUE:
            return True
        return any(map(self.is_unsafe, (*walk(self.is_unsafe)[0], *expression.needs)))

    def _can_guard(self, axis: IterDomain) -> bool:
        """Whether what a predicate of an axis needs is known, if it may come to one."""
        return not axis.is_ragged or not self.is_unsafe(axis) or self.has(component_of(axis))


def _refuse(condition: Scalar) -> None:
    raise AssertionError(f"a step that takes no predicate emits {condition}")


def is_natural(index: Scalar) -> bool:
    """Whether an index is proven not to be negative: loop variables, sizes and offsets are not."""
    if index.op == "const":
        return bool(index.value >= 0)
    if index.op in ("symbol", "load", "search", "index_remainder"):
        return True
    if index.op in ("add", "multiply", "index_divide", "minimum", "bitwise_xor"):
        return all(is_natural(argument) for argument in index.args)
    if index.op == "subtract":  # i − off[c] of the component found for i
        left, right = index.args
        return right.op == "load" and right.args[0].op == "search" and right.args[0].args[1] == left
    return index.op == "maximum" and any(is_natural(argument) for argument in index.args)
