"""The loops of lowered kernels: their extents, how they run, what they test, and the width of indices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.fusion.programs import rows
from tests.fusion.samples import same, some
from tests.fusion.schedules import conditions, loops, prepared
from tests.kernel.harness import check

from serrate.errors import ScheduleError
from serrate.fusion import Fusion, symbol
from serrate.fusion import ParallelType as P
from serrate.fusion.analysis import evaluate
from serrate.kernel import lower


@pytest.mark.parametrize(
    ("name", "extents"),
    [
        ("flat: split (cpp)", [6, 4]),
        ("flat: indivisible_split (cpp)", [4, 7]),
        ("flat: outer_split (cpp)", [4, 6]),
        ("flat: indivisible_outer_split (cpp)", [7, 4]),
        ("flat: swapped (cpp)", [5, 5]),
        ("flat: mapped (cpp)", [2, 5, 3]),
        ("flat: mapped_from_the_end (cpp)", [5, 3, 2]),
        ("flat: unroll (cpp)", [5, 5]),
        ("flat: split_and_merge (cpp)", [28]),
        ("square: swizzle (cpp)", [8, 8]),
        ("square: swizzle_of_tiles (cpp)", [2, 4, 2, 4]),
        ("symbolic: merge (cpp)", ["(n * 6 + 3) / 4", "id_inner_extent"]),  # which ends with the axis
        ("symbolic: transposed_loops (cpp)", [6, "n"]),
        ("rows: flat_values (cpp)", ["n * 6"]),
    ],
)
def test_the_loops_are_those_of_the_schedule(name: str, extents: list[Any]) -> None:
    found = [loop.extent.value if loop.extent.is_const else str(loop.extent) for loop in loops(prepared(name)[0])]
    assert found == extents


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("flat: split (cpp)", 0),
        ("flat: outer_split (cpp)", 0),
        ("flat: indivisible_split (cpp)", 1),
        ("flat: split_of_both_parts (cpp)", 2),
        ("rows: by_component (cpp)", 0),
        ("rows: flat_values (cpp)", 0),
        ("square: swizzle (cpp)", 0),
    ],
)
def test_no_more_is_tested_than_needed(name: str, count: int) -> None:
    assert conditions(prepared(name)[0]) == count


@pytest.mark.parametrize(
    ("name", "parallel"),
    [
        ("flat: threads (cpp)", [P.Thread, P.Serial]),
        ("flat: lanes (cpp)", [P.Serial, P.Simd, P.Simd]),  # full lanes, and then what is left
        ("flat: unroll (cpp)", [P.Serial, P.Unroll]),
        ("flat: vectorize (cuda)", [P.Serial, P.Vectorize]),
        ("flat: blocks_and_threads (cuda)", [P.BIDx, P.TIDx]),
        ("flat: grid_of_three (cuda)", [P.BIDz, P.BIDy, P.TIDz]),
    ],
)
def test_loops_are_run_as_the_schedule_says(name: str, parallel: list[P]) -> None:
    assert [loop.parallel for loop in loops(prepared(name)[0])] == parallel


# What is checked when the kernel runs


@pytest.mark.parametrize("size", [0, 4, 12])
def test_lanes_that_divide_are_accepted_when_it_runs(size: int) -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", ["n"]), "y").vectorize(0, 4)
    lowered = lower(fusion, y, target="cuda")
    assert conditions(lowered) <= 1
    check(lowered, [some(size)])


@pytest.mark.parametrize("size", [1, 5])
def test_lanes_that_do_not_divide_are_refused_when_it_runs(size: int) -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", ["n"]), "y").vectorize(0, 4)
    with pytest.raises(ScheduleError, match=r"iV_i_inner\{4\} cannot be vectorized: 4 does not divide iS_i\{n\}"):
        lower(fusion, y, target="cuda").buffers([some(size)])


def test_lanes_of_packed_rows_need_only_their_features() -> None:
    """Rows follow each other in memory, so all values may be vectorized, whatever the lengths."""
    y, inputs, _ = rows()
    lowered = lower(y.fusion, y.combine(0).merge(0).vectorize(0, 2), target="cuda")
    check(lowered, inputs)


@pytest.mark.parametrize("factor", [1, 3, 8, 50])
def test_a_factor_that_is_known_when_it_runs(factor: int) -> None:
    fusion = Fusion()
    y = fusion.output(-fusion.input("x", ["n"]), "y")
    fusion.input("w", ["f"])
    lowered = lower(fusion, y.split(0, symbol("f")))
    outer, inner = loops(lowered)
    assert evaluate(outer.extent, {"n": 8, "f": factor}) == -(-8 // factor)
    assert str(inner.extent) == "i_inner_extent"  # the factor, or what is left of the axis
    x = some(8)
    check(lowered, [x, some(factor)])
    same(lowered(x, some(factor))[0], -x)


# Index width


@pytest.mark.parametrize("target", ["cpp", "cuda"])
def test_indices_of_32_bits(target: str) -> None:
    y, inputs, _ = rows()
    wide, narrow = (lower(y.fusion, y, index=index, target=target) for index in ("int64", "int32"))
    assert (wide.kernel.index, narrow.kernel.index) == ("int64", "int32")
    assert "for (int64_t c" in wide.source
    assert "for (int64_t" not in narrow.source
    check(narrow, inputs)


def test_the_end_of_a_row_whose_component_is_found_right_before_its_last_part() -> None:
    """The component, which threads may not have, becomes known only where the inner part of its row is walked: that
    part ends with the row all the same."""
    fusion = Fusion()
    x = fusion.view_as_nested(fusion.input("x", ["n", 6]), fusion.input("offsets", [symbol("k") + 1], "int64"))
    y = fusion.output(fusion.reduce("var", x, [0, 1]), "y")
    y.split(0, 2).split(1, 1, inner_split=False).reorder([0, 4, 2, 1, 3]).split(4, 5, inner_split=False)
    y.reorder([2, 0, 1, 4, 3, 5]).parallelize(2, P.TIDx).parallelize(4, P.TIDy)
    check(lower(fusion, y, target="cuda"), [torch.randn(7, 6), torch.tensor([0, 3, 7])])
