"""The elements of tensors with their coordinates: what the reference computes with.

Coordinates are numpy arrays [elements, axes] in lexicographic order. Values are torch vectors with one entry for each
element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from serrate.errors import RaggednessError
from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import Run
from serrate.fusion.expressions import (
    AxisExpression,
    Combine,
    Cover,
    Merge,
    Partition,
    Resize,
    Split,
    Swizzle,
    component_of,
)
from serrate.fusion.view import TensorView

Coordinates = np.ndarray  # [elements, axes]


@dataclass
class ElementList:
    """The elements of a tensor."""

    coordinates: Coordinates
    values: torch.Tensor

    def at(self, wanted: Coordinates) -> torch.Tensor:
        """The values at these coordinates, each of which must be one of ours."""
        places = places_of(self.coordinates, wanted)
        return self.values[torch.from_numpy(places)]


def places_of(coordinates: Coordinates, wanted: Coordinates) -> np.ndarray:
    """Where each wanted tuple stands in the list."""
    if not len(wanted):
        return np.zeros(0, np.int64)
    spans = np.maximum(coordinates.max(0, initial=0), wanted.max(0, initial=0)) + 1
    if not coordinates.shape[1]:
        return np.zeros(len(wanted), np.int64)
    weights = np.concatenate([np.cumprod(spans[::-1])[::-1][1:], [1]]).astype(np.int64)
    keys, sought = coordinates @ weights, wanted @ weights
    places = np.searchsorted(keys, sought)
    if len(keys) == 0 or (places >= len(keys)).any() or (keys[np.minimum(places, len(keys) - 1)] != sought).any():
        raise RaggednessError("an element was asked for that is not there")
    return places


Lists = Mapping[TensorView, ElementList]
Values = Callable[[Coordinates], torch.Tensor]


def coordinates_of(run: Run, axes: Sequence[IterDomain]) -> Coordinates:
    """All index tuples of `axes`. A ragged axis must come after the axes that its extent depends on."""
    rows: dict[IterDomain, np.ndarray] = {}
    count = 1
    for axis in axes:
        lengths = extents_of(run, axis, rows, count)
        parent = np.repeat(np.arange(count), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        rows = {known: index[parent] for known, index in rows.items()}
        rows[axis] = np.arange(len(parent)) - starts
        count = len(parent)
    return np.stack([rows[axis] for axis in axes], 1) if axes else np.zeros((count, 0), np.int64)


def extents_of(run: Run, axis: IterDomain, known: Mapping[IterDomain, np.ndarray], count: int) -> np.ndarray:
    """The extent of an axis at each of `count` places, whose indices along some axes are `known`."""
    if axis.is_ragged:
        lengths: np.ndarray = np.diff(run.offsets(axis))[index_of(run, component_of(axis), known, count)]
        return lengths
    return np.full(count, run.size(axis))


def index_of(run: Run, axis: IterDomain, known: Mapping[IterDomain, np.ndarray], count: int) -> np.ndarray:
    """The index of an axis at each of `count` places, computed from the known indices by the steps that made it."""
    if axis in known:
        return known[axis]
    step = axis.definition
    if step is None:
        raise RaggednessError(f"the index of {axis} does not follow from those of {list(known)}")
    inputs = [index_of(run, before, known, count) for before in step.inputs]
    outputs = _forward(run, step, inputs, known, count)
    return outputs[step.outputs.index(axis)]


def _forward(
    run: Run, step: AxisExpression, inputs: list[np.ndarray], known: Mapping[IterDomain, np.ndarray], count: int
) -> list[np.ndarray]:
    """The indices of a step's outputs from those of its inputs.

    The axis table says the same in scalar expressions. It is written again here, because a reference must not share
    code with what it checks.
    """
    match step:
        case Combine():
            return [run.offsets(step.inputs[1])[:-1][inputs[0]] + inputs[1]]
        case Merge():
            return [inputs[0] * extents_of(run, step.inputs[1], known, count) + inputs[1]]
        case Split():
            inner = np.maximum(extents_of(run, step.outputs[1], known, count), 1)
            return [inputs[0] // inner, inputs[0] % inner]
        case Resize():
            return [inputs[0] + step.left]
        case Cover():
            return [inputs[0]]
        case Partition():
            offsets = run.offsets(step.outputs[1])
            component = np.searchsorted(offsets, inputs[0], side="right") - 1
            return [component, inputs[0] - offsets[component]]
        case _:
            assert isinstance(step, Swizzle)
            size = run.number(step.inputs[1].extent)
            x, y = inputs
            return [x, y ^ x if step.swizzle == "xor" else (y + x) % size]
