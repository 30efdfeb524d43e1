"""Sums over ragged rows against torch's bags and index_add, which they were before, and float64 against float32.

The old way adds up one row after the other in the type of the rows; it is kept here to be measured against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F

import serrate as sr
from benchmarks.eager import Call, log_normal
from benchmarks.timing import interleaved
from serrate.eager.reducing import reduction
from serrate.eager.segments import Segments
from serrate.ops.by_id import _rows

# ------------------------------------------------------------------------------------------------ the old way


def added(segments: Segments, values: torch.Tensor) -> torch.Tensor:
    """The sum of each result's rows: a bag of torch's per run, else by an index."""
    features = values.shape[1:]
    if segments.runs is not None:
        rows = torch.arange(values.shape[0])
        table = values.reshape(values.shape[0], -1)
        made = F.embedding_bag(rows, table, segments.runs.offsets, mode="sum", include_last_offset=True)
        return made.view(segments.cells, *features)
    base = values.new_zeros((segments.cells + 1, *features))
    return base.index_add(0, segments.index(values.device), values)[: segments.cells]


def spread(segments: Segments, results: torch.Tensor) -> torch.Tensor:
    return results.index_select(0, segments.index(results.device))


def count(segments: Segments, results: torch.Tensor) -> torch.Tensor:
    return segments.counts(results.device).view(-1, *[1] * (results.ndim - 1))


def mean(segments: Segments, values: torch.Tensor) -> torch.Tensor:
    total = added(segments, values)
    return total / count(segments, total)


def variance(segments: Segments, values: torch.Tensor) -> torch.Tensor:
    centred = values - spread(segments, mean(segments, values))
    total = added(segments, centred * centred)
    return total / count(segments, total).clamp(min=0).to(values.dtype)


def logsumexp(segments: Segments, values: torch.Tensor) -> torch.Tensor:
    top = segments.extreme(values, largest=True)
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    return added(segments, (values - spread(segments, top)).exp()).log() + top


def softmax(segments: Segments, values: torch.Tensor) -> torch.Tensor:
    made = spread(segments, segments.extreme(values, largest=True))
    torch.sub(values, made, out=made).exp_()
    return made.div_(spread(segments, added(segments, made)))


def layer_norm(segments: Segments, values: torch.Tensor) -> torch.Tensor:
    centred = values - spread(segments, mean(segments, values))
    return centred * spread(segments, (mean(segments, centred * centred) + 1e-5).rsqrt())


def reduced(form: Callable[[Segments, torch.Tensor], torch.Tensor], x: sr.Tensor, axis: int) -> sr.Tensor:
    """A reduction the old way."""
    call = reduction(x, axis)
    assert call.segments is not None
    return call.finish(form(call.segments, x.values), keepdims=False)


def normalized(form: Callable[[Segments, torch.Tensor], torch.Tensor], x: sr.Tensor, axis: int) -> sr.Tensor:
    """A normalization the old way."""
    call = reduction(x, axis)
    assert call.segments is not None
    return x._with(form(call.segments, x.values))


def segment_sum(values: torch.Tensor, ids: torch.Tensor, rows: int) -> sr.Tensor:
    found, by = _rows(values, ids, rows)
    return sr.Tensor(added(by, found))


# ---------------------------------------------------------------------------------------------------- what is measured


@dataclass
class Batch:
    """Rows of float32 and the same of float64."""

    lengths: torch.Tensor
    features: tuple[int, ...]

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.x = sr.from_lengths(torch.randn(int(self.lengths.sum()), *self.features), self.lengths)
        self.ids = torch.randint(0, len(self.lengths), (self.x.values.shape[0],))

    @cached_property
    def wide(self) -> sr.Tensor:
        return self.x.to(torch.float64)


def batches() -> dict[str, Batch]:
    """The rows to measure on."""
    short = torch.poisson(torch.full((100_000,), 4.0), generator=torch.Generator().manual_seed(0)).long()
    return {
        "log-normal, 1024 rows of 128 features": Batch(log_normal(1024), (128,)),
        "log-normal, 16,000 rows of one number": Batch(log_normal(16_000), ()),
        "short, 100,000 rows of one number": Batch(short, ()),
        "short, 10,000 rows of 64 features": Batch(short[:10_000], (64,)),
        "one giant row of one number": Batch(torch.tensor([3, 10**6, 0, 5]), ()),
        "one giant row of 64 features": Batch(torch.tensor([3, 30_000, 0, 5]), (64,)),
    }


def cases(b: Batch) -> dict[str, tuple[Call, Call]]:
    """For each operation: now, and before."""
    x, ids, rows = b.x, b.ids, len(b.lengths)
    return {
        "sum": (lambda: sr.sum(x, axis=1), lambda: reduced(added, x, 1)),
        "mean": (lambda: sr.mean(x, axis=1), lambda: reduced(mean, x, 1)),
        "var": (lambda: sr.var(x, axis=1), lambda: reduced(variance, x, 1)),
        "logsumexp": (lambda: sr.logsumexp(x, axis=1), lambda: reduced(logsumexp, x, 1)),
        "softmax": (lambda: sr.softmax(x, axis=1), lambda: normalized(softmax, x, 1)),
        "layer_norm": (lambda: sr.layer_norm(x, axis=1), lambda: normalized(layer_norm, x, 1)),
        "sum over the batch": (lambda: sr.sum(x, axis=0), lambda: reduced(added, x, 0)),
        "segment_sum": (
            lambda: sr.segment_sum(x.values, ids, rows),
            lambda: segment_sum(x.values, ids, rows),
        ),
    }


def wide_cases(b: Batch) -> dict[str, tuple[Call, Call]]:
    """For each operation: of float64, and of float32."""
    x, wide = b.x, b.wide
    return {
        "sum": (lambda: sr.sum(wide, axis=1), lambda: sr.sum(x, axis=1)),
        "var": (lambda: sr.var(wide, axis=1), lambda: sr.var(x, axis=1)),
        "softmax": (lambda: sr.softmax(wide, axis=1), lambda: sr.softmax(x, axis=1)),
    }


def table_of(pairs: dict[str, tuple[Call, Call]], names: tuple[str, str], rounds: int = 40) -> None:
    """Print one line per operation: both times, and their ratio."""
    print(f"    {'':20} {names[0]:>24} {names[1]:>24}   ratio (minima | medians)")
    for name, (one, other) in pairs.items():
        times = interleaved({"one": one, "other": other}, rounds, seconds=2)
        (least, middle), (other_least, other_middle) = times["one"], times["other"]
        shown = [f"{a * 1e6:>9.0f} | {b * 1e6:>9.0f} µs" for a, b in times.values()]
        print(f"    {name:20} {shown[0]:>24} {shown[1]:>24}   {least / other_least:.2f} | {middle / other_middle:.2f}")


def main() -> None:
    with torch.no_grad():
        for name, b in batches().items():
            print(f"\n{name}: {list(b.x.values.shape)}")
            for threads in (1, 2):
                torch.set_num_threads(threads)
                print(f"  {threads} thread{'s' * (threads > 1)}")
                table_of(cases(b), ("now", "before"))
                table_of(wide_cases(b), ("float64", "float32"))


if __name__ == "__main__":
    main()
