"""The one door: every operation on Tensors is called through `call`, which a tracer can watch.

`sr.*`, operators, methods, torch's functions on Tensors, indexing, padding and joining all come through here. A tracer
that stands in `TRACER` gets the record of the operation and the arguments, and answers in its place. Only the thread
(or task) that put it there sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from torch.compiler import is_dynamo_compiling

from serrate.tensor.tracing import part

if TYPE_CHECKING:
    from serrate.ops.record import Op


Tracer = Callable[["Op", tuple[Any, ...], dict[str, Any], "Callable[..., Any] | None"], Any]
"""What answers a call in place of the implementations. It is given what `call` is given."""
TRACER: ContextVar[Tracer | None] = ContextVar("serrate tracer", default=None)


def call(op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Callable[..., Any] | None = None) -> Any:
    """The operation of these arguments: what the tracer answers, else what the first implementation that applies gives.

    `spelling` is the function of torch that the caller used; the arguments are then that function's, and the record
    says what they mean.
    """
    tracer = None if is_dynamo_compiling() else TRACER.get()
    if tracer is not None:
        return tracer(op, arguments, named, spelling)
    if spelling is not None:
        return op.spellings[spelling](*arguments, **named)
    for implementation in op.implementations:
        if implementation.applies is None or implementation.applies(*arguments, **named):
            return implementation.function(*arguments, **named)
    raise NotImplementedError(f"no implementation of {op.name} takes these arguments")


part([call])
