"""Signatures: what of the arguments of a call decides about the program, as one flat tuple, and never lengths."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from serrate.tensor.structure import DENSE, Ragged, Structure
from serrate.tensor.tensor import Tensor


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call: the tensors among them, what tells programs apart, and the way back."""

    tensors: tuple[Tensor | torch.Tensor, ...]
    names: tuple[str, ...]
    key: Hashable
    sizes: tuple[int, ...]
    """The sizes of the first axes, which are no part of the key."""
    rebuilt: Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]
    """The arguments with other things in the places of the tensors."""


def flat(arguments: tuple[Any, ...], named: dict[str, Any]) -> Arguments:
    """The arguments of a call, taken apart."""
    tensors: list[Any] = []
    names: list[str] = []
    numbers: dict[int, int] = {}
    key: list[Any] = [torch.is_grad_enabled(), torch.get_default_dtype()]

    def look(part: Any, name: str) -> None:
        if isinstance(part, Tensor):
            tensors.append(part)
            names.append(name)
            values = part.values
            key.append((
                Tensor, part.dtype, part.device, part.order, _sizes(values, part.structure is not DENSE),
                _axes(part.structure, numbers), values.requires_grad,
            ))  # fmt: skip
        elif isinstance(part, torch.Tensor):
            tensors.append(part)
            names.append(name)
            key.append((torch.Tensor, part.dtype, part.device, _sizes(part, False), part.requires_grad))
        elif isinstance(part, (tuple, list)):
            key.append((type(part), len(part)))
            for number, each in enumerate(part):
                look(each, f"{name}_{number}")
        elif isinstance(part, dict):
            key.append((dict, tuple(part)))
            for inner, each in part.items():
                look(each, f"{name}_{inner}")
        elif part is None or isinstance(part, (bool, int, float, complex, str, torch.dtype, torch.device)):
            key.append((type(part), repr(part) if isinstance(part, (float, complex)) else part))
        else:
            key.append((type(part), id(part)))

    for number, each in enumerate(arguments):
        look(each, f"x{number}")
    for name, each in named.items():
        key.append(name)
        look(each, name)

    def rebuilt(stand_ins: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        left = iter(stand_ins)

        def again(part: Any) -> Any:
            if isinstance(part, (Tensor, torch.Tensor)):
                return next(left)
            if isinstance(part, (tuple, list)):
                parts = [again(each) for each in part]
                return type(part)(*parts) if hasattr(part, "_fields") else type(part)(parts)
            if isinstance(part, dict):
                return {name: again(each) for name, each in part.items()}
            return part

        return tuple(again(each) for each in arguments), {name: again(each) for name, each in named.items()}

    sizes = tuple(_first(each) for each in tensors)
    return Arguments(tuple(tensors), tuple(names), tuple(key), sizes, rebuilt)


def _first(given: Tensor | torch.Tensor) -> int:
    """The size of the first axis as it is stored; -1 if there is none."""
    if isinstance(given, Tensor) and given.structure is not DENSE:
        first = given.structure.axes[0]
        return first if isinstance(first, int) else -1
    shape = given.values.shape if isinstance(given, Tensor) else given.shape
    return shape[0] if shape else -1


def _sizes(values: torch.Tensor, is_ragged: bool) -> tuple[int, ...]:
    """The sizes of a tensor that a program knows: all but the first, unless that is 1."""
    sizes = tuple(values.shape)
    if is_ragged:
        return sizes[1:]
    return (1, *sizes[1:]) if sizes and sizes[0] == 1 else (-1, *sizes[1:]) if sizes else ()


def _axes(structure: Structure, numbers: dict[int, int]) -> tuple[Any, ...]:
    made: list[Any] = []
    for number, axis in enumerate(structure.axes):
        if isinstance(axis, Ragged):
            partition = axis.partition
            made.append((
                numbers.setdefault(id(partition), len(numbers)), axis.parents, partition.is_host_born,
                partition.is_exact, partition.dtype, partition.uniform_length,
            ))  # fmt: skip
        else:
            made.append(axis if number else -1)
    return tuple(made)
