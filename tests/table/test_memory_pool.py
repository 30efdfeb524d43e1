"""Memory of batches: used again when nobody has it any more, never before."""

from __future__ import annotations

import gc
import multiprocessing
import threading

import numpy as np
import pytest
import torch

from serrate.table.block import Block
from serrate.table.gathering import gather
from serrate.table.gathering.batch import Packed
from serrate.table.gathering.gather import Pieces
from serrate.table.gathering.memory import allocated
from serrate.table.gathering.memory_pool import POOL, MemoryPool
from serrate.table.gathering.padding import Padding
from serrate.table.schema import Column, Schema

MEGABYTE = 2**20


def test_memory_comes_back_when_the_last_tensor_is_gone() -> None:
    pool = MemoryPool()
    lease = pool.lease(1000)
    one = torch.frombuffer(lease, dtype=torch.int64, count=10)
    other = torch.frombuffer(lease, dtype=torch.float32, count=10, offset=400).view(2, 5)[1]
    address = one.data_ptr()
    del lease, one
    assert pool._free == []
    as_numpy = other.numpy()
    del other
    assert pool._free == []
    del as_numpy
    assert [piece.data_ptr() for piece in pool._free] == [address]
    assert pool.lease(990).ctypes.data == address


def test_only_what_fits_is_used_again() -> None:
    pool = MemoryPool()
    del_me = pool.lease(1000)
    del del_me
    assert pool.lease(100).size < 1000
    assert pool.lease(1100).size >= 1100


def test_it_keeps_little() -> None:
    pool = MemoryPool(most_pieces=2, most_bytes=10_000)
    leases = [pool.lease(size) for size in (1000, 2000, 3000, 4000, 20_000)]
    del leases
    gc.collect()
    assert len(pool._free) == 2
    large = MemoryPool(most_pieces=2, most_bytes=10_000)
    one = large.lease(20_000)
    del one
    assert large._free == []


def test_old_sizes_make_way() -> None:
    pool = MemoryPool(most_pieces=2)
    for size in (1000, 10_000, 100_000, 1_000_000):
        lease = pool.lease(size)
        del lease
    assert max(piece.numel() for piece in pool._free) >= 1_000_000


def test_from_threads_no_memory_is_used_twice() -> None:
    pool, wrong = MemoryPool(), []

    def work(number: int) -> None:
        for _ in range(300):
            lease = pool.lease(4096)
            lease[:] = number
            mine = torch.frombuffer(lease, dtype=torch.uint8)
            if not bool((mine == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_tensors_of_one_piece_of_memory_do_not_meet() -> None:
    shapes = [(400_000,), (100, 3), (), (0, 4), (7,), (1,) * 70]
    dtypes = (torch.int64, torch.float64, torch.bool, torch.int8, torch.int16, torch.float32)
    buffer, pieces = allocated(list(zip(shapes, dtypes, strict=True)))
    for i, piece in enumerate(pieces):
        piece.fill_(i % 2)
        assert piece.data_ptr() % 64 == 0 or piece.numel() == 0
        assert buffer.data_ptr() <= piece.data_ptr() < buffer.data_ptr() + buffer.nbytes or piece.numel() == 0
    assert [set(piece.flatten().tolist()) for piece in pieces] == [{0}, {1.0}, {False}, set(), {0}, {1.0}]
    assert [(tuple(piece.shape), piece.dtype) for piece in pieces] == list(zip(shapes, dtypes, strict=True))


def large(rows: int) -> tuple[Block, torch.Tensor]:
    """A block whose rows are their number, in batches that are large enough for the pool."""
    values = torch.arange(rows).repeat_interleave(64)[:, None].expand(-1, 32).contiguous()
    ends = torch.arange(rows + 1) * 64
    schema = Schema(["rows", "v"], {"x": Column("v", torch.int64, features=(32,))})
    return Block(schema, {"rows": rows, "v": rows * 64}, {"v": ends}, {"x": values}), values


def test_batches_that_are_held_keep_their_values() -> None:
    block, _ = large(400)
    rng = np.random.default_rng(0)
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    for turn in range(12):
        rows = torch.from_numpy(rng.integers(0, 400, 100))
        packed = gather.pack([block], block.schema, Pieces(None, rows))
        dense = gather.pad([block], block.schema, Pieces(None, rows), Padding.of(block.schema))
        assert isinstance(packed, Packed)
        if turn % 3:
            held += [(packed["x"].values[:, 0], rows), (dense["x"][:, :, 3].flatten(), rows)]
        del packed, dense
    for values, rows in held:
        assert torch.equal(values, rows.repeat_interleave(64))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_holds_the_lock() -> None:
    with POOL._lock:
        child = multiprocessing.get_context("fork").Process(target=POOL.lease, args=(MEGABYTE,), daemon=True)
        child.start()
        child.join(20)
        alive = child.is_alive()
        if alive:
            child.kill()
    assert not alive
    assert child.exitcode == 0
