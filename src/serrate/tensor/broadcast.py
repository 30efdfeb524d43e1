"""Broadcasting: one shape for several operands, and each operand's values laid out for it.

Axes meet by position from the right. A uniform axis of size 1 or a missing leading axis stretches against anything; a
uniform axis of another size never matches a ragged one; two ragged axes match when their partitions do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from serrate.errors import DeviceMismatchError, RaggednessError
from serrate.tensor import abstract, bits
from serrate.tensor import tensor as ours  # whose class is not there yet while this file is imported
from serrate.tensor.combine import fitted, zeroed
from serrate.tensor.layout import canonical, shape_of
from serrate.tensor.structure import DENSE, Axis, Ragged, Structure, parents_of
from serrate.tensor.tracing import untraced

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor

SCALARS = (bool, int, float, complex)
_NONE: Mapping[str, Any] = {}
NUMBERS = (*SCALARS, np.generic)

stretched: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = bits.take
"""A function that takes rows of values at an index, in which a row may come up many times. `serrate.ops` puts another
one in its place, whose gradient is more accurate."""


def plain_number(given: Any) -> Any:
    """A numpy number as the Python number it is; anything else as it is."""
    return given.item() if isinstance(given, np.generic) else given


def binary(op: Callable[..., torch.Tensor], left: Any, right: Any) -> Tensor:
    """`op` of two operands, at least one of them a Tensor, elementwise on their common shape."""
    return elementwise(op, (left, right))


def elementwise(op: Callable[..., torch.Tensor], operands: Sequence[Any], options: Mapping[str, Any] = _NONE) -> Tensor:
    """`op` of operands (Tensors, torch tensors, numbers; at least one Tensor) on their common shape.

    Packed values meet packed values: nothing is padded, and the result shares structure with an operand that has it.
    """
    Tensor = ours.Tensor
    like: ours.Tensor | None = None
    plain = True  # Numbers, and tensors that share one structure, need not be laid out.
    for operand in operands:
        if isinstance(operand, Tensor):
            if like is None:
                like = operand
            elif (
                operand.structure is not like.structure
                or operand.order != like.order
                or operand.values.ndim != like.values.ndim
            ):
                plain = False
        elif isinstance(operand, torch.Tensor):
            plain = False
    assert like is not None
    if not plain and len(operands) == 2:
        made = _beside_features(op, operands, like, options)
        if made is not None:
            return made
    if plain:
        values = [operand.values if isinstance(operand, Tensor) else operand for operand in operands]
        if len(values) == 1 or _sizes_meet(values):
            return Tensor(op(*values, **options), like.structure, like.order, like.team)
    return _laid_out(op, operands, options)


def _beside_features(
    op: Callable[..., torch.Tensor], operands: Sequence[Any], like: Tensor, options: Mapping[str, Any]
) -> Tensor | None:
    """`op` of a ragged tensor and a torch tensor that has the sizes of its last features, so that torch can stretch it.

    None if the operands are others.
    """
    values, order = like.values, like.order
    other = operands[1] if operands[0] is like else operands[0]
    if not isinstance(other, torch.Tensor) or not like.is_ragged or other.ndim >= values.ndim:
        return None
    if other.device != values.device and (other.ndim or other.device.type != "cpu"):
        return None
    if other.shape != values.shape[values.ndim - other.ndim :]:
        return None
    if order[len(order) - other.ndim :] != tuple(range(len(order) - other.ndim, len(order))):
        return None
    if other.requires_grad and not like.structure.is_exact:
        return None
    given = (values, other) if operands[0] is like else (other, values)
    return ours.Tensor(op(*given, **options), like.structure, order, like.team)


def _sizes_meet(values: list[Any]) -> bool:
    """Whether all tensors have one shape and lie on one device, so that torch stretches none and refuses none."""
    first: torch.Tensor | None = None
    for value in values:
        if isinstance(value, torch.Tensor):
            if first is None:
                first = value
            elif value.shape != first.shape or value.device != first.device:
                return False
    return True


@untraced
def _laid_out(op: Callable[..., torch.Tensor], operands: Sequence[Any], options: Mapping[str, Any]) -> Tensor:
    Tensor = ours.Tensor
    require_one_device(*operands)
    shape = broadcast_shapes(*(tuple(operand.shape) for operand in operands if not isinstance(operand, SCALARS)))
    for operand in operands:
        if isinstance(operand, Tensor) and operand.is_ragged and same_raggedness(operand.shape, shape):
            structure, order = operand.structure, operand.order
            break
    else:
        structure, _, order = canonical(shape)
    team = next(operand.team for operand in operands if isinstance(operand, Tensor))
    if structure is DENSE:
        return Tensor(op(*map(_plain, operands), **options), team=team)
    laid_out = [lay_out(operand, structure, order) for operand in operands]
    made = op(*laid_out, **options) if structure.is_exact else _over_defined_rows(op, laid_out, structure, options)
    return Tensor(made, structure, order, team)


def _over_defined_rows(
    op: Callable[..., torch.Tensor], laid_out: list[Any], structure: Structure, options: Mapping[str, Any]
) -> torch.Tensor:
    """`op` of the operands, in which undefined rows give 0-d tensors no gradient; the result has the dtype of `op`."""
    ndim = max(v.ndim for v in laid_out if isinstance(v, torch.Tensor))
    stretched = [
        over_defined_rows(v, structure, ndim) if isinstance(v, torch.Tensor) and not v.ndim else v for v in laid_out
    ]
    made = op(*stretched, **options)
    if all(one is other for one, other in zip(stretched, laid_out, strict=True)):
        return made
    # When torch chooses a dtype, a tensor with axes counts more than a 0-d one; so `op` of no rows tells the dtype.
    no_rows = [v[:0] if isinstance(v, torch.Tensor) and v.ndim else v for v in laid_out]
    return made.to(op(*no_rows, **options).dtype)


def over_defined_rows(values: torch.Tensor, structure: Structure, ndim: int) -> torch.Tensor:
    """`values`, which stretch over the rows of a structure, such that undefined rows have no part in their gradient."""
    if structure.is_exact or not values.requires_grad or not torch.is_grad_enabled():
        return values
    full = values.view(*[1] * (ndim - values.ndim), *values.shape)
    return zeroed(full.expand(structure.cells(structure.whole), *full.shape[1:]), structure)


def require_one_device(*operands: Any) -> None:
    """A DeviceMismatchError unless all operands live on one device (0-d CPU tensors go anywhere, as in torch)."""
    devices = {
        o.device for o in operands if not isinstance(o, SCALARS) and not (o.device.type == "cpu" and o.ndim == 0)
    }
    if len(devices) > 1:
        named = " and ".join(sorted(map(str, devices)))
        raise DeviceMismatchError(f"operands lie on different devices: {named}; move one with .to(device)")


def same_raggedness(shape: tuple[Axis, ...], other: tuple[Axis, ...]) -> bool:
    """Whether the ragged axes of both shapes, and their parents, are the same axes of the same sizes."""
    if len(shape) != len(other):
        return False
    for axis, wanted in zip(shape, other, strict=True):
        if isinstance(axis, Ragged) != isinstance(wanted, Ragged):
            return False
        if isinstance(axis, Ragged) and any(shape[p] != other[p] for p in axis.parents):
            return False
    return True


@untraced
def broadcast_shapes(*shapes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The shape that all of `shapes` stretch to, or an error that shows the two axes that do not meet.

    >>> import serrate as sr
    >>> sr.broadcast_shapes((3, 1), (2, 1, 4))
    (2, 3, 4)
    >>> sr.broadcast_shapes((2, sr.Ragged([3, 1]), 1), (4,))
    (2, Ragged([3, 1]), 4)
    """
    ndim = max(map(len, shapes), default=0)
    aligned = [_shifted(shape, ndim - len(shape)) for shape in shapes]
    met: dict[int, Axis] = {}
    meeting: set[int] = set()

    def at(i: int) -> Axis:
        if i not in met:
            if i in meeting:
                named = " and ".join(map(str, shapes))
                raise RaggednessError(f"the ragged axes of shapes {named} depend on each other in a circle")
            meeting.add(i)
            met[i] = _meet([_with_stretched_parents(shape, i, at) for shape in aligned], i, shapes)
        return met[i]

    return tuple(at(i) for i in range(ndim))


