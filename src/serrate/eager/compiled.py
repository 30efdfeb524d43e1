"""Which tensors compiled code may read: those whose memory on the CPU holds all there is to know about them."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from serrate.tensor import host


def reads(*tensors: torch.Tensor) -> bool:
    """Whether all lie in the memory of the CPU, and no tangent, transform or trace stands for more than that holds."""
    if forward_ad._current_level >= 0:
        return False
    for tensor in tensors:  # noqa: SIM110  all() takes longer than all that is asked here
        if not tensor.is_cpu or host.stands_in(tensor):
            return False
    return True
