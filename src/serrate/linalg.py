"""The array API's `linalg` extension, made from the table of operations.

>>> import torch, serrate as sr
>>> x = sr.from_lengths(torch.tensor([[[2., 0.], [0., 3.]], [[1., 0.], [0., 5.]]]), [0, 2])
>>> sr.linalg.det(x).tolist()
[[], [6.0, 5.0]]
"""

from serrate.ops import operators as _operators  # noqa: F401 (fills the table)
from serrate.ops.record import members as _members

globals().update(_members("linalg"))
__all__ = sorted(_members("linalg"))
