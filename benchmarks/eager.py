"""Eager operations side by side with torch.nested and with padded torch, on skewed and on equal lengths."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

import serrate as sr
from benchmarks.tensor import lengths_of
from benchmarks.timing import report

FEATURES = 64


def batches() -> dict[str, torch.Tensor]:
    """Row lengths to measure on."""
    return {
        "log-normal, 512 rows": log_normal(512),
        "squad, 128 rows": lengths_of("squad", 128),
        "cola, 1024 rows": lengths_of("cola", 1024),
        "128 equal rows": torch.full((128,), 100),
        "one row": torch.tensor([5000]),
    }


def log_normal(rows: int, mean: float = 64, sigma: float = 1.2) -> torch.Tensor:
    """Skewed lengths, every 97th row empty."""
    torch.manual_seed(0)
    lengths = (torch.randn(rows) * sigma - sigma**2 / 2).exp().mul(mean).long()
    lengths[::97] = 0
    return lengths


def softmax_of_padded(padded: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.softmax(padded.masked_fill(~mask, -float("inf")), 1).masked_fill(~mask, 0)


Case = tuple[Callable[[], object], Callable[[], object], Callable[[], object]]


def cases(x: sr.Tensor, nested: torch.Tensor, padded: torch.Tensor, mask: torch.Tensor) -> dict[str, Case]:
    """For each operation: ours, torch.nested's, and padded torch's."""
    return {
        "x * 2 + x": (lambda: x * 2 + x, lambda: nested * 2 + nested, lambda: padded * 2 + padded),
        "gelu": (lambda: F.gelu(x), lambda: F.gelu(nested), lambda: F.gelu(padded)),
        "sum over rows": (lambda: sr.sum(x, axis=1), lambda: nested.sum(1), lambda: (padded * mask).sum(1)),
        "softmax over rows": (
            lambda: sr.softmax(x, axis=1),
            lambda: F.softmax(nested, 1),
            lambda: softmax_of_padded(padded, mask),
        ),
        "layer_norm": (
            lambda: F.layer_norm(x, (FEATURES,)),
            lambda: F.layer_norm(nested, (FEATURES,)),
            lambda: F.layer_norm(padded, (FEATURES,)),
        ),
    }


def main() -> None:
    for name, lengths in batches().items():
        x = sr.from_lengths(torch.randn(int(lengths.sum()), FEATURES), lengths)
        nested = torch.nested.nested_tensor_from_jagged(
            x.values, x.offsets[0], max_seqlen=int(lengths.max()), min_seqlen=int(lengths.min())
        )
        padded, mask = x.to_dense().torch(), x.mask().torch()[..., None]
        for case, (ours, theirs, dense) in cases(x, nested, padded, mask).items():
            candidates = {"serrate": ours, "torch.nested": theirs, "padded torch": dense}
            report(f"{case}: {name}, {list(x.values.shape)}", candidates, base="torch.nested")


if __name__ == "__main__":
    main()
