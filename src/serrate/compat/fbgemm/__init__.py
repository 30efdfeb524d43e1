"""This package offers FBGEMM's functions for jagged tensors, named as in `torch.ops.fbgemm`, on plain torch tensors.

>>> import torch
>>> from serrate.compat import fbgemm
>>> fbgemm.jagged_to_padded_dense(torch.arange(1.0, 4.0), [torch.tensor([0, 2, 3])], [2])
tensor([[1., 2.],
        [3., 0.]])
"""

from serrate.compat.fbgemm.arithmetic import (
    jagged_dense_dense_elementwise_add_jagged_output,
    jagged_dense_elementwise_add,
    jagged_dense_elementwise_add_jagged_output,
    jagged_dense_elementwise_mul,
)
from serrate.compat.fbgemm.batched_products import (
    batched_dense_vec_jagged_2d_mul,
    jagged_dense_bmm,
    jagged_jagged_bmm,
    jagged_softmax,
)
from serrate.compat.fbgemm.bucketizing import block_bucketize_sparse_features
from serrate.compat.fbgemm.padded_dense import (
    dense_to_jagged,
    jagged_1d_to_dense,
    jagged_2d_to_dense,
    jagged_to_padded_dense,
    stacked_jagged_1d_to_dense,
    stacked_jagged_2d_to_dense,
)
from serrate.compat.fbgemm.segmenting import (
    asynchronous_complete_cumsum,
    offsets_range,
    pack_segments,
    segment_sum_csr,
)
from serrate.compat.fbgemm.selecting import (
    jagged_index_select,
    jagged_slice,
    keyed_jagged_index_select_dim1,
    masked_select_jagged_1d,
)
from serrate.compat.fbgemm.sparse import (
    expand_into_jagged_permute,
    jagged_unique_indices,
    permute_2D_sparse_data,
)
from serrate.tensor.tracing import untraced

__all__ = [
    "asynchronous_complete_cumsum",
    "batched_dense_vec_jagged_2d_mul",
    "block_bucketize_sparse_features",
    "dense_to_jagged",
    "expand_into_jagged_permute",
    "jagged_1d_to_dense",
    "jagged_2d_to_dense",
    "jagged_dense_bmm",
    "jagged_dense_dense_elementwise_add_jagged_output",
    "jagged_dense_elementwise_add",
    "jagged_dense_elementwise_add_jagged_output",
    "jagged_dense_elementwise_mul",
    "jagged_index_select",
    "jagged_jagged_bmm",
    "jagged_slice",
    "jagged_softmax",
    "jagged_to_padded_dense",
    "jagged_unique_indices",
    "keyed_jagged_index_select_dim1",
    "masked_select_jagged_1d",
    "offsets_range",
    "pack_segments",
    "permute_2D_sparse_data",
    "segment_sum_csr",
    "stacked_jagged_1d_to_dense",
    "stacked_jagged_2d_to_dense",
]

for _name in __all__:
    untraced(globals()[_name])
