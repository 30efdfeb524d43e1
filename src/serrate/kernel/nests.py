"""Loop nests: opening loops, computing indices where they are first known, and guarding what may be out of bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import raggedness_of
from serrate.fusion.domain import history
from serrate.fusion.expressions import Combine, Merge, Split, component_of, extent_of, is_positive
from serrate.fusion.indices import Indices, Step, route
from serrate.fusion.monoids import MONOIDS
from serrate.fusion.scalar import Scalar, ceildiv, less, maximum, minimum, symbol
from serrate.fusion.types import ParallelType
from serrate.fusion.view import TensorView
from serrate.kernel.boxes import check_filled
from serrate.kernel.builder import Builder, axis_name
from serrate.kernel.elements import axes_read
from serrate.kernel.ir import Launch
from serrate.kernel.jobs import Job, Role, is_gathered, is_reduction
from serrate.kernel.launching import is_bound, reduces_across_threads
from serrate.kernel.phases import PhasedFusion
from serrate.kernel.places import Place
from serrate.kernel.source import word
from serrate.kernel.teams import team_of


class Nests:
    """The loops of a kernel under construction, and the builder they are written with."""

    def __init__(self, phased: PhasedFusion, launch: Launch, name: str) -> None:
        self.phased, self.graph, self.launch = phased, phased.graph, launch
        bounds = [axis.bound for tensor in phased.fusion.tensors for axis in tensor.domain.logical]
        sizes = {str(size.value) for bound in bounds for size in bound.symbols}
        taken = {tensor.name for tensor in phased.fusion.tensors} | sizes | {name}
        taken |= raggedness_of(phased.fusion).keys()
        _check_names(taken)
        taken = set(map(word, taken))
        has_boxes = any(tensor.box_axes for tensor in phased.needed)
        self.builder = Builder(has_boxes or reduces_across_threads(phased), taken)
        self.team = team_of(phased, symbol(self.builder.name("rank")))
        self.variables: dict[IterDomain, Scalar] = {}  # of loops that are open
        self.full: dict[IterDomain, Scalar] = {}  # loops that are walked only as far as all lanes are in bounds
        self.walks: Counter[IterDomain] = Counter()  # how often each loop was opened so far
        self.known: set[TensorView] = set()  # reductions and kept values that can be read here
        self._routes: dict[tuple[tuple[IterDomain, ...], tuple[IterDomain, ...]], list[Step]] = {}

    # Which indices a job needs

    def is_held(self, tensor: TensorView) -> bool:
        """Whether a tensor is read from what the kernel holds, not computed where it is read."""
        return is_gathered(tensor) or tensor in self.known or bool(tensor.box_axes)

    def axes_read(self, tensor: TensorView) -> list[IterDomain]:
        """The axes whose indices are needed to compute a tensor from what is in memory."""
        return axes_read(tensor, self.is_held)

    def wanted(self, job: Job) -> list[IterDomain]:
        """The axes whose indices a job needs: those it walks, as they would lie in memory, and all it loads and stores
        by. A reduction is stored from its state, without what it reduced."""
        tensor, domain = job.tensor, job.tensor.domain
        if job.role == Role.KEEP and tensor.kept_in is not None:
            return [*tensor.kept_in.domain.allocation, *self.phased.iterated[tensor], *self.axes_read(tensor)]
        if job.role == Role.REDUCE and tensor.reads_holes:
            operand = _filled_operand(tensor)
            return list(operand.loop if operand.box_axes else operand.domain.allocation)
        wanted: dict[IterDomain, None] = {}
        if job.role == Role.STORE:
            wanted.update(dict.fromkeys(domain.allocation))
            if any(step.makes_holes for step in history(domain.allocation)):
                wanted.update(dict.fromkeys(axis for axis in domain.kept if not axis.is_broadcast))
        if not (job.role == Role.STORE and is_reduction(tensor)):
            wanted.update(dict.fromkeys(self.phased.iterated[tensor]))
            wanted.update(dict.fromkeys(self.axes_read(tensor)))
        if job.role == Role.REDUCE and tensor.definition is not None and tensor.definition.name.startswith("arg"):
            wanted.update(dict.fromkeys(axis for axis in domain.root if axis.is_reduction))
        return list(wanted)

    def _steps(self, job: Job, wanted: Iterable[IterDomain] | None = None) -> list[Step]:
        """The steps from the loops of a job to the axes that it needs."""
        loops = self.phased.loops_of(job)
        given = [*loops, *(axis for loop in loops for axis in self.phased.covering(job, loop))]
        key = (tuple(given), tuple(self.wanted(job) if wanted is None else wanted))
        if key not in self._routes:
            try:
                self._routes[key] = route(self.graph, *key)
            except ScheduleError as error:
                where = f"the loops of {self.phased.reference.name}"
                raise ScheduleError(f"{job.tensor} is not computed in {where}: {error}", tensor=job.tensor) from None
        return self._routes[key]

    def advance(self, indices: Indices, jobs: Sequence[Job]) -> None:
        """Compute what all of the jobs need and can be known by now, with the predicates they all need; and what one
        of them needs, where that takes no predicate."""
        if not jobs:
            return
        each = [self._steps(job) for job in jobs]
        common = [step for step in each[0] if all(step in steps for steps in each[1:])]
        indices.advance(common, self.builder.guard, self.builder.index)
        for steps in each:
            indices.advance(steps, None, self.builder.index)

    def bind_lengths(self, loops: Iterable[IterDomain], indices: Indices) -> None:
        """The lengths of rows by names, once for all phases that walk them."""
        for loop in loops:
            if loop.is_ragged and indices.has(component_of(loop)) and not indices.is_unsafe(component_of(loop)):
                self.bind_extent(loop, indices)

    # Opening loops

    def open(self, loop: IterDomain, indices: Indices, jobs: Sequence[Job], *, backward: bool = False) -> None:
        """Open a loop and bind its index. A ragged one inside its component's loop runs to the end of its row; a
        backward one begins there."""
        if self.team is not None and loop is self.team.loop:
            self._bind(loop, self.team.rank, True, indices, jobs)
            return
        parallel = loop.parallel_type
        extent, exact = self._bound(loop, indices)
        if is_bound(loop):
            exact = exact and extent == self.launch.size(parallel)
            extent = loop.bound
        var = self.builder.loop(axis_name(loop), extent, label(self.phased.reference, loop), parallel)
        if backward:
            var = self.builder.let(axis_name(loop), extent - 1 - var)
        self._bind(loop, var, exact, indices, jobs)

    def open_blocks(
        self, loop: IterDomain, length: int, indices: Indices, jobs: Sequence[Job], *, backward: bool = False
    ) -> Callable[[], None]:
        """Open the loop over the blocks of a serial loop. What is returned opens the loop within a block."""
        builder, name = self.builder, axis_name(loop)
        extent, exact = self._bound(loop, indices)
        text = label(self.phased.reference, loop)
        block = builder.loop(f"{name}_block", ceildiv(extent, length), f"{text}, blocks of {length}")

        def within() -> None:
            last = minimum(extent - block * length, length)
            step = builder.loop(f"{name}_step", last, f"{text}, within a block")
            index = block * length + step
            self._bind(loop, builder.let(name, extent - 1 - index if backward else index), exact, indices, jobs)

        return within

    def _bind(self, loop: IterDomain, var: Scalar, exact: bool, indices: Indices, jobs: Sequence[Job]) -> None:
        self.variables[loop] = var
        self.walks[loop] += 1
        indices.set(loop, var, unsafe=not exact)
        if exact and (loop in self.full or (loop.parallel_type == ParallelType.Serial and self._ends_early(loop))):
            self._bind_whole(loop, indices)
        for job in jobs:
            for positions in self.phased.covering(job, loop):
                indices.set(positions, var)

    def _bind_whole(self, loop: IterDomain, indices: Indices) -> None:
        """The index of the axis that a loop is the inner part of, which is in bounds as the loop ends with the axis."""
        axis = loop
        while (step := self._split_of(axis)) is not None and axis is step.outputs[1]:
            outer, whole = step.outputs[0], step.inputs[0]
            if not indices.has(outer) or indices.is_unsafe(outer) or self._reach(whole, indices) is None:
                return
            inner = extent_of(axis, indices.of)
            indices.set(whole, self.builder.index(whole, indices.of(outer) * inner + indices.of(axis)))
            axis = whole

    def full_lanes(self, loop: IterDomain, lanes: IterDomain, indices: Indices) -> Scalar | None:
        """How many indices of a serial loop have all lanes in bounds that are the other part of the same axis; None if
        they are not, or all have, or nobody knows."""
        step = self._split_of(lanes)
        if step is None or step.outputs != (loop, lanes) or loop.parallel_type != ParallelType.Serial:
            return None
        if not lanes.extent.is_const or lanes.extent.value < 2:
            return None
        reach = self._reach(step.inputs[0], indices)
        if reach is None or (step.is_divisible and reach == indices.extent(step.inputs[0])):
            return None
        if self._split_of(step.inputs[0]) is not None:
            reach = maximum(reach, 0)  # a part of an axis may begin behind its end
        return self.builder.let(f"{axis_name(loop)}_full", reach // lanes.extent)

    def set_last(self, loop: IterDomain, index: Scalar, indices: Indices, jobs: Sequence[Job]) -> None:
        """Bind a loop to the first index whose lanes are not all in bounds. What follows is done only if some of these
        lanes are in bounds."""
        step = self._split_of(loop)
        assert step is not None
        reach = self._reach(step.inputs[0], indices)
        assert reach is not None
        self.builder.guard(less(index * step.outputs[1].extent, reach))
        self._bind(loop, index, True, indices, jobs)

    def _split_of(self, axis: IterDomain) -> Split | None:
        """The split that an axis is a part of, if the reference has the whole axis."""
        step = axis.definition
        return step if isinstance(step, Split) and axis not in self.phased.reference.domain.root else None

    def _ends_early(self, loop: IterDomain) -> bool:
        """Whether a loop is part of an axis whose end is known only when the kernel runs. Where all is constant, a
        predicate is as good, and a loop of a constant number of indices is better; so it is where holes are read."""
        if any(tensor.reads_holes and self.phased.is_reduced_by(tensor, loop) for tensor in self.phased.reductions):
            return False
        axis = loop
        while (step := self._split_of(axis)) is not None:
            axis = step.inputs[0]
        return axis is not loop and (axis.is_ragged or not axis.extent.is_const)

    def _reach(self, axis: IterDomain, indices: Indices) -> Scalar | None:
        """How many indices of an axis, from 0 on, belong to the axis that it is a part of, where the loops have come
        to; None if that is not known."""
        step = self._split_of(axis)
        if step is None:
            known = not axis.is_ragged or (indices.has(c := component_of(axis)) and not indices.is_unsafe(c))
            return indices.extent(axis) if known else None
        outer, inner = step.outputs
        whole = self._reach(step.inputs[0], indices)
        if whole is None or (inner.is_ragged and not indices.has(component_of(inner))):
            return None
        each = extent_of(inner, indices.of)
        if axis is outer:
            return ceildiv(whole, each) if is_positive(each) else None
        if step.is_divisible and whole == indices.extent(step.inputs[0]):
            return each
        return minimum(whole - indices.of(outer) * each, each) if indices.has(outer) else None

    def _bound(self, loop: IterDomain, indices: Indices) -> tuple[Scalar, bool]:
        """How far a loop runs here, and whether it does so for all indices that it has something to do for. A serial
        part of an axis ends where the axis does."""
        if loop in self.full and loop.parallel_type == ParallelType.Serial:
            return self.full[loop], True
        if loop.is_ragged:
            self._make_known(component_of(loop), indices)
            if indices.has(component_of(loop)):  # how far the row reaches is asked only where there is one
                indices.guard(component_of(loop), self.builder.guard)
        if loop.parallel_type == ParallelType.Serial and self._ends_early(loop):
            reach = self._reach(loop, indices)
            if reach is not None:
                return self.builder.let(f"{axis_name(loop)}_extent", reach), True
        if not loop.is_ragged:
            return loop.extent, True
        if not indices.has(component_of(loop)):
            self._check_order(loop)
            return loop.bound, False
        return self.bind_extent(loop, indices), True

    def bind_extent(self, loop: IterDomain, indices: Indices) -> Scalar:
        """The length of a row by a name, after those of the axes the loop was split from."""
        step = loop.definition
        if step is not None and loop not in self.phased.reference.domain.logical:
            for axis in step.inputs:
                if axis.is_ragged and component_of(axis) is component_of(loop):
                    self.bind_extent(axis, indices)
        return self.builder.let(f"{axis_name(loop)}_extent", indices.extent(loop))

    def place(self, loops: Iterable[IterDomain], indices: Indices) -> Place:
        """An element for each index of loops that are not open yet: of a row as long as it is, if it is known which
        one, else as the longest."""
        found: list[tuple[IterDomain, Scalar]] = []
        for loop in loops:
            extent = loop.extent
            if loop.is_ragged:
                component = component_of(loop)
                known = indices.has(component) and not indices.is_unsafe(component)
                extent = self.bind_extent(loop, indices) if known else loop.bound
            found.append((loop, extent))
        return Place(tuple(found))

    def _make_known(self, axis: IterDomain, indices: Indices) -> None:
        """Compute an index from open loops, if it follows from them."""
        if indices.has(axis):
            return
        try:
            steps = route(self.graph, [loop for loop in self.variables if indices.has(loop)], [axis])
        except ScheduleError:
            return
        indices.advance(steps, self.builder.guard, self.builder.index)

    def _check_order(self, loop: IterDomain) -> None:
        """A ragged loop outside of its component's: only whole, up to the longest row."""
        if loop.definition is not None and loop not in self.phased.reference.domain.logical:
            raise ScheduleError(
                f"loop {loop} of {self.phased.reference.name} stands outside the loop of its component axis "
                f"{component_of(loop)}; only a ragged axis that is not transformed can, walked to the longest row"
            )

    @contextmanager
    def leaf(self, jobs: Sequence[Job], indices: Indices) -> Iterator[Indices]:
        """The indices and the guards of jobs that need the same."""
        builder, local = self.builder, indices.copy()
        wanted = list(dict.fromkeys(axis for job in jobs for axis in self.wanted(job)))
        local.advance(self._steps(jobs[0], wanted), builder.guard, builder.index)
        for axis in wanted:
            local.guard(axis, builder.guard)
        with builder.leaf():
            yield local


