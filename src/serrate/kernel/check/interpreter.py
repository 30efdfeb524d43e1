"""Running the source of a kernel: blocks in a random order, the threads of a block from one meeting to the next."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from random import Random
from typing import Any

import numpy as np

from serrate.fusion.analysis import evaluate
from serrate.fusion.scalar import Scalar
from serrate.fusion.types import ParallelType
from serrate.kernel.check.accesses import GlobalMemory, SharedMemory, Strand, Violation, outside
from serrate.kernel.check.boxes import copy_box
from serrate.kernel.check.numbers import CONVERT, array, environment, numpy_dtype, values
from serrate.kernel.check.statements import FILE, Program, Site, program
from serrate.kernel.ir import Barrier, BlockReduce, Buffer, BulkCopy, Fault, GridReduce, Kernel, head, walk

Position = tuple[int, int, int]  # of a block in the grid, or of a thread in its block, along x, y and z
ENGINE = -1  # the number of the copy engine among the threads of a block
Registers = tuple[list[Any], ...]  # for each component of a reduction's state, the registers of one thread


def run(
    kernel: Kernel,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    *,
    valid: Mapping[str, np.ndarray] | None = None,
    fill: Mapping[str, float] | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """The contents of the buffers that the kernel writes, if it keeps all rules; else a `Violation` is raised.

    `arrays` has the buffers that are read, and what written ones hold before, where they hold anything: counters must
    be given, as zeros. `valid` tells the elements of an output from its holes, and `fill` what its holes must hold
    afterwards. `seed` sets the order of the blocks. A bfloat16 buffer is a float32 array.

    >>> from serrate.fusion.scalar import const, load, symbol
    >>> from serrate.kernel.ir import Buffer, For, Kernel, Store
    >>> i, n = symbol("i"), symbol("n")
    >>> loop = For(i, n, (Store("y", i, load("x", i, "float32")),), "i")
    >>> kernel = Kernel("copy", (Buffer("x", "float32", n), Buffer("y", "float32", n, written=True)), (n,), (loop,))
    >>> run(kernel, {"x": np.arange(3, dtype=np.float32)}, {"n": 3})
    {'y': array([0., 1., 2.], dtype=float32)}
    """
    outputs = {
        buffer.name: _global_memory(kernel, buffer, arrays, sizes, valid or {}, fill or {})
        for buffer in kernel.buffers
        if buffer.written
    }
    with np.errstate(all="ignore"):
        _Grid(kernel, arrays, sizes, outputs).run(Random(seed))
    scratch = _workspaces(kernel)
    for name, memory in outputs.items():
        if name not in scratch:
            memory.finish()
    dtypes = {buffer.name: numpy_dtype(buffer.dtype, kernel.index) for buffer in kernel.buffers}
    return {name: array(memory.values, dtypes[name]) for name, memory in outputs.items()}


def _workspaces(kernel: Kernel) -> frozenset[str]:
    """Buffers that grid reductions use for themselves, and those that faults are reported in."""
    statements = list(walk(kernel.body))
    reductions = [statement for statement in statements if isinstance(statement, GridReduce)]
    used = [name for reduction in reductions for name in (*reduction.workspace, reduction.counter)]
    return frozenset([*used, *(statement.buffer for statement in statements if isinstance(statement, Fault))])


def _given(kernel: Kernel, buffer: Buffer, arrays: Mapping[str, np.ndarray], size: int) -> np.ndarray:
    given, dtype = arrays[buffer.name], numpy_dtype(buffer.dtype, kernel.index)
    if given.ndim != 1 or len(given) < size or given.dtype != dtype:
        wanted = f"{dtype} array of {size} elements"
        raise ValueError(f"{buffer.name} is a flat {wanted}, got {given.dtype} of shape {given.shape}")
    return given[:size]


def _global_memory(
    kernel: Kernel,
    buffer: Buffer,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    valid: Mapping[str, np.ndarray],
    fill: Mapping[str, float],
) -> GlobalMemory:
    name, size = buffer.name, evaluate(buffer.size, sizes)
    initial = values(_given(kernel, buffer, arrays, size), buffer.dtype) if name in arrays else None
    elements = valid.get(name)
    if elements is not None and elements.shape != (size,):
        raise ValueError(f"valid[{name!r}] has shape {elements.shape}, the buffer {size} elements")
    value = CONVERT[buffer.dtype](fill[name]) if name in fill else None
    return GlobalMemory(name, size, initial, elements, value)


def _positions(extents: Position) -> Iterator[Position]:
    """All positions within the extents. x changes fastest."""
    for z, y, x in product(*(range(extent) for extent in reversed(extents))):
        yield x, y, z


def _apart(position: Position, over: Sequence[ParallelType]) -> Position:
    """The position with 0 along the dimensions that a reduction combines: equal for all members of one group."""
    reduced = [parallel.name[-1] for parallel in over]
    x, y, z = (0 if name in reduced else c for name, c in zip("xyz", position, strict=True))
    return x, y, z


@dataclass
class _Block:
    """A block that is being run."""

    number: int
    position: Position
    epoch: int = 0  # barriers passed
    shared: dict[int, SharedMemory] = field(default_factory=dict)


class _Grid:
    def __init__(
        self,
        kernel: Kernel,
        arrays: Mapping[str, np.ndarray],
        sizes: Mapping[str, int],
        outputs: Mapping[str, GlobalMemory],
    ) -> None:
        self.program: Program = program(kernel)
        self.outputs = outputs
        self.dtypes = {buffer.name: buffer.dtype for buffer in kernel.buffers}
        self.blocks, self.threads = ([*_positions(_extents(d, sizes))] for d in _dims(kernel))
        self.launch = tuple(extent for dims in _dims(kernel) for extent in _extents(dims, sizes))
        self.loops = count()
        self.arrivals: dict[tuple[int, Position], set[int]] = {}  # blocks, by site and group
        self.names = self._bind(kernel, arrays, sizes)

    def _bind(self, kernel: Kernel, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> dict[str, Any]:
        """Run the source, with the free names of the program bound."""
        made = self.program
        names = {**environment(), **made.constants}
        limit = np.iinfo(kernel.index).max
        for symbol, name in made.sizes.items():
            if abs(sizes[symbol]) > limit:
                raise Violation(f"overflow: the size {symbol} = {sizes[symbol]} does not fit {kernel.index}")
            names[name] = int(sizes[symbol])
        for buffer in kernel.buffers:
            size = names[made.lengths[buffer.name]] = evaluate(buffer.size, sizes)
            if buffer.written:
                names[made.writes[buffer.name]] = self.outputs[buffer.name]
                continue
            given = _given(kernel, buffer, arrays, size)
            for (read, dtype), name in made.reads.items():
                if read == buffer.name:
                    names[name] = values(given, dtype)
        exec(made.code, names)
        return names

    def run(self, random: Random) -> None:
        order = list(enumerate(self.blocks))
        random.shuffle(order)
        for number, position in order:
            block = _Block(number, position)
            if self.program.sites:
                self._run_together(block)
            else:
                for thread in range(len(self.threads)):
                    self._go_on(block, thread, None, None)
        for (site, group), arrived in self.arrivals.items():
            if arrived:
                where = (
                    f"  at: {head(self.program.sites[site].statement)}\n  group {group}, by blocks {sorted(arrived)}"
                )
                raise Violation("a grid reduction not reached by all blocks of its group", where)

    def _enter(self, block: _Block, thread: int) -> Any:
        """Call the thread's function: begins a generator, or runs all of it."""

        def shared(number: int) -> SharedMemory:
            if number not in block.shared:
                buffer = self.program.shared[number]
                block.shared[number] = SharedMemory(buffer.name, buffer.size.value)
            return block.shared[number]

        strand = self._strand(block, thread)
        return self.names["thread"](*block.position, *self.threads[thread], self.launch, strand, shared, self.loops)

    @staticmethod
    def _strand(block: _Block, thread: int) -> Strand:
        return (0, block.number, block.epoch, thread)

    def _go_on(self, block: _Block, thread: int, generator: Generator[Any, Any, None] | None, answer: Any) -> Any:
        """Let a thread run to where it waits (the site and its state) or to its end (None)."""
        try:
            return self._enter(block, thread) if generator is None else generator.send(answer)
        except StopIteration:
            return None
        except Violation as error:
            raise Violation(error.what, self._where(error, block, thread)) from None

    def _where(self, error: Violation, block: _Block, thread: int) -> str:
        trace, found = error.__traceback__, ""
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == FILE:
                found = self.program.where(trace.tb_lineno, trace.tb_frame.f_locals)
            trace = trace.tb_next
        return f"{found}\n  block {block.position}, thread {self.threads[thread]}"

    def _run_together(self, block: _Block) -> None:
        """Run the threads of a block from one meeting to the next."""
        threads = [self._enter(block, thread) for thread in range(len(self.threads))]
        answers: list[Any] = [None] * len(threads)
        while True:
            waiting = [self._go_on(block, t, generator, answers[t]) for t, generator in enumerate(threads)]
            sites = [None if wait is None else wait[0] for wait in waiting]
            if len(set(sites)) > 1:
                self._fail_to_meet(block, sites)
            if not sites or sites[0] is None:
                return
            last = self._meet(block, sites[0], [wait[1] for wait in waiting])
            answers = [(self._strand(block, thread), last) for thread in range(len(threads))]

    def _fail_to_meet(self, block: _Block, sites: list[int | None]) -> None:
        first = min(site for site in sites if site is not None)
        there = [self.threads[t] for t, site in enumerate(sites) if site == first]
        others = [self.threads[t] for t, site in enumerate(sites) if site != first]
        where = f"  at: {head(self.program.sites[first].statement)}\n  block {block.position}, thread {there[0]}"
        raise Violation(f"a barrier not reached by all threads: thread {others[0]} is elsewhere", where)

    def _meet(self, block: _Block, number: int, states: list[Any]) -> bool:
        """What happens when all threads of a block are there; whether they go into the body of a grid reduction."""
        site = self.program.sites[number]
        try:
            match site.statement:
                case Barrier():
                    block.epoch += 1
                case BulkCopy():
                    copy_box(site.statement, states, (0, block.number, block.epoch, ENGINE))
                case BlockReduce():
                    self._reduce_block(site.statement, site, states)
                case GridReduce():
                    return self._reduce_grid(block, site.statement, number, states)
        except Violation as error:
            raise Violation(error.what, f"  at: {head(site.statement)}\n  block {block.position}") from None
        return False

    def _reduce_block(self, reduction: BlockReduce, site: Site, states: list[Registers]) -> None:
        groups: dict[Position, list[Registers]] = {}
        for thread, state in zip(self.threads, states, strict=True):
            groups.setdefault(_apart(thread, reduction.over), []).append(state)
        for group in groups.values():
            for element in range(reduction.size):
                result = self._fold(site, [_element(reduction.state, state, element) for state in group])
                for state in group:
                    _put(state, element, result)

    def _fold(self, site: Site, elements: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        combine, result = self.names[site.combine], elements[0]
        for element in elements[1:]:
            result = combine(*result, *element)
        return result

    def _reduce_grid(self, block: _Block, reduction: GridReduce, number: int, states: list[Registers]) -> bool:
        site, group = self.program.sites[number], _apart(block.position, reduction.over)
        members = [position for position in self.blocks if _apart(position, reduction.over) == group]
        groups = [position for position in self.blocks if _apart(position, reduction.over) == position]
        start = groups.index(group) * len(members)  # of the group's blocks in the workspace
        self._save(block, reduction, start + members.index(block.position), states)
        if not self._arrive(block, reduction, number, group, groups.index(group), len(members)):
            return False
        for thread, state in enumerate(states):
            for element in range(reduction.size):
                places = [self._place(reduction, start + member, thread, element) for member in range(len(members))]
                saved = [[self.outputs[name].values[place] for name in reduction.workspace] for place in places]
                _put(state, element, self._fold(site, [_converted(values, site.dtypes) for values in saved]))
        return True

    def _place(self, reduction: GridReduce, member: int, thread: int, element: int) -> int:
        return (member * len(self.threads) + thread) * reduction.size + element

    def _save(self, block: _Block, reduction: GridReduce, member: int, states: list[Registers]) -> None:
        """Store the state of a block's threads in the workspaces."""
        for thread, state in enumerate(states):
            for element in range(reduction.size):
                place = self._place(reduction, member, thread, element)
                dtypes = [self.dtypes[name] for name in reduction.workspace]
                saved = _converted(_element(reduction.state, state, element), dtypes)
                for name, value in zip(reduction.workspace, saved, strict=True):
                    self.outputs[name].store(place, value, self._strand(block, thread))

    def _arrive(
        self, block: _Block, reduction: GridReduce, number: int, group: Position, place: int, members: int
    ) -> bool:
        """Count a block in; whether it is the last of its group."""
        counter = self.outputs[reduction.counter]
        arrived = self.arrivals.setdefault((number, group), set())
        if not place < counter.size:
            outside(counter.name, place, counter.size)
        if counter.values[place] != len(arrived):
            held = f"{counter.values[place]} after {len(arrived)} arrivals"
            raise Violation(
                f"the counter {counter.name}[{place}] holds {held}: it must be 0 before, and of one reduction"
            )
        arrived.add(block.number)
        if len(arrived) == members:
            arrived.clear()
        counter.values[place] = CONVERT["int32"](len(arrived))
        return not arrived


def _dims(kernel: Kernel) -> tuple[tuple[Scalar, Scalar, Scalar], tuple[Scalar, Scalar, Scalar]]:
    return kernel.launch.grid, kernel.launch.block


def _extents(dims: tuple[Scalar, Scalar, Scalar], sizes: Mapping[str, int]) -> Position:
    x, y, z = (evaluate(extent, sizes) for extent in dims)
    return x, y, z


def _element(names: Sequence[str], state: Registers, element: int) -> tuple[Any, ...]:
    for name, registers in zip(names, state, strict=True):
        if registers[element] is None:
            raise Violation(f"load of {name}[{element}], which was never stored, by a reduction")
    return tuple(registers[element] for registers in state)


def _put(state: Registers, element: int, result: tuple[Any, ...]) -> None:
    for registers, value in zip(state, result, strict=True):
        registers[element] = value


def _converted(state: Sequence[Any], dtypes: Sequence[str]) -> tuple[Any, ...]:
    return tuple(CONVERT[dtype](value) for value, dtype in zip(state, dtypes, strict=True))
