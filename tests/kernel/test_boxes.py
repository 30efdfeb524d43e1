"""Boxes that the copy engine copies to shared memory: interpreted against `evaluate`, refused, broken, compiled."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from tests.fusion.schedules import conditions
from tests.kernel.harness import NVCC, as_numpy, check, compare

from serrate.errors import ScheduleError
from serrate.fusion import Fusion, Memory, ParallelType, TensorView, symbol
from serrate.kernel import Lowered, lower
from serrate.kernel.check import Violation, run
from serrate.kernel.ir import Barrier, BulkCopy, For, Statement, rewrite, walk

SERIAL, BULK = ParallelType.Serial, ParallelType.Bulk
BLOCK, THREAD = ParallelType.BIDx, ParallelType.TIDx


def tiled(tensor: TensorView, rows: int, columns: int) -> TensorView:
    """[i, d] as boxes of rows × columns."""
    return tensor.split(0, rows).split(2, columns).reorder([0, 2, 1, 3])


def boxed(copy: TensorView, rows: int, columns: int) -> None:
    tiled(copy, rows, columns).parallelize(2, BULK).parallelize(3, BULK)


def reduced_rows(
    box: tuple[int, int],
    name: str = "sum",
    *,
    holes: bool = False,
    dtype: str = "float32",
    sizes: tuple[Any, ...] = ("n", "m"),
) -> Lowered:
    """A reduction over columns: a block for each strip of rows, a thread for each row, boxes one after another."""
    fusion = Fusion()
    copy = fusion.input("x", list(sizes), dtype).cache_after(Memory.SHARED)
    y = fusion.output(fusion.reduce(name, copy, [1]), "y")
    boxed(copy, *box)
    tiled(y, *box).reorder([0, 2, 1, 3]).parallelize(0, BLOCK).parallelize(1, THREAD)
    return lower(fusion, y.read_holes() if holes else y, target="cuda")


def copies(lowered: Lowered) -> list[BulkCopy]:
    return [statement for statement in walk(lowered.kernel.body) if isinstance(statement, BulkCopy)]


def some(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * 4
    return values.to(dtype)


@pytest.mark.parametrize("holes", [False, True], ids=["predicated", "holes are read"])
@pytest.mark.parametrize("shape", [(16, 32), (11, 20), (8, 36), (3, 4), (1, 16), (0, 8), (5, 0)], ids=str)
@pytest.mark.parametrize("box", [(8, 16), (4, 8), (2, 20)], ids=str)
def test_sums_of_boxes(box: tuple[int, int], shape: tuple[int, int], holes: bool) -> None:
    lowered = reduced_rows(box, holes=holes)
    (copy,) = copies(lowered)
    assert copy.box == box
    assert copy.fill == 0
    check(lowered, [some(*shape)])
    assert conditions(lowered) == (1 if holes else 2)  # whether the row is stored, and whether it is added up
    walked = [str(s.extent) for s in walk(lowered.kernel.body) if isinstance(s, For) and s.var == symbol("d_inner")]
    assert walked == ([str(box[1])] if holes else ["d_inner_extent"])


@pytest.mark.parametrize("name", ["max", "prod", "any", "argmax"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_other_reductions_and_dtypes(name: str, dtype: str) -> None:
    lowered = reduced_rows((4, 8), name, dtype=dtype)
    check(lowered, [some(7, 24, dtype=getattr(torch, dtype)).clip(-2, 2)])


def test_a_box_may_be_walked_in_any_way() -> None:
    """Loops of the reference that are not those of the copy: the index in the box follows from the index."""
    fusion = Fusion()
    copy = fusion.input("x", ["n", "m"]).cache_after(Memory.SHARED)
    y = fusion.output(copy * 2.0, "y")
    boxed(copy, 8, 16)
    tiled(y, 8, 16).split(2, 4).split(4, 2).reorder([0, 1, 4, 2, 5, 3])
    y.parallelize(0, ParallelType.BIDy).parallelize(1, BLOCK).parallelize(2, THREAD).parallelize(4, ParallelType.TIDy)
    lowered = lower(fusion, y, target="cuda")
    for shape in ((16, 16), (9, 20), (30, 4)):
        check(lowered, [some(*shape)])


def test_sums_of_columns() -> None:
    """The loop over boxes of columns is walked once more, to store the sums, where there is no box to read."""
    fusion = Fusion()
    copy = fusion.input("x", ["n", 20]).cache_after(Memory.SHARED)
    y = fusion.output(fusion.reduce("sum", copy, [0]), "y")
    boxed(copy, 4, 8)
    tiled(y, 4, 8).parallelize(2, THREAD)
    lowered = lower(fusion, y, target="cuda")
    assert len(copies(lowered)) == 1
    check(lowered, [some(11, 20)])


def test_a_box_of_all_there_is() -> None:
    """Weights that every row is multiplied by: one box, copied before all loops."""
    fusion = Fusion()
    x, copy = fusion.input("x", ["n", 20]), fusion.input("w", [20]).cache_after(Memory.SHARED)
    y = fusion.output(x * copy, "y").split(0, 4)
    copy.parallelize(0, BULK)
    y.parallelize(0, BLOCK).parallelize(1, THREAD)
    lowered = lower(fusion, y, target="cuda")
    assert isinstance(lowered.kernel.body[1], BulkCopy)  # after the memory of the box
    assert sum(isinstance(statement, Barrier) for statement in walk(lowered.kernel.body)) == 1
    check(lowered, [some(7, 20), some(20)])


def test_a_tensor_that_lies_transposed() -> None:
    """The dimensions of a box are those of the memory, in its order."""
    fusion = Fusion()
    x = fusion.input("x", ["n", "m"])
    x.set_allocation_domain([*reversed(x.domain.logical)])
    copy = x.cache_after(Memory.SHARED)
    y = fusion.output(copy * 2.0, "y")
    tiled(copy, 8, 4).reorder([0, 1, 3, 2]).parallelize(2, BULK).parallelize(3, BULK)
    tiled(y, 8, 4).parallelize(0, BLOCK).parallelize(2, THREAD)
    lowered = lower(fusion, y, target="cuda")
    assert copies(lowered)[0].box == (4, 8)
    check(lowered, [some(7, 12)])


def test_shared_memory_that_boxes_need() -> None:
    """The box, and what the threads wait at."""
    assert reduced_rows((8, 16)).needs.shared == 8 * 16 * 4 + 8
    fits = 48 * 1024 // 4 // 64 - 1
    reduced_rows((fits, 64))
    with pytest.raises(ScheduleError, match="at most 49152 bytes of shared memory, the schedule asks for 49160"):
        reduced_rows((fits + 1, 64))


def test_lanes_of_a_box() -> None:
    """Neighbours in shared memory, also in the kernel with wide accesses."""
    fusion = Fusion()
    copy = fusion.input("x", ["n", 32]).cache_after(Memory.SHARED)
    y = fusion.output(copy * 2.0, "y")
    boxed(copy, 4, 16)
    tiled(y, 4, 16).vectorize(3, 4).parallelize(0, BLOCK).parallelize(2, THREAD)
    lowered = lower(fusion, y, target="cuda")
    for kernel in (lowered.kernel, lowered.wide):
        check(replace(lowered, kernel=kernel), [some(7, 32)])


def test_what_is_read_elsewhere_is_not_read_from_a_box() -> None:
    fusion = Fusion()
    copy = fusion.input("x", [6, 16]).cache_after(Memory.SHARED)
    y = fusion.output(fusion.pad(copy, 1, 2, 2), "y")
    copy.split(0, 2).parallelize(1, BULK).parallelize(2, BULK)
    with pytest.raises(ScheduleError, match="is not a loop of the reference"):
        lower(fusion, y.split(0, 2), target="cuda")


def test_a_box_of_the_part_of_a_rank() -> None:
    fusion = Fusion()
    copy = fusion.input("x", ["n", 16]).cache_after(Memory.SHARED)
    y = fusion.output(copy * 2.0, "y")
    for tensor in (copy, y):
        tensor.split(0, 2, inner_split=False).split(1, 4)
    copy.parallelize(2, BULK).parallelize(3, BULK)
    y.parallelize(0, ParallelType.DIDx).parallelize(1, BLOCK).parallelize(2, THREAD)
    x = some(11, 16)
    for rank in range(2):
        lowered = lower(fusion, y, target="cuda").on_rank(rank, 2)
        mine = np.arange(11 * 16) // (6 * 16) == rank
        found = run(lowered.kernel, {"x": as_numpy(x)}, lowered.arguments([x])[1], valid={"y": mine})["y"]
        assert np.array_equal(np.array(found, np.float32)[mine], as_numpy(x * 2)[mine])


def test_the_first_figure() -> None:
    """6 split by 4: two boxes, of which the second has two holes."""
    for holes in (False, True):
        fusion = Fusion()
        copy = fusion.input("x", [6]).cache_after(Memory.SHARED)
        y = fusion.output(fusion.reduce("sum", copy, [0]), "y").split(0, 4)
        copy.split(0, 4).parallelize(1, BULK)
        check(lower(fusion, y.read_holes() if holes else y, target="cuda"), [some(6)])


def three_splits(fusion: Fusion) -> tuple[TensorView, TensorView]:
    """15 split by 6, and the parts by 2 and by 4."""
    copy = fusion.input("x", [15]).cache_after(Memory.SHARED)
    y = fusion.output(fusion.reduce("sum", copy, [0]), "y")
    for tensor in (copy, y):
        tensor.split(0, 6).split(0, 2).split(2, 4)
    copy.parallelize(3, BULK)
    return copy, y


def test_the_second_figure() -> None:
    """The holes of the inner part are the elements that follow: they are predicated, or nobody may read them."""
    fusion = Fusion()
    _, y = three_splits(fusion)
    lowered = lower(fusion, y, target="cuda")
    check(lowered, [some(15)])
    assert {"i_inner < 6", "i < 15"} <= {str(s.condition) for s in walk(lowered.kernel.body) if hasattr(s, "condition")}
    with pytest.raises(ScheduleError) as refused:
        lower(fusion, y.read_holes(), target="cuda")
    assert str(refused.value).endswith(
        "which is copied by boxes: behind the end of iS_i_inner{6} lies what comes next in memory, not a fill value"
    )


@pytest.mark.parametrize("lengths", [[3, 0, 9, 4, 1], [4, 8], [], [0], [17]], ids=str)
@pytest.mark.parametrize("by_tile", [False, True])
def test_rows_of_different_lengths(lengths: list[int], by_tile: bool) -> None:
    """Boxes of rows of one component; what lies behind its end is the next component, which is not read."""
    fusion = Fusion()
    x, offsets = fusion.input("x", ["n", 8]), fusion.input("offsets", [symbol("k") + 1], "int64")
    rows = fusion.view_as_nested(x, offsets)
    copy = rows.cache_after(Memory.SHARED)
    y = fusion.output(copy * 2.0, "y")
    for tensor in (copy, y):
        tensor.split(1, 4)
        if by_tile:
            tensor.combine(0)
    copy.parallelize(-2, BULK).parallelize(-1, BULK)
    y.parallelize(0, BLOCK).parallelize(-2, ParallelType.TIDy).parallelize(-1, THREAD)
    lowered = lower(fusion, y, target="cuda")
    given = torch.tensor([0, *lengths]).cumsum(0)
    check(lowered, [some(int(given[-1]), 8), given])


def test_holes_of_rows_are_not_filled() -> None:
    fusion = Fusion()
    x, offsets = fusion.input("x", ["n", 8]), fusion.input("offsets", [symbol("k") + 1], "int64")
    copy = fusion.view_as_nested(x, offsets).cache_after(Memory.SHARED)
    y = fusion.output(fusion.reduce("sum", copy, [1]), "y").split(1, 4).read_holes()
    copy.split(1, 4).parallelize(2, BULK).parallelize(3, BULK)
    with pytest.raises(ScheduleError, match=r"behind the end of iS_r\{\[offsets\]\} lies what comes next in memory"):
        lower(fusion, y, target="cuda")


def test_a_box_is_copied_once_for_all_phases() -> None:
    fusion = Fusion()
    copy = fusion.input("x", ["n", 24]).cache_after(Memory.SHARED)
    exponentials = fusion.unary("exp", copy - fusion.reduce("max", copy, [1], keepdims=True))
    y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    copy.split(0, 8).parallelize(1, BULK).parallelize(2, BULK)
    y.split(0, 8).parallelize(0, BLOCK).parallelize(1, THREAD)
    lowered = lower(fusion, y, target="cuda")
    assert len(copies(lowered)) == 1
    check(lowered, [some(19, 24)])


def product_of_matrices(rows: int, columns: int, inner: int) -> Lowered:
    """[n, k] × [k, m]: boxes of both in each step along k."""
    fusion = Fusion()
    left, right = fusion.input("a", ["n", "k"]), fusion.input("b", ["k", "m"])
    copies = [left.cache_after(Memory.SHARED), right.cache_after(Memory.SHARED)]
    wide = fusion.broadcast(copies[0], [False, True, False])
    high = fusion.broadcast(fusion.permute(copies[1], [1, 0]), [True, False, False])
    y = fusion.output(fusion.reduce("sum", wide * high, [2]), "y")
    boxed(copies[0], rows, inner)
    boxed(copies[1], inner, columns)
    y.split(0, rows).split(2, columns).split(4, inner).reorder([0, 2, 1, 3, 4, 5])
    y.parallelize(0, ParallelType.BIDy).parallelize(1, BLOCK).parallelize(2, ParallelType.TIDy).parallelize(3, THREAD)
    return lower(fusion, y, target="cuda")


@pytest.mark.parametrize("shape", [(8, 8, 16), (9, 12, 20), (1, 4, 4)], ids=str)
def test_two_boxes(shape: tuple[int, int, int]) -> None:
    n, m, k = shape
    lowered = product_of_matrices(4, 8, 8)
    assert len(copies(lowered)) == 2
    check(lowered, [some(n, k), some(k, m)])


# Merges


def merged(sizes: list[int], merge: tuple[int, int], factor: int, how: ParallelType = THREAD) -> Lowered:
    """Two axes of three merged, the merge split, and the inner part a box."""
    fusion = Fusion()
    copy = fusion.input("x", sizes).cache_after(Memory.SHARED)
    y = fusion.output(copy * 2.0, "y")
    for tensor in (copy, y):
        tensor.merge(*merge)
        place = min(merge)
        tensor.split(place, factor).reorder({place + 1: 2})
    copy.parallelize(2, BULK)
    y.parallelize(2, how)
    return lower(fusion, y, target="cuda")


def test_a_merge_of_axes_that_lie_together_is_one_dimension() -> None:
    """Also where the factor does not divide: 5 × 8 by 12, of which the last box has eight holes."""
    lowered = merged([3, 5, 8], (1, 2), 12)
    assert copies(lowered)[0].box == (1, 12)
    check(lowered, [some(3, 5, 8)])


def test_theorem_5() -> None:
    """2 × 5 by 4 (Listings 1 and 2) of axes that do not follow each other in memory; 2 × 8 by 4 is split-then-merge."""
    with pytest.raises(ScheduleError) as refused:
        merged([2, 3, 5], (0, 2), 4)
    assert str(refused.value) == (
        "t1[iS_id_outer{3}, iS_j{3}, iB_id_inner{4}] float32 cannot be copied by boxes: 4 does not divide iS_d{5}, "
        "the inner axis of a merge of axes that do not follow each other in memory (Theorem 5)"
    )
    lowered = merged([2, 3, 8], (0, 2), 4)
    assert copies(lowered)[0].box == (1, 1, 4)
    check(lowered, [some(2, 3, 8)])


# Refusals


def refusal(schedule: Callable[[TensorView, TensorView], object], sizes: list[Any], target: str = "cuda") -> str:
    fusion = Fusion()
    copy = fusion.input("x", sizes).cache_after(Memory.SHARED)
    y = fusion.output(fusion.reduce("sum", copy, [1]), "y")
    schedule(copy, y)
    with pytest.raises(ScheduleError) as refused:
        lower(fusion, y, target=target)
    return str(refused.value).partition("cannot be copied by boxes: ")[2] or str(refused.value)


def alike(box: tuple[int, int]) -> Callable[[TensorView, TensorView], None]:
    def schedule(copy: TensorView, y: TensorView) -> None:
        boxed(copy, *box)
        tiled(y, *box)

    return schedule


REFUSALS: list[tuple[Callable[[TensorView, TensorView], object], list[Any], str, str]] = [
    (alike((8, 16)), ["n", "m"], "cpp", "Bulk is not for the target 'cpp'"),
    (alike((8, 260)), ["n", "m"], "cuda",
     "a box has at most 256 elements along a dimension, iB_d_inner{260} is longer"),
    (alike((8, 6)), ["n", "m"], "cuda", "the last dimension of a box must be a multiple of 16 bytes long, it has 24"),
    (alike((8, 16)), ["n", 18], "cuda",
     "rows of x[iS_i{n}, iS_d{18}] float32 must be a multiple of 16 bytes apart, not 72"),
    (
        lambda copy, y: (tiled(y, 8, 16), boxed(copy, 8, 32)),
        ["n", "m"], "cuda",
        "iS_d_outer{(m + 31) / 32} is not a loop of the reference, y[iS_i_outer{(n + 7) / 8}, "
        "rS_d_outer{(m + 15) / 16}, iS_i_inner{8}, rS_d_inner{16}] float32; split both alike",
    ),
    (
        lambda copy, y: (alike((8, 16))(copy, y), copy.reorder([0, 1, 3, 2])),
        ["n", "m"], "cuda",
        "a box lies in shared memory in the order of the axes of x[iS_i{n}, iS_d{m}] float32: reorder its loops",
    ),
    (
        lambda copy, y: (tiled(y, 8, 16), tiled(copy, 8, 16).parallelize(2, BULK)),
        ["n", "m"], "cuda",
        "the loops of a box must be the inner ones, got [iS_i_outer{(n + 7) / 8}, iS_d_outer{(m + 15) / 16}, "
        "iB_i_inner{8}, iS_d_inner{16}]",
    ),
    (
        lambda copy, y: copy.parallelize(0, BULK).parallelize(1, BULK),
        ["n", 16], "cuda", "the extents of a box are constants, iB_i{n} has n",
    ),
    (
        lambda copy, y: (
            alike((4, 16))(copy, y),
            copy.reorder([2, 1, 0, 3]).parallelize(0, SERIAL).parallelize(2, BULK),
        ),
        [32, "m"], "cuda", "iB_i_outer{8} must be a whole axis, or the inner part of one that was split by a constant",
    ),
    (
        lambda copy, y: (alike((8, 16))(copy, y), y.parallelize(0, THREAD)),
        [16, "m"], "cuda",
        "loop ithreadIdx.x_i_outer{2} of y says which box it is, but threads of a block have one box together",
    ),
    (
        lambda copy, y: (alike((8, 16))(copy, y), copy.parallelize(0, BLOCK)),
        ["n", "m"], "cuda",
        "iblockIdx.x_i_outer{(n + 7) / 8} is BIDx; say how it is run where the reference walks it",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schedule", "sizes", "target", "message"), REFUSALS)
def test_refusals(
    schedule: Callable[[TensorView, TensorView], object], sizes: list[Any], target: str, message: str
) -> None:
    assert refusal(schedule, sizes, target) == message


def test_what_is_not_a_copy_of_an_input() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.input("x", [8, 16]) * 2.0, "y")
    with pytest.raises(
        ScheduleError, match=r"loop iB_d\{16\} of y is Bulk, but a kernel walks it: only a copy of an in"
    ):
        lower(fusion, y.parallelize(1, BULK), target="cuda")
    fusion = Fusion()
    doubled = fusion.input("x", [8, 16]) * 2.0
    copy = doubled.cache_after(Memory.SHARED)
    y = fusion.output(copy * 2.0, "y")
    copy.parallelize(1, BULK)
    with pytest.raises(ScheduleError, match="which is not an input"):
        lower(fusion, y, target="cuda")
    fusion = Fusion()
    copy = fusion.input("x", [8, 16]).cache_after(Memory.REGISTER)
    y = fusion.output(copy * 2.0, "y")
    copy.parallelize(1, BULK)
    with pytest.raises(ScheduleError, match=r"only a copy of an input is, which cache_after\(Memory.SHARED\) makes"):
        lower(fusion, y, target="cuda")
    fusion = Fusion()
    copy = fusion.output(fusion.input("x", [8, 16]).cache_after(Memory.SHARED), "c")
    y = fusion.output(copy * 2.0, "y")
    copy.parallelize(1, BULK)
    with pytest.raises(ScheduleError, match="it is an output"):
        lower(fusion, y, target="cuda")


def test_a_tensor_of_too_many_dimensions() -> None:
    fusion = Fusion()
    copy = fusion.input("x", [2, 2, 2, 2, 2, 4]).cache_after(Memory.SHARED)
    y = fusion.output(copy * 2.0, "y")
    copy.parallelize(5, BULK)
    with pytest.raises(ScheduleError, match=r"a box has at most 5 dimensions, x.* has 6$"):
        lower(fusion, y, target="cuda")


def weighted_rows(schedule: Callable[[TensorView], object]) -> str:
    """Rows times weights, of which boxes are copied inside of a loop that only some of a block's threads may enter."""
    fusion = Fusion()
    x, offsets = fusion.input("x", ["n", 16]), fusion.input("offsets", [symbol("k") + 1], "int64")
    copy = fusion.input("w", [16]).cache_after(Memory.SHARED)
    y = fusion.output(fusion.view_as_nested(x, offsets) * copy, "y").split(2, 4)
    copy.split(0, 4).parallelize(1, BULK)
    schedule(y)
    with pytest.raises(ScheduleError) as refused:
        lower(fusion, y, target="cuda")
    return str(refused.value).partition(" is copied by boxes ")[2]


