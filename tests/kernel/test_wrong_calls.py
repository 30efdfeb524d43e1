"""Calls of kernels that must not run: offsets that lead astray, memory that is shared, gradients that would be lost."""

from __future__ import annotations

import re

import pytest
import torch
from tests.kernel.harness import check

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion import Fusion, IterDomain, ParallelType, RaggedIterDomain, TensorDomain, TensorView, symbol
from serrate.fusion.raggedness import listed
from serrate.kernel import Lowered, lower


def nested(**options: bool) -> tuple[Fusion, TensorView]:
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n", 2]), fusion.input("offsets", [symbol("k") + 1], "int64")
    return fusion, fusion.view_as_nested(data, offsets, **options)


def doubled(**options: bool) -> Lowered:
    fusion, x = nested(**options)
    return lower(fusion, fusion.output(x * 2.0, "y"))


@pytest.mark.parametrize(
    ("offsets", "match"),
    [
        ([0, 2, 9], "must end with n = 5, the size of the axis, got 9"),
        ([0, 2, 4], "must end with n = 5"),
        ([0, 4, 2, 5], "never decrease"),
        ([1, 2, 5], "begin with 0"),
        ([-3, 5], "begin with 0"),
        ([], "begin with 0"),
    ],
)
def test_offsets_that_do_not_fit_never_reach_a_kernel(offsets, match):
    given = torch.tensor(offsets, dtype=torch.int64)
    kernel = doubled()
    with pytest.raises((RaggednessError, ValueError), match=match):
        kernel(torch.ones(5, 2), given)
    with pytest.raises((RaggednessError, ValueError), match=match):
        kernel.fusion.evaluate(torch.ones(5, 2), given)


def test_rows_that_need_not_fill_may_end_before():
    kernel = doubled(exact=False)
    (result,) = kernel(torch.ones(5, 2), torch.tensor([0, 1, 3]))
    assert result.shape == (5, 2)  # room for as many as the operand
    assert result[:3].tolist() == [[2, 2]] * 3
    with pytest.raises(RaggednessError, match="must not exceed n = 5"):
        kernel(torch.ones(5, 2), torch.tensor([0, 1, 6]))


def test_memory_for_results_is_nobody_elses():
    kernel = doubled()
    x, offsets = torch.ones(6, 2), torch.tensor([0, 3])
    with pytest.raises(ValueError, match="shares memory"):
        kernel(x[:3], offsets, out=x[:3])
    with pytest.raises(ValueError, match="shares memory"):
        kernel(x[:3], offsets, out=[x[1:4]])
    assert kernel(x[:3], offsets, out=x[3:])[0].tolist() == [[2, 2]] * 3  # of one storage, but apart
    with pytest.raises(ValueError, match=r"must have shape \[3, 2\], got \[2, 3\]"):
        kernel(x[:3], offsets, out=torch.empty(2, 3))
    with pytest.raises(TypeError, match=r"a tensor for each output \(y\), got 2"):
        kernel(x[:3], offsets, out=[torch.empty(3, 2)] * 2)


def test_gradients_are_not_lost_in_silence():
    kernel = doubled()
    x = torch.ones(3, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="has no gradient"):
        kernel(x, torch.tensor([0, 3]))
    with torch.no_grad():
        assert kernel(x, torch.tensor([0, 3]))[0].tolist() == [[2, 2]] * 3


def test_tensors_of_other_fusions():
    (first, x), (second, y) = nested(), nested()
    with pytest.raises(ValueError, match="of another fusion"):
        first.binary("add", x, y)
    with pytest.raises(ValueError, match="of another fusion"):
        first.output(y)
    with pytest.raises(ScheduleError, match="of another fusion"):
        lower(first, second.output(y * 2.0, "z"))


def test_only_the_reference_is_scheduled():
    fusion, x = nested()
    exponentials = fusion.unary("exp", x)
    y = fusion.output(exponentials * 2.0, "y")
    exponentials.parallelize(0, ParallelType.Thread)
    with pytest.raises(ScheduleError, match="is scheduled, but loops are those of the reference"):
        lower(fusion, y)


def test_what_is_held_is_not_read_elsewhere():
    """The sum of each row, minus that of the row before: a row has only its own."""
    fusion = Fusion()
    x = fusion.input("x", [4, 3])
    total = fusion.reduce("sum", x, [1])
    next_total = fusion.pad(fusion.slice(total, 0, 1, None), 0, 0, 1)
    y = fusion.output(x - fusion.broadcast(next_total, [False, True]), "y")
    with pytest.raises(ScheduleError, match="held by the kernel"):
        lower(fusion, y)


