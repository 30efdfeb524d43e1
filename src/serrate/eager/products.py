"""The product of two tensors whose axes have labels, as in einsum: matmul and its kin consist of such products.

The outermost packed labels that both operands and the result have number the components. The rest of each operand is
one block per component, and blocks are multiplied (`contraction`). If a dense operand has some of the uniform axes that
ragged ones depend on, but not the outermost, rows are first brought into an order in which these are the outermost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from serrate.eager.blocks import Lengths, Side
from serrate.eager.contraction import Contraction
from serrate.eager.dense_products import contracted
from serrate.eager.labels import Labelled, check_sizes, met, nested_alike, stored_like, summed_alone
from serrate.eager.reducing import total
from serrate.errors import AxisError
from serrate.tensor import host
from serrate.tensor.broadcast import require_one_device
from serrate.tensor.combine import fitted, group_partition, zeroed
from serrate.tensor.layout import assemble
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor


def product(left: Labelled, right: Labelled, out: Sequence[str]) -> Tensor:
    """The sum of products over every label that `out` lacks."""
    require_one_device(left.x, right.x)
    left, right = met(left, right), met(right, left)
    left, right = summed_alone(left, right, out), summed_alone(right, left, out)
    dtype = torch.promote_types(left.x.dtype, right.x.dtype)
    left, right = (Labelled(o.x.to(dtype), o.labels) for o in (left, right))
    check_sizes(left, right)
    if not left.x.is_ragged and not right.x.is_ragged:
        return Tensor(_dense(left.x.values, left.labels, right.x.values, right.labels, out), team=left.x.team)
    packed = {*left.nest, *right.nest}
    shared = [label for label in left.labels if label in right.labels and label in packed]
    if not shared and not (left.x.is_ragged and right.x.is_ragged):
        return _rowwise(left, right, out)
    if {*left.nest} == {*right.nest} <= {*out}:
        right = stored_like(right, left)
    if left.nest == right.nest and len({label in out for label in left.nest}) == 1:
        return _row_by_row(left, right, out)
    kept = _to_sum_later(left, right, out)
    if kept is not None:  # This label is kept for now, and summed over afterwards.
        return total(product(left, right, (kept, *out)), 0, dtype)
    if not (left.x.is_ragged and right.x.is_ragged):
        ragged, other = (left, right) if left.x.is_ragged else (right, left)
        if {*ragged.nest[: len(shared)]} != {*shared}:
            return _regrouped(ragged, other, out)
    return _blockwise(*nested_alike(left, right, out), out)


def _to_sum_later(left: Labelled, right: Labelled, out: Sequence[str]) -> str | None:
    """A label that blocks cannot sum over, since it is outermost or other packed labels depend on it; or None."""
    if not (left.x.is_ragged and right.x.is_ragged):
        ragged, other = (left, right) if left.x.is_ragged else (right, left)
        return next((label for label in ragged.nest if label in other.labels and label not in out), None)
    depended = {p for one in (left, right) for label in one.nest for p in one.parents(label)}
    for a, b in zip(left.nest, right.nest, strict=False):
        if a != b:
            return None
        if a not in out:
            return a if a in depended else None
    return None


def _letters(*groups: Sequence[str]) -> list[str]:
    known: dict[str, str] = {}
    for group in groups:
        for label in group:
            known.setdefault(label, chr(ord("a") + len(known)))
    return ["".join(known[label] for label in group) for group in groups]


def _dense(
    left: torch.Tensor, left_labels: Sequence[str], right: torch.Tensor, right_labels: Sequence[str], out: Sequence[str]
) -> torch.Tensor:
    a, b, c = _letters(left_labels, right_labels, out)
    return contracted(f"{a},{b}->{c}", left, right)


def _rowwise(left: Labelled, right: Labelled, out: Sequence[str]) -> Tensor:
    """The product where one operand has none of the packed axes of the other: it is the same for each packed row."""
    ragged, other = (left, right) if left.x.is_ragged else (right, left)
    features = [label for label in out if label not in ragged.nest]
    structure = ragged.x.structure
    pair = [(zeroed(ragged.x.values, structure), ("rows", *ragged.features)), (other.x.values, other.labels)]
    (a, a_labels), (b, b_labels) = pair if left.x.is_ragged else reversed(pair)
    values = zeroed(_dense(a, a_labels, b, b_labels, ("rows", *features)), structure)
    canonical = (*ragged.nest, *features)
    return Tensor(values, structure, tuple(canonical.index(label) for label in out), ragged.x.team)


def _row_by_row(left: Labelled, right: Labelled, out: Sequence[str]) -> Tensor:
    """The product where both operands have the same packed rows, and the result has all of them or none."""
    keeps = left.nest[0] in out
    features = tuple(label for label in out if label not in left.nest)
    pair = [fitted(x.values if keeps else zeroed(x.values, x.structure), left.x.structure) for x in (left.x, right.x)]
    rows = ("rows",) if keeps else ()
    values = _dense(pair[0], ("rows", *left.features), pair[1], ("rows", *right.features), (*rows, *features))
    if not keeps:
        return Tensor(values, team=left.x.team)
    canonical = (*left.nest, *features)
    return Tensor(values, left.x.structure, tuple(canonical.index(label) for label in out), left.x.team)


def _regrouped(ragged: Labelled, other: Labelled, out: Sequence[str]) -> Tensor:
    """The product with a dense operand that has some of the packed axes: rows are grouped by its blocks."""
    x, nest = ragged.x, ragged.nest
    shared = tuple(label for label in nest if label in other.labels)
    groups, order, back = _by_cells(x.structure, [nest.index(label) for label in shared], x.device)
    dense = _Part._dense(other, shared)
    features = tuple(label for label in out if label not in nest)
    rows, blocks = Side(("rows",), ragged.features, groups), Side((), dense.features, dense.rows)
    plan = Contraction(rows, blocks, Side(("rows",), features, groups), Lengths({"rows": groups}))
    values = plan(x.values.index_select(0, order), dense.values).index_select(0, back)
    canonical = (*nest, *features)
    return Tensor(values, x.structure, tuple(canonical.index(label) for label in out), x.team)


def _by_cells(
    structure: Structure, axes: list[int], device: torch.device
) -> tuple[Partition, torch.Tensor, torch.Tensor]:
    """The packed rows of each cell of some uniform axes, the order that brings these together, and the inverse order.

    Each cell of all axes up to the last of these is a run of rows, so whole runs are put into order.
    """
    nest = tuple(range(axes[-1] + 1))
    runs = group_partition(structure, len(nest), structure.whole)
    cell, count = torch.zeros((), dtype=torch.int64, device=structure.home), 1
    for axis in axes:
        size = structure.axes[axis]
        assert isinstance(size, int)
        cell, count = cell * size + structure.positions(nest, axis, structure.home), count * size
    lengths = runs.lengths_on(structure.home).to(torch.int64)
    totals = torch.zeros(count, dtype=torch.int64, device=structure.home).index_add(0, cell, lengths)
    turns = torch.argsort(cell, stable=True)
    moved = runs.take(turns, capacity=runs.num_values)
    starts = runs.offsets_on(device)[:-1].to(torch.int64)[host.send(turns, device)]
    numbers = torch.arange(runs.num_values, device=device)
    # The last run is in the last cell, so it stays the last one, and undefined rows stay behind it.
    order = moved.spread(starts - moved.offsets_on(device)[:-1].to(torch.int64)) + numbers
    back = torch.empty_like(order).scatter_(0, order, numbers)
    return runs.with_lengths(totals, capacity=runs.num_values), order, back


# ------------------------------------------------------------------------------------------------ block by block


def _blockwise(left: Labelled, right: Labelled, out: Sequence[str]) -> Tensor:
    """The product by blocks, of which both operands have one for each component."""
    components = _components(left, right, out)
    a, b = _Part.of(left, components, right, out), _Part.of(right, components, left, out)
    members = {**a.members, **b.members}
    tail = [run for run in dict.fromkeys((*a.tail, *b.tail)) if members[run][0] in out]
    features = [f for f in dict.fromkeys((*a.features, *b.features)) if f in out and f not in tail]
    packed = [*components, *(label for run in tail for label in members[run])]
    structure = _structure(packed, left, right)
    home = right if structure is right.x.structure or not left.x.is_ragged else left
    rows = _rows(structure, len(components), structure.whole)
    extents = {**a.extents, **b.extents}
    side = Side(tuple(tail), tuple(features), rows)
    plan = Contraction(Side(a.tail, a.features, a.rows), Side(b.tail, b.features, b.rows), side, Lengths(extents))
    values = plan(a.values, b.values)
    labels = {label: i for i, label in enumerate((*packed, *features))}
    seen = [labels[label] for label in out]
    inner = [labels[f] for f in features]
    labelled = list(zip((labels[p] for p in packed), structure.axes, strict=True))
    return assemble(home.x, values, labelled, seen, inner)


def _components(left: Labelled, right: Labelled, out: Sequence[str]) -> tuple[str, ...]:
    """The labels that number the components: the outermost ones of both operands, as far as the result has them."""
    if left.x.is_ragged and right.x.is_ragged:
        shared = []
        for a, b in zip(left.nest, right.nest, strict=False):
            if a != b or a not in out:
                break
            shared.append(a)
        found = tuple(shared)
    else:
        ragged, other = (left, right) if left.x.is_ragged else (right, left)
        found = ()
        for label in ragged.nest:
            if label not in other.labels or label not in out:
                break
            found = (*found, label)
    if not found:
        raise AxisError(
            f"the operands share no outer axis that the product keeps: shapes {left.x.shape} and {right.x.shape}"
        )
    return found


@dataclass(frozen=True)
class _Part:
    """An operand as blocks. In its tail, neighbouring axes that the other operand lacks may count as one run."""

    values: torch.Tensor
    rows: Partition
    tail: tuple[str, ...]
    members: Mapping[str, tuple[str, ...]]
    extents: Mapping[str, int | Partition]
    features: tuple[str, ...]

    @staticmethod
    def of(one: Labelled, components: tuple[str, ...], other: Labelled, out: Sequence[str]) -> _Part:
        depth = len(components)
        if not one.x.is_ragged:
            return _Part._dense(one, components)
        structure = one.x.structure
        inner = one.nest[depth:]
        rows = _rows(structure, depth, structure.whole)
        if not all(set(one.parents(label)) <= set(components) for label in inner):
            if any(label in other.labels or label not in out for label in inner):
                raise AxisError(
                    f"axes of shape {one.x.shape} that depend on each other cannot be multiplied one by one; "
                    f"combine them first"
                )
            run = "+".join(inner)
            return _Part(one.x.values, rows, (run,), {run: inner}, {run: rows}, one.features)
        extents: dict[str, int | Partition] = {}
        for label in inner:
            axis = one.axis(label)
            number = one.nest.index(label)
            own = structure.level((*range(depth), number)) if isinstance(axis, Ragged) else axis
            extents[label] = own
        return _Part(one.x.values, rows, inner, {label: (label,) for label in inner}, extents, one.features)

    @staticmethod
    def _dense(one: Labelled, components: tuple[str, ...]) -> _Part:
        """A dense operand as blocks: the axes of the components are merged and stand first."""
        features = tuple(label for label in one.labels if label not in components)
        values = one.x.values.permute([one.labels.index(label) for label in (*components, *features)])
        values = values.flatten(0, len(components) - 1)
        return _Part(values, Partition.uniform(values.shape[0], 1), (), {}, {}, features)


def _rows(structure: Structure, depth: int, nest: tuple[int, ...]) -> Partition:
    """The packed rows of each cell of the first `depth` axes."""
    if depth == len(nest):
        return Partition.uniform(structure.cells(nest), 1)
    return group_partition(structure, depth, nest)


def _structure(packed: list[str], left: Labelled, right: Labelled) -> Structure:
    """The structure of these labels. If an operand has just these, it is its own, which knows how many rows it has."""
    for one in (left, right):
        if one.nest == tuple(packed):
            return one.x.structure
    made: list[Axis] = []
    for label in packed:
        one = left if label in left.labels else right
        axis = one.axis(label)
        made.append(Ragged(axis.partition, map(packed.index, one.parents(label))) if isinstance(axis, Ragged) else axis)
    return Structure(made)
