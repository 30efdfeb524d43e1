"""Gathers out of range: they read 0, and the call raises, as `evaluate` does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.kernel.harness import check

from serrate.fusion import Fusion, TensorView, symbol
from serrate.fusion import ParallelType as P
from serrate.kernel import Lowered, lower
from serrate.kernel.check import run
from serrate.kernel.ir import Fault, walk


def gather(dtype: str = "int64", width: int = 2, name: str = "chosen") -> tuple[Fusion, TensorView]:
    fusion = Fusion()
    table, chosen = fusion.input("table", ["rows", width]), fusion.input(name, ["n"], dtype)
    return fusion, fusion.output(fusion.gather(table, chosen), "y")


SCHEDULES: dict[str, Callable[[TensorView], TensorView]] = {
    "serial": lambda y: y,
    "threads and lanes": lambda y: y.parallelize(0, P.Thread).parallelize(1, P.Simd),
    "lanes of positions": lambda y: y.reorder({0: 1}).vectorize(1, 4, P.Simd),
    "flat": lambda y: y.merge(0).split(0, 3),
}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("wrong", [3, -1, 2**31 - 1])
def test_an_index_out_of_range_reads_0_and_is_raised(schedule: str, wrong: int, dtype: str) -> None:
    fusion, y = gather(dtype)
    kernel = lower(fusion, SCHEDULES[schedule](y))
    table = torch.arange(1.0, 7.0).reshape(3, 2)
    indices = torch.tensor([0, wrong, 2, 1, 2], dtype=getattr(torch, dtype))
    place = torch.full((5, 2), torch.nan)
    with pytest.raises(IndexError, match=rf"outside of .*, of 3: position 1 holds {wrong}"):
        kernel(table, indices, out=place)
    assert place.tolist() == [[1, 2], [0, 0], [5, 6], [3, 4], [5, 6]]
    with pytest.raises(IndexError, match=r"outside of .*, of 3"):
        fusion.evaluate(table, indices)
    indices[1] = 0
    assert kernel(table, indices)[0][1].tolist() == [1, 2]  # the fault is forgotten
    check(kernel, [table, indices])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_checking_interpreter_sees_the_fault(schedule: str) -> None:
    fusion, y = gather()
    check(lower(fusion, SCHEDULES[schedule](y)), [torch.ones(3, 2), torch.tensor([0, 3, 1])])


def test_on_cuda_blocks_report_at_once() -> None:
    fusion, y = gather(width=8)
    y.vectorize(1, 4).parallelize(0, P.BIDx).parallelize(1, P.TIDx)
    lowered = lower(fusion, y, target="cuda")
    for indices in ([0, 1, 2], [7, 7, 7], [-1, 0, 3]):
        check(lowered, [torch.ones(3, 8), torch.tensor(indices)])
    assert "if (" in lowered.source
    assert "faults_[0] = 1;" in lowered.source
    assert lowered.alignments  # lanes are still loaded together: the report stands before them


def faults(lowered: Lowered, inputs: list[torch.Tensor]) -> int:
    made, sizes = lowered.arguments(inputs)
    arrays = {name: tensor.reshape(-1).numpy() for name, tensor in made.items() if name != "y"}
    return int(run(lowered.kernel, arrays, sizes)["faults"][0])


def test_the_gather_that_failed_is_named() -> None:
    fusion = Fusion()
    table, first, second = (
        fusion.input("table", [3]),
        fusion.input("first", ["n"], "int64"),
        fusion.input("second", ["n"], "int64"),
    )
    y = fusion.output(fusion.gather(table, first) + fusion.gather(table, second), "y")
    kernel = lower(fusion, y)
    good, bad = torch.tensor([0, 1]), torch.tensor([2, 5])
    assert [faults(kernel, [torch.ones(3), *given]) for given in ((good, good), (bad, good), (good, bad))] == [0, 1, 2]
    with pytest.raises(IndexError, match=r"gather\(table, second, 0, 0\).*position 1 holds 5"):
        kernel(torch.ones(3), good, bad)


def test_indices_that_the_fusion_computes() -> None:
    fusion = Fusion()
    table, chosen = fusion.input("table", ["rows"]), fusion.input("chosen", ["n"], "int64")
    y = fusion.output(fusion.gather(table, chosen + 1), "y")
    kernel = lower(fusion, y)
    assert kernel(torch.arange(3.0), torch.tensor([-1, 1]))[0].tolist() == [0, 2]
    with pytest.raises(IndexError, match="outside of"):
        kernel(torch.arange(3.0), torch.tensor([-1, 2]))
    check(kernel, [torch.arange(3.0), torch.tensor([-1, 2])])


def test_where_nothing_is_read_nothing_is_wrong() -> None:
    """Of no features no element is read, whatever the indices; nor of rows that are padding."""
    fusion, y = gather(width=0)
    kernel = lower(fusion, y)
    assert kernel(torch.ones(3, 0), torch.tensor([7]))[0].shape == (1, 0)
    assert fusion.evaluate(torch.ones(3, 0), torch.tensor([7]))[0].shape == (1, 0)
    fusion = Fusion()
    table, chosen = fusion.input("table", ["rows"]), fusion.input("chosen", ["n"], "int64")
    y = fusion.output(fusion.pad(fusion.gather(table, chosen), 0, 1, 1, value=-1.0), "y")
    kernel = lower(fusion, y)
    assert kernel(torch.arange(2.0), torch.tensor([1, 0]))[0].tolist() == [-1, 1, 0, -1]
    check(kernel, [torch.arange(2.0), torch.tensor([1, 2])])
    nothing = [torch.empty(0), torch.empty(0, dtype=torch.int64)]
    assert kernel(*nothing)[0].tolist() == [-1, -1]
    check(kernel, nothing)


def test_a_gather_that_no_output_reads_is_not_computed() -> None:
    fusion = Fusion()
    table, chosen = fusion.input("table", ["rows"]), fusion.input("chosen", ["n"], "int64")
    fusion.gather(table, chosen)
    y = fusion.output(fusion.copy(chosen), "y")
    given = [torch.arange(2.0), torch.tensor([0, 7])]
    assert lower(fusion, y)(*given)[0].tolist() == [0, 7]
    assert fusion.evaluate(*given)[0].tolist() == [0, 7]


@pytest.mark.parametrize("lanes", [False, True])
def test_indices_that_differ_between_lanes(lanes: bool) -> None:
    """The report stands inside of the loop whose indices it depends on, though that has a constant number of them."""
    fusion = Fusion()
    table, chosen = fusion.input("table", ["rows"]), fusion.input("chosen", ["n", 4], "int64")
    y = fusion.output(fusion.gather(table, chosen), "y")
    kernel = lower(fusion, y.parallelize(1, P.Simd) if lanes else y)
    indices = torch.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])
    assert torch.equal(kernel(torch.arange(3.0), indices)[0], indices.float())
    check(kernel, [torch.arange(3.0), indices])
    indices[1, 3] = 3
    check(kernel, [torch.arange(3.0), indices])
    with pytest.raises(IndexError, match="position 7 holds 3"):
        kernel(torch.arange(3.0), indices)


def test_a_table_without_rows() -> None:
    fusion, y = gather()
    kernel = lower(fusion, y)
    assert kernel(torch.ones(0, 2), torch.zeros(0, dtype=torch.int64))[0].shape == (0, 2)
    with pytest.raises(IndexError, match="position 0 holds 0"):
        kernel(torch.ones(0, 2), torch.zeros(1, dtype=torch.int64))


def test_an_index_that_32_bits_would_cut_into_range() -> None:
    fusion, y = gather()
    with pytest.raises(IndexError, match=f"holds {2**32}"):
        lower(fusion, y, index="int32")(torch.ones(3, 2), torch.tensor([0, 2**32]))


def test_tensors_may_be_called_as_the_report_is() -> None:
    fusion, y = gather(name="faults")
    kernel = lower(fusion, y)
    assert [s.buffer for s in walk(kernel.kernel.body) if isinstance(s, Fault)] == ["faults_"]
    with pytest.raises(IndexError, match="position 0 holds 9"):
        kernel(torch.ones(3, 2), torch.tensor([9]))


def test_rows_of_a_ragged_tensor() -> None:
    fusion = Fusion()
    table, ids = fusion.input("table", ["rows", 2]), fusion.input("ids", ["n"], "int64")
    nested = fusion.view_as_nested(ids, fusion.input("offsets", [symbol("k") + 1], "int64"))
    y = fusion.output(fusion.reduce("sum", fusion.gather(table, nested), [1]), "y")
    kernel = lower(fusion, y)
    table, ids, offsets = torch.randn(4, 2), torch.tensor([3, 0, 1, 1, 2]), torch.tensor([0, 2, 2, 5])
    want = np.stack([table[ids[a:b]].numpy().sum(0) for a, b in ((0, 2), (2, 2), (2, 5))])
    np.testing.assert_allclose(kernel(table, ids, offsets)[0].numpy(), want, rtol=1e-6)
    ids[4] = 4
    with pytest.raises(IndexError, match="position 4 holds 4"):
        kernel(table, ids, offsets)
