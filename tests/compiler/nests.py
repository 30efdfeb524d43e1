"""Nests: what the oracle of random programs computes with, torch on each innermost row alone.

A nest is a tensor `[B, r1, …, rK, *features]` as nested lists, one list per batch and per outer level, whose leaves are
torch tensors `[length, *features]`. An axis that was reduced has size 1, in the lists too.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

Nest = Any
"""Nested lists around torch tensors."""


def nest_of(x: Any, kind: str, levels: int) -> Nest:
    """An argument as the oracle has it. Gradients flow through to its values."""
    if kind == "ragged":
        return cut(list(x.values.split(x.lengths[-1].tolist())), [each.tolist() for each in x.lengths[:-1]])
    if kind == "batch":
        return [wrapped(row[None], levels - 1) for row in x]
    return wrapped(x[None] if kind == "shared" else x, levels)


def cut(rows: list[Any], outer: list[list[int]]) -> Nest:
    for lengths in reversed(outer):
        ends = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
        rows = [rows[start:end] for start, end in pairwise(ends)]
    return rows


def wrapped(leaf: torch.Tensor, times: int) -> Nest:
    return [wrapped(leaf, times - 1)] if times else leaf


def leaves_of(nest: Nest) -> list[torch.Tensor]:
    """The rows, from the first to the last."""
    return [leaf for part in nest for leaf in leaves_of(part)] if isinstance(nest, list) else [nest]


def joined(nest: Nest, features: tuple[int, ...]) -> torch.Tensor:
    """All rows one behind the other."""
    rows = leaves_of(nest)
    return torch.cat(rows) if rows else torch.zeros((0, *features), dtype=torch.float64)


def flat(nest: Nest, features: tuple[int, ...]) -> torch.Tensor:
    return joined(nest, features).reshape(-1)


def mapped(function: Callable[..., torch.Tensor], *nests: Nest) -> Nest:
    """The function of each row. A list of one entry goes with a list of any number."""
    if not any(isinstance(nest, list) for nest in nests):
        return function(*nests)
    count = next((len(nest) for nest in nests if len(nest) != 1), 1)
    return [
        mapped(function, *(nest[0] if len(nest) == 1 else nest[number] for nest in nests)) for number in range(count)
    ]


def reduced(nest: Nest, depth: int, levels: int, features: tuple[int, ...], axes: list[int], how: Any) -> Nest:
    """The reduction of the packed axes from `depth` on (`levels + 1`: of none) and of feature axes."""
    if depth > levels:
        return mapped(lambda leaf: how(leaf, axes), nest)
    if depth == 0:
        return wrapped(how(joined(nest, features), [0, *axes]), levels)
    return [reduced(part, depth - 1, levels - 1, features, axes, how) for part in nest]


# ----------------------------------------------------------------------------------------------------- functions


def _moments(leaf: torch.Tensor, axes: list[int]) -> torch.Tensor:
    return (leaf - leaf.mean(axes, keepdim=True)).square().mean(axes, keepdim=True)


def _product(leaf: torch.Tensor, axes: list[int]) -> torch.Tensor:
    for axis in axes:
        leaf = leaf.prod(axis, keepdim=True)
    return leaf


def _extreme(leaf: torch.Tensor, axes: list[int], sign: int) -> torch.Tensor:
    if any(leaf.shape[axis] == 0 for axis in axes):
        sizes = [1 if axis in axes else size for axis, size in enumerate(leaf.shape)]
        return torch.full(sizes, -sign * torch.inf, dtype=leaf.dtype)
    return sign * (sign * leaf).amax(axes, keepdim=True)


UNARY: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "tanh": ("sr.tanh({0})", torch.tanh),
    "sigmoid": ("sr.sigmoid({0})", torch.sigmoid),
    "gelu": ("sr.gelu({0})", torch.nn.functional.gelu),
    "silu": ("torch.nn.functional.silu({0})", torch.nn.functional.silu),
    "sin": ("sr.sin({0})", torch.sin),
    "exp of a negative": ("sr.exp(-sr.abs({0}))", lambda leaf: torch.exp(-leaf.abs())),
    "root": ("sr.sqrt({0} * {0} + 0.5)", lambda leaf: torch.sqrt(leaf * leaf + 0.5)),
    "affine": ("{0} * 0.75 - 0.25", lambda leaf: leaf * 0.75 - 0.25),
    "reciprocal": ("1 / (1 + {0} ** 2)", lambda leaf: 1 / (1 + leaf**2)),
    "clip": ("sr.clip({0}, -0.6, 0.7)", lambda leaf: leaf.clamp(-0.6, 0.7)),
    "relu": ("torch.relu({0} - 0.05)", lambda leaf: torch.relu(leaf - 0.05)),
    "where": (
        "sr.where({0} > 0.1, {0}, 0.3 * {0} - 1)",
        lambda leaf: torch.where(leaf > 0.1, leaf, 0.3 * leaf - 1),
    ),
    "log": ("sr.log1p(sr.abs({0}))", lambda leaf: torch.log1p(leaf.abs())),
}
BINARY: dict[str, tuple[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "sum": ("{0} + {1}", torch.add),
    "difference": ("{0} - {1}", torch.sub),
    "product": ("{0} * sr.tanh({1})", lambda one, other: one * torch.tanh(other)),
    "ratio": ("{0} / (1.5 + {1} * {1})", lambda one, other: one / (1.5 + other * other)),
    "maximum": ("sr.maximum({0}, {1} + 0.01)", lambda one, other: torch.maximum(one, other + 0.01)),
    "choice": (
        "sr.where({0} > {1} * 0.3 - 0.2, {1}, {0})",
        lambda one, other: torch.where(one > other * 0.3 - 0.2, other, one),
    ),
}
REDUCTIONS: dict[str, tuple[str, Callable[[torch.Tensor, list[int]], torch.Tensor]]] = {
    "sum": ("sr.sum({0}, axis={1}, keepdims=True)", lambda leaf, axes: leaf.sum(axes, keepdim=True)),
    "mean": ("sr.mean({0}, axis={1}, keepdims=True)", lambda leaf, axes: leaf.mean(axes, keepdim=True)),
    "max": ("sr.max({0}, axis={1}, keepdims=True)", lambda leaf, axes: _extreme(leaf, axes, 1)),
    "min": ("sr.min({0}, axis={1}, keepdims=True)", lambda leaf, axes: _extreme(leaf, axes, -1)),
    "var": ("sr.var({0}, axis={1}, keepdims=True)", _moments),
    "prod": ("sr.prod({0}, axis={1}, keepdims=True)", _product),
    "logsumexp": ("sr.logsumexp({0}, axis={1}, keepdims=True)", lambda leaf, axes: leaf.logsumexp(axes, keepdim=True)),
}
