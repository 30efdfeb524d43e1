"""Operands that are read at other indices: linear source, nothing read out of bounds, what `evaluate` says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.fusion.samples import LENGTHS, nested, offsets_of, some, two_levels
from tests.kernel.harness import agree

from serrate.errors import ScheduleError
from serrate.fusion import Fusion, Memory, TensorView
from serrate.fusion import ParallelType as P
from serrate.kernel import Lowered, lower

Step = Callable[[Fusion, TensorView], TensorView]
TWICE = ["relu", "silu", "gelu", "square"]
MOVES: dict[str, Step] = {
    "pad": lambda fusion, x: fusion.pad(x, 0, 1, 2, -1),
    "slice": lambda fusion, x: fusion.slice(x, 0, 1, -1),
    "gather": lambda fusion, x: fusion.gather(x, fusion.input("ids", ["m"], "int64")),
    "select": lambda fusion, x: fusion.select(x, 1, 1),
    "pad of rows": lambda fusion, x: fusion.pad(fusion.slice(x, 1, 1, None), 1, 2, 1),
}
every_move = pytest.mark.parametrize("move", MOVES)


def moved(move: str, count: int, step: Step, target: str = "cpp") -> Lowered:
    """x[n, 3] after `count` steps, read elsewhere."""
    fusion = Fusion()
    x = fusion.input("x", ["n", 3])
    for _ in range(count):
        x = step(fusion, x)
    return lower(fusion, fusion.output(MOVES[move](fusion, x), "y"), target=target)


def given(lowered: Lowered, size: int = 5) -> list[torch.Tensor]:
    ids = torch.tensor([4, 0, 2, 2]) % size
    return [some(size, 3), ids][: len(lowered.fusion.inputs)]


# Size


@every_move
@pytest.mark.parametrize("name", [*TWICE, "twice"])
def test_source_is_linear_in_what_is_moved(name: str, move: str) -> None:
    def step(fusion: Fusion, x: TensorView) -> TensorView:
        return x + x if name == "twice" else fusion.unary(name, x)

    sizes = [len(moved(move, count, step).source) for count in (10, 20, 30)]
    assert sizes[2] - sizes[1] <= 1.1 * (sizes[1] - sizes[0]) + 40


def test_source_is_linear_in_pads_and_squares() -> None:
    def step(fusion: Fusion, x: TensorView) -> TensorView:
        return fusion.pad(fusion.unary("square", x), 1, 0, 1)

    sizes = [len(moved("pad", count, step).source) for count in (5, 10, 15)]
    assert sizes[2] - sizes[1] <= 1.1 * (sizes[1] - sizes[0]) + 40


def test_source_is_linear_in_gathers() -> None:
    def made(count: int) -> int:
        fusion = Fusion()
        ids = fusion.input("ids", ["n"], "int64")
        x = ids
        for _ in range(count):
            x = fusion.gather(ids, x)
        for _ in range(count):
            x = fusion.gather(x, ids)
        return len(lower(fusion, fusion.output(x, "y")).source)

    sizes = [made(count) for count in (4, 8, 12)]
    assert sizes[2] - sizes[1] <= 1.1 * (sizes[1] - sizes[0]) + 40


# Values


@every_move
@pytest.mark.parametrize("target", ["cpp", "cuda"])
@pytest.mark.parametrize("name", TWICE)
def test_functions_that_read_twice(name: str, target: str, move: str) -> None:
    lowered = moved(move, 3, lambda fusion, x: fusion.unary(name, x), target)
    agree(lowered, *given(lowered))


def test_twenty_squares_under_a_pad() -> None:
    lowered = moved("pad", 20, lambda fusion, x: fusion.unary("square", x))
    agree(lowered, torch.tensor([[-1.0, 0.5, 1.0]]))
    assert lowered.source.count("x_[") == 1


@pytest.mark.parametrize("features", [2, 3, 5])
@pytest.mark.parametrize("rows", [1, 5, 13, 50])
def test_what_is_read_under_a_condition_in_short_constant_loops(rows: int, features: int) -> None:
    """Compilers that take the loop over the features apart may mask the loads of all features by the first one's."""
    fusion = Fusion()
    y = fusion.pad(fusion.input("x", ["n", features]), 0, 1, 2, -1)
    for _ in range(20):
        y = fusion.unary("square", y)
    agree(lower(fusion, fusion.output(y, "y")), torch.ones(rows, features))


