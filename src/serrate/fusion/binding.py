"""Binding: which sizes and arrays the tensors that a fusion is called with stand for, and the checks of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from serrate.errors import RaggednessError
from serrate.fusion.analysis import evaluate
from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.dtypes import DTYPES
from serrate.fusion.expressions import Combine, Merge, Split
from serrate.fusion.fusion import Fusion
from serrate.fusion.raggedness import Raggedness, Stored
from serrate.fusion.scalar import Scalar
from serrate.fusion.view import TensorView
from serrate.tensor import host

TORCH: dict[str, torch.dtype] = {dtype: getattr(torch, dtype) for dtype in DTYPES}
"""The torch dtype of each dtype of a fusion."""


@dataclass
class Run:
    """The sizes and the arrays of one call of a fusion, both by name."""

    sizes: dict[str, int]
    arrays: dict[str, torch.Tensor]

    def number(self, expression: Scalar) -> int:
        if expression.op == "const":
            return int(expression.value)
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

    def offsets(self, axis: IterDomain) -> np.ndarray:
        """The offsets of a ragged axis, on the host."""
        return ragged(axis).raggedness.offsets(self.arrays, self.sizes).cpu().numpy()


def bind(fusion: Fusion, inputs: Sequence[torch.Tensor]) -> Run:
    """Sizes by the shapes of what is given: a size named alone, or with a number added."""
    if len(inputs) != len(fusion.inputs):
        names = ", ".join(tensor.name for tensor in fusion.inputs)
        raise TypeError(f"the fusion has {len(fusion.inputs)} inputs ({names}), got {len(inputs)}")
    run = Run({}, {})
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
        if tensor.dtype in ("int32", "int64") and given.ndim == 1:
            run.arrays[tensor.name] = given
    for extent, size, tensor in compound:
        if any(node.op == "load" for node in extent.walk()):
            continue  # of rows, whose offsets are checked
        unknown = [str(symbol) for symbol in extent.symbols if symbol.value not in run.sizes]
        if unknown or evaluate(extent, run.sizes) != size:
            why = f"; {', '.join(unknown)} is not known" if unknown else ""
            raise ValueError(f"{tensor} has an axis of extent {extent}, got {size}{why}")
    return run


def _bind_size(sizes: dict[str, int], extent: Scalar, size: int, tensor: TensorView) -> bool:
    """Bind the size that an extent is, alone or with a number added; False if it is more than that."""
    if extent.op in ("add", "subtract") and extent.args[0].op == "symbol" and extent.args[1].is_const:
        size -= extent.args[1].value if extent.op == "add" else -extent.args[1].value
        extent = extent.args[0]
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
        if operation.name == "offsets_of_extents":
            extents = run.arrays.get(operation.inputs[0].name)
            if extents is None:
                continue  # computed by the fusion itself
            made[tensor.name] = torch.nn.functional.pad(extents.long().cumsum(0), (1, 0))
        elif all(base in run.arrays for base in operation.options[0].base_arrays):
            made[tensor.name] = operation.options[0].offsets(run.arrays, run.sizes).long()
        run.arrays.update(made)
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
        host.defer(host.first_fault(offsets.diff() > longest), error)
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