def test_all_threads_copy_together() -> None:
    """What differs between threads, or is a part of one, has no box inside of it."""
    said = weighted_rows(lambda y: y.split(0, 8).parallelize(1, THREAD))
    assert said == "inside loop iS_r{[offsets]}, whose bound threads of a block differ in"
    fusion = Fusion()
    x, copy = fusion.input("x", [8, 16]), fusion.input("w", [16]).cache_after(Memory.SHARED)
    y = fusion.output(x * copy, "y").split(1, 4).parallelize(0, ParallelType.Vectorize)
    copy.split(0, 4).parallelize(1, BULK)
    with pytest.raises(ScheduleError, match="whose lanes belong to one thread; put that loop inside of those that say"):
        lower(fusion, y, target="cuda")


def test_a_box_is_not_copied_for_what_does_not_read_it() -> None:
    """The second walk of the boxes' loops reads their sums, and the input itself."""
    fusion = Fusion()
    x = fusion.input("x", ["n", "m"])
    copy = x.cache_after(Memory.SHARED)
    y = fusion.output(x * fusion.reduce("sum", copy, [1], keepdims=True), "y")
    boxed(copy, 4, 8)
    tiled(y, 4, 8).reorder([0, 2, 1, 3]).parallelize(0, BLOCK).parallelize(1, THREAD)
    lowered = lower(fusion, y, target="cuda")
    assert len(copies(lowered)) == 1
    check(lowered, [some(7, 20)])


