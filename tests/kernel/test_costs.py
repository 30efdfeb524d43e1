"""What kernels cost before they run, compared with numbers that were counted by hand."""

from __future__ import annotations

import pytest

from serrate.errors import ScheduleError
from serrate.fusion import Fusion, Memory, TensorView, symbol
from serrate.fusion import ParallelType as P
from serrate.fusion.analysis import evaluate
from serrate.kernel import lower

SIZES = {"n": 100, "k": 7}


def nested(fusion: Fusion, width: int, dtype: str = "float32", **options: bool) -> TensorView:
    data, offsets = fusion.input("x", ["n", width], dtype), fusion.input("offsets", [symbol("k") + 1], "int64")
    return fusion.view_as_nested(data, offsets, **options)


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("float16", 2), ("float64", 8), ("int8", 1)])
def test_bytes_of_a_copy(dtype: str, width: int) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.copy(nested(fusion, 16, dtype)), "y").combine(0)
    # 100 rows of 16 read and written; nothing asks for offsets.
    assert evaluate(lower(fusion, y).moved_bytes, SIZES) == 2 * 100 * 16 * width


def test_bytes_of_a_sum_of_rows() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion, 16), [1]), "y")
    # 100 × 16 floats and 8 offsets are read, 7 × 16 floats are written.
    assert evaluate(lower(fusion, y).moved_bytes, SIZES) == 100 * 16 * 4 + 8 * 8 + 7 * 16 * 4


def test_bytes_of_tiles_and_of_rows_that_do_not_fill_their_axis() -> None:
    fusion = Fusion()
    y = fusion.output(nested(fusion, 16, exact=False) * 2.0, "y").split(1, 4).combine(0)
    # Room for 100 rows on both sides, 8 offsets of rows and 8 of tiles.
    assert evaluate(lower(fusion, y).moved_bytes, SIZES) == 2 * 100 * 16 * 4 + 2 * 8 * 8


def test_bytes_leave_out_faults_and_workspaces() -> None:
    fusion = Fusion()
    table, ids = fusion.input("table", [10, 4]), fusion.input("ids", ["n"], "int32")
    y = fusion.output(fusion.gather(table, ids), "y")
    assert evaluate(lower(fusion, y).moved_bytes, SIZES) == 10 * 4 * 4 + 100 * 4 + 100 * 4 * 4
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n"]), [0]), "y").split(0, 32)
    lowered = lower(fusion, y.parallelize(0, P.BIDx).parallelize(1, P.TIDx), target="cuda")
    assert evaluate(lowered.moved_bytes, SIZES) == 100 * 4 + 4
    # 4 blocks of 32 threads leave a float each, and one counter of 4 bytes.
    assert evaluate(lowered.needs.workspace, SIZES) == 4 * 32 * 4 + 4


def softmax(memory: Memory | None, width: int = 16) -> tuple[Fusion, TensorView]:
    fusion = Fusion()
    x = nested(fusion, width)
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    if memory is not None:
        exponentials.set_memory_type(memory)
    return fusion, y


def test_scratch_is_as_long_as_the_longest_row_can_be() -> None:
    fusion, y = softmax(Memory.REGISTER)
    needs = lower(fusion, y).needs
    assert evaluate(needs.scratch, SIZES) == 100 * 16 * 4  # one row may have all
    assert evaluate(lower(*softmax(None)).needs.scratch, SIZES) == 0


def test_registers_of_states() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("max", fusion.input("x", ["n", 16]), [0]), "y")
    assert lower(fusion, y.reorder({0: 1})).needs.registers == 4  # one state for each feature, one after another
    fusion = Fusion()
    y = fusion.output(fusion.reduce("max", fusion.input("x", ["n", 16], "float64"), [0]), "y")
    assert lower(fusion, y).needs.registers == 16 * 8  # all at once


def summed(block: tuple[int, int], name: str = "sum", dtype: str = "float32") -> TensorView:
    """Each row of 64 × 64 by threads."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce(name, fusion.input("x", ["n", 64, 64], dtype), [1]), "y")
    y.split(1, block[1]).split(3, block[0]).reorder({1: 3})
    return y


@pytest.mark.parametrize(
    ("threads", "dtype", "shared"),
    [
        (32, "float32", 0),  # one warp exchanges in registers
        (64, "float32", 2 * 4),  # 2 warps leave a float each
        (256, "float64", 8 * 8),
        (96, "float32", 96 * 4),  # not a power of two: every thread leaves its own
    ],
)
def test_shared_memory_of_reductions(threads: int, dtype: str, shared: int) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("max", fusion.input("x", ["n", 1024], dtype), [1]), "y").split(1, threads)
    y.parallelize(0, P.BIDx).parallelize(2, P.TIDx)
    assert lower(fusion, y, target="cuda").needs.shared == shared


def test_shared_memory_of_states_with_several_parts() -> None:
    """argmax has a float and an int64: 16 bytes of a struct."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("argmax", fusion.input("x", ["n", 1024]), [1]), "y").split(1, 96)
    y.parallelize(0, P.BIDx).parallelize(2, P.TIDx)
    assert lower(fusion, y, target="cuda").needs.shared == 96 * 16


def kept_in_shared_memory(width: int) -> tuple[Fusion, TensorView]:
    fusion = Fusion()
    x = fusion.input("x", ["n", width])
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    exponentials.set_memory_type(Memory.SHARED)
    return fusion, y.parallelize(0, P.BIDx)


def test_shared_memory_has_a_limit() -> None:
    fusion, y = kept_in_shared_memory(48 * 256)
    assert lower(fusion, y, target="cuda").needs.shared == 48 * 1024
    fusion, y = kept_in_shared_memory(48 * 256 + 1)
    with pytest.raises(
        ScheduleError,
        match=r"a block has at most 49152 bytes of shared memory, the schedule asks for 49156 \(12289 × float32 for",
    ):
        lower(fusion, y, target="cuda")
