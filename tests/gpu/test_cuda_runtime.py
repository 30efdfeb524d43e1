from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.kernel.printed_kernels import block_sum, grid_sum, ragged, reversed_in_shared_memory, softmax_by_blocks

from serrate.errors import CompileError
from serrate.fusion.scalar import symbol
from serrate.fusion.types import ParallelType as P
from serrate.kernel.targets import CUDA

cuda = pytest.importorskip("serrate.runtime.cuda_compiler")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    ("over", "block"),
    [
        ((P.TIDx,), (128, 2, 1)),
        ((P.TIDx,), (8, 8, 1)),
        ((P.TIDx,), (1024, 1, 1)),
        ((P.TIDx,), (100, 3, 1)),
        ((P.TIDx,), (16, 1, 1)),
        ((P.TIDy,), (32, 5, 1)),
        ((P.TIDx, P.TIDy), (8, 16, 2)),
        ((P.TIDx, P.TIDz), (4, 3, 6)),
        ((P.TIDx, P.TIDy, P.TIDz), (7, 3, 5)),
    ],
)
def test_block_reduce(over: tuple[P, ...], block: tuple[int, int, int], size: int, dynamic: bool) -> None:
    """Threads get the sum, and the last number that is not negative, of those that differ from them in `over`."""
    blocks = 3
    x = torch.randn(blocks, *reversed(block), size)  # (block, z, y, x, element)
    z = torch.randint(-3, 100, x.shape)
    kernel = block_sum(over, tuple(map(symbol, ("bx", "by", "bz"))) if dynamic else block, size)
    run = CUDA.compile(kernel)
    sums, lasts = torch.empty_like(x).cuda(), torch.empty_like(z).cuda()
    run(x.cuda(), z.cuda(), sums, lasts, blocks, *(block if dynamic else ()))
    axes = tuple(3 - "xyz".index(parallel.name[-1]) for parallel in over)
    expected = x.double().sum(axes, keepdim=True).expand_as(x)
    torch.testing.assert_close(sums.cpu().double(), expected, rtol=0, atol=1e-3)
    assert torch.equal(lasts.cpu(), torch.from_numpy(last_not_negative(z.numpy(), axes)))
    again = torch.empty_like(sums)
    run(x.cuda(), z.cuda(), again, lasts, blocks, *(block if dynamic else ()))
    assert torch.equal(sums, again)


def last_not_negative(z: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    out = np.empty_like(z)
    kept = [axis for axis in range(z.ndim) if axis not in axes]
    for place in np.ndindex(*(z.shape[axis] for axis in kept)):
        where: list[object] = [slice(None)] * z.ndim
        for axis, index in zip(kept, place, strict=True):
            where[axis] = index
        values = z[tuple(where)].reshape(-1)
        good = values[values >= 0]
        # With none, the combination is the first of all that are negative.
        out[tuple(where)] = good[-1] if len(good) else values[0]
    return out


@pytest.mark.parametrize("size", [1, 3])
def test_grid_reduce(size: int) -> None:
    blocks, rows = 50, 4
    x = torch.randn(rows, blocks, size, 64, device="cuda")
    space = torch.empty_like(x)
    counter = torch.zeros(rows, dtype=torch.int32, device="cuda")
    run = CUDA.compile(grid_sum(size))
    results = []
    for _ in range(20):
        out = torch.full((rows, size, 64), torch.nan, device="cuda")
        run(x, space, counter, out, blocks, rows)
        results.append(out)
    torch.testing.assert_close(results[0].double(), x.double().sum(1), rtol=0, atol=1e-4)
    assert all(torch.equal(result, results[0]) for result in results)
    assert counter.eq(0).all()


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_softmax(dtype: str, index: str) -> None:
    lengths = [3, 0, 700, 128, 0, 129, 1]
    offsets, rows = ragged(lengths, torch.int64)
    x = (torch.randn(sum(lengths)) * 4).to(getattr(torch, dtype)).cuda()
    y = torch.empty_like(x)
    CUDA.compile(softmax_by_blocks(dtype, index))(offsets.cuda(), x, y, len(lengths), len(x))
    expected = torch.cat([torch.softmax(x[row].double(), 0) for row in rows])
    torch.testing.assert_close(y.double(), expected, rtol=4 * torch.finfo(x.dtype).eps, atol=1e-6)


def test_shared_memory_and_streams() -> None:
    run = CUDA.compile(reversed_in_shared_memory())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.randn(1000, 64, device="cuda")
        y = torch.empty_like(x)
        run(x, y, 1000)
        assert torch.equal(y, x.flip(1))


def test_nothing_to_launch() -> None:
    y = torch.ones(64, device="cuda")
    CUDA.compile(reversed_in_shared_memory())(y[:0], y, 0)
    assert y.eq(1).all()


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match=r"x must be .* on cuda .* got .* on cpu"):
        CUDA.compile(reversed_in_shared_memory())(torch.zeros(64), torch.zeros(64, device="cuda"), 1)


def test_graph_capture() -> None:
    run = CUDA.compile(reversed_in_shared_memory())
    x = torch.randn(4, 64, device="cuda")
    y = torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x, y, 4)
    graph.replay()
    assert torch.equal(y, x.flip(1))


def test_cubin_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERRATE_CACHE_DIR", str(tmp_path))
    compiled = []
    real = cuda._compiled
    monkeypatch.setattr(cuda, "_compiled", lambda *a: (compiled.append(a), real(*a))[1])
    for _ in range(2):
        monkeypatch.setattr(cuda, "_sources", {})
        CUDA.compile(reversed_in_shared_memory())
    assert len(compiled) == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".cubin"]


def test_failing_compiler() -> None:
    with pytest.raises(CompileError, match="not_declared"):
        cuda._compiled("__global__ void f() { not_declared; }", cuda._architecture(0))