def test_results_are_not_kept_where_something_is_stored_already():
    fusion = Fusion()
    x = fusion.input("x", [3, 4])
    z = fusion.output(x * 3.0, "z")
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    exponentials.keep_in(z)
    with pytest.raises(ScheduleError, match=r"cannot be kept in z.*stored before that"):
        lower(fusion, y)


def test_axes_whose_names_are_one_word_in_cpp():
    fusion = Fusion()
    axes = [IterDomain(2, name="α"), IterDomain(3, name="β"), IterDomain(2, name="for")]
    y = fusion.output(fusion.copy(fusion.input("x", TensorDomain(axes))), "y")
    x = torch.arange(12.0).reshape(2, 3, 2)
    assert torch.equal(lower(fusion, y)(x)[0], x)
    fusion = Fusion()
    y = fusion.output(fusion.input("a_b", [2]) + fusion.input("a-b", [2]), "y")
    with pytest.raises(ValueError, match="would be one name in C"):
        lower(fusion, y)


def test_outputs_may_be_named_twice():
    fusion = Fusion()
    y = fusion.output(fusion.input("x", [2]) * 2.0, "y")
    fusion.output(y, "z")
    assert [result.tolist() for result in lower(fusion, y)(torch.ones(2))] == [[2, 2], [2, 2]]


def test_words_that_are_not_types():
    fusion, x = nested()
    y = fusion.output(x * 2.0, "y")
    with pytest.raises(ScheduleError, match="must be 'cpp' or 'cuda', got 'gpu'"):
        lower(fusion, y, target="gpu")
    with pytest.raises(TypeError, match="a ParallelType, got 'Thread'"):
        y.parallelize(0, "Thread")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"split by an int, got 4\.0"):
        y.split(2, 4.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Tensor; make it an input"):
        fusion.binary("multiply", y, torch.ones(2))  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="its lanes are Simd"):
        lower(fusion, y.vectorize(2, 2))


def test_more_threads_than_a_block_has_known_only_when_called():
    fusion = Fusion()
    y = fusion.output(fusion.copy(fusion.input("x", ["n"])), "y").parallelize(0, ParallelType.TIDx)
    kernel = lower(fusion, y, target="cuda")
    kernel.buffers([torch.ones(1024)])
    with pytest.raises(ScheduleError, match="at most 1024 threads"):
        kernel.buffers([torch.ones(1025)])


def test_rows_of_rows_are_walked_flat_and_by_tile():
    """The axis of all rows of one level is the component of the next."""
    for tile in (False, True):
        fusion = Fusion()
        data, inner = fusion.input("x", ["n"]), fusion.input("inner", [symbol("m") + 1], "int64")
        visits = fusion.view_as_nested(data, inner, names=("visit", "code"))
        outer = fusion.input("outer", [symbol("k") + 1], "int64")
        y = fusion.output(fusion.view_as_nested(visits, outer, names=("patient", "visit")) * 2.0, "y")
        y.combine(0)
        if tile:
            y.split(1, 2)
        y.combine(0)
        x = torch.randn(6)
        assert torch.equal(lower(fusion, y)(x, torch.tensor([0, 2, 2, 5, 6]), torch.tensor([0, 1, 4]))[0], x * 2)


def test_rows_that_do_not_fit_their_axis():
    fusion = Fusion()
    y = fusion.output(fusion.view_as_nested(fusion.input("x", ["n"]), listed((3, 4))) * 2.0, "y")
    kernel = lower(fusion, y)
    assert kernel(torch.ones(7))[0].tolist() == [2] * 7
    with pytest.raises(RaggednessError, match="cannot be cut into rows of 7 indices"):
        kernel(torch.ones(5))
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", [10]), [0]), "y")
    with pytest.raises(ScheduleError, match="would be walked only as far as 7"):
        y.partition(0, listed((3, 4)))


def test_narrow_indices_reach_all_loops():
    """50,000 × 50,000 pairs are more than 2³¹, though no tensor is large."""
    fusion = Fusion()
    a, b = fusion.input("a", ["n"], "int64"), fusion.input("b", ["m"], "int64")
    pairs = fusion.broadcast(a, [False, True]) * fusion.broadcast(b, [True, False])
    y = fusion.output(fusion.reduce("sum", pairs, [0, 1]), "y").merge(0)
    ones = torch.ones(50_000, dtype=torch.int64)
    with pytest.raises(ScheduleError, match="do not reach 2500000000"):
        lower(fusion, y, index="int32")(ones, ones)


