"""What a compiled function takes: tensors, then sizes; and the check of both before each call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Signature:
    """A function of a compiled source, as its callers see it."""

    name: str
    """What errors call it."""
    symbol: str
    """Its name in the source."""
    buffers: tuple[tuple[str, torch.dtype], ...]
    """The tensors it takes."""
    sizes: int
    """How many sizes it takes after them."""
    index: str
    """The type of sizes, "int32" or "int64"."""
    needed: Callable[..., tuple[int, ...]]
    """From the sizes, how many elements each tensor has at least."""
    grid: Callable[..., tuple[int, ...]]
    """From the sizes, the blocks and the threads of a launch, three numbers each."""

    def checked(self, device: str) -> Callable[[tuple[Any, ...]], list[int]]:
        """A function that checks the arguments of a call and gives the addresses of the tensors, then the sizes."""
        tensors, count, needed = len(self.buffers), len(self.buffers) + self.sizes, self.needed

        def check(values: tuple[Any, ...]) -> list[int]:
            if len(values) != count:
                raise TypeError(f"{self.name} takes {tensors} tensors and {self.sizes} sizes, got {len(values)}")
            given = values[tensors:]
            made: list[int] = []
            for (name, dtype), tensor, least in zip(self.buffers, values, needed(*given), strict=False):
                if not (
                    isinstance(tensor, torch.Tensor)
                    and tensor.dtype is dtype
                    and tensor.device.type == device
                    and tensor.is_contiguous()
                    and tensor.numel() >= least
                ):
                    raise TypeError(f"{self.name}: {_complaint(name, dtype, tensor, least, device)}")
                made.append(tensor.data_ptr())
            made.extend(given)
            return made

        return check


def _complaint(name: str, dtype: torch.dtype, tensor: Any, least: int, device: str) -> str:
    wanted = f"{name} must be a contiguous {dtype} tensor on {device} with at least {least} elements"
    if not isinstance(tensor, torch.Tensor):
        return f"{wanted}, got a {type(tensor).__name__}"
    layout = "contiguous" if tensor.is_contiguous() else "not contiguous"
    return f"{wanted}, got {tensor.dtype} on {tensor.device} with {tensor.numel()} elements, {layout}"
