"""This module takes keyed jagged tensors apart and joins them, by keys, by examples and by batches."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from serrate.compat.torchrec import checks
from serrate.compat.torchrec.jagged import JaggedTensor
from serrate.compat.torchrec.strides import Strides
from serrate.errors import RaggednessError
from serrate.ops.record import TABLE
from serrate.tensor import host
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.compat.torchrec.keyed_jagged import KeyedJaggedTensor


def flat(kjt: KeyedJaggedTensor) -> JaggedTensor:
    """Return the rows of all keys, key by key, without the keys; nothing is copied."""
    return JaggedTensor._rows(kjt.values(), kjt._partition, kjt._weights)


def _concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    return TABLE["concat"].function(tensors, axis=axis)  # type: ignore[no-any-return]


def _stack_rows(parts: Sequence[JaggedTensor | KeyedJaggedTensor]) -> tuple[torch.Tensor, Partition]:
    """Return the values of all parts, one part after another, and the partition of these values into rows."""
    values, rows = [part.values() for part in parts], [part._partition for part in parts]
    if all(p.is_host_born for p in rows) and len({(v.dtype, v.device, v.shape[1:]) for v in values}) == 1:
        widest = max(rows, key=lambda p: p.dtype == torch.int64)
        return torch.cat(values), widest.with_lengths(torch.cat([torch.diff(p.offsets) for p in rows]))
    joined = _concat([JaggedTensor._rows(v, p, None).tensor for v, p in zip(values, rows, strict=True)], 0)
    return joined.values, joined.partitions[0]


def read_inverse(given: Any, keys: Sequence[str]) -> Any:
    """Check the form of inverse indices `(keys, [keys, batch])`, which must name each key once, and return them."""
    if given is None:
        return None
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(f"inverse_indices must be a pair (keys, an integer tensor [keys, batch]), got {given!r:.60}")
    names, indices = checks.distinct(given[0], "pair of inverse_indices"), given[1]
    if not isinstance(indices, torch.Tensor):
        raise TypeError(f"the rows of inverse_indices must be a torch.Tensor, got {type(indices).__name__}")
    if indices.dtype not in (torch.int32, torch.int64) or indices.ndim != 2:
        raise TypeError(
            f"the rows of inverse_indices must be an integer tensor [keys, batch], got {indices.dtype} of shape "
            f"{list(indices.shape)}"
        )
    if set(names) != set(keys) or indices.shape[0] != len(names):
        raise KeyError(f"inverse_indices must have a row for each of the keys {list(keys)}, got {names}")
    return names, indices


def check_inverse(inverse: Any, keys: Sequence[str], strides: Strides) -> None:
    """Raise an error unless inverse indices have a column for each example and name rows that the key has."""
    if inverse is None:
        return
    names, indices = inverse
    if strides.ranks is not None and indices.shape[1] != strides.stride:
        raise RaggednessError(f"inverse_indices must have {strides.stride} columns, the stride, got {indices.shape[1]}")
    of_key = dict(zip(keys, strides.per_key, strict=True))
    sizes = host.send(torch.tensor([of_key[name] for name in names], dtype=torch.int64), indices.device)
    wrong = (indices < 0) | (indices >= sizes[:, None])

    def error(i: int) -> IndexError:
        name = names[i // indices.shape[1]]
        return IndexError(
            f"inverse_indices must name rows 0 … {of_key[name] - 1} of key {name!r}, got {int(indices.reshape(-1)[i])}"
        )

    host.defer(host.first_fault(wrong.reshape(-1)), error)


def inverse_rows(kjt: KeyedJaggedTensor, keys: Sequence[str]) -> Any:
    """Return the inverse indices of these keys, or None if there are no inverse indices."""
    if kjt._inverse is None:
        return None
    names, indices = kjt._inverse
    if names == list(keys):
        return list(keys), indices
    return list(keys), indices[[names.index(key) for key in keys]]


# ---------------------------------------------------------------------------------------------------- taking apart


def one_key(kjt: KeyedJaggedTensor, index: int) -> JaggedTensor:
    """Return the rows of the key at `index` as a view."""
    first, last = kjt.offset_per_key()[index : index + 2]
    start, stop = kjt._strides.offsets[index : index + 2]
    rows = _run(kjt._partition, start, stop, first, last)
    weights = None if kjt._weights is None else kjt._weights.narrow(0, first, last - first)
    return JaggedTensor._rows(kjt.values().narrow(0, first, last - first), rows, weights)


def every_key(kjt: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
    """Return the rows of each key as views."""
    if kjt._strides.ranks is not None or not kjt.stride() or not kjt._keys:
        return {key: one_key(kjt, index) for index, key in enumerate(kjt._keys)}
    rows, values, made = kjt._partition, kjt.values(), {}
    cuts = _cuts(rows.offsets, kjt.stride())
    there = None if values.device == rows.home else _cuts(rows.offsets_on(values.device), kjt.stride())
    starts, lengths = kjt.offset_per_key(), kjt.length_per_key()
    for i, key in enumerate(kjt._keys):
        part = Partition._of(cuts[i], lengths[i])
        if there is not None:  # The offsets of all keys went to the device in one copy.
            part.derived(("offsets", values.device), partial(operator.getitem, there, i))
        weights = None if kjt._weights is None else kjt._weights.narrow(0, starts[i], lengths[i])
        made[key] = JaggedTensor._rows(values.narrow(0, starts[i], lengths[i]), part, weights)
    return made


def _cuts(offsets: torch.Tensor, batch: int) -> tuple[torch.Tensor, ...]:
    """Return the offsets of each key, beginning with 0; every key has `batch` rows."""
    return (offsets.unfold(0, batch + 1, batch) - offsets[:-1:batch, None]).unbind(0)


def _run(rows: Partition, start: int, stop: int, first: int, last: int) -> Partition:
    """Return the partition of the rows `start` to `stop`, which own the values `first` to `last`."""
    if start == 0 and stop == rows.num_components:
        return rows
    with host.lasting():
        offsets = rows.offsets[start : stop + 1]
        return Partition._of(offsets - first if first else offsets, last - first)


def select_keys(kjt: KeyedJaggedTensor, indices: list[int]) -> KeyedJaggedTensor:
    """Return the keys at `indices`, in that order."""
    count = len(kjt._keys)
    wrong = next((i for i in indices if not 0 <= i < count), None)
    if wrong is not None:
        raise IndexError(f"indices must name keys 0 … {count - 1}, got {wrong}")
    keys = checks.distinct([kjt._keys[i] for i in indices], "permuted KeyedJaggedTensor")
    strides = kjt._strides.pick(indices)
    lengths = torch.split(kjt._partition.lengths, kjt._strides.per_key) if count else ()
    rows = kjt._partition.with_lengths(_joined([lengths[i] for i in indices], kjt._partition.lengths))
    tensor = strides.arrange(_by_key(kjt, kjt.values(), indices), rows)
    weights = None if kjt._weights is None else _by_key(kjt, kjt._weights, indices)
    return type(kjt)._of(keys, tensor, weights, strides, inverse_rows(kjt, keys))


def _by_key(kjt: KeyedJaggedTensor, packed: torch.Tensor, indices: list[int]) -> torch.Tensor:
    """Return the packed values or weights of these keys, one key after another."""
    pieces = torch.split(packed, kjt.length_per_key()) if kjt._keys else ()
    return _joined([pieces[i] for i in indices], packed)


def _joined(pieces: list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    return torch.cat(pieces) if pieces else like[:0]


def split(kjt: KeyedJaggedTensor, segments: list[int]) -> list[KeyedJaggedTensor]:
    """Return consecutive runs of keys as views; `segments` are the numbers of their keys."""
    count = len(kjt._keys)
    if min(segments, default=0) < 0 or sum(segments) != count:
        raise ValueError(f"segments must sum to the number of keys, {count}, got {segments}")
    pieces, start, ends, starts = [], 0, kjt.offset_per_key(), kjt._strides.offsets
    for segment in segments:
        stop = start + segment
        first, last = ends[start], ends[stop]
        rows = _run(kjt._partition, starts[start], starts[stop], first, last)
        strides, keys = kjt._strides.pick(range(start, stop)), kjt._keys[start:stop]
        tensor = strides.arrange(kjt.values().narrow(0, first, last - first), rows)
        weights = None if kjt._weights is None else kjt._weights.narrow(0, first, last - first)
        pieces.append(type(kjt)._of(keys, tensor, weights, strides, inverse_rows(kjt, keys)))
        start = stop
    return pieces


def select_batch(kjt: KeyedJaggedTensor, indices: Any) -> KeyedJaggedTensor:
    """Return some examples of the batch; if there are inverse indices, only these are selected, and all rows stay."""
    if isinstance(indices, (int, str)) or not isinstance(indices, (list, tuple, range, slice, torch.Tensor)):
        raise TypeError(f"examples are chosen by a list, a tensor or a slice of numbers, got {indices!r:.60}")
    indices = _examples(indices)
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


def _examples(given: Any) -> Any:
    """Return a list, tuple or range as a list of indices, and a vector or a slice as it is."""
    if isinstance(given, torch.Tensor):
        if given.ndim != 1:
            raise IndexError(f"examples are chosen by a vector of numbers, got a tensor of shape {list(given.shape)}")
        return given
    if isinstance(given, slice):
        return given
    if not all(hasattr(entry, "__index__") and not getattr(entry, "ndim", 0) for entry in given):
        raise TypeError(f"examples are chosen by a flat list of integers or bools, got {given!r:.60}")
    return list(given)


# --------------------------------------------------------------------------------------------------------- joining


def from_jt_dict(kind: type[KeyedJaggedTensor], jts: dict[str, JaggedTensor]) -> KeyedJaggedTensor:
    """Return a keyed jagged tensor with one key for each jagged tensor."""
    if not jts:
        raise ValueError("from_jt_dict needs at least one JaggedTensor; KeyedJaggedTensor.empty() has no keys")
    checks.all_of(jts.values(), JaggedTensor, "from_jt_dict")
    weights = checks.all_or_none([jt.weights_or_none() for jt in jts.values()], "the JaggedTensors")
    sizes = [len(jt.tensor) for jt in jts.values()]
    same = len(set(sizes)) == 1
    strides = Strides(len(sizes), max(sizes), None if same else tuple((size,) for size in sizes))
    rows = _stack_rows(list(jts.values()))
    keys = checks.distinct(list(jts), "KeyedJaggedTensor")
    return kind._of(keys, strides.arrange(*rows), None if weights is None else torch.cat(weights), strides).sync()


def concat_keys(kind: type[KeyedJaggedTensor], kjts: Sequence[KeyedJaggedTensor]) -> KeyedJaggedTensor:
    """Join the keys of several tensors over the same batch."""
    if not kjts:
        raise ValueError("concat needs at least one KeyedJaggedTensor")
    checks.all_of(kjts, kind, "concat")
    keys = checks.distinct([key for kjt in kjts for key in kjt._keys], "joined KeyedJaggedTensor")
    weights = checks.all_or_none([kjt._weights for kjt in kjts], "the KeyedJaggedTensors")
    inverse = _all_inverse(kjts)
    strides = {kjt.stride() for kjt in kjts}
    varied = any(kjt.variable_stride_per_key() for kjt in kjts)
    if len(strides) > 1 and (inverse or not varied):
        raise ValueError(f"KeyedJaggedTensors of one batch must have one stride, got {sorted(strides)}")
    ranks = tuple(rank for kjt in kjts for rank in kjt._strides.varied()) if varied else None
    joined = Strides(len(keys), max(strides), ranks)
    rows = _stack_rows(kjts)
    found = ([key for kjt in kjts for key in kjt.inverse_indices()[0]], torch.cat(inverse)) if inverse else None
    return kind._of(
        keys,
        joined.arrange(*rows),
        None if weights is None else torch.cat(weights),
        joined,
        found,
    )


def concat_batches(kind: type[KeyedJaggedTensor], kjts: Sequence[KeyedJaggedTensor]) -> KeyedJaggedTensor:
    """Join the examples of several tensors with the same keys, one batch after another."""
    if not kjts:
        raise ValueError("concat_batches needs at least one KeyedJaggedTensor")
    checks.all_of(kjts, kind, "concat_batches")
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
        raise ValueError("either all KeyedJaggedTensors to join must have inverse indices or none")
    return there or None


def _varied(kjt: KeyedJaggedTensor) -> KeyedJaggedTensor:
    """Return the same tensor with a ragged batch axis, even if all keys have the same number of rows."""
    strides = Strides(kjt._strides.count, kjt._strides.stride, kjt._strides.varied())
    return type(kjt)._of(kjt._keys, strides.arrange(kjt.values(), kjt._partition), kjt._weights, strides)


def _shifted(kjts: Sequence[KeyedJaggedTensor], keys: list[str]) -> Any:
    """Return the inverse indices of joined batches; the rows of earlier batches are added to those of later ones."""
    pieces, before = [], [0] * len(keys)
    for kjt in kjts:
        rows = inverse_rows(kjt, keys)[1]
        pieces.append(rows + torch.tensor(before, dtype=rows.dtype, device=rows.device)[:, None])
        before = [start + size for start, size in zip(before, kjt.stride_per_key(), strict=True)]
    return list(keys), torch.cat(pieces, 1)
