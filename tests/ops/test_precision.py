"""What sums over ragged rows lose: no more than four times what torch's own lose on dense rows of the same elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.accuracy import (
    FLOOR,
    KINDS,
    ONE_AXIS,
    OPERATIONS,
    TIMES,
    Rows,
    births,
    check,
    check_along,
    drawn,
    rows,
)

import serrate as sr

# --------------------------------------------------------------------------------------------- along ragged rows


@pytest.mark.parametrize("name", OPERATIONS)
def test_along_rows(name, way):
    for kind in KINDS:
        x = rows(kind)
        for (born,) in births(x):
            check_along(name, x, (1,), born)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("features", [3, 64, 128])
def test_along_rows_of_features(name, features, way):
    for kind in ("near 10⁴", "both signs"):
        x = rows(kind, (features,), giant=6_000 if features == 3 else 1_500)
        for (born,) in births(x):
            check_along(name, x, (1,), born)


@pytest.mark.parametrize("name", OPERATIONS)
def test_along_a_parent_axis(name, way):
    lengths = [3, 1, 0, 2] * 2_500
    for kind, features in (("near 10⁴", ()), ("both signs", (3,)), ("tiny after large", (64,))):
        x = sr.from_lengths(drawn(kind, sum(lengths), features).float(), lengths)
        for (born,) in births(x):
            check_along(name, x, (0,), born)


@pytest.mark.parametrize("name", OPERATIONS)
def test_along_several_levels(name, way):
    inner = [3_000, 3, 0, 40, 2_000, 17]
    for kind, features in (("near 10⁴", ()), ("both signs", (2,))):
        x = sr.from_lengths(drawn(kind, sum(inner), features).float(), [[2, 0, 3, 1], inner])
        for axes in ((2,), (1,), (0,), (1, 2), (0, 2), (0, 1, 2)):
            if len(axes) > 1 and name in ONE_AXIS:
                continue
            for (born,) in births(x):
                check_along(name, x, axes, born)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in ONE_AXIS])
def test_along_features_too(name, way):
    """Rows and features of each are reduced together."""
    operation = OPERATIONS[name]
    for kind in KINDS:
        x = rows(kind, (3,), giant=4_000)
        got = operation.ours(x, (1, 2))
        found = []
        for i, row in enumerate(x):
            flat = row.torch().flatten()
            mine = got[i].torch().flatten()
            if flat.numel():
                found.append(operation.compared(mine, flat))
        check(found, f"{name} along rows and features of {kind}")


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "norm", "logsumexp"])
def test_the_whole_tensor_and_features(name, way):
    operation = OPERATIONS[name]
    for kind in KINDS:
        x = rows(kind, (3,), giant=4_000)
        for (born,) in births(x):
            got = operation.ours(born, None)
            flat = x.values.flatten()
            check([operation.compared(got.torch(), flat)], f"{name} of all of {kind}")
            got = operation.ours(born, 2)
            check([operation.compared(got.values[: len(flat) // 3], x.values.T)], f"{name} of features of {kind}")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "norm", "logsumexp", "softmax", "layer_norm"])
def test_halves(name, dtype, way):
    x = rows("units", (3,), giant=3_000, dtype=dtype)
    for (born,) in births(x):
        check_along(name, x, (1,), born)
        check_along(name, x, (0,), born)


@pytest.mark.parametrize("name", ["sum", "mean", "norm", "vecdot", "cumulative_sum"])
def test_complex_numbers(name, way):
    real = rows("near 10⁴")
    x = real._with(torch.complex(real.values, real.values.flip(0) - 9_999))
    for (born,) in births(x):
        check_along(name, x, (1,), born)
        check_along(name, x, (0,), born)


DOUBLES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda g: g.sum(0),
    "mean": lambda g: g.mean(0),
    "var": lambda g: ((g - g.mean(0)) ** 2).mean(0),
    "logsumexp": lambda g: np.log(np.exp(g - g.max(0)).sum(0)) + g.max(0),
    "softmax": lambda g: np.exp(g - g.max(0)) / np.exp(g - g.max(0)).sum(0),
    "layer_norm": lambda g: (g - g.mean(0)) / np.sqrt(((g - g.mean(0)) ** 2).mean(0) + 1e-5),
}


@pytest.mark.parametrize("name", DOUBLES)
@pytest.mark.parametrize("axis", [0, 1])
def test_doubles(name, axis, way):
    """Against numpy's long double, which has eleven bits more."""
    operation = OPERATIONS[name]
    for kind in KINDS:
        x = rows(kind, (2,), dtype=torch.float64)
        got = operation.ours(x, axis)
        assert got.dtype == torch.float64
        errors = [0.0, 0.0]
        for kept, at in Rows(x, (axis,)).groups().items():
            truth = DOUBLES[name](x.values[at].numpy().astype(np.longdouble))
            mine = got.values[at] if operation.each else got[kept].torch()
            for i, made in enumerate((mine, operation.dense(x.values[at]))):
                difference = abs(made.numpy().astype(np.longdouble) - truth).max()
                errors[i] = max(errors[i], float(difference / (abs(truth).max() or 1) / torch.finfo(got.dtype).eps))
        assert errors[0] <= TIMES * errors[1] + FLOOR, (kind, errors)


# ------------------------------------------------------------------------------------------ the numbers of long rows


def test_means_variances_and_softmax_of_long_rows(way):
    draw = torch.Generator().manual_seed(0)
    x = sr.from_lengths(torch.rand(10_000, generator=draw) + 1e4, [10_000])
    assert float(sr.var(x, axis=1)) == pytest.approx(float(x.values.double().var(correction=0)), rel=1e-6)
    assert abs(float(sr.var(x, axis=1)) - 1 / 12) < 1e-3
    many = sr.from_lengths(torch.rand(1_000_000, generator=draw) + 1e4, [1, 999_999])
    assert float(sr.mean(many, axis=1)[1]) == pytest.approx(10_000.5, abs=2e-3)
    assert float(sr.softmax(many, axis=1)[1].torch().double().sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("giant", [1_000_000, 10_000_000])
def test_along_giant_rows(name, giant, way):
    for kind in KINDS:
        check_along(name, rows(kind, giant=giant), (1,))


@pytest.mark.slow
def test_the_softmax_of_ten_million(way):
    values = torch.randn(10_000_000, generator=torch.Generator().manual_seed(0))
    x = sr.from_lengths(values, [3, 9_999_997])
    assert float(sr.softmax(x, axis=1).values[3:].double().sum()) == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sum", "mean", "var", "norm", "logsumexp", "softmax"])
def test_along_a_parent_axis_of_a_million(name, way):
    lengths = [2, 1, 3, 1] * 250_000
    for kind in KINDS:
        check_along(name, sr.from_lengths(drawn(kind, sum(lengths)).float(), lengths), (0,))
