"""Functions of the host dialect as programs again: what stands in regions, kernels and streams is one list of calls."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.arith import ConstantOp as NumberOp
from xdsl.dialects.builtin import TensorType as BuiltinTensor
from xdsl.dialects.builtin import i64
from xdsl.dialects.func import CallOp as FunctionCallOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from serrate.dialects import host, region
from serrate.dialects.attributes import PTensor
from serrate.dialects.from_text import Reader
from serrate.dialects.layouts import raised_type
from serrate.dialects.objects import CannotRead
from serrate.dialects.texts import Module
from serrate.program.program import Instruction, Program
from serrate.program.types import Value


def is_lowered(function: FuncOp) -> bool:
    """Whether a function is one of the host dialect."""
    types = (*function.function_type.inputs, *function.function_type.outputs)
    inside = (each.name.partition(".")[0] for each in function.body.block.ops)
    return not any(isinstance(each, PTensor) for each in types) and bool({"host", "region", "dist"} & {*inside})


def is_of_teams(module: Module, name: str) -> bool:
    """Whether a function, or one that it calls, needs a runtime of teams: the numbers of teams and of their tensors."""
    functions = {each.sym_name.data: each for each in module.module.ops if isinstance(each, FuncOp)}
    seen, waiting = set[str](), [name]
    while waiting:
        here = waiting.pop()
        if here in seen or here not in functions:
            continue
        seen.add(here)
        for each in functions[here].walk():
            if any(result.type == i64 for result in each.results):
                return True
            if isinstance(each, FunctionCallOp):
                waiting.append(each.callee.root_reference.data)
    return any(each.type == i64 for each in functions[name].body.block.args)


def program_read(module: Module, name: str) -> Program:
    """The program of a function, whether it is lowered or not."""
    (function,) = (each for each in module.module.ops if isinstance(each, FuncOp) and each.sym_name.data == name)
    return (HostReader if is_lowered(function) else Reader)(module, function).program()


class HostReader(Reader):
    """What reads one function of the host dialect as a program."""

    PREFIX = "host"

    def _inputs(self, block: Block) -> tuple[Value, ...]:
        """The tensors that the function takes, each with the device that stands behind it."""
        self.device = "cpu"
        self._devices: dict[SSAValue, str] = {}
        tensors: list[SSAValue] = []
        for each in block.args:
            if isinstance(each.type, BuiltinTensor):
                tensors.append(each)
            elif isinstance(each.type, host.Device) and tensors:
                self._devices[tensors[-1]] = each.type.data
            else:
                raise CannotRead(f"a tensor, or the device of the tensor before it, is expected, got {each.type}")
        return self._named(tensors, self._about("names"))

    def _returned(self, last: ReturnOp) -> list[Value]:
        return [self.values[each] for each in last.arguments if isinstance(each.type, BuiltinTensor)]

    def _ptensor(self, value: SSAValue) -> PTensor:
        return raised_type(value.type, self._devices.get(value, self.device))

    def _instructions(self, block: Block) -> Iterator[Instruction]:
        for operation in block.ops:
            self.at = operation
            if isinstance(operation, host.CallOp):
                yield self._instruction(operation)
            elif isinstance(operation, (host.FusedOp, region.DeviceRegionOp)):
                yield from self._inside(operation)
            elif isinstance(operation, host.StartOp):
                self.device = operation.device
            elif isinstance(operation, host.WaitOp):
                self.device = "cpu"
            elif isinstance(operation, host.FreeOp):
                yield Instruction("delete", (self.values[operation.tensor],), (), ())
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
