"""Elements read by their positions: gather and take along any axis, positions counted in each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from serrate.eager import picking
from serrate.eager.addresses import depends_on, indices_beside, stretched, within
from serrate.eager.taking import beside_axis, key_along, same_positions, take_features, take_rows
from serrate.errors import AxisError
from serrate.ops.answers import refuse_out
from serrate.ops.record import ALL, TABLE, Error, Implementation, Kind, operation, ops, record, torch_names, written
from serrate.ops.rules import by_numbers
from serrate.tensor import indexing
from serrate.tensor.assignment import shares_memory
from serrate.tensor.combine import exact
from serrate.tensor.tensor import Tensor, as_tensor


@operation
def _take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Tensor:
    tensor = as_tensor(x)
    return stretched(tensor, indices_beside(tensor, indices), tensor._axis(axis)).read()


@operation
def _gather(x: Any, indices: Any, /, *, axis: int) -> Tensor:
    tensor = as_tensor(x)
    return within(tensor, indices_beside(tensor, indices), tensor._axis(axis)).read()


@operation
def _take(x: Any, indices: Any, /, *, axis: int | None = None, fill: Any = None) -> Tensor:
    tensor = as_tensor(x)
    if axis is None and tensor.ndim != 1:
        raise TypeError(f"take needs an axis for a tensor of shape {tensor.shape}")
    number = tensor._axis(0 if axis is None else axis)
    if isinstance(indices, int) and fill is None:
        made = indexing.get(tensor, key_along(number, indices))
        return made.clone() if shares_memory(made.values, tensor.values) else made
    index, drop = same_positions(tensor, indices)
    if tensor.order[number] >= len(tensor.structure.axes):
        made = take_features(tensor, number, index, fill)
    elif any(depends_on(size, number) for size in tensor.shape):
        made = take_rows(tensor, number, index, fill)
    else:
        made = stretched(tensor, beside_axis(tensor, number, index), number, reports=fill is None).read(fill)
    return indexing.get(made, key_along(number, 0)) if drop else made


def _takes_rows(x: Any, indices: Any, /, *, axis: int | None = None, fill: Any = None) -> bool:
    """Whether compiled code takes these rows of the first axis."""
    return fill is None and isinstance(indices, torch.Tensor) and axis == 0 and picking.selects(x, indices)


def _compiled_take(x: Any, indices: Any, /, *, axis: int | None = None, fill: Any = None) -> Tensor:
    whole = indices.dtype in (torch.int32, torch.int64)
    made = picking.at_once(x, indices) if whole else None
    return TABLE["take"].implementations[-1].function(x, indices, axis=axis) if made is None else made


# ----------------------------------------------------------------------------------------------------- torch's spelling


def _answer_gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False, out: Any = None) -> Tensor:
    refuse_out("gather", out)
    return _gather(input, index, axis=dim)


def _answer_take_along(input: Any, indices: Any, dim: int | None = None, out: Any = None) -> Tensor:
    refuse_out("take_along_dim", out)
    if dim is None:  # among the packed elements, one behind the other
        return _answer_take(input, Tensor(exact(as_tensor(indices)).values.reshape(-1)))
    return _take_along_axis(input, indices, axis=dim)


def _answer_take(input: Any, index: Any, out: Any = None) -> Tensor:
    """torch.take: places among the packed elements."""
    refuse_out("take", out)
    places = as_tensor(index)
    flat = Tensor(exact(as_tensor(input)).values.reshape(-1))
    return places._with(_take(flat, Tensor(places.values.reshape(-1)), axis=0).values.view(places.values.shape))


def _answer_index_select(input: Any, dim: int, index: Any, *, out: Any = None) -> Tensor:
    refuse_out("index_select", out)
    return _take(input, as_tensor(index).torch().reshape(-1), axis=dim)


# ----------------------------------------------------------------------------------------------- bodies and derivatives


def _gather_body(x: Any, indices: Any, /, *, axis: int) -> Any:
    """Other uniform axes of the index may be shorter than those of x: the first entries are meant."""
    sizes = zip(x.shape, indices.shape, strict=True)
    shorter = [
        isinstance(own, int) and isinstance(size, int) and own < size and number != axis % x.ndim
        for number, (size, own) in enumerate(sizes)
    ]
    if any(shorter):
        key = (slice(0, n) if cut else slice(None) for cut, n in zip(shorter, indices.shape, strict=True))
        x = x[tuple(key)]
    return ops.take_along_axis(x, indices, axis=axis)


def _take_vjp(g: Any, out: Any, x: Any, indices: Any, *, axis: int | None, fill: Any) -> tuple[Any, ...]:
    moved = ops.take(ops.numbered(x), indices, axis=axis, fill=None if fill is None else -1)
    return ops.collect(g, moved, x), None


# -------------------------------------------------------------------------------------------------------------- records

_NO_AXIS: Error = ("x, torch.zeros(3, 1, 2).long(), axis=5", AxisError, "axis 5 is out of range")
_NO_INTEGERS: Error = ("x, x, axis=1", TypeError, "indices must be integers")
_FEW_AXES: Error = ("x, torch.zeros(2).long(), axis=1", ValueError, "indices must have as many axes")
_BEFORE: Error = ("x, x.to(torch.int64) - 1, axis=1", IndexError, "index -1 is out of range for row 0 of axis 1")
_BEYOND: Error = ("x, torch.ones(3, 1, 2).long(), axis=1", IndexError, "index 1 is out of range for row 1 of axis 1")


def record_gathering(
    name: str,
    eager: Callable[..., Tensor],
    answers: dict[str, Callable[..., Any]],
    summary: str,
    call: str,
    gives: str,
    samples: tuple[str, ...],
    errors: tuple[Error, ...],
    kinds: tuple[Kind, ...] = ALL,
    **fields: Any,
) -> None:
    """Define an operation that reads or writes by positions; `answers` answer torch's functions of these names."""
    record(
        "gathering",
        name,
        eager,
        None,
        spellings={function: answer for each, answer in answers.items() for function in torch_names(each)},
        summary=summary,
        example=(call, gives),
        kinds=kinds,
        samples=samples,
        errors=errors,
        **fields,
    )


