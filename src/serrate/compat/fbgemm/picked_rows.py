"""This module checks the lengths and indices of selecting functions.

On the CPU every check happens at once. On a device no check waits: lengths and indices are clamped, so that nothing is
read out of bounds, and a later call raises the error (`serrate.tensor.host.defer`).
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from serrate.eager.picking import is_on_host
from serrate.errors import DeviceMismatchError
from serrate.native import rows as library
from serrate.tensor import host
from serrate.tensor.offsets import as_index_vector, cut_by_lengths


def check_rows(values: torch.Tensor, lengths: torch.Tensor, name: str = "values") -> None:
    """Raise an error unless `values` have rows and lie on the device of the lengths."""
    if values.ndim == 0:
        raise ValueError(f"{name} must have at least one axis, got a 0-d tensor")
    if values.device != lengths.device:
        raise DeviceMismatchError(f"{name} lie on {values.device}, but lengths or offsets lie on {lengths.device}")


def check_weights(weights: torch.Tensor | None, values: torch.Tensor) -> None:
    """Raise an error unless `weights` are None or have a row for each row of `values`."""
    if weights is None:
        return
    check_rows(weights, values, "weights")
    if weights.shape[0] != values.shape[0]:
        raise ValueError(f"weights must have a row for each of the {values.shape[0]} values, got {weights.shape[0]}")


def cut(lengths: torch.Tensor, total: int, name: str = "lengths") -> torch.Tensor:
    """Return the int64 offsets of `lengths`, which must be 0 or more and add up to `total`."""
    offsets = library.offsets(lengths)
    if offsets is not None and int(offsets[-1]) == total:
        return offsets
    return cut_by_lengths(lengths, total, True, name)[0].to(torch.int64)  # raises an error if lengths are wrong


def within(given: Any, count: int, name: str, of: str) -> torch.Tensor:
    """Return indices as a vector; each must lie in 0 .. count - 1."""
    index = as_index_vector(given, name)

    def error(position: int) -> IndexError:
        bounds = f"must lie in 0 .. {count - 1}" if count else "must be empty"
        return IndexError(
            f"{name} {bounds}, as there are {count} {of}, but position {position} holds {index[position]}"
        )

    if count == 0 and index.numel():
        raise error(0)
    host.defer(host.first_fault((index < 0) | (index >= count)), error)
    return index if is_on_host(index) else index.clamp(0, max(count - 1, 0))


def counted(total: torch.Tensor | int, given: Any, name: str) -> int:
    """Return how many rows are picked: the number that the caller gave, which is checked, or else `total`."""
    expected = None if given is None else operator.index(given)

    def error(_: int) -> ValueError:
        return ValueError(f"{name} must be the number of selected values, {int(total)}, got {expected}")

    if isinstance(total, int) or is_on_host(total):
        if expected is not None and expected != int(total):
            raise error(0)
        return int(total)
    if expected is None:
        return int(host.read(total, "adding up the selected lengths"))
    if expected < 0:
        raise ValueError(f"{name} must be 0 or more, got {expected}")
    host.defer((total != expected).to(torch.int64), error)
    return expected
