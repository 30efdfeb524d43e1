"""The loop layer: axes, tensors made of them, fusions; schedules by hand."""

from serrate.fusion.axes import IterDomain, RaggedIterDomain
from serrate.fusion.domain import TensorDomain
from serrate.fusion.fusion import Fusion, inject_offsets
from serrate.fusion.scalar import Scalar, ceildiv, const, symbol
from serrate.fusion.types import IterType, Memory, ParallelType
from serrate.fusion.view import TensorView

__all__ = [
    "Fusion",
    "IterDomain",
    "IterType",
    "Memory",
    "ParallelType",
    "RaggedIterDomain",
    "Scalar",
    "TensorDomain",
    "TensorView",
    "ceildiv",
    "const",
    "inject_offsets",
    "symbol",
]
