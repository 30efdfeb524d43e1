"""The host dialect: what a host does to run a program. Kernels, library calls, memory, and streams of devices.

`fused` holds calls that one or several kernels compute together, where the proposal has operations of Linalg; `call` is
one call of an operation of Serrate, of a library or of a runtime. `alloc` and `free` are memory, `start` and `wait` let
what stands between them run on a stream of a device.
"""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Data, Dialect, Operation, ParametrizedAttribute, Region, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, MemoryFreeEffect, MemoryWriteEffect, NoMemoryEffect
from xdsl.utils.exceptions import VerifyException

from serrate.dialects.layouts import Layout
from serrate.dialects.terms import quoted


@irdl_attr_definition
class Device(Data[str], TypeAttribute):
    """A device, of any name that a runtime may know: `!host.device<"cuda:0">`. Its values carry nothing else."""

    name = "host.device"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        """Read a name in quotes between angles."""
        with parser.in_angle_brackets():
            return parser.parse_str_literal()

    def print_parameter(self, printer: Printer) -> None:
        """Write a name in quotes between angles."""
        printer.print_string(f"<{quoted(self.data)}>")


@irdl_attr_definition
class Stream(ParametrizedAttribute, TypeAttribute):
    """Work that a device does in its order: `!host.stream`."""

    name = "host.stream"


@irdl_op_definition
class YieldOp(IRDLOperation):
    """`yield(values)`: what the operation around gives."""

    name = "host.yield"
    given = var_operand_def()
    traits = traits_def(IsTerminator(), NoMemoryEffect())


@irdl_op_definition
class FusedOp(IRDLOperation):
    """`fused(tensors) { calls }`: calls that kernels compute together. Its block has a value for each tensor."""

    name = "host.fused"
    given = var_operand_def()
    made = var_result_def()
    body = region_def("single_block")

    def verify_(self) -> None:
        """Refuse values of the block that are not the operands, and results that are not what is yielded."""
        verify_block(self, self.body, list(self.given), [each.type for each in self.made])
        for operation in self.body.block.ops:
            if not isinstance(operation, (CallOp, YieldOp)):
                raise VerifyException(f"host.fused holds calls, got {operation.name}")


@irdl_op_definition
class CallOp(IRDLOperation):
    """`call(operands) {callee, arguments, named}`: a call of an operation by its name, as `ptensor.call` is one."""

    name = "host.call"
    given = var_operand_def()
    made = var_result_def()

    def verify_(self) -> None:
        """Refuse a call that does not say what it calls."""
        if "callee" not in self.attributes:
            raise VerifyException('a call says what it calls: callee = "name"')


@irdl_op_definition
class AllocOp(IRDLOperation):
    """`alloc(sizes)`: memory for a tensor, whose sizes are given as far as its type does not say them."""

    name = "host.alloc"
    sizes = var_operand_def()
    tensor = result_def()


@irdl_op_definition
class FreeOp(IRDLOperation):
    """`free(tensor)`: memory is given back; nothing reads the tensor after that."""

    name = "host.free"
    tensor = operand_def()
    traits = traits_def(MemoryFreeEffect())


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """`constant() : !host.device<"name">`: a device as a value, for functions that take one."""

    name = "host.constant"
    made = result_def(Device)
    traits = traits_def(NoMemoryEffect())


class OnDevice(IRDLOperation):
    """An operation that names a device."""

    @property
    def device(self) -> str:
        """The name of its device."""
        said = self.attributes["device"]
        assert isinstance(said, StringAttr)
        return said.data

    def verify_device(self, words: str) -> None:
        """Refuse the operation, which `words` are about, if it names no device."""
        if not isinstance(self.attributes.get("device"), StringAttr):
            raise VerifyException(f'{words} names its device: device = "name"')


@irdl_op_definition
class StartOp(OnDevice):
    """`start() {device}`: what follows, up to the `wait` of its stream, runs on a stream of this device."""

    name = "host.start"
    made = result_def(Stream)
    traits = traits_def(MemoryWriteEffect())

    def verify_(self) -> None:
        """Refuse a start that names no device."""
        self.verify_device("a start")


@irdl_op_definition
class WaitOp(IRDLOperation):
    """`wait(stream)`: what follows runs on the host again, and may read what the stream made."""

    name = "host.wait"
    stream = operand_def(Stream)
    traits = traits_def(MemoryWriteEffect())


def verify_block(operation: Operation, body: Region, given: list[SSAValue], made: list[object]) -> None:
    """Refuse a block that does not take what is given, or does not yield what is made."""
    block: Block = body.block
    if [each.type for each in block.args] != [each.type for each in given]:
        raise VerifyException(
            f"the block of {operation.name} has values of the types {_types(block.args)}, and is given {_types(given)}"
        )
    last = block.last_op
    yielded = list(last.operands) if isinstance(last, Operation) and last.has_trait(IsTerminator) else []
    if [each.type for each in yielded] != made:
        raise VerifyException(
            f"{operation.name} has results of the types {', '.join(map(str, made)) or 'none'}, and its block yields "
            f"{_types(yielded)}"
        )


def _types(values: object) -> str:
    return ", ".join(str(each.type) for each in values) or "none"  # type: ignore[attr-defined]


HOST = Dialect(
    "host",
    [YieldOp, FusedOp, CallOp, AllocOp, FreeOp, ConstantOp, StartOp, WaitOp],
    [Device, Stream, Layout],
)
