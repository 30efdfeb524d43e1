"""Kernels: the IR, lowering from a scheduled fusion, the checking interpreter, and the printers."""

from serrate.kernel.ir import Kernel
from serrate.kernel.lower import lower
from serrate.kernel.lowered import Lowered, compile_together

__all__ = ["Kernel", "Lowered", "compile_together", "lower"]
