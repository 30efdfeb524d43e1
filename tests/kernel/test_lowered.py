"""Calling lowered kernels: offsets that follow from data, outputs that are given, index widths, kept values."""

from __future__ import annotations

import pytest
import torch
from tests.kernel.harness import check

import serrate as sr
from serrate.errors import ScheduleError
from serrate.fusion import Fusion, Memory, ParallelType, RaggedIterDomain, TensorView, inject_offsets, symbol
from serrate.fusion.monoids import MONOIDS
from serrate.kernel import lower
from serrate.kernel.ir import Prefetch, Store, walk

VALUES, OFFSETS = torch.randn(12, 16), torch.tensor([0, 3, 3, 7, 12, 12])


def nested(fusion: Fusion) -> TensorView:
    data = fusion.input("x", ["n", 16])
    return fusion.view_as_nested(data, fusion.input("offsets", [symbol("k") + 1], "int64"))


def softmax() -> tuple[Fusion, TensorView, TensorView]:
    fusion = Fusion()
    x = nested(fusion)
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    return fusion, exponentials, y


def expected() -> torch.Tensor:
    return torch.cat([row.softmax(0) for row in VALUES.split(OFFSETS.diff().tolist())])


def test_extents_that_are_data_and_offsets_that_come_out():
    """A padded nested output brings its offsets, which follow from extents that exist only at run time."""
    fusion = Fusion()
    data, extents = fusion.input("x", ["n", 4]), fusion.input("extents", ["k"], "int64")
    x = fusion.view_as_nested(data, RaggedIterDomain.from_extents(extents, size="n").raggedness)
    fusion.output(fusion.pad(x, 1, 1, 0, value=-1.0), "y")
    made = inject_offsets(fusion)
    rows = torch.randn(5, 4).split([2, 0, 3])
    values, offsets = lower(made, made.named("y"))(torch.cat(rows), torch.tensor([2, 0, 3]))
    assert offsets.tolist() == [0, 3, 4, 8]
    assert torch.equal(values, torch.cat([torch.cat([torch.full((1, 4), -1.0), row]) for row in rows]))


def test_nothing_waits_for_offsets():
    fusion, _, y = softmax()
    kernel = lower(fusion, y)
    kernel(VALUES, OFFSETS)
    with sr.testing.forbid_sync():
        kernel(VALUES, OFFSETS)


def test_outputs_that_are_given_are_written():
    fusion, _, y = softmax()
    place = torch.full_like(VALUES, torch.nan)
    (result,) = lower(fusion, y)(VALUES, OFFSETS, out=[place])
    assert result is place
    torch.testing.assert_close(place, expected())


@pytest.mark.parametrize("memory", ["recomputed", "registers", "in the output"])
@pytest.mark.parametrize("prefetched", [False, True])
def test_where_values_are_kept(memory: str, prefetched: bool):
    fusion, exponentials, y = softmax()
    if memory == "registers":
        exponentials.set_memory_type(Memory.REGISTER)
    if memory == "in the output":
        exponentials.keep_in(y)
    if prefetched:
        fusion.inputs[0].prefetch()
    y.parallelize(0, ParallelType.Thread).parallelize(2, ParallelType.Simd)
    lowered = lower(fusion, y)
    statements = list(walk(lowered.kernel.body))
    assert any(isinstance(s, Store) and s.draft for s in statements) == (memory == "in the output")
    assert any(isinstance(s, Prefetch) for s in statements) == prefetched
    check(lowered, [VALUES, OFFSETS])
    torch.testing.assert_close(lowered(VALUES, OFFSETS)[0], expected())


def test_what_cannot_be_kept_in_an_output():
    fusion, exponentials, y = softmax()
    z = fusion.output(fusion.cast(exponentials, "float64"), "z")
    exponentials.keep_in(z)
    with pytest.raises(ScheduleError, match=r"cannot be kept in z.*holds float64, not float32"):
        lower(fusion, y)
    fusion, exponentials, y = softmax()
    exponentials.keep_in(exponentials)
    with pytest.raises(ScheduleError, match="not an output"):
        lower(fusion, y)


def test_narrow_indices_do_not_take_large_tensors():
    fusion = Fusion()
    y = fusion.output(fusion.copy(fusion.input("x", ["n"], "uint8")), "y")
    kernel = lower(fusion, y, index="int32")
    assert kernel(torch.arange(5, dtype=torch.uint8))[0].tolist() == [0, 1, 2, 3, 4]
    large, place = (torch.empty(2**31, dtype=torch.uint8) for _ in range(2))  # memory that nothing touches
    with pytest.raises(ScheduleError, match="indices of 32 bits"):
        kernel(large, out=[place])


def test_rows_need_not_fill_their_axis():
    """Over-allocated: what follows the last offset is not part of the nested tensor."""
    fusion = Fusion()
    data, offsets = fusion.input("x", ["n"]), fusion.input("offsets", [symbol("k") + 1], "int64")
    x = fusion.view_as_nested(data, offsets, exact=False)
    y = fusion.output(fusion.reduce("sum", x, [0, 1]), "y")
    values = torch.tensor([1.0, 2.0, 4.0, torch.nan, torch.nan])
    lowered = lower(fusion, y)
    check(lowered, [values, torch.tensor([0, 1, 3])])
    assert lowered(values, torch.tensor([0, 1, 3]))[0] == 7


def test_results_of_nothing():
    fusion = Fusion()
    x = fusion.input("x", ["n"])
    for name in MONOIDS:
        fusion.output(fusion.reduce(name, x, [0]), name)
    results = dict(zip([t.name for t in fusion.outputs], lower(fusion, fusion.outputs[0])(torch.ones(0)), strict=True))
    wanted = {
        "sum": 0,
        "prod": 1,
        "max": -torch.inf,
        "min": torch.inf,
        "logsumexp": -torch.inf,
        "relative_exp_sum": 0,
        "argmax": -1,
        "argmin": -1,
        "any": False,
        "all": True,
        "count_nonzero": 0,
    }
    assert {name: results[name].item() for name in wanted} == wanted
    assert results["mean"].isnan()
    assert results["var"].isnan()
