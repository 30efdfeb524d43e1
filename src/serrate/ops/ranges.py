"""Making dense tensors of numbers that follow a rule: ranges, the identity, grids."""

from __future__ import annotations

from typing import Any

import torch

from serrate.ops.creation import NO_ELEMENTS, record_creation
from serrate.ops.record import operation, ops, written
from serrate.tensor import promotion
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def _arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: torch.dtype | None = None, device: Any = None
) -> Tensor:
    first, last = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ValueError("the step of arange must not be 0")
    if (last - first) * step < 0:  # nothing lies between, which torch refuses
        last = first + 0 * last
    if all(isinstance(n, int) for n in (first, last, step)):
        numbers = range(first, last, step)
        for n in (numbers[0], numbers[-1]) if numbers else ():
            promotion.require_fit("arange", n, torch.int64 if dtype is None else dtype)
        if max(map(abs, (first, last, step))) >= _FAR:
            return Tensor(_far_range(numbers, dtype, device))
    made = _computed_in(dtype)
    return Tensor(_converted(torch.arange(first, last, step, dtype=made, device=device), dtype))


_FAR = 2**61  # beyond, torch's count of elements overflows


def _far_range(numbers: range, dtype: torch.dtype | None, device: Any) -> torch.Tensor:
    """Integers of any size: modulo 2⁶⁴, which is exact where an integer dtype holds them, or in float64."""
    count = torch.arange(len(numbers), device=device)
    if dtype is not None and (dtype.is_floating_point or dtype.is_complex):
        return (count.to(torch.float64) * float(numbers.step) + float(numbers.start)).to(dtype)
    first, step = ((n + 2**63) % 2**64 - 2**63 for n in (numbers.start, numbers.step))
    made = count * step + first
    return _converted(made.view(torch.uint64) if dtype == torch.uint64 else made, dtype)


def _computed_in(dtype: torch.dtype | None) -> torch.dtype | None:
    """The dtype in which torch has kernels for ranges."""
    if dtype is None:
        return None
    return dtype.to_real() if dtype.is_complex else promotion.narrow(dtype)


def _converted(values: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    return values if dtype is None else values.to(dtype)


@operation
def _linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    if num < 0:
        raise ValueError(f"linspace needs a number of elements of 0 or more, got {num}")
    kernel = torch.int64 if dtype in promotion.WIDE else dtype
    made = torch.linspace(start, stop, num if endpoint else num + 1, dtype=kernel, device=device)
    return Tensor(_converted(made if endpoint else made[:-1], dtype))


@operation
def _eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: torch.dtype | None = None, device: Any = None
) -> Tensor:
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    if min(shape) < 0:
        raise ValueError(f"sizes must be 0 or more, got {shape}")
    made = torch.zeros(shape, dtype=dtype, device=device)
    if -made.shape[0] < k < made.shape[1]:
        made.diagonal(k).fill_(1)
    return Tensor(made)


@operation
def _meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing must be 'xy' or 'ij', got {indexing!r}")
    given = [as_tensor(a).torch() for a in arrays]
    if any(a.ndim > 1 for a in given):
        raise ValueError(f"meshgrid takes 1-D tensors, got shapes {[tuple(a.shape) for a in given]}")
    if len({a.dtype for a in given}) > 1:
        raise TypeError(f"meshgrid takes tensors of one dtype, got {[a.dtype for a in given]}")
    return [Tensor(a) for a in torch.meshgrid(*given, indexing=indexing)] if given else []


# -------------------------------------------------------------------------------------------------------- torch's calls


def _answer_meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return tuple(_meshgrid(*given, indexing=indexing or "ij"))


# --------------------------------------------------------------------------------------------------------------- bodies


def _linspace_body(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Any:
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        start, stop = int(start), int(stop)  # the ends are numbers of the dtype, and what lies between is cut off
    last = max(num - 1 if endpoint else num, 1)
    step, count = (stop - start) / last, ops.arange(num, dtype=torch.float64, device=device)
    # From the nearer end on, so that both ends are exact.
    made = ops.where(ops.less(count, (last + 1) // 2), start + count * step, stop - (last - count) * step)
    return ops.astype(made, torch.result_type(torch.empty(()), step) if dtype is None else dtype)


def _eye_body(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: torch.dtype | None = None, device: Any = None
) -> Any:
    rows, columns = (ops.arange(n_rows if n is None else n, device=device) for n in (n_rows, n_cols))
    made = ops.equal(ops.expand_dims(columns, axis=0) - ops.expand_dims(rows, axis=1), k)
    return ops.astype(made, torch.get_default_dtype() if dtype is None else dtype)


def _meshgrid_body(*arrays: Any, indexing: str = "xy") -> list[Any]:
    given = [ops.reshape(a, (-1,)) for a in arrays]
    places = list(range(len(given)))
    if indexing == "xy":
        places[:2] = places[1::-1] if len(places) > 1 else places
    shape = [given[i].shape[0] for i in places]
    shown = (ops.reshape(a, [-1 if place == i else 1 for place in places]) for i, a in enumerate(given))
    return [ops.broadcast_to(a, shape) for a in shown]


# fmt: off
record_creation("arange", _arange, "The numbers from start to stop, stop not included, `step` apart.",
        ("sr.arange(1, 6, 2).tolist()", "[1, 3, 5]"), samples=("6", "1, 6, 2", "6, 1"),
        operands=(), primitive="movement", flat=NO_ELEMENTS,
        errors=(("1, 5, 0", ValueError, "the step of arange must not be 0"),), dialect=written("arange"))
record_creation("linspace", _linspace, "`num` numbers at equal distances from start to stop.",
        ("sr.linspace(0., 1., 3).tolist()", "[0.0, 0.5, 1.0]"), operands=(), body=_linspace_body, flat=NO_ELEMENTS,
        samples=("0, 1, 5", "0, 1, 5, endpoint=False", "2, 3, 1", "-3, 9, 7, dtype=torch.int32"),
        errors=(("0, 1, -1", ValueError, "0 or more, got -1"),), dialect=written("linspace", num="n"))
record_creation("eye", _eye, "Ones on diagonal k of a matrix, zeros elsewhere.",
        ("sr.eye(2, 3, k=1).tolist()", "[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]"), samples=("3", "2, 3, k=-1", "2, k=5"),
        operands=(), body=_eye_body, flat=NO_ELEMENTS,
        errors=(("2, -1", ValueError, "sizes must be 0 or more"),), dialect=written("eye"))
record_creation("meshgrid", _meshgrid, "The coordinates of a grid, one tensor for each 1-D tensor given.",
        ("[g.tolist() for g in sr.meshgrid(sr.arange(2), sr.arange(3), indexing='ij')]",
         "[[[0, 0, 0], [1, 1, 1]], [[0, 1, 2], [0, 1, 2]]]"),
        torch=(torch.meshgrid,), answer=_answer_meshgrid, operands=("arrays",), body=_meshgrid_body,
        samples=("sr.arange(3), torch.arange(2)", "*[torch.linspace(0, 1, n).to(x.dtype) for n in (2, 3, 1)]",
                 "torch.linspace(0, 1, 2).to(x.dtype), indexing='ij'"),
        errors=(("sr.zeros((2, 2))", ValueError, "takes 1-D tensors"), ("x, x", TypeError, "only a dense tensor"),
                ("sr.arange(2), indexing='ab'", ValueError, "'xy' or 'ij'")), dialect=written("meshgrid"))
# fmt: on
