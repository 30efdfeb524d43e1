"""Every scalar function × every dtype: compiled as C++ and in the checking interpreter, against eager operations and
torch on special values; as CUDA, compiled."""

from __future__ import annotations

import itertools
import math
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.kernel.harness import NVCC, as_numpy

import serrate as sr
from serrate.fusion import Fusion, ParallelType
from serrate.fusion.binding import TORCH
from serrate.fusion.dtypes import COMPLEX, DTYPES, FLOATS, UNSIGNED, kind_of
from serrate.fusion.forms import Form, library
from serrate.fusion.functions import FUNCTIONS
from serrate.kernel import Lowered, cpp, lower
from serrate.kernel.check import run
from serrate.kernel.signatures import signature
from serrate.runtime import compiler

PRIMITIVES = [name for name, row in FUNCTIONS.items() if row.reference is not None and row.arity < 3]
CASES = [
    (name, dtype) for name, dtype in itertools.product(PRIMITIVES, DTYPES) if kind_of(dtype) in FUNCTIONS[name].kinds
]

ULPS = 4  # by which two libraries may differ


def numbers(dtype: str) -> torch.Tensor:
    """Zeros, ones, halves, infinities, NaN, the ends of the range, and numbers between."""
    kind = TORCH[dtype]
    if dtype == "bool":
        return torch.tensor([True, False])
    if dtype in COMPLEX:
        return complex_numbers(dtype)
    if dtype not in FLOATS:
        info = torch.iinfo(kind)
        near = [0, 1, 2, 3, 5, 7, 8, 31, 63, 100]
        below = [] if dtype in UNSIGNED else [-1, -2, -3, -7, -64, info.min, info.min + 1]
        return torch.tensor([*near, *below, info.max, info.max - 1], dtype=kind)
    finite = torch.finfo(kind)
    special = [0.0, 1.0, 0.5, 1.5, 2.5, 3.5, 0.3, 2.0, 3.0, 7.25, 20.0, 88.0, 100.5, 1e-3, 1e-7, math.inf]
    special += [finite.max, finite.tiny, finite.smallest_normal / 8, math.pi, 0.9999]
    positive = torch.tensor(special, dtype=torch.float64).to(kind)
    return torch.cat([positive, -positive, torch.tensor([math.nan], dtype=kind)])


def complex_numbers(dtype: str) -> torch.Tensor:
    """Pairs of parts: those at which functions change, small, large, infinite and NaN."""
    large = 1e30 if dtype == "complex64" else 1e300
    parts = [0.0, 0.5, 1.0, 2.0, 3.25, 20.0, 1e-4, 1e-30, large, math.inf]
    parts = [*parts, *(-part for part in parts), math.nan]
    real, imaginary = torch.meshgrid(*[torch.tensor(parts, dtype=torch.float64)] * 2, indexing="ij")
    return torch.complex(real, imaginary).flatten().to(TORCH[dtype])


def operands(arity: int, dtype: str) -> list[torch.Tensor]:
    """Each number, or each pair of numbers."""
    given = numbers(dtype)
    if arity == 1:
        return [given]
    if dtype in COMPLEX:  # fewer of them, since each meets each
        given = given[given.isfinite() & (given.abs() < 30)][::7]
    left, right = torch.meshgrid(given, given, indexing="ij")
    return [left.reshape(-1).contiguous(), right.reshape(-1).contiguous()]


# Complex operands for which eager operations give what no other library does: not compared.
LEFT_OPEN: dict[str, Callable[..., torch.Tensor]] = {
    "acos": lambda x: (x.real == 1) & (x.imag.abs() < 1e-20) & (x.imag != 0),  # π/2 - asin has few digits there
    "expm1": lambda x: (x.real > 700) & x.isfinite(),  # inf · 0
    "log1p": lambda x: x.real.isinf() & (x.imag == 0),  # the sign of 0 is lost
    "pow": lambda x, y: x == 0,
}


def expected(name: str, given: list[torch.Tensor]) -> torch.Tensor:
    """The eager operation, by the array API; where that is not for a dtype, torch's. Half types are computed in
    float32, but for the next number, which is one of their own."""
    wide = given[0].dtype in (torch.float16, torch.bfloat16) and not FUNCTIONS[name].in_own_dtype
    computed = [x.float() for x in given] if wide else given
    if name in ("floor_divide", "remainder") and not given[0].is_floating_point():
        defined = computed[1] != 0
        safe = sr.where(defined, computed[1], 1)
        made = sr.where(defined, getattr(sr, name)(computed[0], safe), 0).torch()
    elif given[0].dtype == torch.bool and name in (
        "maximum",
        "minimum",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
    ):
        made = getattr(torch, name)(*computed)
    else:
        made = getattr(sr, name)(*computed).torch() if hasattr(sr, name) else getattr(torch, name)(*computed)
    return made.to(given[0].dtype) if wide and made.is_floating_point() else made


