from __future__ import annotations

import math
import re
import shutil
import subprocess
from itertools import pairwise

import numpy as np
import pytest
import torch

from serrate.errors import ScheduleError
from serrate.fusion.scalar import (
    Scalar,
    call,
    cast,
    ceildiv,
    const,
    either,
    equal,
    fdiv,
    load,
    lt,
    make,
    maximum,
    minimum,
    negation,
    search,
    select,
    symbol,
)  # fmt: skip
from serrate.fusion.types import Memory, ParallelType
from serrate.kernel import cpp, cuda
from serrate.kernel.ir import (
    Allocate,
    Barrier,
    BlockReduce,
    Buffer,
    CombineRule,
    For,
    GridReduce,
    If,
    Kernel,
    Launch,
    Let,
    Store,
)  # fmt: skip
from serrate.runtime.compiler import compile

K, N, D = symbol("K"), symbol("N"), symbol("D")
c, r, d, i, t, b = map(symbol, "crditb")
P = ParallelType


def buffer(name: str, size: Scalar | int, dtype: str = "float32", written: bool = False) -> Buffer:
    return Buffer(name, dtype, const(size) if isinstance(size, int) else size, written=written)


def local(name: str, size: int, dtype: str = "float32", memory: Memory = Memory.REGISTER) -> Allocate:
    return Allocate(Buffer(name, dtype, const(size), memory))


def f32(name: str, index: Scalar | int) -> Scalar:
    return load(name, index, "float32")


def run(kernel: Kernel, *arguments: object) -> None:
    compile(cpp.source([kernel])).function(kernel)(*arguments)


def body_of(text: str) -> str:
    return text[text.index('extern "C" void ') :] if 'extern "C" void ' in text else text[text.index("__global__") :]


def pointwise(value: Scalar, dtype: str = "float32", out: str | None = None, **options: object) -> Kernel:
    """y[i] = value, in which x[i] may be."""
    return Kernel(
        "pointwise",
        (buffer("x", N, dtype), buffer("y", N, out or value.dtype, written=True)),
        (N,),
        (For(i, N, (Store("y", i, value),), "position", **options),),
    )  # fmt: skip


def apply(value: Scalar, x: torch.Tensor, **options: object) -> torch.Tensor:
    kernel = pointwise(value, str(x.dtype)[6:], **options)
    y = torch.empty_like(x, dtype=getattr(torch, kernel.buffers[1].dtype))
    run(kernel, x, y, x.numel())
    return y


