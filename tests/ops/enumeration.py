"""Every element of a tensor one by one, as nested lists have it: an oracle for what happens along an axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import serrate as sr


def cells(nested: Any, at: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Every element of nested lists with its index."""
    if not isinstance(nested, list):
        yield at, nested
        return
    for i, inner in enumerate(nested):
        yield from cells(inner, (*at, i))


def groups(x: sr.Tensor, axis: int) -> dict[tuple[int, ...], list[tuple[int, Any]]]:
    """For each cell of the other axes, the positions along `axis` and the elements there."""
    found: dict[tuple[int, ...], list[tuple[int, Any]]] = {}
    for index, value in cells(x.tolist()):
        found.setdefault((*index[:axis], *index[axis + 1 :]), []).append((index[axis], value))
    return found


def lines(x: sr.Tensor, axis: int) -> dict[tuple[int, ...], list[Any]]:
    """For each cell of the other axes, the elements along `axis`, which may depend on all of the others."""
    moved = x.permute_dims((*[a for a in range(x.ndim) if a != axis], axis))
    found: dict[tuple[int, ...], list[Any]] = {}
    for index, value in cells(moved.tolist()):
        found.setdefault(index[:-1], []).append(value)
    return found


def seen(x: sr.Tensor) -> dict[tuple[int, ...], Any]:
    """Every element by its index along the axes as they are seen, read in storage order: any view has that."""
    stored = x.permute_dims([x.order.index(c) for c in range(x.ndim)]) if x.is_ragged else x
    return {tuple(index[c] for c in x.order): value for index, value in cells(stored.tolist())}
