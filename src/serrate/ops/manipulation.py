"""Shapes changed, elements kept: reshape and view, broadcasting, axes moved, added and removed, unstack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from serrate.eager.reducing import AxisLike, expanded, reduction
from serrate.eager.reshaping import reshape
from serrate.errors import AxisError, RaggednessError
from serrate.ops.creation import home
from serrate.ops.record import ALL, operation, ops, record, torch_names, written
from serrate.ops.rules import in_dtype, reduced_to
from serrate.tensor import abstract, broadcast, indexing, rearrange
from serrate.tensor.broadcast import broadcast_shapes, lay_out, same_raggedness
from serrate.tensor.layout import canonical, read_shape
from serrate.tensor.structure import DENSE, Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor, as_tensor

permute_dims = operation(rearrange.permute_dims)
expand_dims = operation(rearrange.expand_dims)
squeeze = operation(rearrange.squeeze)

# --------------------------------------------------------------------------------------------------------- reshape


@operation
def _reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    return reshape(as_tensor(x), shape, copy)


def _answer_reshape(input: Any, *shape: Any, **named: Any) -> Tensor:
    return _reshape(input, listed(shape, named))


def _answer_view(self: Any, *shape: Any, **named: Any) -> Tensor:
    wanted = listed(shape, named)
    if any(isinstance(entry, torch.dtype) for entry in wanted):
        raise TypeError("view of an sr.Tensor takes a shape; x.values.view(dtype) reads the packed values otherwise")
    return _reshape(self, wanted, copy=False)


def listed(given: tuple[Any, ...], named: dict[str, Any]) -> Sequence[Any]:
    """Sizes or axes as torch takes them: one by one, as one sequence, or by name."""
    if named:
        given = tuple(named.values())
    return given[0] if len(given) == 1 and isinstance(given[0], Sequence) else given


def _answer_flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    x = as_tensor(input)
    if x.ndim == 0:
        return _reshape(x, (1,))
    first, last = x._axis(start_dim), x._axis(end_dim)
    if first > last:
        raise ValueError(f"flatten needs start_dim before end_dim, got {start_dim} and {end_dim}")
    merged = 1
    for axis in x.shape[first : last + 1]:
        if isinstance(axis, Ragged) and first < last:
            raise RaggednessError(
                f"flatten merges uniform axes, but among axes {first} … {last} of shape {x.shape} one is ragged; "
                f"x.combine(axis) merges a ragged axis with the one before it, x.flat() merges all packed axes"
            )
        merged *= axis if isinstance(axis, int) else 1
    return x if first == last else _reshape(x, (*x.shape[:first], merged, *x.shape[last + 1 :]))


def _answer_unflatten(input: Any, dim: int, sizes: Any) -> Tensor:
    x = as_tensor(input)
    number = x._axis(dim)
    if isinstance(x.shape[number], Ragged):
        raise RaggednessError(f"unflatten splits a uniform axis, but axis {dim} of shape {x.shape} is ragged")
    return _reshape(x, (*x.shape[:number], *read_shape(sizes), *x.shape[number + 1 :]))


# ------------------------------------------------------------------------------------------------------- broadcast


@operation
def _broadcast_to(x: Any, /, shape: Any) -> Tensor:
    tensor = as_tensor(x)
    wanted = _followed(tensor, read_shape(shape))
    if len(wanted) < tensor.ndim:
        raise ValueError(f"shape {tensor.shape} has more axes than {wanted}, to which it cannot broadcast")
    met = broadcast_shapes(tensor.shape, wanted)
    if any(type(a) is not type(b) or a != b for a, b in zip(met, wanted, strict=True)):
        raise ValueError(f"shape {tensor.shape} does not broadcast to {wanted}")
    return _stretched([tensor], met)[0]


def _followed(x: Tensor, wanted: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The shape in which x's own ragged axes have their own parents, counted as the shape counts."""
    shift = len(wanted) - x.ndim
    made = list(wanted)
    for i, axis in enumerate(x.shape):
        given = wanted[i + shift] if i + shift >= 0 else None
        if isinstance(axis, Ragged) and isinstance(given, Ragged) and given.partition.same_as(axis.partition):
            made[i + shift] = Ragged(axis.partition, (p + shift for p in axis.parents))
    return tuple(made)


@operation
def _expand_like(x: Any, like: Any, /, *, axis: AxisLike = None) -> Tensor:
    return expanded(reduction(like, axis), as_tensor(x))


@operation
def _broadcast_arrays(*arrays: Any) -> list[Tensor]:
    tensors = [as_tensor(a) for a in arrays]
    broadcast.require_one_device(*tensors)
    return _stretched(tensors, broadcast_shapes(*(t.shape for t in tensors))) if tensors else []


