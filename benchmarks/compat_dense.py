"""What `benchmarks.compat` measures of padding, of arithmetic with padded tensors and of products."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.tensor import lengths_of
from benchmarks.timing import Case

KEYS = 4


def cases(name: str, rows: int, features: int) -> Iterator[Case]:
    """One case for each function, on rows of the lengths of a corpus.

    Of the stacked functions there is none with gradients: FBGEMM 1.8's write to memory that is not theirs.
    """
    torch.manual_seed(0)
    lengths = lengths_of(name, rows)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    total, longest = int(offsets[-1]), int(lengths.max())
    x, z, numbers = torch.randn(total, features), torch.randn(total, features), torch.randn(total)
    dense, other = torch.randn(rows, longest, features), torch.randn(rows, longest, features)
    parts = lengths.view(KEYS, -1)
    starts, sizes = [0, *parts.sum(1).cumsum(0).tolist()], parts.amax(1).tolist()
    works = {
        "jagged_to_padded_dense": (x, [offsets], [longest], 0.0),
        "jagged_1d_to_dense": (numbers, offsets, longest, 0),
        "jagged_2d_to_dense": (x, offsets, longest),
        "dense_to_jagged": (dense, [offsets]),
        "jagged_dense_elementwise_add": (x, [offsets], dense),
        "jagged_dense_elementwise_add_jagged_output": (x, [offsets], dense),
        "jagged_dense_dense_elementwise_add_jagged_output": (x, [offsets], dense, other),
        "jagged_dense_elementwise_mul": (x, [offsets], dense),
        "jagged_dense_bmm": (x, offsets, torch.randn(rows, features, features), longest),
        "jagged_jagged_bmm": (x, z, offsets, longest),
        "batched_dense_vec_jagged_2d_mul": (torch.randn(rows, longest), x, offsets),
        "jagged_softmax": (x, offsets, longest),
        "stacked_jagged_1d_to_dense": (numbers, parts, starts, sizes, 0),
        "stacked_jagged_2d_to_dense": (x, parts, starts, sizes, 0),
    }
    for function, arguments in works.items():
        yield Case(f"{name} {rows} × {features}", function, arguments, gradients=not function.startswith("stacked"))
