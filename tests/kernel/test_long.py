"""Long fusions and deep expressions: what is made of them grows with their length, and no stack is too short."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.kernel.harness import NVCC, check
from tests.kernel.printed_kernels import N, block_sum, buffer, f32, i, run

from serrate.fusion import Fusion, ParallelType, TensorView, elementwise, symbol
from serrate.fusion.analysis import evaluate, reads
from serrate.fusion.scalar import Scalar, call, const, less, load, where
from serrate.kernel import Lowered, cpp, cuda, lower
from serrate.kernel.check import run as interpret
from serrate.kernel.ir import BlockReduce, CombineRule, For, Kernel, Let, Statement, Store, rewrite, walk


def calls(work: Callable[[], object]) -> int:
    """How many functions are called, which says how long it takes whatever else the machine does."""
    found = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def chain(count: int, name: str = "tanh", dtype: str = "float32") -> Fusion:
    fusion = Fusion()
    x = fusion.input("x", ["n", 4], dtype)
    for _ in range(count):
        x = fusion.unary(name, x)
    fusion.output(x, "y")
    return fusion


def lowered(fusion: Fusion, target: str = "cpp") -> Lowered:
    return lower(fusion, fusion.outputs[0], target=target)


def joined(count: int, left: bool) -> Fusion:
    fusion = Fusion()
    x = fusion.input("x", ["n", 2])
    for number in range(count):
        other = fusion.input(f"x{number}", ["n", 1])
        x = fusion.concat([x, other] if left else [other, x], 1)
    fusion.output(x, "y")
    return fusion


def of_each(step: Callable[[Fusion, TensorView], TensorView], start: int = 4) -> Callable[[int], Fusion]:
    """A fusion of so many steps."""

    def make(count: int) -> Fusion:
        fusion = Fusion()
        x = fusion.input("x", ["n", start if start > 0 else 2 * count + 1])
        for _ in range(count):
            x = step(fusion, x)
        fusion.output(x, "y")
        return fusion

    return make


def of_rows(count: int) -> Fusion:
    fusion = Fusion()
    x = fusion.view_as_nested(fusion.input("x", ["n", 2]), fusion.input("offsets", [symbol("k") + 1], "int64"))
    for _ in range(count):
        x = fusion.unary("tanh", x)
    fusion.output(fusion.reduce("sum", x, [1]), "y")
    return fusion


FUSIONS: dict[str, Callable[[int], Fusion]] = {
    "tanh": chain,
    "gelu": lambda count: chain(count, "gelu"),
    "half": lambda count: chain(count, "tanh", "float16"),
    "sums of itself": of_each(lambda fusion, x: x + x),
    "conditions": of_each(lambda fusion, x: fusion.where(fusion.binary("less", x, 1.0), fusion.unary("exp", x), x)),
    "concat to the right": lambda count: joined(count // 4, left=True),
    "concat to the left": lambda count: joined(count // 4, left=False),
    "slices": of_each(lambda fusion, x: fusion.slice(x, 1, 1, -1), start=0),
    "rows": of_rows,
}
WORK: dict[str, Callable[[Fusion], object]] = {
    "lower and print": lambda fusion: (lowered(fusion).source, str(lowered(fusion).kernel)),
    "clone and compare": lambda fusion: fusion.clone() == fusion,
    "print": str,
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("name", FUSIONS)
def test_time_grows_with_the_number_of_operations(name: str, work: str) -> None:
    make, do = FUSIONS[name], WORK[work]
    do(make(2))  # what is made once
    short, long = (calls(lambda count=count: do(make(count))) for count in (40, 160))
    assert long < 5 * short, (short, long)


@pytest.mark.parametrize("name", ["tanh", "half", "gelu", "conditions", "sums of itself"])
def test_a_thousand_operations(name: str) -> None:
    kernel = lowered(FUSIONS[name](1000))
    assert kernel.fusion.clone() == kernel.fusion
    values = [statement.value for statement in walk(kernel.kernel.body) if isinstance(statement, (Let, Store))]
    assert max(value.depth for value in values) < 40
    x = torch.linspace(-2, 2, 12).reshape(3, 4) / (2**30 if name == "sums of itself" else 1)
    given = [x.half() if name == "half" else x]
    if name == "sums of itself":
        assert kernel(*given)[0].isinf().sum() == 12
    elif name == "conditions":  # which take a compiler a minute
        check(kernel, given)
    else:
        torch.testing.assert_close(kernel(*given)[0], kernel.fusion.evaluate(*given)[0], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("left", [True, False])
def test_many_tensors_joined_one_by_one(left: bool) -> None:
    kernel = lowered(joined(30, left))
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(3, 2 if number == 0 else 1, generator=generator) for number in range(31)]
    parts = given if left else [*reversed(given[1:]), given[0]]
    check(kernel, given)
    torch.testing.assert_close(kernel(*given)[0], torch.cat(parts, 1))


@pytest.mark.parametrize("rank", [1, 7, 8, 12, 20])
def test_any_rank(rank: int) -> None:
    fusion = Fusion()
    x = fusion.input("x", [1, 2] * (rank // 2) + [3] * (rank % 2))
    y = fusion.output(fusion.unary("exp", x), "y")
    given = torch.randn(1, 2, 1, 2).reshape(-1)[: 2 ** (rank // 2) % 5].repeat(999)[: y_size(fusion)]
    given = given.reshape([axis.extent.value for axis in x.domain.kept])
    kernel = lower(fusion, y)
    check(kernel, [given])
    torch.testing.assert_close(kernel(given)[0], given.exp())
    assert len({axis.name for axis in x.domain.kept}) == rank


def y_size(fusion: Fusion) -> int:
    size = 1
    for axis in fusion.inputs[0].domain.kept:
        size *= axis.extent.value
    return size


# Expressions that are written by hand


def stored(value: Scalar) -> Kernel:
    buffers = (buffer("x", N), buffer("y", N, value.dtype, written=True))
    return Kernel("long", buffers, (N,), (For(i, N, (Store("y", i, value),), "i"),))


def computed(value: Scalar, x: torch.Tensor) -> torch.Tensor:
    """What a kernel stores, compiled; the interpreter must agree."""
    kernel = stored(value)
    y = torch.zeros(len(x), dtype=getattr(torch, value.dtype))
    run(kernel, x, y, len(x))
    checked = interpret(kernel, {"x": x.numpy()}, {"N": len(x)})["y"]
    np.testing.assert_allclose(checked, y.numpy(), rtol=1e-5)
    return y


def test_what_occurs_twice_is_written_once() -> None:
    value = f32("x", i)
    for _ in range(60):
        value = call("hypot", value, value) * const(0.70710678, "float32")  # √2 · 1/√2
    x = torch.rand(5) + 1
    assert calls(lambda: cuda.source(stored(value))) < 100_000
    torch.testing.assert_close(computed(value, x), x, rtol=1e-4, atol=0)


def test_what_could_fail_stays_under_its_condition() -> None:
    """x[i + 1] of the last element is not there, and 1 / 0 of whole numbers is nothing."""
    following = f32("x", i + 1)
    for _ in range(5):
        following = following * following + following
    value = where(less(i + 1, N), following + following, const(-1.0, "float32"))
    assert "part" not in cpp.source([stored(value)]).rpartition("// namespace sr")[2]
    x = torch.tensor([0.1, 0.2, 0.3])

    def step(a: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            a = a * a + a
        return a + a

    torch.testing.assert_close(computed(value, x), torch.cat([step(x[1:]), torch.tensor([-1.0])]))


def test_names_of_parts_end_with_their_statement() -> None:
    """y[i] = f(x[i]) · f(x[i]) twice, where f has parts that occur twice, into memory that is stored between."""

    def far(value: Scalar) -> Scalar:
        for _ in range(4):
            value = value * value + value
        return value * value

    body = (
        Store("y", i, far(f32("x", i))),
        Store("y", i, far(f32("y", i))),
        Store("y", i, far(f32("y", i))),
    )
    kernel = Kernel("again", (buffer("x", N), buffer("y", N, written=True)), (N,), (For(i, N, body, "i"),))
    x, y = torch.tensor([0.01, 0.02, -0.5]), torch.zeros(3)
    run(kernel, x, y, 3)
    wanted = x
    for _ in range(3):
        for _ in range(4):
            wanted = wanted * wanted + wanted
        wanted = wanted * wanted
    torch.testing.assert_close(y, wanted)


def test_deep_expressions() -> None:
    value, total = load("x", i, "float32"), symbol("n")
    for number in range(5000):
        value, total = call("negative", value), total * 2 % 1000003 + number
    assert value.depth == 5001
    assert value.symbols == {i}
    assert reads(value) == {i: 1}
    assert value.substitute({i: const(0)}).symbols == frozenset()
    assert str(value).count("-") == 5000
    wanted = 7
    for number in range(5000):
        wanted = wanted * 2 % 1000003 + number
    assert evaluate(total, {"n": 7}) == wanted


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_states_are_combined_by_named_parts(tmp_path: Path) -> None:
    def change(statement: Statement) -> tuple[Statement, ...]:
        if not isinstance(statement, BlockReduce):
            return (statement,)
        (left, _), (right, _) = statement.combine.left, statement.combine.right
        value = left + right
        for _ in range(30):
            value = elementwise.hypot(value, value)
        rule = CombineRule(statement.combine.left, statement.combine.right, (value, statement.combine.values[1]))
        return (BlockReduce(statement.state, statement.size, statement.over, rule),)

    kernel = block_sum((ParallelType.TIDx,), (128, 2, 1))
    source = cuda.source(Kernel(kernel.name, kernel.buffers, kernel.sizes, rewrite(kernel.body, change), kernel.launch))
    assert source.count("hypotf") < 200
    (tmp_path / "k.cu").write_text(source)
    command = [*NVCC, "-Werror=all-warnings", "k.cu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
