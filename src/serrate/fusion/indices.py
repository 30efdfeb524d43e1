"""From loop indices to memory indices: the cheapest way through the axis graph, and the predicates on that way.

`route` says which expressions are to be followed, and in which direction; `Indices` follows them, one by one, as loops
are opened, and keeps the set of unsafe axes: those whose index may be out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

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


def _steps(graph: AxisGraph) -> dict[IterDomain, list[Step]]:
    """The steps of a graph, by each group that they need. Of steps between the same groups there is one."""
    if not graph.steps:
        seen: set[tuple[object, ...]] = set()
        for expression in graph.expressions:
            sides = (expression.inputs, expression.outputs, expression.needs)
            key = (*expression.key, *(tuple(map(graph.find, side)) for side in sides))
            if key not in seen:
                seen.add(key)
                for step in (Step(expression, True), Step(expression, False)):
                    if not (isinstance(expression, Cover) and step.forward):
                        for group in graph.groups(step.given):
                            graph.steps.setdefault(group, []).append(step)
    return graph.steps


def route(graph: AxisGraph, known: Iterable[IterDomain], wanted: Iterable[IterDomain]) -> list[Step]:
    """The steps that make the wanted indices of the known ones, at least cost, in an order that can be followed."""
    wanted = [graph.find(axis) for axis in wanted]
    cost: dict[IterDomain, float] = {}
    how: dict[IterDomain, Step] = {}
    missing = set(wanted)
    numbers = count()  # of two ways that cost the same, the one found first
    queue: list[tuple[float, int, IterDomain, Step | None]] = []
    for axis in known:
        heappush(queue, (0.0, next(numbers), graph.find(axis), None))
    while queue and missing:
        least, _, group, reached_by = heappop(queue)
        if group in cost:
            continue
        cost[group] = least
        missing.discard(group)
        if reached_by is not None:
            how[group] = reached_by
        for step in _steps(graph).get(group, ()):
            given = [cost.get(graph.find(axis)) for axis in step.given]
            if None not in given:
                total = step.cost + sum(number for number in given if number is not None)
                for axis in step.made:
                    heappush(queue, (total, next(numbers), graph.find(axis), step))
    for group in wanted:
        if group in missing:
            raise ScheduleError(f"the index of {group} does not follow from the loops; the schedule does not cover it")
    return _in_order(graph, wanted, how)


def _in_order(graph: AxisGraph, wanted: Sequence[IterDomain], how: dict[IterDomain, Step]) -> list[Step]:
    """The steps that lead to groups, each after those that it needs."""
    order: dict[Step, None] = {}
    stack = list(reversed(wanted))
    while stack:
        step = how.get(stack[-1])
        before = [] if step is None or step in order else [graph.find(axis) for axis in step.given]
        missing = [group for group in before if group in how and how[group] not in order]
        if missing:
            stack += reversed(missing)
            continue
        stack.pop()
        if step is not None:
            order[step] = None
    return list(order)


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
    natural: set[Scalar] = set()
    for node in index.walk():
        if _is_natural(node, natural):
            natural.add(node)
    return index in natural


def _is_natural(node: Scalar, natural: set[Scalar]) -> bool:
    """Whether a node is not negative, where it is known which of its operands are not."""
    match node.op:
        case "const":
            return bool(node.value >= 0)
        case "symbol" | "load" | "search" | "index_remainder":
            return True
        case "add" | "multiply" | "index_divide" | "minimum" | "bitwise_xor":
            return natural.issuperset(node.args)
        case "subtract":  # i − off[c] of the component found for i
            left, right = node.args
            return right.op == "load" and right.args[0].op == "search" and right.args[0].args[1] == left
        case "maximum":
            return not natural.isdisjoint(node.args)
    return False
