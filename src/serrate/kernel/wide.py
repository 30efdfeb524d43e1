"""Wide accesses: the lanes of a Vectorize loop load and store adjacent elements at once, by way of registers.

A loop over v lanes whose body is straight, at most under guards that hold for all lanes or for none, becomes

    allocate registers; load v elements; for each lane: as before, on registers; store v elements

for each place base + lane of a parameter whose base is the same for all lanes and proven a multiple of v. What is not
proven is accessed lane by lane, as before. The parameters must then be aligned, see `alignments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from serrate.fusion.binding import TORCH
from serrate.fusion.requirements import Requirement
from serrate.fusion.scalar import const
from serrate.fusion.types import Memory, ParallelType
from serrate.kernel.ir import Allocate, Buffer, For, GridReduce, If, Kernel, Let, Statement, replace_body, walk
from serrate.kernel.lanes import NATURAL, WIDEST, Known, Lanes, Wide
from serrate.kernel.source import word


def widened(kernel: Kernel, requirements: Sequence[Requirement] = ()) -> Kernel:
    """The kernel with wide accesses where they are proven right, of sizes for which the `requirements` hold.

    >>> from serrate.fusion import Fusion
    >>> from serrate.kernel import lower
    >>> fusion = Fusion()
    >>> y = fusion.output(fusion.unary("exp", fusion.input("x", ["n", 8])), "y").vectorize(1, 4)
    >>> print(widened(lower(fusion, y, target="cuda").kernel))
    kernel kernel(const float32 x[n * 8], float32 y[n * 8], n) of 1×1×1 blocks of 1×1×1 threads
      for i in n:  # i of y
        for d_outer in 2:  # d of y, by 4
          allocate register float32 x_lanes[4]
          for d_inner in 4: Vectorize  # d of y, within 4
            x_lanes[d_inner] = x[i * 8 + d_outer * 4 + d_inner]
          allocate register float32 y_lanes[4]
          for d_inner in 4: Vectorize  # d of y, within 4
            y_lanes[d_inner] = exp(x_lanes[d_inner])
          for d_inner in 4: Vectorize  # d of y, within 4
            y[i * 8 + d_outer * 4 + d_inner] = y_lanes[d_inner]
    """
    multiples = {}
    for required in requirements:
        condition = required.condition
        if condition.op == "equal" and condition.args[0].op == "index_remainder" and condition.args[1] == const(0):
            extent, factor = condition.args[0].args
            multiples[extent] = factor.value if factor.is_const else 1
    known = Known(multiples, dict.fromkeys(kernel.sizes, NATURAL))
    return replace(kernel, body=_Widening(kernel).body(kernel.body, known))


def alignments(kernel: Kernel) -> dict[str, int]:
    """The parameters that are accessed widely, and what their addresses must be multiples of, in bytes."""
    parameters = {buffer.name: buffer.dtype for buffer in kernel.buffers}
    found: dict[str, int] = {}
    for statement in walk(kernel.body):
        if isinstance(statement, Wide):
            name = statement.parameter
            size = statement.extent.value * TORCH[parameters[name]].itemsize
            found[name] = max(found.get(name, 1), min(size, WIDEST))
    return found


class _Widening:
    """The widening of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.parameters = {buffer.name: buffer for buffer in kernel.buffers}
        self.taken = _names(kernel)

    def body(self, body: tuple[Statement, ...], known: Known) -> tuple[Statement, ...]:
        made: list[Statement] = []
        for statement in body:
            if isinstance(statement, Let):
                known = known.bind(statement.var, known.divisor(statement.value), False)
            elif isinstance(statement, For):
                inside = known.bind(statement.var, 1, True)
                lanes = self.lanes(statement, inside)
                if lanes is not None:
                    made += lanes
                    continue
                statement = replace_body(statement, self.body(statement.body, inside))
            elif isinstance(statement, (If, GridReduce)):
                statement = replace_body(statement, self.body(statement.body, known))
            made.append(statement)
        return tuple(made)

    def lanes(self, loop: For, known: Known) -> list[Statement] | None:
        """What a loop over lanes becomes; None if it stays."""
        if loop.parallel != ParallelType.Vectorize or not loop.extent.is_const or isinstance(loop, Wide):
            return None
        return Lanes(loop, known, self.parameters, self.register).widened()

    def register(self, name: str, count: int) -> Buffer:
        """Registers for so many elements of a parameter."""
        wanted = word(f"{name}_lanes")
        made, number = wanted, 2
        while made in self.taken:
            made, number = f"{wanted}{number}", number + 1
        self.taken.add(made)
        return Buffer(made, self.parameters[name].dtype, const(count), Memory.REGISTER)


def _names(kernel: Kernel) -> set[str]:
    """Every name that a kernel declares."""
    statements = list(walk(kernel.body))
    variables = [statement.var for statement in statements if isinstance(statement, (For, Let))]
    local = [statement.buffer.name for statement in statements if isinstance(statement, Allocate)]
    symbols = [str(name.value) for name in (*kernel.sizes, *variables)]
    return set(map(word, [*symbols, *local, *(buffer.name for buffer in kernel.buffers)]))
