"""Eager operations side by side with torch.nested, FBGEMM and padded torch, on skewed and on equal lengths.

One table per batch: our time, and what share of each peer's time it is; a dash where the peer has no such operation, or
not the memory for it. `python -m benchmarks.eager cuda` measures on a GPU.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import serrate as sr
from benchmarks.tensor import lengths_of
from benchmarks.timing import interleaved

FEATURES, HEADS, OUT = 64, 4, 32
Call = Callable[[], object]
PEERS = ("torch.nested", "fbgemm", "padded torch")


def batches() -> dict[str, torch.Tensor]:
    """Row lengths to measure on."""
    return {
        "log-normal, 256 rows": log_normal(256, mean=48),
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


@dataclass
class Batch:
    """The same rows in every library's form."""

    lengths: torch.Tensor
    device: str = "cpu"

    def __post_init__(self) -> None:
        lengths = self.lengths
        self.longest = int(lengths.max())
        self.x = sr.from_lengths(torch.randn(int(lengths.sum()), FEATURES), lengths).to(self.device)
        self.values, self.offsets = self.x.values, self.x.offsets[0]
        self.nested = self.as_nested(self.values)
        self.padded, self.mask = self.x.to_dense().torch(), self.x.mask().torch()[..., None]

    def as_nested(self, values: torch.Tensor) -> torch.Tensor:
        ends = {"max_seqlen": self.longest, "min_seqlen": int(self.lengths.min())}
        return torch.nested.nested_tensor_from_jagged(values, self.offsets, **ends)

    def heads(self) -> tuple[sr.Tensor, torch.Tensor, torch.Tensor]:
        """[B, heads, r, features] in three forms."""
        split = FEATURES // HEADS
        ours = sr.Tensor(self.values.view(-1, HEADS, split), self.x.structure).permute_dims((0, 2, 1, 3))
        theirs = self.nested.unflatten(-1, [HEADS, split]).transpose(1, 2)
        return ours, theirs, self.padded.unflatten(-1, (HEADS, split)).transpose(1, 2)


