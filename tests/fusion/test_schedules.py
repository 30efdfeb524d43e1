"""Every scheduling method: the same values before and after, in the checking interpreter and compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from tests.fusion.programs import rows, square
from tests.fusion.samples import LENGTHS, offsets_of, same, some
from tests.fusion.schedules import SCHEDULES, prepared
from tests.kernel.harness import check

from serrate.fusion import Memory, TensorView, const
from serrate.fusion import ParallelType as P
from serrate.fusion.binding import bind
from serrate.fusion.raggedness import Listed
from serrate.kernel import cpp
from serrate.kernel.signatures import signature
from serrate.runtime.compiler import Library, compile


@pytest.mark.parametrize("name", SCHEDULES)
def test_evaluate_does_not_depend_on_the_schedule(name: str) -> None:
    program, schedule, _ = SCHEDULES[name]
    y, inputs, want = program()
    same(y.fusion.evaluate(*inputs)[0], want)
    schedule(y)
    same(y.fusion.evaluate(*inputs)[0], want)


@pytest.mark.parametrize("name", SCHEDULES)
def test_in_the_interpreter(name: str) -> None:
    """No violation, and the values of `evaluate`, which are those of torch."""
    lowered, (_, inputs, _) = prepared(name)
    for seed in range(2):
        check(lowered, inputs, seed)


COMPILED = [name for name, (_, _, target) in SCHEDULES.items() if target == "cpp"]


@cache
def library(index: str) -> Library:
    """One library for all kernels."""
    return compile(cpp.source([prepared(name, f"kernel{at}", index)[0].kernel for at, name in enumerate(COMPILED)]))


@pytest.mark.parametrize("index", ["int64", "int32"])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str, index: str) -> None:
    lowered, (_, inputs, want) = prepared(name, f"kernel{COMPILED.index(name)}", index)
    check(lowered, inputs)  # first: what writes out of bounds would end the process
    lowered._variants[False, False] = library(index).function(signature(lowered.kernel))
    same(lowered(*inputs)[0], want)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [1], [9, 0, 1]], ids=str)
@pytest.mark.parametrize("name", [name for name in SCHEDULES if name.startswith(("rows:", "softmax:", "row_sums:"))])
def test_other_lengths(name: str, lengths: list[int]) -> None:
    lowered, (_, inputs, _) = prepared(name)
    check(lowered, [some(sum(lengths), 6), offsets_of(lengths), *([some(len(lengths), 6)] if len(inputs) > 2 else [])])


def test_three_ways_to_walk_rows_give_the_same() -> None:
    """Bit for bit: each element is computed in the same way."""
    results = []
    for way in ("by_component", "by_tile", "flat"):
        lowered, (_, inputs, _) = prepared(f"rows: {way} (cpp)", way)
        results.append(lowered(*inputs)[0])
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


# What a schedule returns and leaves alone


def test_methods_return_the_tensor() -> None:
    y, _, _ = square()
    steps: list[Callable[[], TensorView]] = [
        lambda: y.swizzle(0, 1),
        lambda: y.split(0, 4),
        lambda: y.merge(0),
        lambda: y.reorder([1, 0]),
        lambda: y.reorder({0: 1}),
        lambda: y.partition(0, Listed((const(3), const(5)))),
        lambda: y.combine(0),
        lambda: y.unroll(0, 2),
        lambda: y.vectorize(0, 2, P.Simd),
        lambda: y.parallelize(0, P.Thread),
        lambda: y.set_memory_type(Memory.GLOBAL),
        lambda: y.set_allocation_domain(y.domain.logical, fill=0.0),
    ]
    assert all(step() is y for step in steps)


def test_a_schedule_does_not_change_logical_or_memory_axes() -> None:
    y, _, _ = rows()
    before = (y.domain.root, y.domain.logical, y.domain.allocation, y.ndim, y.dtype)
    y.split(1, 2).combine(0).reorder([1, 0, 2]).parallelize(0, P.Thread)
    assert (y.domain.root, y.domain.logical, y.domain.allocation, y.ndim, y.dtype) == before


def test_bound_sizes() -> None:
    """What the harness compares with is bound by the shapes of inputs."""
    y, inputs, _ = rows()
    assert bind(y.fusion, inputs).sizes == {"n": 8, "k": 4}
    assert np.array_equal(np.diff(bind(y.fusion, inputs).offsets(y.domain.logical[1])), LENGTHS)