@pytest.mark.parametrize(("name", "why"), [("prod", "only 1 changes nothing"), ("max", "only -inf changes nothing")])
def test_holes_that_do_not_hold_the_neutral_element(name: str, why: str) -> None:
    """The engine fills holes with 0: only what 0 changes nothing in may read them."""
    with pytest.raises(ScheduleError) as refused:
        reduced_rows((8, 16), name, holes=True)
    assert str(refused.value).endswith(f"which the copy engine fills with 0; in a {name} {why}")


def test_rows_that_are_not_aligned_are_refused_when_it_is_called() -> None:
    lowered = reduced_rows((8, 16))
    with pytest.raises(ScheduleError, match=r"a multiple of 16 bytes apart, not m \* 4, where \{'n': 3, 'm': 18\}"):
        lowered.refuse([some(3, 18)], None)


# What the checker finds


def broken(lowered: Lowered, change: Callable[[Statement], tuple[Statement, ...]], x: torch.Tensor) -> str:
    """What the checker says of a kernel with a statement changed; "wrong" if only the result is."""
    kernel = replace(lowered.kernel, body=rewrite(lowered.kernel.body, change))
    assert kernel != lowered.kernel
    sizes = lowered.arguments([x])[1]
    try:
        found = run(kernel, {"x": as_numpy(x)}, sizes)
    except Violation as violation:
        return violation.what
    with pytest.raises(AssertionError):
        compare(lowered, [x], {name: torch.from_numpy(np.array(values)) for name, values in found.items()})
    return "wrong"


