"""Promoting: the dtypes in which operands of a traced function meet, torch tensors and numbers among them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from serrate.compiler.numbers import TracedNumber, limit_exponent
from serrate.compiler.spellings import is_plain_operand, tensors_in
from serrate.compiler.traced import Traced
from serrate.eager.precision import autocast_state
from serrate.ops.record import Op
from serrate.tensor import promotion
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.compiler.tracing import Trace


def _promoted(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A tensor of the dtype that torch gives for both, with as many axes as the one that has more."""
    return torch.empty([1] * max(one.ndim, other.ndim), dtype=torch.result_type(one, other), device="cpu")


def _chosen(op: Op, arguments: tuple[Any, ...]) -> torch.dtype | None:
    """The dtype that the tensors among the operands of an elementwise operation have together."""
    tensors = [part for part in arguments if isinstance(part, (Tensor, torch.Tensor))]
    chosen = tensors[1:] if op.name == "where" and len(tensors) > 1 else tensors
    return functools.reduce(promotion.promote, [each.dtype for each in chosen]) if chosen else None


def narrow(op: Op, arguments: tuple[Any, ...]) -> torch.dtype | None:
    """The half type of the operands beside a number that differs from call to call, where torch does not round the
    number to it: where a tensor is multiplied or divided by the number."""
    right = isinstance(arguments[-1], TracedNumber)
    scales = op.name == "multiply" and (right or all(map(is_plain_operand, tensors_in(arguments))))
    dtype = _chosen(op, arguments)
    if not (scales or (op.name == "divide" and right)) or dtype not in (torch.float16, torch.bfloat16):
        return None
    return None if any(isinstance(part, TracedNumber) and part.kind is complex for part in arguments) else dtype


def with_numbers(trace: Trace, op: Op, arguments: tuple[Any, ...], dtype: torch.dtype | None = None) -> tuple[Any, ...]:
    """The operands of an elementwise operation, with tensors of the right dtype for numbers."""
    dtype = _chosen(op, arguments) if dtype is None else dtype
    if dtype is None:
        return arguments
    if op.name == "pow" and not (dtype.is_floating_point or dtype.is_complex):
        limit_exponent(arguments[-1])
    return tuple(Traced.of(part.beside(dtype), trace) if isinstance(part, TracedNumber) else part for part in arguments)


def as_torch_promotes(trace: Trace, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands of a function of elements, torch tensors all: as torch has it, a 0-d tensor decides about the dtype
    of a result only by its kind."""
    tensors = [each for each in operands if isinstance(each, (Tensor, torch.Tensor))]
    if not any(each.ndim == 0 for each in tensors) or len({each.dtype for each in tensors}) < 2:
        return operands
    samples = [torch.empty([1] * min(each.ndim, 1), dtype=each.dtype) for each in tensors]
    with torch._C.DisableTorchFunction():
        dtype = functools.reduce(_promoted, samples).dtype

    def cast(each: Any) -> Any:
        if not isinstance(each, (Tensor, torch.Tensor)) or each.ndim or each.dtype == dtype:
            return each
        return Traced.of(trace.cast(trace.typed(each), dtype), trace, is_plain=True)

    return tuple(map(cast, operands))


def require_one_dtype(name: str, operands: tuple[Any, ...]) -> None:
    """Leave a product of torch tensors of two dtypes to torch, which raises an error."""
    dtypes = {each.dtype for each in operands if isinstance(each, (Tensor, torch.Tensor))}
    if name == "matmul" and len(dtypes) > 1 and not autocast_state():
        raise NotImplementedError(f"torch multiplies no matrices of two dtypes, got {sorted(map(str, dtypes))}")
