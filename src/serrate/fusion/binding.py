"""Binding: which sizes and arrays the tensors that a fusion is called with stand for, and the checks of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from serrate.errors import RaggednessError
from serrate.fusion.analysis import evaluate
from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.domain import history
from serrate.fusion.dtypes import DTYPES
from serrate.fusion.expressions import Combine, Merge, Split
from serrate.fusion.placing import offsets_of_indices, order_of_indices
from serrate.fusion.raggedness import Listed, Raggedness, Scaled, Stored
from serrate.fusion.remembering import forgetting
from serrate.fusion.scalar import Scalar, ceildiv
from serrate.fusion.strides import check_strides
from serrate.fusion.view import Operation, TensorView
from serrate.tensor import host

if TYPE_CHECKING:
    from serrate.fusion.fusion import Fusion

TORCH: dict[str, torch.dtype] = {dtype: getattr(torch, dtype) for dtype in DTYPES}
"""The torch dtype of each dtype of a fusion."""


class _Arrays(dict[str, torch.Tensor]):
    """Arrays that were given, and offsets that follow from them, which are computed when they are first asked for."""

    def __init__(self, given: Mapping[str, torch.Tensor], run: Run) -> None:
        super().__init__(given)
        self.run = run

    def __missing__(self, name: str) -> torch.Tensor:
        known = {} if self.run.fusion is None else raggedness_of(self.run.fusion)
        if name not in known or isinstance(known[name], Stored):
            raise KeyError(name)
        self[name] = known[name].offsets(self, self.run.sizes)
        return self[name]


@dataclass
class Run:
    """The sizes and the arrays of one call of a fusion, both by name."""

    sizes: dict[str, int]
    arrays: dict[str, torch.Tensor]
    fusion: Fusion | None = None  # that was called

    def __post_init__(self) -> None:
        self.arrays = _Arrays(self.arrays, self)

    def number(self, expression: Scalar) -> int:
        if expression.op == "const":
            return int(expression.value)
        unknown = [str(size) for size in expression.symbols if size.value not in self.sizes]
        if unknown:
            raise ValueError(f"no input says what {', '.join(unknown)} is")
        if expression.op == "symbol":
            return self.sizes[expression.value]
        read = {node.value for node in expression.walk() if node.op in ("load", "search")}
        lists = {name: self.arrays[name].tolist() for name in read}
        return int(evaluate(expression, self.sizes, lists))

    def size(self, axis: IterDomain) -> int:
        """The extent of a regular axis; of one that walks all rows, the sum of their lengths."""
        match axis.definition:
            case Combine() as step:
                return int(self.offsets(step.inputs[1])[-1])
            case Split() as step if not step.inputs[0].is_ragged:
                factor = self.number(step.factor)
                fixed = step.outputs.index(axis) == (1 if step.inner_split else 0)
                return factor if fixed else -(-self.size(step.inputs[0]) // factor)
            case Merge() as step if not axis.is_ragged:
                return self.size(step.inputs[0]) * self.size(step.inputs[1])
        return self.number(axis.extent)

    def capacity(self, axis: IterDomain) -> int:
        """How many indices of a regular axis there is room for in memory. See `room`; where nothing is said about the
        room for rows, the sum of their lengths."""
        known = room(axis)
        return self.size(axis) if known is None else self.number(known)

    def offsets(self, axis: IterDomain) -> np.ndarray:
        """The offsets of a ragged axis, on the host."""
        return ragged(axis).raggedness.offsets(self.arrays, self.sizes).cpu().numpy()


def room(axis: IterDomain) -> Scalar | None:
    """How many indices of a regular axis there is room for in memory, in terms of sizes; None if only data tells it.

    Rows whose lengths are data have the room of the axis that they were cut from, which they need not fill.
    """
    match axis.definition:
        case Combine() as step:
            return _room_for_rows(ragged(step.inputs[1]).raggedness)
        case Split() as step if not step.inputs[0].is_ragged:
            if step.outputs.index(axis) == (1 if step.inner_split else 0):
                return step.factor
            whole = room(step.inputs[0])
            return None if whole is None else ceildiv(whole, step.factor)
        case Merge() as step if not axis.is_ragged:
            outer, inner = room(step.inputs[0]), room(step.inputs[1])
            return None if outer is None or inner is None else outer * inner
    return None if any(node.op in ("load", "search") for node in axis.extent.walk()) else axis.extent


def _room_for_rows(raggedness: Raggedness) -> Scalar | None:
    match raggedness:
        case Stored():
            return raggedness.size
        case Listed():
            return raggedness.total
        case Scaled():
            base = _room_for_rows(raggedness.base)
            return None if base is None else base * raggedness.by
    return None


def bind(fusion: Fusion, inputs: Sequence[torch.Tensor], sizes: Mapping[str, int] | None = None) -> Run:
    """Sizes by the shapes of what is given: a size named alone, or with a number added; and those that are known."""
    if len(inputs) != len(fusion.inputs):
        names = ", ".join(tensor.name for tensor in fusion.inputs)
        raise TypeError(f"the fusion has {len(fusion.inputs)} inputs ({names}), got {len(inputs)}")
    run = Run(dict(sizes or {}), {}, fusion)
    compound: list[tuple[Scalar, int, TensorView]] = []
    for tensor, given in zip(fusion.inputs, inputs, strict=True):
        if not isinstance(given, torch.Tensor):
            kind = f"{type(given).__module__.split('.')[0]}.{type(given).__name__}"
            raise TypeError(
                f"{tensor} needs a torch.Tensor, got {kind}; of a ragged tensor x give x.values and each of x.offsets"
            )
        axes = tensor.domain.allocation
        if len(axes) != given.ndim:
            raise ValueError(f"{tensor} lies in memory by {len(axes)} axes, got shape {list(given.shape)}")
        if TORCH[tensor.dtype] != given.dtype:
            raise TypeError(f"{tensor} was given {given.dtype}")
        for axis, size in zip(axes, given.shape, strict=True):
            if not _bind_size(run.sizes, axis.extent, size, tensor):
                compound.append((axis.extent, size, tensor))
        check_strides(tensor, given)
        if tensor.dtype in ("int32", "int64"):
            run.arrays[tensor.name] = given
    for extent, size, tensor in compound:
        if any(node.op == "load" for node in extent.walk()):
            continue  # of rows, whose offsets are checked
        unknown = [str(symbol) for symbol in extent.symbols if symbol.value not in run.sizes]
        if unknown or evaluate(extent, run.sizes) != size:
            why = f"; {', '.join(unknown)} is not known" if unknown else ""
            raise ValueError(f"{tensor} has an axis of extent {extent}, got {size}{why}")
    return run


def size_and_number(extent: Scalar) -> tuple[Scalar, int]:
    """An extent as the name of a size and the number that is added to it; itself and 0 if it is not of that form."""
    if extent.op in ("add", "subtract") and extent.args[0].op == "symbol" and extent.args[1].is_const:
        return extent.args[0], extent.args[1].value if extent.op == "add" else -extent.args[1].value
    return extent, 0


def _bind_size(sizes: dict[str, int], extent: Scalar, size: int, tensor: TensorView) -> bool:
    """Bind the size that an extent is, alone or with a number added; False if it is more than that."""
    extent, added = size_and_number(extent)
    size -= added
    if extent.op == "symbol" and sizes.setdefault(extent.value, size) == size:
        return True
    if extent.is_const and extent.value == size:
        return True
    if extent.op in ("symbol", "const"):
        expected = f"{extent} = {sizes[extent.value]}" if extent.op == "symbol" else str(extent)
        raise ValueError(f"{tensor} has an axis of extent {expected}, got {size}")
    return False


def compute_offsets(fusion: Fusion, run: Run) -> dict[str, torch.Tensor]:
    """Offsets that follow from extents or from other offsets, computed where those are; nothing waits for them."""
    made: dict[str, torch.Tensor] = {}
    for tensor in fusion.tensors:
        operation = tensor.definition
        if operation is None or operation.kind != "offsets":
            continue
        if all(base in run.arrays for base in offset_bases(operation)):  # else computed by the fusion itself
            made[tensor.name] = run.arrays[tensor.name] = computed_offsets(operation, run)
    return made


def offset_bases(operation: Operation) -> tuple[str, ...]:
    """The arrays that an operation makes offsets of."""
    named = () if operation.name == "offsets_of" else tuple(x.name for x in operation.inputs)
    rows = [option for option in operation.options if isinstance(option, Raggedness)]
    return (*named, *(base for each in rows for base in each.base_arrays))


def computed_offsets(operation: Operation, run: Run) -> torch.Tensor:
    """The offsets that an operation gives, made of extents, of other offsets, or of indices; or the order of these."""
    match operation.name:
        case "offsets_of_extents":
            return torch.nn.functional.pad(run.arrays[operation.inputs[0].name].long().cumsum(0), (1, 0))
        case "order_of_indices":
            return order_of_indices(operation, run)
        case "offsets_of_indices":
            return offsets_of_indices(operation, run)
    made: torch.Tensor = operation.options[0].offsets(run.arrays, run.sizes).long()
    return made


def check_offsets(raggedness: Iterable[Stored], run: Run) -> None:
    """Refuse offsets on the CPU that would lead out of their axis; those on a device are not waited for."""
    for rows in raggedness:
        given = run.arrays.get(rows.array)
        if given is None:
            continue
        _check_count(rows, given, run)
        _check_longest(rows, given, run)
        if given.device.type != "cpu":
            continue
        offsets, size = given.numpy(), run.number(rows.size)
        if not len(offsets) or offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
            raise RaggednessError(f"{rows.array} must begin with 0 and never decrease, got {offsets[:8]}")
        if offsets[-1] > size or (rows.exact and offsets[-1] != size):
            what = "end with" if rows.exact else "not exceed"
            raise RaggednessError(
                f"{rows.array} must {what} {rows.size} = {size}, the size of the axis, got {offsets[-1]}"
            )


def _check_count(rows: Stored, offsets: torch.Tensor, run: Run) -> None:
    """Refuse offsets of another number of components, wherever they are."""
    count = run.number(rows.count)
    if len(offsets) != count + 1:
        raise RaggednessError(f"{rows.array} must have {rows.count} + 1 = {count + 1} entries, got {len(offsets)}")


def _check_longest(rows: Stored, offsets: torch.Tensor, run: Run) -> None:
    """Refuse rows that are longer than they were said to be. Nothing waits for offsets on a device: a later call raises
    the error, and until then loops that run to the longest row do not reach the ends of such rows."""
    if rows.longest is None:
        return
    longest = run.number(rows.longest)

    def error(component: int) -> Exception:
        length = int(offsets[component + 1] - offsets[component])
        return RaggednessError(
            f"no row of {rows.array} may be longer than {rows.longest} = {longest}, but that of component "
            f"{component} has {length} entries"
        )

    if offsets.device.type != "cpu":
        host.defer(host.first_fault(offsets.diff() > longest), forgetting(offsets, error))
        return
    too_long = np.flatnonzero(np.diff(offsets.numpy()) > longest)
    if len(too_long):
        raise error(int(too_long[0]))


def stored_raggedness(fusion: Fusion) -> list[Stored]:
    """The raggedness that is data, each once."""
    found: dict[Raggedness, None] = {}
    for tensor in fusion.tensors:
        for axis in (*tensor.domain.root, *tensor.domain.logical, *tensor.domain.loop):
            if axis.is_ragged:
                found.update(dict.fromkeys(ragged(axis).raggedness.bases))
    return [raggedness for raggedness in found if isinstance(raggedness, Stored)]


def raggedness_of(fusion: Fusion) -> dict[str, Raggedness]:
    """The raggedness of all axes of the tensors of a fusion, and what that is based on, by the names of the arrays of
    offsets. Where an array is given that is named like offsets that follow from others, it is those that follow."""
    found: dict[str, Raggedness] = {}
    for rows in fusion.lengths:
        _add(rows, found)
    for tensor in fusion.tensors:
        domain = tensor.domain
        axes = (*domain.root, *domain.logical, *domain.loop, *domain.allocation)
        made = (axis for step in history(axes) for axis in (*step.inputs, *step.outputs))
        for axis in dict.fromkeys((*axes, *made)):
            if axis.is_ragged:
                _add(ragged(axis).raggedness, found)
        for option in () if tensor.definition is None else tensor.definition.options:
            if isinstance(option, Raggedness):
                _add(option, found)
    return found


def _add(raggedness: Raggedness, found: dict[str, Raggedness]) -> None:
    if raggedness.array not in found or isinstance(found[raggedness.array], Stored):
        found[raggedness.array] = raggedness
    for part in ("base", "left", "right"):
        if isinstance(inner := getattr(raggedness, part, None), Raggedness):
            _add(inner, found)
