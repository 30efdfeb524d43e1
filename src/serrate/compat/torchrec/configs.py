"""This module describes embedding tables to collections, under TorchRec's names."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any, TypeVar

import torch


class PoolingType(Enum):
    """The way in which the embeddings of a bag become one embedding."""

    SUM = "SUM"
    MEAN = "MEAN"
    NONE = "NONE"


class DataType(Enum):
    """The element type of a table."""

    FP32 = "FP32"
    FP16 = "FP16"
    BF16 = "BF16"


_DTYPES = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}

# These fields have a meaning only for sharded, pruned or virtual tables of TorchRec.
_NOT_OFFERED = (
    "num_embeddings_post_pruning",
    "need_pos",
    "input_dim",
    "total_num_buckets",
    "use_virtual_table",
    "virtual_table_eviction_policy",
    "enable_embedding_update",
    "stash_weights",
)


@dataclass
class BaseEmbeddingConfig:
    """An embedding table: its size, its name, the features that are looked up in it, and its first weights."""

    num_embeddings: int
    embedding_dim: int
    name: str = ""
    data_type: Any = DataType.FP32
    feature_names: list[str] = field(default_factory=list)
    weight_init_max: float | None = None
    weight_init_min: float | None = None
    num_embeddings_post_pruning: int | None = None
    init_fn: Callable[[torch.Tensor], torch.Tensor | None] | None = None
    need_pos: bool = False
    input_dim: int | None = None
    total_num_buckets: int | None = None
    use_virtual_table: bool = False
    virtual_table_eviction_policy: Any = None
    enable_embedding_update: bool = False
    stash_weights: bool = False

    def __post_init__(self) -> None:
        for name in ("num_embeddings", "embedding_dim"):
            size = getattr(self, name)
            if isinstance(size, bool) or not hasattr(size, "__index__") or operator.index(size) < 1:
                raise ValueError(f"{name} of table {self.name!r} must be a positive integer, got {size!r}")
            setattr(self, name, operator.index(size))
        for name in _NOT_OFFERED:
            if getattr(self, name):
                raise ValueError(
                    f"{name} of table {self.name!r} is not supported and must be left out, got {getattr(self, name)!r}"
                )
        if isinstance(self.feature_names, str):
            raise TypeError(f"feature_names of table {self.name!r} must be a list, got {self.feature_names!r}")
        if len(set(self.feature_names)) != len(self.feature_names):
            raise ValueError(f"feature_names of table {self.name!r} must be distinct, got {self.feature_names}")
        if self.init_fn is None:
            low, high = self.get_weight_init_min(), self.get_weight_init_max()
            self.init_fn = partial(torch.nn.init.uniform_, a=low, b=high)

    def get_weight_init_max(self) -> float:
        """Return the largest first value of a weight."""
        return math.sqrt(1 / self.num_embeddings) if self.weight_init_max is None else self.weight_init_max

    def get_weight_init_min(self) -> float:
        """Return the smallest first value of a weight."""
        return -math.sqrt(1 / self.num_embeddings) if self.weight_init_min is None else self.weight_init_min

    def num_features(self) -> int:
        """Return how many features are looked up in the table."""
        return len(self.feature_names)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the elements."""
        name = getattr(self.data_type, "value", self.data_type)  # TorchRec's DataType has the same values
        if name not in _DTYPES:
            raise ValueError(f"data_type of table {self.name!r} must be one of {list(_DTYPES)}, got {self.data_type}")
        return _DTYPES[name]


@dataclass
class EmbeddingBagConfig(BaseEmbeddingConfig):
    """A table of which a collection pools the embeddings of each bag.

    >>> from serrate.compat.torchrec import EmbeddingBagConfig
    >>> EmbeddingBagConfig(num_embeddings=100, embedding_dim=8, name="t", feature_names=["f"]).get_weight_init_max()
    0.1
    """

    pooling: Any = PoolingType.SUM


@dataclass
class EmbeddingConfig(BaseEmbeddingConfig):
    """A table of which a collection returns one embedding for each value that is looked up.

    >>> from serrate.compat.torchrec import EmbeddingConfig
    >>> EmbeddingConfig(num_embeddings=4, embedding_dim=8, name="t", feature_names=["f", "g"]).num_features()
    2
    """


Config = TypeVar("Config", bound=BaseEmbeddingConfig)


def embedding_names(tables: Sequence[BaseEmbeddingConfig]) -> list[list[str]]:
    """Return for each table the names of its results: the feature, or `feature@table` if several tables look it up."""
    uses = [feature for table in tables for feature in table.feature_names]
    return [[f if uses.count(f) == 1 else f"{f}@{table.name}" for f in table.feature_names] for table in tables]


def read_tables(tables: Sequence[Any], kind: type[Config]) -> list[Config]:
    """Return configs of one kind, which must have distinct names.

    A table without feature names gets its own name as the name of its feature.
    """
    made: list[Config] = []
    for given in tables:
        table = _read(given, kind)
        if any(table.name == other.name for other in made):
            raise ValueError(f"tables must have distinct names, but {table.name!r} is there twice")
        if not table.name or "." in table.name or hasattr(torch.nn.ModuleDict, table.name):
            raise ValueError(f"the name of a table must be allowed as a key of nn.ModuleDict, got {table.name!r}")
        if not table.feature_names:
            table.feature_names = [table.name]
        made.append(table)
    return made


def _read(given: Any, kind: type[Config]) -> Config:
    """Return a config of this library, or convert the config of TorchRec that has the same class name."""
    if isinstance(given, kind):
        return given
    if type(given).__name__ == kind.__name__ and is_dataclass(given):
        return kind(**{each.name: getattr(given, each.name) for each in fields(kind) if hasattr(given, each.name)})
    raise TypeError(f"tables must be {kind.__name__}s, got {type(given).__module__}.{type(given).__name__}")
