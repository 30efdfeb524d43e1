"""Which scheduler takes what, and which loops it makes: lanes, threads, parts; averages as sums; what is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.schedule import required
from tests.schedule.running import agree

from serrate.fusion import Fusion, TensorView, symbol
from serrate.schedule import plan
from serrate.schedule.averages import without_averages


def rows(fusion: Fusion, *shape: int) -> TensorView:
    offsets = fusion.input("offsets", [symbol("k") + 1], "int64")
    return fusion.view_as_nested(fusion.input("x", ["n", *shape]), offsets)


def of(make: Callable[[Fusion], TensorView]) -> str:
    """The schedule of the only kernel of a fusion."""
    fusion = Fusion()
    fusion.output(make(fusion), "y")
    (step,) = plan(fusion).steps
    return f"{step.scheduler} along {step.reference}; {step.parameters}"


def scaled(fusion: Fusion) -> TensorView:
    w = fusion.input("w", ["k", 64])
    return rows(fusion, 64) * fusion.broadcast(w, [False, True, False])


SCHEDULES: dict[str, tuple[Callable[[Fusion], TensorView], str]] = {
    "flat, whatever the rows": (
        lambda f: f.unary("exp", rows(f, 4)), "pointwise along y; loops (0·1·2), parts 64, lanes 16, threads"
    ),
    "a row of w for each component": (scaled, "pointwise along y; loops (0, 1, 2), lanes 64, threads"),
    "no features": (
        lambda f: rows(f) * f.broadcast(f.input("w", ["k"]), [False, True]), "pointwise along y; loops (0, 1), threads"
    ),
    "few elements": (lambda f: f.unary("exp", f.input("x", [3, 4])), "pointwise along y; loops (0·1), lanes 12"),
    "sums of rows": (
        lambda f: f.reduce("sum", rows(f, 64), [1]), "reduction along y; loops (0, 1, 2), lanes 64, threads"
    ),
    "sums of rows without features": (
        lambda f: f.reduce("sum", rows(f), [1]), "reduction along y; loops (0, 1), lanes 16, threads"
    ),
    "sums of rows of doubles": (
        lambda f: f.reduce("sum", f.cast(rows(f), "float64"), [1]), "reduction along y; loops (0, 1), lanes 8, threads"
    ),
    "sums of all rows": (
        lambda f: f.reduce("sum", rows(f, 64), [0, 1]), "reduction along y; loops (0·1, 2), parts 64, lanes 64, threads"
    ),
    "one sum": (
        lambda f: f.reduce("sum", rows(f, 64), [0, 1, 2]),
        "reduction along y; loops (0·1·2), parts 64, lanes 16, threads",
    ),
    "sums of features": (
        lambda f: f.reduce("sum", rows(f, 64), [2]), "reduction along y; loops (0·1, 2), lanes 32, threads"
    ),
    "softmax": (
        lambda f: required.softmax_of(rows(f, 64)),
        "normalization along y; loops (0, 1, 2), lanes 64, threads, keep, prefetch",
    ),
    "a norm": (
        lambda f: required.normalized(rows(f, 64))[0], "normalization along y; loops (0·1, 2), lanes 32, threads, keep"
    ),
    "an axis of one feature": (
        lambda f: required.softmax_of(rows(f, 1)),
        "normalization along y; loops (0, 2, 1), lanes 16, threads, keep, prefetch",
    ),
    "features whose number is not known": (
        lambda f: f.reduce("max", f.input("x", ["n", "d"]), [0]),
        "reduction along y; loops (0, 1), lanes 128, block 128, threads",
    ),
    "running sums": (lambda f: f.scan("sum", rows(f, 64), 1), "scan along y; loops (0, 1, 2), lanes 64, threads"),
    "running sums of one row": (lambda f: f.scan("sum", f.input("x", ["n"]), 0), "scan along y; loops (0)"),
    "to a rectangle": (
        lambda f: f.to_dense(rows(f, 64), 1, 8), "copy along y; loops (0, 1, 2), lanes 64, threads"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    make, wanted = SCHEDULES[name]
    assert of(make) == wanted


def averages(fusion: Fusion, kind: str, axes: list[int], keepdims: bool) -> TensorView:
    x = rows(fusion, 3)
    return fusion.reduce(kind, fusion.cast(x, "float64"), axes, keepdims)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [[2], [1], [1, 2], [0], [0, 1], [0, 1, 2]])
@pytest.mark.parametrize("kind", ["mean", "var"])
def test_averages(kind: str, axes: list[int], keepdims: bool) -> None:
    fusion = Fusion()
    fusion.output(averages(fusion, kind, axes, keepdims), "y")
    written = without_averages(fusion)
    names = [tensor.definition.name for tensor in written.tensors if tensor.definition is not None]
    assert (kind not in names) == (0 not in axes), "only the length of a row, or a constant, is known as a number"
    for lengths in ([2, 0, 3], [0], []):
        offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0)])
        x = torch.randn(sum(lengths), 3, generator=torch.Generator().manual_seed(0))
        if axes == [0] and not lengths:
            continue
        for got, want in zip(written.evaluate(offsets, x), fusion.evaluate(offsets, x), strict=True):
            assert torch.allclose(got, want, equal_nan=True)
        agree(plan(fusion), [offsets, x])


@pytest.mark.parametrize("kind", ["mean", "var"])
def test_averages_of_half_precision_are_not_sums_that_could_be_beyond_it(kind: str) -> None:
    fusion = Fusion()
    fusion.output(fusion.reduce(kind, fusion.input("x", ["n", 4], "float16"), [1]), "y")
    assert without_averages(fusion) is fusion
    agree(plan(fusion), [torch.full((3, 4), 6e4, dtype=torch.float16)])


def test_masks_are_lanes_too() -> None:
    """What GCC vectorizes is measured; here, that truths lie in memory as bytes, of which it makes lanes."""
    (step,) = plan(required.masked_softmax()).steps
    assert "const uint8_t* __restrict__ mask_" in step.lowered.source
