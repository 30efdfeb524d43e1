"""Axes as one, and as several: what flatten, unflatten and reshape make of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce

from serrate.errors import RaggednessError
from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.derived_raggedness import Composed
from serrate.fusion.domain import existing
from serrate.fusion.expressions import Combine, Merge, component_of, divides_all
from serrate.fusion.raggedness import Scaled
from serrate.fusion.scalar import Scalar, const, multiply, symbol
from serrate.fusion.shapes import depend_on, depends_on, parents_of
from serrate.fusion.simplify import simplify
from serrate.fusion.transforms import combine, merge, partition


def flattened(root: Sequence[IterDomain], first: int, last: int) -> list[IterDomain]:
    """The axes of a tensor, of which those from `first` to `last` are one."""
    group = root[first : last + 1]
    if group[0].is_ragged and any(axis.is_ragged and depends_on(axis, group[0]) for axis in group[1:]):
        logical = _levels_joined(root, first, last)
    else:
        logical = [*root[:first], joined(group, root), *root[last + 1 :]]
    for axis in logical:
        if axis.is_ragged and not follows(component_of(axis), logical):
            raise RaggednessError(f"{list(group)} of {list(root)} cannot be one axis: {axis} depends on a part of it")
    return logical


def _levels_joined(root: Sequence[IterDomain], first: int, last: int) -> list[IterDomain]:
    """Rows of rows as rows: all levels as one axis, which is cut again by the offsets of the levels that stay."""
    group, parents = root[first : last + 1], parents_of(root[first], root)
    begin = first - len(parents)
    refused = RaggednessError(f"{list(group)} of {list(root)} cannot be one axis: they are not levels of one nesting")
    if list(root[max(begin, 0) : first]) != parents or any(not axis.is_ragged for axis in parents[1:]):
        raise refused
    flat = joined(root[begin : last + 1], root)
    rows, level = ragged(group[0]).raggedness, group[0]
    for axis in group[1:]:
        if axis.is_ragged:
            step = component_of(axis).definition
            if not isinstance(step, Combine) or step.inputs[1] is not level:
                raise refused
            rows, level = Composed(rows, ragged(axis).raggedness), axis
        elif not axis.is_broadcast:
            rows = Scaled(rows, axis.extent, axis.bound)
    made: list[IterDomain] = list(partition(flat, rows))
    made[1].name = "".join(axis.name or "" for axis in group) or None
    rest = root[last + 1 :]
    depend_on([*root[:begin], *made, *rest], {flat: combine(made[0], made[1])})
    for parent in reversed(parents[1:]):
        whole = made[0]
        made[:1] = partition(whole, ragged(parent).raggedness)
        depend_on([*root[:begin], *made, *rest], {whole: combine(made[0], made[1])})
    for parent, axis in zip(parents, made, strict=False):
        axis.name = parent.name
    return [*root[:begin], *made, *root[last + 1 :]]


def joined(group: Sequence[IterDomain], axes: Sequence[IterDomain]) -> IterDomain:
    """Neighbouring axes of a tensor as one that walks their index tuples in order; axes of extent 1 add nothing."""
    real = [axis for axis in group if not axis.is_broadcast] or [group[0]]
    parts: list[IterDomain] = []  # of which the rows of one component axis are one
    for axis in real:
        while len(parts) > 1 and axis.is_ragged and not _is_nested(axis, parts[-1]):
            outer = existing(Merge, tuple(parts[-2:]), axes)
            if outer is None:
                break
            parts[-2:] = [outer]
        if parts and axis.is_ragged and _is_nested(axis, parts[-1]):
            parts[-1] = _joined(parts[-1], axis, group, axes)
        else:
            parts.append(axis)
    made = parts[0]
    for axis in parts[1:]:
        made = _joined(made, axis, group, axes)
    return made


def _is_nested(rows: IterDomain, axis: IterDomain) -> bool:
    """Whether there is a row for each index of an axis, or of the component axis that this one has rows for too."""
    component, step = component_of(rows), axis.definition
    return component is axis or (isinstance(step, Combine) and step.inputs[0] is component)


def _joined(made: IterDomain, axis: IterDomain, group: Sequence[IterDomain], axes: Sequence[IterDomain]) -> IterDomain:
    if axis.is_ragged != made.is_ragged and _is_data(made if axis.is_ragged else axis):
        raise RaggednessError(f"{made} and {axis} cannot be one axis: the extent of the regular one is data")
    if not axis.is_ragged:
        return existing(Merge, (made, axis), axes) or merge(made, axis)
    component = component_of(axis)
    if component is made:
        return existing(Combine, (made, axis), axes) or combine(made, axis)
    step = made.definition
    if isinstance(step, Combine) and step.inputs[0] is component:  # [C, Q, K]: as rows of len_q · len_k
        return combine(component, merge(step.inputs[1], axis))
    if follows(component, group):
        raise RaggednessError(f"{axis} cannot be joined with {made}: its component axis {component} is only a part")
    return merge(made, axis)


def _is_data(axis: IterDomain) -> bool:
    return any(node.op == "load" for node in axis.extent.walk()) and not isinstance(axis.definition, Combine)


def follows(axis: IterDomain, axes: Sequence[IterDomain]) -> bool:
    """Whether the index of an axis follows from those of others: it is one of them, or made of some."""
    if axis in axes:
        return True
    return axis.definition is not None and all(follows(before, axes) for before in axis.definition.inputs)


def product(sizes: Sequence[Scalar]) -> Scalar:
    return reduce(multiply, sizes, const(1))


def _size(size: int | str | Scalar) -> Scalar:
    return symbol(size) if isinstance(size, str) else const(size) if isinstance(size, int) else size


def split_sizes(axis: IterDomain, sizes: Sequence[int | str | Scalar], what: str) -> list[Scalar]:
    """The sizes of the parts of an axis, with what is missing; refuses those that do not fit."""
    wanted = [_size(size) for size in sizes]
    missing = [at for at, size in enumerate(wanted) if size == const(-1)]
    if not wanted or len(missing) > 1 or any(s.is_const and s.value < 0 for s in wanted if s != const(-1)):
        raise ValueError(f"{what} cannot be of the sizes {list(sizes)}: they are 0 or more, and one may be -1")
    if axis.is_ragged and missing != [0]:
        raise RaggednessError(f"{what} is ragged, and so is its first part: its size is -1, got {list(sizes)}")
    if missing and product([size for size in wanted if size != const(-1)]) == const(0):
        raise ValueError(f"{what} cannot be of the sizes {list(sizes)}: -1 could be any number")
    rest = product([size for size in wanted if size != const(-1)])
    if missing and not divides_all(rest, axis):
        raise ValueError(f"{what} cannot be of the sizes {list(sizes)}: {rest} is not known to divide {axis}")
    if missing and not axis.is_ragged:
        wanted[missing[0]] = simplify(axis.extent // rest)
    if not axis.is_ragged and _factors([product(wanted)]) != _factors([axis.extent]):
        raise ValueError(f"{what} cannot be of the sizes {list(sizes)}: its extent is {axis.extent}")
    return wanted


def _factors(sizes: Sequence[Scalar]) -> tuple[Counter[Scalar], int]:
    """Sizes multiplied: how often each that is not a number occurs, and the number."""
    symbols: Counter[Scalar] = Counter()
    number, stack = 1, list(sizes)
    while stack:
        size = stack.pop()
        if size.is_const:
            number *= int(size.value)
        elif size.op == "multiply":
            stack.extend(size.args)
        else:
            symbols[size] += 1
    return symbols, number


def reshaping(
    axes: Sequence[IterDomain], entries: Sequence[int | str | Scalar | IterDomain], what: str
) -> list[tuple[int, int, list[Scalar]]]:
    """Which axes, from one number to before another, become axes of which sizes."""
    sizes = [entry if isinstance(entry, IterDomain) else _size(entry) for entry in entries]
    refused = ValueError(f"{what}: the sizes do not fit")
    if const(-1) in sizes:
        sizes[sizes.index(const(-1))] = _missing(axes, sizes, refused)
    if any(size.is_const and size.value < 0 for size in _numbers(sizes)):
        raise refused
    groups: list[tuple[int, int, list[Scalar]]] = []
    first, at = 0, 0
    while first < len(axes) and at < len(sizes):
        entry = sizes[at]
        if isinstance(entry, IterDomain) or axes[first].is_ragged:
            if entry is not axes[first]:
                raise RaggednessError(f"{what}: {axes[first]} meets {entry}; a ragged axis has to stand for itself")
            groups.append((first, first + 1, []))
            first, at = first + 1, at + 1
            continue
        last, end = first + 1, at + 1
        while (old := _factors([a.extent for a in axes[first:last]])) != (new := _factors(_numbers(sizes[at:end]))):
            if new[0] < old[0] or (new[0] == old[0] and new[1] < old[1]):
                end += 1
                if end > len(sizes) or isinstance(sizes[end - 1], IterDomain):
                    raise refused
            elif old[0] < new[0] or old[0] == new[0]:
                last += 1
                if last > len(axes) or axes[last - 1].is_ragged:
                    raise refused
            else:
                raise refused
        groups.append((first, last, _numbers(sizes[at:end])))
        first, at = last, end
    if first < len(axes) or at < len(sizes):
        raise refused
    return groups


def _numbers(sizes: Sequence[Scalar | IterDomain]) -> list[Scalar]:
    return [size for size in sizes if isinstance(size, Scalar)]


def _missing(axes: Sequence[IterDomain], sizes: Sequence[Scalar | IterDomain], refused: ValueError) -> Scalar:
    """What -1 stands for."""
    kept = [size for size in sizes if isinstance(size, IterDomain)]
    old, number = _factors([axis.extent for axis in axes if axis not in kept and not axis.is_ragged])
    new, divisor = _factors([size for size in _numbers(sizes) if size != const(-1)])
    if not new <= old or divisor == 0 or number % divisor:
        raise refused
    return product([*(old - new).elements(), const(number // divisor)])
