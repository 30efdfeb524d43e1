// Softmax over the rows of each component; maximum and sum are combined across threads, exp computed twice.
// Launched as (k, 2, 1) blocks of (32, 4, 1) threads.

extern "C" __global__ void __launch_bounds__(128) softmax_by_component_cuda_(
    const float* __restrict__ x_,  // [n_ * 64]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    float* __restrict__ y_,  // [n_ * 64]
    int64_t k_,
    int64_t n_) {
  const int64_t c_ = blockIdx.x;  // c of y, of k_
  const int64_t r_extent_ = offsets_[c_ + 1] - offsets_[c_];
  const int64_t d_outer_ = blockIdx.y;  // d of y, by 32, of 2
  float t3_max_ = -INFINITY;
  for (int64_t r_outer_ = 0; r_outer_ < (r_extent_ + 3) / 4; ++r_outer_) {  // r of y, by 4
    const int64_t r_inner_ = threadIdx.y;  // r of y, within 4, of 4
    const int64_t r_ = r_outer_ * 4 + r_inner_;
    const bool inside_ = r_ < r_extent_;
    const int64_t i_ = offsets_[c_] + r_;
    const int64_t d_inner_ = threadIdx.x;  // d of y, within 32, of 32
    const int64_t d_ = d_outer_ * 32 + d_inner_;
    if (inside_) {
      t3_max_ = sr::max(t3_max_, x_[i_ * 64 + d_]);
    }
  }
  {
    // t3_max_: combined over threadIdx.y
    struct State {
      float t3_max_;
    };
    const auto combine = [=](State left, State right) {
      return State{sr::max(left.t3_max_, right.t3_max_)};
    };
    const State state = sr::block_reduce<128>(State{t3_max_}, int(threadIdx.y), 4, int(threadIdx.x), 32, combine);
    t3_max_ = state.t3_max_;
  }
  double t6_sum_ = 0.0;
  for (int64_t r_outer_block_ = 0; r_outer_block_ < ((r_extent_ + 3) / 4 + 63) / 64; ++r_outer_block_) {  // r of y, by 4, blocks of 64
    float t6_sum_part_ = 0.0f;
    for (int64_t r_outer_step_ = 0; r_outer_step_ < sr::min((r_extent_ + 3) / 4 - r_outer_block_ * 64, 64); ++r_outer_step_) {  // r of y, by 4, within a block
      const int64_t r_outer_ = r_outer_block_ * 64 + r_outer_step_;
      const int64_t r_inner_ = threadIdx.y;  // r of y, within 4, of 4
      const int64_t r_ = r_outer_ * 4 + r_inner_;
      const bool inside_ = r_ < r_extent_;
      const int64_t i_ = offsets_[c_] + r_;
      const int64_t d_inner_ = threadIdx.x;  // d of y, within 32, of 32
      const int64_t d_ = d_outer_ * 32 + d_inner_;
      if (inside_) {
        t6_sum_part_ += expf(x_[i_ * 64 + d_] - t3_max_);
      }
    }
    t6_sum_ += double(t6_sum_part_);
  }
  {
    // t6_sum_: combined over threadIdx.y
    struct State {
      double t6_sum_;
    };
    const auto combine = [=](State left, State right) {
      return State{left.t6_sum_ + right.t6_sum_};
    };
    const State state = sr::block_reduce<128>(State{t6_sum_}, int(threadIdx.y), 4, int(threadIdx.x), 32, combine);
    t6_sum_ = state.t6_sum_;
  }
  float t7_kept_ = 1.0f / float(t6_sum_);
  for (int64_t r_outer_ = 0; r_outer_ < (r_extent_ + 3) / 4; ++r_outer_) {  // r of y, by 4
    const int64_t r_inner_ = threadIdx.y;  // r of y, within 4, of 4
    const int64_t r_ = r_outer_ * 4 + r_inner_;
    const bool inside_ = r_ < r_extent_;
    const int64_t i_ = offsets_[c_] + r_;
    const int64_t d_inner_ = threadIdx.x;  // d of y, within 32, of 32
    const int64_t d_ = d_outer_ * 32 + d_inner_;
    if (inside_) {
      y_[i_ * 64 + d_] = expf(x_[i_ * 64 + d_] - t3_max_) * t7_kept_;
    }
  }
}
