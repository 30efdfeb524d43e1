"""Random tensors that programs start from: any structure, dtype, order of axes, host-born or device-born."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tests.programs.mapped import Axis, Index, Lengths, Mapped, cells, is_loose, parents

import serrate as sr
from serrate.tensor.structure import Structure

MOST = 48
"""How many elements a tensor has at most."""

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
COMPLEX = (torch.complex128, torch.complex64)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
DTYPES = (*FLOATS, *COMPLEX, *INTS, *UNSIGNED, torch.bool)


def leaf(
    shape: Sequence[Any],
    values: Sequence[Any],
    dtype: torch.dtype = torch.float64,
    order: Sequence[int] | None = None,
    spare: int | None = None,
    fill: Any = 97,
    grad: bool = False,
) -> sr.Tensor:
    """A tensor of packed `shape` and these elements, seen in `order`; with `spare` device-born, `fill` behind."""
    packed = max((i + 1 for i, axis in enumerate(shape) if isinstance(axis, sr.Ragged)), default=0)
    structure = Structure(shape[:packed]).check()
    rows = [structure.cells(structure.whole)] if packed else []
    elements = torch.tensor(values, dtype=dtype).reshape((*rows, *shape[packed:]))
    x = sr.Tensor(elements, structure) if packed else sr.Tensor(elements)
    if spare is not None and packed:
        x = sr.testing.device_born(x, spare)
        x.values[rows[0] :] = fill
    if grad:
        x.values.requires_grad_()
    return x if order is None else x.permute_dims(order)


@dataclass(frozen=True)
class Leaf:
    """What `leaf` makes, as text and as the oracle's tensor."""

    axes: tuple[Axis, ...]
    """Packed axes, then features."""
    values: tuple[Any, ...]
    """In storage order."""
    dtype: torch.dtype = torch.float64
    order: tuple[int, ...] | None = None
    spare: int | None = None
    fill: Any = 97
    grad: bool = False
    int32: bool = False
    plain: bool = False
    """A torch tensor, not one of Serrate's."""

    def text(self, born: bool = True) -> str:
        """The expression that makes it; unless `born`, with lengths that the host knows."""
        if self.plain:
            sizes = [a for a in self.axes if isinstance(a, int)]
            made = f"torch.tensor({list(self.values)}, dtype={self.dtype})"
            made = f"{made}.reshape({tuple(sizes)})" if len(sizes) != 1 else made
            return f"{made}.requires_grad_()" if self.grad else made
        options = [f"dtype={self.dtype}"] if self.dtype != torch.float64 else []
        options += [f"order={self.order}"] if self.order is not None else []
        options += [f"spare={self.spare}, fill={self.fill}"] if born and self.spare is not None else []
        options += ["grad=True"] if self.grad else []
        return f"leaf({', '.join([self.shape_text(), str(list(self.values)), *options])})"

    def shape_text(self) -> str:
        axes = ", ".join(self._axis_text(axis) for axis in self.axes)
        return f"({axes},)" if len(self.axes) == 1 else f"({axes})"

    def _axis_text(self, axis: Axis) -> str:
        if isinstance(axis, int):
            return str(axis)
        lengths = str([axis.table[key] for key in sorted(axis.table)])
        lengths = f"torch.tensor({lengths}, dtype=torch.int32, device='cpu')" if self.int32 else lengths
        return f"R({lengths})" if axis.parents == (0,) else f"R({lengths}, {axis.parents})"

    def mapped(self) -> Mapped:
        """The oracle's tensor; its memory is in storage order."""
        flat = torch.tensor(self.values, dtype=self.dtype)
        flat = flat.requires_grad_() if self.grad else flat
        made = Mapped.of(self.axes, flat, stored=True)
        made.memory.is_leaf = self.grad
        return made if self.order is None else made.permuted(self.order)

    @property
    def is_ragged(self) -> bool:
        return any(isinstance(axis, Lengths) for axis in self.axes)


# ------------------------------------------------------------------------------------------------------ structures


def random_axes(draw: random.Random, most_levels: int = 4) -> list[Axis]:
    """Packed axes: chains, several ragged axes on one parent, uniform axes before and between them."""
    axes: list[Axis] = [draw.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))]
    levels = draw.choice([n for n in (1, 1, 1, 2, 2, 2, 3, 3, 4) if n <= most_levels])
    kind = draw.choice(("chain", "chain", "product", "free"))
    for level in range(levels):
        if draw.random() < 0.2:
            axes.append(draw.choice((0, 1, 2, 2, 3)))
        own = _parents(draw, axes, kind, level == levels - 1)
        longest = 3 if level < 2 else 2
        shape = draw.random()
        equal = draw.randint(0, longest)
        keys = cells(axes, own)
        lengths = [equal if shape < 0.15 else 0 if shape < 0.2 else draw.randint(0, longest) for _ in keys]
        axes.append(Lengths(own, dict(zip(keys, lengths, strict=True))))
    return axes


def _parents(draw: random.Random, axes: Sequence[Axis], kind: str, last: bool) -> tuple[int, ...]:
    if kind == "chain":
        return tuple(range(len(axes)))
    chosen = {0}
    if kind == "free":
        chosen |= {a for a in range(len(axes)) if draw.random() < 0.5}
    if last:  # a uniform axis that nothing depends on would be a feature
        used = {p for axis in axes for p in parents(axis)}
        chosen |= {a for a, axis in enumerate(axes) if isinstance(axis, int) and a not in used}
    while more := {p for a in chosen for p in parents(axes[a])} - chosen:
        chosen |= more
    return tuple(sorted(chosen))


