"""The text of C++ and CUDA sources: golden kernels, casts, parentheses, and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from tests.kernel.harness import NVCC
from tests.kernel.printed_kernels import CUDA_KERNELS, body_of, buffer, reversed_in_shared_memory, row_sum

from serrate.errors import ScheduleError
from serrate.fusion.scalar import both, call, const, either, less, logical_not, symbol, where
from serrate.kernel import cpp, cuda
from serrate.kernel.ir import Barrier, Kernel, Store


def test_golden_source() -> None:
    assert (
        body_of(cpp.source([row_sum("int64", "int64")]))
        == """\
extern "C" void row_sum_(
    const int64_t* __restrict__ offsets_,  // [K_ + 1]
    const float* __restrict__ x_,  // [N_ * 16]
    float* __restrict__ out_,  // [K_ * 16]
    int64_t K_,
    int64_t N_) {
#pragma omp parallel for schedule(dynamic, K_ / 64 + 1) if (K_ + 1 + N_ * 16 + K_ * 16 > 32768)
  for (int64_t c_ = 0; c_ < K_; ++c_) {  // component
    alignas(64) float total_[16];
#pragma omp simd
    for (int64_t d_ = 0; d_ < 16; ++d_) {  // feature
      total_[d_] = 0.0f;
    }
    const int64_t start_ = offsets_[c_];
    for (int64_t r_ = 0; r_ < offsets_[c_ + 1] - start_; ++r_) {  // row of component
#pragma omp simd
      for (int64_t d_ = 0; d_ < 16; ++d_) {  // feature
        total_[d_] += x_[(start_ + r_) * 16 + d_];
      }
    }
#pragma omp simd
    for (int64_t d_ = 0; d_ < 16; ++d_) {  // feature
      out_[c_ * 16 + d_] = total_[d_];
    }
  }
}
"""
    )


def test_narrow_index_casts_offsets_only_where_arithmetic_needs_it() -> None:
    text = body_of(cpp.source([row_sum("int32", "int64")]))
    assert "const int start_ = offsets_[c_];" in text
    assert "int(offsets_[c_ + 1]) - start_" in text


def test_parentheses_only_where_needed() -> None:
    x, y, z = (symbol(name, "float32") for name in "xyz")
    cases = {
        (x + y) + z: "x_ + y_ + z_",
        x + (y + z): "x_ + (y_ + z_)",
        x * (y + z): "x_ * (y_ + z_)",
        x / (y / z): "x_ / (y_ / z_)",
        call("negative", call("negative", x)): "-(-x_)",
        call("negative", x + y): "-(x_ + y_)",
        x - const(-1.5, "float32"): "x_ - -1.5f",
        logical_not(less(x, y)): "!(x_ < y_)",
        either(less(x, y), both(less(y, z), less(z, x))): "x_ < y_ || y_ < z_ && z_ < x_",
        where(less(x, y), x, where(less(y, z), y, z)): "x_ < y_ ? x_ : y_ < z_ ? y_ : z_",
        where(less(x, y), x, y) + z: "(x_ < y_ ? x_ : y_) + z_",
        const(0.1, "float32"): "0.1f",
        const(0.1, "float64"): "0.1",
        call("rsqrt", x) * y: "1.0f / sqrtf(x_) * y_",
        y * call("rsqrt", x): "y_ * (1.0f / sqrtf(x_))",
    }
    for value, expected in cases.items():
        kernel = Kernel("k", (buffer("o", 1, value.dtype, written=True),), (), (Store("o", const(0), value),))
        assert re.search(r"o_\[0\] = (.*);", cpp.source([kernel])[-200:]).group(1) == expected


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
__global__ void __launch_bounds__(64) flip_(
    const float* __restrict__ x_,  // [K_ * 64]
    float* __restrict__ y_,  // [K_ * 64]
    int64_t K_) {
  const int64_t b_ = blockIdx.x;  // tile, of K_
  __shared__ float tile_[64];
  {
    const int64_t t_ = threadIdx.x;  // thread, of 64
    tile_[t_] = x_[b_ * 64 + t_];
  }
  __syncthreads();
  const int64_t t_ = threadIdx.x;  // thread, of 64
  y_[b_ * 64 + t_] = tile_[63 - t_];
}
"""
    )


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_sources_compile(tmp_path) -> None:
    paths = []
    for position, kernel in enumerate(CUDA_KERNELS.values()):
        paths.append(tmp_path / f"k{position}.cu")
        paths[-1].write_text(cuda.source(kernel))
    command = [*NVCC, "-Werror=all-warnings", "--threads=2", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout


def test_the_component_that_was_found_last_is_tried_first() -> None:
    """Each thread has what it found last; lanes search anew."""
    import torch

    from serrate.fusion import Fusion, ParallelType, symbol
    from serrate.kernel import lower

    for lengths in ([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1], [1] * 40, [0, 0], []):
        fusion = Fusion()
        x, offsets = fusion.input("x", ["n"]), fusion.input("offsets", [symbol("k") + 1], "int64")
        rows = fusion.view_as_nested(x, offsets)
        y = fusion.output(rows + fusion.broadcast(fusion.input("w", ["k"]), [False, True]), "y")
        y.combine(0).parallelize(0, ParallelType.Thread)
        lowered = lower(fusion, y)
        assert "firstprivate(near1)" in lowered.source
        data, weights = torch.randn(sum(lengths)), torch.randn(len(lengths))
        places = torch.tensor([0, *torch.tensor(lengths, dtype=torch.int64).cumsum(0).tolist()])
        want = data + weights.repeat_interleave(torch.tensor(lengths, dtype=torch.int64))
        assert torch.equal(lowered(data, places, weights)[0], want)