def lowered(arity: int, dtype: str, target: str = "cpp") -> Lowered:
    """One kernel that computes all functions of so many operands, each into an output of its name."""
    fusion = Fusion()
    inputs = [fusion.input(letter, ["n"], dtype) for letter in "xz"[:arity]]
    for name in named(arity, dtype):
        y = fusion.output(fusion.elementwise(name, *inputs), f"{name}_y")
    if target == "cpp":
        y.split(0, 8).parallelize(1, ParallelType.Simd)
    else:
        y.split(0, 128).parallelize(0, ParallelType.BIDx).parallelize(1, ParallelType.TIDx)
    return lower(fusion, y, target=target, name=f"all_of_{dtype}")


def named(arity: int, dtype: str) -> list[str]:
    return [name for name, other in CASES if other == dtype and FUNCTIONS[name].arity == arity]


@cache
def compiled(arity: int, dtype: str) -> dict[str, torch.Tensor]:
    """The results of all functions of a dtype as C++ computes them."""
    kernel = lowered(arity, dtype)
    results = kernel(*operands(arity, dtype))
    return dict(zip(named(arity, dtype), results, strict=True))


@cache
def interpreted(arity: int, dtype: str) -> dict[str, torch.Tensor]:
    """The same in the checking interpreter."""
    kernel, given = lowered(arity, dtype), operands(arity, dtype)
    arrays = {letter: as_numpy(x) for letter, x in zip("xz", given, strict=False)}
    results = run(kernel.kernel, arrays, {"n": given[0].numel()})
    dtypes = {tensor.name: TORCH[tensor.dtype] for tensor in kernel.fusion.outputs}
    return {
        name: torch.from_numpy(np.array(results[f"{name}_y"])).to(dtypes[f"{name}_y"]) for name in named(arity, dtype)
    }