def test_a_result_without_the_axis_of_its_blocks():
    """No block would run for an axis of no indices; one does, for what does not have the axis."""
    fusion = Fusion()
    x, w = fusion.input("x", ["n", 3]), fusion.input("w", [3])
    y = fusion.output(x * w, "y").parallelize(0, ParallelType.BIDx)
    fusion.output(w * 2.0, "z")
    check(lower(fusion, y, target="cuda"), [torch.ones(0, 3), torch.ones(3)])
    check(lower(fusion, y, target="cuda"), [torch.ones(2, 3), torch.ones(3)])


def test_names_of_offsets_are_taken():
    fusion = Fusion()
    data, offsets = fusion.input("offsets_by_2", ["n"]), fusion.input("offsets", [symbol("k") + 1], "int64")
    y = fusion.output(fusion.view_as_nested(data, offsets) * 2.0, "y").split(1, 2).combine(0)
    with pytest.raises(ValueError, match="'offsets_by_2' is the name of offsets"):
        lower(fusion, y)


def test_truth_is_not_added():
    fusion = Fusion()
    x = fusion.input("x", [3], "bool")
    wanted = "add of x[iS_i{3}] bool, x[iS_i{3}] bool: add takes float and complex and int, got bool; cast it"
    with pytest.raises(TypeError, match=re.escape(wanted)):
        x + x


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_cast_rounds(dtype):
    fusion = Fusion()
    y = fusion.output(fusion.cast(fusion.cast(fusion.input("x", ["n"]), dtype), "float32"), "y")
    x = torch.randn(50)
    want = x.to(getattr(torch, dtype)).float()
    assert torch.equal(lower(fusion, y)(x)[0], want)
    check(lower(fusion, y), [x])
    assert f"cuda_{'fp16' if dtype == 'float16' else 'bf16'}.h" in lower(fusion, y, target="cuda").source


def test_integers_wrap():
    fusion = Fusion()
    x = fusion.input("x", ["n"], "int32")
    y = fusion.output(fusion.binary("less", x + 1, x), "y")
    assert lower(fusion, y)(torch.tensor([2**31 - 1, 5], dtype=torch.int32))[0].tolist() == [True, False]


def test_torch_sees_what_is_written():
    kernel = doubled()
    place = torch.zeros(3, 2)
    version = place._version
    kernel(torch.ones(3, 2), torch.tensor([0, 3]), out=place)
    assert place._version > version


def test_sizes_that_are_not_names():
    fusion = Fusion()
    y = fusion.output(fusion.input("x", ["n"]) * 2.0, "y")
    fusion.input("twice", [symbol("n") * 2])
    kernel = lower(fusion, y)
    kernel(torch.ones(3), torch.ones(6))
    with pytest.raises(ValueError, match=r"extent n \* 2, got 5"):
        kernel(torch.ones(3), torch.ones(5))


def test_negated_views():
    fusion = Fusion()
    y = fusion.output(fusion.input("x", ["n"]) * 2.0, "y")
    x = torch._neg_view(torch.tensor([1.0, 2.0]))
    assert lower(fusion, y)(x)[0].tolist() == [-2, -4]


def test_words_of_the_c_library_are_no_names():
    fusion = Fusion()
    y = fusion.output(fusion.input("NULL", ["n"]) * 2.0, "main")
    assert lower(fusion, y, name="memcpy")(torch.ones(2))[0].tolist() == [2, 2]


def test_a_refused_rfactor_changes_nothing():
    fusion, x = nested()
    y = fusion.output(fusion.reduce("sum", x, [0, 1]), "y")
    before = str(fusion)
    with pytest.raises((RaggednessError, ScheduleError)):
        y.rfactor(1)
    assert str(fusion) == before


def test_axes_start_at_0():
    with pytest.raises(ValueError, match="starts at 2"):
        TensorDomain([IterDomain(5, start=2)])


def test_an_input_whose_rows_are_given_by_extents():
    fusion = Fusion()
    extents, component = fusion.input("extents", ["k"], "int64"), IterDomain("k")
    rows = RaggedIterDomain.from_extents(extents, component=component, size="n")
    x = fusion.input("x", TensorDomain([component, rows, IterDomain(4)]))
    y = fusion.output(x * 2.0, "y")
    given = torch.tensor([3, 0, 2]), torch.randn(5, 4)
    assert torch.equal(fusion.evaluate(*given)[0], given[1] * 2)
    assert torch.equal(lower(fusion, y)(*given)[0], given[1] * 2)
