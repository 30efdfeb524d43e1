"""A Serrate tensor read element by element, by what the documents say about storage, and compared with the oracle's."""

from __future__ import annotations

from typing import Any

import torch
from tests.programs.mapped import Axis, Index, Lengths, Mapped, cells, grid, same_axes

import serrate as sr


class Difference(AssertionError):
    """A result that is not what the oracle says."""


TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-7, 1e-9),
    torch.complex128: (1e-7, 1e-9),
    torch.float32: (2e-4, 2e-5),
    torch.complex64: (2e-4, 2e-5),
    torch.float16: (2e-2, 4e-3),
    torch.bfloat16: (8e-2, 3e-2),
}


def axes_of(x: sr.Tensor) -> tuple[list[Axis], int]:
    """The canonical axes, packed ones then features, by defined lengths alone; and how many rows are defined."""
    if not x.is_ragged:
        return list(x.values.shape), 0
    axes: list[Axis] = []
    for axis in x.structure.axes:
        if isinstance(axis, sr.Ragged):
            keys = cells(axes, axis.parents)
            lengths = axis.partition.offsets.diff().tolist()
            if len(lengths) < len(keys):
                raise Difference(f"{len(keys)} rows have no more than {len(lengths)} lengths")
            axes.append(Lengths(axis.parents, dict(zip(keys, lengths, strict=False))))
        else:
            axes.append(axis)
    return axes + list(x.values.shape[1:]), len(cells(axes))


def defined_rows(x: sr.Tensor) -> int:
    """How many rows of the packed axis are defined."""
    return axes_of(x)[1] if x.is_ragged else x.values.shape[0]


def storage(x: sr.Tensor) -> tuple[list[Axis], list[Index], list[int]]:
    """The axes as seen, the index of every defined element, and its place among the flattened values."""
    axes, _ = axes_of(x)
    packed = len(x.structure.axes) if x.is_ragged else 0
    features = [axis for axis in axes[packed:] if isinstance(axis, int)]
    inner = grid(features)
    outer = cells(axes[:packed])
    found = [(*row, *feature) for row in outer for feature in inner]
    order = x.order
    where = {canonical: seen for seen, canonical in enumerate(order)}
    shape = [a.renamed(where) if isinstance(a := axes[c], Lengths) else a for c in order]
    indices = [tuple(index[c] for c in order) for index in found]
    ranks = sorted(range(len(indices)), key=indices.__getitem__)
    return shape, [indices[k] for k in ranks], ranks


def elements(x: sr.Tensor) -> tuple[list[Axis], torch.Tensor]:
    """The axes as seen and the defined elements in the order of their indices."""
    shape, _, places = storage(x)
    with torch.device("cpu"):
        return shape, x.values.cpu().reshape(-1)[torch.tensor(places, dtype=torch.int64)]


def check(x: sr.Tensor) -> None:
    """The invariants of every tensor: levels fit each other and the values, offsets start at 0 and rise."""
    if sorted(x.order) != list(range(x.ndim)):
        raise Difference(f"order {x.order} is no order of {x.ndim} axes")
    if not x.is_ragged:
        if x.values.ndim != x.ndim:
            raise Difference(f"{x.ndim} axes, but values have {x.values.ndim}")
        return
    try:
        x.structure.check()
    except sr.errors.RaggednessError as error:
        raise Difference(f"a structure that does not fit: {error}") from None
    for p in x.partitions:
        offsets = p.offsets.tolist()
        if offsets[0] != 0 or offsets != sorted(offsets) or offsets[-1] > p.num_values:
            raise Difference(f"offsets {offsets} of {p.num_values} values")
        if p.is_host_born and offsets[-1] != p.num_values:
            raise Difference(f"host-born offsets {offsets} of {p.num_values} values")
    have, want = x.values.shape[0], x.structure.cells(x.structure.whole)
    if have != want:
        raise Difference(f"{have} rows of values where the structure counts {want}")
    for shown, stored in zip(x.shape, storage(x)[0], strict=True):
        parents = shown.parents if isinstance(shown, sr.Ragged) else ()
        if parents != (stored.parents if isinstance(stored, Lengths) else ()):
            raise Difference(f"shape {x.shape} does not show the parents of the storage, {described(storage(x)[0])}")


def compare(found: Any, wanted: Mapped, *, values: torch.Tensor | None = None) -> None:
    """A Difference unless a result has the oracle's shape, dtype and elements (`values`, where those changed since)."""
    if isinstance(found, torch.Tensor):
        found = sr.Tensor(found)
    if not isinstance(found, sr.Tensor):
        raise Difference(f"a {type(found).__name__}, not a tensor")
    check(found)
    shape, have = elements(found)
    if not same_axes(shape, wanted.axes):
        raise Difference(f"shape {described(shape)}, not {described(wanted.axes)}")
    want = wanted.flat if values is None else values
    if have.dtype != want.dtype:
        raise Difference(f"dtype {have.dtype}, not {want.dtype}")
    difference(have.detach(), want.detach(), wanted.indices)


def difference(
    have: torch.Tensor, want: torch.Tensor, names: list[Index], precision: torch.dtype | None = None
) -> None:
    """A Difference unless both hold the same numbers, to the precision of their dtype or of a given one."""
    if have.is_floating_point() or have.is_complex():
        relative, absolute = TOLERANCE[precision or have.dtype]
        wide = torch.complex128 if have.is_complex() else torch.float64
        good = torch.isclose(have.to(wide), want.to(wide), rtol=relative, atol=absolute, equal_nan=True)
    else:
        good = have == want
    if not bool(good.all()):
        k = int((~good).nonzero()[0])
        raise Difference(f"element {list(names[k])} is {have[k].item()}, not {want[k].item()}")


def described(axes: Any) -> str:
    """A shape as Serrate would print it."""
    return f"({', '.join(map(_described, axes))})"


def _described(axis: Axis) -> str:
    if isinstance(axis, int):
        return str(axis)
    lengths = [axis.table[key] for key in sorted(axis.table)]
    return f"R({lengths})" if axis.parents == (0,) else f"R({lengths}, {axis.parents})"


def shares(x: Any, y: Any) -> bool:
    """Whether two tensors see the same memory."""
    if not isinstance(x, sr.Tensor) or not isinstance(y, sr.Tensor):
        return False
    one, other = x.values.untyped_storage(), y.values.untyped_storage()
    return one.data_ptr() == other.data_ptr() and one.nbytes() > 0