def _shifted(shape: tuple[Axis, ...], by: int) -> tuple[Axis, ...]:
    moved = (Ragged(a.partition, (p + by for p in a.parents)) if by and isinstance(a, Ragged) else a for a in shape)
    return (*[1] * by, *moved)


def _with_stretched_parents(shape: tuple[Axis, ...], i: int, met: Callable[[int], Axis]) -> Axis:
    """Axis i of a shape whose axes of size 1 stretch to those they met: its rows are repeated with its parents."""
    axis = shape[i]
    if isinstance(axis, int) or all(_same(shape[p], met(p)) for p in axis.parents):
        return axis
    partition, old = axis.partition, axis.parents
    # An axis comes after those that it depends on.
    new = tuple(dict.fromkeys(q for p in old for q in (*parents_of(met(p)), p)))
    before, after = _nest(old, shape.__getitem__), _nest(new, met)
    where = {n: after.positions(after.whole, new.index(p), partition.home) for n, p in enumerate(old)}
    fixed = [isinstance(size, int) and size == 1 for size in before.axes]
    component = before.rank(before.whole, {n: p * 0 if fixed[n] else p for n, p in where.items()})
    if not after.is_exact:
        component = torch.where(after.defined_rows(component), component, -1)
    sizes = [met(p) for p, one in zip(old, fixed, strict=True) if one]
    known = all(isinstance(size, int) for size in sizes)
    times = math.prod(size for size in sizes if isinstance(size, int))
    capacity = partition.num_values * times if known else None
    return Ragged(partition.take(component, capacity=capacity, exact=known and partition.is_exact), new)


