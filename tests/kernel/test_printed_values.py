"""Scalar expressions as C++: functions, NaN, halves and integers compute what torch computes."""

from __future__ import annotations

import math

import pytest
import torch
from tests.kernel.printed_kernels import N, buffer, f32, i, run

from serrate.fusion.scalar import Scalar, call, cast, const, equal, load, maximum, minimum, where
from serrate.fusion.types import ParallelType as P
from serrate.kernel.ir import For, Kernel, Store


def pointwise(value: Scalar, dtype: str = "float32", out: str | None = None, **options: object) -> Kernel:
    """y[i] = value, in which x[i] may be."""
    return Kernel(
        "pointwise",
        (buffer("x", N, dtype), buffer("y", N, out or value.dtype, written=True)),
        (N,),
        (For(i, N, (Store("y", i, value),), "position", **options),),
    )  # fmt: skip


def apply(value: Scalar, x: torch.Tensor, **options: object) -> torch.Tensor:
    kernel = pointwise(value, str(x.dtype)[6:], **options)
    y = torch.empty_like(x, dtype=getattr(torch, kernel.buffers[1].dtype))
    run(kernel, x, y, x.numel())
    return y


FLOATS = torch.tensor([-2.5, -1.0, -0.0, 0.0, 1e-40, 0.3, 1.0, 7.5, 80.0, math.inf, -math.inf, math.nan] * 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("parallel", [P.Serial, P.Simd])
@pytest.mark.parametrize(
    "name", ["exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "floor", "ceil", "abs", "negative"]
)
def test_functions(name: str, dtype: str, parallel: P) -> None:
    x = FLOATS.to(getattr(torch, dtype))
    y = apply(call(name, load("x", i, dtype)), x, parallel=parallel)
    expected = getattr(torch, name)(x)
    torch.testing.assert_close(y, expected, rtol=4 * torch.finfo(x.dtype).eps, atol=0, equal_nan=True)
    kept = ~torch.isnan(expected)
    assert torch.equal(torch.signbit(y[kept]), torch.signbit(expected[kept]))


@pytest.mark.parametrize("parallel", [P.Serial, P.Simd, P.Thread])
def test_minimum_and_maximum_propagate_nan(parallel: P) -> None:
    x, z = torch.meshgrid(FLOATS[:12], FLOATS[:12], indexing="ij")
    x, z = x.flatten(), z.flatten()
    for make_it, reference in ((maximum, torch.maximum), (minimum, torch.minimum)):
        kernel = Kernel(
            "extreme",
            (buffer("x", N), buffer("z", N), buffer("y", N, written=True)),
            (N,),
            (For(i, N, (Store("y", i, make_it(f32("x", i), f32("z", i))),), "position", parallel),),
        )
        y = torch.empty_like(x)
        run(kernel, x, z, y, x.numel())
        torch.testing.assert_close(y, reference(x, z), rtol=0, atol=0, equal_nan=True)


def test_isnan_and_select() -> None:
    x = f32("x", i)
    y = apply(where(call("isnan", x), const(-1.0, "float32"), x * const(0.1, "float32")), FLOATS)
    assert torch.equal(y, torch.where(FLOATS.isnan(), -1.0, FLOATS * 0.1))


def test_select_does_not_evaluate_the_other_side() -> None:
    # A division by zero would end the process.
    x = load("x", i, "int64")
    y = apply(where(equal(x, 0), const(-1, "int64"), const(100, "int64") // x), torch.tensor([0, 5, 0, 7]))
    assert y.tolist() == [-1, 20, -1, 14]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("parallel", [P.Serial, P.Simd])
def test_halves_round_to_nearest_even(dtype: str, parallel: P) -> None:
    torch_dtype = getattr(torch, dtype)
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    every = bits.view(torch_dtype)
    up = apply(cast(load("x", i, dtype), "float32"), every, parallel=parallel)
    torch.testing.assert_close(up, every.float(), rtol=0, atol=0, equal_nan=True)
    # Halfway between neighbours, a little more and a little less; and the largest floats, which round to infinity.
    middle = (every.float() + torch.nextafter(every, torch.full_like(every, math.inf)).float()) / 2
    x = torch.cat([middle, middle * (1 + 1e-6), middle * (1 - 1e-6), FLOATS, torch.tensor([3.4028235e38, -3.4e38])])
    down = apply(cast(f32("x", i), dtype), x, parallel=parallel)
    torch.testing.assert_close(down, x.to(torch_dtype), rtol=0, atol=0, equal_nan=True)


def test_half_in_and_out() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        name = str(dtype)[6:]
        x = torch.randn(100, dtype=dtype)
        y = apply(cast(call("exp", cast(load("x", i, name), "float32")), name), x)
        torch.testing.assert_close(y, x.float().exp().to(dtype), rtol=torch.finfo(dtype).eps, atol=0)


def test_narrow_integers_wrap() -> None:
    x = torch.arange(256).to(torch.uint8)
    node = load("x", i, "uint8")
    y = apply(cast(node + node, "int32"), x)
    assert torch.equal(y, (x + x).int())
    assert torch.equal(apply(node * node, x), x * x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_extremes_of_integers(dtype: str) -> None:
    x = torch.tensor([torch.iinfo(getattr(torch, dtype)).min, -3, 0, 5], dtype=getattr(torch, dtype))
    node, least = load("x", i, dtype), const(torch.iinfo(x.dtype).min, dtype)
    assert torch.equal(apply(maximum(least, node), x), x)
    assert apply(minimum(node, least), x).eq(torch.iinfo(x.dtype).min).all()
    assert apply(call("abs", node), x)[1:].tolist() == [3, 0, 5]
    assert apply(cast(equal(node, least), "uint8"), x).tolist() == [1, 0, 0, 0]
