// The sum over the rows of each component: 32 features × 4 rows at a time, rows combined across threads.
// Launched as (k, 2, 1) blocks of (32, 4, 1) threads.

extern "C" __global__ void __launch_bounds__(128) sum_by_component_cuda_(
    const float* __restrict__ x_,  // [n_ * 64]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    float* __restrict__ y_,  // [k_ * 64]
    int64_t k_,
    int64_t n_) {
  const int64_t c_ = blockIdx.x;  // c of y, of k_
  const int64_t r_extent_ = offsets_[c_ + 1] - offsets_[c_];
  const int64_t d_outer_ = blockIdx.y;  // d of y, by 32, of 2
  double y_sum_ = 0.0;
  for (int64_t r_outer_block_ = 0; r_outer_block_ < ((r_extent_ + 3) / 4 + 63) / 64; ++r_outer_block_) {  // r of y, by 4, blocks of 64
    float y_sum_part_ = 0.0f;
    for (int64_t r_outer_step_ = 0; r_outer_step_ < sr::min((r_extent_ + 3) / 4 - r_outer_block_ * 64, 64); ++r_outer_step_) {  // r of y, by 4, within a block
      const int64_t r_outer_ = r_outer_block_ * 64 + r_outer_step_;
      const int64_t r_inner_ = threadIdx.y;  // r of y, within 4, of 4
      const int64_t r_ = r_outer_ * 4 + r_inner_;
      const bool inside_ = r_ < r_extent_;
      const int64_t i_ = offsets_[c_] + r_;
      const int64_t d_inner_ = threadIdx.x;  // d of y, within 32, of 32
      const int64_t d_ = d_outer_ * 32 + d_inner_;
      if (inside_) {
        y_sum_part_ += x_[i_ * 64 + d_];
      }
    }
    y_sum_ += double(y_sum_part_);
  }
  {
    // y_sum_: combined over threadIdx.y
    struct State {
      double y_sum_;
    };
    const auto combine = [=](State left, State right) {
      return State{left.y_sum_ + right.y_sum_};
    };
    const State state = sr::block_reduce<128>(State{y_sum_}, int(threadIdx.y), 4, int(threadIdx.x), 32, combine);
    y_sum_ = state.y_sum_;
  }
  const int64_t d_inner_ = threadIdx.x;  // d of y, within 32, of 32
  const int64_t d_ = d_outer_ * 32 + d_inner_;
  const int64_t tidy_ = threadIdx.y;  // y is stored once, of 4
  const bool inside_ = tidy_ == 0;
  if (inside_) {
    y_[c_ * 64 + d_] = float(y_sum_);
  }
}
