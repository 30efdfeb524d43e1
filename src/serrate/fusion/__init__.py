"""The loop layer: axes, tensors made of them, fusions; schedules by hand.

Its names are imported when they are asked for: operations use the scalar functions of this folder, and whoever only
computes eagerly does not wait for the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serrate.fusion.axes import IterDomain, RaggedIterDomain
    from serrate.fusion.domain import TensorDomain
    from serrate.fusion.fusion import Fusion, inject_offsets
    from serrate.fusion.scalar import Scalar, ceildiv, const, symbol
    from serrate.fusion.stages import stages_of
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
    "stages_of",
    "symbol",
]

_HOMES = {
    "axes": ("IterDomain", "RaggedIterDomain"),
    "domain": ("TensorDomain",),
    "fusion": ("Fusion", "inject_offsets"),
    "scalar": ("Scalar", "ceildiv", "const", "symbol"),
    "stages": ("stages_of",),
    "types": ("IterType", "Memory", "ParallelType"),
    "view": ("TensorView",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