def _check_names(names: set[str]) -> None:
    """Refuse names that would be one in C++."""
    written: dict[str, str] = {}
    for name in sorted(names):
        if not name:
            raise ValueError("a tensor, a size and a kernel need a name of at least one letter")
        other = written.setdefault(word(name), name)
        if other != name:
            raise ValueError(f"{other!r} and {name!r} would be one name in C++, {word(name)!r}; rename one")


def label(tensor: TensorView, axis: IterDomain) -> str:
    """What a loop says of itself."""
    step = axis.definition
    if isinstance(step, Split) and axis not in tensor.domain.logical:
        outer, inner = axis_name(step.inputs[0]), step.factor
        return f"{outer} of {tensor.name}, {'by' if axis is step.outputs[0] else 'within'} {inner}"
    if isinstance(step, (Merge, Combine)) and axis not in tensor.domain.logical:
        return f"{' and '.join(axis_name(part) for part in step.inputs)} of {tensor.name}"
    return f"{axis_name(axis)} of {tensor.name}"


def _filled_operand(tensor: TensorView) -> TensorView:
    """The operand of a reduction that reads holes: they must hold what changes nothing."""
    operation = tensor.definition
    assert operation is not None
    operand = operation.inputs[0]
    neutral = MONOIDS[operation.name].neutral
    if operand.box_axes:
        check_filled(tensor, operand)
        return operand
    if operand.definition is not None or operand.fill is None:
        raise ScheduleError(f"{tensor} reads holes of {operand}, which is not an input that holds a fill value in them")
    if neutral is None or operand.fill != neutral:
        wanted = "no value changes nothing" if neutral is None else f"only {neutral} changes nothing"
        raise ScheduleError(
            f"{tensor} reads holes of {operand}, which hold {operand.fill}; in a {operation.name} {wanted}"
        )
    return operand
