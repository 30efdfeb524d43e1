"""This module prints, pickles and overwrites jagged and keyed tensors, and registers them with torch's pytrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from serrate.errors import RaggednessError
from serrate.tensor.tensor import Tensor
from serrate.tensor.trees import fits

_SHOWN = 12  # the number of keys that are shown at each end of a long dictionary

_REBUILD: dict[str, Callable[..., Any]] = {}


def rebuild(kind: str, *state: Any) -> Any:
    """Make and check a pickled object; this is the only function that its pickle calls."""
    if kind not in _REBUILD:
        raise RaggednessError(f"a pickled object must be one of {sorted(_REBUILD)}, got {kind!r:.40}")
    return _REBUILD[kind](*state)


def register(
    kind: type,
    leaves: Callable[[Any], tuple[list[Any], list[str], Any]],
    join: Callable[[dict[str, Any], Any], Any],
    make: Callable[..., Any],
) -> None:
    """Let tree functions and pickle handle a class.

    `leaves` returns the tensors of an object, their names and the rest. `join` makes an object of whatever a tree
    function put in the place of the tensors, without a check. `make` makes a pickled object and checks it.
    """

    def flatten(thing: Any) -> tuple[list[Any], Any]:
        found, names, context = leaves(thing)
        return found, (tuple(names), context)

    def flatten_with_keys(thing: Any) -> tuple[list[Any], Any]:
        found, names, context = leaves(thing)
        return [(pytree.GetAttrKey(n), leaf) for n, leaf in zip(names, found, strict=True)], (tuple(names), context)

    def unflatten(found: Any, context: Any) -> Any:
        names, rest = context
        return join(dict(zip(names, found, strict=True)), rest)

    pytree.register_pytree_node(kind, flatten, unflatten, flatten_with_keys_fn=flatten_with_keys)
    _REBUILD[kind.__name__] = make
    torch.serialization.add_safe_globals([rebuild])


def unchecked(values: Any, structure: Any, order: Any) -> Tensor:
    """Return a Tensor around whatever a tree function put in the place of its values.

    It is an error if vmap maps over these values.
    """
    fits(values, structure, order)
    made = object.__new__(Tensor)
    made.values, made.structure, made.order, made.team = values, structure, order, None
    return made


def overwrite(
    tensor: Tensor, weights: torch.Tensor | None, other: Tensor, other_weights: torch.Tensor | None, non_blocking: bool
) -> tuple[Tensor, torch.Tensor | None]:
    """Copy the values and weights of another tensor into the memory of this one; the result has its structure."""
    if tensor.values.shape != other.values.shape:
        raise ValueError(
            f"copy_ needs values of one shape, got {list(tensor.values.shape)} and {list(other.values.shape)}"
        )
    if (weights is None) != (other_weights is None):
        raise ValueError("copy_ needs weights on both sides or on neither")
    tensor.values.copy_(other.values, non_blocking=non_blocking)
    if weights is not None and other_weights is not None:
        weights.copy_(other_weights, non_blocking=non_blocking)
    there = other.to(tensor.device)
    return Tensor(tensor.values, there.structure, there.order), weights


def text(name: str, entries: Mapping[str, Any]) -> str:
    """Return the text `name({key: tensor, …})`; a tensor starts on the line of its key, and None is left out."""
    there = [(key, thing) for key, thing in entries.items() if thing is not None]
    if not there:
        return f"{name}({{}})"
    lines = []
    for number, (key, thing) in enumerate(there):
        if _SHOWN <= number < len(there) - _SHOWN:
            if number == _SHOWN:
                lines.append(f"    … {len(there) - 2 * _SHOWN} more …")
            continue
        start = f"    {key!r}: "
        lines.append(start + repr(thing).replace("\n", "\n" + " " * len(start)))
    body = ",\n".join(lines)
    return f"{name}({{\n{body}\n}})"
