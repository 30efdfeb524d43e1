"""Reading, writing, padding and copying a tensor: the records of what `Tensor` has as methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from serrate.eager import padding, picking
from serrate.errors import AxisError, RaggednessError
from serrate.ops.record import ALL, Error, Implementation, operation, record, torch_names
from serrate.tensor import assignment, combine, dense, indexing, memory


def _record(
    name: str,
    implementation: Callable[..., Any],
    summary: str,
    example: tuple[str, str],
    samples: tuple[str, ...],
    errors: tuple[Error, ...],
    **fields: Any,
) -> None:
    usual = {"gradient": "", "kinds": ALL, "operands": ("x",)}
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
    native=(Implementation("native", picking.getitem, picking.selects),),
)
_record(
    "setitem",
    assignment.setitem,
    "x[key] = value, where the value broadcasts to what x[key] reads.",
    example=(f"[x.__setitem__(0, 7) or x.tolist() for x in [{_X}]]", "[[[7, 7], [], [3]]]"),
    samples=("x[:, None], (slice(None), 0), 0", "x, (slice(None), slice(None, 1)), 1", "x, slice(1, None), x[1:]"),
    errors=(("x, 5, 0.0", IndexError, "out of range"), ("x, 0, sr.zeros((4, 7))", ValueError, "broadcast")),
    operands=("x", "key", "value"),
)
_record(
    "rows",
    indexing.rows,
    "The entries of the first axis, each a view.",
    example=(f"[row.tolist() for row in {_X}.rows()]", "[[1, 2], [], [3]]"),
    samples=("x",),
    errors=(("sr.asarray(1.0)", TypeError, "0-d tensor"),),
)
_record(
    "to_dense",
    dense.to_dense,
    "A padded copy: every ragged axis, or those in `axis`, as long as its longest row.",
    example=(f"{_X}.to_dense(-1).tolist()", "[[1, 2], [-1, -1], [3, -1]]"),
    samples=("x", "x, 1", "x, 0, 1"),
    errors=(("x, 0, -1", ValueError, "integers of 0 or more"), ("x, 0, None, 2", AxisError, "is not ragged")),
    native=(Implementation("native", padding.to_dense, padding.pads),),
)
_record(
    "mask",
    dense.mask,
    "A dense boolean tensor of the padded shape without features: True where x has an entry.",
    example=(f"{_X}.mask().tolist()", "[[True, True], [False, False], [True, False]]"),
    samples=("x", "x, 1"),
    errors=(("x, -1", ValueError, "integers of 0 or more"),),
    native=(Implementation("native", padding.mask, padding.masks),),
)
_record(
    "flat",
    combine.flat,
    "The packed values as a dense view, the packed axis where the outermost packed axis stood.",
    example=(f"{_X}.flat().tolist()", "[1, 2, 3]"),
    samples=("x",),
    errors=(_NO_ARGUMENT,),
)
_record(
    "combine",
    combine.combine,
    "Ragged axis `axis` merged with the axis before it, which numbers its rows; a view.",
    example=("sr.ragged([[[1], []], [[2, 3]]]).combine(2).tolist()", "[[1], [2, 3]]"),
    samples=("sr.from_lengths(x.values, [len(x.values)]), 1",),
    errors=(_NO_AXIS, ("x, 2", AxisError, "is not ragged")),
)
_record(
    "to",
    memory.to,
    "x on another device or in another dtype, as torch's `to`.",
    example=(f"{_X}.to(torch.float64).tolist()", "[[1.0, 2.0], [], [3.0]]"),
    samples=("x, x.dtype", "x, torch.complex64", "x, 'cpu'"),
    errors=(("x, 'nowhere'", RuntimeError, "device"),),
    traced=True,
)
_record(
    "contiguous",
    memory.contiguous,
    "x with contiguous values, its features stored as they are seen.",
    example=(f"{_X}.contiguous().tolist()", "[[1, 2], [], [3]]"),
    samples=("x",),
    errors=(_NO_ARGUMENT,),
    traced=True,
)
_record(
    "clone",
    memory.clone,
    "A copy of the values; the partitions are shared.",
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
    spellings=dict.fromkeys(torch_names("masked_fill_"), _masked_fill_in_place),
)
