"""This module has collections of embedding tables under TorchRec's names, on `nn.EmbeddingBag` and `nn.Embedding`.

Their parameters have the names of TorchRec's too, so that each library loads the state dicts of the other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from serrate.compat.torchrec import joining
from serrate.compat.torchrec.configs import EmbeddingBagConfig, EmbeddingConfig, embedding_names, read_tables
from serrate.compat.torchrec.jagged import JaggedTensor
from serrate.compat.torchrec.keyed import KeyedTensor
from serrate.compat.torchrec.keyed_jagged import KeyedJaggedTensor
from serrate.errors import RaggednessError
from serrate.tensor import host

_MODES = {"SUM": "sum", "MEAN": "mean"}


class EmbeddingBagCollection(nn.Module):
    """Tables whose embeddings are pooled.

    The module takes a KeyedJaggedTensor of ids, and returns a KeyedTensor `[batch, sum of widths]`.

    >>> import torch
    >>> from serrate.compat.torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    >>> table = EmbeddingBagConfig(num_embeddings=10, embedding_dim=4, name="t", feature_names=["user", "friend"])
    >>> bags = EmbeddingBagCollection([table])
    >>> ids = KeyedJaggedTensor(["user", "friend"], torch.arange(5), lengths=torch.tensor([1, 1, 0, 3]))
    >>> bags(ids).values().shape, bags(ids)["friend"].shape
    (torch.Size([2, 8]), torch.Size([2, 4]))
    """

    def __init__(
        self, tables: list[EmbeddingBagConfig], is_weighted: bool = False, device: torch.device | None = None
    ) -> None:
        """Put the tables on `device`; with `is_weighted`, each embedding is multiplied by its weight before the sum."""
        super().__init__()
        tables = read_tables(tables, EmbeddingBagConfig)
        self._tables, self._is_weighted = tables, is_weighted
        self.embedding_bags = nn.ModuleDict()
        for table in tables:
            self.embedding_bags[table.name] = nn.EmbeddingBag(
                table.num_embeddings,
                table.embedding_dim,
                mode=_mode(table, is_weighted),
                include_last_offset=True,
                device=device,
                dtype=table.dtype,
            )
        self._names = [name for names in embedding_names(tables) for name in names]
        self._widths = [table.embedding_dim for table in tables for _ in table.feature_names]
        self._device = _device(self, device)
        self.reset_parameters()

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Return the pooled embeddings of each feature."""
        kjt = _as_kjt(features)
        jts = kjt.to_dict()
        pooled = []
        for table in self._tables:
            bag = self.embedding_bags[table.name]
            for feature in table.feature_names:
                jt = _feature(jts, feature, table.name)
                weights = _weights(jt, feature) if self._is_weighted else None
                pooled.append(_expand(_pool(bag, jt, weights, feature).float(), kjt, feature))
        if not pooled:
            return KeyedTensor([], [], torch.empty(kjt.stride(), 0, device=kjt.device()))
        sizes = {made.shape[0] for made in pooled}
        if len(sizes) > 1:
            raise RaggednessError(
                f"features must have the same number of rows, got {sorted(sizes)}; or pass inverse_indices, which say "
                f"which row an example has"
            )
        return KeyedTensor(self._names, self._widths, torch.cat(pooled, 1))

    def is_weighted(self) -> bool:
        """Return whether the features must have weights."""
        return self._is_weighted

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """Return the descriptions of the tables."""
        return self._tables

    @property
    def device(self) -> torch.device:
        """Where the tables were put."""
        return self._device

    def reset_parameters(self) -> None:
        """Start all weights anew."""
        for table in self._tables:
            _start(table, self.embedding_bags[table.name])


class EmbeddingCollection(nn.Module):
    """Tables whose embeddings are not pooled.

    The module takes a KeyedJaggedTensor of ids, and returns for each feature a JaggedTensor with one embedding per id.

    >>> import torch
    >>> from serrate.compat.torchrec import EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor
    >>> table = EmbeddingConfig(num_embeddings=10, embedding_dim=4, name="t", feature_names=["f"])
    >>> ids = KeyedJaggedTensor(["f"], torch.arange(3), lengths=torch.tensor([1, 2]))
    >>> EmbeddingCollection([table])(ids)["f"].tensor.shape
    (2, Ragged([1, 2]), 4)
    """

    def __init__(
        self, tables: list[EmbeddingConfig], device: torch.device | None = None, need_indices: bool = False
    ) -> None:
        """Put the tables, which must have one width, on `device`.

        With `need_indices`, the ids are the weights of the result.
        """
        super().__init__()
        tables = read_tables(tables, EmbeddingConfig)
        widths = {table.embedding_dim for table in tables}
        if len(widths) > 1:
            raise ValueError(f"tables of an EmbeddingCollection must have one embedding_dim, got {sorted(widths)}")
        self._tables, self._need_indices = tables, need_indices
        self.embeddings = nn.ModuleDict()
        for table in tables:
            made = nn.Embedding(table.num_embeddings, table.embedding_dim, device=device, dtype=table.dtype)
            self.embeddings[table.name] = made
            _start(table, made)
        self._names = embedding_names(tables)
        self._device = _device(self, device)

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        """Return the embeddings of each feature, in the rows of its ids."""
        jts = _as_kjt(features).to_dict()
        found: dict[str, JaggedTensor] = {}
        for table, names in zip(self._tables, self._names, strict=True):
            for feature, name in zip(table.feature_names, names, strict=True):
                jt = _feature(jts, feature, table.name)
                looked_up = _look_up(self.embeddings[table.name], {"input": jt.values()}, feature).float()
                found[name] = JaggedTensor._rows(looked_up, jt._partition, jt.values() if self._need_indices else None)
        return found

    def need_indices(self) -> bool:
        """Return whether results have the ids as weights."""
        return self._need_indices

    def embedding_dim(self) -> int:
        """Return the width of every table, or -1 if there are no tables."""
        return self._tables[0].embedding_dim if self._tables else -1

    def embedding_configs(self) -> list[EmbeddingConfig]:
        """Return the descriptions of the tables."""
        return self._tables

    def embedding_names_by_table(self) -> list[list[str]]:
        """Return for each table its keys in the result."""
        return self._names

    @property
    def device(self) -> torch.device:
        """Where the tables were put."""
        return self._device

    def reset_parameters(self) -> None:
        """Start all weights anew."""
        for table in self._tables:
            _start(table, self.embeddings[table.name])


