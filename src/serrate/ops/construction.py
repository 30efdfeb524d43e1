"""Packed and padded values made ragged: the records of from_lengths, from_dense and their like in `serrate.tensor`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

from serrate.eager import padding
from serrate.errors import AxisError, RaggednessError
from serrate.ops.record import ALL, Error, Implementation, operation, ops, record, written
from serrate.ops.rules import by_numbers
from serrate.tensor import construct, rearrange, unpad, views
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor


def _record(
    implementation: Callable[..., Any],
    summary: str,
    example: tuple[str, str],
    samples: tuple[str, ...],
    errors: tuple[Error, ...],
    operands: tuple[str, ...],
    **fields: Any,
) -> None:
    record(
        "construction",
        implementation.__name__,
        operation(implementation),
        None,
        summary=summary,
        example=example,
        samples=samples,
        errors=errors,
        operands=operands,
        kinds=ALL,
        **fields,
    )


# ------------------------------------------------------------------------------------------- bodies and derivatives


def _from_lengths_body(values: Any, lengths: Any, *, validate: bool = True) -> Any:
    levels = list(lengths) if construct.is_levels(lengths) and len(lengths) else [lengths]
    return ops.from_offsets(values, [_offsets(level) for level in levels], validate=validate)


def _offsets(lengths: Any) -> Any:
    if isinstance(lengths, Tensor):
        return ops.cumulative_sum(lengths, axis=0, include_initial=True)
    return [*itertools.accumulate(lengths, initial=0)]


def _from_row_ids_body(values: Any, row_ids: Any, num_rows: int) -> Any:
    if isinstance(row_ids, Tensor):
        return ops.from_lengths(values, ops.bincount(row_ids, minlength=num_rows))
    often = Counter(row_ids)
    return ops.from_lengths(values, [often[row] for row in range(num_rows)])


def _from_offsets_vjp(g: Any, out: Any, values: Any, offsets: Any, **_: Any) -> tuple[Any, ...]:
    return ops["Tensor.flat"](g), None


def _view_as_nested_vjp(g: Any, out: Any, data: Any, offsets: Any, **_: Any) -> tuple[Any, ...]:
    return ops.reshape(ops["Tensor.flat"](g), data.shape), None


def _from_dense_vjp(
    g: Any, out: Any, dense: Any, lengths: Any, offsets: Any, mask: Any, like: Any, *, padding_value: Any
) -> tuple[Any, ...]:
    """Each entry gets the gradient of where it was read, and padding gets 0."""
    if mask is None:
        ragged = [axis for axis, size in enumerate(out.shape) if isinstance(size, Ragged)]
        made = ops["Tensor.to_dense"](g, 0, [dense.shape[axis] for axis in ragged], ragged)
    else:
        made = ops.collect(g, ops.from_dense(ops.numbered(dense), mask=mask), dense)
    return made, None, None, None, None


# -------------------------------------------------------------------------------------------------------- records

_record(
    construct.from_offsets,
    "Packed `values` cut at these offsets, or level by level at several of them.",
    dialect=written("as_nested", "from_offsets"),
    primitive="movement",
    vjp=_from_offsets_vjp,
    example=("sr.from_offsets(torch.arange(4), [0, 3, 3, 4]).tolist()", "[[0, 1, 2], [], [3]]"),
    samples=(
        "x.values, [0, len(x.values)]",
        "x.values, torch.tensor([0, 0, len(x.values)], dtype=torch.int32), copy=False",
        "x.values, [[0, 0, 2], torch.tensor([0, len(x.values), len(x.values)])]",
        "x.to_dense(), torch.arange(len(x.to_dense()) + 1), validate=False",
    ),
    errors=(
        ("x.values, [0, 7]", RaggednessError, "must end with the number of values they cut, 6"),
        ("x.values, [0, 4, 3, 6]", RaggednessError, "must never decrease"),
        ("x.values, []", RaggednessError, "at least one level"),
        ("x, [0, 6]", TypeError, "only a dense tensor is a torch tensor"),
    ),
    operands=("values", "offsets"),
    decides=("offsets",),
)
_record(
    construct.from_lengths,
    "Packed `values` cut into rows of these lengths, or level by level by several of them.",
    dialect=written("as_nested", "from_lengths"),
    body=_from_lengths_body,
    example=("sr.from_lengths(torch.arange(4), [3, 0, 1]).tolist()", "[[0, 1, 2], [], [3]]"),
    samples=(
        "x.values, [len(x.values)]",
        "x.values, torch.tensor([0, len(x.values), 0], dtype=torch.int32)",
        "x.values, [[2, 0], torch.tensor([len(x.values), 0])]",
        "x.to_dense(), torch.ones(len(x.to_dense()), dtype=torch.int64), validate=False",
    ),
    errors=(
        ("x.values, [3, 1]", RaggednessError, "must add up to the number of values, 6, but add up to 4"),
        ("x.values, [7, -1]", RaggednessError, "must be 0 or more, but position 1 holds -1"),
        ("1.0, [1]", RaggednessError, "got a 0-d tensor"),
    ),
    operands=("values", "lengths"),
    decides=("lengths",),
)
_record(
    construct.from_row_ids,
    "Packed `values`, each in the row that `row_ids` names, in rows that follow each other.",
    dialect=written("as_nested", "from_row_ids"),
    body=_from_row_ids_body,
    example=("sr.from_row_ids(torch.arange(4), [0, 0, 0, 2], 3).tolist()", "[[0, 1, 2], [], [3]]"),
    samples=(
        "x.values, torch.zeros(len(x.values), dtype=torch.int32), 1",
        "x.values, torch.arange(len(x.values)), len(x.values) + 1",
        "x.to_dense(), torch.ones(len(x.to_dense()), dtype=torch.int64), 3",
    ),
    errors=(
        ("x.values, [0, 0, 1, 0, 1, 1], 2", RaggednessError, "must never decrease, but position 3 holds 0"),
        ("x.values, [0, 0, 1, 1, 2, 2], 2", RaggednessError, r"must lie in 0 .. 1, but position 4 holds 2"),
        ("x.values, [0, 1], 2", RaggednessError, "must have one entry per value, 6, got 2"),
    ),
    operands=("values", "row_ids"),
    decides=("row_ids",),
)
_record(
    construct.from_product,
    "Packed blocks, component c of them a `len_p[c]` × `len_q[c]` one: [K, p, q, …].",
    primitive="movement",
    vjp=by_numbers("from_product"),
    example=(
        "sr.from_product(torch.arange(3), *[sr.Partition.from_lengths(n) for n in ([1, 1], [2, 1])]).tolist()",
        "[[[0, 1]], [[2]]]",
    ),
    samples=(
        "x.values, sr.Partition.from_lengths([len(x.values)]), sr.Partition.from_lengths([1])",
        "x.values, sr.Partition.from_lengths([1, 2]), sr.Partition.from_lengths([len(x.values), 0])",
        "x.to_dense(), *[sr.Partition.uniform(len(x.to_dense()), 1)] * 2",
    ),
    errors=(
        ("x.values, x.partitions[0], [3, 1, 2]", TypeError, "q must be a Partition, got list"),
        (
            "x.values, x.partitions[0], sr.Partition.from_lengths([1])",
            RaggednessError,
            "as many components, got 3 and 1",
        ),
        ("x.values, x.partitions[0], x.partitions[0]", RaggednessError, "cuts 14 values, but values has 6 rows"),
    ),
    operands=("values",),
)
_record(
    views.view_as_nested,
    "A view of `data` in which one axis is cut at these offsets, alike or differently for each outer index.",
    dialect=written("as_nested", "view_as_nested"),
    primitive="movement",
    vjp=_view_as_nested_vjp,
    example=("sr.view_as_nested(torch.arange(4), [0, 3, 3, 4]).tolist()", "[[0, 1, 2], [], [3]]"),
    samples=(
        "x.values, [0, 0, len(x.values)]",
        "x.to_dense(), torch.tensor([0, x.to_dense().shape[1]], dtype=torch.int32), 1, copy=False",
        "x.to_dense().contiguous(), torch.tensor([[0, 0, x.to_dense().shape[1]]]).repeat(len(x.to_dense()), 1), 1",
        "x.to_dense(), [0, x.to_dense().shape[-1]], -1, validate=False",
    ),
    errors=(
        ("x.values, [0, 6], 2", AxisError, "ragged_dim 2 is out of range"),
        ("x.values, [0, 5]", RaggednessError, "must end with the number of values they cut, 6"),
        ("x.values, [[0, 6]]", RaggednessError, "must be 1-D to cut axis 0"),
        ("[1, 2], [0, 2]", TypeError, "data must be a tensor, got list"),
    ),
    operands=("data", "offsets"),
    decides=("offsets",),
)
_record(
    unpad.from_dense,
    "A padded tensor packed; lengths, offsets, a mask or another tensor says which entries are real.",
    dialect=written("from_dense", dense="rhs"),
    primitive="movement",
    vjp=_from_dense_vjp,
    example=("sr.from_dense(torch.tensor([[1, 2, 0], [3, 0, 0]]), lengths=[2, 1]).tolist()", "[[1, 2], [3]]"),
    samples=(
        "x.to_dense(), like=x",
        "x.to_dense(), lengths=torch.full((len(x.to_dense()),), 2), padding_value=1",
        "x.to_dense(), lengths=torch.ones(len(x.to_dense()), dtype=torch.int32)",
        "x.to_dense(), offsets=torch.arange(len(x.to_dense()) + 1)",
        "x.to_dense(), mask=x.to_dense() != 0",
        "x.to_dense()[..., None], mask=(x.to_dense() != 0).torch()",
    ),
    errors=(
        ("x.to_dense()", TypeError, "exactly one of lengths, offsets, mask, like; got none"),
        ("x.to_dense(), lengths=[1, 1, 1], like=x", TypeError, "got lengths and like"),
        ("x.to_dense(), like=x.values", TypeError, "like must be a ragged sr.Tensor, got Tensor"),
        ("x.to_dense(), mask=x.to_dense()", TypeError, "mask must be boolean, got torch.float32"),
        ("x.values[:, 0], lengths=[1, 1]", RaggednessError, "at least 2 axes"),
    ),
    operands=("dense", "lengths", "offsets", "mask", "like"),
    decides=("lengths", "offsets", "mask"),
    native=(Implementation("native", padding.from_dense, padding.packs),),
)
_record(
    rearrange.positions,
    "For each entry its position along `axis`, a packed axis of x; int64, without features.",
    primitive="movement",
    flat="the result does not depend on elements",
    example=("sr.positions(sr.ragged([[7, 8], [], [9]])).tolist()", "[[0, 1], [], [0]]"),
    samples=("x, 0", "x, axis=max(a for a, size in enumerate(x.shape) if isinstance(size, sr.Ragged))"),
    errors=(
        ("x, 5", AxisError, "axis 5 is out of range"),
        ("x, 2", AxisError, "is neither ragged nor a parent of a ragged axis"),
        ("None", TypeError, "expected an sr.Tensor"),
    ),
    operands=("x",),
)