def of_copies(change: Callable[[BulkCopy], BulkCopy]) -> Callable[[Statement], tuple[Statement, ...]]:
    return lambda statement: (change(statement) if isinstance(statement, BulkCopy) else statement,)


def without_barrier(number: int) -> Callable[[Statement], tuple[Statement, ...]]:
    """The kernel without one of its barriers, counted in the order of the source."""
    seen: list[Statement] = []

    def change(statement: Statement) -> tuple[Statement, ...]:
        if isinstance(statement, Barrier):
            seen.append(statement)
            return () if len(seen) - 1 == number else (statement,)
        return (statement,)

    return change


def test_the_checker_finds_what_is_wrong_with_a_box() -> None:
    lowered, x = reduced_rows((8, 16), holes=True), some(11, 20)
    thread = next(s for s in walk(lowered.kernel.body) if getattr(s, "parallel", None) == THREAD).var
    no_fill = of_copies(lambda copy: replace(copy, fill=None))
    assert broken(lowered, no_fill, x).startswith("load of t1_box[")
    assert broken(lowered, of_copies(lambda copy: replace(copy, fill=1)), x) == "wrong"
    later = of_copies(lambda copy: replace(copy, start=(copy.start[0], copy.start[1] + 1)))
    assert broken(lowered, later, x) == "wrong"
    longer = of_copies(lambda copy: replace(copy, shape=(copy.shape[0] + 1, copy.shape[1])))
    assert broken(lowered, longer, x) == "out of bounds: x[220] of 220"
    larger = of_copies(lambda copy: replace(copy, box=(9, 16)))
    assert broken(lowered, larger, x) == "out of bounds: t1_box[128] of 128"
    apart = of_copies(lambda copy: replace(copy, start=(copy.start[0] + thread, copy.start[1])))
    assert broken(lowered, apart, x).startswith("threads of a block ask for boxes of x at (")
    before, after = (broken(lowered, without_barrier(number), x) for number in range(2))
    assert before.startswith("race between two threads of a block on t1_box[")
    assert "loads and -1 stores it" in before  # the engine, while a thread still reads
    assert after.startswith("race between two threads of a block on t1_box[0]: -1 stores and 0 loads it")


