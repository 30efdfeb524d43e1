"""The parameters of a kernel: which buffers and sizes its body uses, and how offsets that nobody gives are found."""

from __future__ import annotations

from collections.abc import Sequence

from serrate.fusion.binding import raggedness_of
from serrate.fusion.raggedness import Raggedness, Stored
from serrate.fusion.scalar import Scalar, const, symbol
from serrate.fusion.strides import span_of
from serrate.fusion.view import TensorView
from serrate.kernel.ir import Buffer, BulkCopy, Fault, GridReduce, Launch, Statement, Store, expressions, walk
from serrate.kernel.phases import PhasedFusion
from serrate.kernel.teams import Team, memory_axes


def parameters(
    phased: PhasedFusion, body: tuple[Statement, ...], launch: Launch, workspaces: Sequence[Buffer], team: Team | None
) -> tuple[tuple[Buffer, ...], tuple[Scalar, ...], dict[str, Raggedness]]:
    """The buffers a body uses (inputs, offsets that follow from others, outputs, workspaces), its sizes, and how those
    offsets follow."""
    used = _names(body)
    known = raggedness_of(phased.fusion)
    tensors = {tensor.name: tensor for tensor in phased.fusion.tensors}
    derived: dict[str, Raggedness] = {}
    buffers = [Buffer(t.name, t.dtype, _size(t, None)) for t in phased.fusion.inputs if t.name in used]
    for name in used:
        if name in tensors and isinstance(known.get(name), Raggedness) and not isinstance(known[name], Stored):
            raise _taken(name, f"{tensors[name]}")
        if name in tensors and is_offsets(tensors[name]):
            buffers.append(Buffer(name, "int64", _size(tensors[name], None)))
        elif name in known and name not in tensors:
            derived[name] = known[name]
            buffers.append(Buffer(name, "int64", known[name].count + 1))
    buffers += [Buffer(t.name, t.dtype, _size(t, team), written=True) for t in phased.outputs]
    buffers += workspaces
    buffers += [Buffer(name, "int64", const(1), written=True) for name in faults(body)]
    sizes = _sizes(body, buffers, launch)
    for size in sizes:
        if size.value in derived:
            raise _taken(str(size.value), "the size")
    return tuple(buffers), sizes, derived


def _taken(name: str, other: str) -> ValueError:
    return ValueError(f"{name!r} is the name of offsets that the kernel computes; rename {other}")


def faults(body: tuple[Statement, ...]) -> list[str]:
    """The buffers in which faults are reported, which hold one number: that of a fault, or 0."""
    return list(dict.fromkeys(statement.buffer for statement in walk(body) if isinstance(statement, Fault)))


def is_offsets(tensor: TensorView) -> bool:
    return tensor.definition is not None and tensor.definition.kind == "offsets"


def _size(tensor: TensorView, team: Team | None) -> Scalar:
    """The elements of a tensor; by a name, bound to what is given, where lengths that are data decide, or strides."""
    if tensor.strides is not None:
        return span_of(tensor)
    size = const(1)
    for axis in memory_axes(team, tensor):
        size = size * axis.extent
    return symbol(f"{tensor.name}_size") if any(node.op == "load" for node in size.walk()) else size


def _names(body: tuple[Statement, ...]) -> list[str]:
    """Arrays that are loaded from, searched or stored to, in the order of use."""
    found: dict[str, None] = {}
    for statement in walk(body):
        for expression in expressions(statement):
            found.update(dict.fromkeys(node.value for node in expression.walk() if node.op in ("load", "search")))
        if isinstance(statement, BulkCopy):
            found[statement.source] = None
        if isinstance(statement, Store):
            found[statement.buffer] = None
        if isinstance(statement, GridReduce):
            found.update(dict.fromkeys((*statement.workspace, statement.counter)))
    return list(found)


def _sizes(body: tuple[Statement, ...], buffers: Sequence[Buffer], launch: Launch) -> tuple[Scalar, ...]:
    """Symbols that nothing in the body binds."""
    everything = [e for statement in walk(body) for e in expressions(statement)]
    everything += [buffer.size for buffer in buffers] + [*launch.grid, *launch.block]
    bound = {statement.var for statement in walk(body) if hasattr(statement, "var")}
    found = {symbol for expression in everything for symbol in expression.symbols}
    return tuple(sorted(found - bound, key=lambda symbol: str(symbol.value)))
