// The sum over the rows of each component: 32 features × 4 rows at a time, rows combined across threads.
// Launched as (k, 2, 1) blocks of (32, 4, 1) threads.

extern "C" __global__ void __launch_bounds__(128) sum_by_component_cuda(
    const float* __restrict__ x,  // [n * 64]
    const int64_t* __restrict__ offsets,  // [k + 1]
    float* __restrict__ y,  // [k * 64]
    int64_t k,
    int64_t n) {
  const int64_t c = blockIdx.x;  // c of y, of k
  const int64_t r_extent = offsets[c + 1] - offsets[c];
  const int64_t d_outer = blockIdx.y;  // d of y, by 32, of 2
  double y_sum = 0.0;
  for (int64_t r_outer_block = 0; r_outer_block < ((r_extent + 3) / 4 + 63) / 64; ++r_outer_block) {  // r of y, by 4, blocks of 64
    float y_sum_part = 0.0f;
    for (int64_t r_outer_step = 0; r_outer_step < sr::min((r_extent + 3) / 4 - r_outer_block * 64, 64); ++r_outer_step) {  // r of y, by 4, within a block
      const int64_t r_outer = r_outer_block * 64 + r_outer_step;
      const int64_t r_inner = threadIdx.y;  // r of y, within 4, of 4
      const int64_t r = r_outer * 4 + r_inner;
      const bool inside = r < r_extent;
      const int64_t cr = offsets[c] + r;
      const int64_t d_inner = threadIdx.x;  // d of y, within 32, of 32
      const int64_t d = d_outer * 32 + d_inner;
      if (inside) {
        y_sum_part += x[cr * 64 + d];
      }
    }
    y_sum += double(y_sum_part);
  }
  {
    // y_sum: combined over threadIdx.y
    struct State {
      double y_sum;
    };
    const auto combine = [=](State left, State right) {
      return State{left.y_sum + right.y_sum};
    };
    const State state = sr::block_reduce<128>(State{y_sum}, int(threadIdx.y), 4, int(threadIdx.x), combine);
    y_sum = state.y_sum;
  }
  const int64_t d_inner = threadIdx.x;  // d of y, within 32, of 32
  const int64_t d = d_outer * 32 + d_inner;
  const int64_t tidy = threadIdx.y;  // y is stored once, of 4
  const bool inside = tidy == 0;
  if (inside) {
    y[c * 64 + d] = float(y_sum);
  }
}
