"""Kernels: the IR, lowering from a scheduled fusion, the checking interpreter, and the printers."""

from serrate.kernel.choosing import Answer, can_lower, choose_kept, choose_reference
from serrate.kernel.ir import Kernel
from serrate.kernel.lower import lower
from serrate.kernel.lowered import Lowered

__all__ = ["Answer", "Kernel", "Lowered", "can_lower", "choose_kept", "choose_reference", "lower"]
