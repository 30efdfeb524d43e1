"""The compiler: functions over ragged tensors become a few fused kernels (`sr.jit`)."""

from serrate.jit.function import Jitted, jit

__all__ = ["Jitted", "jit"]
