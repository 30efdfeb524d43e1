"""dist-to-runtime: operations of the dist dialect become calls of the runtime that holds the tensors of teams.

The proposal calls this pass "--dist-to-intel-runtime". Here it knows no runtime: `host.call`s of `team.…` are methods
of `serrate.team.runtime.TeamRuntime`, of which the machine that runs the module has one.
"""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.rewriter import Rewriter

from serrate.dialects.dist import DistOperation
from serrate.dialects.host import CallOp
from serrate.dialects.texts import Module

NAME = "dist-to-runtime"
TEAM = "team."
"""What the names of calls of that runtime begin with."""


def run(module: Module) -> Module:
    """The module without operations of the dist dialect."""
    for operation in [each for each in module.module.walk() if isinstance(each, DistOperation)]:
        called = CallOp.create(
            operands=operation.operands,
            result_types=[each.type for each in operation.results],
            attributes={"callee": StringAttr(TEAM + operation.op_class.name), **operation.attributes},
        )
        hints = [each.name_hint for each in operation.results]
        Rewriter.replace_op(operation, called)
        for result, hint in zip(called.results, hints, strict=True):
            result.name_hint = hint
    return module
