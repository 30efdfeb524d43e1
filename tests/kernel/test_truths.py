"""any, all and count_nonzero as kernels: of every dtype, by rows, by position, across threads and blocks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.fusion.samples import nested, offsets_of
from tests.kernel.harness import NVCC, check

from serrate.fusion import Fusion, IterDomain, ParallelType, TensorView
from serrate.fusion.binding import TORCH
from serrate.fusion.dtypes import DTYPES
from serrate.kernel import lower

NAMES = ("any", "all", "count_nonzero")
LENGTHS = [3, 0, 70, 1, 2]


def values(dtype: str) -> torch.Tensor:
    """[76, 2]: rows with zeros, without, and with nothing else; NaN is not 0, and neither is the least number."""
    x = torch.ones(76, 2, dtype=torch.float64)
    x[1, 0] = x[10:40] = x[73] = 0
    x[74:] = 0
    made = x.to(TORCH[dtype])
    if made.is_floating_point():
        made[2, 1], made[50, 0] = torch.nan, torch.finfo(made.dtype).tiny
        made[75] = -0.0
    return made


def all_of_rows(dtype: str) -> Fusion:
    """Each of them of each row."""
    fusion = Fusion()
    x = nested(fusion, 2, dtype=dtype)
    for name in NAMES:
        fusion.output(fusion.reduce(name, x, [1]), f"{name}_y")
    assert [tensor.dtype for tensor in fusion.outputs] == ["bool", "bool", "int64"]
    return fusion


def by_rows(y: TensorView) -> TensorView:
    return y.reorder([0, 2, 1]).parallelize(0, ParallelType.Thread)


def by_lanes(y: TensorView) -> TensorView:
    return y.reorder([0, 2, 1]).split(2, 8).parallelize(3, ParallelType.Simd)


@pytest.mark.parametrize("schedule", [by_rows, by_lanes])
@pytest.mark.parametrize("dtype", DTYPES)
def test_of_each_row(dtype: str, schedule: Callable[[TensorView], TensorView]) -> None:
    fusion = all_of_rows(dtype)
    x, offsets = values(dtype), offsets_of(LENGTHS)
    kernel = lower(fusion, schedule(fusion.outputs[-1]))
    for name, got in zip(NAMES, kernel(x, offsets), strict=True):
        assert torch.equal(got, torch.stack([getattr(torch, name)(row, 0) for row in x.split(LENGTHS)]))
    check(kernel, [x, offsets])


@pytest.mark.parametrize("name", NAMES)
def test_of_all_by_blocks(name: str, tmp_path: Path) -> None:
    """Across threads and blocks, which combine states of truths."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce(name, fusion.input("x", ["n"], "bfloat16"), [0]), "y")
    y.split(0, 32).parallelize(0, ParallelType.BIDx).parallelize(1, ParallelType.TIDx)
    kernel = lower(fusion, y, target="cuda")
    for x in (values("bfloat16").reshape(-1), torch.zeros(70, dtype=torch.bfloat16), torch.ones(0).bfloat16()):
        check(kernel, [x])
    if shutil.which("nvcc") is not None:
        (tmp_path / "k.cu").write_text(kernel.source)
        command = [*NVCC, "-Werror=all-warnings", "k.cu"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize(("name", "fill"), [("any", 0), ("all", 1), ("count_nonzero", 0)])
def test_holes_that_change_nothing(name: str, fill: float) -> None:
    fusion = Fusion()
    x = fusion.input("x", [6], "int32")
    y = fusion.output(fusion.reduce(name, x, [0]), "y")
    x.set_allocation_domain(IterDomain.split(x.domain.logical[0], 4), fill=fill)
    given = torch.tensor([1, 2, 3, 4, 5, 6], dtype=torch.int32)
    memory = torch.cat([given, torch.full((2,), fill, dtype=torch.int32)]).reshape(2, 4)
    assert lower(fusion, y.split(0, 4).read_holes())(memory)[0] == getattr(torch, name)(given)
