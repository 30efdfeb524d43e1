"""Devices in types: those that torch knows, and those of other runtimes, which have a name alone.

A program as text may be meant for a machine that torch has no word for. Its types hold such a device by its name, and
passes know it from others; what no process of torch can do is run it. Tensors without elements (`program.abstract`)
cannot lie on devices that torch was built without: "meta" devices of high numbers stand for these.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache

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
"""The greatest number of a device in torch. Stand-ins are numbered from here down to 1."""
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
    if isinstance(device, torch.device) and device.type in _linked():
        return device
    with _lock:
        number = _numbers.setdefault(str(device), len(_numbers))
    if number >= _LAST:
        raise ValueError(f"this process has met {_LAST} devices that this machine does not have, and takes no more")
    return torch.device("meta", _LAST - number)


@cache
def _linked() -> frozenset[str]:
    """The kinds of devices that this build of torch can handle tensors of."""
    found = torch.accelerator.current_accelerator()
    return frozenset({"cpu", "meta"} if found is None else {"cpu", "meta", found.type})


def stood_for(device: torch.device) -> Device:
    """The device that one of torch stands for: itself, if it was made by nobody here."""
    if device.type != "meta" or device.index is None:
        return device
    found = next((text for text, number in _numbers.items() if number == _LAST - device.index), None)
    return device if found is None else device_named(found)


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


def has_stand_in(given: object) -> bool:
    """Whether an argument of an operation is a device that another one stands for. A text is one if it has a colon, so
    that no other text that operations take is meant, and if a type has that device."""
    if isinstance(given, str):
        return ":" in given and given in _numbers
    return isinstance(given, NamedDevice) or (isinstance(given, torch.device) and given.type not in _linked())
