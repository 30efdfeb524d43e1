"""Joining, splitting, repeating and reordering entries: the records of the functions in `serrate.tensor`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from serrate.errors import AxisError, RaggednessError
from serrate.ops.manipulation import keep_elements, listed
from serrate.ops.record import operation, ops, written
from serrate.ops.rules import by_numbers, in_dtype
from serrate.tensor import join, rearrange
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor, as_tensor

concat, stack = operation(join.concat), operation(join.stack)
flip, roll, split = operation(rearrange.flip), operation(rearrange.roll), operation(rearrange.split)
repeat, tile = operation(rearrange.repeat), operation(rearrange.tile)


def _axis_of(dim: Any, options: dict[str, Any]) -> Any:
    """torch's `dim`, or numpy's `axis`, which torch takes as well."""
    axis = options.pop("axis", dim)
    if options.pop("out", None) is not None or options:
        raise TypeError(f"not defined for sr.Tensor: {', '.join(options) or 'out'}")
    return axis


def _answer_concat(tensors: Any, dim: int = 0, **options: Any) -> Tensor:
    return concat(tensors, axis=_axis_of(dim, options))


def _answer_stack(tensors: Any, dim: int = 0, **options: Any) -> Tensor:
    return stack(tensors, axis=_axis_of(dim, options))


def _answer_split(tensor: Any, split_size_or_sections: Any = None, dim: int = 0, **options: Any) -> tuple[Tensor, ...]:
    sizes = options.pop("split_size", split_size_or_sections)
    return tuple(split(tensor, sizes, axis=_axis_of(dim, options)))


def _answer_chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    x = as_tensor(input)
    size = x.shape[x._axis(dim)]
    if isinstance(size, Ragged):
        raise RaggednessError(
            f"chunk cuts a uniform axis, but axis {dim} of shape {x.shape} is ragged; split takes the size of pieces"
        )
    if chunks < 1:
        raise ValueError(f"chunk needs a positive number of pieces, got {chunks}")
    return tuple(split(x, -(size // -chunks), axis=dim) if size else split(x, [0] * chunks, axis=dim))


def _answer_flip(input: Any, *dims: Any, **named: Any) -> Tensor:
    return flip(input, axis=tuple(listed(dims, named)))


def _answer_roll(input: Any, shifts: Any, dims: Any = None) -> Tensor:
    return roll(input, shifts, axis=None if dims == () else dims)


def _answer_tile(input: Any, *dims: Any, **named: Any) -> Tensor:
    return tile(input, tuple(listed(dims, named)))


def _answer_repeat(self: Any, *repeats: Any, **named: Any) -> Tensor:
    x, counts = as_tensor(self), tuple(listed(repeats, named))
    if len(counts) < x.ndim:
        raise ValueError(f"repeat needs a count for each of the {x.ndim} axes of shape {x.shape}, got {tuple(counts)}")
    return tile(x, counts)


def _answer_repeat_interleave(input: Any, repeats: Any, dim: Any = None, *, output_size: int | None = None) -> Tensor:
    return repeat(input, repeats, axis=dim)


_LATE = ("x, axis=5", AxisError, "axis 5 is out of range")
_record = partial(keep_elements, "arrangement")


def _flip_body(x: Any, /, *, axis: int | Sequence[int] | None = None) -> Any:
    given = range(x.ndim) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
    chosen = {a % x.ndim for a in given}
    return x[tuple(slice(None, None, -1 if a in chosen else None) for a in range(x.ndim))]


def _roll_vjp(g: Any, out: Any, x: Any, *, shift: int | Sequence[int], axis: int | Sequence[int] | None) -> Any:
    back = [-each for each in shift] if isinstance(shift, Sequence) else -shift
    return ops.roll(g, back, axis=axis)


def _concat_vjp(g: Any, out: Any, tensors: Any, *, axis: int | None) -> list[Any]:
    """Each tensor gets its own part of the gradient."""
    parts = [as_tensor(x) for x in tensors]
    if axis is not None and not any(isinstance(x.shape[axis], Ragged) for x in parts):
        found = ops.split(g, [x.shape[axis] for x in parts], axis=axis)
    else:  # rows of each tensor lie between those of others
        nothing = [ops.full_like(x, -1, dtype=torch.int64) for x in parts]
        found = [
            ops.collect(g, ops.concat([*nothing[:i], ops.numbered(x), *nothing[i + 1 :]], axis=axis), x)
            for i, x in enumerate(parts)
        ]
    return [_as(each, x) for each, x in zip(found, parts, strict=True)]


def _stack_vjp(g: Any, out: Any, tensors: Any, *, axis: int) -> list[Any]:
    parts = [as_tensor(x) for x in tensors]
    return [_as(each, x) for each, x in zip(ops.unstack(g, axis=axis), parts, strict=True)]


def _as(gradient: Any, x: Any) -> Any:
    """The gradient in the dtype of an operand, which may have been promoted; None for integers and bools."""
    return in_dtype(gradient, x.dtype) if x.is_floating_point() or x.is_complex() else None


def _split_body(x: Any, sizes: int | Sequence[int], /, *, axis: int = 0) -> list[Any]:
    extent = x.shape[axis]
    longest = extent.partition.max_length if isinstance(extent, Ragged) else extent
    if not isinstance(sizes, Sequence):
        sizes = [min(sizes, longest - start) for start in range(0, longest, sizes)] or [0]
    before, starts = [slice(None)] * (axis % x.ndim), [0, *itertools.accumulate(sizes)]
    return [x[(*before, slice(start, stop))] for start, stop in itertools.pairwise(starts)]


def _split_vjp(g: Any, out: Any, x: Any, *, sizes: int | Sequence[int], axis: int) -> Any:
    given = [ops.zeros_like(piece) if each is None else each for each, piece in zip(g, out, strict=True)]
    return ops.concat(given, axis=axis) if given else ops.zeros_like(x)


def _tile_body(x: Any, repetitions: Sequence[int], /) -> Any:
    for _ in range(len(repetitions) - x.ndim):
        x = ops.expand_dims(x, axis=0)
    for axis, times in enumerate(repetitions, start=x.ndim - len(repetitions)):
        if times == 0:
            x = x[(*[slice(None)] * axis, slice(0, 0))]
        elif times > _MOST_COPIES:
            raise TypeError(f"a program does not list {times} copies of a tensor")
        elif times > 1:
            x = ops.concat([x] * times, axis=axis)
    return x


_MOST_COPIES = 1 << 10
"""So many copies of a tensor stand in a program that tiles it; a size that only a call knows is not listed."""


# fmt: off
_record("concat", concat, "Tensors joined along `axis`; on a ragged axis row by row, lengths adding.",
        ("sr.concat([sr.ragged([[1, 2], []]), sr.ragged([[3], [4]])], axis=1).tolist()", "[[1, 2, 3], [4]]"),
        dict.fromkeys(("cat", "concat", "concatenate"), _answer_concat),
        ("[x, x], axis=0", "[x, x], axis=1", "[x, x], axis=-1"), primitive="movement", vjp=_concat_vjp,
        errors=(("[x, x], axis=5", AxisError, "axis 5 is out of range"), ("[], axis=0", ValueError, "at least one"),
                ("[x, x[:2]], axis=1", ValueError, "must have one size")),
                dialect=written("combine", "concat", arrays="tensors"))
_record("stack", stack, "Tensors joined along a new axis; ragged axes behind it depend on it.",
        ("sr.stack([sr.ragged([[1, 2], []]), sr.ragged([[3], [4]])]).tolist()", "[[[1, 2], []], [[3], [4]]]"),
        {"stack": _answer_stack}, ("[x, x], axis=0", "[x, x], axis=-1"), primitive="movement", vjp=_stack_vjp,
        errors=(("[x, x], axis=5", IndexError, "axis 5 is out of range"), ("[]", ValueError, "at least one")),
        dialect=written("combine", "stack", arrays="tensors"))
_record("split", split, "Pieces along `axis`, of one size or of given sizes; each row of a ragged axis on its own.",
        ("[p.tolist() for p in sr.split(sr.ragged([[1, 2, 3], [4]]), 2, axis=1)]", "[[[1, 2], [4]], [[3], []]]"),
        {"split": _answer_split, "chunk": _answer_chunk}, ("x, 2, axis=0", "x, 1, axis=1"),
        operands=("x",), body=_split_body, vjp=_split_vjp,
        errors=(("x, 2, axis=5", AxisError, "axis 5 is out of range"), ("x, 0", ValueError, "must be positive")))
_record("flip", flip, "Entries along `axis`, or all axes, in reverse, each row on its own.",
        ("sr.flip(sr.ragged([[1, 2], [], [3, 4, 5]]), axis=1).tolist()", "[[2, 1], [], [5, 4, 3]]"),
        {"flip": _answer_flip}, ("x, axis=0", "x, axis=1", "x"), errors=(_LATE,),
        body=_flip_body, vjp=lambda g, out, x, *, axis: ops.flip(g, axis=axis), dialect=written("flip", x="rhs"))
_record("roll", roll, "Entries moved along `axis`, those that fall off the end of a row returning at its start.",
        ("sr.roll(sr.ragged([[1, 2], [], [3, 4, 5]]), 1, axis=1).tolist()", "[[2, 1], [], [5, 3, 4]]"),
        {"roll": _answer_roll}, ("x, 1, axis=0", "x, -2, axis=1", "x, 1, axis=-1"), primitive="movement", vjp=_roll_vjp,
        errors=(("x, 1, axis=5", AxisError, "axis 5 is out of range"),
                ("x, (1, 2), axis=0", ValueError, "one shift per axis")), dialect=written("roll", x="rhs"))
_record("repeat", repeat, "Each entry along `axis` repeated: an int, a count per entry, or a ragged tensor of counts.",
        ("sr.repeat(sr.ragged([[1, 2], [3]]), 2, axis=1).tolist()", "[[1, 1, 2, 2], [3, 3]]"),
        {"repeat_interleave": _answer_repeat_interleave},
        ("x, 2, axis=0", "x, 2, axis=1", "x, 2, axis=-1"), decides=("repeats",),
        primitive="movement", vjp=by_numbers("repeat"),
        errors=(("x, 2, axis=5", AxisError, "axis 5 is out of range"), ("x, -1, axis=1", ValueError, "0 or more")))
_record("tile", tile, "The whole of each axis repeated, rows on their own; counts are for the last axes.",
        ("sr.tile(sr.ragged([[1, 2], [3]]), (1, 2)).tolist()", "[[1, 2, 1, 2], [3, 3]]"),
        {"tile": _answer_tile, "repeat": _answer_repeat}, ("x, (2,)", "x, [2] * x.ndim", "x, [2] + [1] * x.ndim"),
        operands=("x",), body=_tile_body,
        errors=(("x, (-1,)", ValueError, "0 or more"),))
# fmt: on
