"""Batches: what kernels are given, how they move, what is shared."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from itertools import pairwise
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from tests.table import blocks

import serrate as sr
from serrate.native import gather as library
from serrate.table.block import Block
from serrate.table.gathering import gather
from serrate.table.gathering.batch import Packed
from serrate.table.gathering.gather import Pieces
from serrate.table.gathering.padding import Padding
from serrate.table.schema import Column, Schema

_ROUTINES = library.routines  # whatever a test puts in its place


@pytest.fixture(params=["compiled", "torch"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(library, "routines", lambda: None)
    return str(request.param)


def packed(rows: int = 6, **options: object) -> Packed:
    block = blocks.block(np.random.default_rng(3), 6, **options)  # type: ignore[arg-type]
    return gather.pack([block], block.schema, Pieces(None, torch.arange(rows)))


def test_columns_share_partitions() -> None:
    p = packed()
    one, other = p["word"], p["features"]
    assert isinstance(p, Mapping)
    assert one.partitions[0] is other.partitions[0]
    assert one.partitions[1] is other.partitions[1]
    assert sr.sum(p["features"], axis=2).shape[1] == one.shape[1]


def test_entries_of_rows() -> None:
    p = packed()
    for level in p.schema.levels:
        ends = [0]
        for i in range(p.rows):
            ends.append(ends[-1] + count(p._block, level, i))
        lengths = [b - a for a, b in pairwise(ends)]
        assert p.cu_seqlens(level).tolist() == ends
        assert p.cu_seqlens(level).dtype == torch.int32
        assert p.max_seqlen(level) == max(lengths)
        assert p.segment_ids(level).tolist() == [i for i, n in enumerate(lengths) for _ in range(n)]
        assert p.position_ids(level).tolist() == [j for n in lengths for j in range(n)]
        assert p.segment_ids(level).dtype == p.position_ids(level).dtype == torch.int64


def count(block: Block, level: str, row: int) -> int:
    if level == "rows":
        return 1
    first, last = row, row + 1
    words = level.split(".")
    for i in range(len(words)):
        ends = block.offsets[".".join(words[: i + 1])]
        first, last = int(ends[first]), int(ends[last])
    return last - first


def test_no_such_level() -> None:
    p = packed()
    for call in (p.cu_seqlens, p.max_seqlen, p.position_ids, p.segment_ids):
        with pytest.raises(KeyError, match="no level 'codes'; the levels are rows, visits"):
            call("codes")
    block = p._block
    with pytest.raises(KeyError, match="no level 'codes'"):
        gather.row_lengths([block], block.schema, Pieces(None, torch.arange(2)), "codes")


def test_of_no_rows() -> None:
    p = packed(0)
    assert p.rows == 0
    assert p.cu_seqlens("visits.codes").tolist() == [0]
    assert p.max_seqlen("visits.codes") == 0
    assert p.position_ids("visits").tolist() == p.segment_ids("visits.codes").tolist() == []
    assert p["features"].shape[0] == 0


def test_all_lies_in_one_memory() -> None:
    p = packed()
    start, stop = p._buffer.data_ptr(), p._buffer.data_ptr() + p._buffer.nbytes
    for tensor in (*p._block.values.values(), *p.offsets.values(), *p.valid.values()):
        if tensor.numel():
            assert start <= tensor.data_ptr() < stop
            assert tensor.data_ptr() % 64 == start % 64


@pytest.mark.parametrize("pickled", [False, True])
def test_writing_to_a_column_changes_no_other(pickled: bool) -> None:
    p = pickle.loads(pickle.dumps(packed())) if pickled else packed()
    assert p["features"].shape[0] == 6
    before = {name: p.flat(name).clone() for name in p}
    p.flat("features").add_(1)
    p["missing"].values.fill_(3)
    for name in p:
        if name not in ("features", "missing"):
            assert torch.equal(p.flat(name), before[name])
    assert p["features"].partitions[1].row_ids.numel() == p.counts["visits.codes"]


def test_pickles_and_copies() -> None:
    p = packed()
    for again in (pickle.loads(pickle.dumps(p)), p.to("cpu"), Packed(p._block)):
        assert again.schema == p.schema
        assert again.vocabulary("word") == p.vocabulary("word")
        for name in p:
            assert torch.equal(again.flat(name), p.flat(name))
            assert again[name].tolist() == p[name].tolist()
        for level, ends in p.offsets.items():
            assert torch.equal(again.offsets[level], ends)
        assert again.max_seqlen("visits.codes") == p.max_seqlen("visits.codes")
    assert p.to("cpu") is p
    assert len(pickle.dumps(p)) < 3 * p._buffer.nbytes + 20_000


def test_moves_as_one_piece() -> None:
    """To a device that stands for any other: shapes and dtypes go along, offsets stay known here."""
    p = packed()
    there = p.to("meta")
    assert there.device.type == "meta"
    for name in p:
        assert there.flat(name).shape == p.flat(name).shape
        assert there.flat(name).dtype == p.flat(name).dtype
        assert there.flat(name).device.type == "meta"
    assert there.max_seqlen("visits.codes") == p.max_seqlen("visits.codes")
    assert there["word"].partitions[0].max_length == p["word"].partitions[0].max_length
    held = {id(each.untyped_storage()) for each in there._block.offsets.values()}
    assert p._buffer.untyped_storage().data_ptr() not in {
        each.untyped_storage().data_ptr() for each in there._block.offsets.values()
    }, held


def test_more_entries_than_an_int32_counts() -> None:
    p = packed()
    p._block.counts = {**p._block.counts, "visits": 2**31}
    with pytest.raises(OverflowError, match="level 'visits' has 2147483648 entries, too many for int32"):
        p.cu_seqlens("visits")


@pytest.mark.parametrize("received", [False, True])
def test_sending_a_batch_to_a_process_leaves_it_as_it_is(received: bool) -> None:
    p = packed()
    expected = {name: p.flat(name).clone() for name in p}, {name: p[name].tolist() for name in p}
    if received:
        p = pickle.loads(bytes(ForkingPickler.dumps(p)))
    for _ in range(3):  # each moves to shared memory what it is given
        again = pickle.loads(bytes(ForkingPickler.dumps(p)))
        torch.empty(p._buffer.nbytes, dtype=torch.uint8).fill_(255)  # takes the place of what was freed
        for each in (p, again):
            assert {name: each[name].tolist() for name in each} == expected[1]
            assert all(torch.equal(each.flat(name), flat) for name, flat in expected[0].items())


def test_a_batch_with_a_column_that_was_moved_is_put_together_again() -> None:
    p = packed()
    expected = {name: p[name].tolist() for name in p}
    p.flat("word").share_memory_()
    for again in (pickle.loads(pickle.dumps(p)), p.to("cpu")):
        assert {name: again[name].tolist() for name in again} == expected


def test_dense_moves_and_pickles() -> None:
    block = blocks.block(np.random.default_rng(3), 6)
    d = gather.pad([block], block.schema, Pieces(None, torch.arange(4)), Padding.of(block.schema))
    again = pickle.loads(pickle.dumps(d))
    assert again.vocabulary("word") == d.vocabulary("word")
    assert again.rows == d.rows == 4
    for name in d:
        assert torch.equal(again[name], d[name])
    for level, mask in d.masks.items():
        assert torch.equal(again.masks[level], mask)
    there = d.to("meta")
    assert there["features"].shape == d["features"].shape
    assert there.device.type == there.valid["missing"].device.type == there.masks["visits"].device.type == "meta"
    assert d.nbytes == sum(t.nbytes for held in (d.columns, d.masks, d.valid) for t in held.values())


def test_they_say_what_they_are() -> None:
    block = blocks.block(np.random.default_rng(3), 6, {"code": Column("visits", torch.int64)})
    p = gather.pack([block], block.schema, Pieces(None, torch.arange(2)))
    assert repr(p) == f"Packed(code; rows 2, visits {p.counts['visits']}; cpu)"
    assert repr(p.to_dense(max_lengths=3)) == "Dense(code [2, 3]; cpu)"


def test_a_table_without_columns() -> None:
    block = Block(Schema(["rows", "v"], {}), {"rows": 2, "v": 3}, {"v": torch.tensor([0, 1, 3])}, {})
    p = gather.pack([block], block.schema, Pieces(None, torch.tensor([1])))
    assert (len(p), p.rows, p.cu_seqlens("v").tolist()) == (0, 1, [0, 2])
    assert p.to_dense().masks["v"].tolist() == [[True, True]]


def test_it_is_compiled_where_there_is_a_compiler() -> None:
    from serrate.errors import CompileError
    from serrate.runtime.compiler import compiler

    try:
        compiler()
    except CompileError:
        pytest.skip("no compiler")
    assert _ROUTINES() is not None
    assert library.padding_routines() is not None


def test_batches_without_rows_are_pickled() -> None:
    schema = Schema(["rows"], {"x": Column("rows", torch.float32), "y": Column("rows", torch.int64)})
    empty = gather.pack([], schema, Pieces(None, torch.zeros(0, dtype=torch.int64)))
    again = pickle.loads(pickle.dumps(empty))
    assert {name: (again.flat(name).dtype, again.flat(name).numel()) for name in again} == {
        "x": (torch.float32, 0),
        "y": (torch.int64, 0),
    }
