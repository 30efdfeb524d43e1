"""Keys of x[key], read and checked: each entry is brought into one of few forms, and the entries fit the axes."""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np
import torch

from serrate.tensor import abstract, host
from serrate.tensor.structure import Axis

FAR = 2**40  # No row is as long.


def read(given: Any) -> Any:
    """A key entry in one of few forms: int, slice, None, Ellipsis, or a tensor (bool or int64)."""
    if given is None or given is Ellipsis:
        return given
    if isinstance(given, slice):
        return _tame(given)
    if isinstance(given, (bool, np.bool_)):
        raise IndexError("a single bool is no index; use a mask with one entry per row")
    if hasattr(given, "structure"):
        given = given.values
    if not isinstance(given, (torch.Tensor, list, tuple, np.ndarray, range)):
        try:
            position = operator.index(given)
        except TypeError:
            raise IndexError(
                f"an index is an int, slice, ..., None, or a list, array or tensor of ints or bools; got {given!r:.80}"
            ) from None
        if abs(position) > FAR and abstract.current() is None:
            raise IndexError(f"index {position} is out of range")
        return position
    tensor = given if isinstance(given, torch.Tensor) else _tensor_from(given)
    if tensor.is_floating_point() or tensor.is_complex():
        raise IndexError(f"an index array must hold integers or bools, got {tensor.dtype}")
    if tensor.dtype == torch.bool:
        return tensor
    return int(tensor) if tensor.ndim == 0 and tensor.device.type == "cpu" else tensor.to(torch.int64)


def _tensor_from(given: Any) -> torch.Tensor:
    try:
        array = np.asarray(given)
    except ValueError:
        raise IndexError(f"an index array must be rectangular, got {given!r:.80}") from None
    if array.size == 0 and not isinstance(given, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise IndexError(f"an index array must hold integers or bools, got {array.dtype} in {given!r:.80}")
    return torch.from_numpy(array.copy() if array.dtype == np.bool_ else array.astype(np.int64))


def _tame(given: slice) -> slice:
    """The slice with Python integers as bounds; huge bounds are replaced by smaller ones that mean the same.

    In an abstract run a huge number stands for a size, and is left as it is.
    """
    bounds: list[int | None] = []
    far = FAR if abstract.current() is None else sys.maxsize
    for bound in (given.start, given.stop, given.step):
        try:
            bounds.append(None if bound is None else max(-far, min(far, operator.index(bound))))
        except TypeError:
            raise IndexError(f"slice bounds must be integers or None, got {given}") from None
    if bounds[2] == 0:
        raise IndexError("slice step cannot be 0")
    return slice(*bounds)


def is_ragged(entry: Any) -> bool:
    """Whether a key entry is a ragged tensor."""
    return hasattr(entry, "structure") and entry.is_ragged


def is_mask(entry: Any) -> bool:
    """Whether a key entry is a dense mask."""
    return isinstance(entry, torch.Tensor) and entry.dtype == torch.bool


def axes_taken(key: tuple[Any, ...]) -> int:
    """On how many axes the entries of a key stand: a mask stands on as many as it has, None and ... on none."""
    return sum(e.ndim if is_mask(e) else 1 for e in key if e is not None and e is not Ellipsis)


def require_room(key: tuple[Any, ...], taken: int, shape: tuple[Axis, ...]) -> None:
    """An IndexError if a key that stands on `taken` axes does not fit the shape."""
    if sum(e is Ellipsis for e in key) > 1:
        raise IndexError("a key can hold only one ...")
    if taken > len(shape):
        raise IndexError(f"too many indices: {taken} for a tensor of {len(shape)} axes, shape {shape}")


def within_reach(index: torch.Tensor, size: int, axis: int, values: torch.Tensor) -> torch.Tensor:
    """An index array on the device of `values`, or an IndexError if an index is out of range for the axis.

    On the CPU torch checks each index, unless the values have no elements. On CUDA it would end the process; so there
    indices are brought into range, and a later call raises the error.
    """
    if not index.is_cuda and not values.is_cuda:
        if values.numel() == 0:
            _require_reach(index, size, axis)
        return index
    _require_reach(index, size, axis)
    sent = host.send(index, values.device)
    return sent.clamp(-size, size - 1) if index.is_cuda and size else sent


def _require_reach(index: torch.Tensor, size: int, axis: int) -> None:
    if size == 0 and index.numel():
        raise IndexError(f"an index array of {index.numel()} entries is out of range for axis {axis} with size 0")
    flat = index.reshape(-1)

    def error(i: int) -> IndexError:
        return IndexError(f"index {int(flat[i])} is out of range for axis {axis} with size {size}")

    host.defer(host.first_fault((flat < -size) | (flat >= size)), error)


def fitting_mask(mask: torch.Tensor, shape: tuple[Axis, ...], axis: int) -> torch.Tensor:
    """The mask, which must have the sizes of the axes from `axis` on. A size of 0 fits any axis, and holds nowhere."""
    sizes = shape[axis : axis + mask.ndim]
    if tuple(mask.shape) == sizes:
        return mask
    fits = all(
        isinstance(size, int) and (own == 0 or not abstract.differ(own, size))
        for own, size in zip(mask.shape, sizes, strict=True)
    )
    if fits and 0 in mask.shape:
        return mask.new_zeros([size for size in sizes if isinstance(size, int)])
    raise IndexError(f"a mask of shape {tuple(mask.shape)} does not fit axes {axis}… of shape {shape}")


def host_nonzero(mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The positions of True, one tensor per axis. Their number is data, so the host waits for a mask on a device."""
    if mask.is_cuda:
        mask = host.read(mask, "indexing by a mask")
    return abstract.positions(mask, "mask")