def cases(b: Batch) -> dict[str, tuple[Call, Call | None, Call | None, Call | None]]:
    """For each operation: ours, torch.nested's, FBGEMM's and padded torch's."""
    with contextlib.suppress(ImportError):
        import fbgemm_gpu  # noqa: F401 (registers torch.ops.fbgemm)

    jagged = torch.ops.fbgemm
    x, n, p, m = b.x, b.nested, b.padded, b.mask
    rows, longest, low = len(b.lengths), b.longest, -float("inf")
    with torch.device(b.device):
        per_row, per_feature = torch.randn(rows, 1, FEATURES), torch.randn(FEATURES)
        weight, bias, each = torch.randn(OUT, FEATURES), torch.randn(OUT), torch.randn(rows, FEATURES, OUT)
        ids, table = torch.randint(0, 1000, (len(b.values),)), torch.randn(1000, FEATURES)
    other = torch.randn_like(p)
    x_ids, n_ids = sr.Tensor(ids, x.structure), b.as_nested(ids)
    p_ids = x_ids.to_dense().torch()
    (hx, hn, hp), key_mask = b.heads(), b.mask[:, None, None, :, 0]
    half = x.to(torch.bfloat16)
    small = rows * HEADS * longest**2 < 2**27  # padded scores, of which several are alive at once
    n_half = b.as_nested(half.values)
    return {
        "x + x": (lambda: x + x, lambda: n + n, None, lambda: p + p),
        "x * 2": (lambda: x * 2, lambda: n * 2, None, lambda: p * 2),
        "x + [D]": (lambda: x + per_feature, lambda: n + per_feature, None, lambda: p + per_feature),
        "x + [B, 1, D]": (lambda: x + per_row, lambda: n + per_row, None, lambda: p + per_row),
        "x + padded": (
            lambda: x + sr.from_dense(other, like=x),
            None,
            lambda: jagged.jagged_dense_elementwise_add_jagged_output(b.values, [b.offsets], other),
            lambda: p + other,
        ),
        "where(x > 0, x, 0)": (
            lambda: torch.where(x > 0, x, 0.0),
            lambda: torch.where(n > 0, n, 0.0),
            None,
            lambda: torch.where(p > 0, p, 0.0),
        ),
        "relu": (lambda: F.relu(x), lambda: F.relu(n), None, lambda: F.relu(p)),
        "gelu": (lambda: F.gelu(x), lambda: F.gelu(n), None, lambda: F.gelu(p)),
        "sum over rows": (
            lambda: sr.sum(x, axis=1),
            lambda: n.sum(1),
            None,
            lambda: (p * m).sum(1),
        ),
        "mean over rows": (lambda: sr.mean(x, axis=1), lambda: n.mean(1), None, lambda: (p * m).sum(1) / m.sum(1)),
        "max over rows": (
            lambda: sr.max(x, axis=1),
            lambda: n.amax(1),
            None,
            lambda: p.masked_fill(~m, low).amax(1),
        ),
        "argmax over rows": (
            lambda: sr.argmax(x, axis=1),
            lambda: n.argmax(1),
            None,
            lambda: p.masked_fill(~m, low).argmax(1),
        ),
        "any over rows": (lambda: sr.any(x > 0, axis=1), lambda: (n > 0).any(1), None, lambda: ((p > 0) & m).any(1)),
        "prod over rows": (lambda: sr.prod(x, axis=1), lambda: n.prod(1), None, lambda: p.masked_fill(~m, 1).prod(1)),
        "sum over features": (lambda: sr.sum(x, axis=2), lambda: n.sum(-1), None, lambda: p.sum(-1)),
        "sum of all": (lambda: sr.sum(x), lambda: n.sum(), None, lambda: p.sum()),
        "softmax over rows": (
            lambda: sr.softmax(x, axis=1),
            lambda: F.softmax(n, 1),
            lambda: jagged.jagged_softmax(b.values, b.offsets, longest),
            lambda: F.softmax(p.masked_fill(~m, low), 1).masked_fill(~m, 0),
        ),
        "softmax over features": (lambda: sr.softmax(x), lambda: F.softmax(n, -1), None, lambda: F.softmax(p, -1)),
        "layer_norm": (
            lambda: F.layer_norm(x, (FEATURES,)),
            lambda: F.layer_norm(n, (FEATURES,)),
            None,
            lambda: F.layer_norm(p, (FEATURES,)),
        ),
        "rms_norm": (
            lambda: F.rms_norm(x, (FEATURES,)),
            lambda: F.rms_norm(n, (FEATURES,)),
            None,
            lambda: F.rms_norm(p, (FEATURES,)),
        ),
        "linear": (
            lambda: F.linear(x, weight, bias),
            lambda: F.linear(n, weight, bias),
            None,
            lambda: F.linear(p, weight, bias),
        ),
        "[B, r, D] @ [B, D, E]": (
            lambda: x @ each,
            lambda: n @ each,
            lambda: jagged.jagged_dense_bmm(b.values, b.offsets, each, longest),
            lambda: p @ each,
        ),
        "[B, D, r] @ [B, r, D]": (
            lambda: x.mT @ x,
            lambda: n.transpose(1, 2) @ n,
            lambda: jagged.jagged_jagged_bmm(b.values, b.values, b.offsets, longest),
            lambda: p.mT @ p,
        ),
        "attention": (
            lambda: F.scaled_dot_product_attention(hx, hx, hx),
            (lambda: F.scaled_dot_product_attention(hn, hn, hn)) if small else None,
            None,
            (lambda: F.scaled_dot_product_attention(hp, hp, hp, key_mask)) if small else None,
        ),
        "embedding": (
            lambda: F.embedding(x_ids, table),
            lambda: F.embedding(n_ids, table),
            None,
            lambda: F.embedding(p_ids, table),
        ),
        "dropout": (lambda: F.dropout(x, 0.1), lambda: F.dropout(n, 0.1), None, lambda: F.dropout(p, 0.1)),
        "concat of features": (
            lambda: sr.concat([x, x], axis=2),
            lambda: torch.cat([n, n], -1),
            None,
            lambda: torch.cat([p, p], -1),
        ),
        "to_dense": (
            lambda: x.to_dense(),
            lambda: n.to_padded_tensor(0.0),
            lambda: jagged.jagged_to_padded_dense(b.values, [b.offsets], [longest], 0.0),
            None,
        ),
        "from_dense": (
            lambda: sr.from_dense(p, like=x),
            None,
            lambda: jagged.dense_to_jagged(p, [b.offsets], len(b.values)),
            None,
        ),
        "clone": (lambda: x.clone(), lambda: n.clone(), None, lambda: p.clone()),
        "to bfloat16": (
            lambda: x.to(torch.bfloat16),
            lambda: n.to(torch.bfloat16),
            None,
            lambda: p.to(torch.bfloat16),
        ),
        "sum over rows, bfloat16": (lambda: sr.sum(half, axis=1), lambda: n_half.sum(1), None, None),
        "softmax over rows, bfloat16": (lambda: sr.softmax(half, axis=1), lambda: F.softmax(n_half, 1), None, None),
    }


