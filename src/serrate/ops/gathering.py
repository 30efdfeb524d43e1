"""Elements by their positions: gather, take and scatter along any axis, positions counted in each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from serrate.eager import picking
from serrate.eager.addresses import Address, beside, combined, depends_on, lengths_of, values_of
from serrate.errors import AxisError, RaggednessError
from serrate.ops.answers import refuse_out
from serrate.ops.derivatives import by_numbers, conjugate, reduced_to
from serrate.ops.grouping import integers
from serrate.ops.record import ALL, NUMERIC, TABLE, Error, Implementation, Kind, operation, ops, record, torch_names
from serrate.ops.reductions import product_of_others
from serrate.tensor import bits, broadcast, host, indexing, plan, select
from serrate.tensor.assignment import shares_memory
from serrate.tensor.combine import exact
from serrate.tensor.layout import assemble
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor, as_tensor


def _indices(x: Tensor, given: Any) -> Tensor:
    indices = integers(given, "indices")
    broadcast.require_one_device(x, indices)
    if indices.ndim != x.ndim or x.ndim == 0:
        raise ValueError(f"indices must have as many axes as a tensor of shape {x.shape}, got shape {indices.shape}")
    return indices


def _stretched(x: Tensor, indices: Tensor, axis: int, reports: bool = True) -> Address:
    """Other axes broadcast; negative indices count from the end."""
    free = [1 if i == axis or depends_on(size, axis) else size for i, size in enumerate(x.shape)]
    shape = broadcast.broadcast_shapes(tuple(free), indices.shape)
    return Address(x, indices, axis, shape, wraps=True, reports=reports)


def _within(x: Tensor, indices: Tensor, axis: int) -> Address:
    """torch.gather's rule: other axes of indices are ragged as x's are, and no larger where uniform."""
    for i, (size, own) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i == axis or depends_on(size, axis):
            continue
        if isinstance(size, Ragged) or isinstance(own, Ragged):
            if not isinstance(size, Ragged) or not isinstance(own, Ragged) or size != own:
                raise RaggednessError(f"axis {i} of indices must be {size}, as in the tensor they index, got {own}")
        elif own > size:
            raise ValueError(f"axis {i} of indices must be no larger than {size}, as in the tensor, got {own}")
    return Address(x, indices, axis, indices.shape, wraps=False)


@operation
def _take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Tensor:
    tensor = as_tensor(x)
    return _stretched(tensor, _indices(tensor, indices), tensor._axis(axis)).read()


@operation
def _gather(x: Any, indices: Any, /, *, axis: int) -> Tensor:
    tensor = as_tensor(x)
    return _within(tensor, _indices(tensor, indices), tensor._axis(axis)).read()


@operation
def _scatter(
    x: Any, indices: Any, src: Any, /, *, axis: int, reduce: str | None = None, include_self: bool = True
) -> Tensor:
    tensor = as_tensor(x)
    if reduce not in (None, "sum", "prod", "amax", "amin", "mean"):
        raise ValueError(f"reduce must be None, 'sum', 'prod', 'amax', 'amin' or 'mean', got {reduce!r:.40}")
    if reduce in ("amax", "amin") and tensor.is_complex():
        raise TypeError(f"{reduce} needs ordered elements, got {tensor.dtype}")
    if reduce is not None and tensor.dtype == torch.bool:
        raise TypeError(f"{reduce} needs numbers, got {tensor.dtype}")
    return _within(tensor, _indices(tensor, indices), tensor._axis(axis)).write(src, reduce, include_self)


@operation
def _take(x: Any, indices: Any, /, *, axis: int | None = None, fill: Any = None) -> Tensor:
    tensor = as_tensor(x)
    if axis is None and tensor.ndim != 1:
        raise TypeError(f"take needs an axis for a tensor of shape {tensor.shape}")
    number = tensor._axis(0 if axis is None else axis)
    if isinstance(indices, int) and fill is None:
        made = indexing.get(tensor, _along(number, indices))
        return made.clone() if shares_memory(made.values, tensor.values) else made
    index, drop = _positions(tensor, indices)
    if tensor.order[number] >= len(tensor.structure.axes):
        made = _take_features(tensor, number, index, fill)
    elif any(depends_on(size, number) for size in tensor.shape):
        made = _take_rows(tensor, number, index, fill)
    else:
        made = _stretched(tensor, _shaped(tensor, number, index), number, reports=fill is None).read(fill)
    return indexing.get(made, _along(number, 0)) if drop else made


def _takes_rows(x: Any, indices: Any, /, *, axis: int | None = None, fill: Any = None) -> bool:
    """Whether compiled code takes these rows of the first axis."""
    return fill is None and isinstance(indices, torch.Tensor) and axis == 0 and picking.selects(x, indices)


def _compiled_take(x: Any, indices: Any, /, *, axis: int | None = None, fill: Any = None) -> Tensor:
    whole = indices.dtype in (torch.int32, torch.int64)
    made = picking.at_once(x, indices) if whole else None
    return TABLE["take"].implementations[-1].function(x, indices, axis=axis) if made is None else made


def _positions(x: Tensor, indices: Any) -> tuple[torch.Tensor, bool]:
    """The same positions for every row as a vector, and whether they are one number, so that the axis goes."""
    if isinstance(indices, int):
        indices = host.send(torch.tensor(indices, device="cpu"), x.device)
    elif isinstance(indices, (list, tuple, range)):
        listed = torch.tensor([*indices], dtype=None if len(indices) else torch.int64, device="cpu")
        indices = host.send(listed, x.device)
    index = integers(indices, "indices").torch().to(torch.int64)
    broadcast.require_one_device(x, index)
    if index.ndim > 1:
        raise ValueError(f"the same positions of every row are a vector, got indices of shape {list(index.shape)}")
    return index.reshape(-1), index.ndim == 0


def _shaped(x: Tensor, axis: int, index: torch.Tensor) -> Tensor:
    return Tensor(index.view([-1 if a == axis else 1 for a in range(x.ndim)]))


def _take_features(x: Tensor, axis: int, index: torch.Tensor, fill: Any) -> Tensor:
    """Positions along a dimension of the values."""
    dim = x.order[axis] - len(x.structure.axes) + (1 if x.is_ragged else 0)
    size = x.values.shape[dim]
    at = torch.where(index < 0, index + size, index)
    bad = (at < 0) | (at >= size)

    def error(i: int) -> IndexError:
        return IndexError(f"index {int(index[i])} is out of range for axis {axis} with size {size}")

    values = x.values
    if fill is None:
        if size == 0 and index.numel():
            raise IndexError(f"axis {axis} with size 0 has no entry to take")
        host.defer(host.first_fault(bad), error)
    elif size == 0:
        values = bits.constant(fill, x.dtype, x.device).expand(
            [1 if d == dim else n for d, n in enumerate(values.shape)]
        )
    made = bits.index(values, (*[slice(None)] * dim, at.clamp(0, max(size - 1, 0))))
    if fill is not None:
        where = bad.view([-1 if d == dim else 1 for d in range(made.ndim)])
        made = bits.where(where, bits.constant(fill, x.dtype, x.device), made)
    return x._with(made)


def _along(axis: int, entry: Any) -> tuple[Any, ...]:
    return (*[slice(None)] * axis, entry)


@dataclass(frozen=True)
class _Reach(select.Pad):
    """The same positions of every row, missing ones filled: the axis becomes uniform."""

    index: torch.Tensor
    copies = None

    def source(self, at: plan.Place, device: torch.device) -> select.Cells:
        """For each new cell the old one, -1 if there is none."""
        index = host.send(self.index, device)
        rows = at.outer_cells(device)
        if rows.numel() == 0 or (isinstance(at.old, Partition) and at.old.num_components == 0):
            return torch.full((rows.numel() * self.size,), -1, device=device)
        have = lengths_of(at.old, rows.clamp(min=0)[:, None])
        missing = (index < -have) | (index >= have)
        return torch.where(missing, -1, at.on_grid(index).view(rows.numel(), self.size)).flatten()


def _take_rows(x: Tensor, axis: int, index: torch.Tensor, fill: Any) -> Tensor:
    """Positions of an axis that ragged ones depend on: where it is too short, those are empty."""
    if fill is None:
        return indexing.get(x, _along(axis, index))
    positions = plan.host_index(index, x.structure)
    walk = plan.Plan(x.structure, {x.order[axis]: _Reach(positions.numel(), positions)})
    return assemble(x, walk.read(x.values, fill), walk.result(), x.order)


@operation
def _index_add(x: Any, indices: Any, source: Any, /, *, axis: int, alpha: Any = 1) -> Tensor:
    tensor = as_tensor(x)
    number = tensor._axis(axis)
    index, _ = _positions(tensor, indices)
    if tensor.dtype == torch.bool:
        raise TypeError(f"index_add needs numbers, got {tensor.dtype}")
    scaled = source if isinstance(alpha, int) and alpha == 1 else source * alpha
    if any(depends_on(size, number) for size in tensor.shape):
        return _add_rows(tensor, number, index, scaled)
    return _stretched(tensor, _shaped(tensor, number, index), number).write(scaled, "sum", include_self=True)


def _add_rows(x: Tensor, axis: int, index: torch.Tensor, source: Any) -> Tensor:
    """Whole rows added, whose raggedness is that of the rows they are added to."""
    numbers = beside(torch.arange(x.values.shape[0], device=x.device), x.values)
    chosen = indexing.get(x._with(numbers), _along(axis, index))
    rows = chosen.values.expand(-1, *x.values.shape[1:])
    source = values_of(source, chosen._with(rows), x.dtype).expand(rows.shape)
    return x._with(combined(x.values, chosen.values.reshape(-1), source, "sum", include_self=True))


# ------------------------------------------------------------------------------------------------ torch's spelling


def _answer_gather(input: Any, dim: int, index: Any, *, sparse_grad: bool = False, out: Any = None) -> Tensor:
    refuse_out("gather", out)
    return _gather(input, index, axis=dim)


def _answer_take_along(input: Any, indices: Any, dim: int | None = None, out: Any = None) -> Tensor:
    refuse_out("take_along_dim", out)
    return _answer_take(input, indices) if dim is None else _take_along_axis(input, indices, axis=dim)


def _answer_take(input: Any, index: Any, out: Any = None) -> Tensor:
    """torch.take: places among the packed elements."""
    refuse_out("take", out)
    places = as_tensor(index)
    flat = Tensor(exact(as_tensor(input)).values.reshape(-1))
    return places._with(_take(flat, Tensor(places.values.reshape(-1)), axis=0).values.view(places.values.shape))


def _answer_index_select(input: Any, dim: int, index: Any, *, out: Any = None) -> Tensor:
    refuse_out("index_select", out)
    return _take(input, as_tensor(index).torch().reshape(-1), axis=dim)


_TORCH_REDUCE = {"add": "sum", "multiply": "prod"}


def _answer_scatter(
    input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None, out: Any = None
) -> Tensor:
    refuse_out("scatter", out)
    source = value if src is None else src
    return _scatter_first(input, dim, index, source, None if reduce is None else _TORCH_REDUCE.get(reduce, reduce))


def _answer_scatter_add(input: Any, dim: int, index: Any, src: Any, *, out: Any = None) -> Tensor:
    refuse_out("scatter_add", out)
    return _scatter_first(input, dim, index, src, "sum")


def _answer_scatter_reduce(
    input: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True, out: Any = None
) -> Tensor:
    refuse_out("scatter_reduce", out)
    return _scatter_first(input, dim, index, src, reduce, include_self)


def _scatter_first(input: Any, dim: int, index: Any, src: Any, reduce: str | None, include_self: bool = True) -> Tensor:
    """torch lets uniform axes of src be larger than those of index: their first entries are meant."""
    if isinstance(src, (Tensor, torch.Tensor)) and src.ndim == index.ndim:
        cut = [isinstance(n, int) and isinstance(m, int) and n > m for n, m in zip(src.shape, index.shape, strict=True)]
        if any(cut):
            src = as_tensor(src)[
                tuple(slice(0, m) if c else slice(None) for c, m in zip(cut, index.shape, strict=True))
            ]
    return _scatter(input, index, src, axis=dim, reduce=reduce, include_self=include_self)


def _answer_index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1, out: Any = None) -> Tensor:
    refuse_out("index_add", out)
    return _index_add(input, index, source, axis=dim, alpha=alpha)


# ------------------------------------------------------------------------------------------- bodies and derivatives


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


def _scatter_vjp(
    g: Any, out: Any, x: Any, indices: Any, src: Any, *, axis: int, reduce: str | None, include_self: bool
) -> tuple[Any, ...]:
    at = ops.gather(ops.numbered(x), indices, axis=axis)

    def over(each: Any) -> Any:
        return ops.collect(each, at, x)

    def beside(each: Any) -> Any:
        return ops.distribute(each, at, x)

    count = over(ops.ones_like(at))
    keeps = reduce is not None and include_self
    left = g if keeps else ops.where(ops.greater(count, 0), 0, g)  # what x has, where its element does not count
    if reduce in (None, "sum"):
        return left, None, reduced_to(beside(g), src)
    if reduce == "mean":
        share = g / ops.maximum(count + int(keeps), 1)
        return share if keeps else left, None, reduced_to(beside(share), src)
    given = _as_source(src, at, x)
    if reduce == "prod":
        zero, theirs = ops.equal(x, 0), ops.equal(given, 0)
        zeros, vanishing = over(ops.astype(theirs, torch.int64)), over(ops.where(theirs, given, 0))
        if keeps:
            zeros, vanishing = zeros + zero, vanishing + ops.where(zero, x, 0)
        rest = ops.scatter(
            ops.where(zero, 1, x), indices, ops.where(theirs, 1, given), axis=axis, reduce="prod",
            include_self=include_self,
        )  # fmt: skip
        mine = g * conjugate(product_of_others(x, zeros, rest, vanishing)) if keeps else left
        others = product_of_others(given, beside(zeros), beside(rest), beside(vanishing))
        return mine, None, reduced_to(beside(g) * conjugate(others), src)
    # Elements that are equal to the result share its gradient.
    own, theirs = (ops.astype(ops.equal(each, made), x.dtype) for each, made in ((x, out), (given, beside(out))))
    share = g / ops.maximum(over(theirs) + own if keeps else over(theirs), 1)
    return share * own if keeps else left, None, reduced_to(beside(share) * theirs, src)


def _as_source(source: Any, at: Any, x: Any) -> Any:
    """What is written, in the shape of the places it is written to, and the dtype of x."""
    if not isinstance(source, (Tensor, torch.Tensor)):
        return ops.full_like(at, source, dtype=x.dtype)
    return ops.broadcast_to(ops.astype(source, x.dtype, copy=False), at.shape)


def _index_add_body(x: Any, indices: Any, source: Any, /, *, axis: int, alpha: Any = 1) -> Any:
    if isinstance(indices, int):
        indices = [indices]
    elif isinstance(indices, Tensor):
        indices = ops.reshape(indices, (-1,))
    at = ops.take(ops.numbered(x), indices, axis=axis)
    scaled = source if isinstance(alpha, int) and alpha == 1 else source * alpha
    return x + ops.collect(_as_source(scaled, at, x), at, x)


# ------------------------------------------------------------------------------------------------ records

_NO_AXIS: Error = ("x, torch.zeros(3, 1, 2).long(), axis=5", AxisError, "axis 5 is out of range")
_NO_INTEGERS: Error = ("x, x, axis=1", TypeError, "indices must be integers")
_FEW_AXES: Error = ("x, torch.zeros(2).long(), axis=1", ValueError, "indices must have as many axes")
_BEFORE: Error = ("x, x.to(torch.int64) - 1, axis=1", IndexError, "index -1 is out of range for row 0 of axis 1")
_BEYOND: Error = ("x, torch.ones(3, 1, 2).long(), axis=1", IndexError, "index 1 is out of range for row 1 of axis 1")


def _record(
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


_ZEROS = "(x == x).to(torch.int64) * 0"  # an index of x's own shape that every row with an entry has

# fmt: off
_record("gather", _gather, {"gather": _answer_gather},
        "torch.gather: the elements of x at `indices` along `axis`, other positions being those of the index.",
        "sr.gather(sr.ragged([[5, 6], [7]]), sr.ragged([[1, 0, 1], []]), axis=1).tolist()", "[[6, 5, 6], []]",
        (f"x, {_ZEROS}, axis=1", f"x, {_ZEROS}, axis=-1",
         f"sr.stack([x, x], axis=-1), ({_ZEROS})[..., None], axis=1"),
        (_NO_AXIS, _NO_INTEGERS, _FEW_AXES, _BEFORE), body=_gather_body)
_record("take_along_axis", _take_along_axis, {"take_along_dim": _answer_take_along},
        "The elements of x at `indices` along `axis`, negative ones counted from each row's end; other axes broadcast.",
        "sr.take_along_axis(sr.ragged([[5, 6], [7]]), sr.ragged([[-1, 0], []]), axis=1).tolist()", "[[6, 5], []]",
        (f"x, {_ZEROS}, axis=1", f"x, {_ZEROS} - 1"),
        (_NO_AXIS, _NO_INTEGERS, _FEW_AXES, _BEYOND), primitive="movement", vjp=by_numbers("take_along_axis"))
_record("take", _take, {"index_select": _answer_index_select, "take": _answer_take},
        "The same positions of every row along `axis`, an int dropping it; `fill` stands for what a row lacks.",
        "sr.take(sr.ragged([[5, 6], [], [7]]), -1, axis=1, fill=0).tolist()", "[6, 0, 7]",
        ("x, torch.tensor([], dtype=torch.int64), axis=1", "x, -1, axis=1, fill=1", "x, [0, -3], axis=-1, fill=0",
         "x, 1, axis=0, fill=0"),
        (("x, [0], axis=5", AxisError, "axis 5 is out of range"), ("x, [1.5], axis=1", TypeError, "must be integers"),
         ("x, [1], axis=1", IndexError, "index 1 is out of range for row 1"),
         ("x, [0]", TypeError, "take needs an axis"), ("x, [[0]], axis=1", ValueError, "are a vector")),
        decides=("indices",), primitive="movement", vjp=_take_vjp,
        native=(Implementation("native", _compiled_take, _takes_rows),))
_record("scatter", _scatter,
        {"scatter": _answer_scatter, "scatter_add": _answer_scatter_add, "scatter_reduce": _answer_scatter_reduce},
        "x with `src` written to the positions `indices` of each row along `axis`, or combined by `reduce`.",
        "sr.scatter(sr.ragged([[5, 6], [7]]), sr.ragged([[1], []]), 9, axis=1).tolist()", "[[5, 9], [7]]",
        (f"x, {_ZEROS}, x, axis=1", f"x, {_ZEROS}, x, axis=-1"),
        ((f"x, {_ZEROS}, 1.0, axis=5", AxisError, "axis 5 is out of range"),
         ("x, x, 1.0, axis=1", TypeError, "indices must be integers"),
         (f"x, {_ZEROS}, 1.0, axis=1, reduce='add'", ValueError, "reduce must be None"),
         ("x, torch.ones(3, 1, 2).long(), 1.0, axis=1", IndexError, "index 1 is out of range for row 1 of axis 1")),
        primitive="movement", vjp=_scatter_vjp)
_record("index_add", _index_add, {"index_add": _answer_index_add},
        "x with `source` times `alpha` added to the same positions of every row along `axis`.",
        "sr.index_add(sr.ragged([[5, 6], [7]]), [-1], torch.tensor([[10], [20]]), axis=1).tolist()",
        "[[5, 16], [27]]",
        ("x, torch.tensor([], dtype=torch.int64), 1, axis=1", "x[..., None], [0, -1], x[..., None], axis=-1, alpha=2"),
        (("x, [0], 1.0, axis=5", AxisError, "axis 5 is out of range"),
         ("x, [1], 1.0, axis=1", IndexError, "index 1 is out of range for row 1"),
         ("x.to(torch.int64), [0], 1.5, axis=1", TypeError, "do not go into")), NUMERIC,
        body=_index_add_body)
# fmt: on
