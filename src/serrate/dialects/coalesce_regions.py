"""coalesce-regions: regions of one device that stand one behind the other become one region.

The proposal's section "intel_sycl.gpu-region" wants regions to share what a runtime knows of a device. A region gives
only what is read outside of it.
"""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Region, SSAValue

from serrate.dialects.region import DeviceRegionOp, YieldOp
from serrate.dialects.texts import Module

NAME = "coalesce-regions"


def run(module: Module) -> Module:
    """The module with as few regions as there can be, without moving an operation over another."""
    for function in module.module.ops:
        for block in function.regions[0].blocks:
            _coalesce(block)
    return module


def _coalesce(block: Block) -> None:
    run: list[DeviceRegionOp] = []
    for operation in [*block.ops, None]:
        if isinstance(operation, DeviceRegionOp) and (not run or run[0].device == operation.device):
            run.append(operation)
            continue
        if len(run) > 1:
            _merge(run)
        run = [operation] if isinstance(operation, DeviceRegionOp) else []


def _merge(regions: list[DeviceRegionOp]) -> None:
    """Put the operations of several regions into one, where the last of them stands."""
    inside: dict[SSAValue, SSAValue] = {}
    body = Block()
    for each in regions:
        last = each.body.block.last_op
        yielded = [inside.get(value, value) for value in last.operands] if isinstance(last, YieldOp) else []
        inside |= zip(each.results, yielded, strict=True)
        for operation in list(each.body.block.ops):
            operation.detach()  # type: ignore[no-untyped-call]
            if isinstance(operation, YieldOp):
                operation.erase()  # what it alone reads, nobody does
            else:
                body.add_op(operation)
    for operation in body.walk():
        operation.operands = [inside.get(each, each) for each in operation.operands]
    read = [value for value in inside if any(True for _ in value.uses)]  # those in the body read what stands there now
    made = DeviceRegionOp.create(
        result_types=[each.type for each in read], attributes={"device": StringAttr(regions[0].device)}
    )
    body.add_op(YieldOp.create(operands=[inside[each] for each in read]))
    made.add_region(Region(body))
    block = regions[-1].parent
    assert block is not None
    block.insert_op_before(made, regions[-1])
    for value, result in zip(read, made.results, strict=True):
        result.name_hint = value.name_hint
        value.replace_all_uses_with(result)
    for each in reversed(regions):
        each.detach()  # type: ignore[no-untyped-call]
        each.erase(safe_erase=False)
