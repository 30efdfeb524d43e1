"""Functions of the host dialect as programs again: what stands in regions, kernels and streams is one list of calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.arith import ConstantOp as NumberOp
from xdsl.dialects.builtin import TensorType as BuiltinTensor
from xdsl.dialects.builtin import i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from serrate.dialects import host, region
from serrate.dialects.attributes import PTensor
from serrate.dialects.calls import CallOp as FunctionCallOp
from serrate.dialects.from_text import Functions, Reader
from serrate.dialects.layouts import raised_type
from serrate.dialects.objects import CannotRead
from serrate.dialects.texts import Module
from serrate.ops.effects import DELETE
from serrate.passes import inline_calls
from serrate.program.program import Instruction, Program
from serrate.program.types import Value


def is_lowered(function: FuncOp) -> bool:
    """Whether a function is one of the host dialect: it has tensors or operations, and none of them is of ptensor."""
    types = (*function.function_type.inputs, *function.function_type.outputs)
    inside = {each.name.partition(".")[0] for block in function.body.blocks for each in block.ops}
    if "ptensor" in inside or any(isinstance(each, PTensor) for each in types):
        return False
    return bool({"host", "region", "dist"} & inside) or any(isinstance(each, BuiltinTensor) for each in types)


def is_of_teams(module: Module, name: str) -> bool:
    """Whether a function, or one that it calls, needs a runtime of teams: the numbers of teams and of their tensors."""
    functions = {each.sym_name.data: each for each in module.module.ops if isinstance(each, FuncOp)}
    seen, waiting = set[str](), [name]
    while waiting:
        here = waiting.pop()
        if here in seen or here not in functions:
            continue
        seen.add(here)
        if not is_lowered(functions[here]):
            continue
        for each in functions[here].walk():
            if any(result.type == i64 for result in each.results):
                return True
            if isinstance(each, FunctionCallOp):
                waiting.append(each.called)
    return any(each == i64 for each in functions[name].function_type.inputs)


def program_read(module: Module, name: str) -> Program:
    """The program of a function, whether it is lowered or not, with what it calls inside of it."""
    functions = HostFunctions(module)
    return inline_calls.inlined(functions.program(name), functions.programs)


class HostFunctions(Functions):
    """The functions of a module, of which some are lowered."""

    def reader(self, function: FuncOp) -> Reader:
        """What reads a function."""
        return HostReader(self, function) if is_lowered(function) else Reader(self, function)


class HostReader(Reader):
    """What reads one function of the host dialect as a program."""

    ABOUT = "host."

    def _inputs(self, block: Block) -> tuple[Value, ...]:
        """The tensors that the function takes."""
        self.device = "cpu"
        self._devices: dict[SSAValue, str] = {}
        return self._named(self._tensors(block.args), self._about("names"))

    def _returned(self, last: ReturnOp) -> list[Value]:
        return [self.values[each] for each in self._tensors(last.arguments)]

    def _tensors(self, values: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """The tensors among values, each of which may have a device behind it."""
        tensors: list[SSAValue] = []
        for each in values:
            if isinstance(each.type, BuiltinTensor):
                tensors.append(each)
            elif isinstance(each.type, host.Device) and tensors:
                self._devices[tensors[-1]] = each.type.data
            else:
                raise CannotRead(f"a tensor, or the device of the tensor before it, is expected, got {each.type}")
        return tensors

    def _type_of(self, value: SSAValue) -> PTensor:
        return raised_type(value.type, self._devices.get(value, self.device))

    def _instructions(self, block: Block) -> Iterator[Instruction]:
        for operation in block.ops:
            self.at = operation
            if isinstance(operation, (host.CallOp, FunctionCallOp)):
                yield self._instruction(operation)
            elif isinstance(operation, (host.FusedOp, region.DeviceRegionOp)):
                yield from self._inside(operation)
            elif isinstance(operation, host.StartOp):
                self.device = operation.device
            elif isinstance(operation, host.WaitOp):
                self.device = "cpu"
            elif isinstance(operation, host.FreeOp):
                yield Instruction(DELETE, (self.values[operation.tensor],), (), ())
            elif not isinstance(operation, (ReturnOp, host.YieldOp, region.YieldOp, host.ConstantOp, NumberOp)):
                raise CannotRead(f"{operation.name} cannot stand in a program")

    def _inside(self, operation: host.FusedOp | region.DeviceRegionOp) -> Iterator[Instruction]:
        """The instructions of kernels, or of a region."""
        block, before = operation.body.block, self.device
        if isinstance(operation, region.DeviceRegionOp):
            self.device = operation.device
        else:
            for arg, given in zip(block.args, operation.given, strict=True):
                self.values[arg] = self.values[given]
        yield from self._instructions(block)
        self.device = before
        last = block.last_op
        yielded: list[SSAValue] = list(last.operands) if isinstance(last, Operation) else []
        for result, inner in zip(operation.results, yielded, strict=False):
            self.values[result] = self.values[inner]
