"""What a kernel costs before it runs: the bytes that must move, and the memory that its schedule asks for.

All of it is expressions of sizes, or numbers: nothing here looks at data. What lengths of rows decide is given by what
the host knows them not to exceed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serrate.errors import ScheduleError
from serrate.fusion.axes import ragged
from serrate.fusion.binding import TORCH, room
from serrate.fusion.fusion import Fusion
from serrate.fusion.raggedness import Raggedness
from serrate.fusion.scalar import Scalar, const, rebuild
from serrate.fusion.simplify import simplify
from serrate.fusion.types import Memory
from serrate.fusion.view import TensorView
from serrate.kernel.ir import (
    Allocate,
    BlockReduce,
    Buffer,
    BulkCopy,
    GridReduce,
    Kernel,
    Let,
    Statement,
    children,
    walk,
)
from serrate.kernel.parameters import faults
from serrate.kernel.targets import Target

BOX_BYTES = 8  # of shared memory, by which threads wait for a box


@dataclass(frozen=True)
class Needs:
    """The memory that a kernel asks for, in bytes."""

    registers: int
    """Of each thread: what is declared in its registers at once, at most. On the CPU it lies on the stack."""
    shared: int
    """Of each block: what its threads share, with what reductions across them take."""
    scratch: Scalar
    """Of each thread of the CPU: values that are kept, as many as is known only when the kernel runs."""
    workspace: Scalar
    """Of each launch: what blocks leave for the last of them."""


def moved_bytes(kernel: Kernel, fusion: Fusion) -> Scalar:
    """The bytes of all buffers that a kernel reads or writes, each once and whole.

    No schedule moves fewer, unless indices that are data leave out a part of a table.

    >>> from serrate.fusion.analysis import evaluate
    >>> from serrate.kernel import lower
    >>> fusion = Fusion()
    >>> y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n", 8]), [1]), "y")
    >>> evaluate(moved_bytes(lower(fusion, y).kernel, fusion), {"n": 10})
    360
    """
    tensors = {tensor.name: tensor for tensor in fusion.tensors}
    left_out = _workspaces(kernel)
    total = const(0)
    for buffer in kernel.buffers:
        if buffer.name not in left_out:
            tensor = tensors.get(buffer.name)
            total = total + (buffer.size if tensor is None else _capacity(tensor)) * _width(buffer)
    return simplify(total)


def _capacity(tensor: TensorView) -> Scalar:
    size = const(1)
    for axis in tensor.domain.allocation:
        known = room(axis)
        size = size * (axis.bound if known is None else known)
    return size


def _width(buffer: Buffer) -> int:
    return TORCH[buffer.dtype].itemsize


def _workspaces(kernel: Kernel) -> set[str]:
    """The buffers that hold nothing before and after."""
    reductions = [statement for statement in walk(kernel.body) if isinstance(statement, GridReduce)]
    return {name for each in reductions for name in (*each.workspace, each.counter)} | {*faults(kernel.body)}


def needs(kernel: Kernel, target: Target, raggedness: Mapping[str, Raggedness]) -> Needs:
    """The memory that a kernel asks for on a target; `raggedness` says what rows do not exceed, by their offsets."""
    local = [s.buffer for s in walk(kernel.body) if isinstance(s, Allocate)]
    values = {s.var: s.value for s in walk(kernel.body) if isinstance(s, Let)}
    scratch = const(0)
    for buffer in local:
        if not buffer.size.is_const:
            scratch = scratch + _bound(buffer.size, values, raggedness) * _width(buffer)
    space = const(0)
    for buffer in kernel.buffers:
        if buffer.name in _workspaces(kernel):
            space = space + buffer.size * _width(buffer)
    return Needs(_registers(kernel.body), _shared(kernel, target), simplify(scratch), simplify(space))


def _shared(kernel: Kernel, target: Target) -> int:
    """What the threads of a block share; a compiler keeps all of it to the end."""
    total = sum(int(buffer.size.value) * _width(buffer) for buffer in _shared_buffers(kernel))
    reductions = [s for s in walk(kernel.body) if isinstance(s, (BlockReduce, GridReduce))]
    total += BOX_BYTES * any(isinstance(statement, BulkCopy) for statement in walk(kernel.body))
    return total + sum(target.reduction_bytes(kernel, reduction) for reduction in reductions)


def _shared_buffers(kernel: Kernel) -> list[Buffer]:
    local = [statement.buffer for statement in walk(kernel.body) if isinstance(statement, Allocate)]
    return [buffer for buffer in local if buffer.memory == Memory.SHARED]


def _registers(body: tuple[Statement, ...]) -> int:
    """What is declared at once: bodies that follow each other do not hold theirs at the same time."""
    own = [s.buffer for s in body if isinstance(s, Allocate) and s.buffer.memory == Memory.REGISTER]
    inside = max((_registers(children(statement)) for statement in body), default=0)
    return inside + sum(int(buffer.size.value) * _width(buffer) for buffer in own if buffer.size.is_const)


def _bound(size: Scalar, values: Mapping[Scalar, Scalar], raggedness: Mapping[str, Raggedness]) -> Scalar:
    """What a size does not exceed, without names of the kernel's own and without data."""
    if size in values:
        return _bound(values[size], values, raggedness)
    if size.op == "subtract" and all(part.op == "load" for part in size.args):
        (end, start) = size.args  # the length of a row
        if end.value == start.value and end.value in raggedness:
            return raggedness[end.value].longest_bound
    if size.op == "load":
        raise ValueError(f"{size} is data, of which nothing is known before the kernel runs")
    return rebuild(size, tuple(_bound(part, values, raggedness) for part in size.args)) if size.args else size


def raggedness_by_array(fusion: Fusion) -> dict[str, Raggedness]:
    """The raggedness of all axes by the names of their offsets."""
    axes = [axis for tensor in fusion.tensors for axis in (*tensor.domain.root, *tensor.domain.logical)]
    found = [ragged(axis).raggedness for axis in axes if axis.is_ragged]
    return {each.array: each for outer in found for each in (outer, *outer.bases)}


def check_needs(kernel: Kernel, target: Target, reference: TensorView) -> None:
    """Refuse a kernel under the loops of a reference whose threads share more memory than the target has."""
    shared, most = _shared(kernel, target), target.limits.shared_bytes
    if shared > most:
        parts = [f"{buffer.size} × {buffer.dtype} for {buffer.name}" for buffer in _shared_buffers(kernel)]
        if any(isinstance(statement, (BlockReduce, GridReduce)) for statement in walk(kernel.body)):
            parts.append("reductions across threads")
        raise ScheduleError(
            f"{reference}: a block has at most {most} bytes of shared memory, the schedule asks for {shared} "
            f"({', '.join(parts)})"
        )
