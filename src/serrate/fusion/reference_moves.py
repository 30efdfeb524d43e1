"""What operations that read their operands elsewhere mean, element by element."""

from __future__ import annotations

import numpy as np
import torch

from serrate.fusion.binding import Run
from serrate.fusion.element_lists import Coordinates, ElementList, Lists, Values, extents_of
from serrate.fusion.view import Operation, TensorView


def _resized(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        x = operation.inputs[0]
        moved = coordinates.copy()
        at = operation.options[0]
        lengths = _lengths(run, x, at, moved)
        if operation.name == "slice":
            start = operation.options[1] or 0
            moved[:, at] += np.minimum(lengths, start) if start >= 0 else np.maximum(lengths + start, 0)
            return known[x].at(moved)
        moved[:, at] -= operation.options[1]
        return _read(known[x], moved, (moved[:, at] >= 0) & (moved[:, at] < lengths), operation.options[3])

    return values


def _lengths(run: Run, x: TensorView, at: int, coordinates: Coordinates) -> np.ndarray:
    """The extent of one axis of a tensor at each place."""
    return extents_of(run, x.domain.kept[at], dict(zip(x.domain.kept, coordinates.T, strict=True)), len(coordinates))


def _read(elements: ElementList, wanted: Coordinates, inside: np.ndarray, otherwise: float = 0) -> torch.Tensor:
    """The elements at places that are inside; a number for the others."""
    result = torch.full((len(wanted),), otherwise, dtype=elements.values.dtype)
    result[torch.from_numpy(inside)] = elements.at(wanted[inside])
    return result


def _joined(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        at = operation.options[0]
        moved = coordinates.copy()
        result = torch.zeros(len(moved), dtype=known[operation.inputs[0]].values.dtype)
        left = np.ones(len(moved), bool)  # what no tensor so far has given
        for x in operation.inputs:
            places = moved[left]
            lengths = _lengths(run, x, at, places) if len(places) else np.zeros(0, np.int64)
            taken = np.flatnonzero(left)[places[:, at] < lengths]
            result[torch.from_numpy(taken)] = known[x].at(moved[taken])
            moved[np.flatnonzero(left), at] -= lengths
            left[taken] = False
        return result

    return values


def _padded(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        x, (at, value) = operation.inputs[0], operation.options[:2]
        return _read(known[x], coordinates, coordinates[:, at] < _lengths(run, x, at, coordinates), value)

    return values


def _unpadded(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        x, (read, value) = operation.inputs[0], operation.options
        places = coordinates.copy()
        for number, axis in enumerate(x.domain.kept):
            if axis.is_broadcast:
                places[:, number] = 0
        sizes = [run.size(x.domain.kept[at]) for at in read]
        inside: np.ndarray = np.all(places[:, list(read)] < np.array(sizes, np.int64), axis=1)
        return _read(known[x], places, inside, value)

    return values


def _gathered(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        x, indices = operation.inputs
        at, shared = operation.options
        count = indices.ndim - shared
        own = np.concatenate([coordinates[:, :shared], coordinates[:, at : at + count]], 1)
        rows = known[indices].at(own).numpy().astype(np.int64)
        wanted = np.concatenate([coordinates[:, :at], rows[:, None], coordinates[:, at + count :]], 1)
        lengths, axis = _lengths(run, x, at, wanted), x.domain.kept[at]
        if ((rows < 0) | (rows >= lengths)).any():
            size = "" if axis.is_ragged else f", of {run.size(axis)}"
            raise IndexError(f"{tensor} = {operation}: an index is outside of {axis}{size}")
        return known[x].at(wanted)

    return values


def _selected(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        at, index = operation.options
        axis = operation.inputs[0].domain.kept[at]
        if index >= run.size(axis):
            raise IndexError(f"{tensor} = {operation} of {axis}, of {run.size(axis)}")
        return known[operation.inputs[0]].at(np.insert(coordinates, at, index, axis=1))

    return values


MOVES = {
    "resize": _resized, "concat": _joined, "pad_rows": _padded, "unpad_rows": _unpadded, "gather": _gathered,
    "select": _selected,
}  # fmt: skip
"""The values of each kind of operation of mapping.MOVED."""
