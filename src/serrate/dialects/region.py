"""The region dialect: operations that run on a device, which the proposal calls `intel_sycl.device_region`.

`region.device_region("level_zero:gpu:1") { … }` is the short form of one without results. The name of a device is never
interpreted here: only a runtime knows its devices.
"""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Dialect, Region
from xdsl.irdl import IRDLOperation, irdl_op_definition, region_def, traits_def, var_operand_def, var_result_def
from xdsl.parser import Parser
from xdsl.traits import IsTerminator, NoMemoryEffect, NoTerminator
from xdsl.utils.exceptions import VerifyException

from serrate.dialects.host import OnDevice, verify_block


@irdl_op_definition
class YieldOp(IRDLOperation):
    """`yield(values)`: what the region gives."""

    name = "region.yield"
    given = var_operand_def()
    traits = traits_def(IsTerminator(), NoMemoryEffect())


@irdl_op_definition
class DeviceRegionOp(OnDevice):
    """`device_region() {device} { operations }`: what stands inside runs on the device."""

    name = "region.device_region"
    made = var_result_def()
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    @classmethod
    def parse(cls, parser: Parser) -> DeviceRegionOp:
        """Read the short form: a device in brackets, and operations."""
        with parser.in_parens():
            device = parser.parse_str_literal()
        body = parser.parse_region()
        if not body.blocks:
            body.add_block(Block())
        return cls.of(device, body)

    @classmethod
    def of(cls, device: str, body: Region) -> DeviceRegionOp:
        """A region without results."""
        return cls.create(attributes={"device": StringAttr(device)}, regions=[body])

    def verify_(self) -> None:
        """Refuse a region without a device, one inside of another, and results that are not what it yields."""
        self.verify_device("a region")
        verify_block(self, self.body, [], [each.type for each in self.made])
        around = self.parent_op()
        while around is not None:
            if isinstance(around, DeviceRegionOp):
                raise VerifyException(
                    f"a region of the device {self.device} stands inside of a region of {around.device}; regions are "
                    f"never nested"
                )
            around = around.parent_op()


REGION = Dialect("region", [DeviceRegionOp, YieldOp], [])
