"""Blocks and threads: how many a kernel is launched with, what a target can run, and what must hold of sizes."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from serrate.errors import ScheduleError
from serrate.fusion.axes import IterDomain
from serrate.fusion.domain import history
from serrate.fusion.expressions import Split
from serrate.fusion.requirements import Requirement, requirements_of
from serrate.fusion.scalar import Scalar, const, equal, less, less_equal, maximum, multiply
from serrate.fusion.types import ParallelType
from serrate.kernel.ir import Launch
from serrate.kernel.phases import Job, PhasedFusion, Role
from serrate.kernel.targets import Target

BLOCKS = (ParallelType.BIDx, ParallelType.BIDy, ParallelType.BIDz)
THREADS = (ParallelType.TIDx, ParallelType.TIDy, ParallelType.TIDz)


def index_bounds(phased: PhasedFusion) -> tuple[Scalar, ...]:
    """What indices of loops, and of the axes they are made of, stay below."""
    steps = history(phased.loops)
    axes = [*phased.loops, *(axis for step in steps for axis in (*step.inputs, *step.outputs))]
    return tuple(dict.fromkeys(axis.bound for axis in axes))


def is_bound(loop: IterDomain) -> bool:
    """Whether a loop is spread over threads or blocks."""
    return loop.parallel_type.is_thread or loop.parallel_type.is_block


def check_parallel_types(phased: PhasedFusion, target: Target) -> None:
    """Refuse what the target does not have, and what cannot be run so."""
    reference = phased.reference
    for loop in phased.loops:
        kind = loop.parallel_type
        if kind not in target.parallel_types:
            instead = f"; its lanes are {target.lanes.name}" if kind.is_lanes else ""
            raise ScheduleError(
                f"loop {loop} of {reference.name}: {kind.name} is not for the target {target.name!r}{instead}"
            )
        if kind.is_lanes and (loop.is_ragged or not loop.extent.is_const):
            raise ScheduleError(f"loop {loop} of {reference.name}: the number of lanes must be a constant")
        once = is_bound(loop) or kind == ParallelType.Thread
        if once and sum(other.parallel_type == kind for other in phased.loops) > 1:
            raise ScheduleError(f"loop {loop} of {reference.name}: another loop is {kind.name} already")


def launch_of(phased: PhasedFusion, target: Target) -> Launch:
    """As many as the loops are long; at least one where something does not depend on the loop, as it has a result even
    if the loop has no index."""
    sizes = {}
    for loop in phased.loops:
        reduced = any(phased.involves(job, loop) and _is_gone(phased, job, loop) for job in phased.jobs)
        lacking = any(not phased.involves(job, loop) for job in phased.jobs)  # done by the first along that axis
        sizes[loop.parallel_type] = maximum(loop.bound, 1) if reduced or lacking else loop.bound
    x, y, z = (sizes.get(kind, const(1)) for kind in THREADS)
    threads, most = x * y * z, target.threads_per_block
    if threads.is_const and threads.value > most:
        raise ScheduleError(f"{phased.reference}: a block has at most {most} threads, the schedule asks for {threads}")
    grid = (sizes.get(BLOCKS[0], const(1)), sizes.get(BLOCKS[1], const(1)), sizes.get(BLOCKS[2], const(1)))
    return Launch(grid, (x, y, z))


def dimensions(launch: Launch) -> Iterator[tuple[ParallelType, Scalar]]:
    """The dimensions of a launch that have more than one block or thread, or may have."""
    for kind, size in zip((*BLOCKS, *THREADS), (*launch.grid, *launch.block), strict=True):
        if size != const(1):
            yield kind, size


def reduces_across_threads(phased: PhasedFusion) -> bool:
    """Whether threads or blocks wait for each other."""
    return any(is_bound(loop) and _is_gone(phased, job, loop) for job in phased.jobs for loop in phased.loops_of(job))


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
    threads = [loop.bound for loop in phased.loops if loop.parallel_type.is_thread]
    if any(not size.is_const for size in threads):
        block, most = functools.reduce(multiply, threads), target.threads_per_block
        why = f"a block has at most {most} threads, {phased.reference} asks for {block}: split the axis by a constant"
        made.append(Requirement(less_equal(block, most), ScheduleError, why))
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
