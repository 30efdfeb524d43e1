"""Elementwise operations in kernels: the same row that users call is printed, compiled and computed alike."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import serrate as sr
from serrate.fusion import Fusion, elementwise
from serrate.fusion.binding import TORCH
from serrate.fusion.monoids import MONOIDS, Monoid
from serrate.fusion.scalar import cast, const
from serrate.kernel import lower
from serrate.ops import answers, document, operators
from serrate.ops.derivatives import pullback
from serrate.ops.meta import meta
from serrate.ops.record import TABLE, Op, members, operation, ops
from serrate.ops.reductions import reduces
from serrate.ops.scalar import unary
from serrate.program.inputs import Inputs

ELEMENTWISE = [op for op in TABLE.values() if op.family in ("elementwise", "activations")]
# What kernels know, and users do not call by that name.
KERNELS_ALONE = {"angle": "torch.angle", "complex": "torch.complex", "philox": "sr.random.bits"}
NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.25, -0.75, 2.5, -3.0, 3.0, 6.0, 21.0, -40.0, 100.0, math.inf, -math.inf, math.nan]
NEAR = {"float64": 1e-12, "float32": 3e-6, "float16": 4e-3, "bfloat16": 3e-2}


def test_every_elementwise_operation_is_known_to_kernels() -> None:
    assert {op.name for op in ELEMENTWISE if not elementwise.is_known(op.name)} == set()
    for name in elementwise.names():
        assert name in TABLE or name in KERNELS_ALONE, f"kernels know {name}, which users cannot call"


def operands(dtype: str) -> list[torch.Tensor]:
    numbers = torch.tensor(NUMBERS, dtype=torch.float64).to(TORCH[dtype])
    left, right = torch.meshgrid(numbers, numbers, indexing="ij")
    return [left.reshape(-1).contiguous(), right.reshape(-1).contiguous()]


@pytest.mark.parametrize("arity", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_composed_operations_compiled_equal_eager_ones(dtype: str, arity: int) -> None:
    """All of them in one fusion, each an output of its own."""
    composed = [op for op in ELEMENTWISE if op.body is not None and elementwise.named(op.name).arity == arity]
    assert composed
    fusion = Fusion()
    inputs = [fusion.input(name, ["n"], dtype) for name in ("x", "y")[:arity]]
    for op in composed:
        fusion.output(fusion.elementwise(op.name, *inputs), f"of_{op.name}")
    given = operands(dtype)[:arity]
    got = lower(fusion, fusion.outputs[0])(*given)
    for op, made in zip(composed, got, strict=True):
        want = op.function(*(sr.asarray(x) for x in given)).torch()
        assert made.dtype == want.dtype, op.name
        if op.name == "gelu":  # of which torch's vectors make NaN where single elements are right
            want = torch.where(given[0].isinf(), torch.where(given[0] > 0, math.inf, math.nan).to(want.dtype), want)
        torch.testing.assert_close(
            made, want, rtol=NEAR[dtype], atol=NEAR[dtype], equal_nan=True, msg=lambda text, op=op: f"{op.name}: {text}"
        )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gelu", {"approximate": "tanh"}),
        ("leaky_relu", {"negative_slope": 0.5}),
        ("elu", {"alpha": 2.0}),
        ("celu", {"alpha": 0.5}),
        ("clip", {"min": -0.5}),
        ("clip", {"min": -0.5, "max": 2.0}),
        ("nan_to_num", {"nan": 7.0, "posinf": 8.0}),
    ],
)
def test_options_reach_kernels(name: str, options: dict[str, Any]) -> None:
    fusion = Fusion()
    fusion.output(fusion.elementwise(name, fusion.input("x", ["n"]), **options), "y")
    x = operands("float32")[0]
    x = x[x.isfinite()] if name == "gelu" else x
    (got,) = lower(fusion, fusion.outputs[0])(x)
    torch.testing.assert_close(
        got, TABLE[name].function(sr.asarray(x), **options).torch(), rtol=3e-6, atol=3e-6, equal_nan=True
    )


# ------------------------------------------------------------------------------------------------- one row adds one


@pytest.fixture
def added() -> Iterator[Op]:
    """A new elementwise operation: this one row is all that it takes."""
    unary(
        "sinc", torch.sinc, "sin(πx) / (πx).", "[[0.], []]", "[[1.0], []]", ("float",),
        body=lambda x, /: ops.where(ops.equal(x, 0), 1, ops.sin(math.pi * x) / (math.pi * x)),
        vjp=lambda g, out, x: ops.where(ops.equal(x, 0), 0, g * (ops.cos(math.pi * x) - out) / x),
    )  # fmt: skip
    try:
        operators.attach()
        yield TABLE["sinc"]
    finally:
        op = TABLE.pop("sinc")
        for function in op.spellings:
            del answers.SPELLED[function]
        del sr.Tensor.sinc  # type: ignore[attr-defined]
        del elementwise.COMPOSED["sinc"]


def test_one_row_adds_an_elementwise_operation(added: Op) -> None:
    x = sr.ragged([[0.0, 0.25], [], [1.5]], dtype=torch.float64)
    want = torch.sinc(x.values)
    torch.testing.assert_close(members()["sinc"](x).values, want)
    torch.testing.assert_close(torch.sinc(x).values, want)  # type: ignore[attr-defined]
    torch.testing.assert_close(x.sinc().values, want)  # type: ignore[attr-defined]
    assert "`sr.sinc(x, /)` | sin(πx) / (πx)." in document.page()
    out, back = pullback(lambda t: ops.sinc(t), x)
    leaf = x.values.clone().requires_grad_()
    (slope,) = torch.autograd.grad(torch.sinc(leaf).sum(), leaf)
    torch.testing.assert_close(back(out._with(torch.ones_like(want)))[0].values, slope)
    for target in ("cpp", "cuda"):
        fusion = Fusion()
        fusion.output(fusion.elementwise("sinc", fusion.input("x", ["n"], "float64")), "y")
        lowered = lower(fusion, fusion.outputs[0], target=target)
        assert "sin(" in lowered.source
        if target == "cpp":
            torch.testing.assert_close(lowered(x.values)[0], want)


@pytest.fixture
def reduction() -> Iterator[Op]:
    """A new reduction: this one row is all that it takes."""

    def root_mean_square(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        return ops.sqrt(ops.mean(ops.square(x), axis=axis, keepdims=keepdims))

    reduces(
        "root_mean_square", operation(root_mean_square), torch.nansum, "The root of the mean of squares along `axis`.",
        "[[3., -3.], [2.]]", "[3.0, 2.0]", ("float",), body=root_mean_square,
        monoid=Monoid(
            "root_mean_square", ("squares", "count"), 0,
            init=lambda dtype: (const(0, dtype), const(0, "int64")),
            step=lambda state, element, _: (state[0] + element * element, state[1] + 1),
            combine=lambda left, right: (left[0] + right[0], left[1] + right[1]),
            finish=lambda state: elementwise.sqrt(state[0] / cast(state[1], state[0].dtype)),
            reference=lambda x, groups, count, _: torch.zeros(count, dtype=x.dtype).scatter_reduce(
                0, groups, x * x, "mean", include_self=False
            ).sqrt(),
            kinds=("float",),
        ),
    )  # fmt: skip
    try:
        operators.attach()
        yield TABLE["root_mean_square"]
    finally:
        op = TABLE.pop("root_mean_square")
        for function in op.spellings:
            del answers.SPELLED[function]
        del MONOIDS["root_mean_square"]


def test_one_row_adds_a_reduction(reduction: Op) -> None:
    x = sr.ragged([[3.0, -4.0], [], [2.0]], dtype=torch.float64)
    want = torch.tensor([12.5**0.5, math.nan, 2.0], dtype=torch.float64)
    torch.testing.assert_close(members()["root_mean_square"](x, axis=1).torch(), want, equal_nan=True)
    torch.testing.assert_close(torch.nansum(x, 1), want, equal_nan=True)  # type: ignore[call-overload]
    assert "The root of the mean of squares along `axis`." in document.page()
    kind = Inputs().type_of(x)
    assert meta(reduction, (kind,), {"axis": 1}).result == meta(TABLE["sum"], (kind,), {"axis": 1}).result
    _, back = pullback(lambda t: ops.root_mean_square(t, axis=1), x)
    (slope,) = back(sr.asarray(torch.ones(3, dtype=torch.float64)))
    torch.testing.assert_close(slope.values, x.values / torch.tensor([2, 2, 1]) / want[[0, 0, 2]])
    for target in ("cpp", "cuda"):
        fusion = Fusion()
        data, offsets = fusion.input("data", ["n"], "float64"), fusion.input("offsets", ["k"], "int64")
        fusion.output(fusion.reduce("root_mean_square", fusion.view_as_nested(data, offsets), [1]), "y")
        lowered = lower(fusion, fusion.outputs[0], target=target)
        assert "sqrt(" in lowered.source
        if target == "cpp":
            torch.testing.assert_close(lowered(x.values, x.offsets[0])[0], want, equal_nan=True)


def test_reductions_that_are_primitives_are_monoids_of_kernels() -> None:
    assert {op.name for op in TABLE.values() if op.family == "reductions" and op.body is None} <= set(MONOIDS)