def test_holes_that_are_never_read_need_no_fill() -> None:
    """Weak correctness is enough where holes are predicated."""
    lowered, x = reduced_rows((8, 16)), some(11, 20)
    unfilled = rewrite(lowered.kernel.body, of_copies(lambda copy: replace(copy, fill=None)))
    run(replace(lowered.kernel, body=unfilled), {"x": as_numpy(x)}, lowered.arguments([x])[1])


# Compiled


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_nvcc_compiles_boxes(tmp_path: Path) -> None:
    """For Hopper, whose copy engine it is. A box is copied row by row, in one dimension, without a tensor map."""
    made = [
        reduced_rows((8, 16), holes=True),
        reduced_rows((4, 8), "max", dtype="float16"),
        reduced_rows((4, 8), dtype="bfloat16"),
        reduced_rows((2, 4), dtype="int64"),
        merged([3, 5, 8], (1, 2), 12),
        merged([2, 3, 8], (0, 2), 4),
        product_of_matrices(4, 8, 8),
    ]
    for number, lowered in enumerate(made):
        assert "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" in lowered.source
        (tmp_path / f"k{number}.cu").write_text(lowered.source)
    narrow = made[0].target.source(made[0].variant_kernel(narrow=True, wide=True))
    (tmp_path / f"k{len(made)}.cu").write_text(narrow)
    names = [f"k{number}.cu" for number in range(len(made) + 1)]
    command = [*NVCC, "-Werror=all-warnings", *names]
    subprocess.run(command, cwd=tmp_path, check=True)


