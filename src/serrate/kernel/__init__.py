"""Kernels: the IR, lowering from a scheduled fusion, the checking interpreter, and the printers."""

from serrate.kernel.ir import Kernel
from serrate.kernel.lower import lower
from serrate.kernel.lowered import Lowered
from serrate.kernel.staged import Staged, lower_stages

__all__ = ["Kernel", "Lowered", "Staged", "lower", "lower_stages"]
