"""What a fusion means, by reference: every tensor as a list of its elements with their coordinates.

Nothing here knows of loops, predicates or kernels. Coordinates are numpy arrays [elements, axes] in lexicographic
order, values are torch vectors of as many elements; floating-point work is done in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from serrate.errors import RaggednessError
from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.expressions import Combine, Merge, Split, component_of
from serrate.fusion.fusion import Fusion
from serrate.fusion.operations import BINARY, REDUCTIONS, UNARY
from serrate.fusion.raggedness import Raggedness, Stored
from serrate.fusion.scalar import BOOL, FLOATS, Scalar
from serrate.fusion.scalar import evaluate as evaluate_scalar
from serrate.fusion.view import Operation, TensorView

TORCH = {
    "float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64,
    "uint8": torch.uint8, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
    BOOL: torch.bool,
}  # fmt: skip
Coordinates = np.ndarray  # [elements, axes]


@dataclass
class Elements:
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


@dataclass
class Run:
    """Sizes and arrays of one evaluation."""

    sizes: dict[str, int]
    arrays: dict[str, torch.Tensor]

    def number(self, expression: Scalar) -> int:
        if expression.op == "const":
            return int(expression.value)
        if expression.op == "symbol":
            return self.sizes[expression.value]
        read = {node.value for node in expression.walk() if node.op in ("load", "search")}
        lists = {name: self.arrays[name].tolist() for name in read}
        return int(evaluate_scalar(expression, self.sizes, lists))

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

    def lengths(self, axis: IterDomain) -> np.ndarray:
        """The extents of a ragged axis, one per component."""
        raggedness = ragged(axis).raggedness
        return raggedness.offsets(self.arrays, self.sizes).diff().cpu().numpy()

    def offsets(self, axis: IterDomain) -> np.ndarray:
        return ragged(axis).raggedness.offsets(self.arrays, self.sizes).cpu().numpy()

    def coordinates(self, axes: Sequence[IterDomain]) -> Coordinates:
        """All index tuples of axes, of which a ragged one comes after those it depends on."""
        rows: dict[IterDomain, np.ndarray] = {}
        count = 1
        for axis in axes:
            if axis.is_ragged:
                component = self.index(component_of(axis), rows, count)
                lengths = self.lengths(axis)[component]
            else:
                lengths = np.full(count, self.size(axis))
            parent = np.repeat(np.arange(count), lengths)
            starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
            rows = {known: index[parent] for known, index in rows.items()}
            rows[axis] = np.arange(len(parent)) - starts
            count = len(parent)
        return np.stack([rows[axis] for axis in axes], 1) if axes else np.zeros((count, 0), np.int64)

    def index(self, axis: IterDomain, known: Mapping[IterDomain, np.ndarray], count: int) -> np.ndarray:
        """The index of an axis, made of known ones by its history."""
        if axis in known:
            return known[axis]
        step = axis.definition
        if step is None:
            raise RaggednessError(f"the index of {axis} does not follow from those of {list(known)}")
        inputs = [self.index(before, known, count) for before in step.inputs]
        outputs = self.forward(step, inputs, known, count)
        return outputs[step.outputs.index(axis)]

    def forward(
        self, step: object, inputs: list[np.ndarray], known: Mapping[IterDomain, np.ndarray], count: int
    ) -> list[np.ndarray]:
        """A step of the axis table on arrays of indices, written out again here: an oracle must not share code."""
        from serrate.fusion import expressions as e

        match step:
            case e.Combine():
                return [self.offsets(step.inputs[1])[:-1][inputs[0]] + inputs[1]]
            case e.Merge():
                return [inputs[0] * self.extents(step.inputs[1], known, count) + inputs[1]]
            case e.Split():
                inner = np.maximum(self.extents(step.outputs[1], known, count), 1)
                return [inputs[0] // inner, inputs[0] % inner]
            case e.Resize():
                return [inputs[0] + step.left]
            case e.Cover():
                return [inputs[0]]
            case e.Partition():
                offsets = self.offsets(step.outputs[1])
                component = np.searchsorted(offsets, inputs[0], side="right") - 1
                return [component, inputs[0] - offsets[component]]
            case _:
                assert isinstance(step, e.Swizzle)
                size = self.number(step.inputs[1].extent)
                x, y = inputs
                return [x, y ^ x if step.swizzle == "xor" else (y + x) % size]

    def extents(self, axis: IterDomain, known: Mapping[IterDomain, np.ndarray], count: int) -> np.ndarray:
        if axis.is_ragged:
            lengths: np.ndarray = self.lengths(axis)[self.index(component_of(axis), known, count)]
            return lengths
        return np.full(count, self.size(axis))


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
        if unknown or evaluate_scalar(extent, run.sizes) != size:
            why = f"; {', '.join(unknown)} is not known" if unknown else ""
            raise ValueError(f"{tensor} has an axis of extent {extent}, got {size}{why}")
    return run


def _bind_size(sizes: dict[str, int], extent: Scalar, size: int, tensor: TensorView) -> bool:
    """Bind the size that an extent is, alone or with a number added; False if it is more than that."""
    if extent.op in ("add", "sub") and extent.args[0].op == "symbol" and extent.args[1].is_const:
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
        if given is None or given.device.type != "cpu":
            continue
        offsets, size = given.numpy(), run.number(rows.size)
        if not len(offsets) or offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
            raise RaggednessError(f"{rows.array} must begin with 0 and never decrease, got {offsets[:8]}")
        if offsets[-1] > size or (rows.exact and offsets[-1] != size):
            what = "end with" if rows.exact else "not exceed"
            raise RaggednessError(
                f"{rows.array} must {what} {rows.size} = {size}, the size of the axis, got {offsets[-1]}"
            )


def stored_raggedness(fusion: Fusion) -> list[Stored]:
    """The raggedness that is data, each once."""
    found: dict[Raggedness, None] = {}
    for tensor in fusion.tensors:
        axes = {*tensor.domain.root, *tensor.domain.logical, *tensor.domain.loop}
        for axis in axes:
            if axis.is_ragged:
                found.update(dict.fromkeys(ragged(axis).raggedness.bases))
    return [raggedness for raggedness in found if isinstance(raggedness, Stored)]


def evaluate(fusion: Fusion, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    run = bind(fusion, inputs)
    compute_offsets(fusion, run)
    check_offsets(stored_raggedness(fusion), run)
    known: dict[TensorView, Elements] = {}
    for tensor, given in zip(fusion.inputs, inputs, strict=True):
        coordinates = run.coordinates(tensor.domain.kept)
        places = torch.from_numpy(_places(run, tensor, coordinates))
        known[tensor] = Elements(coordinates, _wide(given.reshape(-1)[places]))
    for tensor in fusion.tensors:
        if tensor.definition is not None:
            known[tensor] = _compute(run, tensor, tensor.definition, known)
            if tensor.dtype == "int64" and len(tensor.domain.kept) == 1:
                run.arrays[tensor.name] = known[tensor].values
    return [in_memory(run, tensor, known[tensor])[0] for tensor in fusion.outputs]


def _wide(values: torch.Tensor) -> torch.Tensor:
    return values.double() if values.is_floating_point() else values


def in_memory(run: Run, tensor: TensorView, elements: Elements) -> tuple[torch.Tensor, torch.Tensor]:
    """(the tensor as it lies in memory, where it has elements): holes hold the fill, or 0."""
    shape = [run.size(axis) for axis in tensor.domain.allocation]
    dtype = TORCH[tensor.dtype]
    memory = torch.full((int(np.prod(shape)),), tensor.fill or 0, dtype=dtype)
    valid = torch.zeros(memory.shape, dtype=torch.bool)
    where = torch.from_numpy(_places(run, tensor, elements.coordinates))
    memory[where] = elements.values.to(dtype)
    valid[where] = True
    return memory.reshape(shape), valid.reshape(shape)


def _places(run: Run, tensor: TensorView, coordinates: Coordinates) -> np.ndarray:
    """Where elements lie in the memory of a tensor."""
    known = {axis: coordinates[:, number] for number, axis in enumerate(tensor.domain.kept)}
    flat = np.zeros(len(coordinates), np.int64)
    for axis in tensor.domain.allocation:
        flat = flat * run.size(axis) + run.index(axis, known, len(coordinates))
    return flat


def _compute(run: Run, tensor: TensorView, operation: Operation, known: Mapping[TensorView, Elements]) -> Elements:
    values = _KINDS[operation.kind](run, tensor, operation, known)
    wide = torch.float64 if tensor.dtype in FLOATS else TORCH[tensor.dtype]
    coordinates = run.coordinates(tensor.domain.kept)
    return Elements(coordinates, values(coordinates).to(wide))


Values = Callable[[Coordinates], torch.Tensor]


def _operand(
    operation: Operation, number: int, x: TensorView, domain: Sequence[IterDomain], known: Mapping[TensorView, Elements]
) -> Values:
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


def _pointwise(run: Run, tensor: TensorView, operation: Operation, known: Mapping[TensorView, Elements]) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        given = iter(operation.inputs)
        arguments: list[torch.Tensor] = []
        for constant in operation.options or [None] * len(operation.inputs):
            if constant is None:
                arguments.append(_operand(operation, 0, next(given), tensor.domain.kept, known)(coordinates))
            else:
                like = known[operation.inputs[-1]].values.dtype
                arguments.append(torch.full((len(coordinates),), constant, dtype=like))
        match operation.name:
            case "where":
                return torch.where(arguments[0], arguments[1], arguments[2])
            case "cast":
                return _truncated(arguments[0], tensor.dtype)
            case "copy":
                return arguments[0]
            case "full":
                return torch.full_like(arguments[0], 1)
        table = UNARY if operation.name in UNARY and len(arguments) == 1 else BINARY
        return table[operation.name][1](*arguments)

    return values


def _truncated(values: torch.Tensor, dtype: str) -> torch.Tensor:
    return _wide(values.to(TORCH[dtype]))


def _copied(run: Run, tensor: TensorView, operation: Operation, known: Mapping[TensorView, Elements]) -> Values:
    return _operand(operation, 0, operation.inputs[0], tensor.domain.kept, known)


def _reduced(run: Run, tensor: TensorView, operation: Operation, known: Mapping[TensorView, Elements]) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        elements = known[operation.inputs[0]]
        gone = operation.options[0]
        count = len(elements.coordinates)
        root = dict(zip(tensor.domain.root, elements.coordinates.T, strict=True))
        columns = [
            np.zeros(count, np.int64) if a.is_broadcast and a not in root else run.index(a, root, count)
            for a in tensor.domain.kept
        ]
        wanted = np.stack(columns, 1) if columns else np.zeros((count, 0), np.int64)
        groups = torch.from_numpy(places_of(coordinates, wanted))
        given = elements.values
        if not given.is_floating_point() and operation.name in ("sum", "prod"):
            given = given.long()
        positions = torch.from_numpy(elements.coordinates[:, gone[0]].copy())
        return REDUCTIONS[operation.name].reference(given, groups, len(coordinates), positions)

    return values


def _nested(run: Run, tensor: TensorView, operation: Operation, known: Mapping[TensorView, Elements]) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        at = operation.options[0]
        offsets = run.offsets(tensor.domain.kept[at + 1])
        flat = offsets[:-1][coordinates[:, at]] + coordinates[:, at + 1]
        wanted = np.concatenate([coordinates[:, :at], flat[:, None], coordinates[:, at + 2 :]], 1)
        return known[operation.inputs[0]].at(wanted)

    return values


def _resized(run: Run, tensor: TensorView, operation: Operation, known: Mapping[TensorView, Elements]) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        x = operation.inputs[0]
        at, left, _, *rest = operation.options
        moved = coordinates.copy()
        moved[:, at] -= left
        lengths = run.extents(x.domain.kept[at], dict(zip(x.domain.kept, moved.T, strict=True)), len(moved))
        inside = (moved[:, at] >= 0) & (moved[:, at] < lengths)
        result = torch.full((len(moved),), rest[0] if rest else 0, dtype=known[x].values.dtype)
        result[torch.from_numpy(inside)] = known[x].at(moved[inside])
        return result

    return values


def _gathered(run: Run, tensor: TensorView, operation: Operation, known: Mapping[TensorView, Elements]) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        x, indices = operation.inputs
        places = operation.options[0]
        rows = known[indices].at(coordinates[:, :places]).numpy()
        count = run.size(x.domain.kept[0])
        if ((rows < 0) | (rows >= count)).any():
            raise IndexError(f"{tensor} = {operation}: an index is outside of {x.domain.kept[0]}, of {count}")
        return known[x].at(np.concatenate([rows[:, None], coordinates[:, places:]], 1))

    return values


def _selected(run: Run, tensor: TensorView, operation: Operation, known: Mapping[TensorView, Elements]) -> Values:
    def values(coordinates: Coordinates) -> torch.Tensor:
        at, index = operation.options
        axis = operation.inputs[0].domain.kept[at]
        if index >= run.size(axis):
            raise IndexError(f"{tensor} = {operation} of {axis}, of {run.size(axis)}")
        return known[operation.inputs[0]].at(np.insert(coordinates, at, index, axis=1))

    return values


def _offsets(run: Run, tensor: TensorView, operation: Operation, known: Mapping[TensorView, Elements]) -> Values:
    if operation.name == "offsets_of_extents":
        extents = known[operation.inputs[0]].values
        return lambda _: torch.nn.functional.pad(extents.long().cumsum(0), (1, 0))
    return lambda _: operation.options[0].offsets(run.arrays, run.sizes).long()


_KINDS = {
    "pointwise": _pointwise, "broadcast": _copied, "reduce": _reduced, "nest": _nested, "resize": _resized,
    "gather": _gathered, "select": _selected, "offsets": _offsets,
}  # fmt: skip