HOST = """
#include <cmath>
#include <cstdint>
#define __global__
#define __shared__
#define __launch_bounds__(threads)
#define __restrict__
static void __syncthreads() {}
namespace sr {
template <typename T> T min(T a, long b) { return a < T(b) ? a : T(b); }
template <typename T> T max(T a, T b) { return a > b || a != a ? a : b; }
struct BoxCopy {
  BoxCopy(int, int) {}
  template <int Width, typename T, typename Index> void row(T* to, const T* from, Index there) const {
    for (int k = 0; k < Width; ++k) to[k] = k < there ? from[k] : T(0);
  }
  void wait() const {}
};
}
"""


@pytest.mark.parametrize("case", ["sum", "three dimensions", "lie together", "apart"])
def test_printed_addresses(case: str, tmp_path: Path) -> None:
    """The source of a kernel of one thread, run on the host, where a row is copied element by element."""
    match case:
        case "sum":
            fusion = Fusion()
            copy = fusion.input("x", ["n", "m"]).cache_after(Memory.SHARED)
            y = fusion.output(fusion.reduce("sum", copy, [1]), "y")
            boxed(copy, 8, 16)
            lowered, shape = lower(fusion, tiled(y, 8, 16).read_holes(), target="cuda"), (11, 20)
        case "three dimensions":
            fusion = Fusion()
            copy = fusion.input("x", ["n", "m", "k"]).cache_after(Memory.SHARED)
            y = fusion.output(copy * 2.0, "y")
            for tensor in (copy, y):
                tensor.split(0, 2).split(2, 3).split(4, 4).reorder([0, 2, 4, 1, 3, 5])
            copy.parallelize(3, BULK).parallelize(4, BULK).parallelize(5, BULK)
            lowered, shape = lower(fusion, y, target="cuda"), (5, 7, 12)
        case "lie together":
            lowered, shape = merged([3, 5, 8], (1, 2), 12, SERIAL), (3, 5, 8)
        case _:
            lowered, shape = merged([2, 3, 8], (0, 2), 4, SERIAL), (2, 3, 8)
    x = some(*shape)
    function = lowered.source[lowered.source.index('extern "C"') :].replace(", there);", ", int64_t(there));")
    (tmp_path / "kernel.cpp").write_text(HOST + function)
    flags = ["-shared", "-fPIC", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover", "-o", "kernel.so"]
    subprocess.run(["g++", "-std=c++17", *flags, "kernel.cpp"], cwd=tmp_path, check=True)
    buffers, sizes = lowered.arguments([x])
    arguments = [ctypes.c_void_p(tensor.data_ptr()) for tensor in buffers.values()]
    arguments += [ctypes.c_int64(size) for size in sizes.values()]
    ctypes.CDLL(str(tmp_path / "kernel.so")).kernel_(*arguments)
    compare(lowered, [x], buffers)


def test_other_kernels_have_no_boxes_in_their_source() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.input("x", ["n"]) * 2.0, "y")
    assert "mbarrier" not in lower(fusion, y, target="cuda").source


