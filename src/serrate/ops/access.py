"""Reading, writing, padding and copying a tensor: the records of what `Tensor` has as methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from serrate.eager import padding, picking
from serrate.errors import AxisError, RaggednessError
from serrate.ops.manipulation import unstack_vjp
from serrate.ops.record import ALL, Error, Implementation, operation, ops, record, torch_names, written
from serrate.ops.rules import by_numbers, in_dtype, reduced_to
from serrate.tensor import assignment, combine, dense, indexing, memory
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor


def _record(
    name: str,
    implementation: Callable[..., Any],
    summary: str,
    example: tuple[str, str],
    samples: tuple[str, ...],
    errors: tuple[Error, ...],
    **fields: Any,
) -> None:
    usual = {"kinds": ALL, "operands": ("x",)}
    record(
        "access",
        f"Tensor.{name}",
        operation(implementation),
        None,
        summary=summary,
        example=example,
        samples=samples,
        errors=errors,
        **usual | fields,
    )


_X = "sr.ragged([[1, 2], [], [3]])"
_NO_AXIS: Error = ("x, 5", AxisError, "axis 5 is out of range")
_NO_ARGUMENT: Error = ("x, 1", TypeError, "positional argument")


def _masked_fill_in_place(self: Any, mask: Any, value: Any) -> Any:
    """torch's masked_fill_: `value` written where the mask holds."""
    return self.copy_(self.masked_fill(mask, value))


# ------------------------------------------------------------------------------------------- bodies and derivatives


def _setitem_vjp(g: Any, out: Any, x: Any, key: Any, value: Any) -> tuple[Any, ...]:
    """What was there has no gradient any more; the value has that of the places it was written to."""
    numbers = ops["Tensor.getitem"](ops.numbered(x), key)
    written = ops.greater(ops.collect(ops.ones_like(numbers), numbers, x), 0)
    return ops.where(written, 0, g), None, _of_value(ops["Tensor.getitem"](g, key), value)


def _of_value(gradient: Any, value: Any) -> Any:
    """The gradient of a value that was stretched; it may have had further axes of size 1 in front."""
    further = value.ndim - gradient.ndim if isinstance(value, (Tensor, torch.Tensor)) else 0
    if further <= 0:
        return reduced_to(gradient, value)
    made = reduced_to(gradient, ops.squeeze(value, axis=tuple(range(further))))
    return None if made is None else ops.reshape(made, value.shape)


def _copy_body(x: Any, /, other: Any, non_blocking: bool = False) -> Any:
    if not isinstance(other, Tensor):
        return ops.full_like(x, other)
    return ops.broadcast_to(ops["Tensor.to"](other, x.device, x.dtype), x.shape)


def _to_dense_vjp(g: Any, out: Any, x: Any, *, padding_value: Any, max_lengths: Any, axis: Any) -> Any:
    ragged = {number for number, size in enumerate(x.shape) if isinstance(size, Ragged)}
    chosen = ragged if axis is None else {a % x.ndim for a in (axis if isinstance(axis, Sequence) else [axis])}
    if chosen == ragged:
        return ops.from_dense(g, like=x) if ragged else g
    return ops.collect(g, ops["Tensor.to_dense"](ops.numbered(x), -1, max_lengths, axis), x)


def _mask_body(x: Any, /, max_lengths: Any = None) -> Any:
    if not x.is_ragged:
        return ops.ones_like(x, dtype=torch.bool)
    ragged = next(axis for axis, size in enumerate(x.shape) if isinstance(size, Ragged))
    there = ops.greater_equal(ops.positions(x, ragged), 0)  # without features
    return ops["Tensor.to_dense"](there, False, max_lengths)


