"""Every scalar function × every dtype: compiled as C++ and in the checking interpreter, against eager operations and
torch on special values; as CUDA, compiled."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from tests.kernel.harness import as_numpy

import serrate as sr
from serrate.fusion import Fusion, ParallelType
from serrate.fusion.binding import TORCH
from serrate.fusion.dtypes import DTYPES, FLOATS, kind_of
from serrate.fusion.functions import FUNCTIONS
from serrate.kernel import Lowered, lower
from serrate.kernel.check import run

PRIMITIVES = [name for name, row in FUNCTIONS.items() if row.reference is not None and name != "where"]
CASES = [
    (name, dtype) for name, dtype in itertools.product(PRIMITIVES, DTYPES) if kind_of(dtype) in FUNCTIONS[name].kinds
]

# What torch's own functions of the host get wrong by more: their vector forms round differently from C's library.
ULPS = {"default": 4, "rsqrt": 4, "pow": 4}


def numbers(dtype: str) -> torch.Tensor:
    """Zeros, ones, halves, infinities, NaN, the ends of the range, and numbers between."""
    kind = TORCH[dtype]
    if dtype == "bool":
        return torch.tensor([True, False])
    if dtype not in FLOATS:
        info = torch.iinfo(kind)
        near = [0, 1, 2, 3, 5, 7, 8, 31, 63, 100]
        below = [] if dtype == "uint8" else [-1, -2, -3, -7, -64, info.min, info.min + 1]
        return torch.tensor([*near, *below, info.max, info.max - 1], dtype=kind)
    finite = torch.finfo(kind)
    special = [0.0, 1.0, 0.5, 1.5, 2.5, 3.5, 0.3, 2.0, 3.0, 7.25, 20.0, 88.0, 100.5, 1e-3, 1e-7, math.inf]
    special += [finite.max, finite.tiny, finite.smallest_normal / 8, math.pi, 0.9999]
    positive = torch.tensor(special, dtype=torch.float64).to(kind)
    return torch.cat([positive, -positive, torch.tensor([math.nan], dtype=kind)])


def operands(name: str, dtype: str) -> list[torch.Tensor]:
    """Each number, or each pair of numbers."""
    given = numbers(dtype)
    if FUNCTIONS[name].arity == 1:
        return [given]
    left, right = torch.meshgrid(given, given, indexing="ij")
    return [left.reshape(-1).contiguous(), right.reshape(-1).contiguous()]


def expected(name: str, given: list[torch.Tensor]) -> torch.Tensor:
    """The eager operation, by the array API; where that is not for a dtype, torch's. Half types are computed in
    float32, but for the next number, which is one of their own."""
    wide = given[0].dtype in (torch.float16, torch.bfloat16) and not FUNCTIONS[name].in_own_dtype
    computed = [x.float() for x in given] if wide else given
    if name in ("floor_divide", "remainder") and not given[0].is_floating_point():
        defined = computed[1] != 0
        safe = torch.where(defined, computed[1], 1)
        made = torch.where(defined, getattr(sr, name)(computed[0], safe).torch(), 0)
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
        made = getattr(sr, name)(*computed).torch()
    return made.to(given[0].dtype) if wide and made.is_floating_point() else made


def lowered(name: str, dtype: str, target: str = "cpp") -> Lowered:
    fusion = Fusion()
    inputs = [fusion.input(letter, ["n"], dtype) for letter in "xz"[: FUNCTIONS[name].arity]]
    y = fusion.output(fusion.elementwise(name, *inputs), "y")
    if target == "cpp":
        y.split(0, 8).parallelize(1, ParallelType.Simd)
    else:
        y.split(0, 128).parallelize(0, ParallelType.BIDx).parallelize(1, ParallelType.TIDx)
    return lower(fusion, y, target=target, name=f"{name}_of_{dtype}")


def distance(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """How many units in the last place of the wanted number lie between; 0 where both are NaN or equal."""
    close = (got == want) | (got.isnan() & want.isnan())
    unit = torch.finfo(want.dtype).eps * want.double().abs().clamp(min=torch.finfo(want.dtype).smallest_normal)
    return torch.where(close, 0.0, (got.double() - want.double()).abs() / unit)


def compare(name: str, given: list[torch.Tensor], got: torch.Tensor) -> None:
    want = expected(name, given)
    assert got.dtype == want.dtype
    if not want.is_floating_point():
        wrong = got != want
    else:
        far = ~(distance(got, want) <= ULPS.get(name, ULPS["default"]))
        zero = (want == 0) & (got == 0) & (want.signbit() != got.signbit())
        wrong = far | zero
    places = wrong.nonzero().flatten()[:8]
    shown = [(*[x[at].item() for x in given], "→", got[at].item(), "not", want[at].item()) for at in places]
    assert not shown, shown


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_cpp(name: str, dtype: str) -> None:
    given = operands(name, dtype)
    compare(name, given, lowered(name, dtype)(*given)[0])


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_in_the_checking_interpreter(name: str, dtype: str) -> None:
    given = operands(name, dtype)
    kernel = lowered(name, dtype)
    arrays = {letter: as_numpy(x) for letter, x in zip("xz", given, strict=False)}
    got = run(kernel.kernel, arrays, {"n": given[0].numel()})["y"]
    compare(name, given, torch.from_numpy(np.array(got)).to(TORCH[kernel.fusion.outputs[0].dtype]))