def _stretched(tensors: list[Tensor], shape: tuple[Axis, ...]) -> list[Tensor]:
    """Each tensor stretched to `shape`, which all broadcast to; they share one structure, that of one that has it."""
    grown = [_grown(t, len(shape)) for t in tensors]
    model = next((t for t in grown if t.is_ragged and same_raggedness(t.shape, shape)), None)
    if model is not None:
        structure, order, rows = model.structure, model.order, model.values.shape[0]
    else:
        structure, _, order = canonical(shape)
        home(structure, tensors[0].device)
        rows = structure.cells(structure.whole)
    return [_laid_out(t, shape, structure, order, rows) for t in grown]


def _grown(x: Tensor, ndim: int) -> Tensor:
    for _ in range(ndim - x.ndim):
        x = indexing.expand_dims(x, 0)
    return x


def _laid_out(x: Tensor, shape: tuple[Axis, ...], structure: Structure, order: tuple[int, ...], rows: int) -> Tensor:
    packed = len(structure.axes)
    sizes = [size for c in range(packed, len(shape)) if isinstance(size := shape[order.index(c)], int)]
    if structure is DENSE:
        return Tensor(x.values.expand(sizes), team=x.team)
    return Tensor(lay_out(x, structure, order).expand(rows, *sizes), structure, order, x.team)


def _answer_expand(self: Any, *sizes: Any, **named: Any) -> Tensor:
    x, wanted = as_tensor(self), list(read_shape(listed(sizes, named)))
    shift = len(wanted) - x.ndim
    for i, size in enumerate(wanted):
        if size == -1:
            if i < shift:
                raise ValueError(f"-1 keeps an axis, but axis {i} of {tuple(wanted)} is new to shape {x.shape}")
            wanted[i] = x.shape[i - shift]
    return _broadcast_to(x, wanted)


# ----------------------------------------------------------------------------------------------------- order of axes


@operation
def _moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    tensor = as_tensor(x)
    old = [tensor._axis(a) for a in (source if isinstance(source, Sequence) else [source])]
    new = [tensor._axis(a) for a in (destination if isinstance(destination, Sequence) else [destination])]
    if len(old) != len(new) or len(set(old)) < len(old) or len(set(new)) < len(new):
        raise ValueError(f"moveaxis needs as many sources as destinations, each once, got {source} and {destination}")
    rest = iter(a for a in range(tensor.ndim) if a not in old)
    placed = dict(zip(new, old, strict=True))
    return tensor.permute_dims([placed[i] if i in placed else next(rest) for i in range(tensor.ndim)])


def _answer_permute(input: Any, *dims: Any, **named: Any) -> Tensor:
    return permute_dims(input, listed(dims, named))


def _answer_transpose(input: Any, dim0: int, dim1: int) -> Tensor:
    x = as_tensor(input)
    axes = list(range(x.ndim))
    first, second = x._axis(dim0), x._axis(dim1)
    axes[first], axes[second] = second, first
    return permute_dims(x, axes)


def _answer_movedim(input: Any, source: Any, destination: Any) -> Tensor:
    return _moveaxis(input, source, destination)


def _answer_unsqueeze(input: Any, dim: int) -> Tensor:
    return expand_dims(input, axis=dim)


def _answer_squeeze(input: Any, dim: Any = None) -> Tensor:
    """torch leaves axes that have not size 1 as they are."""
    x = as_tensor(input)
    chosen = range(x.ndim) if dim is None else [x._axis(a) for a in (dim if isinstance(dim, Sequence) else [dim])]
    ones = [a for a in chosen if x.shape[a] == 1]
    return squeeze(x, axis=ones) if ones else x


@operation
def _unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    tensor = as_tensor(x)
    number = tensor._axis(axis)
    size = tensor.shape[number]
    if tensor.ndim == 0:
        raise AxisError("unstack needs at least one axis, got a 0-d tensor")
    if isinstance(size, Ragged):
        raise RaggednessError(f"unstack takes a uniform axis apart, but axis {axis} of shape {tensor.shape} is ragged")
    if number == 0:
        return tuple(tensor.rows())
    return tuple(tensor[(*[slice(None)] * number, i)] for i in abstract.entries(size, "unstack"))


def _permute_vjp(g: Any, out: Any, x: Any, *, axes: Sequence[int]) -> Any:
    places = [axis % x.ndim for axis in axes]
    return ops.permute_dims(g, [places.index(axis) for axis in range(x.ndim)])


def _expand_dims_body(x: Any, /, axis: int = 0) -> Any:
    return x[(*[slice(None)] * (axis % (x.ndim + 1)), None)]