def _to_body(x: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Arguments in any of torch's ways: a dtype, a device, both, or another tensor that has both."""
    given = [*args, *(kwargs[name] for name in ("device", "dtype", "other") if name in kwargs)]
    switches = [each for each in args if isinstance(each, bool)]  # non_blocking, copy
    device, dtype = x.device, x.dtype
    for each in given:
        if isinstance(each, torch.dtype):
            dtype = each
        elif isinstance(each, (Tensor, torch.Tensor)):
            device, dtype = each.device, each.dtype
        elif each is not None and not isinstance(each, bool):
            device = torch.device(each)
    if x.is_complex() and not dtype.is_complex:
        x = ops.not_equal(x, 0) if dtype == torch.bool else ops.real(x)
    return ops.astype(x, dtype, copy=kwargs.get("copy", len(switches) > 1 and switches[1]), device=device)


def _to_vjp(g: Any, out: Any, x: Any, **_: Any) -> Any:
    """A rule of its own, so that the way back of a move is a move, too."""
    g = g if g.device == x.device else ops["Tensor.to"](g, x.device)
    inexact = all(each.is_floating_point() or each.is_complex() for each in (x, out))
    return in_dtype(g, x.dtype) if inexact else None


# -------------------------------------------------------------------------------------------------------- records

_record(
    "getitem",
    indexing.getitem,
    "x[key]: entries, slices, masks and index arrays along any axes.",
    example=(f"{_X}[:, :1].tolist()", "[[1], [], [3]]"),
    samples=(
        "x, slice(1, None)",
        "x, (slice(None), slice(None, 1))",
        "x, (slice(None), slice(None, None, -1))",
        "x, (Ellipsis, None)",
        "x[:, None], (slice(None), 0)",
        "x[:, None], (slice(None), torch.tensor([0, -1]))",
        "x, x == x",
    ),
    errors=(("x, 5", IndexError, "out of range"), ("x, 'a'", IndexError, "an index is an int, slice")),
    operands=("x", "key"),
    decides=("key",),
    primitive="movement",
    vjp=by_numbers("Tensor.getitem"),
    native=(Implementation("native", picking.getitem, picking.selects),),
    dialect=written("extract_slice", x="rhs", key="slice"),
)
_record(
    "setitem",
    assignment.setitem,
    "x[key] = value, where the value broadcasts to what x[key] reads.",
    example=(f"[x.__setitem__(0, 7) or x.tolist() for x in [{_X}]]", "[[[7, 7], [], [3]]]"),
    samples=("x[:, None], (slice(None), 0), 0", "x, (slice(None), slice(None, 1)), 1", "x, slice(1, None), x[1:]"),
    errors=(("x, 5, 0.0", IndexError, "out of range"), ("x, 0, sr.zeros((4, 7))", ValueError, "broadcast")),
    operands=("x", "key", "value"),
    writes=True,
    primitive="movement",
    vjp=_setitem_vjp,
    dialect=written("insert_slice", x="rhs", key="slice", value="lhs"),
)
_record(
    "rows",
    indexing.rows,
    "The entries of the first axis, each a view.",
    example=(f"[row.tolist() for row in {_X}.rows()]", "[[1, 2], [], [3]]"),
    samples=("x",),
    errors=(("sr.asarray(1.0)", TypeError, "0-d tensor"),),
    body=lambda x, /: list(ops.unstack(x, axis=0)),
    vjp=unstack_vjp,
)
_record(
    "to_dense",
    dense.to_dense,
    "A padded copy: every ragged axis, or those in `axis`, as long as its longest row.",
    example=(f"{_X}.to_dense(-1).tolist()", "[[1, 2], [-1, -1], [3, -1]]"),
    samples=(
        "x",
        "x, 1",
        "x, 0, 1",
        "x, 0, None, max(a for a, size in enumerate(x.shape) if isinstance(size, sr.Ragged))",
    ),
    primitive="movement",
    vjp=_to_dense_vjp,
    errors=(("x, 0, -1", ValueError, "integers of 0 or more"), ("x, 0, None, 2", AxisError, "is not ragged")),
    native=(Implementation("native", padding.to_dense, padding.pads),),
    dialect=written("to_dense", x="rhs"),
)
_record(
    "mask",
    dense.mask,
    "A dense boolean tensor of the padded shape without features: True where x has an entry.",
    example=(f"{_X}.mask().tolist()", "[[True, True], [False, False], [True, False]]"),
    samples=("x", "x, 1"),
    errors=(("x, -1", ValueError, "integers of 0 or more"),),
    native=(Implementation("native", padding.mask, padding.masks),),
    body=_mask_body,
    flat="the result is a truth value",
)
_record(
    "flat",
    combine.flat,
    "The packed values as a dense view, the packed axis where the outermost packed axis stood.",
    primitive="movement",
    vjp=by_numbers("Tensor.flat"),
    example=(f"{_X}.flat().tolist()", "[1, 2, 3]"),
    samples=("x",),
    errors=(_NO_ARGUMENT,),
    dialect=written("flatten", x="rhs"),
)
_record(
    "combine",
    combine.combine,
    "Ragged axis `axis` merged with the axis before it, which numbers its rows; a view.",
    primitive="movement",
    vjp=by_numbers("Tensor.combine"),
    example=("sr.ragged([[[1], []], [[2, 3]]]).combine(2).tolist()", "[[1], [2, 3]]"),
    samples=("sr.from_lengths(x.values, [len(x.values)]), 1",),
    errors=(_NO_AXIS, ("x, 2", AxisError, "is not ragged")),
)
_record(
    "to",
    memory.to,
    "x on another device or in another dtype, as torch's `to`.",
    body=_to_body,
    vjp=_to_vjp,
    example=(f"{_X}.to(torch.float64).tolist()", "[[1.0, 2.0], [], [3.0]]"),
    samples=("x, x.dtype", "x, torch.complex64", "x, 'cpu'", "x, x.dtype, False, True"),
    errors=(("x, 'nowhere'", RuntimeError, "device"),),
    traced=True,
)
_record(
    "contiguous",
    memory.contiguous,
    "x with contiguous values, its features stored as they are seen.",
    primitive="movement",
    vjp=lambda g, out, x: g,
    example=(f"{_X}.contiguous().tolist()", "[[1, 2], [], [3]]"),
    samples=("x",),
    errors=(_NO_ARGUMENT,),
    traced=True,
)
_record(
    "clone",
    memory.clone,
    "A copy of the values; the partitions are shared.",
    primitive="movement",
    vjp=lambda g, out, x: g,
    example=(f"{_X}.clone().tolist()", "[[1, 2], [], [3]]"),
    samples=("x",),
    errors=(_NO_ARGUMENT,),
    spellings=dict.fromkeys(torch_names("clone"), lambda input, memory_format=None: input.clone()),
    traced=True,
)
_record(
    "detach",
    memory.detach,
    "The same values without their history.",
    primitive="stop_gradient",
    flat="the derivative is cut off",
    example=(f"{_X}.detach().tolist()", "[[1, 2], [], [3]]"),
    samples=("x",),
    errors=(_NO_ARGUMENT,),
    spellings=dict.fromkeys(torch_names("detach"), lambda input: input.detach()),
    traced=True,
)
_record(
    "copy_",
    memory.copy_,
    "x, its values overwritten by those of another tensor, which must broadcast to it.",
    example=(f"{_X}.copy_(7).tolist()", "[[7, 7], [], [7]]"),
    samples=("x, x", "x, 1"),
    errors=(
        ("x, torch.ones(5)", ValueError, "broadcast"),
        ("x, sr.from_lengths(torch.ones(6, 2), [1, 2, 3])", RaggednessError, "different raggedness"),
    ),
    operands=("x", "other"),
    writes=True,
    body=_copy_body,
    vjp=lambda g, out, x, other, *, non_blocking: (None, reduced_to(g, other)),
    spellings=dict.fromkeys(torch_names("masked_fill_"), _masked_fill_in_place),
)
