"""The one door: every operation on Tensors is called through `call`, which a tracer can watch.

`sr.*`, operators, methods, torch's functions on Tensors, indexing, padding and joining all come through here. A tracer
that stands in `TRACER` gets the record of the operation and the arguments, and answers in its place. Only the thread
(or task) that put it there sees it.

What makes a tensor of nothing is told here on which device, if the caller did not say it and a region or a context of
torch does: so a tracer sees the device as an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_dynamo_compiling

from serrate.errors import DeviceMismatchError
from serrate.ops import mismatches
from serrate.tensor import regions
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor
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
    if is_dynamo_compiling():
        return _computed(op, arguments, named, spelling)
    if op.is_placed and spelling is None:
        named = _placed(arguments, named)
    tracer = TRACER.get()
    if tracer is not None:
        return tracer(op, arguments, named, spelling)
    try:
        return _computed(op, arguments, named, spelling)
    except DeviceMismatchError as error:
        raise mismatches.of_call(op, arguments, named, spelling, error) from None


def _computed(op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Callable[..., Any] | None) -> Any:
    """What the first implementation that applies gives, or what answers a spelling of torch."""
    if spelling is not None:
        return op.spellings[spelling](*arguments, **named)
    for implementation in op.implementations:
        if implementation.applies is None or implementation.applies(*arguments, **named):
            return implementation.function(*arguments, **named)
    raise NotImplementedError(f"no implementation of {op.name} takes these arguments")


def _placed(arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The named arguments of what may make a tensor of nothing, with a device if a region or a context decides it."""
    if named.get("device") is not None:
        return named
    device = regions.default()
    return named if device is None or _has_place((arguments, named)) else {**named, "device": device}


def _has_place(given: Any) -> bool:
    """Whether arguments say where a result lies: tensors among them do, and lengths that were born on a device."""
    if isinstance(given, (tuple, list)):
        return any(map(_has_place, given))
    if isinstance(given, dict):
        return any(map(_has_place, given.values()))
    if isinstance(given, Ragged):
        return not given.partition.is_host_born
    return isinstance(given, (Tensor, torch.Tensor))


part([call, _computed])
