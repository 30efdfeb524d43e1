// Softmax over the rows of each component; maximum and sum are combined across threads, exp computed twice.
// Launched as (k, 2, 1) blocks of (32, 4, 1) threads.

extern "C" __global__ void __launch_bounds__(128) softmax_by_component_cuda(
    const float* __restrict__ x,  // [n * 64]
    const int64_t* __restrict__ offsets,  // [k + 1]
    float* __restrict__ y,  // [n * 64]
    int64_t k,
    int64_t n) {
  const int64_t c = blockIdx.x;  // c of y, of k
  const int64_t r_extent = offsets[c + 1] - offsets[c];
  const int64_t d_outer = blockIdx.y;  // d of y, by 32, of 2
  float t3_max = -INFINITY;
  for (int64_t r_outer = 0; r_outer < (r_extent + 3) / 4; ++r_outer) {  // r of y, by 4
    const int64_t r_inner = threadIdx.y;  // r of y, within 4, of 4
    const int64_t r = r_outer * 4 + r_inner;
    const bool inside = r < r_extent;
    const int64_t cr = offsets[c] + r;
    const int64_t d_inner = threadIdx.x;  // d of y, within 32, of 32
    const int64_t d = d_outer * 32 + d_inner;
    if (inside) {
      t3_max = sr::max(t3_max, x[cr * 64 + d]);
    }
  }
  {
    // t3_max: combined over threadIdx.y
    struct State {
      float t3_max;
    };
    const auto combine = [=](State left, State right) {
      return State{sr::max(left.t3_max, right.t3_max)};
    };
    const State state = sr::block_reduce<128>(State{t3_max}, int(threadIdx.y), 4, int(threadIdx.x), combine);
    t3_max = state.t3_max;
  }
  double t6_sum = 0.0;
  for (int64_t r_outer_block = 0; r_outer_block < ((r_extent + 3) / 4 + 63) / 64; ++r_outer_block) {  // r of y, by 4, blocks of 64
    float t6_sum_part = 0.0f;
    for (int64_t r_outer_step = 0; r_outer_step < sr::min((r_extent + 3) / 4 - r_outer_block * 64, 64); ++r_outer_step) {  // r of y, by 4, within a block
      const int64_t r_outer = r_outer_block * 64 + r_outer_step;
      const int64_t r_inner = threadIdx.y;  // r of y, within 4, of 4
      const int64_t r = r_outer * 4 + r_inner;
      const bool inside = r < r_extent;
      const int64_t cr = offsets[c] + r;
      const int64_t d_inner = threadIdx.x;  // d of y, within 32, of 32
      const int64_t d = d_outer * 32 + d_inner;
      if (inside) {
        t6_sum_part += expf(x[cr * 64 + d] - t3_max);
      }
    }
    t6_sum += double(t6_sum_part);
  }
  {
    // t6_sum: combined over threadIdx.y
    struct State {
      double t6_sum;
    };
    const auto combine = [=](State left, State right) {
      return State{left.t6_sum + right.t6_sum};
    };
    const State state = sr::block_reduce<128>(State{t6_sum}, int(threadIdx.y), 4, int(threadIdx.x), combine);
    t6_sum = state.t6_sum;
  }
  float t7_kept = 1.0f / float(t6_sum);
  for (int64_t r_outer = 0; r_outer < (r_extent + 3) / 4; ++r_outer) {  // r of y, by 4
    const int64_t r_inner = threadIdx.y;  // r of y, within 4, of 4
    const int64_t r = r_outer * 4 + r_inner;
    const bool inside = r < r_extent;
    const int64_t cr = offsets[c] + r;
    const int64_t d_inner = threadIdx.x;  // d of y, within 32, of 32
    const int64_t d = d_outer * 32 + d_inner;
    if (inside) {
      y[cr * 64 + d] = expf(x[cr * 64 + d] - t3_max) * t7_kept;
    }
  }
}
