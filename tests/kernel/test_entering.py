"""A scalar function, a composed operation and a monoid are each entered by one call, and then computed everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.fusion.samples import nested, offsets_of
from tests.kernel.harness import NVCC, check

from serrate.fusion import Fusion, ParallelType, Scalar, elementwise, functions, monoids, symbol
from serrate.fusion.forms import library
from serrate.fusion.scalar import const, where
from serrate.kernel import lower

LENGTHS = [3, 0, 4, 1]


@pytest.fixture
def entered() -> Iterator[None]:
    """cbrt, a relu with its slope, and the sum of squares; gone again after the test."""
    row = functions.Function(
        "cbrt", 1, ("float", "int"), library("cbrt"), np.cbrt, lambda x: x.sign() * x.abs().pow(1 / 3), operands="float"
    )

    def leaky_relu(x: Scalar, *, negative_slope: float = 0.01) -> Scalar:
        return where(elementwise.greater_equal(x, 0), x, x * negative_slope)

    functions.enter(row)
    elementwise.enter("bent", 1, leaky_relu, torch.nn.functional.leaky_relu, in_floats=True)
    monoids.enter(monoids.Monoid(
        "sum_of_squares",
        ("squares",),
        0,
        init=lambda dtype: (const(0, dtype),),
        step=lambda state, element, _: (state[0] + element * element,),
        combine=lambda left, right: (left[0] + right[0],),
        finish=lambda state: state[0],
        reference=lambda x, groups, count, _: torch.zeros(count, dtype=x.dtype).scatter_add(0, groups, x * x),
        kinds=("float",),
        neutral=0,
        by_blocks=True,
    ))  # fmt: skip
    yield
    del functions.FUNCTIONS["cbrt"], elementwise.COMPOSED["bent"], monoids.MONOIDS["sum_of_squares"]


def fusion_of_all(dtype: str = "float32") -> Fusion:
    """The sum over each row of squares of leaky_relu(cbrt(x))."""
    fusion = Fusion()
    x = nested(fusion, 2, dtype=dtype)
    bent = fusion.unary("bent", fusion.unary("cbrt", x), negative_slope=0.5)
    fusion.output(fusion.reduce("sum_of_squares", bent, [1]), "y")
    return fusion


def values() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([[8.0, -27.0], [0.0, 1.0], [-1.0, 64.0]] * 3)[:8], offsets_of(LENGTHS)


def by_torch(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    bent = torch.nn.functional.leaky_relu(x.sign() * x.abs() ** (1 / 3), 0.5)
    return torch.stack([row.square().sum(0) for row in bent.tensor_split(offsets[1:-1])])


@pytest.mark.usefixtures("entered")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_computed(dtype: str) -> None:
    fusion = fusion_of_all(dtype)
    x, offsets = values()
    x = x.to(getattr(torch, dtype))
    want = by_torch(x.double(), offsets).to(x.dtype)
    torch.testing.assert_close(fusion.evaluate(x, offsets)[0], want)
    kernel = lower(fusion, fusion.outputs[0])
    torch.testing.assert_close(kernel(x, offsets)[0], want)
    check(kernel, [x, offsets])


@pytest.mark.usefixtures("entered")
def test_printed(tmp_path: Path) -> None:
    fusion = fusion_of_all()
    y = fusion.outputs[0]
    assert "bent(t3, negative_slope=0.5)" in str(fusion)
    kernel = lower(fusion, y)
    assert "cbrt(x[" in str(kernel.kernel)
    assert "cbrtf(x_[" in kernel.source
    assert ">= 0.0f ?" in kernel.source
    assert "y_squares_" in kernel.source
    y.parallelize(0, ParallelType.BIDx).split(1, 4).parallelize(2, ParallelType.TIDy).parallelize(3, ParallelType.TIDx)
    source = lower(fusion, y, target="cuda").source
    assert "cbrtf(x_[" in source
    assert "left.y_squares_ + right.y_squares_" in source
    if shutil.which("nvcc") is not None:
        (tmp_path / "k.cu").write_text(source)
        command = [*NVCC, "-Werror=all-warnings", "k.cu"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.usefixtures("entered")
def test_the_names_are_known_everywhere() -> None:
    x = symbol("x", "float32")
    assert str(elementwise.cbrt(x)) == "cbrt(x)"
    assert str(elementwise.bent(x)) == "x >= 0.0 ? x : x * 0.01"
    assert str(elementwise.call("bent", symbol("i", "int64"))).startswith("float32(i) >= 0.0")
    assert {"cbrt", "bent"} <= set(elementwise.names(1))
    # A tensor may have the name of a function of C, which is then another in the source.
    fusion = Fusion()
    y = fusion.output(fusion.unary("cbrt", fusion.input("cbrtf", [3])), "y")
    assert lower(fusion, y)(torch.tensor([1.0, 8.0, 27.0]))[0].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.usefixtures("entered")
def test_a_name_is_entered_once() -> None:
    with pytest.raises(ValueError, match="there is a scalar function 'cbrt' already"):
        functions.enter(functions.FUNCTIONS["cbrt"])
    with pytest.raises(ValueError, match="there is an elementwise operation 'exp' already"):
        elementwise.enter("exp", 1, lambda x: x, torch.exp)
    with pytest.raises(ValueError, match="there is a monoid 'sum' already"):
        monoids.enter(monoids.MONOIDS["sum"])


def test_what_is_not_entered_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no operation of that name"):
        _ = elementwise.cbrt
    with pytest.raises(ValueError, match="no elementwise operation 'cbrt'; there are negative, abs"):
        elementwise.named("cbrt")


def test_fusions_with_other_options_are_others() -> None:
    made = []
    elementwise.enter("scaled", 1, lambda x, *, by=2.0: x * by, lambda x, by=2.0: x * by)
    for by in (2.0, 3.0, 2.0):
        fusion = Fusion()
        fusion.output(fusion.unary("scaled", fusion.input("x", [3]), by=by), "y")
        made.append(fusion)
    assert made[0] != made[1]
    assert made[0] == made[2]
    assert made[1].clone() == made[1]
    assert lower(made[1], made[1].outputs[0])(torch.ones(3))[0].tolist() == [3.0, 3.0, 3.0]
    del elementwise.COMPOSED["scaled"]


def test_what_occurs_twice_in_an_expression_is_computed_once() -> None:
    """Each level doubles the text of the one inside: written out, 2²⁰ exponentials."""

    def doubled(x: Scalar) -> Scalar:
        for _ in range(20):
            x = elementwise.exp(-x)
            x = x * x + x
        return x

    elementwise.enter("doubled", 1, doubled, lambda x: x)
    fusion = Fusion()
    y = fusion.output(fusion.unary("doubled", fusion.input("x", [2])), "y")
    source = lower(fusion, y).source.rpartition("// namespace sr")[2]
    assert source.count("sr::exp") == 20
    # Also where it is read elsewhere than it is computed, which is guarded.
    padded = Fusion()
    z = padded.output(padded.pad(padded.unary("doubled", padded.input("x", [2])), 0, 1, 1, value=5.0), "z")
    x = torch.tensor([0.5, -1.0])
    assert torch.equal(lower(padded, z)(x)[0][1:3], lower(fusion, y)(x)[0])
    del elementwise.COMPOSED["doubled"]


# Expressions of Scalars


def test_operators_of_scalars() -> None:
    x, y, n = symbol("x", "float32"), symbol("y", "float32"), symbol("n")
    cases = {
        x + 1: "x + 1.0", 1 + x: "1.0 + x", x - y: "x - y", 2 - x: "2.0 - x", x * y: "x * y", 2 * x: "2.0 * x",
        x / y: "x / y", 1 / x: "1.0 / x", x // 2: "floor_divide(x, 2.0)", 7 // x: "floor_divide(7.0, x)",
        x % y: "remainder(x, y)", 7 % x: "remainder(7.0, x)", x**2: "pow(x, 2.0)", 2**x: "pow(2.0, x)",
        -x: "-x", abs(x): "abs(x)", n // 2: "n / 2", n % 2: "n % 2", 7 % n: "7 % n", 7 // n: "7 / n",
        n / 2: "float32(n) / 2.0", elementwise.greater(n, 2): "2 < n", elementwise.round(symbol("i", "int8")): "i",
        elementwise.logical_xor(x, y): "bool(x) != bool(y)",
    }  # fmt: skip
    assert {str(made): text for made, text in cases.items()} == {text: text for text in cases.values()}


def test_a_number_takes_the_dtype_beside_it() -> None:
    assert (symbol("x", "float16") + 1).args[1] == const(1.0, "float16")
    assert (symbol("i", "int8") * 2.0).args[1] == const(2, "int8")
    assert (symbol("i", "int8") / 0.5).args[1] == const(0.5, "float32")
    with pytest.raises(TypeError, match=r"a number beside int8 has to be one of that kind, got 0\.5"):
        symbol("i", "int8") * 0.5


def test_the_documents_name_every_scalar_function_and_monoid() -> None:
    page = (Path(__file__).parents[2] / "docs" / "loops.md").read_text()
    table = page[page.index("### What a fusion computes") : page.index("### Adding an operation")]
    primitive = {name for name, row in functions.FUNCTIONS.items() if row.reference is not None}
    assert {*primitive, *monoids.MONOIDS} <= set(re.findall(r"\w+", table))
