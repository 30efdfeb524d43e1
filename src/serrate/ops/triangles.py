"""Triangles of matrices: tril and triu, whose last two axes may be ragged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from serrate.errors import AxisError
from serrate.ops.creation import number_in, record_creation
from serrate.ops.record import operation, ops, torch_names, written
from serrate.ops.rules import parents_of
from serrate.tensor import bits
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def _tril(x: Any, /, *, k: int = 0) -> Tensor:
    tensor = as_tensor(x)
    return _where(tensor, _across(tensor, "tril") <= k)


@operation
def _triu(x: Any, /, *, k: int = 0) -> Tensor:
    tensor = as_tensor(x)
    return _where(tensor, _across(tensor, "triu") >= k)


def _across(x: Tensor, name: str) -> torch.Tensor:
    """For each element, laid out beside x.values, its position along the last axis less that along the one before."""
    if x.ndim < 2:
        raise AxisError(f"{name} needs at least two axes, got shape {x.shape}")
    return _along(x, x.order[-1]) - _along(x, x.order[-2])


def _along(x: Tensor, c: int) -> torch.Tensor:
    """Positions along canonical axis c, shaped to broadcast against the values."""
    packed = len(x.structure.axes)
    shape = [1] * x.values.ndim
    if c < packed:
        shape[0] = x.values.shape[0]
        return x.structure.positions(x.structure.whole, c, x.device).view(shape)
    dim = c - packed + (1 if packed else 0)
    shape[dim] = x.values.shape[dim]
    return torch.arange(shape[dim], device=x.device).view(shape)


def _where(x: Tensor, keep: torch.Tensor) -> Tensor:
    return x._with(bits.where(keep, x.values, x.values.new_zeros(())))


def _answer_triangle(eager: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda input, diagonal=0: eager(input, k=diagonal)


def _tril_body(x: Any, /, *, k: int = 0) -> Any:
    return ops.where(ops.less_equal(_places(x, -1) - _places(x, -2), k), x, number_in(x.dtype, 0))


def _triu_body(x: Any, /, *, k: int = 0) -> Any:
    return ops.where(ops.greater_equal(_places(x, -1) - _places(x, -2), k), x, number_in(x.dtype, 0))


def _places(x: Any, axis: int) -> Any:
    """The position of each element along an axis, in a shape that broadcasts to that of x."""
    number, parents = axis % x.ndim, parents_of(x)
    if isinstance(x.shape[number], Ragged) or number in parents:
        features = [a for a, n in enumerate(x.shape) if not isinstance(n, Ragged) and a not in parents]
        return ops.expand_like(ops.positions(x, number), x, axis=features)
    return ops.reshape(ops.arange(x.shape[number], device=x.device), [-1, *[1] * (x.ndim - 1 - number)])


# fmt: off
for _name, _eager, _gives in (("tril", _tril, "[[[1, 0], [1, 1]], [[1]]]"),
                              ("triu", _triu, "[[[1, 1], [0, 1]], [[1]]]")):
    _side = "above" if _name == "tril" else "below"
    record_creation(_name, _eager, f"x with zeros {_side} diagonal k of its last two axes, which may be ragged.",
            (f"sr.{_name}(sr.ones((2, *[sr.Ragged([2, 1])] * 2), dtype=torch.int64)).tolist()", _gives),
            torch=torch_names(_name), answer=_answer_triangle(_eager),
            dialect=written("extract_triangle", "lower" if _name == "tril" else "upper", x="rhs"),
            body=_tril_body if _name == "tril" else _triu_body,
            samples=("x", "x, k=1", "x, k=-1"),
            errors=(("torch.ones(3)", AxisError, f"{_name} needs at least two axes"),))
# fmt: on
