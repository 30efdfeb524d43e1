"""Blocks and threads: how many a kernel is launched with, what a target can run, and what must hold of sizes."""

from __future__ import annotations

from collections.abc import Iterator

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.domain import history
from serrate.fusion.expressions import Split
from serrate.fusion.requirements import Requirement, requirements_of
from serrate.fusion.scalar import Scalar, const, equal, less, less_equal, maximum
from serrate.fusion.types import ParallelType
from serrate.kernel.ir import Launch
from serrate.kernel.jobs import Job, Role
from serrate.kernel.phases import PhasedFusion
from serrate.kernel.targets import Target
from serrate.kernel.teams import check_team

BLOCKS = (ParallelType.BIDx, ParallelType.BIDy, ParallelType.BIDz)
THREADS = (ParallelType.TIDx, ParallelType.TIDy, ParallelType.TIDz)


def index_bounds(phased: PhasedFusion) -> tuple[Scalar, ...]:
    """What indices of loops, and of the axes they are made of, stay below."""
    steps = history(phased.loops)
    axes = [*phased.loops, *(axis for step in steps for axis in (*step.inputs, *step.outputs))]
    return tuple(dict.fromkeys(axis.bound for axis in axes))


def is_bound(loop: IterDomain) -> bool:
    """Whether a loop is spread over threads, blocks or ranks, each of which has one index of it."""
    return loop.parallel_type.is_thread or loop.parallel_type.is_block or loop.parallel_type == ParallelType.DIDx


def loop_not_walked(phased: PhasedFusion, job: Job) -> IterDomain | None:
    """A loop spread over threads or blocks that a job does not walk, so that all of them do it."""
    walked = {loop.parallel_type for loop in phased.loops_of(job)}
    return next((loop for loop in phased.loops if is_bound(loop) and loop.parallel_type not in walked), None)


def check_parallel_types(phased: PhasedFusion, target: Target) -> None:
    """Refuse ways to run loops that the target does not have, and loops that cannot be run in the way they are to."""
    reference = phased.reference
    for place, loop in enumerate(phased.loops):
        kind = loop.parallel_type
        if kind == ParallelType.Bulk:
            raise ScheduleError(
                f"loop {loop} of {reference.name} is Bulk, but a kernel walks it: only a copy of an input is copied by "
                f"boxes, which cache_after(Memory.SHARED) makes"
            )
        if kind not in target.parallel_types:
            instead = f"; its lanes are {target.lanes.name}" if kind.is_lanes else ""
            raise ScheduleError(
                f"loop {loop} of {reference.name}: {kind.name} is not for the target {target.name!r}{instead}"
            )
        if kind.is_lanes and (loop.is_ragged or not loop.extent.is_const) and not _is_scanned(phased, loop):
            raise ScheduleError(f"loop {loop} of {reference.name}: the number of lanes must be a constant")
        if kind == ParallelType.Thread and any(other.parallel_type.is_lanes for other in phased.loops[:place]):
            lanes = next(other for other in phased.loops if other.parallel_type.is_lanes)
            raise ScheduleError(
                f"loop {loop} of {reference.name} is Thread inside loop {lanes}, whose lanes belong to one thread: put "
                f"the Thread loop outside"
            )
        once = is_bound(loop) or kind == ParallelType.Thread
        if once and sum(other.parallel_type == kind for other in phased.loops) > 1:
            raise ScheduleError(f"loop {loop} of {reference.name}: another loop is {kind.name} already")
        if kind == ParallelType.DIDx:
            check_team(phased, loop)
        if kind.is_lanes and _is_around_waiting(phased, loop):
            raise ScheduleError(
                f"loop {loop} of {reference.name} is {kind.name} around a reduction across threads or blocks; lanes "
                f"cannot wait for those: put the loop inside of what is reduced, or do not run it as {kind.name}"
            )


def _is_scanned(phased: PhasedFusion, loop: IterDomain) -> bool:
    """Whether something is scanned along a loop, and nothing reduced in it, which would need a state for each lane."""
    jobs = [job for job in phased.jobs if phased.involves(job, loop)]
    scans = [job.tensor for job in jobs if job.role == Role.SCAN]
    return any(phased.is_scanned_by(x, loop) for x in scans) and all(job.role != Role.REDUCE for job in jobs)