def chain(fusion: Fusion, x: TensorView) -> TensorView:
    """Pads of ragged rows and of features, with what is read more than once between them."""
    x = fusion.pad(fusion.unary("square", x), 1, 1, 0, 0.5)
    y = fusion.unary("silu", x)
    x = fusion.pad(y * y + fusion.unary("exp", y), 2, 1, 1, -2)
    return fusion.pad(fusion.unary("gelu", x), 1, 0, 2, 3)


@pytest.mark.parametrize("lengths", [LENGTHS, [5], [0, 0], []])
@pytest.mark.parametrize("how", ["cpp", "flat", "cuda"])
def test_pads_of_pads_of_rows(how: str, lengths: list[int]) -> None:
    fusion = Fusion()
    y = fusion.output(chain(fusion, nested(fusion, 2)), "y")
    if how == "flat":
        y.combine(0).parallelize(0, P.Thread).parallelize(1, P.Simd)
    if how == "cuda":
        y.parallelize(0, P.BIDx).parallelize(2, P.TIDx)
    agree(lower(fusion, y, target="cuda" if how == "cuda" else "cpp"), some(sum(lengths), 2), offsets_of(lengths))


@pytest.mark.parametrize("target", ["cpp", "cuda"])
def test_reduction_of_a_pad(target: str) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", chain(fusion, nested(fusion, 2)), [1]), "y")
    if target == "cuda":
        y.split(1, 4).parallelize(0, P.BIDx).parallelize(2, P.TIDx)
    agree(lower(fusion, y, target=target), some(sum(LENGTHS), 2), offsets_of(LENGTHS))


def test_gather_under_a_pad() -> None:
    fusion = Fusion()
    table, ids = fusion.input("table", [4]), fusion.input("ids", ["n"], "int64")
    rows = fusion.gather(fusion.pad(fusion.unary("square", table), 0, 1, 1), ids)
    y = fusion.output(fusion.pad(fusion.unary("silu", rows), 0, 2, 1, 9), "y")
    agree(lower(fusion, y), some(4), torch.tensor([5, 0, 3, 1]))
    agree(lower(fusion, y), some(4), torch.tensor([], dtype=torch.int64))


def test_what_is_read_at_two_places() -> None:
    fusion = Fusion()
    x = fusion.unary("square", fusion.unary("relu", fusion.input("x", ["n"])))
    y = fusion.pad(x, 0, 1, 0) - fusion.pad(x, 0, 0, 1)
    agree(lower(fusion, fusion.output(y, "y")), some(6))


def test_whole_numbers_of_quotients() -> None:
    """What stands for an element that is not there must not be divided by, and then made an integer."""
    fusion = Fusion()
    square = fusion.unary("square", fusion.input("x", ["n"]))
    whole = fusion.cast(fusion.unary("reciprocal", square), "int32")
    lowered = lower(fusion, fusion.output(fusion.pad(fusion.unary("square", whole), 0, 1, 1), "y"))
    agree(lowered, torch.tensor([0.5, 0.25]))
    assert "= inside ? int32(" in str(lowered.kernel)  # C++ does not say what an infinity becomes


def test_nested_view_read_twice_under_a_pad() -> None:
    fusion = Fusion()
    x = nested(fusion, 2)
    lowered = lower(fusion, fusion.output(fusion.pad(x * fusion.unary("exp", x), 1, 1, 1), "y"))
    agree(lowered, some(sum(LENGTHS), 2), offsets_of(LENGTHS))
    assert str(lowered.kernel).count("x[(offsets") == 1


# Rows of rows that are selected


def element(fusion: Fusion, row: int, position: int) -> Lowered:
    picked = fusion.select(fusion.select(nested(fusion, 3), 0, row), 0, position)
    return lower(fusion, fusion.output(fusion.unary("square", picked), "y"))


