"""lower-ptensor over teams: what each process of a team computes of tensors that the team holds in parts.

The team cuts the first axis of a tensor and says which part a process holds: `dist.init_dtensor` makes a tensor known
to it, `dist.local_shape` and `dist.local_slice` are the part. A tensor without axes is the same in all processes.
Creation makes the part alone, functions of elements and reductions along other axes compute the part of their result
from the parts of their operands, and a reduction of all elements is finished by the team. Every other operation on
parts needs a rule of its own, and is refused until it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter
from typing import Any

from xdsl.dialects.arith import AddiOp, MuliOp
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, IndexType, StringAttr, i64
from xdsl.dialects.builtin import TensorType as BuiltinTensor
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from serrate.dialects import dist, host
from serrate.dialects.attributes import TermAttr
from serrate.dialects.layouts import ELEMENTS, Layout, lowered_type
from serrate.dialects.objects import NONE, CannotWrite
from serrate.dialects.terms import Node, Term
from serrate.dialects.to_host import Lowering, Parts
from serrate.dialects.to_text import attribute_of, placed_at
from serrate.ops.record import TABLE
from serrate.passes.lower_ptensor import Called, Cutter, Fused, Step
from serrate.program.program import Instruction, Program, replaced, values_in
from serrate.program.types import Value

INDEX = IndexType()
HELD = "host.held"
"""The attribute of a function that says what its inputs are as wholes, and which teams hold them."""
_CREATION = ("arange", "create", "eye", "linspace")
_OF_ELEMENTS = (
    "elementwise_unary_op", "elementwise_unary_test", "elementwise_binary_op", "elementwise_binary_test", "cast",
    "where", "create_like",
)  # fmt: skip
"""Classes of operations that compute each element of their result from the same elements of their operands."""

Rule = Callable[["Distributing", Instruction], None]


@dataclass(frozen=True)
class _Place:
    """What a process holds of a tensor: how many elements of the first axis, and from which one on."""

    size: SSAValue
    begin: SSAValue


def teams_of(program: Program) -> dict[str, int]:
    """The teams of the values of a program that have one, by the names of these."""
    values = [*program.inputs, *(value for each in program.instructions for value in each.results)]
    return {str(value.name): value.type.team for value in values if value.type.team is not None}


def without_teams(program: Program) -> Program:
    """The program whose tensors lie in one process."""

    def alone(part: Any) -> Any:
        return Value(replace(part.type, team=None), part.name) if isinstance(part, Value) else part

    def changed(each: Instruction) -> Instruction:
        named = tuple((name, replaced(part, alone)) for name, part in each.named)
        return replace(
            each, arguments=replaced(each.arguments, alone), named=named, result=replaced(each.result, alone)
        )

    return replace(
        program,
        inputs=tuple(alone(each) for each in program.inputs),
        instructions=tuple(map(changed, program.instructions)),
        outputs=replaced(program.outputs, alone),
    )


class Distributing(Lowering):
    """What writes a program whose tensors a team holds in parts."""

    def __init__(self, program: Program) -> None:
        self.teams = teams_of(program)
        self._between: dict[Value, int] = {}
        """The teams of values that one step alone knows."""
        super().__init__(without_teams(program))
        self._gids: dict[Value, SSAValue] = {}
        self._places: dict[Value, _Place] = {}

    def function(self, name: str) -> FuncOp:
        """The function that the program became, which says what teams hold of its inputs: parts do not say it."""
        made = super().function(name)
        held = [replace(each.type, team=self.team_of(each)) for each in self.program.inputs]
        if any(each.team is not None for each in held):
            made.attributes[HELD] = ArrayAttr([Layout(self.scope.type_written(each).data) for each in held])
        return made

    def team_of(self, value: Value) -> int | None:
        """The team that holds a value."""
        return self.teams.get(str(value.name), self._between.get(value))

    def type_of(self, value: Value) -> Attribute:
        """The type of the part of a value that a process holds."""
        if self.team_of(value) is None:
            return super().type_of(value)
        element = ELEMENTS[str(value.type.dtype).removeprefix("torch.")]
        shape = _shape(value)
        return BuiltinTensor(element, [DYNAMIC_INDEX, *shape[1:]] if shape else [])

    def parts_of(self, value: Value, tensor: SSAValue) -> Parts:
        """What a value became, whose tensor has just been made."""
        team = self.team_of(value)
        return Parts(tensor) if team is None else Parts(tensor, None, self.number(team, i64), self._gids.get(value))

    def write(self, program: Program, name: str) -> None:
        """Write instructions together as far as they need no part of another process."""
        waiting: list[Instruction] = []
        for number, instruction in enumerate(program.instructions):
            rule = self._rule(instruction)
            if rule is not None:
                self._together(waiting, program.instructions[number:], name)
                waiting = []
                rule(self, instruction)
            else:
                waiting.append(instruction)
        self._together(waiting, (), name)

    def _rule(self, instruction: Instruction) -> Rule | None:
        """What writes an instruction that takes other processes; None for one that a process computes alone."""
        if all(self.team_of(value) is None for value in (*instruction.operands, *instruction.results)):
            return None
        if instruction.op.startswith("@"):
            return Distributing.call_function
        op = TABLE.get(instruction.op)
        of = op.dialect.of if op is not None and op.dialect is not None and instruction.function is None else ""
        if of in _CREATION and not instruction.operands:
            return None
        if of in _OF_ELEMENTS:
            self._check_shapes(instruction)
            return None
        if of in ("reduce", "test"):
            return _finish if self._reduces_parts(instruction) else None
        if of == "extract_slice":
            return _view
        raise _refusal(instruction, "it has no rule for tensors that a team holds in parts")

    def _check_shapes(self, instruction: Instruction) -> None:
        """Refuse operands whose parts are not of the same elements."""
        wanted = _shape(instruction.result)
        for each in instruction.operands:
            if self.team_of(each) is None or _shape(each) not in (wanted, ()):
                raise _refusal(instruction, f"{each.name} is {each.type}, whose parts are not those of the result")

    def _reduces_parts(self, instruction: Instruction) -> bool:
        """Whether a reduction needs the elements of all processes."""
        op, (operand,) = TABLE[instruction.op], instruction.operands
        named = op.signature.bind(*instruction.arguments, **dict(instruction.named)).arguments
        axis, rank = named.get("axis"), len(_shape(operand))
        axes = {each % rank for each in ((axis,) if isinstance(axis, int) else axis or range(rank))} if rank else set()
        if 0 not in axes:
            return False
        assert op.dialect is not None
        if op.dialect.kind not in dist.KINDS or _shape(instruction.result) != ():
            raise _refusal(instruction, f"a team reduces all elements, by {', '.join(dist.KINDS)}")
        return True

    def _together(self, waiting: Sequence[Instruction], later: Sequence[Instruction], name: str) -> None:
        """Write instructions that need no other process."""
        if not waiting:
            return
        made = [value for each in waiting for value in each.results]
        read = {value for each in later for value in each.operands} | set(values_in(self.program.outputs))
        for each in waiting:
            for value in each.results:
                if value in read or not each.operands:
                    self.make_known(value)
                if not each.operands:
                    self._find_place(value)
        created = [each for each in waiting if not each.operands and each.op != "arange"]
        for each in created:  # an operation may be made of others, which know nothing of parts
            self.write_step(Called(each, "it makes a part"))
        rest = [each for each in waiting if each not in created]
        inside = {value for each in rest for value in each.results}
        inputs = dict.fromkeys(value for each in rest for value in each.operands if value not in inside)
        part = Program(tuple(inputs), tuple(rest), [value for value in made if value in read and value in inside])
        for step in Cutter(part, name=name).run():
            self.write_step(step)

    def write_step(self, step: Step) -> None:
        """Write a step, whose values in between are parts as its results are."""
        if isinstance(step, Fused):
            values = [value for each in step.instructions for value in (*each.operands, *each.results)]
            team = next((found for found in map(self.team_of, values) if found is not None), None)
            self._between = {value: team for value in values if team is not None}
        super().write_step(step)
        self._between = {}

    # ----------------------------------------------------------------------------------------------- what teams know

    def make_known(self, value: Value) -> SSAValue | None:
        """Let the team of a value know it, and return its number there."""
        team = self.team_of(value)
        if team is None:
            return None
        shape = [self.number(size) for size in _shape(value)]
        self._gids[value] = self.dist("init_dtensor", [self.number(team, i64), *shape], [i64])[0]
        self._gids[value].name_hint = "gid"
        return self._gids[value]

    def _find_place(self, value: Value) -> None:
        """Ask the team which part of a value this process holds."""
        team, rank = self.team_of(value), len(_shape(value))
        if team is None or not rank:
            return
        known = [self.number(team, i64), self._gids[value]]
        shape = self.dist("local_shape", known, [INDEX] * rank)
        cut = self.dist("local_slice", known, [INDEX] * 3 * rank)
        shape[0].name_hint, cut[0].name_hint = "lshape", "lslice"
        self._places[value] = _Place(shape[0], cut[0])

    def freeing(self, parts: Parts) -> list[Operation]:
        """The operations that give back the memory of a tensor, of which its team forgets the number."""
        if parts.team is None or parts.gid is None:
            return super().freeing(parts)
        forgotten = dist.OPERATIONS["fini_dtensor"].create(operands=[parts.team, parts.gid])
        return [forgotten, *super().freeing(parts)]

    def dist(self, name: str, operands: Sequence[SSAValue], results: Sequence[Attribute], **said: str) -> Any:
        """Add an operation of the dist dialect, and return its results."""
        attributes: dict[str, Attribute] = {key: StringAttr(each) for key, each in said.items()}
        return self.add(
            dist.OPERATIONS[name].create(operands=operands, result_types=results, attributes=attributes)
        ).results

    # ------------------------------------------------------------------------------------------------------ creation

    def called_ops(self, instruction: Instruction) -> list[Operation]:
        """The calls that an instruction is; what creates a tensor of a team creates the part of it."""
        result = instruction.result
        if not isinstance(result, Value) or result not in self._places:
            return super().called_ops(instruction)
        bound = TABLE[instruction.op].signature.bind(*instruction.arguments, **dict(instruction.named))
        bound.apply_defaults()
        given, place, operands = dict(bound.arguments), self._places[result], list[SSAValue]()
        said: dict[str, Term] = {key: self.scope.written(each) for key, each in given.items() if each is not None}

        def operand(value: SSAValue) -> Node:
            operands.append(value)
            return Node("operand", (len(operands) - 1,))

        if "shape" in given:
            said["shape"] = Node("tuple", (operand(place.size), *_shape(result)[1:]))
        elif instruction.op == "eye":
            said |= {"n_rows": operand(place.size), "n_cols": _shape(result)[1]}
            said["k"] = operand(self._sum(place.begin, self.number(given["k"])))
        elif instruction.op == "arange" and all(type(given[key]) in (int, type(None)) for key in ("start", "stop")):
            start = 0 if given["stop"] is None else given["start"]
            first = self._sum(self.number(start), self._product(place.begin, given["step"]))
            said["start"] = operand(first)
            said["stop"] = operand(self._sum(first, self._product(place.size, given["step"])))
        else:
            return self._cut_out(instruction, place)
        return [self._call_of(instruction, said, operands)]

    def _call_of(self, instruction: Instruction, said: dict[str, Term], operands: Sequence[SSAValue]) -> Operation:
        """A call of arguments by their names, of which some are operands."""
        parameters = TABLE[instruction.op].signature.parameters
        alone = [said.pop(name) for name, each in parameters.items() if _is_positional(each) and name in said]
        attributes: dict[str, Attribute] = {"callee": attribute_of(instruction.op)}
        attributes["arguments"] = TermAttr(Node("tuple", tuple(alone)))
        if said:
            attributes["named"] = TermAttr(Node("dict", tuple(part for pair in said.items() for part in pair)))
        made = host.CallOp.create(
            operands=operands,
            result_types=[self.type_of(each) for each in instruction.results],
            attributes=attributes | self._of_call(instruction),
        )
        self.give(instruction.results, made)
        return placed_at(made, instruction.where)

    def _cut_out(self, instruction: Instruction, place: _Place) -> list[Operation]:
        """The whole tensor, and the part of it: how numbers are rounded must not depend on who holds what."""
        result: Value = instruction.result
        whole = host.CallOp.create(
            result_types=[lowered_type(self.scope.type_written(result.type))],
            attributes=self._called(instruction, []) | self._of_call(instruction),
        )
        slice_ = Node("slice", (Node("operand", (1,)), Node("operand", (2,)), NONE))
        part = host.CallOp.create(
            operands=[whole.results[0], place.begin, self._sum(place.begin, place.size)],
            result_types=[self.type_of(result)],
            attributes={
                "callee": StringAttr("Tensor.getitem"),
                "arguments": TermAttr(Node("tuple", (Node("operand", (0,)), slice_))),
            },
        )
        self.give([result], part)
        return [placed_at(whole, instruction.where), placed_at(part, instruction.where)]

    def _sum(self, one: SSAValue, other: SSAValue) -> SSAValue:
        return self.add(AddiOp(one, other)).results[0]

    def _product(self, one: SSAValue, factor: int) -> SSAValue:
        return self.add(MuliOp(one, self.number(factor))).results[0]


# ------------------------------------------------------------------------------------- what takes other processes


def _finish(to: Distributing, instruction: Instruction) -> None:
    """A reduction of all elements: each process reduces its part, and the team reduces what they found."""
    op, result = TABLE[instruction.op], instruction.result
    assert op.dialect is not None
    gid = to.make_known(result)
    assert gid is not None
    part = Program(instruction.operands, (instruction,), result)
    for step in Cutter(part).run():
        to.write_step(step)
    whole = _known(to, result)
    to.dist("finalize_reduce", [whole.team, gid, whole.tensor], [], kind=op.dialect.kind)


def _view(to: Distributing, instruction: Instruction) -> None:
    """A slice of the first axis: its elements go to the processes that hold them in the result."""
    (operand,), result = instruction.operands, instruction.result
    key = instruction.arguments[1]
    key = key if isinstance(key, tuple) else (key,)
    if not all(isinstance(each, slice) for each in key) or any(each != slice(None) for each in key[1:]):
        raise _refusal(instruction, "a team cuts slices of the first axis alone")
    begin, end, step = key[0].indices(_shape(operand)[0])
    if step < 1:
        raise _refusal(instruction, "a team cuts slices whose steps are positive")
    numbers = [begin, len(range(begin, end, step)), step]
    for size in _shape(operand)[1:]:
        numbers += [0, size, 1]
    parts = _known(to, operand)
    view = to.dist("init_view", [parts.team, parts.gid, *map(to.number, numbers)], [i64])[0]
    view.name_hint = "view"
    gid = to.make_known(result)
    assert gid is not None
    shape = to.dist("local_shape", [parts.team, gid], [INDEX] * len(_shape(result)))
    shape[0].name_hint = "lshape"
    made = to.add(host.AllocOp.create(operands=[shape[0]], result_types=[to.type_of(result)]))
    to.give([result], made)
    to.dist("copy", [parts.team, view, gid, parts.tensor, made.results[0]], [])
    to.dist("fini_dtensor", [parts.team, view], [])


@dataclass(frozen=True)
class _Known:
    """The parts of a tensor that a team holds."""

    tensor: SSAValue
    team: SSAValue
    gid: SSAValue


def _known(to: Distributing, value: Value) -> _Known:
    parts = to.parts[value]
    assert parts.team is not None
    assert parts.gid is not None
    return _Known(parts.tensor, parts.team, parts.gid)


def _shape(value: Value) -> tuple[int, ...]:
    """The sizes of a tensor of a team, all of which are known."""
    if value.type.axes or not all(type(size) is int for size in value.type.shape):
        raise CannotWrite(f"{value.name} is {value.type}: teams hold dense tensors of known sizes")
    return tuple(size for size in value.type.shape if isinstance(size, int))


def _is_positional(parameter: Parameter) -> bool:
    return parameter.kind is Parameter.POSITIONAL_ONLY


def _refusal(instruction: Instruction, why: str) -> CannotWrite:
    where = f" at {instruction.where}" if instruction.where else ""
    return CannotWrite(f"{instruction.op}{where} cannot be lowered: {why}")
