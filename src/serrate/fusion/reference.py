"""What a fusion means: every tensor as a list of its elements with their coordinates, computed by torch.

This is the reference that kernels are tested against, so it knows nothing of loops, predicates and kernels.
Floating-point values are computed in float64, complex ones in complex128. Those of uint16, uint32 and uint64, which
torch moves by few of its functions, are held as the int64 numbers of the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from serrate.fusion import elementwise, unsigned
from serrate.fusion.axes import IterDomain
from serrate.fusion.binding import (
    TORCH,
    Run,
    bind,
    check_offsets,
    compute_offsets,
    computed_offsets,
    stored_raggedness,
)
from serrate.fusion.dtypes import kind_of
from serrate.fusion.element_lists import Coordinates, ElementList, Lists, Values, coordinates_of, index_of, places_of
from serrate.fusion.fusion import Fusion
from serrate.fusion.monoids import MONOIDS
from serrate.fusion.reference_moves import MOVES
from serrate.fusion.requirements import requirements_of
from serrate.fusion.stages import needed_for
from serrate.fusion.view import Operation, TensorView
from serrate.tensor import bits

_WIDEST = {"float": torch.float64, "complex": torch.complex128}  # what is computed in


def results_of(fusion: Fusion, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of a fusion for these inputs, as they lie in memory."""
    run = bind(fusion, inputs)
    compute_offsets(fusion, run)
    check_offsets(stored_raggedness(fusion), run)
    for required in requirements_of(fusion):
        required.check(run)
    known: dict[TensorView, ElementList] = {}
    for tensor, given in zip(fusion.inputs, inputs, strict=True):
        coordinates = coordinates_of(run, tensor.domain.kept)
        places = torch.from_numpy(_places(run, tensor, coordinates))
        known[tensor] = ElementList(coordinates, _held(given.reshape(-1)[places], tensor.dtype))
    needed = needed_for(fusion, fusion.outputs)
    for tensor in fusion.tensors:
        if tensor.definition is not None and tensor in needed:
            known[tensor] = _compute(run, tensor, tensor.definition, known)
            if tensor.dtype == "int64" and len(tensor.domain.kept) == 1:
                run.arrays[tensor.name] = known[tensor].values
    return [in_memory(run, tensor, known[tensor])[0] for tensor in fusion.outputs]