def distance(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """How many units in the last place of the wanted number lie between; 0 where both are NaN or equal."""
    close = (got == want) | (got.isnan() & want.isnan())
    unit = torch.finfo(want.dtype).eps * want.double().abs().clamp(min=torch.finfo(want.dtype).smallest_normal)
    return torch.where(close, 0.0, (got.double() - want.double()).abs() / unit)


def complex_distance(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """The distance relative to the size of the wanted number, in units in the last place; of numbers that are not
    finite that of their parts. C leaves the sign of an infinite part beside NaN open."""
    parts, wanted = torch.view_as_real(got), torch.view_as_real(want)
    open_sign = wanted.isnan().any(-1, keepdim=True) & parts.isinf() & wanted.isinf()
    by_parts = torch.where(open_sign, 0.0, distance(parts, wanted)).amax(-1)
    least = torch.finfo(want.dtype).smallest_normal
    unit = torch.finfo(want.dtype).eps * want.to(torch.complex128).abs().clamp(min=least)
    together = (got.to(torch.complex128) - want.to(torch.complex128)).abs() / unit
    return torch.where(want.isfinite(), together, by_parts)


def compare(name: str, given: list[torch.Tensor], got: torch.Tensor) -> None:
    want = expected(name, given)
    assert got.dtype == want.dtype
    if want.is_complex() and name in LEFT_OPEN:
        sane = ~LEFT_OPEN[name](*given)
        given, got, want = [x[sane] for x in given], got[sane], want[sane]
    if want.is_complex():
        # An error of the exponent is one of the power as many times as large.
        many = 1 + (given[1] * given[0].log()).abs() if name == "pow" else 2
        wrong = ~(complex_distance(got, want) <= many * ULPS)
    elif not want.is_floating_point():
        wrong = got != want
    else:
        far = ~(distance(got, want) <= ULPS)
        zero = (want == 0) & (got == 0) & (want.signbit() != got.signbit())
        wrong = far | zero
    places = wrong.nonzero().flatten()[:8]
    shown = [(*[x[at].item() for x in given], "→", got[at].item(), "not", want[at].item()) for at in places]
    assert not shown, shown


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_cpp(name: str, dtype: str) -> None:
    arity = FUNCTIONS[name].arity
    compare(name, operands(arity, dtype), compiled(arity, dtype)[name])


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_in_the_checking_interpreter(name: str, dtype: str) -> None:
    arity = FUNCTIONS[name].arity
    compare(name, operands(arity, dtype), interpreted(arity, dtype)[name])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vector_forms(dtype: str) -> None:
    """Loops of whole vectors, one for each function, since a loop with all of them may not be vectorized."""
    kernels = {}
    for name, row in FUNCTIONS.items():
        if row.has_vector_form:
            fusion, count = Fusion(), 8 * operands(row.arity, dtype)[0].numel()
            inputs = [fusion.input(letter, [count], dtype) for letter in "xz"[: row.arity]]
            y = fusion.output(fusion.elementwise(name, *inputs), "y")
            y.split(0, 8).parallelize(1, ParallelType.Simd)
            kernels[name] = lower(fusion, y, name=f"{name}_of_{dtype}").kernel
    library = compiler.compile(cpp.source(list(kernels.values())))
    for name, kernel in kernels.items():
        given = [x.repeat(8) for x in operands(FUNCTIONS[name].arity, dtype)]
        result = torch.empty_like(given[0])
        library.function(signature(kernel))(*given, result)
        compare(name, given, result)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_compiles(tmp_path: Path) -> None:
    """The CUDA source of every function × every dtype, without a warning."""
    paths = []
    for arity, dtype in itertools.product((1, 2), DTYPES):
        paths.append(tmp_path / f"k{arity}_{dtype}.cu")
        paths[-1].write_text(lowered(arity, dtype, "cuda").source)
    command = [*NVCC, "-Werror=all-warnings", "--threads=2", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout


# Rows that are wrong, each in one thing: how C++ writes the function, or what it is worth for numbers.
WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "halves away from 0": ("round", {"cpp": library("round")}),
    "remainders as C's": ("remainder", {"cpp": library("fmod", 2)}),
    "quotients towards 0": ("floor_divide", {"cpp": {"": Form("truncf({} / {})")}}),
    "no NaN in a maximum": ("maximum", {"cpp": library("fmax", 2)}),
    "NaN without a sign": ("sign", {"cpp": {"": Form("float(({0} > 0) - ({0} < 0))")}}),
    "-0.0 above 0": ("signbit", {"cpp": {"": Form("({} < 0)")}}),
    "short numbers not narrowed": ("add", {"widens": False}),
    "square roots as powers": ("pow", {"number": np.power}),
    "a remainder in the checker": ("remainder", {"number": np.fmod}),
    "a maximum in the checker": ("maximum", {"number": max}),
    "shifts as processors do": ("bitwise_left_shift", {"number": "({} << ({} & 7))"}),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_row_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, change = WRONG[mistake]
    dtype = {"add": "int8", "bitwise_left_shift": "int8"}.get(name, "float32")
    monkeypatch.setitem(FUNCTIONS, name, replace(FUNCTIONS[name], cuda={}, **change))
    fusion, given = Fusion(), operands(FUNCTIONS[name].arity, dtype)
    inputs = [fusion.input(letter, ["n"], dtype) for letter in "xz"[: len(given)]]
    made = fusion.elementwise(name, *inputs)
    y = fusion.output(fusion.cast(made, "int32") if name == "add" else made, "y")
    kernel = lower(fusion, y)
    if "number" in change:
        arrays = {letter: as_numpy(x) for letter, x in zip("xz", given, strict=False)}
        got = torch.from_numpy(np.array(run(kernel.kernel, arrays, {"n": given[0].numel()})["y"]))
    else:
        got = kernel(*given)[0]
    if name == "add":
        assert not torch.equal(got, (given[0] + given[1]).int())
        return
    with pytest.raises(AssertionError):
        compare(name, given, got)


def test_every_name_is_that_of_an_eager_operation_or_of_torch() -> None:
    assert [name for name in PRIMITIVES if not hasattr(sr, name) and not hasattr(torch, name)] == []


def test_whole_numbers_become_the_default_dtype() -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n"], "int64")
    made = [fusion.unary("exp", x), x / 2, fusion.binary("atan2", x, 0.5), fusion.unary("gelu", x)]
    outputs = [fusion.output(tensor) for tensor in made]
    assert {tensor.dtype for tensor in outputs} == {"float32"}
    given = torch.tensor([-3, 0, 2])
    want = [sr.exp(given), sr.divide(given, 2), sr.atan2(given, 0.5), sr.gelu(given)]
    for found, expected_one in zip(lower(fusion, outputs[-1])(given), want, strict=True):
        torch.testing.assert_close(found, expected_one.torch())


def test_erf_of_floats_is_right_to_two_units_in_the_last_place() -> None:
    """A polynomial of its own: at every 1000th float from the least on, and both signs."""
    bits = torch.arange(0, 0x40A00000, 1000, dtype=torch.int32)
    given = torch.cat([bits.view(torch.float32), -bits.view(torch.float32)])
    fusion = Fusion()
    y = fusion.output(fusion.unary("erf", fusion.input("x", ["n"])), "y")
    got = lower(fusion, y)(given)[0]
    want = torch.erf(given.double())
    unit = torch.nextafter(want.float(), torch.tensor(torch.inf)).double() - want.float().double()
    assert ((got.double() - want).abs() / unit).max() <= 2
