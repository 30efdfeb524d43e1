"""What `benchmarks.compat` measures of selections, of sums by segments and of sparse features."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.tensor import lengths_of
from benchmarks.timing import Case

FEATURES, WIDTH, BUCKETS = 26, 128, 8


def short_lengths(rows: int) -> torch.Tensor:
    """Lengths of mean 20, shaped as those of a corpus."""
    return lengths_of("mnli", rows) * 20 // 44


def rows_cases(rows: int) -> Iterator[Case]:
    """Selections and sums of so many rows."""
    torch.manual_seed(0)
    lengths = short_lengths(rows)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    vector, matrix = torch.randn(int(offsets[-1])), torch.randn(int(offsets[-1]), WIDTH)
    start = (torch.rand(rows) * (lengths + 1)).long()
    title = f"{rows} rows"
    yield Case(title, "jagged_index_select", (matrix, lengths, torch.randint(0, rows, (rows,))), gradients=True)
    yield Case(title, "jagged_slice", (vector, lengths, start, 10), gradients=True)
    yield Case(title, "masked_select_jagged_1d", (vector, lengths, torch.rand(vector.shape) < 0.5))
    yield Case(f"{title}, floats", "segment_sum_csr", (1, offsets, vector))
    yield Case(title, "pack_segments", (matrix, lengths, int(lengths.max())), gradients=True)
    yield Case(f"{title}, cut off", "pack_segments", (matrix, lengths, 20), gradients=True)


def keyed_cases(batch: int) -> Iterator[Case]:
    """Sparse features of so many samples."""
    torch.manual_seed(0)
    lengths = short_lengths(FEATURES * batch)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    total = int(offsets[-1])
    ids, weights = torch.randint(0, 800_000, (total,)), torch.rand(total)
    permute = torch.randperm(FEATURES, dtype=torch.int32)
    features = torch.arange(FEATURES + 1, dtype=torch.int32) * batch
    blocks = 100_001 + torch.arange(FEATURES) * 1000
    keyed = lengths.view(FEATURES, batch)
    title = f"{FEATURES} features × {batch}"
    narrow = f"{title}, int32"
    yield Case(f"{title}, lengths", "segment_sum_csr", (1, features, lengths.int()))
    yield Case(title, "asynchronous_complete_cumsum", (lengths,))
    yield Case(narrow, "asynchronous_complete_cumsum", (lengths.int(),))
    yield Case(title, "offsets_range", (offsets[:-1].clone(), total))
    yield Case(narrow, "offsets_range", (offsets[:-1].int(), total))
    yield Case(title, "permute_2D_sparse_data", (permute, keyed, ids))
    yield Case(f"{title}, weights", "permute_2D_sparse_data", (permute, keyed, ids, weights))
    yield Case(f"{title}, floats", "permute_2D_sparse_data", (permute, keyed, weights), gradients=True)
    yield Case(title, "expand_into_jagged_permute", (permute, features, _permuted(permute, batch), FEATURES * batch))
    bucketize = "block_bucketize_sparse_features"
    yield Case(title, bucketize, (lengths, ids, False, False, blocks, BUCKETS))
    yield Case(f"{title}, all", bucketize, (lengths, ids, True, True, blocks, BUCKETS, weights))
    yield Case(narrow, bucketize, (lengths.int(), ids.int(), False, True, blocks.int(), BUCKETS))


def _permuted(permute: torch.Tensor, batch: int) -> torch.Tensor:
    """The offsets of features of one size, in any order."""
    return torch.arange(permute.numel() + 1, dtype=torch.int32) * batch
