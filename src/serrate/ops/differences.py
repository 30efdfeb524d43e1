"""Differences of neighbours along any axis: diff."""

from __future__ import annotations

import operator
from typing import Any

import torch

from serrate.eager.runs import Along, along, settled
from serrate.ops.answers import refuse_out
from serrate.ops.record import ALL, operation, ops
from serrate.ops.rules import parents_of
from serrate.ops.scans import record_scan, slice_along, without_gaps
from serrate.tensor import abstract
from serrate.tensor.combine import exact
from serrate.tensor.join import concat
from serrate.tensor.promotion import WIDE
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def _diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Tensor:
    tensor = as_tensor(x)
    number = tensor._axis(axis)
    times = operator.index(n)
    if times < 0:
        raise ValueError(f"diff is taken 0 or more times, got n={times}")
    if times == 0:  # as numpy has it: nothing is put before or behind either
        return tensor
    parts = [as_tensor(part) for part in (prepend, tensor, append) if part is not None]
    made = concat(parts, axis=number) if len(parts) > 1 else tensor
    for _ in range(times):
        made = _diff_once(along(made, number))
    return made


def _diff_once(call: Along) -> Tensor:
    """Each entry's successor less the entry."""
    x, dtype = call.x, call.x.dtype
    if dtype in WIDE:
        return _diff_once(along(x.to(torch.int64), call.axis)).to(dtype)
    less = torch.logical_xor if dtype == torch.bool else torch.sub
    if call.dim is not None:
        size = x.values.shape[call.dim]
        upper, lower = (x.values.narrow(call.dim, start, max(size - 1, 0)) for start in (min(size, 1), 0))
        if not abstract.is_known(size):
            upper = lower = abstract.resized(lower, call.dim, abstract.most(size - 1, 0))
        return x._with(less(upper, lower))
    if call.depended_on:
        call = along(exact(x), call.axis)
        groups = call.regrouped(lambda counts: (counts - 1).clamp(min=0))
        values, at = call.runs.gathered(call.x.values), groups.first + groups.place
        return groups.tensor(less(values.index_select(0, at + 1), values.index_select(0, at)))
    key = [slice(None)] * call.axis
    behind = x[(*key, slice(1, None))]
    return settled(behind._with(less(behind.values, x[(*key, slice(None, -1))].values)))


def _diff_body(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    along = axis % x.ndim
    parts = [part for part in (prepend, x, append) if part is not None]
    made = ops.concat(parts, axis=along) if n and len(parts) > 1 else x
    for _ in range(n):
        made = _differences(made, along)
    return made


def _differences(x: Any, axis: int) -> Any:
    """Each entry's successor less the entry; a row that lacks a position is stepped over there."""
    if axis in parents_of(x):
        x = ops.take_along_axis(x, without_gaps(x, axis), axis=axis)
    upper, lower = slice_along(x, axis, 1, None), slice_along(x, axis, None, -1)
    return ops.logical_xor(upper, lower) if x.dtype == torch.bool else upper - lower


def _answer_diff(
    input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None, *, out: Any = None, **options: Any
) -> Tensor:
    refuse_out("diff", out)
    return _diff(input, axis=options.pop("axis", dim), n=n, prepend=prepend, append=append, **options)


# fmt: off
record_scan("diff", _diff, "diff",
        "Each entry's successor along `axis` less the entry, `n` times: rows get `n` shorter, down to nothing.",
        ("sr.diff(sr.ragged([[1, 4, 9], [], [5]]), axis=1).tolist()", "[[3, 5], [], []]"),
        ALL, ("x, n=-1", ValueError, "diff is taken 0 or more times"),
        more=("x, n=2, axis=1", "x, n=0, axis=0"), answer=_answer_diff,
        operands=("x", "prepend", "append"), body=_diff_body)
# fmt: on
