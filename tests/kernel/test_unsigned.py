"""uint8, uint16, uint32 and uint64 in buffers, casts and reductions, modulo their sizes, against numpy on rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.fusion.samples import nested, offsets_of
from tests.kernel.harness import agree

from serrate.fusion import Fusion, ParallelType
from serrate.fusion.binding import TORCH
from serrate.fusion.dtypes import SIZED, UNSIGNED
from serrate.kernel import lower

LENGTHS = [3, 0, 4, 1]
REDUCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "sum": lambda x, axis: x.sum(axis, dtype=np.uint64),
    "prod": lambda x, axis: x.prod(axis, dtype=np.uint64),
    "max": lambda x, axis: x.max(axis, initial=0),
    "min": lambda x, axis: x.min(axis, initial=np.iinfo(x.dtype).max),
    "any": np.any,
    "all": np.all,
    "count_nonzero": np.count_nonzero,
    "argmax": lambda x, axis: x.argmax(axis) if x.shape[axis] else np.full(np.delete(x.shape, axis), -1),
}


def drawn(dtype: str, *shape: int) -> np.ndarray:
    """Numbers of the whole range, many near its ends."""
    limits, random = np.iinfo(dtype), np.random.default_rng(0)
    low = random.integers(0, 4, shape).astype(dtype)
    return np.where(random.random(shape) < 0.5, low, np.array(limits.max, dtype) - low)


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_reductions_of_rows_and_of_features(dtype: str) -> None:
    fusion = Fusion()
    x = nested(fusion, 3, dtype=dtype)
    for name in REDUCTIONS:
        fusion.output(fusion.reduce(name, x, [1]), f"{name}_rows")
    values = drawn(dtype, sum(LENGTHS), 3)
    given = torch.from_numpy(values), offsets_of(LENGTHS)
    agree(lower(fusion, fusion.outputs[0]), *given)
    rows = np.split(values, np.cumsum(LENGTHS)[:-1])
    for name, found in zip(REDUCTIONS, lower(fusion, fusion.outputs[0])(*given), strict=True):
        want = np.stack([REDUCTIONS[name](row, axis=0) for row in rows])
        assert found.numpy().dtype == (want.dtype if name not in ("count_nonzero", "argmax") else np.int64)
        assert np.array_equal(found.numpy(), want), name


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_reductions_of_everything_and_of_components(dtype: str) -> None:
    fusion = Fusion()
    x = nested(fusion, dtype=dtype)
    fusion.output(fusion.reduce("sum", x, [0, 1]), "all")
    values = drawn(dtype, sum(LENGTHS))
    given = torch.from_numpy(values), offsets_of(LENGTHS)
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, *given)
    assert lowered(*given)[0].item() == int(values.astype(object).sum()) % 2**64
    fusion = Fusion()
    fusion.output(fusion.reduce("max", nested(fusion, dtype=dtype), [0]), "by_position")
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, *given)
    rows = np.split(values, np.cumsum(LENGTHS)[:-1])
    want = [max(int(row[at]) for row in rows if len(row) > at) for at in range(max(LENGTHS))]
    assert lowered(*given)[0][: len(want)].tolist() == want


@pytest.mark.parametrize("old", SIZED)
def test_casts_keep_the_bits_that_fit(old: str) -> None:
    fusion = Fusion()
    x = fusion.input("x", ["n"], old)
    for new in SIZED:
        fusion.output(fusion.cast(x, new), f"as_{new}")
    limits = np.iinfo(old)
    values = np.array([0, 1, 100, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype=old)
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, torch.from_numpy(values))
    for new, found in zip(SIZED, lowered(torch.from_numpy(values)), strict=True):
        assert np.array_equal(found.numpy(), values.astype(new)), new


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_chains_wrap_at_every_step(dtype: str) -> None:
    """In kernels short numbers are computed in int, and have to be narrowed before what follows sees them."""
    fusion = Fusion()
    x, z = fusion.input("x", ["n"], dtype), fusion.input("z", ["n"], dtype)
    made = fusion.binary("floor_divide", x * z - 5, fusion.binary("maximum", -z, 3))
    fusion.output(made, "y")
    fusion.output(fusion.binary("less", x + z, x), "overflows")
    a, b = drawn(dtype, 40), drawn(dtype, 40)[::-1].copy()
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, torch.from_numpy(a), torch.from_numpy(b))
    size = 2 ** (8 * a.dtype.itemsize)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    want = [(p * q - 5) % size // max(-q % size, 3) for p, q in pairs]
    found, overflows = lowered(torch.from_numpy(a), torch.from_numpy(b))
    assert found.tolist() == want
    assert found.dtype == TORCH[dtype]
    assert overflows.tolist() == [(p + q) % size < p for p, q in pairs]


def test_cuda_reads_them_in_wide_words() -> None:
    fusion = Fusion()
    x = fusion.input("x", [256], "uint16")
    y = fusion.output(x + 1, "y")
    y.split(0, 4).parallelize(1, ParallelType.Vectorize).parallelize(0, ParallelType.TIDx)
    source = lower(fusion, y, target="cuda").source
    assert "sr::load<4>(" in source
    assert "uint16_t" in source


def test_large_constants_are_of_the_dtype() -> None:
    """In C a number above 2^31 is of a wider type, in which nothing would wrap."""
    for dtype, size in (("uint32", 2**32), ("uint64", 2**64)):
        fusion = Fusion()
        x = fusion.input("x", ["n"], dtype)
        fusion.output(fusion.binary("floor_divide", x + (size - 6), 7), "y")
        fusion.output(fusion.binary("less", x + (size - 6), x), "z")
        values = drawn(dtype, 20)
        lowered = lower(fusion, fusion.outputs[0])
        agree(lowered, torch.from_numpy(values))
        found = lowered(torch.from_numpy(values))
        assert found[0].tolist() == [(each - 6) % size // 7 for each in values.tolist()]
        assert found[1].tolist() == [(each - 6) % size < each for each in values.tolist()]
