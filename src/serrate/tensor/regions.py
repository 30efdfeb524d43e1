"""Regions of devices: where tensors are made for which nobody names a device."""

from __future__ import annotations

from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.overrides import _get_current_function_mode_stack

if TYPE_CHECKING:
    from torch.utils._device import DeviceContext


class _Entered(NamedTuple):
    """A region that is in force."""

    region: device_region
    outside: DeviceContext | None
    """The context of torch that was in force where the region began; any other one began inside of it."""


_IN_FORCE: ContextVar[_Entered | None] = ContextVar("serrate device region", default=None)


class device_region(ContextDecorator):
    """A context in which new tensors are made on `device`, where no `device=` says otherwise.

    It is about the functions of `sr` that take `device=`, such as `sr.zeros`, `sr.arange`, `sr.ragged` and
    `sr.random.normal`, called by the thread or the task that entered the region. A tensor that is made of another one
    lies where that one does, and operations run where their operands live. Regions cannot be nested; of a region and a
    context of torch, as `torch.device("cpu")` is one, the inner one decides.

    >>> import serrate as sr
    >>> with sr.device_region("meta"):
    ...     x = sr.zeros((2, 3))
    >>> x.device, sr.zeros((2, 3)).device
    (device(type='meta'), device(type='cpu'))
    >>> @sr.device_region("meta")
    ... def weights(count):
    ...     return sr.ones(count)
    >>> weights(3).device
    device(type='meta')
    """

    def __init__(self, device: Any) -> None:
        self.device = torch.device(device)

    def __enter__(self) -> device_region:
        outer = _IN_FORCE.get()
        if outer is not None:
            raise RuntimeError(
                f"the device region of {self.device} begins inside of the device region of {outer.region.device}, and "
                f"regions cannot be nested; end the outer one first, or give device= to what is made"
            )
        _IN_FORCE.set(_Entered(self, _of_torch()))
        return self

    def __exit__(self, *_: object) -> None:
        inner = _IN_FORCE.get()
        if inner is None or inner.region is not self:
            raise RuntimeError(f"the device region of {self.device} ends in a thread or a task that did not enter it")
        _IN_FORCE.set(None)

    def __repr__(self) -> str:
        return f"sr.device_region({str(self.device)!r})"


def default() -> torch.device | None:
    """Where a tensor is made for which nobody names a device, by the innermost region or context of torch; None outside
    of all of them.

    >>> import torch
    >>> with device_region("meta"), torch.device("cpu"):
    ...     print(default())
    cpu
    """
    entered, context = _IN_FORCE.get(), _of_torch()
    if entered is not None and (context is None or context is entered.outside):
        device = entered.region.device
    elif context is None:
        return None
    else:
        device = context.device
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _of_torch() -> DeviceContext | None:
    """The context of torch that is in force, `torch.set_default_device` included; None if there is none."""
    if not torch._C._len_torch_function_stack():
        return None
    from torch.utils._device import DeviceContext

    modes = reversed(_get_current_function_mode_stack())  # type: ignore[no-untyped-call]
    return next((mode for mode in modes if isinstance(mode, DeviceContext)), None)
