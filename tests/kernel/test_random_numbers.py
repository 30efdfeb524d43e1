"""Random numbers that a kernel draws are those that eager operations draw for the same key, bit for bit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from tests.fusion.samples import EVERY_LENGTHS, nested, offsets_of
from tests.kernel.harness import NVCC, agree

import serrate as sr
from serrate.fusion import Fusion, IterDomain, ParallelType, TensorDomain
from serrate.kernel import lower

KEYS = [(0, 0), (7, 3), (-1, 2**63 + 5), (2**64 - 1, -(2**63)), (123456789012345, 987654321098765)]


@pytest.mark.parametrize(("seed", "call"), KEYS)
@pytest.mark.parametrize("width", [32, 64])
def test_bits(seed: int, call: int, width: int) -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n", 3])
    fusion.output(fusion.random_bits(x, seed, call, width), "y")
    given = torch.zeros(7, 3)
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, given)
    want = sr.random.bits(given, width=width, key=sr.random.Key(seed, call)).torch()
    assert torch.equal(lowered(given)[0], want)
    assert torch.equal(fusion.evaluate(given)[0], want)


def test_the_published_vectors() -> None:
    """The block of Philox 4x32-10 that its authors publish for a counter and a key of zeros."""
    fusion = Fusion()
    y = fusion.output(fusion.random_bits([4], 0, 0), "y")
    assert lower(fusion, y)()[0].tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("lengths", EVERY_LENGTHS.values(), ids=EVERY_LENGTHS)
def test_uniform_numbers_of_ragged_tensors(dtype: str, lengths: list[int]) -> None:
    fusion = Fusion()
    x = nested(fusion, 2)
    y = fusion.output(fusion.uniform(x, 5, 6, dtype), "y")
    values = torch.zeros(sum(lengths), 2)
    lowered = lower(fusion, y)
    agree(lowered, values, offsets_of(lengths))
    want = sr.random.uniform(
        sr.from_lengths(values, lengths), dtype=getattr(torch, dtype), key=sr.random.Key(5, 6)
    ).values
    assert torch.equal(lowered(values, offsets_of(lengths))[0], want)


def test_keys_are_given_when_it_runs() -> None:
    """One kernel draws for every key: dropout, whose mask is drawn again for the gradient."""
    fusion = Fusion()
    x, g = fusion.input("x", ["n"]), fusion.input("g", ["n"])
    seed, call = fusion.input("seed", [], "int64"), fusion.input("call", [], "int64")
    kept = fusion.binary("greater_equal", fusion.uniform(x, seed, call), 0.25)
    fusion.output(fusion.where(kept, x / 0.75, 0), "y")
    fusion.output(fusion.where(kept, g / 0.75, 0), "dx")
    lowered = lower(fusion, fusion.outputs[0])
    a, b = torch.randn(100), torch.randn(100)
    for key in ((1, 2), (3, 4)):
        given = a, b, torch.tensor(key[0]), torch.tensor(key[1])
        agree(lowered, *given)
        mask = sr.random.uniform(a, key=sr.random.Key(*key)).torch() >= 0.25
        y, dx = lowered(*given)
        torch.testing.assert_close(y, torch.where(mask, a / 0.75, 0))
        torch.testing.assert_close(dx, torch.where(mask, b / 0.75, 0))


def test_numbers_do_not_depend_on_the_schedule_or_on_where_they_are_stored() -> None:
    want = sr.random.bits(torch.zeros(5, 6), key=sr.random.Key(9, 1)).torch()
    for schedule in range(3):
        fusion = Fusion()
        y = fusion.output(fusion.random_bits(fusion.input("x", ["m", 6]), 9, 1), "y")
        if schedule == 1:
            y.split(1, 4).parallelize(2, ParallelType.Simd).parallelize(0, ParallelType.Thread)
        if schedule == 2:
            y.set_allocation_domain([y.domain.logical[1], y.domain.logical[0]])
        lowered = lower(fusion, y)
        agree(lowered, torch.zeros(5, 6))
        found = lowered(torch.zeros(5, 6))[0]
        assert torch.equal(found.T if schedule == 2 else found, want)


def test_positions_that_are_stored_elsewhere() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.packed_positions([IterDomain(2), IterDomain(3)]), "y")
    y.set_allocation_domain([y.domain.logical[1], y.domain.logical[0]])
    assert isinstance(y.domain, TensorDomain)
    assert lower(fusion, y)()[0].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_wrong_keys() -> None:
    fusion = Fusion()
    with pytest.raises(ValueError, match="width must be 32 or 64, got 8"):
        fusion.random_bits([3], 0, 0, 8)
    with pytest.raises(ValueError, match="must fit 64 bits"):
        fusion.random_bits([3], 2**64, 0)
    with pytest.raises(TypeError, match=r"the call of random numbers must be an int, got 1.5"):
        fusion.random_bits([3], 0, 1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a tensor of int64 without axes, got k\["):
        fusion.random_bits([3], fusion.input("k", [2], "int64"), 0)
    with pytest.raises(ValueError, match="no floating-point dtype 'int32'"):
        fusion.uniform([3], 0, 0, "int32")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_compiles(tmp_path: Path) -> None:
    fusion = Fusion()
    y = fusion.output(fusion.uniform(fusion.input("x", ["n"]), 1, fusion.input("call", [], "int64")), "y")
    y.split(0, 128).parallelize(0, ParallelType.BIDx).parallelize(1, ParallelType.TIDx)
    (tmp_path / "kernel.cu").write_text(lower(fusion, y, target="cuda").source)
    command = [*NVCC, "-Werror=all-warnings", "kernel.cu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