def _same(axis: Axis, other: Axis) -> bool:
    """Whether two axes have the same size, or are cut into the same rows."""
    if isinstance(axis, Ragged) and isinstance(other, Ragged):
        return axis.partition.same_as(other.partition)
    return axis == other


def _nest(parents: tuple[int, ...], axes: Callable[[int], Axis]) -> Structure:
    """The parents of an axis as a structure, in the order in which their cells number its rows."""
    made = (axes(p) for p in parents)
    return Structure(Ragged(a.partition, map(parents.index, a.parents)) if isinstance(a, Ragged) else a for a in made)


def _meet(axes: list[Axis], i: int, shapes: tuple[tuple[Axis, ...], ...]) -> Axis:
    met: Axis = 1
    for axis in axes:
        if isinstance(axis, int) and axis == 1:
            continue
        if isinstance(met, int) and met == 1:
            met = axis
        elif isinstance(met, Ragged) and isinstance(axis, Ragged):
            if met.parents != axis.parents or not met.partition.same_as(axis.partition):
                raise RaggednessError(f"axis {i} has different raggedness: {met} and {axis}{capacities(met, axis)}")
        elif isinstance(met, Ragged) or isinstance(axis, Ragged):
            raise RaggednessError(
                f"axis {i} is ragged in one operand and uniform in the other: {met} and {axis}; a uniform axis of "
                f"size 1 stretches, another never matches (sr.from_dense(d, like=x) turns a padded operand ragged)"
            )
        elif abstract.differ(met, axis):
            raise ValueError(
                f"axis {i} has size {met} and {axis}; shapes {' and '.join(map(str, shapes))} do not broadcast"
            )
    return met


def capacities(*axes: Axis) -> str:
    """A text for messages: for how many entries device-born axes have room, which lengths do not show."""
    partitions = [axis.partition for axis in axes if isinstance(axis, Ragged)]
    rooms = [partition.num_values for partition in partitions]
    if all(partition.is_exact for partition in partitions) or len(set(rooms)) == 1:
        return ""
    return f", with room for {' and '.join(map(str, rooms))} entries"


def _plain(operand: Any) -> Any:
    return operand if isinstance(operand, (torch.Tensor, *SCALARS)) else operand.values


@untraced
def align(operand: Any, like: Tensor) -> Any:
    """`operand` laid out so that it broadcasts, in torch's sense, against `like.values`; it must not be larger."""
    operand = plain_number(operand)
    if isinstance(operand, SCALARS):
        return operand
    if not isinstance(operand, torch.Tensor) and not hasattr(operand, "structure"):
        raise TypeError(f"expected a number, a torch.Tensor or an sr.Tensor, got {type(operand).__name__}")
    require_one_device(operand, like)
    shape = tuple(operand.shape)
    met = broadcast_shapes(shape, like.shape)
    if len(met) != like.ndim or any(type(a) is not type(b) or a != b for a, b in zip(met, like.shape, strict=True)):
        raise ValueError(f"shape {shape} does not broadcast to shape {like.shape}")
    if not like.is_ragged:
        return _plain(operand)
    laid_out = lay_out(operand, like.structure, like.order)
    return laid_out if laid_out.ndim else over_defined_rows(laid_out, like.structure, like.values.ndim)


