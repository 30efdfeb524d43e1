"""Drawings of axes, tensors, fusions, ragged layouts and loops, as SVG."""

from serrate.fusion.drawing import DRAWN
from serrate.viz.axis_graph import draw_axes, draw_tensor
from serrate.viz.fusion_graph import draw_fusion
from serrate.viz.loop_nest import draw_loops
from serrate.viz.ragged_layout import draw_layout
from serrate.viz.svg import Drawing

DRAWN.update(fusion=draw_fusion, tensor=draw_tensor)

__all__ = ["Drawing", "draw_axes", "draw_fusion", "draw_layout", "draw_loops", "draw_tensor"]
