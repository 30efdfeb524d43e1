"""The text of C++ and CUDA sources: golden kernels, casts, parentheses, and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from tests.kernel.printed_kernels import CUDA_KERNELS, body_of, buffer, reversed_in_shared_memory, row_sum

from serrate.errors import ScheduleError
from serrate.fusion.scalar import call, const, either, less, logical_not, make, symbol, where
from serrate.kernel import cpp, cuda
from serrate.kernel.ir import Barrier, Kernel, Store


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
        x / (y / z): "x / (y / z)",
        call("negative", call("negative", x)): "-(-x)",
        call("negative", x + y): "-(x + y)",
        x - const(-1.5, "float32"): "x - -1.5f",
        logical_not(less(x, y)): "!(x < y)",
        either(less(x, y), make("logical_and", (less(y, z), less(z, x)), None, "bool")): "x < y || y < z && z < x",
        where(less(x, y), x, where(less(y, z), y, z)): "x < y ? x : y < z ? y : z",
        where(less(x, y), x, y) + z: "(x < y ? x : y) + z",
        const(0.1, "float32"): "0.1f",
        const(0.1, "float64"): "0.1",
        call("rsqrt", x) * y: "1.0f / sqrtf(x) * y",
        y * call("rsqrt", x): "y * (1.0f / sqrtf(x))",
    }
    for value, expected in cases.items():
        kernel = Kernel("k", (buffer("o", 1, value.dtype, written=True),), (), (Store("o", const(0), value),))
        assert re.search(r"o\[0\] = (.*);", cpp.source([kernel])[-200:]).group(1) == expected


def test_cooperation_is_refused_on_the_cpu() -> None:
    with pytest.raises(ScheduleError, match="Barrier"):
        cpp.source([Kernel("k", (), (), (Barrier(),))])
    with pytest.raises(ScheduleError, match="component"):
        cuda.source(row_sum("int64", "int64"))


# CUDA: sources that compile; what they compute is tested on a device, in tests/gpu.


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
