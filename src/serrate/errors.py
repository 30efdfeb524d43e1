"""This module has the exceptions that Serrate raises; each is also the builtin that a Python user would catch."""

from __future__ import annotations

__all__ = [
    "AxisError",
    "CompileError",
    "ConflictError",
    "DeviceMismatchError",
    "OffsetsDeviceError",
    "RaggednessError",
    "ScheduleError",
    "SyncError",
    "TableFormatError",
    "TracerError",
]


class RaggednessError(ValueError):
    """This error is raised for offsets, lengths or structures that are wrong, or that do not fit each other.

    >>> import serrate as sr
    >>> sr.Partition.from_offsets([0, 3, 2])
    Traceback (most recent call last):
        ...
    serrate.errors.RaggednessError: offsets must never decrease, but position 2 holds 2 after 3
    """


class AxisError(ValueError, IndexError):
    """This error is raised for an axis that the tensor does not have, or that the operation cannot take."""


class DeviceMismatchError(RuntimeError):
    """This error is raised for operands on different devices; Serrate never moves data by itself."""


class OffsetsDeviceError(RaggednessError, DeviceMismatchError):
    """This error is raised for offsets or lengths that lie on another device than the values they cut."""


class SyncError(RuntimeError):
    """This error is raised if the host would wait for a device inside `sr.testing.forbid_sync()`."""


class ScheduleError(ValueError):
    """This error is raised for a schedule that would compute something else, or that no kernel can follow.

    The message names the axis and the rule. `tensor` is the tensor that stands in the way, where it is one: a kernel of
    its own, or memory that it is stored in, would help.
    """

    def __init__(self, message: str, tensor: object = None) -> None:
        super().__init__(message)
        self.tensor = tensor


class CompileError(RuntimeError):
    """This error is raised if a compiler fails on a source.

    The message has the command, the output of the compiler, and the source with line numbers.
    """

    def __init__(self, command: str, output: str, source: str) -> None:
        self.command, self.output, self.source = command, output, source
        numbered = "\n".join(f"{number:4} {line}" for number, line in enumerate(source.splitlines(), 1))
        super().__init__(f"the compiler failed\n$ {command}\n{output.rstrip()}\nthe source was\n{numbered}")


class TableFormatError(ValueError):
    """This error is raised for a file or folder that is no table, is damaged, or was changed while it was open.

    The message names the file and the fault.
    """


class ConflictError(RuntimeError):
    """This error is raised if somebody else changed a dataset, or is changing it, while this writer wrote to it.

    The changes of the other writer are kept, and none of the changes of this writer are made. The message says what to
    do.
    """


class TracerError(TypeError):
    """This error is raised where a function that `sr.jit` traces asks for something that only elements tell.

    The message says which line asked for it, and what to use instead.
    """
