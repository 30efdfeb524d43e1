"""Kernels as C++ for the CPU: OpenMP threads and vector lanes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from serrate.errors import ScheduleError
from serrate.fusion.dtypes import INDEX
from serrate.fusion.functions import FUNCTIONS
from serrate.fusion.scalar import Scalar, const
from serrate.fusion.types import Memory, ParallelType
from serrate.kernel.ir import Allocate, Buffer, For, If, Kernel, Let, Scan, Statement, expressions, scan_of, walk
from serrate.kernel.source import Printer, check_distinct, complex_functions, identifier, prelude


def source(kernels: Sequence[Kernel]) -> str:
    """One C++ source with a function for each kernel, which needs nothing but the C library.

    >>> from serrate.fusion.scalar import load, symbol
    >>> from serrate.kernel.ir import Buffer, For, Kernel, Store
    >>> n, i = symbol("n"), symbol("i")
    >>> double = Store("y", i, load("x", i, "float32") + load("x", i, "float32"))
    >>> x, y = Buffer("x", "float32", n), Buffer("y", "float32", n, written=True)
    >>> kernel = Kernel("double_it", (x, y), (n,), (For(i, n, (double,), "position"),))
    >>> print(source([kernel]).rpartition("// namespace sr")[2].strip())
    extern "C" void double_it_(
        const float* __restrict__ x_,  // [n_]
        float* __restrict__ y_,  // [n_]
        int64_t n_) {
      for (int64_t i_ = 0; i_ < n_; ++i_) {  // position
        y_[i_] = x_[i_] + x_[i_];
      }
    }
    """
    check_distinct(kernels)
    return "\n".join([head(), *complex_functions(kernels), *(_function(kernel) for kernel in kernels)])


def head() -> str:
    """What every source begins with."""
    return prelude("prelude.h").replace("\nVECTOR_FORMS\n", f"\n{_vector_forms()}\n")


def _vector_forms() -> str:
    """The declarations of those functions of C's library that have a vector form, for float and double."""
    rows = [row for row in FUNCTIONS.values() if row.has_vector_form]
    return "\n".join(
        f"VECTOR_FORM {kind} {row.name}{suffix}({', '.join([kind] * row.arity)}) noexcept;"
        for row in rows
        for kind, suffix in (("float", "f"), ("double", ""))
    )


def _function(kernel: Kernel) -> str:
    printer = _CppPrinter(kernel)
    head = f'extern "C" void {identifier(kernel.name)}(\n{printer.parameters()}'
    body = list(printer.indented(kernel.body))
    return "\n".join([head, *(f"  {line}" for line in printer.found_before()), *body, "}", ""])


def _with_names_again(body: tuple[Statement, ...], scan: Scan) -> tuple[Statement, ...]:
    """The body of a loop over lanes with names given again behind a scan, where C does not know those before it."""
    at = body.index(scan)
    before, after = body[:at], body[at + 1 :]
    needed = {symbol for statement in walk(after) for e in expressions(statement) for symbol in e.symbols}
    again: list[Statement] = []
    for statement in reversed(before):
        if isinstance(statement, Let) and statement.var in needed:
            needed |= statement.value.symbols
            again.insert(0, statement)
    return (*before, scan, *again, *after)


def _work(kernel: Kernel, loop: For) -> Scalar:
    """How much a loop has to do: as many elements as the buffers of the kernel have, or as its loops have indices
    together. Loops that are as long as a row do not count, since the elements of all rows are in a buffer."""
    sizes = list(dict.fromkeys(buffer.size for buffer in kernel.buffers))
    total = sizes[0]
    for size in sizes[1:]:
        total = total + size
    paths: list[tuple[Statement, Scalar, bool]] = [(loop, const(1), True)]
    known, counts = set(kernel.sizes), [total]
    while paths:
        statement, count, is_counted = paths.pop()
        if isinstance(statement, For):
            extent = statement.extent
            block = next((each for each in extent.args if extent.op == "minimum" and each.is_const), None)
            if is_counted and block is not None:  # a block of a loop that has counted its blocks
                extent = block
            is_counted = extent.symbols <= known
            if is_counted:
                count = count * extent
                counts.append(count)
        paths += [(inner, count, is_counted) for inner in getattr(statement, "body", ())]

    def as_large(size: Scalar) -> int:
        given = size.substitute({each: const(1000) for each in size.symbols})
        return int(given.value) if given.is_const else 0

    return max(counts, key=as_large)


LEAST_WORK = 32768
"""So many elements are worth several threads. torch takes them from as many on, so that results of the one stay in the
cache of the core that the other uses."""