def _squeeze_body(x: Any, /, axis: int | Sequence[int]) -> Any:
    gone = {a % x.ndim for a in (axis if isinstance(axis, Sequence) else (axis,))}
    return x[tuple(0 if a in gone else slice(None) for a in range(x.ndim))]


def _squeeze_vjp(g: Any, out: Any, x: Any, *, axis: int | Sequence[int]) -> Any:
    for each in sorted(a % x.ndim for a in (axis if isinstance(axis, Sequence) else (axis,))):
        g = ops.expand_dims(g, axis=each)
    return g


def _broadcast_arrays_body(*arrays: Any) -> list[Any]:
    shape = broadcast_shapes(*(x.shape for x in arrays)) if arrays else ()
    return [ops.broadcast_to(x, shape) for x in arrays]


def _moveaxis_body(x: Any, source: int | Sequence[int], destination: int | Sequence[int], /) -> Any:
    old, new = ([a % x.ndim for a in (g if isinstance(g, Sequence) else [g])] for g in (source, destination))
    rest = iter(a for a in range(x.ndim) if a not in old)
    placed = dict(zip(new, old, strict=True))
    return ops.permute_dims(x, [placed[i] if i in placed else next(rest) for i in range(x.ndim)])


def _unstack_body(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    number = axis % x.ndim
    return tuple(x[(*[slice(None)] * number, i)] for i in range(x.shape[number]))


def unstack_vjp(g: Any, out: Any, x: Any, *, axis: int = 0) -> Any:
    """The rule of what takes an axis apart: the gradients of its entries in their places."""
    if not out:
        return ops.zeros_like(x)
    given = [ops.zeros_like(entry) if each is None else each for each, entry in zip(g, out, strict=True)]
    moved = ops.unstack(ops.numbered(x), axis=axis)
    if any(each.is_ragged for each in moved):
        return sum((ops.collect(each, at, x) for each, at in zip(given[1:], moved[1:], strict=True)),
                   ops.collect(given[0], moved[0], x))  # fmt: skip
    # Dense entries may differ in length, and one of them after the other is collected at once.
    each, at = (ops.concat([ops.reshape(e, (-1,)) for e in entries], axis=0) for entries in (given, moved))
    return ops.collect(each, at, x)


# ---------------------------------------------------------------------------------------------------------- records

_LATE = ("x, axis=5", AxisError, "axis 5 is out of range")


def keep_elements(
    family: str,
    name: str,
    eager: Callable[..., Any],
    summary: str,
    example: tuple[str, str],
    answers: dict[str, Callable[..., Any]],
    samples: tuple[str, ...],
    **fields: Any,
) -> None:
    """A record of an operation that keeps elements; `answers` are torch's functions by name, and what answers them."""
    found = {function: answer for each, answer in answers.items() for function in torch_names(each)}
    fields |= {"summary": summary, "example": example, "samples": samples, "kinds": ALL}
    record(family, name, eager, None, spellings=found, **fields)


_record = partial(keep_elements, "manipulation")

# fmt: off
_record("reshape", _reshape, "x in another shape: uniform axes split and merged, ragged ones as they are.",
        ("sr.reshape(sr.zeros((2, sr.Ragged([3, 1]), 6)), (2, sr.Ragged([3, 1]), 2, 3)).shape",
         "(2, Ragged([3, 1]), 2, 3)"),
        {"reshape": _answer_reshape, "view": _answer_view, "flatten": _answer_flatten, "unflatten": _answer_unflatten,
         "view_as": lambda self, other: _answer_view(self, other.shape),
         "reshape_as": lambda self, other: _answer_reshape(self, other.shape)},
        ("x, x.shape", "x, (*x.shape, 1)", "x, x.shape, copy=True"),
        primitive="movement", vjp=lambda g, out, x, **_: ops.reshape(g, x.shape),
        errors=(("x, (6, 2)", RaggednessError, "x.combine"), ("x, (3, x.shape[1], 3)", ValueError, "hold 2 entries"),
                ("x, (3, sr.Ragged([1, 2, 3]), 2)", RaggednessError, "in its place"),
                ("x, 'ab'", TypeError, "a shape is an int or a tuple")), dialect=written("reshape", x="rhs"))
_record("broadcast_to", _broadcast_to, "x stretched to a shape along axes of size 1, which may become ragged.",
        ("sr.broadcast_to(torch.tensor([[1], [2]]), (2, sr.Ragged([2, 1]))).tolist()", "[[1, 1], [2]]"),
        {"broadcast_to": _broadcast_to, "expand": _answer_expand,
         "expand_as": lambda self, other: _broadcast_to(self, other.shape)},
        ("x, x.shape", "x, (2, *x.shape)", "torch.ones((), dtype=x.dtype), x.shape"),
        primitive="movement", vjp=lambda g, out, x, **_: reduced_to(g, x),
        errors=(("x, (3, 4, 2)", RaggednessError, "ragged in one operand"), ("x, (2,)", ValueError, "more axes"),
                ("x, (3, x.shape[1], 5)", ValueError, "do not broadcast")), dialect=written("broadcast", x="rhs"))
_record("broadcast_arrays", _broadcast_arrays, "Tensors stretched to their common shape.",
        ("[t.tolist() for t in sr.broadcast_arrays(sr.ragged([[1, 2], []]), torch.tensor(5))]",
         "[[[1, 2], []], [[5, 5], []]]"),
        {"broadcast_tensors": lambda *t: tuple(_broadcast_arrays(*(t[0] if len(t) == 1 and isinstance(t[0], Sequence)
                                                                   else t)))},
        ("x, x", "x, torch.ones(())"), operands=("arrays",), body=_broadcast_arrays_body,
        errors=(("x, torch.ones(3)", ValueError, "do not broadcast"),))
_record("expand_like", _expand_like,
        "What a reduction of `like` along `axis` gave, or a tensor of that shape, beside each element of `like`.",
        ("sr.expand_like(sr.asarray([1., 2.]), sr.ragged([[0, 0], [0]]), axis=1).tolist()", "[[1.0, 1.0], [2.0]]"), {},
        tuple(f"sr.sum(x, axis={axis}, dtype=x.dtype), x, axis={axis}" for axis in (1, 0, -1)),
        errors=(("x, x, axis=1", ValueError, "what was reduced along axes"),
                ("sr.sum(x, axis=1), x, axis=5", AxisError, "axis 5 is out of range"),
                ("sr.from_lengths(torch.ones(6, 2), [1, 2, 3])[..., 0], x, axis=2", RaggednessError, "raggedness")),
        primitive="movement", vjp=lambda g, out, x, like, *, axis: (in_dtype(ops.sum(g, axis=axis), x.dtype), None))
_record("moveaxis", _moveaxis, "x with some axes moved to other places; a view.",
        ("sr.moveaxis(sr.zeros((2, sr.Ragged([3, 1]), 4)), 2, 1).shape", "(2, 4, Ragged([3, 1]))"),
        {"movedim": _answer_movedim, "moveaxis": _answer_movedim}, ("x, -1, 0", "x, (0, 1), (1, 0)"),
        operands=("x",), body=_moveaxis_body,
        errors=(("x, 5, 0", AxisError, "axis 5 is out of range"), ("x, (0, 1), 1", ValueError, "as many sources")))
_record("permute_dims", permute_dims, "The same storage with its axes in another order; a view.",
        ("sr.permute_dims(sr.zeros((2, sr.Ragged([1, 2]), 4)), (0, 2, 1)).shape", "(2, 4, Ragged([1, 2]))"),
        {"permute": _answer_permute, "transpose": _answer_transpose, "swapaxes": _answer_transpose,
         "swapdims": _answer_transpose},
        ("x, tuple(range(x.ndim))[::-1]",), primitive="movement", vjp=_permute_vjp, operands=("x",),
        errors=(("x, (0, 0, 1)", AxisError, "name each of the 3 axes once"),),
        dialect=written("permute_dims", x="rhs", axes="axis"))
_record("expand_dims", expand_dims, "A new axis of size 1 at `axis`; a view.",
        ("sr.expand_dims(sr.ragged([[1, 2], [3]]), axis=1).shape", "(2, 1, Ragged([2, 1]))"),
        {"unsqueeze": _answer_unsqueeze}, ("x, axis=0", "x, axis=1", "x, axis=-1"), errors=(_LATE,),
        body=_expand_dims_body, vjp=lambda g, out, x, *, axis: ops.squeeze(g, axis=axis),
        dialect=written("expand_dims", x="rhs"))
_record("squeeze", squeeze, "Axes of size 1 removed.",
        ("sr.squeeze(sr.ragged([[1, 2, 3]]), axis=0).shape", "(3,)"),
        {"squeeze": _answer_squeeze}, ("x[..., None], axis=-1", "x[None], axis=0"),
        errors=(_LATE, ("x, axis=2", ValueError, "has not size 1")), body=_squeeze_body, vjp=_squeeze_vjp,
        dialect=written("squeeze", x="rhs"))
_record("unstack", _unstack, "The entries along a uniform axis, as a tuple.",
        ("[row.tolist() for row in sr.unstack(sr.ragged([[1, 2], []]))]", "[[1, 2], []]"),
        {"unbind": lambda input, dim=0: _unstack(input, axis=dim)}, ("x", "x[..., None], axis=-1"),
        body=_unstack_body, vjp=unstack_vjp,
        errors=(_LATE, ("x, axis=1", RaggednessError, "unstack takes a uniform axis apart")))
# fmt: on