def launch_of(phased: PhasedFusion, target: Target) -> Launch:
    """As many as the loops are long; at least one where something does not depend on the loop, as it has a result even
    if the loop has no index."""
    sizes = {}
    for loop in phased.loops:
        reduced = any(phased.involves(job, loop) and _is_gone(phased, job, loop) for job in phased.jobs)
        lacking = any(not phased.involves(job, loop) for job in phased.jobs)  # done by the first along that axis
        sizes[loop.parallel_type] = maximum(loop.bound, 1) if reduced or lacking else loop.bound
    x, y, z = (sizes.get(kind, const(1)) for kind in THREADS)
    grid = (sizes.get(BLOCKS[0], const(1)), sizes.get(BLOCKS[1], const(1)), sizes.get(BLOCKS[2], const(1)))
    launch = Launch(grid, (x, y, z))
    for what, size, most in _limited(launch, target):
        if size.is_const and size.value > most:
            raise ScheduleError(f"{phased.reference}: {what}, the schedule asks for {size}")
    return launch


def _limited(launch: Launch, target: Target) -> Iterator[tuple[str, Scalar, int]]:
    """What a target limits of a launch: the limit in words, what the launch asks for, and the limit."""
    limits = target.limits
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    yield f"a block has at most {limits.threads_per_block} threads", threads, limits.threads_per_block
    for name, size, most in zip("xyz", launch.block, limits.block, strict=True):
        yield f"a block has at most {most} threads along {name}", size, most
    for name, size, most in zip("xyz", launch.grid, limits.grid, strict=True):
        yield f"a launch has at most {most} blocks along {name}", size, most


def dimensions(launch: Launch) -> Iterator[tuple[ParallelType, Scalar]]:
    """The dimensions of a launch that have more than one block or thread, or may have."""
    for kind, size in zip((*BLOCKS, *THREADS), (*launch.grid, *launch.block), strict=True):
        if size != const(1):
            yield kind, size


def reduces_across_threads(phased: PhasedFusion) -> bool:
    """Whether threads or blocks wait for each other."""
    return any(is_bound(loop) and _is_gone(phased, job, loop) for job in phased.jobs for loop in phased.loops_of(job))


def _is_around_waiting(phased: PhasedFusion, loop: IterDomain) -> bool:
    """Whether threads or blocks wait for each other inside a loop."""
    for job in phased.jobs:
        gone = [each for each in phased.loops_of(job) if _is_gone(phased, job, each)]
        waits = any(is_bound(each) for each in gone)
        if waits and phased.involves(job, loop) and phased.loops.index(loop) < phased.loops.index(gone[0]):
            return True
    return False


def _is_gone(phased: PhasedFusion, job: Job, loop: IterDomain) -> bool:
    return job.role == Role.REDUCE and phased.is_reduced_by(job.tensor, loop)


def requirements(phased: PhasedFusion, target: Target) -> tuple[Requirement, ...]:
    """What is to hold when the kernel runs, and what to raise if not: all that the fusion requires; factors of loops
    are positive, indices that are selected are there, lanes divide what they are taken from."""
    made = list(requirements_of(phased.fusion))
    made += [
        Requirement(less(const(0), step.factor), ScheduleError, f"{step.inputs[0]} cannot be split by {step.factor}")
        for step in history(phased.loops)
        if isinstance(step, Split) and not step.factor.is_const
    ]
    for what, size, most in _limited(launch_of(phased, target), target):
        if not size.is_const:
            why = f"{what}, {phased.reference} asks for {size}: split the axis by a constant"
            made.append(Requirement(less_equal(size, most), ScheduleError, why))
    for tensor in phased.fusion.tensors:
        operation = tensor.definition
        if operation is not None and operation.kind == "select":
            axis = operation.inputs[0].domain.kept[operation.options[0]]
            there = less(const(operation.options[1]), axis.extent)
            made.append(Requirement(there, IndexError, f"{tensor} = {operation} of {axis}"))
    for loop in phased.loops:
        lanes = loop.definition
        if loop.parallel_type == ParallelType.Vectorize and isinstance(lanes, Split) and not lanes.is_divisible:
            source = lanes.inputs[0]
            condition = equal(source.extent % lanes.factor, 0)
            if any(node.op == "load" for node in source.extent.walk()):
                raise ScheduleError(
                    f"loop {loop} of {phased.reference.name} cannot be vectorized: whether {lanes.factor} divides "
                    f"{source} is data, which the host does not wait for"
                )
            why = f"{loop} cannot be vectorized: {lanes.factor} does not divide {source}"
            made.append(Requirement(condition, ScheduleError, why))
    return tuple(made)
