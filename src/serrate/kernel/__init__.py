"""Kernels: the IR, lowering from a scheduled fusion, the checking interpreter, and the printers."""

from serrate.kernel.choosing import Answer, can_lower, choose_kept, choose_reference
from serrate.kernel.ir import Kernel
from serrate.kernel.lower import lower
from serrate.kernel.lowered import Lowered, compile_together
from serrate.kernel.staged import Staged, lower_stages

__all__ = [
    "Answer",
    "Kernel",
    "Lowered",
    "Staged",
    "can_lower",
    "choose_kept",
    "choose_reference",
    "compile_together",
    "lower",
    "lower_stages",
]