FLOATS = torch.tensor([-2.5, -1.0, -0.0, 0.0, 1e-40, 0.3, 1.0, 7.5, 80.0, math.inf, -math.inf, math.nan] * 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("parallel", [P.Serial, P.Simd])
@pytest.mark.parametrize(
    "name", ["exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sin", "cos", "floor", "ceil", "abs", "neg"]
)
def test_functions(name: str, dtype: str, parallel: ParallelType) -> None:
    x = FLOATS.to(getattr(torch, dtype))
    y = apply(call(name, load("x", i, dtype)), x, parallel=parallel)
    expected = getattr(torch, name)(x)
    torch.testing.assert_close(y, expected, rtol=4 * torch.finfo(x.dtype).eps, atol=0, equal_nan=True)
    kept = ~torch.isnan(expected)
    assert torch.equal(torch.signbit(y[kept]), torch.signbit(expected[kept]))


@pytest.mark.parametrize("parallel", [P.Serial, P.Simd, P.Thread])
def test_minimum_and_maximum_propagate_nan(parallel: ParallelType) -> None:
    x, z = torch.meshgrid(FLOATS[:12], FLOATS[:12], indexing="ij")
    x, z = x.flatten(), z.flatten()
    for make_it, reference in ((maximum, torch.maximum), (minimum, torch.minimum)):
        kernel = Kernel(
            "extreme",
            (buffer("x", N), buffer("z", N), buffer("y", N, written=True)),
            (N,),
            (For(i, N, (Store("y", i, make_it(f32("x", i), f32("z", i))),), "position", parallel),),
        )
        y = torch.empty_like(x)
        run(kernel, x, z, y, x.numel())
        torch.testing.assert_close(y, reference(x, z), rtol=0, atol=0, equal_nan=True)


def test_isnan_and_select() -> None:
    x = f32("x", i)
    y = apply(select(call("isnan", x), const(-1.0, "float32"), x * const(0.1, "float32")), FLOATS)
    assert torch.equal(y, torch.where(FLOATS.isnan(), -1.0, FLOATS * 0.1))


def test_select_does_not_evaluate_the_other_side() -> None:
    # A division by zero would end the process.
    x = load("x", i, "int64")
    y = apply(select(equal(x, 0), const(-1, "int64"), const(100, "int64") // x), torch.tensor([0, 5, 0, 7]))
    assert y.tolist() == [-1, 20, -1, 14]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("parallel", [P.Serial, P.Simd])
def test_halves_round_to_nearest_even(dtype: str, parallel: ParallelType) -> None:
    torch_dtype = getattr(torch, dtype)
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    every = bits.view(torch_dtype)
    up = apply(cast(load("x", i, dtype), "float32"), every, parallel=parallel)
    torch.testing.assert_close(up, every.float(), rtol=0, atol=0, equal_nan=True)
    # Halfway between neighbours, a little more and a little less; and the largest floats, which round to infinity.
    middle = (every.float() + torch.nextafter(every, torch.full_like(every, math.inf)).float()) / 2
    x = torch.cat([middle, middle * (1 + 1e-6), middle * (1 - 1e-6), FLOATS, torch.tensor([3.4028235e38, -3.4e38])])
    down = apply(cast(f32("x", i), dtype), x, parallel=parallel)
    torch.testing.assert_close(down, x.to(torch_dtype), rtol=0, atol=0, equal_nan=True)


def test_half_in_and_out() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        name = str(dtype)[6:]
        x = torch.randn(100, dtype=dtype)
        y = apply(cast(call("exp", cast(load("x", i, name), "float32")), name), x)
        torch.testing.assert_close(y, x.float().exp().to(dtype), rtol=torch.finfo(dtype).eps, atol=0)


def test_narrow_integers_wrap() -> None:
    x = torch.arange(256).to(torch.uint8)
    node = load("x", i, "uint8")
    y = apply(cast(node + node, "int32"), x)
    assert torch.equal(y, (x + x).int())
    assert torch.equal(apply(node * node, x), x * x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_extremes_of_integers(dtype: str) -> None:
    x = torch.tensor([torch.iinfo(getattr(torch, dtype)).min, -3, 0, 5], dtype=getattr(torch, dtype))
    node, least = load("x", i, dtype), const(torch.iinfo(x.dtype).min, dtype)
    assert torch.equal(apply(maximum(least, node), x), x)
    assert apply(minimum(node, least), x).eq(torch.iinfo(x.dtype).min).all()
    assert apply(call("abs", node), x)[1:].tolist() == [3, 0, 5]
    assert apply(cast(equal(node, least), "uint8"), x).tolist() == [1, 0, 0, 0]


def ragged(lengths: list[int], offsets_dtype: torch.dtype) -> tuple[torch.Tensor, list[slice]]:
    ends = np.cumsum([0, *lengths])
    return torch.tensor(ends, dtype=offsets_dtype), [slice(a, e) for a, e in pairwise(ends)]


LENGTHS = [3, 0, 17, 1, 0, 0, 64, 5, 0]
start, end = load("offsets", c), load("offsets", c + 1)


def row_sum(index: str, offsets: str, width: int = 16) -> Kernel:
    """out[c, d] = sum over r of x[c, r, d]: threads over rows, lanes over features."""
    return Kernel(
        "row_sum",
        (
            buffer("offsets", K + 1, offsets),
            buffer("x", N * width),
            buffer("out", K * width, written=True),
        ),
        (K, N),
        (
            For(c, K, (
                local("total", width),
                For(d, const(width), (Store("total", d, const(0.0, "float32")),), "feature", P.Simd),
                Let(symbol("start"), start),
                For(r, end - symbol("start"), (
                    For(d, const(width), (
                        Store("total", d, f32("total", d) + f32("x", (symbol("start") + r) * width + d)),
                    ), "feature", P.Simd),
                ), "row of component"),
                For(d, const(width), (Store("out", c * width + d, f32("total", d)),), "feature", P.Simd),
            ), "component", P.Thread),
        ),
        index=index,
    )  # fmt: skip


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("offsets_dtype", ["int32", "int64"])
def test_ragged_row_sum(index: str, offsets_dtype: str) -> None:
    offsets, rows = ragged(LENGTHS, getattr(torch, offsets_dtype))
    x = torch.randn(sum(LENGTHS), 16)
    out = torch.empty(len(LENGTHS), 16)
    run(row_sum(index, offsets_dtype), offsets, x, out, len(LENGTHS), len(x))
    expected = torch.stack([x[row].double().sum(0) for row in rows])
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-5)


def softmax() -> Kernel:
    """Three phases: the maximum, the sum of exponentials, the result."""
    position, largest, total = start + r, f32("maximum", 0), f32("total", 0)
    shifted = call("exp", f32("x", position) - largest)

    def over_rows(*body: Store, parallel: ParallelType = P.Serial) -> For:
        return For(r, end - start, body, "row", parallel)

    return Kernel(
        "softmax",
        (buffer("offsets", K + 1, "int64"), buffer("x", N), buffer("y", N, written=True)),
        (K, N),
        (
            For(c, K, (
                local("maximum", 1),
                local("total", 1),
                Store("maximum", const(0), const(-math.inf, "float32")),
                over_rows(Store("maximum", const(0), maximum(largest, f32("x", position)))),
                Store("total", const(0), const(0.0, "float32")),
                over_rows(Store("total", const(0), total + shifted)),
                over_rows(Store("y", position, fdiv(shifted, total)), parallel=P.Simd),
            ), "component", P.Thread),
        ),
    )  # fmt: skip


def test_softmax_by_component() -> None:
    offsets, rows = ragged(LENGTHS, torch.int64)
    x = torch.randn(sum(LENGTHS)) * 5
    x[30] = math.nan
    y = torch.empty_like(x)
    run(softmax(), offsets, x, y, len(LENGTHS), len(x))
    expected = torch.cat([torch.softmax(x[row].double(), 0) for row in rows])
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=0, equal_nan=True)


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("lengths", [LENGTHS, [1], [0, 0, 4], [5, 0, 0], [1] * 33])
def test_search(index: str, lengths: list[int]) -> None:
    offsets, rows = ragged(lengths, torch.int64)
    n = sum(lengths)
    kernel = Kernel(
        "find",
        (buffer("offsets", K + 1, "int64"), buffer("out", N, "int32", written=True)),
        (K, N),
        (For(i, N, (Store("out", i, cast(search("offsets", K, i), "int32")),), "position"),),
        index=index,
    )
    out = torch.empty(n, dtype=torch.int32)
    run(kernel, offsets, out, len(lengths), n)
    assert out.tolist() == [row for row, piece in enumerate(rows) for _ in range(piece.start, piece.stop)]


def test_nested_loops_unrolled_and_guarded() -> None:
    # A tile of 4 positions, the last one cut.
    tile = symbol("tile")
    position = tile * 4 + i
    kernel = Kernel(
        "tiles",
        (buffer("y", N, "int64", written=True),),
        (N,),
        (
            For(tile, ceildiv(N, 4), (
                For(i, const(4), (
                    If(lt(position, N), (Store("y", position, cast(position * position % 7, "int64")),)),
                ), "inner", P.Unroll),
            ), "tile", P.BIDx),
        ),
    )  # fmt: skip
    y = torch.full((12,), -1)
    run(kernel, y, 10)
    assert y.tolist() == [k * k % 7 for k in range(10)] + [-1, -1]


def test_golden_source() -> None:
    assert (
        body_of(cpp.source([row_sum("int64", "int64")]))
        == """\
extern "C" void row_sum(
    const int64_t* __restrict__ offsets,  // [K + 1]
    const float* __restrict__ x,  // [N * 16]
    float* __restrict__ out,  // [K * 16]
    int64_t K,
    int64_t N) {
#pragma omp parallel for schedule(dynamic, K / 64 + 1)
  for (int64_t c = 0; c < K; ++c) {  // component
    alignas(64) float total[16];
#pragma omp simd
    for (int64_t d = 0; d < 16; ++d) {  // feature
      total[d] = 0.0f;
    }
    const int64_t start = offsets[c];
    for (int64_t r = 0; r < offsets[c + 1] - start; ++r) {  // row of component
#pragma omp simd
      for (int64_t d = 0; d < 16; ++d) {  // feature
        total[d] += x[(start + r) * 16 + d];
      }
    }
#pragma omp simd
    for (int64_t d = 0; d < 16; ++d) {  // feature
      out[c * 16 + d] = total[d];
    }
  }
}
"""
    )


def test_narrow_index_casts_offsets_only_where_arithmetic_needs_it() -> None:
    text = body_of(cpp.source([row_sum("int32", "int64")]))
    assert "const int start = offsets[c];" in text
    assert "int(offsets[c + 1]) - start" in text


def test_parentheses_only_where_needed() -> None:
    x, y, z = (symbol(name, "float32") for name in "xyz")
    cases = {
        (x + y) + z: "x + y + z",
        x + (y + z): "x + (y + z)",
        x * (y + z): "x * (y + z)",
        fdiv(x, fdiv(y, z)): "x / (y / z)",
        call("neg", call("neg", x)): "-(-x)",
        call("neg", x + y): "-(x + y)",
        x - const(-1.5, "float32"): "x - -1.5f",
        negation(lt(x, y)): "!(x < y)",
        either(lt(x, y), make("and", (lt(y, z), lt(z, x)), None, "bool")): "x < y || y < z && z < x",
        select(lt(x, y), x, select(lt(y, z), y, z)): "x < y ? x : y < z ? y : z",
        select(lt(x, y), x, y) + z: "(x < y ? x : y) + z",
        const(0.1, "float32"): "0.1f",
        const(0.1, "float64"): "0.1",
        call("rsqrt", x) * y: "1.0f / sqrtf(x) * y",
        y * call("rsqrt", x): "y * (1.0f / sqrtf(x))",
    }
    for value, expected in cases.items():
        kernel = Kernel("k", (buffer("o", 1, value.dtype, written=True),), (), (Store("o", const(0), value),))
        assert re.search(r"o\[0\] = (.*);", cpp.source([kernel])[-200:]).group(1) == expected


def test_names_that_are_words_of_c() -> None:
    value = call("exp", load("float", i, "float64")) + load("exp", i, "float64")
    kernel = Kernel(
        "double",
        (buffer("float", N, "float64"), buffer("exp", N, "float64"), buffer("x.1", N, "float64", written=True)),
        (N,),
        (For(i, N, (Store("x.1", i, value),), "position */ \\\n int"),),
    )
    x, y = torch.randn(5).double(), torch.empty(5).double()
    run(kernel, x, x, y, 5)
    torch.testing.assert_close(y, x.exp() + x)


def test_cooperation_is_refused_on_the_cpu() -> None:
    with pytest.raises(ScheduleError, match="Barrier"):
        cpp.source([Kernel("k", (), (), (Barrier(),))])
    with pytest.raises(ScheduleError, match="component"):
        cuda.source(row_sum("int64", "int64"))


# CUDA: sources that compile; what they compute is tested on a device, in tests/gpu.


def block_sum(over: tuple[ParallelType, ...], block: tuple[int | Scalar, ...], size: int = 1) -> Kernel:
    """out[block, thread, e]: the sum, and the last value, of threads that differ in `over`. Not commutative."""
    threads = [const(n) if isinstance(n, int) else n for n in block]
    x, y, z = symbol("tx"), symbol("ty"), symbol("tz")
    thread = (z * threads[1] + y) * threads[0] + x
    total = threads[0] * threads[1] * threads[2]
    e = symbol("e")
    place = (b * total + thread) * size + e
    names, dtypes = ("sum", "last"), ("float32", "int64")
    left = tuple(symbol(f"left_{name}", dtype) for name, dtype in zip(names, dtypes, strict=True))
    right = tuple(symbol(f"right_{name}", dtype) for name, dtype in zip(names, dtypes, strict=True))
    values = (left[0] + right[0], select(lt(right[1], 0), left[1], right[1]))
    inner = (
        local("sum", size),
        local("last", size, "int64"),
        For(e, const(size), (
            Store("sum", e, f32("x", place)), Store("last", e, load("z", place, "int64")),
        ), "e", P.Unroll),
        BlockReduce(names, size, over, CombineRule(left, right, values)),
        For(e, const(size), (
            Store("sums", place, f32("sum", e)), Store("lasts", place, load("last", e, "int64")),
        ), "e", P.Unroll),
    )  # fmt: skip
    body = For(b, K, (For(z, threads[2], (For(y, threads[1], (For(x, threads[0], inner, "x", P.TIDx),), "y", P.TIDy),),
                          "z", P.TIDz),), "block", P.BIDx)  # fmt: skip
    count = K * total * size
    return Kernel(
        "block_sum",
        (
            buffer("x", count), buffer("z", count, "int64"),
            buffer("sums", count, written=True), buffer("lasts", count, "int64", written=True),
        ),
        (K, *(n for n in block if isinstance(n, Scalar))),
        (body,),
        Launch((K, const(1), const(1)), (threads[0], threads[1], threads[2])),
    )  # fmt: skip


def grid_sum(size: int = 1) -> Kernel:
    """out[by, e, t] = sum over blocks bx of x[by, bx, e, t], by 64 threads."""
    e, by = symbol("e"), symbol("by")
    left, right = symbol("left", "float32"), symbol("right", "float32")
    inner = (
        local("total", size),
        For(e, const(size), (Store("total", e, f32("x", ((by * K + b) * size + e) * 64 + t)),), "e"),
        GridReduce(
            ("total",), size, (P.BIDx,), CombineRule((left,), (right,), (left + right,)), ("space",), "counter",
            (For(e, const(size), (Store("out", (by * size + e) * 64 + t, f32("total", e)),), "e"),),
        ),
    )  # fmt: skip
    body = For(by, D, (For(b, K, (For(t, const(64), inner, "thread", P.TIDx),), "chunk", P.BIDx),), "row", P.BIDy)
    return Kernel(
        "grid_sum",
        (
            buffer("x", K * D * 64 * size), buffer("space", K * D * 64 * size, written=True),
            buffer("counter", D, "int32", written=True), buffer("out", D * 64 * size, written=True),
        ),
        (K, D),
        (body,),
        Launch((K, D, const(1)), (const(64), const(1), const(1))),
    )  # fmt: skip


def softmax_by_blocks(dtype: str, index: str) -> Kernel:
    """A block per component; the threads walk its rows in steps of 128 and combine the online softmax."""
    big, total, step = f32("big", 0), f32("total", 0), symbol("step")
    row = step * 128 + t
    value = cast(load("x", start + row, dtype), "float32")
    names = [symbol(name, "float32") for name in ("m0", "s0", "m1", "s1")]
    m = maximum(names[0], names[2])
    rescaled = [
        s * select(equal(v, m), const(1.0, "float32"), call("exp", v - m))
        for v, s in ((names[0], names[1]), (names[2], names[3]))
    ]
    rule = CombineRule((names[0], names[1]), (names[2], names[3]), (m, rescaled[0] + rescaled[1]))
    larger = symbol("larger", "float32")

    def rows(*body: Let | Store) -> For:
        return For(step, ceildiv(end - start, 128), (If(lt(row, end - start), body),), "step of rows")

    inner = (
        local("big", 1),
        local("total", 1),
        Store("big", const(0), const(-math.inf, "float32")),
        Store("total", const(0), const(0.0, "float32")),
        rows(
            Let(larger, maximum(big, value)),
            Store("total", const(0), select(equal(larger, big), total, total * call("exp", big - larger))
                  + call("exp", value - larger)),
            Store("big", const(0), larger),
        ),
        BlockReduce(("big", "total"), 1, (P.TIDx,), rule),
        rows(Store("y", start + row, cast(fdiv(call("exp", value - big), total), dtype))),
    )  # fmt: skip
    return Kernel(
        "softmax",
        (buffer("offsets", K + 1, "int64"), buffer("x", N, dtype), buffer("y", N, dtype, written=True)),
        (K, N),
        (For(c, K, (For(t, const(128), inner, "row", P.TIDx),), "component", P.BIDx),),
        Launch((K, const(1), const(1)), (const(128), const(1), const(1))),
        index,
    )


def reversed_in_shared_memory() -> Kernel:
    """y = x with every 64 elements reversed, through shared memory; two loops over threads, one after the other."""
    body = (
        local("tile", 64, memory=Memory.SHARED),
        For(t, const(64), (Store("tile", t, f32("x", b * 64 + t)),), "thread", P.TIDx),
        Barrier(),
        For(t, const(64), (Store("y", b * 64 + t, f32("tile", 63 - t)),), "thread", P.TIDx),
    )
    return Kernel(
        "flip",
        (buffer("x", K * 64), buffer("y", K * 64, written=True)),
        (K,),
        (For(b, K, body, "tile", P.BIDx),),
        Launch((K, const(1), const(1)), (const(64), const(1), const(1))),
    )


CUDA_KERNELS = {
    "shuffles": block_sum((P.TIDx,), (128, 2, 1)),
    "shuffles of part of a warp": block_sum((P.TIDx,), (8, 8, 1), size=3),
    "shuffles of two dimensions": block_sum((P.TIDx, P.TIDy), (8, 16, 2)),
    "shared memory": block_sum((P.TIDy,), (32, 5, 1), size=2),
    "any block": block_sum((P.TIDx, P.TIDz), (symbol("bx"), symbol("by"), symbol("bz"))),
    "grid": grid_sum(),
    "grid, several elements": grid_sum(3),
    "softmax": softmax_by_blocks("float32", "int64"),
    "softmax in half": softmax_by_blocks("float16", "int32"),
    "softmax in bfloat16": softmax_by_blocks("bfloat16", "int64"),
    "flip": reversed_in_shared_memory(),
}


def test_golden_cuda_source() -> None:
    assert (
        body_of(cuda.source(reversed_in_shared_memory()))
        == """\
__global__ void __launch_bounds__(64) flip(
    const float* __restrict__ x,  // [K * 64]
    float* __restrict__ y,  // [K * 64]
    int64_t K) {
  const int64_t b = blockIdx.x;  // tile, of K
  __shared__ float tile[64];
  {
    const int64_t t = threadIdx.x;  // thread, of 64
    tile[t] = x[b * 64 + t];
  }
  __syncthreads();
  const int64_t t = threadIdx.x;  // thread, of 64
  y[b * 64 + t] = tile[63 - t];
}
"""
    )


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_sources_compile(tmp_path) -> None:
    paths = []
    for position, kernel in enumerate(CUDA_KERNELS.values()):
        paths.append(tmp_path / f"k{position}.cu")
        paths[-1].write_text(cuda.source(kernel))
    command = ["nvcc", "-cubin", "-arch=sm_90", "-std=c++17", "-Werror=all-warnings", "--threads=2", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
