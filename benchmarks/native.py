"""Compiled operations: against FBGEMM's names for them, in copies of what they read, and against loops over rows.

`python -m benchmarks.native` prints, with one thread and with two, how many copies an operation takes: a copy into
memory that is there already, and one into memory that is new (`clone`), as results of operations are. Both use as many
threads as the operation. A sum is compared with a read, torch's sum of all elements. Then it prints the time of small
batches over that of a Python loop over their rows. `pairs` is measured by `benchmarks.trees`: this tree's operations
against the FBGEMM face of an earlier tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import serrate as sr
from benchmarks.eager import OUT, Batch, batches, log_normal
from benchmarks.timing import interleaved

Call = Callable[[], object]
ROUNDS, SECONDS = 200, 0.7
KEPT = 8


def pairs(b: Batch) -> dict[str, tuple[Call, Call]]:
    """For each operation ours, and the function of `serrate.compat.fbgemm` for it; with gradients too."""
    from serrate.compat import fbgemm

    x, values, offsets, padded = b.x, b.values, b.offsets, b.padded
    lengths, longest, rows = x.lengths[0], b.longest, len(b.lengths)
    index, begins = torch.randperm(rows), torch.zeros_like(lengths)
    matrices, other = torch.randn(rows, values.shape[1], OUT), x._with(torch.randn_like(values))
    # For each: what a user calls, the same as a function of tensors that have gradients, FBGEMM's, and these tensors.
    works: dict[str, tuple[Call, Callable[..., Any], Callable[..., Any], tuple[torch.Tensor, ...]]] = {
        "to_dense": (
            lambda: x.to_dense(),
            lambda v: x._with(v).to_dense().values,
            lambda v: fbgemm.jagged_to_padded_dense(v, [offsets], [longest], 0.0),
            (values,),
        ),
        "from_dense": (
            lambda: sr.from_dense(padded, like=x),
            lambda p: sr.from_dense(p, like=x).values,
            lambda p: fbgemm.dense_to_jagged(p, [offsets], len(values))[0],
            (padded,),
        ),
        "x[index]": (
            lambda: x[index],
            lambda v: x._with(v)[index].values,
            lambda v: fbgemm.jagged_index_select(v, lengths, index)[0],
            (values,),
        ),
        f"x[:, :{KEPT}]": (
            lambda: x[:, :KEPT],
            lambda v: x._with(v)[:, :KEPT].values,
            lambda v: fbgemm.jagged_slice(v, lengths, begins, KEPT)[0],
            (values,),
        ),
        "[B, r, D] @ [B, D, E]": (
            lambda: sr.matmul(x, matrices),
            lambda v, y: sr.matmul(x._with(v), y).values,
            lambda v, y: fbgemm.jagged_dense_bmm(v, offsets, y, longest)[0],
            (values, matrices),
        ),
        "[B, D, r] @ [B, r, D]": (
            lambda: sr.matmul(x.mT, other),
            lambda v, z: sr.matmul(x._with(v).mT, x._with(z)).values,
            lambda v, z: fbgemm.jagged_jagged_bmm(v, z, offsets, longest),
            (values, other.values),
        ),
    }
    made: dict[str, tuple[Call, Call]] = {}
    for name, (call, ours, theirs, operands) in works.items():
        made[name] = (call, _forward(theirs, operands))
        made[f"{name} + gradients"] = (_backward(ours, operands), _backward(theirs, operands))
    return made


def _forward(function: Callable[..., Any], operands: tuple[torch.Tensor, ...]) -> Call:
    return lambda: function(*operands)


def _backward(function: Callable[..., torch.Tensor], operands: tuple[torch.Tensor, ...]) -> Call:
    leaves = [operand.detach().requires_grad_() for operand in operands]
    seed = torch.randn_like(function(*operands))
    return lambda: torch.autograd.grad(function(*leaves), leaves, seed)


def copies(values: torch.Tensor, lengths: torch.Tensor) -> None:
    """Print what operations take, in copies and in reads."""
    x = sr.from_lengths(values, lengths)
    leaf = values.detach().requires_grad_()
    there, seed = torch.empty_like(values), torch.randn_like(values)
    made = sr.softmax(x._with(leaf), axis=1).values
    times = interleaved(
        {
            "a copy into memory that is there": lambda: there.copy_(values),
            "a copy into new memory": values.clone,
            "a read": values.sum,
            "softmax": lambda: sr.softmax(x, axis=1),
            "its gradient alone": lambda: torch.autograd.grad(made, leaf, seed, retain_graph=True),
            "log_softmax": lambda: sr.log_softmax(x, axis=1),
            "cumulative_sum": lambda: sr.cumulative_sum(x, axis=1),
            "cummax": lambda: sr.cummax(x, axis=1),
            "sum": lambda: sr.sum(x, axis=1),
            "max": lambda: sr.max(x, axis=1),
            "logsumexp": lambda: sr.logsumexp(x, axis=1),
        },
        ROUNDS,
        SECONDS,
    )
    old, new, read = (times[name][0] for name in list(times)[:3])
    for name, (least, _) in times.items():
        ratios = f"{least / old:6.2f} of old, {least / new:6.2f} of new memory, {least / read:6.2f} reads"
        print(f"    {name:34} {least * 1e6:9.1f} µs  {ratios}")


def small() -> None:
    """Print the time of operations on a few short rows over that of a loop over the rows in Python."""
    torch.set_num_threads(1)
    for lengths in ([5, 0, 7], [3] * 8, [2, 9, 0, 4] * 8):
        x = sr.from_lengths(torch.randn(sum(lengths), 4), lengths)
        rows = list(x.values.split(lengths))
        matrices = torch.randn(len(rows), 4, 3)
        longest, index = max(lengths), torch.randperm(len(rows))
        order = index.tolist()
        works: dict[str, tuple[Call, Call]] = {
            "softmax": (lambda x=x: sr.softmax(x, axis=1), lambda r=rows: [torch.softmax(v, 0) for v in r]),
            "cumulative_sum": (
                lambda x=x: sr.cumulative_sum(x, axis=1),
                lambda r=rows: [torch.cumsum(v, 0) for v in r],
            ),
            "sum": (lambda x=x: sr.sum(x, axis=1), lambda r=rows: torch.stack([v.sum(0) for v in r])),
            "to_dense": (
                lambda x=x: x.to_dense(),
                lambda r=rows, n=longest: torch.stack([torch.nn.functional.pad(v, (0, 0, 0, n - len(v))) for v in r]),
            ),
            "x[index]": (
                lambda x=x, i=index: x[i],
                lambda r=rows, o=order: torch.cat([r[i] for i in o]),
            ),
            "max": (
                lambda x=x: sr.max(x, axis=1),
                lambda r=rows: torch.stack([v.amax(0) if len(v) else v.new_full((4,), -torch.inf) for v in r]),
            ),
            "x[:, :2]": (lambda x=x: x[:, :2], lambda r=rows: torch.cat([v[:2] for v in r])),
            "matmul": (
                lambda x=x, y=matrices: sr.matmul(x, y),
                lambda r=rows, y=matrices: [v @ m for v, m in zip(r, y, strict=True)],
            ),
        }
        print(f"  {len(lengths)} rows of {min(lengths)} to {longest}, our time over that of a loop over rows")
        for name, (ours, loop) in works.items():
            times = interleaved({"ours": ours, "loop": loop}, 2000, 0.3)
            print(f"    {name:20} {times['ours'][0] / times['loop'][0]:6.2f}   {times['ours'][0] * 1e6:7.1f} µs")


def main() -> None:
    """Print all tables."""
    torch.manual_seed(0)
    named = {name: (lengths, 64) for name, lengths in batches().items()}
    named["log-normal, 4096 rows of numbers"] = (log_normal(4096), 1)
    named["log-normal, 8192 rows, past the caches"] = (log_normal(8192), 64)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name, (lengths, features) in named.items():
            print(f"  {threads} thread{'s' * (threads > 1)}, {name}: [{int(lengths.sum())}, {features}] float32")
            copies(torch.randn(int(lengths.sum()), features), lengths)
    small()


if __name__ == "__main__":
    main()