class _CppPrinter(Printer):
    target = "cpp"
    types: ClassVar[Mapping[str, str]] = {**Printer.types, "float16": "_Float16", "bfloat16": "sr::bfloat16"}

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.threaded = False  # inside a loop that is spread over threads
        self.depth = 0  # how many loops are open
        self.scratches = 0
        self.lanes = False  # inside a loop whose iterations are lanes
        self.guarded = False  # under a condition that the innermost loop of many iterations asks
        self.searches = 0

    def search(self, offsets: str, count: str, position: str) -> str:
        """Positions are mostly asked for one after another: the component that was found last is tried first. Lanes do
        not know what others found."""
        if self.lanes:
            return super().search(offsets, count, position)
        self.searches += 1
        return f"sr::search_from(near{self.searches}, {offsets}, {count}, {position})"

    def found_before(self) -> list[str]:
        """The variables with the components that were found last."""
        return [f"{self.type(INDEX)} near{number} = 0;" for number in range(1, self.searches + 1)]

    def loop(self, loop: For, last: bool) -> Iterator[str]:
        if loop.parallel == ParallelType.Thread and not self.threaded:
            # Enough chunks to balance rows of uneven length, few enough to cost nothing.
            chunk, work = self.expression(loop.extent // 64 + 1), self.expression(_work(self.kernel, loop))
            pragma = f"#pragma omp parallel for schedule(dynamic, {chunk}) if ({work} > {LEAST_WORK})"
            self.threaded, first = True, self.searches + 1
            lines = list(self.serial_loop(loop))
            self.threaded = False
            own = ", ".join(f"near{number}" for number in range(first, self.searches + 1))
            yield f"{pragma} firstprivate({own})" if own else pragma
            yield from lines
            return
        if loop.parallel.is_lanes:
            scan = scan_of(loop)
            state = "" if scan is None else f" reduction(inscan, {scan.operator}: {identifier(scan.state)})"
            loop = loop if scan is None else replace(loop, body=_with_names_again(loop.body, scan))
            yield f"#pragma omp simd{state}"
            outer, self.lanes = self.lanes, True
            yield from self.serial_loop(loop)
            self.lanes = outer
            return
        if self._reads_what_may_be_masked(loop):
            yield "#pragma GCC unroll 1"
        elif loop.parallel == ParallelType.Unroll:
            yield f"#pragma GCC unroll {min(loop.extent.value, 65534) if loop.extent.is_const else 4}"
        yield from self.serial_loop(loop)

    def _reads_what_may_be_masked(self, loop: For) -> bool:
        """Whether a loop of a constant number of iterations must stay one, since it reads memory under a condition.

        GCC up to 12 takes such a loop apart, makes lanes of the loop around it, and then masks the loads of all its
        iterations as it does those of the first: elements that are there are read as 0.
        """
        loops = [loop, *(statement for statement in walk(loop.body) if isinstance(statement, For))]
        if any(not each.extent.is_const or each.parallel.is_lanes for each in loops) or loop.extent.value < 2:
            return False
        inside = [part for statement in walk(loop.body) for part in expressions(statement)]
        if self.guarded or any(isinstance(statement, If) for statement in walk(loop.body)):
            return any(self._reads_memory(part) for part in inside)
        choices = (node for part in inside for node in part.walk() if node.op in ("where", "logical_and", "logical_or"))
        return any(self._reads_memory(branch) for node in choices for branch in node.args[1:])

    def _reads_memory(self, value: Scalar) -> bool:
        """Whether an expression reads what the kernel was given."""
        given = {buffer.name for buffer in self.kernel.buffers}
        return any(node.op == "load" and node.value in given for node in value.walk())

    def serial_loop(self, loop: For) -> Iterator[str]:
        self.depth += 1
        outer, self.guarded = self.guarded, self.guarded and loop.extent.is_const and not loop.parallel.is_lanes
        yield from super().serial_loop(loop)
        self.guarded = outer
        self.depth -= 1

    def statement(self, statement: Statement, last: bool) -> Iterator[str]:
        outer, self.guarded = self.guarded, self.guarded or (isinstance(statement, If) and self.depth > 0)
        yield from super().statement(statement, last)
        self.guarded = outer
        if isinstance(statement, Allocate) and statement.buffer.memory == Memory.SCRATCH:
            # Memory was short, which is counted: the caller learns it, and what was to be written here is not.
            leave = "continue" if self.depth else "return"
            yield f"if ({identifier(statement.buffer.name)} == nullptr) {leave};"

    def element_type(self, buffer: Buffer) -> str:
        """Truths lie in memory as bytes: of loads of bool, GCC makes no lanes."""
        return "uint8_t" if buffer.dtype == "bool" and not self._is_variable(buffer) else super().element_type(buffer)

    def scan(self, statement: Scan) -> str:
        """Where lanes have added up."""
        return f"#pragma omp scan inclusive({identifier(statement.state)})"

    def allocation(self, buffer: Buffer) -> str:
        if buffer.memory == Memory.SCRATCH:
            kind, name = self.element_type(buffer), identifier(buffer.name)
            self.scratches += 1
            return f"{kind}* const {name} = sr::scratch<{kind}, {self.scratches}>({self.expression(buffer.size)});"
        return f"{'' if self._is_variable(buffer) else 'alignas(64) '}{self.declaration(buffer)}"

    def cooperation(self, statement: Statement) -> Iterator[str]:
        raise ScheduleError(
            f"kernel {self.kernel.name} has a {type(statement).__name__}: threads of a block wait for each other, "
            "which they only can on CUDA"
        )
