"""Devices in types: those that torch knows, and those of other runtimes, which have a name alone.

A program as text may be meant for a machine that torch has no word for. Its types hold such a device by its name, and
passes know it from others; what no process of torch can do is run it. Where tensors without elements stand for those
of a type (`program.abstract`), a device of torch that nobody has stands for the name.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class NamedDevice:
    """A device that torch does not know."""

    text: str
    """Its name: "level_zero:gpu:1"."""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError(f"a device has a name, got {self.text!r}")

    @property
    def type(self) -> str:
        """The kind of device: what stands before the first colon."""
        return self.text.partition(":")[0]

    def __str__(self) -> str:
        return self.text


Device = torch.device | NamedDevice
_LAST = 127
"""The greatest number of a device in torch. Stand-ins are numbered from here down, where no device is."""
_numbers: dict[str, int] = {}
_lock = threading.Lock()


def device_named(text: str) -> Device:
    """The device of a name: torch's where torch knows the name.

    >>> from serrate.program.devices import device_named
    >>> device_named("cuda:0"), device_named("level_zero:gpu:1")
    (device(type='cuda', index=0), NamedDevice(text='level_zero:gpu:1'))
    """
    try:
        return torch.device(text)
    except RuntimeError:
        made = NamedDevice(text)
        stand_in(made)
        return made


def stand_in(device: Device) -> torch.device:
    """The device of torch on which tensors without elements stand for those on a device.

    >>> from serrate.program.devices import NamedDevice, stand_in, stood_for
    >>> stood_for(stand_in(NamedDevice("level_zero:gpu:1")))
    NamedDevice(text='level_zero:gpu:1')
    """
    if isinstance(device, torch.device):
        return device
    with _lock:
        number = _numbers.setdefault(device.text, len(_numbers))
    if number > _LAST:
        raise ValueError(
            f"this process has met {_LAST + 1} names of devices that torch does not know, and takes no more"
        )
    return torch.device("fpga", _LAST - number)


def stood_for(device: torch.device) -> Device:
    """The device that one of torch stands for: itself, if it was made by nobody here."""
    if device.type != "fpga" or device.index is None:
        return device
    found = next((text for text, number in _numbers.items() if number == _LAST - device.index), None)
    return device if found is None else NamedDevice(found)


def require_device(device: Device) -> None:
    """A ValueError unless tensors can be made on a device here.

    >>> from serrate.program.devices import NamedDevice, require_device
    >>> require_device(NamedDevice("level_zero:gpu:1"))
    Traceback (most recent call last):
    ...
    ValueError: this machine has no device level_zero:gpu:1
    """
    if isinstance(device, NamedDevice):
        raise ValueError(f"this machine has no device {device}")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts that it has it
        raise ValueError(f"this machine has no device {device}") from error


def is_stood_for(text: str) -> bool:
    """Whether a text is the name of a device that torch does not know, and that a type has."""
    return text in _numbers
