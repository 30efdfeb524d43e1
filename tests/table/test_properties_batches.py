"""Random forests as padded and as packed batches: what plain Python pads and packs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.table import oracle
from tests.table.comparing import saved
from tests.table.oracle import ROWS, Plain
from tests.table.oracle_batches import Axis, filled, mask, padded, segments
from tests.table.strategies import INT64, Kind, Sample, samples

import serrate as sr

shard_sizes = st.integers(1, 3)


def leaf(kind: Kind, words: tuple[str, ...]) -> Any:
    """How a batch shows a value: codes for strings, zeros for what is missing."""
    return lambda value: kind.zero if value is None else words.index(value) if kind.text else value


def words_of(table: sr.Table, name: str, kind: Kind) -> tuple[str, ...]:
    return table.vocabulary(name) if kind.text else ()


@st.composite
def dense_options(draw: Any, plain: Plain) -> dict[str, Any]:
    inner = [level for level in oracle.levels(plain) if level != ROWS]
    made: dict[str, Any] = {}
    side = st.sampled_from(["left", "right"])
    some = st.lists(st.sampled_from(inner), unique=True) if inner else st.just([])
    made["side"] = draw(side | some.flatmap(lambda chosen: st.fixed_dictionaries(dict.fromkeys(chosen, side))))
    length = st.integers(0, 4)
    made["max_lengths"] = draw(
        st.none() | length | some.flatmap(lambda chosen: st.fixed_dictionaries(dict.fromkeys(chosen, length)))
    )
    made["multiple_of"] = draw(
        st.integers(1, 3) | some.flatmap(lambda chosen: st.fixed_dictionaries(dict.fromkeys(chosen, st.integers(1, 3))))
    )
    return made


def per_level(option: Any, level: str, default: Any) -> Any:
    return option.get(level, default) if isinstance(option, dict) else option


def axes_of(plain: Plain, level: str, options: dict[str, Any]) -> list[Axis]:
    """How rows and the lists down to a level are padded."""
    words = [] if level == ROWS else level.split(".")
    axes = [Axis(len(plain.rows))]
    for i in range(len(words)):
        path = ".".join(words[: i + 1])
        cut = per_level(options["max_lengths"], path, None)
        longest = max(oracle.lengths(plain, path), default=0) if cut is None else cut
        step = per_level(options["multiple_of"], path, 1)
        axes.append(Axis(-(-longest // step) * step, per_level(options["side"], path, "right"), cut))
    return axes


def check_dense(dense: Any, table: sr.Table, sample: Sample, options: dict[str, Any], padding: Any) -> None:
    plain = sample.plain
    for level in oracle.levels(plain):
        if level != ROWS:
            axes = axes_of(plain, level, options)
            assert tuple(dense.masks[level].shape) == tuple(axis.size for axis in axes)
            assert dense.masks[level].tolist() == mask(plain, level, axes), level
    for name, kind in sample.kinds.items():
        level, lists = oracle.columns(plain)[name], oracle.column(plain, name)
        assert level is not None
        axes = axes_of(plain, level, options)
        fill = filled(kind.features, per_level(padding, name, 0))
        shown = leaf(kind, words_of(table, name, kind))
        assert tuple(dense[name].shape) == (*(axis.size for axis in axes), *kind.features)
        assert dense[name].dtype == kind.dtype
        assert dense[name].tolist() == padded(lists, axes, fill, shown), name
        if kind.nullable:
            assert dense.valid[name].tolist() == padded(lists, axes, False, lambda value: value is not None)


@given(samples(max_rows=4), shard_sizes, st.data())
def test_to_dense(sample: Sample, size: int, data: Any) -> None:
    options = data.draw(dense_options(sample.plain))
    numbers = [name for name, kind in sample.kinds.items() if kind.dtype not in (torch.bool,)]
    padding = data.draw(st.just(0) | st.fixed_dictionaries({name: st.integers(0, 9) for name in numbers[::2]}))
    table = sample.table()
    dense = table.to_dense(padding=padding, **options)
    check_dense(dense, table, sample, options, padding)
    check_dense(table.to_packed().to_dense(padding=padding, **options), table, sample, options, padding)
    again = table.to_dense(padding=padding, out=dense, **options)
    for name in sample.kinds:
        assert again[name].data_ptr() == dense[name].data_ptr()
    check_dense(again, table, sample, options, padding)
    with saved(table, rows_per_shard=size) as read:
        check_dense(read.to_dense(padding=padding, **options), read, sample, options, padding)


@given(samples(), shard_sizes)
def test_to_packed(sample: Sample, size: int) -> None:
    table = sample.table()
    check_packed(table, sample)
    with saved(table, rows_per_shard=size) as read:
        check_packed(read, sample)


def check_packed(table: sr.Table, sample: Sample) -> None:
    plain, packed = sample.plain, table.to_packed()
    assert packed.rows == len(plain.rows)
    assert list(packed) == list(table.keys())
    for level in oracle.levels(plain):
        if level == ROWS:
            continue
        lengths = oracle.lengths(plain, level)
        ends, rows, places = segments(plain, level)
        assert packed.lengths[level].tolist() == lengths
        assert packed.offsets[level].tolist() == [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        assert packed.cu_seqlens(level).tolist() == ends
        assert packed.cu_seqlens(level).dtype == torch.int32
        assert packed.max_seqlen(level) == max((b - a for a, b in pairwise(ends)), default=0)
        assert packed.segment_ids(level).tolist() == rows
        assert packed.position_ids(level).tolist() == places
    for name, kind in sample.kinds.items():
        shown = leaf(kind, words_of(table, name, kind))
        assert packed.flat(name).tolist() == [shown(value) for value in oracle.flat_column(plain, name)]
        assert packed.flat(name).dtype == packed[name].dtype == kind.dtype
        assert packed[name].tolist() == table[name].tolist()
        if kind.nullable:
            assert packed.valid[name].tolist() == [value is not None for value in oracle.flat_column(plain, name)]


@given(samples(kinds=(INT64, Kind(torch.float32, features=(2,)), Kind(torch.uint8, nullable=True))))
def test_bytes(sample: Sample) -> None:
    table = sample.table()
    dense = table.to_dense()
    tensors = [*dense.values(), *dense.masks.values()]
    assert table.dense_nbytes == sum(tensor.nbytes for tensor in tensors)
    values = sum(table[name].values.nbytes for name in sample.kinds)
    assert table.nbytes >= values
