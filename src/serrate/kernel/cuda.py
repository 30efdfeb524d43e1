"""Kernels as CUDA C++: blocks, threads, and what they combine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from serrate.errors import ScheduleError
from serrate.fusion.binding import TORCH
from serrate.fusion.dtypes import INDEX
from serrate.fusion.forms import POSTFIX, PRODUCT, SUM
from serrate.fusion.scalar import const
from serrate.fusion.types import Memory, ParallelType
from serrate.kernel.ir import (
    Allocate,
    Barrier,
    BlockReduce,
    Buffer,
    BulkCopy,
    CombineRule,
    For,
    GridReduce,
    Kernel,
    Launch,
    Statement,
    Store,
    head,
    walk,
)
from serrate.kernel.lanes import Wide
from serrate.kernel.source import Printer, check_distinct, complex_functions, dtypes, identifier, one_line, prelude

_HEADERS = {"float16": "#include <cuda_fp16.h>\n", "bfloat16": "#include <cuda_bf16.h>\n"}
THREADS_PER_BLOCK = 1024  # the most that every device can run


def source(*kernels: Kernel) -> str:
    """One CUDA source of kernels, which needs nothing but the headers of half precision where they have such."""
    check_distinct(kernels)
    found = frozenset[str]().union(*map(dtypes, kernels))
    headers = "".join(_HEADERS[dtype] for dtype in sorted(found & _HEADERS.keys()))
    boxes = any(isinstance(statement, BulkCopy) for kernel in kernels for statement in walk(kernel.body))
    preludes = [headers + prelude("prelude.cuh"), *([prelude("boxes.cuh")] if boxes else ())]
    return "\n".join([*preludes, *complex_functions(kernels), *map(_function, kernels)])


def _function(kernel: Kernel) -> str:
    printer = _CudaPrinter(kernel)
    block = kernel.launch.block
    bounds = f" __launch_bounds__({math.prod(d.value for d in block)})" if all(d.is_const for d in block) else ""
    head = f'extern "C" __global__ void{bounds} {identifier(kernel.name)}(\n{printer.parameters()}'
    return "\n".join([head, *printer.indented(kernel.body), "}", ""])


def reduction_bytes(kernel: Kernel, reduction: BlockReduce | GridReduce) -> int:
    """The shared memory that prelude.cuh takes for a reduction: what is exchanged by way of it."""
    if isinstance(reduction, GridReduce):
        return 1  # whether this block is the last
    local = {s.buffer.name: s.buffer.dtype for s in walk(kernel.body) if isinstance(s, Allocate)}
    widths = [TORCH[local[name]].itemsize for name in reduction.state]
    state = 0
    for width in (*widths, max(widths)):  # a struct: each part, and the end, at a multiple of its width
        state = -(-state // width) * width + width
    state -= max(widths)
    adjacent = _adjacent(kernel.launch, reduction.over)
    if adjacent is None:
        return _threads(kernel.launch) * state
    threads, count = adjacent
    return 0 if count <= 32 else threads // 32 * state


def _threads(launch: Launch) -> int:
    """How many threads a block has at most. A kernel that is never launched, since a loop of it is empty, has one."""
    block = launch.block
    return max(1, math.prod(dim.value for dim in block)) if all(dim.is_const for dim in block) else THREADS_PER_BLOCK


def _adjacent(launch: Launch, over: tuple[ParallelType, ...]) -> tuple[int, int] | None:
    """How many threads a block has, and how many of them are combined, if these are adjacent and fill whole warps."""
    if not all(dim.is_const for dim in launch.block):
        return None
    mine, others = _divide("TID", over)
    sizes = [dim.value for dim in launch.block]
    threads, count = math.prod(sizes), math.prod(sizes[dim] for dim in mine)
    last_mine = max((dim for dim in mine if sizes[dim] > 1), default=-1)
    adjacent = all(sizes[dim] == 1 for dim in others if dim < last_mine)
    whole_warps = threads > 0 and threads % 32 == 0
    return (threads, count) if adjacent and whole_warps and count & (count - 1) == 0 else None


class _CudaPrinter(Printer):
    target = "cuda"
    types: ClassVar[Mapping[str, str]] = {**Printer.types, "float16": "__half", "bfloat16": "__nv_bfloat16"}

    def loop(self, loop: For, last: bool) -> Iterator[str]:
        if loop.parallel == ParallelType.Thread:
            raise ScheduleError(
                f"the loop over {loop.axis} in kernel {self.kernel.name} is spread over threads of the CPU; "
                "on CUDA bind it to BIDx or TIDx"
            )
        if loop.parallel.is_block or loop.parallel.is_thread:
            # A scope of its own, unless it ends with the one around it.
            bound = list(self._bound(loop))
            yield from bound if last else ["{", *("  " + line for line in bound), "}"]
            return
        if isinstance(loop, Wide):
            yield self._wide(loop)
            return
        if loop.parallel != ParallelType.Serial:
            yield "#pragma unroll"
        yield from self.serial_loop(loop)

    def _wide(self, copy: Wide) -> str:
        (store,) = copy.body
        assert isinstance(store, Store)
        place = identifier(copy.parameter)
        if copy.base != const(0):
            place += f" + {self.expression(copy.base, PRODUCT)}"
        function, operands = "load", (identifier(store.buffer), place)
        if store.buffer == copy.parameter:
            function, operands = "store", (place, identifier(store.value.value))
        return f"sr::{function}<{copy.extent}>({', '.join(operands)});  // {one_line(copy.axis)}"

    def _bound(self, loop: For) -> Iterator[str]:
        yield (
            f"const {self.type(loop.var.dtype)} {identifier(loop.var.value)} = {loop.parallel.value};  // "
            f"{one_line(loop.axis)}, of {self.expression(loop.extent)}"
        )
        yield from self.lines(loop.body)

    def allocation(self, buffer: Buffer) -> str:
        boxes = {statement.to for statement in walk(self.kernel.body) if isinstance(statement, BulkCopy)}
        aligned = "alignas(16) " if buffer.name in boxes else ""  # as the copy engine asks
        return f"{'__shared__ ' if buffer.memory == Memory.SHARED else ''}{aligned}{self.declaration(buffer)}"

    def cooperation(self, statement: Statement) -> Iterator[str]:
        match statement:
            case Barrier():
                yield "__syncthreads();"
            case BulkCopy():
                yield from self._scope(self._bulk_copy(statement))
            case BlockReduce():
                yield from self._scope(self._block_reduce(statement))
            case GridReduce():
                yield from self._scope(self._grid_reduce(statement))

    def _scope(self, lines: Iterator[str]) -> Iterator[str]:
        yield "{"
        for line in lines:
            yield line if line.startswith("#") else "  " + line
        yield "}"

    # Boxes

    def _bulk_copy(self, copy: BulkCopy) -> Iterator[str]:
        """The rows of a box, the parts of it that lie together, each by one instruction of the copy engine. Rows that
        are not wholly inside, or do not begin at a multiple of 16 bytes, are copied and filled by the threads."""
        *outer, width = copy.box
        thread, threads = self._position((0, 1, 2), "thread"), self._count((0, 1, 2), "block")
        index = self.type(INDEX)
        starts = [self.expression(start, SUM) for start in copy.start]
        shape = [self.expression(extent, POSTFIX) for extent in copy.shape]
        yield f"// {one_line(head(copy))}"
        yield f"sr::BoxCopy copy({thread}, {threads});"
        yield f"for (int row = 0; row < {math.prod(outer)}; ++row) {{"
        place, inside = "", ""
        for dim, extent in enumerate(outer):
            after = math.prod(outer[dim + 1 :])
            number = "row" if after == 1 else f"row / {after}"
            yield f"  const {index} at{dim} = {starts[dim]} + {number if dim == 0 else f'{number} % {extent}'};"
            place = f"at{dim}" if not place else f"({place}) * {shape[dim]} + at{dim}"
            inside += f"at{dim} < {shape[dim]} && "
        start = starts[-1] if not place else f"({place}) * {shape[-1]} + {starts[-1]}"
        rest = f"{shape[-1]} - ({starts[-1]})"
        there = f"{inside[:-4]} ? {rest} : 0" if inside else rest
        yield f"  const {index} there = {there};"
        yield f"  copy.row<{width}>({identifier(copy.to)} + row * {width}, {identifier(copy.source)} + {start}, there);"
        yield "}"
        yield "copy.wait();"

    # Reductions

    def _block_reduce(self, reduce: BlockReduce) -> Iterator[str]:
        where = ", ".join(parallel.value for parallel in reduce.over)
        yield f"// {', '.join(map(identifier, reduce.state))}: combined over {where}"
        yield from self._state(reduce.state, reduce.combine)
        yield from self._each_element(
            reduce.size, [f"const State state = {self._reduced(reduce)};", *self._unpacked(reduce)]
        )

    def _reduced(self, reduce: BlockReduce) -> str:
        """The call that combines the states of threads: in registers if they are adjacent, else in shared memory."""
        launch, mine, others = self.kernel.launch, *_divide("TID", reduce.over)
        components = (self._component(name, reduce.size) for name in reduce.state)
        state = f"State{{{', '.join(components)}}}"
        adjacent = _adjacent(launch, reduce.over)
        if adjacent is not None:
            threads, together = adjacent
            thread = self._position((0, 1, 2), "thread")
            return f"sr::adjacent_reduce<{threads}, {together}>({state}, {thread}, combine)"
        rank, group = self._position(mine, "thread"), self._position(others, "thread")
        counts = f"{rank}, {self._count(mine, 'block')}, {group}, {self._count(others, 'block')}"
        return f"sr::block_reduce<{_threads(launch)}>({state}, {counts}, combine)"

    def _grid_reduce(self, reduce: GridReduce) -> Iterator[str]:
        where = ", ".join(parallel.value for parallel in reduce.over)
        mine, others = _divide("BID", reduce.over)
        thread, threads = self._position((0, 1, 2), "thread"), self._count((0, 1, 2), "block")
        yield f"// {', '.join(map(identifier, reduce.state))}: combined over {where} by the last block to arrive"
        yield from self._state(reduce.state, reduce.combine)
        yield f"const int blocks = {self._count(mine, 'grid')};"
        yield f"const int group = {self._position(others, 'block')};"
        # (group, block, thread, element)
        yield "const auto place = [=](int block, int element) {"
        size = "" if reduce.size == 1 else f" * {reduce.size}"
        yield f"  return ((int64_t(group) * blocks + block) * {threads} + {thread}){size} + element;"
        yield "};"
        mine_here = f"place({self._position(mine, 'block')}, {_element(reduce.size)})"
        yield from self._each_element(reduce.size, [
            f"{identifier(space)}[{mine_here}] = {self._component(name, reduce.size)};"
            for space, name in zip(reduce.workspace, reduce.state, strict=True)
        ])  # fmt: skip
        yield f"if (sr::last_to_arrive({identifier(reduce.counter)} + group, blocks)) {{"
        for line in self._each_element(reduce.size, self._combined_blocks(reduce)):
            yield line if line.startswith("#") else "  " + line
        yield from self.indented(reduce.body)
        yield "}"

    def _combined_blocks(self, reduce: GridReduce) -> list[str]:
        """The states of the blocks, taken from the workspace in their order."""
        spaces, element = [identifier(space) for space in reduce.workspace], _element(reduce.size)
        first = ", ".join(f"{space}[place(0, {element})]" for space in spaces)
        following = ", ".join(f"{space}[place(block, {element})]" for space in spaces)
        return [
            f"State state = {{{first}}};",
            "for (int block = 1; block < blocks; ++block) {",
            f"  state = combine(state, State{{{following}}});",
            "}",
            *self._unpacked(reduce),
        ]

    def _state(self, state: tuple[str, ...], rule: CombineRule) -> Iterator[str]:
        """The type of the states and the function that combines two of them."""
        yield "struct State {"
        for name in state:
            yield f"  {self.type(self._buffer(name).dtype)} {identifier(name)};"
        yield "};"
        for side, symbols in (("left", rule.left), ("right", rule.right)):
            self.named.update((s, f"{side}.{identifier(name)}") for s, name in zip(symbols, state, strict=True))
        yield "const auto combine = [=](State left, State right) {"
        yield from ("  " + line for line in self.parts(*rule.values))
        yield f"  return State{{{', '.join(map(self.expression, rule.values))}}};"
        self.named.clear()
        yield "};"

    def _unpacked(self, reduce: BlockReduce | GridReduce) -> Iterator[str]:
        """The combined state, back in the buffers."""
        return (f"{self._component(name, reduce.size)} = state.{identifier(name)};" for name in reduce.state)

    def _component(self, name: str, size: int) -> str:
        return self.element(name, const(0)) if size == 1 else f"{identifier(name)}[element]"

    def _each_element(self, size: int, lines: list[str]) -> Iterator[str]:
        if size == 1:
            yield from lines
            return
        yield "#pragma unroll"
        yield f"for (int element = 0; element < {size}; ++element) {{"
        yield from ("  " + line for line in lines)
        yield "}"

    def _size(self, dim: int, of: str) -> str:
        """How many blocks or threads there are along a dimension, a number where the launch says it."""
        extent = (self.kernel.launch.grid if of == "grid" else self.kernel.launch.block)[dim]
        return str(extent.value) if extent.is_const else f"int({of}Dim.{'xyz'[dim]})"

    def _count(self, dims: tuple[int, ...], of: str) -> str:
        sizes = [self._size(dim, of) for dim in dims]
        if all(size.isdigit() for size in sizes):
            return str(math.prod(map(int, sizes)))
        return " * ".join(size for size in sizes if size != "1")

    def _position(self, dims: tuple[int, ...], of: str) -> str:
        """The number of this thread or block among those that differ along some dimensions; x counts fastest."""
        text, level = "0", 9
        for dim in sorted(dims, reverse=True):
            size = self._size(dim, "block" if of == "thread" else "grid")
            if size == "1":
                continue
            index = f"int({of}Idx.{'xyz'[dim]})"
            text, level = (index, 9) if text == "0" else (f"{_grouped(text, level)} * {size} + {index}", 6)
        return text


def _element(size: int) -> str:
    """Which element of a state is combined."""
    return "0" if size == 1 else "element"


def _grouped(text: str, level: int) -> str:
    return text if level == 9 else f"({text})"


def _divide(prefix: str, over: tuple[ParallelType, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions of x, y, z that are reduced, and the others."""
    mine = tuple(dim for dim in range(3) if ParallelType[prefix + "xyz"[dim]] in over)
    return mine, tuple(dim for dim in range(3) if dim not in mine)
