"""Operations of programs that no record stands behind: what users of Python have other ways to say.

`rank`, `size` and `shape` are attributes of a tensor there, a tensor is deleted by letting go of its name, and what a
caller gives is a tensor already. As instructions they call functions of `serrate.lowering.parts`.

Two operations of the proposal are no instructions. `result_type` gives a type, which is no value that a program could
hold: it is checked when a text is read, and left out of the program. `from_dlpack` takes the address of memory, which
means nothing in a text that another process reads: a program is given the tensor itself as an input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects.builtin import i64
from xdsl.ir import Attribute, SSAValue

from serrate.dialects.attributes import ELEMENTS, PTensor, as_ptensor
from serrate.dialects.objects import CannotRead, CannotWrite
from serrate.dialects.texts import builtin_type
from serrate.lowering import parts
from serrate.ops.effects import DELETE, FROM_RANKED
from serrate.program.program import Instruction, Program
from serrate.program.types import TensorType, Value

CHECKED = "result_type"
"""The operation that says something which is checked, and makes no instruction."""
FROM_DLPACK = "from_dlpack"
CALLED: dict[str, tuple[str, Callable[..., Any] | None]] = {
    "delete": (DELETE, None), "from_ranked": (FROM_RANKED, parts.from_ranked), "rank": ("x.rank", parts.rank),
    "size": ("x.size", parts.size), "shape": ("x.shape", parts.shape),
}  # fmt: skip
"""What the instruction of an operation is called, and what it calls."""
CLASSES = {op: name for name, (op, _) in CALLED.items()}
"""The operations of these instructions."""


def result_type_of(name: str, kind: PTensor) -> Attribute:
    """The type of the result of an operation: ranks and numbers of elements are no tensors in a text."""
    return i64 if name in ("rank", "size") else kind


def instruction_of(name: str, operands: list[Value], given: list[SSAValue], result: Any, where: str) -> Instruction:
    """The instruction that an operation is, which has the values `given` in a text."""
    op, function = CALLED[name]
    arguments = (*operands, given[0].type.name) if op == FROM_RANKED else tuple(operands)
    return Instruction(op, arguments, (), result, function, where=where)


def type_given(value: SSAValue) -> PTensor:
    """The type of a value of a function. What is no tensor of Serrate's has that of the tensor that is made of it."""
    kind = as_ptensor(value.type)
    if kind is not None:
        return kind
    made = [use.operation.results[0].type for use in value.uses if use.operation.name == f"ptensor.{FROM_RANKED}"]
    if not made:
        raise CannotRead(f"a value is no ptensor, but {value.type}")
    for other in made[1:]:
        if other != made[0]:
            raise CannotRead(f"ptensor.from_ranked makes {made[0]} and {other} of one value")
    assert isinstance(made[0], PTensor)
    return made[0]


def ranked_inputs(program: Program) -> dict[Value, str]:
    """The inputs that are no tensors of Serrate's, and what they are: "tensor" or "memref"."""
    return {each.arguments[0]: each.arguments[1] for each in program.instructions if each.op == FROM_RANKED}


def ranked_type(kind: TensorType, name: str) -> Attribute:
    """The type of such an input."""
    sizes = [each if isinstance(each, int) else "?" for each in kind.features]
    element = ELEMENTS.get(str(kind.dtype).removeprefix("torch."))
    if kind.axes or element is None:
        raise CannotWrite(f"{kind} is no {name}")
    return builtin_type(f"{name}<{''.join(f'{size}x' for size in sizes)}{element}>")
