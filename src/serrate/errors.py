"""The exceptions Serrate raises; each is also the builtin a Python user would catch."""

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
]


class RaggednessError(ValueError):
    """Offsets, lengths or structures that are malformed, or that do not fit each other.

    >>> import serrate as sr
    >>> sr.Partition.from_offsets([0, 3, 2])
    Traceback (most recent call last):
        ...
    serrate.errors.RaggednessError: offsets must never decrease, but position 2 holds 2 after 3
    """


class AxisError(ValueError, IndexError):
    """An axis number that the tensor does not have, or that the operation cannot take."""


class DeviceMismatchError(RuntimeError):
    """Operands that live on different devices. Serrate never moves data by itself."""


class OffsetsDeviceError(RaggednessError, DeviceMismatchError):
    """Offsets or lengths that lie on another device than the values they cut."""


class SyncError(RuntimeError):
    """A host wait for the device inside `sr.testing.forbid_sync()`."""


class ScheduleError(ValueError):
    """A schedule that would compute something else, or that no kernel can follow; names the axis and the rule."""


class CompileError(RuntimeError):
    """A compiler that failed on generated source: the command, its words, and the source with line numbers."""

    def __init__(self, command: str, output: str, source: str) -> None:
        self.command, self.output, self.source = command, output, source
        numbered = "\n".join(f"{number:4} {line}" for number, line in enumerate(source.splitlines(), 1))
        super().__init__(f"the compiler failed\n$ {command}\n{output.rstrip()}\nthe source was\n{numbered}")


class TableFormatError(ValueError):
    """A file or folder that is no table, is damaged, or changed while it was open; names the file and the fault."""


class ConflictError(RuntimeError):
    """A dataset that somebody else changed, or is changing, while it was written to; says what to do.

    The changes of the other writer are kept. None of the changes of this writer were made.
    """
