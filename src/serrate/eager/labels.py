"""Tensors whose axes have labels, as in einsum, and how two of them are made to meet in a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serrate.eager.reducing import total
from serrate.errors import RaggednessError
from serrate.tensor import abstract
from serrate.tensor.broadcast import capacities, lay_out
from serrate.tensor.rearrange import repeat
from serrate.tensor.structure import Axis, Ragged, Structure
from serrate.tensor.tensor import Tensor


@dataclass(frozen=True)
class Labelled:
    """A tensor whose axes have labels."""

    x: Tensor
    labels: tuple[str, ...]

    @property
    def canonical(self) -> tuple[str, ...]:
        """Labels in storage order: packed axes, then features."""
        made = [""] * len(self.labels)
        for label, c in zip(self.labels, self.x.order, strict=True):
            made[c] = label
        return tuple(made)

    @property
    def nest(self) -> tuple[str, ...]:
        """Labels of the packed axes."""
        return self.canonical[: len(self.x.structure.axes)]

    @property
    def features(self) -> tuple[str, ...]:
        """Labels of the features."""
        return self.canonical[len(self.x.structure.axes) :]

    def axis(self, label: str) -> Axis:
        """The axis of a label, whose parents are numbered as the tensor has them."""
        return self.x.shape[self.labels.index(label)]

    def parents(self, label: str) -> tuple[str, ...]:
        """The labels of a ragged axis's parents."""
        axis = self.axis(label)
        return tuple(self.labels[p] for p in axis.parents) if isinstance(axis, Ragged) else ()


def met(one: Labelled, other: Labelled) -> Labelled:
    """`one` without its axes of size 1 that meet another size: along these, all entries are the same.

    An axis that ragged ones depend on stays: they are ragged in the result too, so it is stretched.
    """
    x, labels = one.x, list(one.labels)
    for label in one.labels:
        if one.axis(label) != 1 or label not in other.labels or (size := other.axis(label)) == 1:
            continue
        at = labels.index(label)
        if isinstance(size, int) and label in one.nest:
            x = repeat(x, size, axis=at)
        else:
            x = x[(*[slice(None)] * at, 0)]
            del labels[at]
    return Labelled(x, tuple(labels))


def summed_alone(one: Labelled, other: Labelled, out: Sequence[str]) -> Labelled:
    """Labels that only this operand has and the result lacks are summed first."""
    gone = [i for i, label in enumerate(one.labels) if label not in other.labels and label not in out]
    if not gone:
        return one
    kept = tuple(label for i, label in enumerate(one.labels) if i not in gone)
    return Labelled(total(one.x, tuple(gone), one.x.dtype), kept)


def check_sizes(left: Labelled, right: Labelled) -> None:
    """An error unless axes with one label are the same in both operands."""
    for label in left.labels:
        if label not in right.labels:
            continue
        a, b = left.axis(label), right.axis(label)
        if isinstance(a, Ragged) and isinstance(b, Ragged):
            if left.parents(label) != right.parents(label) or not a.partition.same_as(b.partition):
                raise RaggednessError(f"the axes multiplied have different raggedness: {a} and {b}{capacities(a, b)}")
        elif isinstance(a, Ragged) or isinstance(b, Ragged):
            raise RaggednessError(f"an axis is ragged in one operand and uniform in the other: {a} and {b}")
        elif abstract.differ(a, b):
            raise ValueError(
                f"axes of size {a} and {b} do not go together; the operands have shapes {left.x.shape} and "
                f"{right.x.shape}"
            )


def stored_like(one: Labelled, other: Labelled) -> Labelled:
    """`one` with its packed rows in the order of the other's, which has the same packed axes."""
    if one.nest == other.nest:
        return one
    stored = (*other.nest, *one.features)
    order = tuple(stored.index(label) for label in one.labels)
    structure = other.x.structure
    return Labelled(Tensor(lay_out(one.x, structure, order), structure, order, one.x.team), one.labels)


def nested_alike(left: Labelled, right: Labelled, out: Sequence[str]) -> tuple[Labelled, Labelled]:
    """Both operands with the same uniform axes packed: an axis that one packs, and that the other has as a feature or
    lacks outside of an axis that they share, is packed in both."""
    at = 0
    while left.x.is_ragged and right.x.is_ragged and at < max(len(left.nest), len(right.nest)):
        a, b = (one.nest[at] if at < len(one.nest) else "" for one in (left, right))
        if a != b:
            if a in out and _may_have(right, left, a, at):
                right = _packed(right, a, left.axis(a), at)
            elif b in out and _may_have(left, right, b, at):
                left = _packed(left, b, right.axis(b), at)
            else:
                break
        at += 1
    return left, right


def _may_have(one: Labelled, other: Labelled, label: str, at: int) -> bool:
    """Whether `one` can have the other's packed axis number `at` as its own: it has it as a feature, or lacks it."""
    shares = len(one.nest) > at and one.nest[at] in other.nest[at + 1 :]
    return label in one.features or (shares and label not in one.labels and isinstance(other.axis(label), int))


def _packed(one: Labelled, label: str, size: Axis, at: int) -> Labelled:
    """An operand with a uniform axis, one of its features or a new one, as packed axis number `at`; for products only,
    since storage has no such axes."""
    assert isinstance(size, int)
    x, labels, packed = one.x, one.labels, len(one.x.structure.axes)
    if label not in labels:
        values = x.values.unsqueeze(-1).expand(*x.values.shape, size)
        x, labels = Tensor(values, x.structure, (*x.order, x.ndim), x.team), (*labels, label)
    own = x.order[labels.index(label)]
    axes: list[Axis] = [
        Ragged(axis.partition, (p + (p >= at) for p in axis.parents)) if isinstance(axis, Ragged) else axis
        for axis in x.structure.axes
    ]
    axes.insert(at, size)
    structure = Structure(axes, x.values.shape[0] * size)
    order = tuple(at if c == own else c + 1 - (c > own) if c >= packed else c + (c >= at) for c in x.order)
    return Labelled(Tensor(lay_out(x, structure, order), structure, order, x.team), labels)
