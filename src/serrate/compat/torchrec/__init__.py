"""This package offers TorchRec's jagged and keyed tensors and its embedding collections, for one process.

Arguments are checked. A program that uses TorchRec needs only another import line.

>>> import torch
>>> from serrate.compat.torchrec import KeyedJaggedTensor
>>> KeyedJaggedTensor(["user"], torch.arange(3), lengths=torch.tensor([1, 2])).to_dict()["user"].to_dense()
[tensor([0]), tensor([1, 2])]
"""

from serrate.compat.torchrec.configs import DataType, EmbeddingBagConfig, EmbeddingConfig, PoolingType
from serrate.compat.torchrec.jagged import JaggedTensor
from serrate.compat.torchrec.keyed import KeyedTensor
from serrate.compat.torchrec.keyed_jagged import KeyedJaggedTensor
from serrate.compat.torchrec.modules import EmbeddingBagCollection, EmbeddingCollection

__all__ = [
    "DataType",
    "EmbeddingBagCollection",
    "EmbeddingBagConfig",
    "EmbeddingCollection",
    "EmbeddingConfig",
    "JaggedTensor",
    "KeyedJaggedTensor",
    "KeyedTensor",
    "PoolingType",
]