ZEROS = "(x == x).to(torch.int64) * 0"  # an index of x's own shape that every row with an entry has


# fmt: off
record_gathering("gather", _gather, {"gather": _answer_gather},
        "torch.gather: the elements of x at `indices` along `axis`, other positions being those of the index.",
        "sr.gather(sr.ragged([[5, 6], [7]]), sr.ragged([[1, 0, 1], []]), axis=1).tolist()", "[[6, 5, 6], []]",
        (f"x, {ZEROS}, axis=1", f"x, {ZEROS}, axis=-1",
         f"sr.stack([x, x], axis=-1), ({ZEROS})[..., None], axis=1"),
        (_NO_AXIS, _NO_INTEGERS, _FEW_AXES, _BEFORE), body=_gather_body, dialect=written("gather", x="rhs"))
record_gathering("take_along_axis", _take_along_axis, {"take_along_dim": _answer_take_along},
        "The elements of x at `indices` along `axis`, negative ones counted from each row's end; other axes broadcast.",
        "sr.take_along_axis(sr.ragged([[5, 6], [7]]), sr.ragged([[-1, 0], []]), axis=1).tolist()", "[[6, 5], []]",
        (f"x, {ZEROS}, axis=1", f"x, {ZEROS} - 1"),
        (_NO_AXIS, _NO_INTEGERS, _FEW_AXES, _BEYOND), primitive="movement", vjp=by_numbers("take_along_axis"))
record_gathering("take", _take, {"index_select": _answer_index_select, "take": _answer_take},
        "The same positions of every row along `axis`, an int dropping it; `fill` stands for what a row lacks.",
        "sr.take(sr.ragged([[5, 6], [], [7]]), -1, axis=1, fill=0).tolist()", "[6, 0, 7]",
        ("x, torch.tensor([], dtype=torch.int64), axis=1", "x, -1, axis=1, fill=1", "x, [0, -3], axis=-1, fill=0",
         "x, 1, axis=0, fill=0"),
        (("x, [0], axis=5", AxisError, "axis 5 is out of range"), ("x, [1.5], axis=1", TypeError, "must be integers"),
         ("x, [1], axis=1", IndexError, "index 1 is out of range for row 1"),
         ("x, [0]", TypeError, "take needs an axis"), ("x, [[0]], axis=1", ValueError, "are a vector")),
        decides=("indices",), primitive="movement", vjp=_take_vjp,
        native=(Implementation("native", _compiled_take, _takes_rows),))
# fmt: on