def runs(call: Call) -> bool:
    """Whether another library has the operation here, and memory for it: padded scores may take more than there is."""
    try:
        call()
    except (RuntimeError, NotImplementedError, AttributeError):
        return False
    return True


def table_of(b: Batch, threads: int, rounds: int) -> None:
    """Print one line per operation: our times, and their ratio to each peer's."""
    torch.set_num_threads(threads)
    print(f"  {'':28} {'minimum':>11} {'median':>11}   our time ÷ theirs (minima | medians)")
    print(f"  {f'{threads} thread' + 's' * (threads > 1):28} {'':>11} {'':>11} " + "".join(f"{p:>16}" for p in PEERS))
    for name, calls in cases(b).items():
        ours, *peers = calls
        assert ours is not None
        candidates = {"serrate": ours} | {who: c for who, c in zip(PEERS, peers, strict=True) if c and runs(c)}
        times = interleaved(candidates, rounds, seconds=0.5)
        least, middle = times["serrate"]
        shown = []
        for peer in PEERS:
            theirs = times.get(peer)
            shown.append(f"{least / theirs[0]:>7.2f} | {middle / theirs[1]:>5.2f}" if theirs else f"{'–':>15}")
        print(f"  {name:28} {least * 1e6:>8.1f} µs {middle * 1e6:>8.1f} µs " + " ".join(shown))


def overhead(rounds: int = 2000) -> None:
    """What a call costs beyond the bare torch operation on the values (at most 8 µs; through a module 15 µs)."""
    torch.set_num_threads(1)
    x = sr.from_lengths(torch.randn(12, 4), [5, 0, 7])
    v, y = x.values, x + 1
    weight, bias = torch.randn(4, 4), torch.randn(4)
    gelu, linear, norm = torch.nn.GELU(), torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
    pairs: dict[str, tuple[Call, Call]] = {
        "x + y": (lambda: x + y, lambda: v + y.values),
        "x * 2": (lambda: x * 2, lambda: v * 2),
        "sr.exp(x)": (lambda: sr.exp(x), lambda: torch.exp(v)),
        "torch.exp(x)": (lambda: torch.exp(x), lambda: torch.exp(v)),
        "F.gelu(x)": (lambda: F.gelu(x), lambda: F.gelu(v)),
        "nn.GELU": (lambda: gelu(x), lambda: gelu(v)),
        "F.linear(x)": (lambda: F.linear(x, weight, bias), lambda: F.linear(v, weight, bias)),
        "nn.Linear": (lambda: linear(x), lambda: linear(v)),
        "nn.LayerNorm": (lambda: norm(x), lambda: norm(v)),
    }
    print("\nover the bare torch operation on the values")
    with torch.no_grad():
        for name, (ours, bare) in pairs.items():
            times = interleaved({"ours": ours, "bare": bare}, rounds)
            (least, middle), (bare_least, bare_middle) = times["ours"], times["bare"]
            more = f"{(least - bare_least) * 1e6:>6.1f} µs | {(middle - bare_middle) * 1e6:>6.1f} µs"
            print(f"  {name:28} {least * 1e6:>8.1f} µs {bare_least * 1e6:>8.1f} µs   difference {more}")


def main(device: str = "cpu") -> None:
    warnings.filterwarnings("ignore")
    with torch.no_grad():
        for name, lengths in batches().items():
            b = Batch(lengths if device == "cpu" else lengths.repeat(16), device)
            print(f"\n{name}: {list(b.values.shape)}, the longest {b.longest}")
            for threads in (1, 2) if device == "cpu" else (1,):
                table_of(b, threads, rounds=60)
    overhead()


if __name__ == "__main__":
    main(*sys.argv[1:2])
