"""Batches of tables on the GPU: moved in one copy, padded there to what the host pads, without a wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.table import blocks

import serrate as sr
from serrate.table.gathering import gather
from serrate.table.gathering.batch import Packed
from serrate.table.gathering.gather import Pieces
from serrate.table.gathering.padding import Padding

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "left": {"side": "left"},
    "cut": {"max_lengths": 2},
    "cut outside": {"max_lengths": {"visits": 1}, "side": {"visits.codes": "left"}},
    "cut to nothing": {"max_lengths": {"visits.codes": 0}},
    "multiple": {"multiple_of": {"visits": 8, "visits.codes": 3}},
    "padding": {"padding": {"features": -1.5, "word": 9, "uint64/7": 2**64 - 1, "wide complex128": 1j}},
}


def batch(*, pin: bool = False) -> Packed:
    rng = np.random.default_rng(3)
    given = [blocks.block(rng, 30, words=words) for words in (("a", "b"), ("b", "c", "d"))]
    wanted = Pieces(torch.from_numpy(rng.integers(0, 2, 40)), torch.from_numpy(rng.integers(0, 30, 40)))
    return gather.pack(given, given[0].schema, wanted, pin=pin)


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """First calls load kernels, which waits."""
    for options in OPTIONS.values():
        batch(pin=True).to("cuda").to_dense(**options)
    torch.cuda.synchronize()


def test_moves_in_one_copy_without_a_wait() -> None:
    here = batch(pin=True)
    assert here._buffer.is_pinned()
    with sr.testing.forbid_sync():
        there = here.to("cuda", non_blocking=True)
        lengths = there["word"].partitions[1].max_length
    assert lengths == here["word"].partitions[1].max_length
    for name in here:
        assert there.flat(name).is_cuda
        assert torch.equal(there.flat(name).cpu(), here.flat(name))
        assert there[name].tolist() == here[name].tolist()
    pointers = {each.untyped_storage().data_ptr() for each in (*there._block.values.values(), *there.offsets.values())}
    assert len(pointers - {0}) == 1
    back = there.to("cpu")
    assert all(torch.equal(back.flat(name), here.flat(name)) for name in here)
    assert all(torch.equal(back.offsets[level], ends) for level, ends in here.offsets.items())


@pytest.mark.parametrize("name", OPTIONS)
def test_padded_there_without_a_wait(name: str) -> None:
    here, options = batch(), OPTIONS[name]
    there = here.pin_memory().to("cuda", non_blocking=True)
    with sr.testing.forbid_sync():
        dense = there.to_dense(**options)
    wanted = here.to_dense(**options)
    for column in wanted:
        assert dense[column].is_cuda
        assert torch.equal(dense[column].cpu(), wanted[column]), column
    for level, mask in wanted.masks.items():
        assert torch.equal(dense.masks[level].cpu(), mask)
    for column, valid in wanted.valid.items():
        assert torch.equal(dense.valid[column].cpu(), valid)


def test_padded_there_into_what_there_was() -> None:
    there = batch(pin=True).to("cuda")
    out = there.to_dense(max_lengths=4)
    before = {name: out[name].clone() for name in out}
    for each in out.columns.values():
        each.zero_()
    with sr.testing.forbid_sync():
        again = there.to_dense(max_lengths=4, out=out)
    assert again is out
    assert all(torch.equal(again[name], before[name]) for name in out)
    with pytest.raises(ValueError, match="of out must be contiguous and on cuda"):
        there.to_dense(max_lengths=4, out=out.to("cpu"))


def test_what_kernels_take_without_a_wait() -> None:
    here = batch()
    there = here.pin_memory().to("cuda", non_blocking=True)
    levels = here.schema.levels
    with sr.testing.forbid_sync():
        found = {
            level: (there.cu_seqlens(level), there.position_ids(level), there.segment_ids(level)) for level in levels
        }
        longest = {level: there.max_seqlen(level) for level in levels}
    for level, (ends, positions, segments) in found.items():
        assert ends.is_cuda
        assert torch.equal(ends.cpu(), here.cu_seqlens(level))
        assert torch.equal(positions.cpu(), here.position_ids(level))
        assert torch.equal(segments.cpu(), here.segment_ids(level))
        assert longest[level] == here.max_seqlen(level)


def test_dense_is_pinned_and_moves() -> None:
    rng = np.random.default_rng(3)
    block = blocks.block(rng, 10)
    dense = gather.pad([block], block.schema, Pieces(None, torch.arange(10)), Padding.of(block.schema)).pin_memory()
    assert all(each.is_pinned() for each in dense.columns.values() if each.numel())
    with sr.testing.forbid_sync():
        there = dense.to("cuda", non_blocking=True)
    for name in dense:
        assert torch.equal(there[name].cpu(), dense[name])
