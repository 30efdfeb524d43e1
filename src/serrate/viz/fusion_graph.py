"""Drawings of fusions: tensors as boxes with their axes, operations between them."""

from __future__ import annotations

from serrate.fusion.axes import IterDomain
from serrate.fusion.fusion import Fusion
from serrate.fusion.view import Operation, TensorView
from serrate.viz.axis_graph import axis_label, graph_drawing, parallel_fill
from serrate.viz.items import Box, Item, Row, Text, chip, stacked
from serrate.viz.svg import BLUE, GREEN, Drawing, drawing


def draw_fusion(fusion: Fusion) -> Drawing:
    """The tensors of a fusion from its inputs down to its outputs, and the operations between them.

    >>> from serrate.fusion import Fusion
    >>> from serrate.viz import draw_fusion
    >>> fusion = Fusion()
    >>> x = fusion.input("x", ["n", 128])
    >>> y = fusion.output(fusion.unary("exp", x), "y")
    >>> ">exp<" in draw_fusion(fusion).svg
    True
    """
    if not isinstance(fusion, Fusion):
        raise TypeError(f"draw_fusion takes a Fusion, got {type(fusion).__name__}")
    if not fusion.tensors:
        return drawing(*stacked([Text("a fusion without tensors")]), "fusion")
    tensors = list(fusion.tensors)
    number = {tensor: at for at, tensor in enumerate(tensors)}
    boxes = [_tensor_box(fusion, tensor) for tensor in tensors]
    layers = [0] * len(tensors)
    edges: list[tuple[int, int]] = []
    for at, tensor in enumerate(tensors):
        operation = tensor.definition
        if operation is None:
            continue
        operands = [number[operand] for operand in operation.inputs]
        edges += [(operand, len(boxes)) for operand in operands] + [(len(boxes), at)]
        layers.append(max((layers[operand] for operand in operands), default=0) + 1)
        layers[at] = layers[-1] + 1
        boxes.append(_operation_box(operation))
    return graph_drawing(boxes, edges, layers, (), "fusion")


def _tensor_box(fusion: Fusion, tensor: TensorView) -> Box:
    role = "input" if tensor in fusion.inputs else "output" if tensor in fusion.outputs else ""
    title: list[Item] = [Text(tensor.name, bold=True, limit=40), Text(f"{tensor.dtype}, {tensor.memory.value}")]
    if role:
        title.append(chip(role, BLUE if role == "input" else GREEN, kind="role"))
    items: list[Item] = [Row(tuple(title))]
    logical, loop = tensor.domain.logical, tensor.domain.loop
    if logical:
        items.append(_chips("logical", logical))
    if loop != logical and loop:
        items.append(_chips("loop", loop))
    return Box("tensor", tuple(items), tooltip=repr(tensor))


def _chips(name: str, axes: tuple[IterDomain, ...]) -> Row:
    return Row((Text(name, font_size=10), *(_axis_chip(axis) for axis in axes)))


def _axis_chip(axis: IterDomain) -> Box:
    notes = [axis.iter_type.name.lower()] if axis.is_reduction or axis.is_broadcast else []
    if parallel_fill(axis.parallel_type) != "none" or axis.parallel_type.name == "Unroll":
        notes.append(axis.parallel_type.name)
    return chip(" ".join([axis_label(axis), *notes]), parallel_fill(axis.parallel_type), kind="axis")


def _operation_box(operation: Operation) -> Box:
    items: list[Item] = [Text(operation.name, kind="name")]
    details = _details(operation)
    if details:
        items.append(Text(details, font_size=10, limit=40))
    return Box("operation", tuple(items), dashed=True, centred=True, padding=2.0, tooltip=repr(operation))


def _details(operation: Operation) -> str:
    """What a reader wants to know besides the name: constants, axes."""
    match operation.kind:
        case "pointwise":
            constants = [str(option) for option in operation.options if option is not None]
            return f"constant {', '.join(constants)}" if constants else ""
        case "reduce":
            return f"axes {', '.join(map(str, operation.options[0]))}"
        case "nest" | "select" | "resize":
            return ", ".join(map(str, operation.options))
    return ""
