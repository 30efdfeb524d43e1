"""region-to-runtime: a region of a device becomes a switch to a stream of it and back.

This is the third pass of the proposal, "Converting intel-sycl.device_region to appropriate runtime calls". Only here
the name of a device is looked up: what the runtime of this machine does not have is an error with that name.
"""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.rewriter import Rewriter

from serrate.dialects.host import StartOp, Stream, WaitOp
from serrate.dialects.region import DeviceRegionOp, YieldOp
from serrate.dialects.texts import Module, TextError
from serrate.program.devices import device_named, require_device

NAME = "region-to-runtime"


def run(module: Module) -> Module:
    """The module without regions."""
    for region in [each for each in module.module.walk() if isinstance(each, DeviceRegionOp)]:
        try:
            require_device(device_named(region.device))
        except ValueError as error:
            raise TextError(str(error), module.where(region)) from error
        last = region.body.block.last_op
        yielded = list(last.operands) if isinstance(last, YieldOp) else []
        if isinstance(last, YieldOp):
            last.detach()  # type: ignore[no-untyped-call]
            last.erase()
        start = StartOp.create(result_types=[Stream()], attributes={"device": StringAttr(region.device)})
        wait = WaitOp.create(operands=[start.made])
        block = region.parent
        assert block is not None
        block.insert_op_before(start, region)
        for operation in list(region.body.block.ops):
            operation.detach()  # type: ignore[no-untyped-call]
            block.insert_op_before(operation, region)
        Rewriter.replace_op(region, wait, new_results=yielded)
    return module