def lay_out(operand: Any, structure: Structure, order: tuple[int, ...]) -> Any:
    """The operand's values as [packed or 1, *features or 1] in the canonical order of (structure, order).

    The operand's shape must already be known to broadcast (`broadcast_shapes`).
    """
    if isinstance(operand, SCALARS):
        return operand
    dense = isinstance(operand, torch.Tensor) or not operand.is_ragged
    if not dense and operand.structure is structure and operand.order == order:
        return operand.values
    values: torch.Tensor = _plain(operand)
    if values.ndim == 0:
        return values  # A 0-d tensor stays one, so that it counts as a number when torch chooses a dtype.
    own_structure, own_order = (DENSE, tuple(range(values.ndim))) if dense else (operand.structure, operand.order)
    shape = shape_of(values, own_structure, own_order)
    shift = len(order) - len(shape)
    packed = len(structure.axes)
    # For each stored axis of the result, the stored axis of the operand that meets it, unless the operand stretches.
    meets: dict[int, int] = {}
    for logical, own in enumerate(own_order):
        target = order[logical + shift]
        if not (isinstance(shape[logical], int) and shape[logical] == 1):
            meets[target] = own
    own_packed = len(own_structure.axes)
    rows = _packed_rows(values, structure, own_structure, meets)
    # Rows are [packed or 1, *features of the operand that are not packed in the result].
    left = [
        c
        for c in range(own_packed, own_packed + values.ndim - (1 if own_packed else 0))
        if not _is_packed(c, meets, packed)
    ]
    place = {own: i + 1 for i, own in enumerate(left)}
    wanted = [place[meets[c]] if c in meets else None for c in range(packed, len(order))]
    ones = [place[c] for c in left if c not in meets.values()]
    arranged = rows.permute(0, *[p for p in wanted if p is not None], *ones)
    arranged = arranged.reshape(arranged.shape[: arranged.ndim - len(ones)])
    for i, p in enumerate(wanted):
        if p is None:
            arranged = arranged.unsqueeze(i + 1)
    return arranged if rows is values else over_defined_rows(arranged, structure, arranged.ndim)


def _is_packed(own: int, meets: dict[int, int], packed: int) -> bool:
    return any(o == own and t < packed for t, o in meets.items())


def _taken(values: torch.Tensor, rows: torch.Tensor, structure: Structure) -> torch.Tensor:
    """Rows of values. The number of an undefined row may be any; it is brought into range."""
    if structure.is_exact:
        return stretched(values, rows)
    if values.shape[0] == 0:
        return values.new_zeros((rows.numel(), *values.shape[1:]))
    return stretched(values, rows.clamp(0, values.shape[0] - 1))


def _packed_rows(values: torch.Tensor, structure: Structure, own: Structure, meets: dict[int, int]) -> torch.Tensor:
    """One row per packed row of the result (or one row for all), keeping only features that stay features."""
    packed = len(structure.axes)
    targets = [t for t in range(packed) if t in meets]
    own_packed = len(own.axes)
    sources = [meets[t] for t in targets]
    # The operand is packed like the result, perhaps over fewer axes.
    if own is not DENSE and sources == list(own.whole):
        if targets == list(structure.whole):
            same = own is structure or (own.is_exact and structure.is_exact)
            return values if same else fitted(values, structure)
        return _taken(values, structure.project(structure.whole, tuple(targets), values.device), structure)
    if not targets:
        return values.unsqueeze(0) if own is DENSE else values
    where = {meets[t]: structure.positions(structure.whole, t, values.device) for t in targets}
    index: list[torch.Tensor] = []
    if own is not DENSE:  # A packed axis of size 1 that stretches is read at position 0.
        some = next(iter(where.values()))
        rows = own.rank(own.whole, {a: where.get(a, torch.zeros_like(some)) for a in own.whole})
        index.append(rows if structure.is_exact else rows.clamp(0, max(values.shape[0] - 1, 0)))
    features = [s for s in sources if s >= own_packed]
    index.extend(where[s] for s in features)
    dims = [s - own_packed + (1 if own_packed else 0) for s in features]
    lead = [0] if own is not DENSE else []
    rest = [d for d in range(values.ndim) if d not in dims and d not in lead]
    arranged = values.permute(*lead, *dims, *rest)
    if 0 in arranged.shape[: len(index)] and not structure.is_exact:  # All rows of the result are undefined then.
        return arranged.new_zeros((index[0].numel(), *arranged.shape[len(index) :]))
    cell, *further = index
    for at, size in zip(further, arranged.shape[1:], strict=False):
        cell = cell * size + at
    return stretched(arranged.flatten(0, len(further)), cell)
