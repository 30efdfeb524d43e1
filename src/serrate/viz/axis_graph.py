"""Drawings of axes: each axis a box, each step between axes a joint, holes shaded, predicated axes marked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from serrate.errors import RaggednessError
from serrate.fusion.axes import IterDomain, ragged
from serrate.fusion.domain import TensorDomain, history
from serrate.fusion.expressions import AxisExpression, Cover, Resize, Split
from serrate.fusion.types import IterType, ParallelType
from serrate.fusion.view import TensorView
from serrate.viz.arrange import arrange
from serrate.viz.holes import cells_of_axis, cells_of_step, holes_of_step
from serrate.viz.items import Box, Item, Text, stacked
from serrate.viz.svg import BLUE, GREEN, INK, ORANGE, PURPLE, Drawing, Element, drawing, group, line

Roles = Mapping[IterDomain, str]


def draw_axes(
    axes: IterDomain | TensorDomain | Iterable[IterDomain], predicated: Collection[IterDomain] = ()
) -> Drawing:
    """The history of axes: what they are made of, by which steps. Axes whose index is checked are marked.

    >>> from serrate.fusion import IterDomain
    >>> from serrate.viz import draw_axes
    >>> row = IterDomain(6, name="row")
    >>> drawing = draw_axes(IterDomain.split(row, 4), predicated=[row])
    >>> "indivisible, 2 holes" in drawing.svg
    True
    """
    if isinstance(axes, TensorDomain):
        listed, roles = _axes_of(axes)
    else:
        listed, roles = _listed("draw_axes", "an axis, a TensorDomain or a sequence of axes", axes), {}
    return _drawn(listed, roles, predicated, (), "axes")


def draw_tensor(tensor: TensorView, predicated: Collection[IterDomain] = ()) -> Drawing:
    """The axes of a tensor from root to logical, loop and allocation; each says which of them it is.

    >>> from serrate.fusion import Fusion
    >>> from serrate.viz import draw_tensor
    >>> x = Fusion().input("x", [6, "n"])
    >>> drawing = draw_tensor(x.split(0, 4))
    >>> "root, logical, allocation 1" in drawing.svg
    True
    """
    if not isinstance(tensor, TensorView):
        raise TypeError(f"draw_tensor takes a TensorView, got {type(tensor).__name__}")
    listed, roles = _axes_of(tensor.domain)
    title = Text(f"{tensor.name} {tensor.dtype}, {tensor.memory.value}", bold=True, kind="title")
    return _drawn(listed, roles, predicated, (title,), f"axes of {tensor.name}")


def axis_label(axis: IterDomain) -> str:
    """The name and the extent."""
    return f"{axis.name or 'I'}{{{axis.size}}}"


def parallel_fill(parallel_type: ParallelType) -> str:
    """The colour of loops that are run in this way."""
    if parallel_type.is_block or parallel_type == ParallelType.Thread:
        return BLUE
    if parallel_type.is_thread:
        return GREEN
    return PURPLE if parallel_type.is_lanes else "none"


def _listed(function: str, expected: str, axes: object) -> list[IterDomain]:
    if isinstance(axes, IterDomain):
        return [axes]
    if not isinstance(axes, Iterable):
        raise TypeError(f"{function} takes {expected}, got {type(axes).__name__}")
    found = list(axes)
    for axis in found:
        if not isinstance(axis, IterDomain):
            raise TypeError(f"{function} takes {expected}, got {type(axis).__name__} among them")
    if not found:
        raise ValueError(f"{function} takes {expected}, got no axes")
    return found


def _axes_of(domain: TensorDomain) -> tuple[list[IterDomain], Roles]:
    """All axes of a domain, and in what each takes part, at which place."""
    try:
        allocation = domain.allocation
    except RaggednessError:  # not laid out yet, and not packable as it is
        allocation = ()
    orders = {"root": domain.root, "logical": domain.logical, "allocation": allocation, "loop": domain.loop}
    places: dict[IterDomain, dict[int, list[str]]] = {}
    for name, axes in orders.items():
        for place, axis in enumerate(axes):
            places.setdefault(axis, {}).setdefault(place, []).append(name)
    roles = {
        axis: " · ".join(f"{', '.join(names)} {place}" for place, names in found.items())
        for axis, found in places.items()
    }
    return list(places), roles


def _drawn(
    listed: Sequence[IterDomain],
    roles: Roles,
    predicated: Collection[IterDomain],
    above: Sequence[Item],
    what: str,
) -> Drawing:
    marked = set(_listed("predicated", "a collection of axes", predicated)) if predicated else set()
    steps = history(listed)
    axes = _all_axes(listed, steps)
    for axis in marked.difference(axes):
        raise ValueError(f"{axis} is predicated, but it is not one of the axes drawn: {axes}")
    boxes = [_axis_box(axis, roles.get(axis), axis in marked) for axis in axes] + [_joint(step) for step in steps]
    if not boxes:  # a tensor of no axes
        return drawing(*stacked([*above, Text("no axes")]), what)
    number = {axis: at for at, axis in enumerate(axes)}
    edges: list[tuple[int, int]] = []
    for at, step in enumerate(steps, len(axes)):
        edges += [(number[axis], at) for axis in step.inputs] + [(at, number[axis]) for axis in step.outputs]
    return graph_drawing(boxes, edges, _layers(axes, steps), above, what)


def graph_drawing(
    boxes: Sequence[Box],
    edges: Sequence[tuple[int, int]],
    layers: Sequence[int],
    above: Sequence[Item],
    what: str,
) -> Drawing:
    """Boxes in layers and arrows between them, under some items."""
    placed = arrange([(box.width, box.height) for box in boxes], edges, layers)
    heading, width, top = stacked(above)
    made: list[Element] = [*heading]
    made += [line([(x, y + top) for x, y in route], arrow=True) for route in placed.routes]
    for box, (x, y) in zip(boxes, placed.corners, strict=True):
        made.append(box.draw(x, y + top))
    return drawing([group("graph", *made)], max(width, placed.width), placed.height + top, what)


def _all_axes(listed: Sequence[IterDomain], steps: Sequence[AxisExpression]) -> list[IterDomain]:
    """Those listed, those the steps mention, and the components of ragged ones."""
    found = dict.fromkeys(listed)
    for step in steps:
        found.update(dict.fromkeys((*step.inputs, *step.outputs)))
    for axis in list(found):
        if axis.is_ragged and (component := ragged(axis).component) is not None:
            found.setdefault(component)
    return list(found)


def _layers(axes: Sequence[IterDomain], steps: Sequence[AxisExpression]) -> list[int]:
    """Axes in even layers, joints in odd ones, each below all it is made of."""
    layer = dict.fromkeys(axes, 0)
    joints: list[int] = []
    for step in steps:
        joints.append(max(layer[axis] for axis in step.inputs) + 1)
        layer.update(dict.fromkeys(step.outputs, joints[-1] + 1))
    return [layer[axis] for axis in axes] + joints


def _axis_box(axis: IterDomain, role: str | None, predicated: bool) -> Box:
    items: list[Item] = [Text(axis_label(axis), bold=True, limit=32)]
    kind = "" if axis.iter_type == IterType.Iteration else f", {axis.iter_type.name.lower()}"
    items.append(Text(f"{axis.parallel_type.name}{kind}", font_size=10))
    if axis.is_ragged and (component := ragged(axis).component) is not None:
        items.append(Text(f"ragged by {axis_label(component)}", font_size=10, limit=32))
    cells = cells_of_axis(axis)
    if cells is not None:
        items.append(cells)
    if role is not None:
        items.append(Text(role, font_size=10, kind="role"))
    if predicated:
        items.append(Text("predicated", color=ORANGE, font_size=10, bold=True, kind="predicated"))
    return Box(
        "axis",
        tuple(items),
        fill=parallel_fill(axis.parallel_type),
        stroke=ORANGE if predicated else INK,
        thickness=2.5 if predicated else 1.0,
        centred=True,
        tooltip=repr(axis),
    )


def _joint(step: AxisExpression) -> Box:
    items: list[Item] = [Text(step.label, font_size=11, limit=40)]
    note = _note(step)
    if note:
        items.append(Text(note, font_size=10, color=ORANGE, bold=True, limit=48, kind="holes"))
    cells = cells_of_step(step)
    if cells is not None:
        items.append(cells)
    stroke = ORANGE if step.makes_holes else INK
    return Box("joint", tuple(items), stroke=stroke, dashed=True, centred=True, tooltip=repr(step))


def _note(step: AxisExpression) -> str:
    """What is to be known of the holes a step makes and of what it cuts."""
    holes = holes_of_step(step)
    counted = f"{holes} hole{'' if holes == 1 else 's'}"
    match step:
        case Split() if step.makes_holes and holes is not None:
            return f"indivisible, {counted}"
        case Split() if step.makes_holes:
            axis = step.inputs[0]
            return f"holes unless {step.factor} divides {'every extent' if axis.is_ragged else axis.extent}"
        case Resize():
            return _resize_note(step, counted if holes is not None else None)
        case Cover():
            return "holes after shorter rows" if holes is None else counted
    return "holes" if step.makes_holes else ""


def _resize_note(step: Resize, counted: str | None) -> str:
    notes: list[str] = []
    if step.makes_holes:
        more = max(step.left, 0) + max(step.right, 0)
        notes.append(counted or f"{more} hole{'' if more == 1 else 's'}{' in each row' * step.inputs[0].is_ragged}")
    if step.cuts:
        notes.append(f"cuts {-min(step.left, 0) - min(step.right, 0)}{' of each row' * step.inputs[0].is_ragged}")
    return ", ".join(notes)
