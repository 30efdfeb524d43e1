"""Operands on different devices: an error that names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from serrate.errors import DeviceMismatchError, OffsetsDeviceError
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.ops.record import Op


class Operand(NamedTuple):
    """An operand as an error names it."""

    name: str
    device: Any
    goes_anywhere: bool
    """Whether it is a 0-d tensor on the CPU, which torch takes beside tensors of any device."""
    origin: str = ""
    """Where it comes from."""


def mismatch(what: str, operands: Sequence[Operand]) -> DeviceMismatchError | None:
    """The error for `what` was called with these operands; None if they lie on one device.

    >>> from serrate.ops.mismatches import Operand, mismatch
    >>> print(mismatch("add", [Operand("x", "cpu", False), Operand("y", "cuda:0", False)]))
    add has operands on different devices: x on cpu and y on cuda:0; move one of them with .to_device(device)
    """
    first: dict[str, Operand] = {}
    for each in operands:
        if not each.goes_anywhere:
            first.setdefault(str(each.device), each)
    if len(first) < 2:
        return None
    shown = [f"{each.name} on {each.device}{each.origin and f' ({each.origin})'}" for each in first.values()]
    listed = f"{', '.join(shown[:-1])} and {shown[-1]}"
    return DeviceMismatchError(
        f"{what} has operands on different devices: {listed}; move one of them with .to_device(device)"
    )


def of_call(
    op: Op,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    spelling: Callable[..., Any] | None,
    error: DeviceMismatchError,
) -> DeviceMismatchError:
    """The error of a call, with the names of the parameters whose tensors do not lie together; those of torch's
    functions have numbers."""
    if isinstance(error, OffsetsDeviceError):
        return error
    if spelling is None:
        what, given = op.name, dict(op.signature.bind(*arguments, **named).arguments)
    else:
        what = getattr(spelling, "__name__", op.name)
        given = {f"operand {number}": each for number, each in enumerate(arguments, 1)} | named
    found = [pair for name, each in given.items() for pair in _tensors_in(each, name)]
    operands = [Operand(name, each.device, each.device.type == "cpu" and each.ndim == 0) for name, each in found]
    return mismatch(what, operands) or error


def _tensors_in(given: Any, path: str) -> Iterator[tuple[str, Tensor | torch.Tensor]]:
    """The tensors in an argument, each with the way to it."""
    if isinstance(given, (Tensor, torch.Tensor)):
        yield path, given
    elif isinstance(given, (list, tuple)):
        for number, part in enumerate(given):
            yield from _tensors_in(part, f"{path}[{number}]")
    elif isinstance(given, dict):
        for name, part in given.items():
            yield from _tensors_in(part, f"{path}[{name!r}]")
