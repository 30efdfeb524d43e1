"""Scans: for each element of a row, or of any other axis, the reduction of the elements up to it; against a loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.kernel.harness import check, compare

from serrate.errors import AxisError, ScheduleError
from serrate.fusion import Fusion, ParallelType, TensorView, symbol
from serrate.kernel import Lowered, lower

P = ParallelType
LENGTHS = {"ragged": [3, 0, 4, 70, 1], "one row": [5], "empty rows": [0, 0], "no rows": []}
each_length = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
JOIN: dict[str, tuple[float, Callable[[Any, Any], Any]]] = {
    "sum": (0, lambda a, b: a + b),
    "prod": (1, lambda a, b: a * b),
    "max": (-math.inf, torch.maximum),
    "min": (math.inf, torch.minimum),
    "logsumexp": (-math.inf, torch.logaddexp),
}


def offsets_of(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *torch.tensor(lengths, dtype=torch.int64).cumsum(0).tolist()])


def scanned(row: torch.Tensor, name: str, exclusive: bool = False, reverse: bool = False) -> torch.Tensor:
    """One row, element after element, in float64."""
    first, join = JOIN[name]
    so_far = torch.full(row.shape[1:], first, dtype=torch.float64)
    found = torch.empty(row.shape, dtype=torch.float64)
    order = range(len(row) - 1, -1, -1) if reverse else range(len(row))
    for at in order:
        if exclusive:
            found[at] = so_far
        so_far = join(so_far, row[at].double())
        if not exclusive:
            found[at] = so_far
    return found


def nested(fusion: Fusion, *features: int | str, dtype: str = "float32") -> TensorView:
    x, offsets = fusion.input("x", ["n", *features], dtype), fusion.input("offsets", ["k"], "int64")
    return fusion.view_as_nested(x, offsets)


def agree(lowered: Lowered, inputs: list[torch.Tensor], *expected: torch.Tensor) -> None:
    check(lowered, inputs)
    outputs = lowered(*inputs)
    compare(lowered, inputs, {t.name: made for t, made in zip(lowered.fusion.outputs, outputs, strict=True)})
    for got, want in zip(outputs, expected, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)


def by_rows(x: torch.Tensor, lengths: list[int], of_row: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    made = [of_row(row) for row in x.split(lengths)]
    return torch.cat(made) if made else x.double()


@each_length
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", JOIN)
def test_rows(name: str, exclusive: bool, reverse: bool, lengths: list[int]) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.scan(name, nested(fusion, 3), 1, exclusive=exclusive, reverse=reverse), "y")
    y.parallelize(0, P.Thread).parallelize(2, P.Simd)
    data = torch.rand(sum(lengths), 3) + 0.5
    want = by_rows(data, lengths, lambda row: scanned(row, name, exclusive, reverse))
    agree(lower(fusion, y), [data, offsets_of(lengths)], want)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (0, 2, 1)])
@pytest.mark.parametrize("split", [None, 2, 4])
def test_loops_in_any_order(order: tuple[int, ...], split: int | None) -> None:
    lengths = LENGTHS["ragged"]
    for reverse in (False, True):
        fusion = Fusion()
        y = fusion.output(fusion.scan("sum", nested(fusion, 3), 1, reverse=reverse), "y").reorder(order)
        if split is not None:
            y.split(order.index(1), split)
        data = torch.randn(sum(lengths), 3)
        agree(
            lower(fusion, y),
            [data, offsets_of(lengths)],
            by_rows(data, lengths, lambda row: scanned(row, "sum", reverse=reverse)),  # noqa: B023
        )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_axis_of_a_regular_tensor(axis: int) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.scan("max", fusion.input("x", ["a", 3, "b"]), axis), "y")
    data = torch.randn(4, 3, 5)
    agree(lower(fusion, y), [data], data.cummax(axis).values.double())


@each_length
def test_fused_with_what_it_reads_and_what_reads_it(lengths: list[int]) -> None:
    """The running share of a softmax: two reductions, then a scan of what they give, weighted by the features."""
    fusion = Fusion()
    x = nested(fusion)
    w = fusion.input("w", [3])
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    shares = exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True)
    running = fusion.scan("sum", shares, 1)
    y = fusion.output(fusion.broadcast(running, [False, False, True]) * w, "y")
    total = fusion.output(fusion.reduce("sum", running, [1]), "total")
    data, weights = torch.randn(sum(lengths)), torch.randn(3)
    each = by_rows(data, lengths, lambda row: scanned(row.double().softmax(0), "sum"))
    sums = torch.stack([row.sum() for row in each.split(lengths)]) if lengths else torch.zeros(0, dtype=torch.float64)
    agree(lower(fusion, y), [data, offsets_of(lengths), weights], each[:, None] * weights.double(), sums)
    assert total in fusion.outputs


@each_length
def test_both_directions(lengths: list[int]) -> None:
    fusion = Fusion()
    x = nested(fusion, 2)
    forward, backward = fusion.scan("sum", x, 1), fusion.scan("sum", x, 1, reverse=True)
    first = fusion.output(forward * 2.0, "first")
    fusion.output(backward * 3.0, "second")
    data = torch.randn(sum(lengths), 2)
    ahead = by_rows(data, lengths, lambda row: scanned(row, "sum"))
    behind = by_rows(data, lengths, lambda row: scanned(row, "sum", reverse=True))
    agree(lower(fusion, first), [data, offsets_of(lengths)], 2 * ahead, 3 * behind)


@each_length
@pytest.mark.parametrize("kept", ["forward", "backward"])
def test_both_directions_in_one_value(lengths: list[int], kept: str) -> None:
    fusion = Fusion()
    x = nested(fusion)
    scans = {"forward": fusion.scan("sum", x, 1), "backward": fusion.scan("sum", x, 1, reverse=True)}
    y = fusion.output(scans["forward"] - scans["backward"], "y")
    with pytest.raises(ScheduleError, match="both directions"):
        lower(fusion, y)
    scans[kept].cache_after()
    data = torch.randn(sum(lengths))
    ahead = by_rows(data, lengths, lambda row: scanned(row, "sum"))
    behind = by_rows(data, lengths, lambda row: scanned(row, "sum", reverse=True))
    agree(lower(fusion, y), [data, offsets_of(lengths)], ahead - behind)


def test_a_scan_of_a_scan() -> None:
    lengths = LENGTHS["ragged"]
    fusion = Fusion()
    y = fusion.output(fusion.scan("max", fusion.scan("sum", nested(fusion), 1), 1), "y")
    data = torch.randn(sum(lengths))
    want = by_rows(data, lengths, lambda row: scanned(scanned(row, "sum"), "max"))
    agree(lower(fusion, y), [data, offsets_of(lengths)], want)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "int64", "bool", "uint8"])
def test_dtypes(dtype: str) -> None:
    lengths = LENGTHS["ragged"]
    fusion = Fusion()
    y = fusion.output(fusion.scan("sum", nested(fusion, dtype=dtype), 1), "y")
    data = torch.randint(0, 2, (sum(lengths),)).to(getattr(torch, dtype))
    agree(lower(fusion, y), [data, offsets_of(lengths)], by_rows(data, lengths, lambda row: scanned(row, "sum")))


def test_not_a_number_stays_in_its_row() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.scan("max", nested(fusion), 1), "y")
    data = torch.tensor([1.0, math.nan, 2.0, 5.0, 4.0])
    (got,) = lower(fusion, y)(data, offsets_of([3, 2]))
    assert got.isnan().tolist() == [False, True, True, False, False]


def test_a_long_row_has_a_small_error() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.scan("sum", nested(fusion), 1), "y")
    data = torch.full((5_000_000,), 0.1)
    (got,) = lower(fusion, y)(data, offsets_of([5_000_000]))
    want = data.double().cumsum(0)
    assert ((got - want).abs() / want).max() < 1e-7


def test_on_a_gpu_threads_scan_rows_each() -> None:
    lengths = LENGTHS["ragged"]
    fusion = Fusion()
    y = fusion.output(fusion.scan("sum", nested(fusion, 3), 1, reverse=True), "y")
    y.reorder([0, 2, 1]).parallelize(0, P.BIDx).parallelize(1, P.TIDx)
    check(lower(fusion, y, target="cuda"), [torch.randn(sum(lengths), 3), offsets_of(lengths)])


@pytest.mark.parametrize(("target", "kind"), [("cpp", P.Thread), ("cuda", P.TIDx)])
def test_a_scanned_loop_is_serial(target: str, kind: ParallelType) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.scan("sum", fusion.input("x", [3, 8]), 1), "y").parallelize(1, kind)
    with pytest.raises(ScheduleError, match="scanned along it, from one index to the next; run it serially"):
        lower(fusion, y, target=target)


def test_a_scanned_loop_is_not_merged() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.scan("sum", fusion.input("x", [3, 8]), 1), "y").merge(0)
    with pytest.raises(ScheduleError, match="do not merge them"):
        lower(fusion, y)


def test_what_cannot_be_scanned() -> None:
    fusion = Fusion()
    x = fusion.input("x", [3, 8])
    with pytest.raises(ValueError, match="var"):
        fusion.scan("var", x, 1)
    with pytest.raises(AxisError, match="broadcast"):
        fusion.scan("sum", fusion.broadcast(x, [True, False, False]), 0)


def test_an_inner_part_of_a_scanned_axis_is_not_walked_outside_of_the_outer() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.scan("sum", fusion.input("x", [3, 8]), 1), "y").split(1, 4).reorder([0, 2, 1])
    with pytest.raises(ScheduleError, match="do not come one after another"):
        lower(fusion, y)


def test_a_scan_from_the_end_is_summed_by_blocks() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.scan("sum", fusion.input("x", ["n"]), 0, reverse=True), [0]), "y")
    data = torch.rand(150)
    agree(lower(fusion, y), [data], scanned(data, "sum", reverse=True).sum())


@pytest.mark.parametrize("step", ["in two parts", "features outside"])
def test_positions_that_depend_on_the_row_are_not_scanned_across_rows(step: str) -> None:
    """A row of 2 cut in two parts has its second position in the second part, one of 4 has it in the first."""
    fusion = Fusion()
    x, offsets = fusion.input("x", ["n", 2]), fusion.input("offsets", [symbol("k") + 1], "int64")
    y = fusion.output(fusion.scan("sum", fusion.view_as_nested(x, offsets), 0), "y")
    y = y.split(1, 2, inner_split=False) if step == "in two parts" else y.reorder([0, 2, 1]).merge(1)
    with pytest.raises(ScheduleError, match=r"loop iS_\w+\{.*\} of y are other positions of a row"):
        lower(fusion, y)


@pytest.mark.parametrize("step", ["as it is", "in parts of two", "features inside"])
def test_scans_across_rows(step: str) -> None:
    fusion = Fusion()
    x, offsets = fusion.input("x", ["n", 2]), fusion.input("offsets", [symbol("k") + 1], "int64")
    y = fusion.output(fusion.scan("sum", fusion.view_as_nested(x, offsets), 0), "y")
    if step != "as it is":
        y.split(1, 2) if step == "in parts of two" else y.merge(1)
    data, want, sums = torch.arange(16.0).reshape(8, 2), torch.empty(8, 2), torch.zeros(3, 2)
    for start, stop in ((0, 2), (2, 5), (5, 5), (5, 8)):
        sums[: stop - start] += data[start:stop]
        want[start:stop] = sums[: stop - start]
    kernel, given = lower(fusion, y), [data, torch.tensor([0, 2, 5, 5, 8])]
    assert torch.equal(kernel(*given)[0], want)
    check(kernel, given)


def test_a_scanned_axis_is_not_walked_again_within_its_outer_part() -> None:
    """The maximum of each row of a scan down the columns, subtracted: inside of two columns rows are walked twice."""
    fusion = Fusion()
    sums = fusion.scan("sum", fusion.input("x", [4, 3]), 0)
    y = fusion.output(sums - fusion.reduce("max", sums, [1], keepdims=True), "y")
    data = torch.tensor([[0, -1, 4], [3, -4, 10], [6, -7, 16], [9, -10, 22]], dtype=torch.float32)
    want = data.cumsum(0) - data.cumsum(0).amax(1, keepdim=True)
    y.split(0, 2)
    assert torch.equal(lower(fusion, y)(data)[0], want)
    y.reorder([0, 2, 1])
    with pytest.raises(ScheduleError, match=r"along loop iS_i_inner\{2\} of y, and read where that is walked again"):
        lower(fusion, y)


def by_lanes(name: str, dtype: str = "float32", reverse: bool = False) -> Lowered:
    fusion = Fusion()
    x = nested(fusion, dtype=dtype)
    made = fusion.scan(name, x * x, 1, reverse=reverse)
    y = fusion.output(made + fusion.cast(x, made.dtype), "y").parallelize(0, P.Thread).parallelize(1, P.Simd)
    return lower(fusion, y)


@each_length
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_by_lanes(name: str, dtype: str, reverse: bool, lengths: list[int]) -> None:
    """Along a ragged axis, whatever the lengths; what is read before is there again behind the scan."""
    lowered = by_lanes(name, dtype, reverse)
    assert "reduction(inscan, " in lowered.source
    x = torch.randint(0 if dtype == "uint8" else -1, 2, (sum(lengths),)).to(getattr(torch, dtype))
    wanted = [scanned(row * row, name, reverse=reverse) + row for row in x.split(lengths)]
    agree(lowered, [x, offsets_of(lengths)], torch.cat([torch.zeros(0), *wanted]).double())


def test_long_sums_by_lanes_are_as_exact_as_those_one_after_another() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.scan("sum", fusion.input("x", ["n"]), 0), "y").parallelize(0, P.Simd)
    x = torch.full((1_000_003,), 0.1)
    want = x.double().cumsum(0)
    torch.testing.assert_close(lower(fusion, y)(x)[0].double(), want, rtol=1e-7, atol=0)


def test_what_lanes_do_not_scan() -> None:
    def along(
        make: Callable[[Fusion, TensorView], TensorView], parallel: P, target: str = "cpp", split: int = 0
    ) -> Lowered:
        fusion = Fusion()
        y = fusion.output(make(fusion, nested(fusion)), "y")
        if split:
            y.split(1, split)
        return lower(fusion, y.parallelize(len(y.loop) - 1, parallel), target=target)

    total = "is scanned along it, from one index to the next"
    with pytest.raises(ScheduleError, match=rf"{total} \(lanes can only scan sum and prod of real numbers\)"):
        along(lambda fusion, x: fusion.scan("max", x, 1), P.Simd)
    with pytest.raises(ScheduleError, match=f"{total}, without its own"):
        along(lambda fusion, x: fusion.scan("sum", x, 1, exclusive=True), P.Simd)
    with pytest.raises(ScheduleError, match=rf"{total} \(lanes can only scan a whole axis"):
        along(lambda fusion, x: fusion.scan("sum", x, 1), P.Simd, split=16)
    with pytest.raises(ScheduleError, match=f"{total}, and more is gathered along it"):
        along(lambda fusion, x: fusion.scan("sum", x, 1) + fusion.scan("prod", x, 1), P.Simd)
    with pytest.raises(ScheduleError, match="Simd is not for the target 'cuda'"):
        along(lambda fusion, x: fusion.scan("sum", x, 1), P.Simd, target="cuda")
