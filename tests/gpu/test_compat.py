"""The drop-in faces on the GPU: every function gives what it gives on the host, gradients too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import serrate as sr
from serrate.compat import fbgemm
from serrate.compat.torchrec import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    JaggedTensor,
    KeyedJaggedTensor,
    PoolingType,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

LENGTHS = torch.tensor([3, 0, 5, 1])
OFFSETS = torch.tensor([0, 3, 3, 8, 9])
OUTER = torch.tensor([0, 2, 4])


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)


CALLS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "jagged_to_padded_dense": lambda: (floats(9, 4), [OUTER, OFFSETS], [2, 4], 0.5),
    "jagged_1d_to_dense": lambda: (floats(9), OFFSETS, 4, 1),
    "jagged_2d_to_dense": lambda: (floats(9, 4), OFFSETS, 6),
    "dense_to_jagged": lambda: (floats(4, 4, 3), [OFFSETS]),
    "jagged_dense_elementwise_add": lambda: (floats(9, 4), [OFFSETS], floats(4, 5, 4)),
    "jagged_dense_elementwise_add_jagged_output": lambda: (floats(9, 4), [OFFSETS], floats(4, 4, 4)),
    "jagged_dense_dense_elementwise_add_jagged_output": lambda: (
        floats(9, 4), [OFFSETS], floats(4, 4, 4), floats(4, 4, 4),
    ),
    "jagged_dense_elementwise_mul": lambda: (floats(9, 4), [OFFSETS], floats(4, 4, 4)),
    "jagged_dense_bmm": lambda: (floats(9, 4), OFFSETS, floats(4, 4, 3), 4),
    "jagged_jagged_bmm": lambda: (floats(9, 4), floats(9, 3), OFFSETS, 4),
    "batched_dense_vec_jagged_2d_mul": lambda: (floats(4, 5), floats(9, 4), OFFSETS),
    "jagged_softmax": lambda: (floats(9, 4), OFFSETS, 4),
    "stacked_jagged_1d_to_dense": lambda: (floats(9), LENGTHS.view(2, 2), [0, 3, 9], [3, 4], 0),
    "stacked_jagged_2d_to_dense": lambda: (floats(9, 4), LENGTHS.view(2, 2), [0, 3, 9], [3, 4], 0),
    "jagged_index_select": lambda: (floats(9, 4), LENGTHS, torch.tensor([2, 0, 2])),
    "jagged_slice": lambda: (floats(9), LENGTHS, torch.tensor([1, 0, 2, 0]), 2),
    "masked_select_jagged_1d": lambda: (floats(9), LENGTHS, torch.arange(9) % 2 == 0),
    "segment_sum_csr": lambda: (1, OFFSETS, floats(9)),
    "asynchronous_complete_cumsum": lambda: (LENGTHS,),
    "offsets_range": lambda: (OFFSETS[:-1].clone(), 9),
    "pack_segments": lambda: (floats(9, 4), LENGTHS, 4),
    "permute_2D_sparse_data": lambda: (
        torch.tensor([1, 0], dtype=torch.int32), LENGTHS.view(2, 2), torch.arange(9), torch.arange(9.0),
    ),
    "expand_into_jagged_permute": lambda: (
        torch.tensor([1, 0], dtype=torch.int32),
        torch.tensor([0, 3, 9], dtype=torch.int32), torch.tensor([0, 6, 9], dtype=torch.int32), 9,
    ),
    "keyed_jagged_index_select_dim1": lambda: (floats(9), LENGTHS, OFFSETS, torch.tensor([1, 0, 1]), 2),
    "jagged_unique_indices": lambda: (
        torch.tensor([0, 10, 20]), torch.tensor([0, 1, 2]), OFFSETS, torch.tensor([1, 2, 1, 5, 5, 7, 1, 5, 2]),
    ),
    "block_bucketize_sparse_features": lambda: (
        LENGTHS, torch.arange(9), True, True, torch.tensor([5, 5]), 2, torch.arange(9.0),
    ),
}  # fmt: skip


def on(device: str, given: Any) -> Any:
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, given)


def test_every_function_has_a_call() -> None:
    assert set(CALLS) == set(fbgemm.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_fbgemm_as_on_the_host(name: str) -> None:
    function = getattr(fbgemm, name)
    found = {}
    for device in ("cpu", "cuda"):
        given = on(device, CALLS[name]())
        leaves = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64]
        for leaf in leaves:
            leaf.requires_grad_()
        made = [part for part in tree_leaves(function(*given)) if isinstance(part, torch.Tensor)]
        assert all(part.device.type == device for part in made)
        total = sum((part * part).sum() for part in made if part.requires_grad)
        gradients = torch.autograd.grad(total, leaves) if isinstance(total, torch.Tensor) else ()
        found[device] = [part.detach().cpu() for part in (*made, *gradients)]
    sr.testing.raise_deferred()
    for host, there in zip(found["cpu"], found["cuda"], strict=True):
        torch.testing.assert_close(there, host)


@pytest.mark.parametrize("pooling", [PoolingType.SUM, PoolingType.MEAN])
def test_embedding_collection_as_on_the_host(pooling: PoolingType) -> None:
    tables = [
        EmbeddingBagConfig(
            name="user_table", embedding_dim=4, num_embeddings=10, feature_names=["user"], pooling=pooling
        ),
        EmbeddingBagConfig(
            name="item_table", embedding_dim=3, num_embeddings=10, feature_names=["item"], pooling=pooling
        ),
    ]
    collection = EmbeddingBagCollection(tables=tables)
    keyed = KeyedJaggedTensor(["user", "item"], torch.arange(9) % 7, lengths=LENGTHS)
    want = collection(keyed)
    got = collection.cuda()(keyed.to(torch.device("cuda")))
    torch.testing.assert_close(got.values().cpu(), want.values())
    got.values().sum().backward()
    assert all(weight.grad is not None and weight.grad.is_cuda for weight in collection.parameters())


def test_jagged_tensor_there_and_back() -> None:
    rows = JaggedTensor(floats(9, 2), lengths=LENGTHS).to(torch.device("cuda"))
    assert [row.cpu().tolist() for row in rows.to_dense()] == [
        row.tolist() for row in JaggedTensor(floats(9, 2), lengths=LENGTHS).to_dense()
    ]


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "int8", "float32", "complex64"])
def test_arithmetic_by_the_standard(dtype: str) -> None:
    x, y = sr.asarray([1, 2, 7], dtype=getattr(sr, dtype)), sr.asarray([3, 2, 1], dtype=getattr(sr, dtype))
    for name in ("add", "subtract", "multiply", "equal"):
        function = getattr(sr, name)
        assert function(x.to_device("cuda"), y.to_device("cuda")).tolist() == function(x, y).tolist()
    assert (x.to_device("cuda") + 1).tolist() == (x + 1).tolist()
    assert sr.sum(x.to_device("cuda")).tolist() == sr.sum(x).tolist()


def test_a_number_on_the_host_goes_with_a_tensor_on_the_device() -> None:
    x = sr.asarray([1.0, 2.0], device="cuda")
    with sr.testing.forbid_sync():
        made = [x + 1, x * sr.asarray(2.0), sr.full((2,), x[0]), x % 2, x // 3.0, sr.maximum(x, 1.5), sr.expm1(x)]
    assert made[1].tolist() == [2.0, 4.0]
    assert made[2].tolist() == [1.0, 1.0]