def random_shape(draw: random.Random, most_levels: int = 4) -> tuple[Axis, ...]:
    """Packed axes and features, of at most as many elements as a program can carry."""
    while True:
        if draw.random() < 0.1:
            axes: list[Axis] = [draw.choice((0, 1, 2, 3)) for _ in range(draw.randint(0, 3))]
        else:
            axes = random_axes(draw, most_levels)
            axes += [draw.choice((0, 1, 2, 2, 3)) for _ in range(draw.choice((0, 0, 0, 1, 1, 2)))]
        if len(cells(axes)) <= MOST and len(axes) <= 6:
            return tuple(axes)


def random_values(draw: random.Random, count: int, dtype: torch.dtype) -> tuple[Any, ...]:
    """Elements that the dtype holds exactly; few are 0, and some are equal."""
    if dtype == torch.bool:
        return tuple(draw.random() < 0.6 for _ in range(count))
    if dtype in (torch.float64, torch.float32):
        return tuple(round(draw.uniform(-3, 3), 3) for _ in range(count))
    if dtype.is_floating_point:
        return tuple(draw.randint(-24, 24) / 8 for _ in range(count))
    if dtype.is_complex:
        return tuple(complex(round(draw.uniform(-2, 2), 2), round(draw.uniform(-2, 2), 2)) for _ in range(count))
    return tuple(draw.randint(-4 if dtype.is_signed else 0, 5) for _ in range(count))


def random_fill(draw: random.Random, dtype: torch.dtype) -> Any:
    """What stands in undefined rows: as harmful as the dtype allows."""
    if dtype == torch.bool:
        return draw.choice((True, True, False))
    if dtype.is_floating_point or dtype.is_complex:
        return draw.choice(("nan", "nan", "nan", "inf", "1e4"))
    if dtype in UNSIGNED:
        return 97
    return draw.choice((97, 97, 0, torch.iinfo(dtype).max, torch.iinfo(dtype).min))


def random_leaf(
    draw: random.Random,
    dtype: torch.dtype,
    *,
    axes: tuple[Axis, ...] | None = None,
    values: Sequence[Any] | None = None,
    grad: bool = False,
    permuted: float = 0.3,
    spare: int | None = None,
) -> Leaf:
    """A leaf of these axes (packed ones, then features), or of any."""
    axes = random_shape(draw) if axes is None else axes
    count = len(cells(axes))
    order = None
    if len(axes) > 1 and draw.random() < permuted:
        order = tuple(draw.sample(range(len(axes)), len(axes)))
    made = Leaf(
        axes,
        random_values(draw, count, dtype) if values is None else tuple(values),
        dtype,
        order,
        draw.choice((0, 0, 1, 2, 5)) if spare is None else spare,
        random_fill(draw, dtype),
        grad,
        draw.random() < 0.1,
    )
    if made.is_ragged:
        return made
    # A permuted dense tensor has permuted values: their gradient would be in another order than the leaf's.
    return replace(made, spare=None, order=None if grad else order, plain=draw.random() < 0.5 and order is None)


def canonical(x: Mapped) -> tuple[tuple[Axis, ...], tuple[int, ...]] | None:
    """Axes in an order that a leaf can be made in, packed ones first, and the order that shows them as x does."""
    if is_loose(x.axes):
        return None
    needed = {p for axis in x.axes for p in parents(axis)} | {a for a, axis in enumerate(x.axes) if parents(axis)}
    packed: list[int] = []
    waiting = sorted(needed)
    while waiting:
        ready = [a for a in waiting if set(parents(x.axes[a])) <= set(packed)]
        rising = [a for a in ready if all(_comes_first(x, a, b) for b in ready)]
        if not rising:
            return None
        packed.append(rising[0])
        waiting.remove(rising[0])
    order = packed + [a for a in range(x.ndim) if a not in needed]
    where = {a: k for k, a in enumerate(order)}
    axes = tuple(a.renamed(where) if isinstance(a := x.axes[old], Lengths) else a for old in order)
    if any(list(parents(axis)) != sorted(parents(axis)) for axis in axes):
        return None
    return axes, tuple(where[a] for a in range(x.ndim))


def _comes_first(x: Mapped, a: int, b: int) -> bool:
    """Whether a is not numbered after b by an axis that depends on both."""
    return all(
        axis.parents.index(a) <= axis.parents.index(b)
        for axis in x.axes
        if isinstance(axis, Lengths) and a in axis.parents and b in axis.parents
    )


def like(draw: random.Random, x: Mapped, dtype: torch.dtype, *, values: dict[Index, Any] | None = None) -> Leaf | None:
    """A leaf of the shape of x, with given or random elements; None where no leaf has that shape."""
    found = canonical(x)
    if found is None:
        return None
    axes, order = found
    given = None
    if values is not None:
        given = [values[tuple(index[c] for c in order)] for index in cells(axes)]
    made = random_leaf(draw, dtype, axes=axes, values=given, permuted=0)
    identity = order == tuple(range(len(order)))
    return replace(made, order=None if identity else order, plain=made.plain and identity)
