"""The array API's `fft` extension, made from the table of operations.

>>> import torch, serrate as sr
>>> x = sr.ragged([[[1., 0.], [1., 1.]], []], ragged_rank=1)
>>> sr.fft.fft(x).tolist()
[[[(1+0j), (1+0j)], [(2+0j), 0j]], []]
"""

from serrate.ops import operators as _operators  # noqa: F401 (fills the table)
from serrate.ops.record import members as _members

globals().update(_members("fft"))
__all__ = sorted(_members("fft"))
