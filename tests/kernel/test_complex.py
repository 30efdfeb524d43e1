"""complex64 and complex128 in buffers, expressions, casts and reductions, against torch on rows."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.fusion.samples import nested, offsets_of
from tests.kernel.harness import NVCC, agree

import serrate as sr
from serrate.fusion import Fusion, ParallelType, TensorView
from serrate.fusion.binding import TORCH
from serrate.fusion.dtypes import COMPLEX, DTYPES, parts_of
from serrate.kernel import lower

each_complex = pytest.mark.parametrize("dtype", COMPLEX)
LENGTHS = [3, 0, 4, 1]
REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.sum,
    "prod": torch.prod,
    "mean": torch.mean,
    "any": torch.any,
    "all": torch.all,
    "count_nonzero": torch.count_nonzero,
}


def drawn(dtype: str, *shape: int, seed: int = 0) -> torch.Tensor:
    made = torch.randn(*shape, dtype=TORCH[dtype], generator=torch.Generator().manual_seed(seed))
    made.view(-1)[::5] = 0
    return made


@each_complex
@pytest.mark.parametrize("lengths", [LENGTHS, [5], [0, 0], []])
def test_reductions_of_rows(dtype: str, lengths: list[int]) -> None:
    fusion = Fusion()
    x = nested(fusion, 3, dtype=dtype)
    for name in REDUCTIONS:
        fusion.output(fusion.reduce(name, x, [1]), f"{name}_rows")
    given = drawn(dtype, sum(lengths), 3), offsets_of(lengths)
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, *given)
    for name, found in zip(REDUCTIONS, lowered(*given), strict=True):
        rows = given[0].split(lengths) if lengths else ()
        want = [REDUCTIONS[name](row, dim=0) for row in rows]
        torch.testing.assert_close(found, torch.stack(want) if want else found[:0], equal_nan=True)


@each_complex
def test_reductions_of_components_features_and_everything(dtype: str) -> None:
    x = drawn(dtype, sum(LENGTHS), 3)
    for axes in ([0], [2], [0, 1], [1, 2], [0, 1, 2]):
        fusion = Fusion()
        fusion.output(fusion.reduce("sum", nested(fusion, 3, dtype=dtype), axes), "y")
        agree(lower(fusion, fusion.outputs[0]), x, offsets_of(LENGTHS))
    torch.testing.assert_close(fusion.evaluate(x, offsets_of(LENGTHS))[0], x.sum())


@each_complex
@pytest.mark.parametrize("name", ["reciprocal", "square", "sigmoid", "positive"])
def test_composed_operations(name: str, dtype: str) -> None:
    fusion = Fusion()
    fusion.output(fusion.unary(name, fusion.input("x", ["n"], dtype)), "y")
    x = drawn(dtype, 20) + 1.5
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, x)
    torch.testing.assert_close(lowered(x)[0], getattr(sr, name)(x).torch())


@pytest.mark.parametrize("old", DTYPES)
def test_casts_to_complex(old: str) -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n"], old)
    for dtype in COMPLEX:
        fusion.output(fusion.cast(x, dtype), f"as_{dtype}")
    values = torch.tensor([0, 1, 2, 100]).to(TORCH[old])
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, values)
    for dtype, found in zip(COMPLEX, lowered(values), strict=True):
        assert torch.equal(found, values.to(TORCH[dtype]))


@each_complex
def test_parts_and_what_is_made_of_them(dtype: str) -> None:
    fusion = Fusion()
    z = fusion.input("z", ["n"], dtype)
    parts = [fusion.unary(name, z) for name in ("real", "imag", "abs", "angle")]
    assert {part.dtype for part in parts} == {parts_of(dtype)}
    made = fusion.binary("complex", parts[0], parts[1])
    for tensor in (*parts, made, fusion.unary("conj", z) * z, fusion.where(fusion.binary("equal", z, 0), 1j, z)):
        fusion.output(tensor)
    values = drawn(dtype, 11)
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, values)
    found = lowered(values)
    want = [values.real, values.imag, values.abs(), values.angle(), values, values.conj() * values]
    want += [torch.where(values == 0, 1j, values)]
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint16"])
def test_of_real_numbers_parts_are_the_numbers(dtype: str) -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n"], dtype)
    for tensor in (fusion.unary("real", x), fusion.unary("conj", x)):
        fusion.output(tensor)
    given = torch.tensor([1, 2, 100]).to(TORCH[dtype])
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, given)
    assert all(torch.equal(found, given) for found in lowered(given))


def test_powers_of_zero() -> None:
    fusion = Fusion()
    x, y = fusion.input("x", ["n"], "complex64"), fusion.input("y", ["n"], "complex64")
    fusion.output(fusion.binary("pow", x, y), "z")
    given = torch.zeros(2, dtype=torch.complex64), torch.tensor([0j, 2 + 1j], dtype=torch.complex64)
    assert lower(fusion, fusion.outputs[0])(*given)[0].tolist() == [1, 0]


def test_numbers_and_constants() -> None:
    fusion = Fusion()
    x, z = fusion.input("x", ["n"]), fusion.input("z", ["n"], "complex128")
    made = [x * 2j, z + 1, z * (1 - 2j), fusion.full_like(x, complex(math.inf, -0.0), "complex64"), x + z]
    assert [tensor.dtype for tensor in made] == ["complex64", "complex128", "complex128", "complex64", "complex128"]
    for tensor in made:
        fusion.output(tensor)
    a, b = torch.tensor([1.0, -2.0]), torch.tensor([1 + 1j, 2j], dtype=torch.complex128)
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, a, b)
    filled = torch.full((2,), complex(math.inf, -0.0), dtype=torch.complex64)
    for found, want in zip(lowered(a, b), [a * 2j, b + 1, b * (1 - 2j), filled, a + b], strict=True):
        torch.testing.assert_close(found, want)


@pytest.mark.parametrize("name", ["less", "greater_equal", "maximum", "remainder", "floor", "atan2", "signbit"])
def test_what_needs_an_order_is_refused(name: str) -> None:
    fusion = Fusion()
    z = fusion.input("z", ["n"], "complex64")
    arity = 1 if name in ("floor", "signbit") else 2
    with pytest.raises(TypeError, match=rf"{name} takes .*, got complex64; take real, imag or abs of it"):
        fusion.elementwise(name, *[z] * arity)


@pytest.mark.parametrize("name", ["max", "argmin", "var", "logsumexp"])
def test_reductions_that_need_an_order_are_refused(name: str) -> None:
    fusion = Fusion()
    with pytest.raises(TypeError, match=f"{name} takes .*, got z.* complex64; take real, imag or abs of it"):
        fusion.reduce(name, fusion.input("z", ["n"], "complex64"), [0])


def test_complex_does_not_become_real() -> None:
    fusion = Fusion()
    z = fusion.input("z", ["n"], "complex64")
    for dtype in ("float32", "int64", "bool"):
        with pytest.raises(TypeError, match="a part would be lost; take real, imag or abs"):
            fusion.cast(z, dtype)
    with pytest.raises(TypeError, match="1j is not a number of float32"):
        fusion.full([3], 1j, "float32")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_reductions_compile(tmp_path: Path) -> None:
    for dtype in COMPLEX:
        fusion = Fusion()
        total = fusion.reduce("sum", fusion.input("x", ["m", 256], dtype), [1])
        y: TensorView = fusion.output(total, "y")
        y.parallelize(0, ParallelType.BIDx).split(1, 128).parallelize(2, ParallelType.TIDx)
        (tmp_path / f"{dtype}.cu").write_text(lower(fusion, y, target="cuda").source)
    command = [*NVCC, *(f"{dtype}.cu" for dtype in COMPLEX)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout


def test_long_sums_are_precise() -> None:
    """As those of float32, they are gathered by blocks."""
    fusion = Fusion()
    fusion.output(fusion.reduce("mean", fusion.input("x", ["n"], "complex64"), [0]), "y")
    lowered = lower(fusion, fusion.outputs[0])
    mean = lowered(torch.full((3_000_000,), 0.1 - 0.7j, dtype=torch.complex64))[0]
    assert abs(mean.item() - (0.1 - 0.7j)) < 2e-6


def test_quotients_by_zero_and_of_large_numbers() -> None:
    fusion = Fusion()
    x, z = fusion.input("x", ["n"], "complex128"), fusion.input("z", ["n"], "complex128")
    fusion.output(x / z, "y")
    a = np.array([1 + 2j, -1j, 0j, 1e300 + 1e300j, 3 + 1j])
    b = np.array([0j, 0j, 0j, 1e300 - 1e300j, 1e-300j])
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, torch.from_numpy(a), torch.from_numpy(b))
    with np.errstate(all="ignore"):
        want = a / b
    assert np.allclose(lowered(torch.from_numpy(a), torch.from_numpy(b))[0].numpy(), want, equal_nan=True)
