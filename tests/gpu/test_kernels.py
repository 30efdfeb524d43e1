"""Lowered kernels on the GPU: the goldens and random ones, against `evaluate`. `many_kernels` runs many more."""

from __future__ import annotations

from random import Random

import pytest
import torch
from tests.gpu.running import run
from tests.kernel.golden_kernels import GOLDENS, inputs
from tests.kernel.harness import compare
from tests.kernel.random_schedules import draw, schedule

import serrate as sr
from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion import Fusion, ParallelType, RaggedIterDomain, inject_offsets
from serrate.kernel import Lowered, compile_together, lower

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = [name for name in GOLDENS if GOLDENS[name]().target.name == "cuda"]
LENGTHS = ([3, 0, 5, 1], [], [0, 0], [17] * 5, [300, 0, 1, 40])


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("name", CUDA)
def test_golden(name: str, lengths: list[int]) -> None:
    lowered = GOLDENS[name]()
    run(lowered, inputs(lowered, lengths))


@pytest.mark.parametrize("seed", range(100))
def test_random(seed: int) -> None:
    random = Random(seed)
    while True:
        case = draw(random, "cuda")
        try:
            schedule(case, random)
            lowered = case.lower()
        except (ScheduleError, RaggednessError):
            continue
        break
    try:
        run(lowered, case.program.inputs)
    except ScheduleError:  # lanes that do not divide what they are taken from, known only now
        pytest.skip("refused when called")


def two_ways(dtype: str, lanes: int) -> Lowered:
    """x · x + w over rows of 32, and x kept in y on the way to x − its greatest value."""
    fusion = Fusion()
    x, w = fusion.input("x", ["n", 32], dtype), fusion.input("w", [32], dtype)
    kept = x * x + w
    y = fusion.output(kept - fusion.reduce("max", kept, [1], keepdims=True), "y")
    if dtype in ("float32", "float64", "int64"):
        kept.keep_in(y)
    y.vectorize(1, lanes).split(1, 2).parallelize(0, ParallelType.BIDx).parallelize(2, ParallelType.TIDx)
    return lower(fusion, y, target="cuda")


@pytest.mark.parametrize("lanes", [2, 4, 8])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64"])
def test_wide_accesses(dtype: str, lanes: int) -> None:
    """Aligned, and with inputs and outputs that begin one element further on."""
    lowered = two_ways(dtype, lanes)
    kind = getattr(torch, dtype)
    given = [(torch.randn(size) * 3).to(kind) for size in ((7, 32), (32,))]
    (expected,) = lowered.fusion.evaluate(*given)
    for shift in (0, 1):
        memory = [torch.zeros(tensor.numel() + 1, dtype=kind, device="cuda") for tensor in (*given, expected)]
        shapes = [tensor.shape for tensor in (*given, expected)]
        x, w, y = (m[shift:][: s.numel()].view(s) for m, s in zip(memory, shapes, strict=True))
        x.copy_(given[0])
        w.copy_(given[1])
        assert lowered.is_aligned({"x": x, "w": w, "y": y}) == (shift == 0)
        for out in (None, [y]):
            (result,) = lowered(x, w, out=out)
            compare(lowered, given, {"y": result.cpu()})
        outside = memory[2][-1] if shift == 0 else memory[2][0]
        assert outside == 0


def test_more_elements_than_narrow_indices_reach() -> None:
    """Past 2³¹ elements indices have 64 bits; the last element is the proof."""
    fusion = Fusion()
    y = fusion.output(fusion.binary("add", fusion.input("x", ["n"], "int8"), 1), "y")
    y.split(0, 256).parallelize(0, ParallelType.BIDx).parallelize(1, ParallelType.TIDx)
    kernel = lower(fusion, y, target="cuda")
    x = torch.zeros(2**31 + 5, dtype=torch.int8, device="cuda")
    x[-3:] = torch.tensor([1, 2, 3], device="cuda")
    (result,) = kernel(x)
    assert result[-4:].tolist() == [1, 2, 3, 4]
    assert int(result.sum(dtype=torch.int64)) == x.numel() + 6


