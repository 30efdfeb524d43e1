"""Parts: what instructions call that is no operation of a record: parts of tensors, writes, and functions of torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from serrate.ops.record import Op
from serrate.program.program import replaced
from serrate.tensor import combine
from serrate.tensor.tensor import Tensor, as_tensor


def values(x: Tensor) -> torch.Tensor:
    """The packed values."""
    return x.values


def offsets(x: Tensor, level: int) -> torch.Tensor:
    """The offsets of one ragged level."""
    return x.partitions[level].offsets_on(x.device)


def lengths(x: Tensor, level: int) -> torch.Tensor:
    """The lengths of one ragged level."""
    return torch.diff(x.partitions[level].offsets_on(x.device))


def cu_seqlens(x: Tensor) -> torch.Tensor:
    """int32 offsets of the rows along the first axis."""
    return combine.row_offsets(x).offsets_on(x.device).to(torch.int32)


PARTS: dict[str, Callable[..., torch.Tensor]] = {
    function.__name__: function for function in (values, offsets, lengths, cu_seqlens)
}


@cache
def as_function(op: Op) -> Callable[..., Any]:
    """An operation that writes, as a function that gives what is written and leaves its operand as it is."""

    def function(x: Any, *arguments: Any, **named: Any) -> Any:
        copy = as_tensor(x).clone()
        op.implementations[-1].function(copy, *arguments, **named)
        return copy

    function.__name__ = op.name
    return function


@cache
def of_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch on dense tensors, of Serrate's class or torch's."""

    def call(*arguments: Any, **named: Any) -> Any:
        given, options = replaced((arguments, named), lambda part: part.values if isinstance(part, Tensor) else part)
        return function(*given, **options)

    call.__name__ = getattr(function, "__name__", str(function))
    return call
