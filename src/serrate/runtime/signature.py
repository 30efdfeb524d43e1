"""What a compiled function takes, and the two ways to call it: with tensors that are checked, or with addresses."""

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


@dataclass(frozen=True)
class Compiled:
    """A compiled function. Called with tensors and then sizes, it checks them; `launcher` gives what checks nothing."""

    signature: Signature
    device: str
    """The type of the devices that its tensors lie on, "cpu" or "cuda"."""
    launcher: Callable[[torch.device], Callable[..., None]]
    """For a device, a function of the addresses of the tensors and then the sizes, all of them int. It checks nothing:
    whoever calls it knows that there is memory of the right dtype at each address, as large as the sizes ask for."""

    def __call__(self, *values: Any) -> None:
        """Run the function on tensors and sizes, after a check of them."""
        signature = self.signature
        tensors, count = len(signature.buffers), len(signature.buffers) + signature.sizes
        if len(values) != count:
            raise TypeError(f"{signature.name} takes {tensors} tensors and {signature.sizes} sizes, got {len(values)}")
        sizes = values[tensors:]
        for (name, dtype), tensor, least in zip(signature.buffers, values, signature.needed(*sizes), strict=False):
            if not (
                isinstance(tensor, torch.Tensor)
                and tensor.dtype is dtype
                and tensor.device.type == self.device
                and tensor.is_contiguous()
                and tensor.numel() >= least
            ):
                raise TypeError(f"{signature.name}: {_complaint(name, dtype, tensor, least, self.device)}")
        device = self._device_of(values[:tensors])
        self.launcher(device)(*(tensor.data_ptr() for tensor in values[:tensors]), *sizes)

    def _device_of(self, tensors: tuple[torch.Tensor, ...]) -> torch.device:
        """The one device of the tensors."""
        device = tensors[0].device if tensors else torch.device(self.device)
        for (name, _), tensor in zip(self.signature.buffers, tensors, strict=True):
            if tensor.device != device:
                first = self.signature.buffers[0][0]
                raise TypeError(f"{self.signature.name}: {name} is on {tensor.device}, {first} on {device}")
        return device


def _complaint(name: str, dtype: torch.dtype, tensor: Any, least: int, device: str) -> str:
    wanted = f"{name} must be a contiguous {dtype} tensor on {device} with at least {least} elements"
    if not isinstance(tensor, torch.Tensor):
        return f"{wanted}, got a {type(tensor).__name__}"
    layout = "contiguous" if tensor.is_contiguous() else "not contiguous"
    return f"{wanted}, got {tensor.dtype} on {tensor.device} with {tensor.numel()} elements, {layout}"
