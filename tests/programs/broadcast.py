"""The oracle of stretching: one shape for several operands, and functions of their elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tests.programs.mapped import Axis, Index, Lengths, Mapped, cells, is_loose, parents
from tests.programs.verdicts import Refused, Undecided

KINDS = (bool, int, float, complex)


def common(*shapes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The shape that all stretch to: size 1 and missing outer axes do; a ragged axis meets its equal alone."""
    ndim = max(map(len, shapes))
    shifted = [_shifted(shape, ndim - len(shape)) for shape in shapes]
    made: dict[int, Axis] = {}
    waiting = list(range(ndim))
    while waiting:
        needed = {a: {p for shape in shifted if a in shape for p in parents(shape[a])} for a in waiting}
        axis = next((a for a in waiting if not needed[a] & set(waiting)), None)
        if axis is None:  # an axis depends on another in one operand, and the other way round in the other
            raise Refused(ValueError)
        waiting.remove(axis)
        made[axis] = _common_axis(axis, [shape for shape in shifted if axis in shape], made)
    return tuple(made[a] for a in range(ndim))


def _shifted(shape: Sequence[Axis], by: int) -> dict[int, Axis]:
    where = range(by, by + len(shape))
    return {a + by: axis.renamed(where) if isinstance(axis, Lengths) else axis for a, axis in enumerate(shape)}


def _common_axis(axis: int, shapes: Sequence[dict[int, Axis]], made: dict[int, Axis]) -> Axis:
    sizes = {n for shape in shapes if isinstance(n := shape[axis], int) and n != 1}
    ragged = [(shape, a) for shape in shapes if isinstance(a := shape[axis], Lengths)]
    if len(sizes) > 1 or (sizes and ragged):
        raise Refused(ValueError)
    if not ragged:
        return sizes.pop() if sizes else 1
    if any(own is not ragged[0][1] for _, own in ragged) and is_loose(own for _, own in ragged):
        raise Undecided
    found = []
    for shape, own in ragged:
        order = tuple(sorted(own.parents))
        if any(p not in order for a in order for p in parents(made[a])):
            raise Undecided  # a parent of size 1 becomes ragged itself, on an axis that this one does not depend on
        table = {}
        for key in cells([made.get(a, 1) for a in range(max(order) + 1)], order):
            named = {p: 0 if shape[p] == 1 else i for p, i in zip(order, key, strict=True)}
            table[key] = own.table.get(tuple(named[p] for p in own.parents))
        found.append(Lengths(order, table))
    if any(other != found[0] for other in found):
        raise Refused(ValueError)
    first = ragged[0][1].parents
    if all(own.parents == first for _, own in ragged):  # parents keep the order that numbers lengths
        order = found[0].parents
        at = [order.index(p) for p in first]
        table = {tuple(key[k] for k in at): n for key, n in found[0].table.items()}
        return Lengths(first, table, ragged[0][1].loose)
    raise Refused(ValueError)


def ranks(x: Mapped, axes: Sequence[Axis]) -> torch.Tensor:
    """For each index of a shape that x stretches to, which element of x stands there."""
    outer = len(axes) - x.ndim
    ones = [a for a in range(x.ndim) if x.axes[a] == 1]

    def own(index: Index) -> Index:
        return tuple(0 if a in ones else i for a, i in enumerate(index[outer:]))

    return torch.tensor([x.rank[own(index)] for index in cells(axes)], dtype=torch.int64)


def stretched(x: Mapped, axes: Sequence[Axis]) -> torch.Tensor:
    """The elements of x in the order of the indices of a shape that x stretches to."""
    return x.flat[ranks(x, axes)]


def fits(x: Mapped, axes: Sequence[Axis]) -> bool:
    """Whether x stretches to just this shape."""
    try:
        made = common(x.axes, axes)
    except Refused:
        return False
    return len(made) == len(axes) and all(
        (a.sorted() if isinstance(a, Lengths) else a) == (b.sorted() if isinstance(b, Lengths) else b)
        for a, b in zip(made, axes, strict=True)
    )


def elementwise(function: Callable[..., torch.Tensor], *operands: Any, cast: bool = True) -> Mapped:
    """A function of elements that meet; operands are tensors and Python's numbers, brought to one dtype."""
    tensors = [x for x in operands if isinstance(x, Mapped)]
    axes = common(*[x.axes for x in tensors])
    dtype = result_type(*operands)
    flats = []
    for x in operands:
        if isinstance(x, Mapped):
            flat = stretched(x, axes)
            flats.append(flat.to(dtype) if cast else flat)
        else:
            flats.append(torch.tensor(x, dtype=dtype) if cast else x)
    stored = any(x.is_stored_as_seen and len(x.axes) == len(axes) and x.is_ragged for x in tensors)
    return Mapped.of(axes, function(*flats), stored=stored)


def result_type(*operands: Any) -> torch.dtype:
    """Every tensor counts; Python's numbers do only if they are of a higher kind."""
    dtypes = [x.dtype for x in operands if isinstance(x, Mapped)]
    made = dtypes[0]
    for dtype in dtypes[1:]:
        made = promoted(made, dtype)
    for number in operands:
        if isinstance(number, Mapped):
            continue
        kind = KINDS.index(type(number))
        if kind <= kind_of(made):
            continue
        if kind == 1:
            made = torch.int64
        elif kind == 2:
            made = torch.get_default_dtype()
        else:
            made = torch.complex128 if made == torch.float64 else torch.complex64
    return made


def promoted(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    """The dtype of both together: torch's, and the array API's where torch has none."""
    if kind_of(one) == kind_of(other) == 1:
        made = np.promote_types(_numpy(one), _numpy(other))
        if made.kind == "f":
            raise Refused(TypeError)
        return getattr(torch, made.name)
    wide = [
        torch.int64 if kind_of(d) == 1 and d in (torch.uint16, torch.uint32, torch.uint64) else d for d in (one, other)
    ]
    if torch.bool in wide:
        return other if one == torch.bool else one
    return torch.promote_types(*wide)


def _numpy(dtype: torch.dtype) -> np.dtype:
    return np.dtype(str(dtype).removeprefix("torch."))


def kind_of(dtype: torch.dtype) -> int:
    """0 bool, 1 integer, 2 float, 3 complex."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == torch.bool else 1
