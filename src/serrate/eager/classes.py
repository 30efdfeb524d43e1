"""Length classes: components of like lengths, which one library call handles together.

Per-row products, attention and convolutions go to library kernels that want rectangles. Components are sorted into
classes whose longest member exceeds the shortest by little, and each class is one rectangle: at most 4·log2(longest)
classes for one length per component, at most 1.25 times the entries there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from serrate.tensor import abstract
from serrate.tensor.partition import Partition

# There are so many classes from a length to its double, so lengths in a class differ by a factor of at most 2 ** (1/4).
_STEPS = 4


@dataclass(frozen=True, eq=False)
class LengthClass:
    """Components whose lengths are padded to the same sizes."""

    number: int
    """The number of the class among those of a batch."""
    members: torch.Tensor
    """The numbers of the components, on the host."""
    sizes: tuple[int, ...]
    """The longest length along each ragged axis."""
    is_exact: bool
    """Whether every member has exactly these lengths."""
    first: int | None
    """The first member, where members are consecutive."""


def length_classes(partitions: Sequence[Partition]) -> tuple[LengthClass, ...]:
    """The classes of components by their length in each partition. A component without entries is in no class.

    Lengths are read on the host, so that device-born ones are waited for. In an abstract run, where lengths have no
    elements, there are no classes.
    """
    if abstract.current() is not None:
        return ()
    offsets = [p.host_offsets("sorting rows into length classes").to(torch.int64) for p in partitions]
    lengths = torch.diff(torch.stack(offsets))
    some = (lengths > 0).all(0)
    if not bool(some.any()):
        return ()
    components = some.nonzero().flatten()
    lengths = lengths[:, components]
    if bool((lengths == lengths[:, :1]).all()):
        return (_class(0, components, lengths),)
    distinct = [lengths[0]]
    distinct += [row for i, row in enumerate(lengths[1:], 1) if not any(torch.equal(row, lengths[k]) for k in range(i))]
    steps = torch.stack([(row.double().log2() * _STEPS).floor().to(torch.int64) for row in distinct])
    key = steps[0]
    for step in steps[1:]:
        key = key * (64 * _STEPS) + step
    order = torch.argsort(key, stable=True)
    _, counts = torch.unique_consecutive(key[order], return_counts=True)
    groups = torch.split(order, counts.tolist())
    return tuple(_class(i, components[group], lengths[:, group]) for i, group in enumerate(groups))


def _class(number: int, members: torch.Tensor, lengths: torch.Tensor) -> LengthClass:
    longest = lengths.amax(1)
    first, count = int(members[0]), members.numel()
    consecutive = int(members[-1]) - first + 1 == count
    exact = bool((lengths == longest[:, None]).all())
    return LengthClass(number, members, tuple(longest.tolist()), exact, first if consecutive else None)
