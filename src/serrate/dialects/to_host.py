"""lower-ptensor as text: a program as a function of the host dialect, without operations and types of ptensor.

This is the pass of the proposal's section "--lower-ptensor". A ptensor becomes a builtin tensor, behind which stand its
device, its team and its number in the team, as far as it has them (`layouts.lowered_type`, `Parts`). Calls that kernels
compute together stand in `host.fused`, where the proposal has operations of Linalg; all others are `host.call`. What
runs on a device stands in a `region.device_region` of it. What a team holds in parts is `distributing`'s to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from xdsl.dialects.arith import ConstantOp as NumberOp
from xdsl.dialects.builtin import ArrayAttr, IndexType, IntegerAttr, IntegerType, StringAttr, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from serrate.dialects import host, region
from serrate.dialects.calls import CallOp as FunctionCallOp
from serrate.dialects.layouts import lowered_type
from serrate.dialects.to_text import Writer, placed_at
from serrate.ops.effects import DELETE
from serrate.passes import explicit_keys, explicit_writes
from serrate.passes.lower_ptensor import Called, Cutter, Fused, Step
from serrate.program.program import Instruction, Program, values_in
from serrate.program.types import Value


@dataclass(frozen=True)
class Parts:
    """What a ptensor became."""

    tensor: SSAValue
    device: SSAValue | None = None
    team: SSAValue | None = None
    gid: SSAValue | None = None
    """The number by which the team knows it."""

    @property
    def values(self) -> list[SSAValue]:
        """The parts that there are, in their order."""
        return [each for each in (self.tensor, self.device, self.team, self.gid) if each is not None]


def device_of(values: Sequence[Value]) -> str:
    """The device of values: empty for the CPU, where a host runs itself."""
    found = {str(each.type.device) for each in values} - {"cpu"}
    return min(found, default="")


class Lowering(Writer):
    """What writes one program as a function of the host dialect. Operations are added to `block`."""

    def __init__(self, program: Program) -> None:
        super().__init__(explicit_keys.run(explicit_writes.run(program)))
        self.deleted = [each.operands[0] for each in program.instructions if each.op == DELETE]
        """The values that the program deletes."""
        self.parts: dict[Value, Parts] = {}
        self.block = self._top = Block()
        self._devices: dict[str, SSAValue] = {}
        self._numbers: dict[tuple[int, Attribute], SSAValue] = {}
        self._constants: Operation | None = None
        self._freed: set[SSAValue] = set()

    def function(self, name: str) -> FuncOp:
        """The function that the program became."""
        top, program = self._top, self.program
        for value in program.inputs:
            self._receive(value)
        self.write(program, name)
        for value in self.deleted:
            self._free(value)
        given = list(values_in(program.outputs))
        parts = [part for each in given for part in self._whole(each).values]
        top.add_op(ReturnOp(*parts))
        made = FuncOp(name, ([arg.type for arg in top.args], [each.type for each in parts]), Region(top))
        made.attributes |= {f"host.{key}": each for key, each in self._about().items()}
        names = [each.name for each in program.inputs]
        if not all(_is_hint(str(each)) for each in names):
            made.attributes["host.names"] = ArrayAttr([StringAttr(str(each)) for each in names])
        return made

    def write(self, program: Program, name: str) -> None:
        """Write what a program does, of which all inputs are there."""
        for step in Cutter(program, name=name).run():
            self.write_step(step)

    def write_step(self, step: Step) -> None:
        """Write a step: kernels, or a call."""
        if isinstance(step, Called):
            self._call(step.instruction)
        else:
            self._fuse(step)

    # ------------------------------------------------------------------------------------------------------ values

    def _receive(self, value: Value) -> None:
        """Let the function take the parts of a value."""
        self._set_parts(value, [self.block.insert_arg(kind, len(self.block.args)) for _, kind in self._kinds(value)])

    def _kinds(self, value: Value) -> list[tuple[str, Attribute]]:
        """The types of the parts of a value, and how their names end."""
        device, team = device_of([value]), self.team_of(value)
        kinds: list[tuple[str, Attribute]] = [("", self.type_of(value))]
        kinds += [("_device", host.Device(device))] if device else []
        return kinds + ([("_team", i64), ("_gid", i64)] if team is not None else [])

    def _set_parts(self, value: Value, made: Sequence[SSAValue]) -> None:
        """Let a value have these parts."""
        hint, device, team = str(value.name), device_of([value]), self.team_of(value)
        for part, (suffix, _) in zip(made, self._kinds(value), strict=True):
            part.name_hint = hint + suffix if _is_hint(hint) else None
        parts = Parts(made[0], made[1] if device else None)
        self.parts[value] = parts if team is None else replace(parts, team=made[-2], gid=made[-1])

    def team_of(self, value: Value) -> int | None:
        """The team that holds a value: none here, see `distributing`."""
        return None

    def type_of(self, value: Value) -> Attribute:
        """The type of the tensor that a value became."""
        return lowered_type(self.scope.type_written(value.type))

    def parts_of(self, value: Value, tensor: SSAValue) -> Parts:
        """What a value became, whose tensor has just been made."""
        return Parts(tensor)

    def _whole(self, value: Value) -> Parts:
        """The parts of a value, a device among them if it has one."""
        parts = self.parts[value]
        device = device_of([value])
        return replace(parts, device=self._device(device)) if device and parts.device is None else parts

    def _device(self, name: str) -> SSAValue:
        if name not in self._devices:
            made = host.ConstantOp.create(result_types=[host.Device(name)])
            self._devices[name] = self._constant(made)
        return self._devices[name]

    def number(self, number: int, kind: IntegerType | IndexType | None = None) -> SSAValue:
        """A number that is known, as a value; an index, if nothing else is said."""
        key = (number, kind or IndexType())
        if key not in self._numbers:
            self._numbers[key] = self._constant(NumberOp(IntegerAttr(number, kind or IndexType())))
        return self._numbers[key]

    def _constant(self, made: Operation) -> SSAValue:
        """Constants stand where the function begins, so that they part no regions."""
        top = self._top
        if self._constants is None:
            first = top.first_op
            top.add_op(made) if first is None else top.insert_op_before(made, first)
        else:
            top.insert_op_after(made, self._constants)
        self._constants = made
        return made.results[0]

    # -------------------------------------------------------------------------------------------------- operations

    def add(self, made: Operation) -> Operation:
        """Add an operation where operations are added."""
        self.block.add_op(made)
        return made

    def _free(self, value: Value) -> None:
        """Give back the memory of a value behind the last operation that reads it."""
        parts = self.parts.get(value)
        if parts is None or parts.tensor in self._freed:
            return
        self._freed.add(parts.tensor)
        users = [use.operation for use in parts.tensor.uses]
        last = next((each for each in reversed(self._top.ops) if any(each.is_ancestor(user) for user in users)), None)
        for each in self.freeing(parts):
            if last is None:
                self._top.add_op(each)
            else:
                self._top.insert_op_after(each, last)
            last = each

    def freeing(self, parts: Parts) -> list[Operation]:
        """The operations that give back the memory of a tensor."""
        return [host.FreeOp.create(operands=[parts.tensor])]

    def _call(self, instruction: Instruction) -> None:
        """A call outside of kernels."""
        if instruction.op.startswith("@"):
            self.call_function(instruction)
            return
        *before, made = self.called_ops(instruction)
        for each in before:
            self.add(each)
        self._on_device(device_of((*instruction.operands, *instruction.results)), made, instruction.results)

    def call_function(self, instruction: Instruction) -> None:
        """A call of another function of the module, which takes and gives the parts of tensors."""
        given = [part for value in instruction.operands for part in self._whole(value).values]
        kinds = {value: self._kinds(value) for value in instruction.results}
        types = [kind for each in kinds.values() for _, kind in each]
        made = FunctionCallOp.of(instruction.op[1:], given, types)
        structure = self._structure(instruction.result, list(instruction.results))
        if structure is not None:
            made.attributes["host.results"] = structure
        self.add(placed_at(made, instruction.where))
        results = iter(made.results)
        for value in instruction.results:
            self._set_parts(value, list(islice(results, len(kinds[value]))))

    def _fuse(self, step: Fused) -> None:
        """Calls that kernels compute together."""
        inside = {value for part in step.instructions for value in part.results}
        read = dict.fromkeys(value for part in step.instructions for value in part.operands if value not in inside)
        outside = {value: self.parts[value] for value in read}
        block = Block(arg_types=[parts.tensor.type for parts in outside.values()])
        for arg, value in zip(block.args, read, strict=True):
            self.parts[value] = replace(self.parts[value], tensor=arg)
            arg.name_hint = outside[value].tensor.name_hint
        for instruction in step.instructions:
            block.add_ops(self.called_ops(instruction))
        block.add_op(host.YieldOp.create(operands=[self.parts[value].tensor for value in step.results]))
        for value in inside.difference(step.results):
            del self.parts[value]
        self.parts |= outside
        made = host.FusedOp.create(
            operands=[parts.tensor for parts in outside.values()],
            result_types=[self.parts[value].tensor.type for value in step.results],
            regions=[Region(block)],
        )
        self.give(step.results, made)
        self._on_device(device_of((*read, *step.results)), made, step.results)

    def called_ops(self, instruction: Instruction) -> list[Operation]:
        """The calls that an instruction is, of which the last one gives its results."""
        operands: list[Value] = []
        attributes = self._called(instruction, operands) | self._of_call(instruction)
        results = list(instruction.results)
        structure = self._structure(instruction.result, results)
        if structure is not None:
            attributes["results"] = structure
        made = host.CallOp.create(
            operands=[self.parts[each].tensor for each in operands],
            result_types=[self.type_of(each) for each in results],
            attributes=attributes,
        )
        self.give(results, made)
        return [placed_at(made, instruction.where)]

    def give(self, values: Sequence[Value], made: Operation) -> None:
        """Let values be the results of an operation."""
        for value, result in zip(values, made.results, strict=True):
            known = self.parts.get(value)
            self.parts[value] = replace(known, tensor=result) if known else self.parts_of(value, result)
            result.name_hint = str(value.name) if _is_hint(str(value.name)) else None

    def _on_device(self, device: str, made: Operation, values: Sequence[Value]) -> None:
        """Add an operation that gives values, in a region of its device if it has one."""
        if not device:
            self.add(made)
            return
        around = region.DeviceRegionOp.create(
            result_types=[each.type for each in made.results],
            attributes={"device": StringAttr(device)},
            regions=[Region(Block([made, region.YieldOp.create(operands=made.results)]))],
        )
        self.add(around)
        self.give(values, around)


def _is_hint(name: str) -> bool:
    """Whether MLIR's values may be called so."""
    return SSAValue.is_valid_name(name) and SSAValue.extract_valid_name(name) == name
