"""Taking keyed jagged tensors apart and putting them together: keys, examples, batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from serrate.compat.torchrec import checks
from serrate.compat.torchrec.jagged import JaggedTensor
from serrate.compat.torchrec.strides import Strides
from serrate.errors import RaggednessError
from serrate.ops.table import TABLE
from serrate.tensor.structure import Ragged, Structure
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.compat.torchrec.keyed_jagged import KeyedJaggedTensor


def flat(kjt: KeyedJaggedTensor) -> JaggedTensor:
    """The rows of all keys, key by key, without their keys; nothing is copied."""
    rows = kjt._partition
    tensor = Tensor(kjt.values(), Structure((rows.num_components, Ragged(rows))))
    return JaggedTensor._of(tensor, kjt._weights)


def _concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    return TABLE["concat"].eager(tensors, axis=axis)  # type: ignore[no-any-return]


def check_inverse(given: Any, keys: Sequence[str], strides: Strides) -> Any:
    """Inverse indices `(keys, [keys, batch])` that name the keys there are."""
    if given is None:
        return None
    names, indices = list(given[0]), given[1]
    if not isinstance(indices, torch.Tensor) or indices.is_floating_point() or indices.ndim != 2:
        raise TypeError("inverse_indices must be (keys, an integer tensor [keys, batch])")
    if set(names) != set(keys) or indices.shape[0] != len(names):
        raise KeyError(f"inverse_indices must have a row for each of the keys {list(keys)}, got {names}")
    if strides.ranks is not None and indices.shape[1] != strides.stride:
        raise RaggednessError(f"inverse_indices must have {strides.stride} columns, the stride, got {indices.shape[1]}")
    return names, indices


def inverse_rows(kjt: KeyedJaggedTensor, keys: Sequence[str]) -> Any:
    """The inverse indices of these keys, None if there are none."""
    if kjt._inverse is None:
        return None
    names, indices = kjt._inverse
    if names == list(keys):
        return list(keys), indices
    return list(keys), indices[[names.index(key) for key in keys]]


# ------------------------------------------------------------------------------------------------------------ take


def one_key(kjt: KeyedJaggedTensor, index: int) -> JaggedTensor:
    """The rows of the key at `index`; a view."""
    tensor = kjt._tensor[index]
    weights = kjt.weight_tensor
    return JaggedTensor._of(tensor, None if weights is None else weights[index].values)


def select_keys(kjt: KeyedJaggedTensor, indices: list[int]) -> KeyedJaggedTensor:
    """The keys at `indices`, in that order."""
    count = len(kjt._keys)
    wrong = next((i for i in indices if not 0 <= i < count), None)
    if wrong is not None:
        raise IndexError(f"indices must name keys 0 … {count - 1}, got {wrong}")
    keys = checks.distinct([kjt._keys[i] for i in indices], "permuted KeyedJaggedTensor")
    return _picked(kjt, keys, indices, indices)


def split(kjt: KeyedJaggedTensor, segments: list[int]) -> list[KeyedJaggedTensor]:
    """Consecutive runs of keys."""
    count = len(kjt._keys)
    if min(segments, default=0) < 0 or sum(segments) != count:
        raise ValueError(f"segments must sum to the number of keys, {count}, got {segments}")
    pieces, start = [], 0
    for segment in segments:
        run = range(start, start + segment)
        pieces.append(_picked(kjt, kjt._keys[start : run.stop], slice(start, run.stop), run))
        start = run.stop
    return pieces


def _picked(kjt: KeyedJaggedTensor, keys: list[str], index: Any, numbers: Sequence[int]) -> KeyedJaggedTensor:
    weights = kjt.weight_tensor
    made = None if weights is None else weights[index].values
    strides = kjt._strides.pick(numbers)
    return type(kjt)._of(keys, kjt._tensor[index], made, strides, inverse_rows(kjt, keys))


def select_batch(kjt: KeyedJaggedTensor, indices: Any) -> KeyedJaggedTensor:
    """Examples of the batch; where inverse indices say which row stands for an example, only they change."""
    if isinstance(indices, (int, str)) or not isinstance(indices, (list, tuple, range, slice, torch.Tensor)):
        raise TypeError(f"examples are chosen by a list, a tensor or a slice of numbers, got {indices!r:.60}")
    indices = list(indices) if isinstance(indices, (tuple, range)) else indices
    if kjt._inverse is not None:
        names, rows = kjt._inverse
        rows = rows[:, indices]
        strides = Strides(kjt._strides.count, rows.shape[1], kjt._strides.varied())
        return type(kjt)._of(kjt._keys, kjt._tensor, kjt._weights, strides, (names, rows))
    tensor = kjt._tensor[:, indices]
    weights = None if kjt.weight_tensor is None else kjt.weight_tensor[:, indices].values
    batch = tensor.shape[1]
    if isinstance(batch, Ragged):
        sizes = batch.partition.host_offsets().diff().tolist()
        strides = Strides(len(sizes), max(sizes, default=0), tuple((size,) for size in sizes))
    else:
        strides = Strides(len(kjt._keys), batch)
    return type(kjt)._of(kjt._keys, tensor, weights, strides)


# ------------------------------------------------------------------------------------------------------------ join


def from_jt_dict(kind: type[KeyedJaggedTensor], jts: dict[str, JaggedTensor]) -> KeyedJaggedTensor:
    """One key per jagged tensor."""
    if not jts:
        raise ValueError("from_jt_dict needs at least one JaggedTensor; KeyedJaggedTensor.empty() has no keys")
    weights = checks.all_or_none([jt.weights_or_none() for jt in jts.values()], "the JaggedTensors")
    sizes = [len(jt.tensor) for jt in jts.values()]
    same = len(set(sizes)) == 1
    strides = Strides(len(sizes), max(sizes), None if same else tuple((size,) for size in sizes))
    rows = _concat([jt.tensor for jt in jts.values()], 0)
    keys = checks.distinct(list(jts), "KeyedJaggedTensor")
    return kind._of(keys, strides.arrange(rows), None if weights is None else torch.cat(weights), strides).sync()


def concat_keys(kind: type[KeyedJaggedTensor], kjts: Sequence[KeyedJaggedTensor]) -> KeyedJaggedTensor:
    """All keys over one batch."""
    if not kjts:
        raise ValueError("concat needs at least one KeyedJaggedTensor")
    keys = checks.distinct([key for kjt in kjts for key in kjt._keys], "joined KeyedJaggedTensor")
    weights = checks.all_or_none([kjt._weights for kjt in kjts], "the KeyedJaggedTensors")
    inverse = _all_inverse(kjts)
    strides = {kjt.stride() for kjt in kjts}
    varied = any(kjt.variable_stride_per_key() for kjt in kjts)
    if len(strides) > 1 and (inverse or not varied):
        raise ValueError(f"KeyedJaggedTensors of one batch must have one stride, got {sorted(strides)}")
    ranks = tuple(rank for kjt in kjts for rank in kjt._strides.varied()) if varied else None
    joined = Strides(len(keys), max(strides), ranks)
    rows = _concat([flat(kjt).tensor for kjt in kjts], 0)
    found = ([key for kjt in kjts for key in kjt.inverse_indices()[0]], torch.cat(inverse)) if inverse else None
    return kind._of(keys, joined.arrange(rows), None if weights is None else torch.cat(weights), joined, found)


def concat_batches(kind: type[KeyedJaggedTensor], kjts: Sequence[KeyedJaggedTensor]) -> KeyedJaggedTensor:
    """All examples, one batch after another."""
    if not kjts:
        raise ValueError("concat_batches needs at least one KeyedJaggedTensor")
    keys = kjts[0]._keys
    other = next((kjt._keys for kjt in kjts if set(kjt._keys) != set(keys)), None)
    if other is not None:
        raise KeyError(f"batches to join must have the same keys, got {keys} and {other}")
    kjts = [kjt if kjt._keys == keys else kjt.permute([kjt._keys.index(key) for key in keys]) for kjt in kjts]
    checks.all_or_none([kjt._weights for kjt in kjts], "the KeyedJaggedTensors")
    inverse = _all_inverse(kjts)
    varied = any(kjt.variable_stride_per_key() for kjt in kjts)
    jagged = [_varied(kjt) if varied else kjt for kjt in kjts]
    weights = [tensor for kjt in jagged if (tensor := kjt.weight_tensor) is not None]
    sizes = [sum(of_key) for of_key in zip(*[kjt.stride_per_key() for kjt in kjts], strict=True)]
    batch = sum(kjt.stride() for kjt in kjts) if inverse or not varied else max(sizes, default=0)
    strides = Strides(len(keys), batch, tuple((size,) for size in sizes) if varied else None)
    tensor = _concat([kjt._tensor for kjt in jagged], 1)
    made = _concat(weights, 1).values if weights else None
    return kind._of(list(keys), tensor, made, strides, _shifted(kjts, keys) if inverse else None)


def _all_inverse(kjts: Sequence[KeyedJaggedTensor]) -> list[torch.Tensor] | None:
    found = [None if kjt._inverse is None else kjt._inverse[1] for kjt in kjts]
    there = [indices for indices in found if indices is not None]
    if there and len(there) != len(found):
        raise ValueError("either all KeyedJaggedTensors to join have inverse indices or none")
    return there or None


def _varied(kjt: KeyedJaggedTensor) -> KeyedJaggedTensor:
    """The same with a ragged batch axis, also where all keys have as many rows."""
    strides = Strides(kjt._strides.count, kjt._strides.stride, kjt._strides.varied())
    return type(kjt)._of(kjt._keys, strides.arrange(flat(kjt).tensor), kjt._weights, strides)


def _shifted(kjts: Sequence[KeyedJaggedTensor], keys: list[str]) -> Any:
    """Inverse indices of joined batches: those of a later batch count from the rows before it."""
    pieces, before = [], [0] * len(keys)
    for kjt in kjts:
        rows = inverse_rows(kjt, keys)[1]
        pieces.append(rows + torch.tensor(before, dtype=rows.dtype, device=rows.device)[:, None])
        before = [start + size for start, size in zip(before, kjt.stride_per_key(), strict=True)]
    return list(keys), torch.cat(pieces, 1)