# At random


@pytest.mark.parametrize("seed", range(60))
def test_random_boxes(seed: int) -> None:
    random = Random(seed)
    dtype, least = random.choice([("float32", 4), ("float64", 2), ("float16", 8)])
    box = random.choice([1, 2, 3, 5]), least * random.choice([1, 2, 3])
    shape = random.randrange(0, 12), least * random.randrange(0, 7)
    fusion = Fusion()
    x = fusion.input("x", random.choice([["n", "m"], list(shape)]), dtype)
    copy = x.cache_after(Memory.SHARED)
    kinds = ["sum", "max", "pointwise", "scaled"]
    kind = random.choice(kinds)
    if kind == "pointwise":
        y = fusion.output(copy + 1.0, "y")
    elif kind == "scaled":
        total = fusion.reduce("sum", copy, [1], keepdims=True)
        y = fusion.output(copy * total, "y")
    else:
        y = fusion.output(fusion.reduce(kind, copy, [1]), "y")
        if kind == "sum" and random.random() < 0.5:
            y.read_holes()
    boxed(copy, *box)
    tiled(y, *box)
    if random.random() < 0.5:
        y.reorder([0, 2, 1, 3])
    places = {axis.name: place for place, axis in enumerate(y.loop)}
    for name, parallel in (("i_outer", BLOCK), ("i_inner", THREAD), ("d_inner", ParallelType.TIDy)):
        if random.random() < 0.6:
            y.parallelize(places[name], parallel)
    lowered = lower(fusion, y, target="cuda")
    assert copies(lowered)
    check(lowered, [some(*shape, dtype=getattr(torch, dtype)) / 8], seed=seed)