def test_lengths_born_on_the_device_stay_there() -> None:
    """Extents that a kernel of torch has just computed: offsets, kernel and offsets of the result, without waiting."""
    fusion = Fusion()
    data, extents = fusion.input("x", ["n", 32]), fusion.input("extents", ["k"], "int64")
    x = fusion.view_as_nested(data, RaggedIterDomain.from_extents(extents, size="n").raggedness)
    fusion.output(fusion.unary("exp", x), "y")
    made = inject_offsets(fusion)
    y = made.named("y")
    y.split(1, 8).combine(0).parallelize(0, ParallelType.BIDx).parallelize(1, ParallelType.TIDy)
    y.parallelize(2, ParallelType.TIDx)
    kernel = lower(made, y, target="cuda")
    experts = torch.randint(0, 16, (1000,), device="cuda")
    values = torch.randn(1000, 32, device="cuda")
    kernel(values, torch.bincount(experts, minlength=16))  # compiles
    with sr.testing.forbid_sync():
        counts = torch.zeros(16, dtype=torch.int64, device="cuda").scatter_add(0, experts, torch.ones_like(experts))
        result, offsets = kernel(values, counts)
    torch.testing.assert_close(result, values.exp())
    assert torch.equal(offsets.cpu().diff(), torch.bincount(experts.cpu(), minlength=16))


def test_an_index_out_of_range_is_raised_later() -> None:
    """The kernel reads 0 and reports; nothing waits, and a later call raises."""
    fusion = Fusion()
    table, chosen = fusion.input("table", ["rows", 8]), fusion.input("chosen", ["n"], "int64")
    y = fusion.output(fusion.gather(table, chosen), "y").parallelize(0, ParallelType.BIDx)
    kernel = lower(fusion, y, target="cuda")
    rows, good = torch.ones(3, 8, device="cuda"), torch.tensor([0, 2], device="cuda")
    bad = torch.tensor([0, 3], device="cuda")
    kernel(rows, good)
    with sr.testing.forbid_sync():
        (result,) = kernel(rows, bad)
    with pytest.raises(IndexError, match="position 1 holds 3"):
        sr.testing.raise_deferred()
    assert result.sum(1).tolist() == [8, 0]
    kernel(rows, good)
    sr.testing.raise_deferred()


def test_elements_are_added_up_where_indices_say() -> None:
    """The same in every run, without waiting; an index that is out of range is reported later."""
    fusion = Fusion()
    x, table = fusion.input("x", ["n", 32]), fusion.input("table", ["v", 32])
    y = fusion.output(fusion.scatter_add(x, fusion.input("ids", ["n"], "int64"), table), "y").reorder([0, 2, 1])
    kernel = lower(fusion, y.parallelize(0, ParallelType.BIDx).parallelize(1, ParallelType.TIDx), target="cuda")
    values, zeros, places = torch.randn(5000, 32), torch.zeros(70, 32), torch.randint(0, 70, (5000,))
    run(kernel, [values, zeros, places])
    given = [values.cuda(), zeros.cuda()]
    first = kernel(*given, places.cuda())[0]
    there = places.cuda()
    with sr.testing.forbid_sync():
        again = kernel(*given, there)[0]
    assert torch.equal(first, again)
    places[3] = 70
    there = places.cuda()
    for _ in range(2):  # where the indices lie is remembered, but not that somebody was told of the wrong one
        kernel(*given, there)
        with pytest.raises(IndexError, match="position 3 holds 70"):
            sr.testing.raise_deferred()


def test_kernels_of_one_source() -> None:
    kernels = []
    for factor in (2.0, 3.0):
        fusion = Fusion()
        y = fusion.output(fusion.input("x", ["n"]) * factor, "y").parallelize(0, ParallelType.BIDx)
        kernels.append(lower(fusion, y, target="cuda"))
    compile_together(kernels)
    x = torch.randn(5, device="cuda")
    for factor, kernel in zip((2.0, 3.0), kernels, strict=True):
        assert torch.equal(kernel(x)[0], x * factor)