@pytest.mark.parametrize(("row", "position"), [(0, 0), (0, 2), (2, 3), (3, 0)])
def test_select_of_a_selected_row(row: int, position: int) -> None:
    lowered = element(Fusion(), row, position)
    x = some(sum(LENGTHS), 3)
    agree(lowered, x, offsets_of(LENGTHS))
    assert torch.equal(lowered(x, offsets_of(LENGTHS))[0], x.split(LENGTHS)[row][position] ** 2)


@pytest.mark.parametrize(("row", "position"), [(0, 3), (1, 0), (3, 1), (4, 0)])
def test_select_past_the_end_of_a_selected_row(row: int, position: int) -> None:
    inputs = some(sum(LENGTHS), 3), offsets_of(LENGTHS)
    lowered = element(Fusion(), row, position)
    with pytest.raises(IndexError, match=r"select\(t\d, 0, \d\) of iS_r" if row < 4 else r"of iS_c\{k\}"):
        lowered(*inputs)


def test_select_past_the_end_of_rows_given_by_extents() -> None:
    fusion = Fusion()
    x, extents = fusion.input("x", ["n"]), fusion.input("extents", ["k"], "int64")
    rows = fusion.view_as_nested(x, fusion.offsets_of_extents(extents))
    lowered = lower(fusion, fusion.output(rows.select(0, 1).select(0, 2), "y"))
    agree(lowered, some(5), torch.tensor([2, 3]))
    with pytest.raises(IndexError, match="of iS_r"):
        lowered(some(5), torch.tensor([3, 2]))


def test_offsets_that_the_host_does_not_see_lead_nowhere() -> None:
    """Without the check, as for offsets on a device: 0, and nothing is read out of bounds."""
    from serrate.kernel.check import run

    lowered = element(Fusion(), 3, 1)
    arrays = {"x": some(8, 3).reshape(-1).numpy(), "offsets": offsets_of(LENGTHS).numpy()}
    sizes = {"n": 8, "k": 4}
    made = run(lowered.kernel, arrays, {str(size.value): sizes[str(size.value)] for size in lowered.kernel.sizes})
    assert made["y"].tolist() == [0, 0, 0]


# Schedules that messages advise


def test_two_levels_merged_step_by_step() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.copy(two_levels(fusion)), "y").merge(0).merge(0)
    assert len(y.loop) == 1
    agree(lower(fusion, y), torch.tensor([0, 2, 3]), torch.tensor([0, 3, 3, 7]), some(7))


@pytest.mark.parametrize("kept", [True, False])
def test_a_reduced_thread_loop_by_two_kernels(kept: bool) -> None:
    shape = [3, "n"] if kept else ["n"]
    x = some(*([3, 10] if kept else [10]))
    wrong = Fusion()
    y = wrong.output(wrong.reduce("sum", wrong.input("x", shape), [-1]), "y").parallelize(-1, P.Thread)
    with pytest.raises(ScheduleError, match="split it by a constant"):
        lower(wrong, y)

    first, second = Fusion(), Fusion()
    y = first.reduce("sum", first.input("x", shape), [-1]).split(-1, 4)
    outer = len(y.loop) - 2
    part = first.output(y.rfactor(outer), "part").parallelize(outer, P.Thread)
    parts = second.input("part", [3, "m"] if kept else ["m"])
    total = second.output(second.reduce("sum", parts, [-1]), "total")
    lowered = lower(first, part)
    agree(lowered, x)
    assert "omp parallel" in lowered.source
    assert torch.allclose(lower(second, total)(*lowered(x))[0], x.sum(-1), atol=1e-5)


def test_a_kept_loop_run_by_threads_instead() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", [3, "n"]), [1]), "y").parallelize(0, P.Thread)
    agree(lower(fusion, y), some(3, 10))


@pytest.mark.parametrize("order", ["inside", "serial"])
def test_scratch_memory_outside_of_lanes(order: str) -> None:
    fusion = Fusion()
    kept = fusion.unary("exp", fusion.input("x", [4, "n"])).set_memory_type(Memory.REGISTER)
    total = fusion.broadcast(fusion.reduce("sum", kept, [1]), [False, True])
    y = fusion.output(kept / total, "y")
    if order == "inside":
        y.reorder([1, 0]).parallelize(1, P.Simd)
    agree(lower(fusion, y), some(4, 9))
