"""How far results are from what float64 gives, and how far torch's own are on dense tensors of the same elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

import serrate as sr

TIMES, FLOOR = 4, 4
"""Errors may be so many times torch's own, plus so many units in the last place: torch may be exact by chance."""


# ------------------------------------------------------------------------------------------------ elements and rows


def drawn(kind: str, count: int, features: tuple[int, ...] = (), seed: int = 0) -> torch.Tensor:
    """Elements that sums lose digits of, as float64."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.rand(count, *features, generator=draw, dtype=torch.float64)
    if kind == "near 10⁴":
        return noise + 1e4
    if kind == "both signs":
        return torch.randn(count, *features, generator=draw, dtype=torch.float64) * 10
    if kind == "tiny after large":
        noise = noise * 0.01 + 0.37
        noise[:: max(count // 3, 1)] = 2.0**24
        return noise
    assert kind == "units"
    return noise


KINDS = ("near 10⁴", "both signs", "tiny after large", "units")
EDGES = [1, 0, 7, 15, 16, 17, 31, 33, 64, 65, 200]
"""Lengths around those where the way of adding up changes."""
GIANT = 20_000


def rows(
    kind: str, features: tuple[int, ...] = (), giant: int = GIANT, dtype: torch.dtype = torch.float32
) -> sr.Tensor:
    """One giant row among short ones."""
    lengths = [*EDGES, giant, 2]
    return sr.from_lengths(drawn(kind, sum(lengths), features).to(dtype), lengths)


def births(*tensors: sr.Tensor) -> tuple[tuple[sr.Tensor, ...], ...]:
    """Tensors whose lengths the host knows, and the same with lengths from a device and undefined rows."""
    return tensors, tuple(sr.testing.device_born(x, spare=3) for x in tensors)


@dataclass(frozen=True)
class Rows:
    """A tensor, the packed axes that are reduced, and the rows that are reduced together."""

    x: sr.Tensor
    axes: tuple[int, ...]
    most: int = 15

    def groups(self) -> dict[tuple[int, ...], torch.Tensor]:
        """For the positions along the axes that stay, the packed rows there: the largest groups, and some others."""
        packed = range(len(self.x.structure.axes))
        kept = [sr.positions(self.x, a).values for a in packed if a not in self.axes]
        count = self.x.values.shape[0]
        if not kept:
            return {(): torch.arange(count)}
        key = torch.zeros(count, dtype=torch.int64)
        for positions in kept:
            key = key * (int(positions.max()) + 1) + positions
        key, rows = key.sort(stable=True)
        _, sizes = key.unique_consecutive(return_counts=True)
        groups = rows.split(sizes.tolist())
        order = sizes.argsort(descending=True, stable=True)
        draw = torch.Generator().manual_seed(1)
        chosen = [*order[:5], *order[5:][torch.randperm(max(len(order) - 5, 0), generator=draw)[: self.most]]]
        return {tuple(int(positions[groups[g][0]]) for positions in kept): groups[g] for g in chosen}


# -------------------------------------------------------------------------------------------------------- operations


@dataclass(frozen=True)
class Operation:
    """What is computed of a ragged tensor along axes, and torch's own of the first dimension of dense rows."""

    ours: Callable[[sr.Tensor, Any], sr.Tensor]
    dense: Callable[[torch.Tensor], torch.Tensor]
    each: bool = False
    """Whether there is a result for each row."""
    unit: Callable[[torch.Tensor], torch.Tensor] | None = None
    """For dense rows, the least that errors are measured by: terms of both signs may add up to nearly 0."""

    def compared(
        self, mine: torch.Tensor, dense: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
        """Ours, torch's own and the truth for dense rows, and what errors are measured by at least."""
        unit = 0.0 if self.unit is None or not dense.numel() else float(self.unit(dense))
        return mine, self.dense(dense), self.dense(wide(dense)), unit


def _last(function: Callable[..., torch.Tensor], **options: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function of the last dimensions as one of the first."""

    def along_the_first(rows: torch.Tensor) -> torch.Tensor:
        turned = rows.movedim(0, -1)
        return function(turned, turned.shape[-1:], **options).movedim(-1, 0)

    return along_the_first


OPERATIONS: dict[str, Operation] = {
    "sum": Operation(lambda x, a: sr.sum(x, axis=a), lambda r: r.sum(0), unit=lambda r: r.abs().max()),
    "mean": Operation(lambda x, a: sr.mean(x, axis=a), lambda r: r.mean(0), unit=lambda r: r.abs().max() / len(r)),
    "var": Operation(lambda x, a: sr.var(x, axis=a), lambda r: r.var(0, correction=0)),
    "std": Operation(lambda x, a: sr.std(x, axis=a), lambda r: r.std(0, correction=0)),
    "norm": Operation(lambda x, a: sr.norm(x, axis=a), lambda r: torch.linalg.vector_norm(r, dim=0)),
    "norm of order 1": Operation(lambda x, a: sr.norm(x, axis=a, ord=1), lambda r: torch.linalg.vector_norm(r, 1, 0)),
    "vecdot": Operation(lambda x, a: sr.vecdot(x, x, axis=a), lambda r: torch.linalg.vecdot(r, r, dim=0)),
    "logsumexp": Operation(lambda x, a: sr.logsumexp(x, axis=a), lambda r: r.logsumexp(0)),
    "softmax": Operation(lambda x, a: sr.softmax(x, axis=a), lambda r: r.softmax(0), each=True),
    "log_softmax": Operation(lambda x, a: sr.log_softmax(x, axis=a), lambda r: r.log_softmax(0), each=True),
    "layer_norm": Operation(lambda x, a: sr.layer_norm(x, axis=a), _last(F.layer_norm), each=True),
    "rms_norm": Operation(lambda x, a: sr.rms_norm(x, axis=a, eps=1e-6), _last(F.rms_norm, eps=1e-6), each=True),
    "normalize": Operation(lambda x, a: sr.normalize(x, axis=a), lambda r: F.normalize(r, dim=0), each=True),
    "cumulative_sum": Operation(
        lambda x, a: sr.cumulative_sum(x, axis=a), lambda r: r.cumsum(0), each=True, unit=lambda r: r.abs().max()
    ),
}
ONE_AXIS = ("vecdot", "cumulative_sum")


# ----------------------------------------------------------------------------------------------------------- errors


def error(got: torch.Tensor, want: torch.Tensor, unit: float = 0.0) -> float:
    """The greatest difference, by the greatest of `want` or by `unit`, in units of the last place of `got`."""
    if not want.numel():
        return 0.0
    real = got.real.dtype if got.is_complex() else got.dtype
    scale = max(float(want.abs().max()), unit) or 1.0
    return float((got.to(want.dtype) - want).abs().max()) / scale / torch.finfo(real).eps


def wide(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def check(found: Sequence[tuple[Any, ...]], what: str) -> None:
    """Ours, torch's own and the truth, for each group, perhaps a unit: the worst of ours against that of torch's."""
    ours = max(error(mine, truth, *unit) for mine, _, truth, *unit in found)
    theirs = max(error(own, truth, *unit) for _, own, truth, *unit in found)
    assert ours <= TIMES * theirs + FLOOR, f"{what}: {ours:.1f} units in the last place, torch's own {theirs:.1f}"


def check_along(name: str, x: sr.Tensor, axes: tuple[int, ...], born: sr.Tensor | None = None) -> None:
    """The operation along packed axes of x; `born` is the same tensor, perhaps from elsewhere."""
    operation = OPERATIONS[name]
    axis = axes[0] if len(axes) == 1 else axes
    got = operation.ours(x if born is None else born, axis)
    found = []
    for kept, rows in Rows(x, axes).groups().items():
        dense = x.values[rows]
        mine = got.values[rows] if operation.each else got[kept].torch()
        found.append(operation.compared(mine, dense))
    check(found, f"{name} along {axis}")
