"""Faults put into Serrate one at a time: the random programs must find each, or they prove nothing.

`python -m tests.programs.mutations NUMBER` breaks one thing and searches; it ends with 0 if a program fails that does
not fail without the fault.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from tests.programs.program import draw_program
from tests.programs.search import search
from tests.programs.shrinking import failure_of

import serrate as sr

PROGRAMS = 2_500
"""How many programs may be needed to find a fault."""

Broken = Callable[[Any], Any]
MUTATIONS: list[tuple[str, str, Broken]] = []
"""What is wrong afterwards, which attribute is replaced (`module:name` or `module:Class.name`), and by what."""


def breaks(place: str, fault: str) -> Callable[[Broken], Broken]:
    def enter(broken: Broken) -> Broken:
        MUTATIONS.append((fault, place, broken))
        return broken

    return enter


def find(place: str) -> tuple[Any, str]:
    """The module or class that holds an attribute, and its name."""
    module, _, path = place.partition(":")
    *outer, name = path.split(".")
    owner = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    assert hasattr(owner, name), f"there is no {place} to break any more; choose another place for this fault"
    return owner, name


# ------------------------------------------------------------------------------------------------------ slices, masks


@breaks("serrate.tensor.select:Cut._bounds", "a slice of a row keeps one entry more, where there is one")
def _(old: Any) -> Any:
    def bounds(self: Any, lengths: torch.Tensor) -> Any:
        first, count = old(self, lengths)
        start = torch.zeros_like(lengths) if first is None else first
        return first, torch.where((count > 0) & (start + count < lengths), count + 1, count)

    return bounds


@breaks("serrate.tensor.select:Cut._bounds", "a slice of a row begins one entry late, where it can")
def _(old: Any) -> Any:
    def bounds(self: Any, lengths: torch.Tensor) -> Any:
        first, count = old(self, lengths)
        start = torch.zeros_like(lengths) if first is None else first
        return torch.where(start + count < lengths, start + 1, start), count

    return bounds


@breaks("serrate.tensor.select:Keep._held", "a mask keeps undefined rows too")
def _(old: Any) -> Any:
    return lambda self, at: self.mask


@breaks("serrate.tensor.plan:Place.check_reach", "an integer past the end of a row is not noticed")
def _(old: Any) -> Any:
    return lambda self, index: None


@breaks("serrate.tensor.tensor:Tensor.__getitem__", "indexing always copies")
def _(old: Any) -> Any:
    return lambda self, key: old(self, key).clone()


@breaks("serrate.tensor.tensor:shape_of", "a permuted view shows the parents of its axes in rising order")
def _(old: Any) -> Any:
    def shape_of(*args: Any) -> Any:
        shape = old(*args)
        return tuple(sr.Ragged(a.partition, sorted(a.parents)) if isinstance(a, sr.Ragged) else a for a in shape)

    return shape_of


@breaks("serrate.tensor.tensor:Tensor.permute_dims", "a permutation is taken for its inverse")
def _(old: Any) -> Any:
    def permute_dims(self: Any, axes: Any) -> Any:
        chosen = [a % self.ndim for a in axes]
        return old(
            self, [chosen.index(a) for a in range(self.ndim)] if sorted(chosen) == list(range(self.ndim)) else axes
        )

    return permute_dims


# ------------------------------------------------------------------------------------------------------ undefined rows


@breaks("serrate.tensor.structure:Structure.defined_rows", "undefined rows count as defined")
def _(old: Any) -> Any:
    return lambda self, like: torch.ones(like.shape[0], *[1] * (like.ndim - 1), dtype=torch.bool)


@breaks("serrate.tensor.structure:Structure.defined_cells", "all cells that there is room for count as defined")
def _(old: Any) -> Any:
    return lambda self, nest: self.cells(nest)


@breaks("serrate.tensor.structure:Structure.is_exact", "no structure has undefined rows")
def _(old: Any) -> Any:
    return property(lambda self: True)


@breaks("serrate.tensor.partition:Partition.same_as", "any two partitions are equal")
def _(old: Any) -> Any:
    return lambda self, other: True


# ------------------------------------------------------------------------------------------------------ gradients


@breaks("serrate.tensor.bits:put", "an assignment has no gradient")
def _(old: Any) -> Any:
    return lambda values, where, new: old(values.data, where, new.detach())


@breaks("serrate.eager.softmax:_BySegments.backward", "the gradient of softmax lacks a term")
def _(old: Any) -> Any:
    return staticmethod(lambda ctx, gradient: (ctx.saved_tensors[0] * gradient, None))


@breaks("serrate.eager.segments:_Sum.backward", "the gradient of a sum has no gradient itself")
def _(old: Any) -> Any:
    return staticmethod(lambda ctx, gradient: (ctx.segments.spread(gradient.detach()), None))


# ------------------------------------------------------------------------------------------------------ operations


@breaks("serrate:embedding_bag", "the order of a permuted view is ignored")
def _(old: Any) -> Any:
    return lambda x, *rest, **options: old(sr.Tensor(x.values, x.structure), *rest, **options)


@breaks("serrate:argsort", "a descending order is a rising one backwards, equal elements included")
def _(old: Any) -> Any:
    def argsort(x: Any, *, axis: int = -1, descending: bool = False) -> Any:
        return sr.flip(old(x, axis=axis), axis=axis) if descending else old(x, axis=axis)

    return argsort


@breaks("serrate:cumulative_sum", "a row goes on where the row before it ended")
def _(old: Any) -> Any:
    def cumulative_sum(x: Any, *, axis: int, **options: Any) -> Any:
        made = old(x, axis=axis, **options)
        last = isinstance(x.shape[axis], sr.Ragged) and not options and x.values.is_floating_point()
        return x._with(torch.cumsum(x.values, 0)) if last and x.order == tuple(range(x.ndim)) else made

    return cumulative_sum


@breaks("serrate.eager.segments:Segments.counts", "the mean of nothing is 0")
def _(old: Any) -> Any:
    return lambda self, device: old(self, device).clamp(min=1)


@breaks("serrate:concat", "parts are joined in the wrong order")
def _(old: Any) -> Any:
    return lambda arrays, **options: old(list(reversed(arrays)), **options)


@breaks("serrate:topk", "the greatest of bools are integers")
def _(old: Any) -> Any:
    def topk(x: Any, *rest: Any, **options: Any) -> Any:
        made = old(x, *rest, **options)
        return (sr.astype(made[0], torch.int64), made[1]) if x.dtype == torch.bool else made

    return topk


@breaks("serrate:sort", "device-born lengths are waited for")
def _(old: Any) -> Any:
    def sort(x: Any, **options: Any) -> Any:
        assert sr.asarray(x).max_lengths is not None
        return old(x, **options)

    return sort


@breaks("serrate:flip", "a host-born tensor becomes device-born")
def _(old: Any) -> Any:
    def flip(x: Any, **options: Any) -> Any:
        made = old(x, **options)
        return sr.testing.device_born(made) if made.is_ragged else made

    return flip


@breaks("serrate:take", "a position that a row lacks is an exception of a type that no page names")
def _(old: Any) -> Any:
    def take(*args: Any, **options: Any) -> Any:
        try:
            return old(*args, **options)
        except IndexError as error:
            raise RuntimeError(str(error)) from None

    return take


@breaks("serrate.tensor.tensor:Tensor.__setitem__", "a write that is refused has written all the same")
def _(old: Any) -> Any:
    def setitem(self: Any, key: Any, value: Any) -> None:
        try:
            old(self, key, value)
        except (IndexError, ValueError):
            self.values.data.zero_()
            raise

    return setitem


# ------------------------------------------------------------------------------------------------------ the search


def finds(number: int) -> int | None:
    """The seed of a program that fails with fault `number` and not without; None if none of the programs does."""
    _, place, broken = MUTATIONS[number]
    owner, name = find(place)
    whole = owner.__dict__[name]
    changed = broken(getattr(owner, name))
    setattr(owner, name, changed)
    for found in search(range(PROGRAMS)):
        setattr(owner, name, whole)
        sound = failure_of(draw_program(found.program.seed), found.born) is None
        if sound:
            return found.program.seed
        setattr(owner, name, changed)
    return None


def main() -> None:
    torch.set_num_threads(1)
    number = int(sys.argv[1])
    seed = finds(number)
    print(f"{MUTATIONS[number][0]}: {'not found' if seed is None else f'found by seed {seed}'}")
    sys.exit(seed is None)


if __name__ == "__main__":
    main()
