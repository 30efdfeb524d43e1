"""Deleting: a value that was deleted is neither used, deleted again, nor returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from serrate.dialects.objects import CannotRead
from serrate.ops.effects import DELETE
from serrate.program.program import Instruction
from serrate.program.types import Value


class Deleting:
    """What one function has deleted so far.

    `functions` says of each function that it may call which of its inputs that one deletes.
    """

    def __init__(self, functions: Mapping[str, set[int]]) -> None:
        self.functions = functions
        self.deleted: dict[Value, str] = {}
        """Where each value was deleted: "file:line:column"."""

    def check(self, instruction: Instruction, place: str) -> None:
        """Refuse an instruction that uses what was deleted before it; note what it deletes itself."""
        for value in instruction.operands:
            if value in self.deleted:
                used = "deleted again" if instruction.op == DELETE else "used"
                raise CannotRead(f"%{value.name} is {used} after it was deleted at {self.deleted[value]}")
        is_call, operands = instruction.op.startswith("@"), instruction.operands
        freed = self.functions[instruction.op[1:]] if is_call else {0} if instruction.op == DELETE else set()
        for number in sorted(freed):
            if operands.count(operands[number]) > 1:
                raise CannotRead(
                    f"%{operands[number].name} is given to {instruction.op} twice, which deletes its operand {number}"
                )
            self.deleted[operands[number]] = place

    def check_returned(self, values: Iterable[Value]) -> None:
        """Refuse to return what was deleted."""
        for value in values:
            if value in self.deleted:
                raise CannotRead(f"%{value.name} is returned, though it was deleted at {self.deleted[value]}")
