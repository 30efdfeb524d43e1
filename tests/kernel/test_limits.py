"""Schedules that ask for more than a target has, or for what it cannot run: the limit is named."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from tests.kernel.harness import check

from serrate.errors import ScheduleError
from serrate.fusion import Fusion, IterDomain, TensorView, symbol
from serrate.fusion import ParallelType as P
from serrate.kernel import Lowered, lower
from serrate.kernel.targets import CUDA, TARGETS


def copied(*extents: int | str, kinds: tuple[P, ...]) -> TensorView:
    fusion = Fusion()
    y = fusion.output(fusion.copy(fusion.input("x", list(extents))), "y")
    for place, kind in enumerate(kinds):
        y.parallelize(place, kind)
    return y


def lowered(y: TensorView, target: str = "cuda") -> Lowered:
    return lower(y.fusion, y, target=target)


@pytest.mark.parametrize(
    ("kind", "most", "words"),
    [
        (P.TIDx, 1024, "a block has at most 1024 threads"),
        (P.TIDy, 1024, "a block has at most 1024 threads"),
        (P.TIDz, 64, "a block has at most 64 threads along z"),
        (P.BIDx, 2**31 - 1, "a launch has at most 2147483647 blocks along x"),
        (P.BIDy, 65_535, "a launch has at most 65535 blocks along y"),
        (P.BIDz, 65_535, "a launch has at most 65535 blocks along z"),
    ],
)
def test_each_dimension_of_a_launch_has_its_limit(kind: P, most: int, words: str) -> None:
    lowered(copied(most, kinds=(kind,)))
    with pytest.raises(ScheduleError, match=f"{words}, the schedule asks for {most + 1}"):
        lowered(copied(most + 1, kinds=(kind,)))
    later = lowered(copied("n", kinds=(kind,)))
    if most < 2**20:
        later.buffers([torch.ones(most)])
        with pytest.raises(ScheduleError, match=rf"{words}, .* asks for n.*where \{{'n': {most + 1}\}}"):
            later.buffers([torch.ones(most + 1)])


def test_threads_are_counted_together() -> None:
    lowered(copied(32, 32, kinds=(P.TIDx, P.TIDy)))
    with pytest.raises(ScheduleError, match="at most 1024 threads, the schedule asks for 1056"):
        lowered(copied(32, 33, kinds=(P.TIDx, P.TIDy)))


def test_limits_are_data_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(CUDA, name="small", limits=replace(CUDA.limits, grid=(7, 5, 3)))
    monkeypatch.setitem(TARGETS, "small", small)
    lowered(copied(5, kinds=(P.BIDy,)), "small")
    with pytest.raises(ScheduleError, match="at most 5 blocks along y, the schedule asks for 6"):
        lowered(copied(6, kinds=(P.BIDy,)), "small")


def test_threads_inside_lanes() -> None:
    with pytest.raises(ScheduleError, match=r"loop .* of y is Thread inside loop .*, whose lanes belong to one thread"):
        lowered(copied(8, "n", kinds=(P.Simd, P.Thread)), "cpp")
    check(lowered(copied("n", 8, kinds=(P.Thread, P.Simd)), "cpp"), [torch.randn(3, 8)])


@pytest.mark.parametrize("reduced", [P.TIDx, P.BIDx])
def test_lanes_around_a_reduction_across_threads(reduced: P) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", [4, "n"]), [1]), "y")
    y.parallelize(0, P.Vectorize).split(1, 32).parallelize(2 if reduced == P.TIDx else 1, reduced)
    with pytest.raises(ScheduleError, match=r"loop .* of y is Vectorize around a reduction across threads or blocks"):
        lowered(y)
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n", 32, 4]), [1]), "y")
    y.parallelize(0, P.BIDx).parallelize(1, P.TIDx).parallelize(2, P.Vectorize)
    check(lowered(y), [torch.randn(3, 32, 4)])


def padded() -> TensorView:
    """[n, 5] in memory as [n, 2, 4], of which 3 of each 8 are holes."""
    fusion = Fusion()
    y = fusion.output(fusion.copy(fusion.input("x", ["n", 5])), "y")
    outer, inner = IterDomain.split(y.domain.logical[1], 4)
    return y.set_allocation_domain([y.domain.logical[0], outer, inner], fill=-1.0)


def test_holes_are_filled_by_all_threads() -> None:
    y = padded().parallelize(0, P.BIDx).parallelize(1, P.TIDx)
    kernel = lowered(y)
    for rows in (0, 1, 6):
        check(kernel, [torch.randn(rows, 5)])
    text = str(kernel.kernel)
    filling = text[text.index("is filled") :]
    assert re.search(r"for step in .*# memory of y", filling)
    assert "== 0" not in filling  # no thread is chosen
    check(lowered(padded().parallelize(0, P.Thread), "cpp"), [torch.randn(6, 5)])


def test_room_that_rows_do_not_fill_is_filled() -> None:
    """Past the last row there are no elements: the fill stands there too."""
    for target, kind in (("cpp", P.Thread), ("cuda", P.BIDx)):
        fusion = Fusion()
        data, offsets = fusion.input("x", ["n"]), fusion.input("offsets", [symbol("k") + 1], "int64")
        y = fusion.output(fusion.view_as_nested(data, offsets, exact=False) * 2.0, "y")
        y.set_allocation_domain(list(y.domain.allocation), fill=7.0).parallelize(0, kind)
        check(lowered(y, target), [torch.randn(6), torch.tensor([0, 1, 1, 4])])
        if target == "cpp":
            (got,) = lowered(y, target)(torch.ones(6), torch.tensor([0, 1, 1, 4]))
            assert got.tolist() == [2, 2, 2, 2, 7, 7]


def test_a_block_without_threads_is_never_launched_and_compiles() -> None:
    """An axis of no elements on threads, beside a reduction across others: a C array of 0 elements is an error."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n", 4, 0]), [1]), "y")
    y.parallelize(0, P.BIDx).parallelize(1, P.TIDx).parallelize(2, P.TIDz)
    source = lowered(y).source
    assert "block_reduce<1>" in source
    assert "reduce<0" not in source
