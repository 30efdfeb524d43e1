"""What describes an embedding table to a collection, by TorchRec's names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import torch


class PoolingType(Enum):
    """How the embeddings of a bag become one."""

    SUM = "SUM"
    MEAN = "MEAN"
    NONE = "NONE"


class DataType(Enum):
    """The element type of a table."""

    FP32 = "FP32"
    FP16 = "FP16"
    BF16 = "BF16"


_DTYPES = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}


@dataclass
class BaseEmbeddingConfig:
    """A table: its size, its name, the features looked up in it, and how its weights start."""

    num_embeddings: int
    embedding_dim: int
    name: str = ""
    data_type: Any = DataType.FP32
    feature_names: list[str] = field(default_factory=list)
    weight_init_max: float | None = field(default=None, kw_only=True)
    weight_init_min: float | None = field(default=None, kw_only=True)
    init_fn: Callable[[torch.Tensor], torch.Tensor | None] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("num_embeddings", "embedding_dim"):
            size = getattr(self, name)
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} of table {self.name!r} must be a positive integer, got {size!r}")
        if self.init_fn is None:
            low, high = self.get_weight_init_min(), self.get_weight_init_max()
            self.init_fn = partial(torch.nn.init.uniform_, a=low, b=high)

    def get_weight_init_max(self) -> float:
        """The greatest value a weight starts with."""
        return math.sqrt(1 / self.num_embeddings) if self.weight_init_max is None else self.weight_init_max

    def get_weight_init_min(self) -> float:
        """The least value a weight starts with."""
        return -math.sqrt(1 / self.num_embeddings) if self.weight_init_min is None else self.weight_init_min

    def num_features(self) -> int:
        """How many features are looked up in the table."""
        return len(self.feature_names)

    @property
    def dtype(self) -> torch.dtype:
        """The element type as torch's."""
        name = getattr(self.data_type, "value", self.data_type)  # TorchRec's own DataType has the same values
        if name not in _DTYPES:
            raise ValueError(f"data_type of table {self.name!r} must be one of {list(_DTYPES)}, got {self.data_type}")
        return _DTYPES[name]


@dataclass
class EmbeddingBagConfig(BaseEmbeddingConfig):
    """A table whose embeddings are pooled, bag by bag.

    >>> from serrate.compat.torchrec import EmbeddingBagConfig
    >>> EmbeddingBagConfig(num_embeddings=100, embedding_dim=8, name="t", feature_names=["f"]).get_weight_init_max()
    0.1
    """

    pooling: Any = field(default=PoolingType.SUM, kw_only=True)


@dataclass
class EmbeddingConfig(BaseEmbeddingConfig):
    """A table whose embeddings stay as many as the values looked up.

    >>> from serrate.compat.torchrec import EmbeddingConfig
    >>> EmbeddingConfig(num_embeddings=4, embedding_dim=8, name="t", feature_names=["f", "g"]).num_features()
    2
    """


def embedding_names(tables: Sequence[BaseEmbeddingConfig]) -> list[list[str]]:
    """For each table the names of what it gives: the feature, or `feature@table` where several tables look it up."""
    uses = [feature for table in tables for feature in table.feature_names]
    return [[f if uses.count(f) == 1 else f"{f}@{table.name}" for f in table.feature_names] for table in tables]


def check_tables(tables: Sequence[BaseEmbeddingConfig], kind: type[BaseEmbeddingConfig]) -> None:
    """Configs of one kind with names of their own; a table without features is looked up under its own name."""
    seen: set[str] = set()
    for table in tables:
        if not isinstance(table, kind):
            raise TypeError(f"tables must be {kind.__name__}s, got {type(table).__name__}")
        if table.name in seen:
            raise ValueError(f"tables must have distinct names, but {table.name!r} is there twice")
        if not table.name or "." in table.name or hasattr(torch.nn.ModuleDict, table.name):
            raise ValueError(f"a table's name must be fit for an entry of nn.ModuleDict, got {table.name!r}")
        seen.add(table.name)
        if not table.feature_names:
            table.feature_names = [table.name]