def _held(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """Values of a dtype as a list of elements holds them."""
    made = values.to(_WIDEST.get(kind_of(dtype), TORCH[dtype]))
    return made.to(torch.int64) if made.dtype in unsigned.WIDE else made


def _computed(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """Values that a list of elements of a dtype holds, as they are computed with."""
    return values.to(_WIDEST.get(kind_of(dtype), TORCH[dtype]))


def in_memory(run: Run, tensor: TensorView, elements: ElementList) -> tuple[torch.Tensor, torch.Tensor]:
    """(the tensor as it lies in memory, where it has elements): holes hold the fill, or 0."""
    shape = [run.capacity(axis) for axis in tensor.domain.allocation]
    dtype = TORCH[tensor.dtype]
    memory = torch.full((int(np.prod(shape)),), tensor.fill or 0, dtype=dtype)
    valid = torch.zeros(memory.shape, dtype=torch.bool)
    where = torch.from_numpy(_places(run, tensor, elements.coordinates))
    bits.put(memory, (where,), elements.values.to(dtype))
    valid[where] = True
    return memory.reshape(shape), valid.reshape(shape)


def _places(run: Run, tensor: TensorView, coordinates: Coordinates) -> np.ndarray:
    """Where elements lie in the memory of a tensor."""
    known = {axis: coordinates[:, number] for number, axis in enumerate(tensor.domain.kept)}
    flat = np.zeros(len(coordinates), np.int64)
    for axis in tensor.domain.allocation:
        flat = flat * run.capacity(axis) + index_of(run, axis, known, len(coordinates))
    return flat


def _compute(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> ElementList:
    values = _KINDS[operation.kind](run, tensor, operation, known)
    coordinates = coordinates_of(run, tensor.domain.kept)
    return ElementList(coordinates, _held(values(coordinates), tensor.dtype))


def _operand(operation: Operation, x: TensorView, domain: Sequence[IterDomain], known: Lists) -> Values:
    """The values of an operand at coordinates over `domain`."""
    pairs = {(old, new) for old, new in operation.axes}

    def values(coordinates: Coordinates) -> torch.Tensor:
        columns = []
        for axis in x.domain.kept:
            found = [place for place, new in enumerate(domain) if (axis, new) in pairs]
            columns.append(coordinates[:, found[0]] if found else np.zeros(len(coordinates), np.int64))
        wanted = np.stack(columns, 1) if columns else np.zeros((len(coordinates), 0), np.int64)
        return known[x].at(wanted)

    return values


def _pointwise(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    if not operation.inputs:
        return _of_indices(run, tensor, operation)

    def values(coordinates: Coordinates) -> torch.Tensor:
        last = operation.inputs[-1]
        like = _WIDEST.get(kind_of(last.dtype), TORCH[last.dtype])
        arguments = [
            _computed(_operand(operation, x, tensor.domain.kept, known)(coordinates), x.dtype)
            if isinstance(x, TensorView)
            else torch.full((len(coordinates),), x, dtype=like)
            for x in operation.operands
        ]
        match operation.name:
            case "cast":
                return _truncated(arguments[0], tensor.dtype)
            case "copy":
                return arguments[0]
        row = elementwise.named(operation.name)
        if row.in_own_dtype:
            arguments = [x.to(TORCH[tensor.dtype]) for x in arguments]
        settings = dict(operation.settings)
        if arguments[-1].dtype in unsigned.WIDE:
            return unsigned.compute(operation.name, row.reference, arguments, **settings)
        return row.reference(*arguments, **settings)

    return values


def _of_indices(run: Run, tensor: TensorView, operation: Operation) -> Values:
    """What depends on nothing but indices."""

    def values(coordinates: Coordinates) -> torch.Tensor:
        if operation.name == "packed_positions":
            return torch.from_numpy(_places(run, tensor, coordinates))
        option, count = operation.options[0], len(coordinates)
        match operation.name:
            case "full":
                return torch.full((count,), option)
            case "positions":
                return torch.from_numpy(coordinates[:, option].copy())
        known = dict(zip(tensor.domain.kept, coordinates.T, strict=True))
        lengths = np.diff(option.offsets(run.arrays, run.sizes).cpu().numpy()).astype(np.int64)
        return torch.from_numpy(lengths[index_of(run, operation.axes[-1][1], known, count)])

    return values


def _truncated(values: torch.Tensor, dtype: str) -> torch.Tensor:
    return _held(values.to(TORCH[dtype]), dtype)


def _copied(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    return _operand(operation, operation.inputs[0], tensor.domain.kept, known)


def _reduced(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        elements = known[operation.inputs[0]]
        gone = operation.options[0]
        count = len(elements.coordinates)
        root = dict(zip(tensor.domain.root, elements.coordinates.T, strict=True))
        columns = [
            np.zeros(count, np.int64) if a.is_broadcast and a not in root else index_of(run, a, root, count)
            for a in tensor.domain.kept
        ]
        wanted = np.stack(columns, 1) if columns else np.zeros((count, 0), np.int64)
        groups = torch.from_numpy(places_of(coordinates, wanted))
        given = _computed(elements.values, operation.inputs[0].dtype)
        positions = torch.from_numpy(elements.coordinates[:, gone[0]].copy())
        return MONOIDS[operation.name].reference(given, groups, len(coordinates), positions)

    return values


def _scanned(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        at, exclusive, reverse = operation.options
        monoid = MONOIDS[operation.name]
        given = _computed(_copied(run, tensor, operation, known)(coordinates), operation.inputs[0].dtype)
        others = np.delete(coordinates, at, 1)
        _, rows = np.unique(others, axis=0, return_inverse=True)
        found = _held(torch.zeros(len(coordinates)), tensor.dtype)
        for row in range(int(rows.max()) + 1 if len(rows) else 0):
            places = np.flatnonzero(rows.reshape(-1) == row)
            places = places[np.argsort(coordinates[places, at])]
            places = places[::-1].copy() if reverse else places
            for number, place in enumerate(places):
                before = given[torch.from_numpy(places[: number + (not exclusive)])]
                group = torch.zeros(len(before), dtype=torch.int64)
                found[place] = _held(monoid.reference(before, group, 1, group), tensor.dtype)[0]
        return found

    return values


def _nested(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    if operation.name != "view_as_nested":  # flattened or the reverse, which leaves the order of elements as it is
        return lambda _: known[operation.inputs[0]].values

    def values(coordinates: Coordinates) -> torch.Tensor:
        at = operation.options[0]
        offsets = run.offsets(tensor.domain.kept[at + 1])
        flat = offsets[:-1][coordinates[:, at]] + coordinates[:, at + 1]
        wanted = np.concatenate([coordinates[:, :at], flat[:, None], coordinates[:, at + 2 :]], 1)
        return known[operation.inputs[0]].at(wanted)

    return values


def _offsets(run: Run, tensor: TensorView, operation: Operation, known: Lists) -> Values:
    if tensor.name not in run.arrays:  # made of what the fusion computes
        run.arrays.update((x.name, known[x].values) for x in operation.inputs)
        run.arrays[tensor.name] = computed_offsets(operation, run)
    return lambda _: run.arrays[tensor.name]


_KINDS = {
    "pointwise": _pointwise, "broadcast": _copied, "reduce": _reduced, "scan": _scanned, "nest": _nested,
    "offsets": _offsets, **MOVES,
}  # fmt: skip
