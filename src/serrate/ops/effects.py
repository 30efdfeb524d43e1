"""Effects: what an instruction does to tensors besides making its results."""

from __future__ import annotations

from serrate.ops.record import TABLE
from serrate.program.program import Instruction
from serrate.program.types import Value

DELETE = "delete"
"""The instruction that frees a tensor, which nothing reads after it. It has no results, and no record: a user of Python
lets go of a tensor by letting go of its name."""

FROM_RANKED = "from_ranked"
"""The instruction that makes a tensor of the memory that a caller outside of Serrate gives."""


def writes(instruction: Instruction) -> bool:
    """Whether an instruction is a write of a record, which changes its first operand and gives nothing."""
    op = TABLE.get(instruction.op)
    return op is not None and op.writes and instruction.function is None


def changed_by(instruction: Instruction) -> tuple[Value, ...]:
    """The values that an instruction changes or frees.

    Of what a function does that is called, nothing is known here: it may change all that it is given. `inline-calls`
    puts what it does in the place of the call.
    """
    if instruction.op.startswith("@"):
        return instruction.operands
    return instruction.operands[:1] if instruction.op == DELETE or writes(instruction) else ()


def has_effects(instruction: Instruction) -> bool:
    """Whether an instruction may do more than make its results, or reads memory that is not Serrate's."""
    return instruction.op.startswith("@") or instruction.op in (DELETE, FROM_RANKED) or writes(instruction)
