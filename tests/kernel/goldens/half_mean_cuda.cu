// The mean over the rows of each component in bfloat16, accumulated in float32; indices are of 32 bits.
// Launched as (k, 2, 1) blocks of (32, 4, 1) threads.

#include <cuda_bf16.h>

extern "C" __global__ void __launch_bounds__(128) half_mean_cuda(
    const __nv_bfloat16* __restrict__ x,  // [n * 64]
    const int64_t* __restrict__ offsets,  // [k + 1]
    __nv_bfloat16* __restrict__ y,  // [k * 64]
    int k,
    int n) {
  const int c = blockIdx.x;  // c of y, of k
  const int r_extent = int(offsets[c + 1]) - int(offsets[c]);
  const int d_outer = blockIdx.y;  // d of y, by 32, of 2
  double y_mean;
  int64_t y_count;
  y_mean = 0.0;
  y_count = 0;
  for (int r_outer_block = 0; r_outer_block < ((r_extent + 3) / 4 + 63) / 64; ++r_outer_block) {  // r of y, by 4, blocks of 64
    float y_mean_part;
    int64_t y_mean_part2;
    y_mean_part = 0.0f;
    y_mean_part2 = 0;
    for (int r_outer_step = 0; r_outer_step < sr::min((r_extent + 3) / 4 - r_outer_block * 64, 64); ++r_outer_step) {  // r of y, by 4, within a block
      const int r_outer = r_outer_block * 64 + r_outer_step;
      const int r_inner = threadIdx.y;  // r of y, within 4, of 4
      const int r = r_outer * 4 + r_inner;
      const bool inside = r < r_extent;
      const int cr = int(offsets[c]) + r;
      const int d_inner = threadIdx.x;  // d of y, within 32, of 32
      const int d = d_outer * 32 + d_inner;
      if (inside) {
        const int64_t y_mean_part2_next = y_mean_part2 + 1;
        y_mean_part += float(x[cr * 64 + d]);
        y_mean_part2 = y_mean_part2_next;
      }
    }
    const int64_t y_count_next = y_count + y_mean_part2;
    y_mean += double(y_mean_part);
    y_count = y_count_next;
  }
  {
    // y_mean, y_count: combined over threadIdx.y
    struct State {
      double y_mean;
      int64_t y_count;
    };
    const auto combine = [=](State left, State right) {
      return State{left.y_mean + right.y_mean, left.y_count + right.y_count};
    };
    const State state = sr::block_reduce<128>(State{y_mean, y_count}, int(threadIdx.y), 4, int(threadIdx.x), combine);
    y_mean = state.y_mean;
    y_count = state.y_count;
  }
  y_mean /= double(y_count);
  const int d_inner = threadIdx.x;  // d of y, within 32, of 32
  const int d = d_outer * 32 + d_inner;
  const int tidy = threadIdx.y;  // y is stored once, of 4
  const bool inside = tidy == 0;
  if (inside) {
    y[c * 64 + d] = __nv_bfloat16(float(y_mean));
  }
}
