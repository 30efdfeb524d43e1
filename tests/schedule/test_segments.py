"""Where fusions are cut: what one kernel stores for the next, in which order kernels run, and what is refused."""

from __future__ import annotations

import re
import time

import pytest
import torch
from tests.schedule.running import agree, check_run

from serrate.errors import ScheduleError
from serrate.fusion import Fusion, TensorView, symbol
from serrate.schedule import CannotSchedule, plan


def nested(fusion: Fusion, features: int = 4) -> TensorView:
    offsets = fusion.input("offsets", [symbol("k") + 1], "int64")
    return fusion.view_as_nested(fusion.input("x", ["n", features]), offsets)


def of_others(fusion: Fusion, x: TensorView) -> TensorView:
    """The sum over each row, read at the components that `ids` names."""
    ids = fusion.named("ids") if "ids" in [t.name for t in fusion.inputs] else fusion.input("ids", ["k"], "int64")
    return fusion.gather(fusion.reduce("sum", x, [1]), ids)


def rows(lengths: list[int], features: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(sum(lengths), features, generator=generator)
    return [torch.tensor([0, *torch.tensor(lengths).cumsum(0)]), x]


def test_a_result_that_is_read_at_other_indices_is_stored() -> None:
    fusion = Fusion()
    x = nested(fusion)
    y = fusion.output(x + fusion.broadcast(of_others(fusion, x), [False, True, False]), "y")
    planned = plan(fusion, name="shift")
    assert [step.outputs for step in planned.steps] == [("t4",), ("y",)]
    ((cut, reason),) = planned.cuts
    assert cut == "t4"
    assert reason == "t5 reads it at other indices than those that a kernel has it for"
    assert [step.lowered.kernel.name for step in planned.steps] == ["shift_1", "shift_2"]
    assert planned.steps[1].inputs == ("offsets", "x", "ids", "t4")
    assert y in fusion.outputs
    agree(planned, [*rows([2, 0, 3]), torch.tensor([1, 2, 0])])


def chain(fusion: Fusion, x: TensorView, count: int) -> TensorView:
    for number in range(count):
        x = fusion.unary("exp" if number % 2 else "tanh", x)
    return x


def test_what_is_costly_is_stored_for_several_kernels_and_what_is_cheap_is_computed_again() -> None:
    for count, stored in ((1, ("t5",)), (6, ("t8", "t10"))):
        fusion = Fusion()
        x = chain(fusion, nested(fusion), count)
        fusion.output(x + fusion.broadcast(of_others(fusion, x), [False, True, False]), "y")
        planned = plan(fusion)
        assert [step.outputs for step in planned.steps] == [stored, ("y",)], str(planned)
        agree(planned, [*rows([2, 0, 3]), torch.tensor([1, 2, 0])])


def test_a_reduction_that_two_kernels_need_is_stored() -> None:
    """`total` is needed by what is gathered, and by the result, which cannot be in the kernel of what is gathered."""
    fusion = Fusion()
    x = nested(fusion)
    total = fusion.reduce("sum", x, [1], keepdims=True)
    far = of_others(fusion, x / total)
    fusion.output(x * total + fusion.broadcast(far, [False, True, False]), "y")
    planned = plan(fusion)
    assert len(planned.steps) == 2
    assert total.name in dict(planned.cuts)
    assert total.name in planned.steps[0].outputs
    agree(planned, [*rows([2, 0, 3]), torch.tensor([1, 2, 0])])


def test_axes_that_have_nothing_to_do_with_each_other_are_kernels_of_their_own() -> None:
    fusion = Fusion()
    x, z = fusion.input("x", ["n", 4]), fusion.input("z", ["m"])
    fusion.output(fusion.reduce("sum", x, [0]), "a")
    fusion.output(fusion.unary("exp", z), "b")
    fusion.output(fusion.reduce("max", x, [1]), "c")
    fusion.output(fusion.reduce("sum", z, [0]), "d")
    planned = plan(fusion)
    assert sorted(step.outputs for step in planned.steps) == [("a", "c"), ("b", "d")]
    agree(planned, [torch.randn(3, 4), torch.randn(5)])


def test_a_sum_of_something_else_is_stored_first() -> None:
    fusion = Fusion()
    total = fusion.reduce("sum", fusion.input("z", ["m"]), [0])
    fusion.output(fusion.input("x", ["n"]) + fusion.broadcast(total, [True]), "y")
    planned = plan(fusion)
    assert [step.outputs for step in planned.steps] == [(total.name,), ("y",)]
    agree(planned, [torch.randn(7), torch.randn(3)])


def test_no_kernel_runs_in_the_middle_of_another() -> None:
    """a and c could be one kernel, but b reads a at other places, and c reads b."""
    fusion = Fusion()
    x = nested(fusion)
    a = fusion.output(fusion.reduce("sum", x, [1]), "a")
    b = fusion.output(fusion.gather(a, fusion.input("ids", ["k"], "int64")) * 2, "b")
    fusion.output(fusion.reduce("max", x * fusion.broadcast(b, [False, True, False]), [1]), "c")
    planned = plan(fusion)
    assert [step.outputs for step in planned.steps] == [("a",), ("b", "c")]
    agree(planned, [*rows([2, 1, 3]), torch.tensor([1, 2, 0])])


def test_scans_in_both_directions() -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n"])
    fusion.output(fusion.scan("sum", x, 0) * fusion.scan("sum", x, 0, reverse=True), "y")
    planned = plan(fusion)
    assert len(planned.steps) == 2
    assert "both directions" in dict(planned.cuts)["t2"]
    agree(planned, [torch.randn(6)])


def test_extents_that_are_computed() -> None:
    """Offsets between two kernels are made where the extents are."""
    fusion = Fusion()
    x, halves = fusion.input("x", ["n"]), fusion.input("halves", ["k"], "int64")
    counts = halves * 2
    y = fusion.view_as_nested(x, fusion.offsets_of_extents(counts))
    fusion.output(fusion.reduce("sum", y, [1]), "sums")
    fusion.output(fusion.offsets_of_extents(counts), None)
    planned = plan(fusion)
    assert counts.name in dict(planned.cuts)
    check_run(planned, [torch.arange(8.0), torch.tensor([1, 0, 3])])


def test_offsets_alone_need_no_kernel() -> None:
    fusion = Fusion()
    fusion.output(fusion.offsets_of_extents(fusion.input("counts", ["k"], "int64")))
    planned = plan(fusion)
    assert planned.steps == ()
    (found,) = planned.prepared()(torch.tensor([2, 0, 1]))
    assert found.tolist() == [0, 2, 2, 3]


def test_outputs_that_others_are_computed_of_and_inputs_that_are_outputs() -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n"])
    first = fusion.output(x * 2, "first")
    fusion.output(first + 1, "second")
    fusion.output(x, "same")
    planned = plan(fusion)
    assert len(planned.steps) == 1
    agree(planned, [torch.randn(5)])


def test_what_no_kernel_can_compute_names_the_tensor() -> None:
    fusion = Fusion()
    total = fusion.output(fusion.reduce("sum", fusion.input("x", ["n", "m"]), [0]), "total")
    with pytest.raises(CannotSchedule, match=r"^total\[.*\] float32 cannot be a kernel: .* whose extent is") as caught:
        plan(fusion, "cuda")
    assert caught.value.tensor is total
    assert isinstance(caught.value, ScheduleError)


def test_a_plan_prints_its_kernels_and_why_there_are_so_many() -> None:
    fusion = Fusion()
    x = nested(fusion)
    fusion.output(x + fusion.broadcast(of_others(fusion, x), [False, True, False]), "y")
    lines = str(plan(fusion)).splitlines()
    assert lines[0] == "2 kernels"
    assert re.fullmatch(r"  kernel_1: t4 by reduction along t4; loops \(0, 1, 2\), .*", lines[1])
    assert lines[3] == "cut at t4: t5 reads it at other indices than those that a kernel has it for"


def test_bytes() -> None:
    fusion = Fusion()
    x = nested(fusion)
    fusion.output(x + fusion.broadcast(of_others(fusion, x), [False, True, False]), "y")
    given = [*rows([2, 0, 3]), torch.tensor([1, 2, 0])]
    planned = plan(fusion)
    offsets, values, ids, sums = 4 * 8, 5 * 16, 3 * 8, 3 * 16
    assert planned.least_bytes(*given) == offsets + values + ids + values
    first, second = offsets + values + sums, offsets + values + ids + sums + values
    assert planned.moved_bytes(*given) == first + second


@pytest.mark.parametrize("count", [30, 100])
def test_long_fusions_are_planned_in_a_time_that_grows_with_their_length(count: int) -> None:
    """Every tenth operation needs a kernel of its own."""
    fusion = Fusion()
    x = nested(fusion)
    for _ in range(count // 10):
        x = chain(fusion, x, 7)
        x = x + fusion.broadcast(of_others(fusion, x), [False, True, False])
    fusion.output(x, "y")
    begin = time.thread_time()
    planned = plan(fusion)
    assert time.thread_time() - begin < 0.1 * count
    assert len(planned.steps) == count // 10 + 1


def test_a_long_chain_of_norms() -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n", 16])
    for _ in range(12):
        x = chain(fusion, x, 5)
        x = x - fusion.reduce("mean", x, [1], keepdims=True)
    fusion.output(x, "y")
    begin = time.thread_time()
    assert len(plan(fusion).steps) == 1
    assert time.thread_time() - begin < 5


def test_a_tensor_as_long_as_the_longest_row_is_stored_for_the_next_kernel() -> None:
    fusion = Fusion()
    x = nested(fusion)
    sums = fusion.scan("sum", fusion.to_dense(x, value=0.25), 1)
    fusion.output(fusion.from_dense(sums, x.domain.kept), "y")
    planned = plan(fusion)
    assert len(planned.steps) > 1
    agree(planned, rows([2, 0, 3]))
    agree(planned, rows([1]))