def _mode(table: EmbeddingBagConfig, is_weighted: bool) -> str:
    mode = _MODES.get(getattr(table.pooling, "value", ""))
    if mode is None:
        raise ValueError(f"pooling of table {table.name!r} must be SUM or MEAN, got {table.pooling}")
    if is_weighted and mode != "sum":
        raise ValueError(f"is_weighted=True needs SUM pooling, but table {table.name!r} has {table.pooling}")
    return mode


def _device(module: nn.Module, given: Any) -> torch.device:
    first = next(module.parameters(), None)
    return torch.device(given or "cpu") if first is None else first.device


def _start(table: Any, module: nn.Module) -> None:
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    if not weight.is_meta:
        table.init_fn(weight)


def _as_kjt(features: Any) -> KeyedJaggedTensor:
    if isinstance(features, KeyedJaggedTensor):
        return features
    if hasattr(features, "stride_per_key_per_rank"):
        return KeyedJaggedTensor.from_torchrec(features)
    raise TypeError(f"features must be a KeyedJaggedTensor, got {type(features).__name__}")


def _feature(jts: dict[str, JaggedTensor], feature: str, table: str) -> JaggedTensor:
    if feature not in jts:
        raise KeyError(f"table {table!r} looks up feature {feature!r}, but the keys are {list(jts)}")
    return jts[feature]


def _weights(jt: JaggedTensor, feature: str) -> torch.Tensor:
    weights = jt.weights_or_none()
    if weights is None:
        raise ValueError(f"is_weighted=True needs weights, but feature {feature!r} has none")
    return weights


def _pool(bag: Any, jt: JaggedTensor, weights: torch.Tensor | None, feature: str) -> torch.Tensor:
    """Call `bag` for a feature as TorchRec does, so that a user may put another module in its place."""
    offsets = jt._partition.offsets_on(jt.device())
    if not getattr(bag, "include_last_offset", True):
        offsets = offsets[:-1]
    if weights is not None and isinstance(bag, nn.EmbeddingBag) and weights.dtype != bag.weight.dtype:
        weights = weights.to(bag.weight.dtype)
    return _look_up(bag, {"input": jt.values(), "offsets": offsets, "per_sample_weights": weights}, feature)


def _look_up(module: Any, options: dict[str, Any], feature: str) -> torch.Tensor:
    """Return `module(**options)`; an id outside the table is an IndexError, which on a device a later call raises."""
    ids = options["input"]
    if not isinstance(module, (nn.EmbeddingBag, nn.Embedding)):
        return module(**options)  # type: ignore[no-any-return]
    if ids.is_cuda:  # CUDA kernels do not check the ids.
        _report(ids, module, feature)
        options["input"] = ids.clamp(0, module.num_embeddings - 1)
    try:
        return module(**options)  # type: ignore[no-any-return]
    except (RuntimeError, IndexError):
        _report(ids, module, feature)
        raise


def _report(ids: torch.Tensor, module: Any, feature: str) -> None:
    """Raise an IndexError for the first id that the table does not have."""
    rows, flat = module.num_embeddings, ids.reshape(-1)

    def error(i: int) -> IndexError:
        return IndexError(
            f"feature {feature!r} holds index {int(flat[i])}, which is out of range for a table of {rows} rows"
        )

    host.defer(host.first_fault((flat < 0) | (flat >= rows)), error)


def _expand(pooled: torch.Tensor, kjt: KeyedJaggedTensor, feature: str) -> torch.Tensor:
    """Return for each example the row that the inverse indices name, or `pooled` if there are none."""
    rows = joining.inverse_rows(kjt, [feature])
    return pooled if rows is None else pooled.index_select(0, rows[1][0])
