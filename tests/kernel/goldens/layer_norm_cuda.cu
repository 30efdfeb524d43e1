// Layer norm over features, a row for each 32 threads, four rows to a block.
// Launched as ((n + 3) / 4, 1, 1) blocks of (32, 4, 1) threads.

extern "C" __global__ void __launch_bounds__(128) layer_norm_cuda(
    const float* __restrict__ x,  // [n * 64]
    const float* __restrict__ w,  // [64]
    const float* __restrict__ b,  // [64]
    float* __restrict__ y,  // [n * 64]
    int64_t n) {
  const int64_t cr_outer = blockIdx.x;  // cr of y, by 4, of (n + 3) / 4
  const int64_t cr_inner = threadIdx.y;  // cr of y, within 4, of 4
  const int64_t cr = cr_outer * 4 + cr_inner;
  float t3_mean;
  int64_t t3_count;
  t3_mean = 0.0f;
  t3_count = 0;
  float t5_var;
  float t5_mean;
  int64_t t5_count;
  t5_var = 0.0f;
  t5_mean = 0.0f;
  t5_count = 0;
  for (int64_t d_outer = 0; d_outer < 2; ++d_outer) {  // d of y, by 32
    const int64_t d_inner = threadIdx.x;  // d of y, within 32, of 32
    const int64_t d = d_outer * 32 + d_inner;
    const bool inside = cr < n;
    if (inside) {
      const float x_at = x[cr * 64 + d];
      const int64_t t3_count_next = t3_count + 1;
      t3_mean += x_at;
      t3_count = t3_count_next;
      const float t5_var_term = x_at - t5_mean;
      const int64_t t5_var_term2 = t5_count + 1;
      const float t5_var_term3 = t5_mean + t5_var_term / float(t5_var_term2);
      t5_var += t5_var_term * (x_at - t5_var_term3);
      t5_mean = t5_var_term3;
      t5_count = t5_var_term2;
    }
  }
  {
    // t3_mean, t3_count: combined over threadIdx.x
    struct State {
      float t3_mean;
      int64_t t3_count;
    };
    const auto combine = [=](State left, State right) {
      return State{left.t3_mean + right.t3_mean, left.t3_count + right.t3_count};
    };
    const State state = sr::adjacent_reduce<128, 32>(State{t3_mean, t3_count}, int(threadIdx.y) * 32 + int(threadIdx.x), combine);
    t3_mean = state.t3_mean;
    t3_count = state.t3_count;
  }
  t3_mean /= float(t3_count);
  {
    // t5_var, t5_mean, t5_count: combined over threadIdx.x
    struct State {
      float t5_var;
      float t5_mean;
      int64_t t5_count;
    };
    const auto combine = [=](State left, State right) {
      return State{left.t5_count == 0 ? right.t5_var : right.t5_count == 0 ? left.t5_var : left.t5_var + right.t5_var + (right.t5_mean - left.t5_mean) * (right.t5_mean - left.t5_mean) * (float(left.t5_count) * (float(right.t5_count) / float(left.t5_count + right.t5_count))), left.t5_count == 0 ? right.t5_mean : right.t5_count == 0 ? left.t5_mean : left.t5_mean + (right.t5_mean - left.t5_mean) * (float(right.t5_count) / float(left.t5_count + right.t5_count)), left.t5_count + right.t5_count};
    };
    const State state = sr::adjacent_reduce<128, 32>(State{t5_var, t5_mean, t5_count}, int(threadIdx.y) * 32 + int(threadIdx.x), combine);
    t5_var = state.t5_var;
    t5_mean = state.t5_mean;
    t5_count = state.t5_count;
  }
  t5_var /= float(t5_count);
  float t7_kept;
  const bool inside = cr < n;
  if (inside) {
    t7_kept = rsqrtf(t5_var + 1e-05f);
  }
  for (int64_t d_outer = 0; d_outer < 2; ++d_outer) {  // d of y, by 32
    const int64_t d_inner = threadIdx.x;  // d of y, within 32, of 32
    const int64_t d = d_outer * 32 + d_inner;
    if (inside) {
      y[cr * 64 + d] = (x[cr * 64 + d] - t3_mean) * t7_kept * w[d] + b[d];
    }
  }
}
