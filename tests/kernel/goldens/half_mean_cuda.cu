// The mean over the rows of each component in bfloat16, accumulated in float32; indices are of 32 bits.
// Launched as (k, 2, 1) blocks of (32, 4, 1) threads.

#include <cuda_bf16.h>

extern "C" __global__ void __launch_bounds__(128) half_mean_cuda_(
    const __nv_bfloat16* __restrict__ x_,  // [n_ * 64]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    __nv_bfloat16* __restrict__ y_,  // [k_ * 64]
    int k_,
    int n_) {
  const int c_ = blockIdx.x;  // c of y, of k_
  const int r_extent_ = int(offsets_[c_ + 1]) - int(offsets_[c_]);
  const int d_outer_ = blockIdx.y;  // d of y, by 32, of 2
  double y_mean_;
  int64_t y_count_;
  y_mean_ = 0.0;
  y_count_ = 0;
  for (int r_outer_block_ = 0; r_outer_block_ < ((r_extent_ + 3) / 4 + 63) / 64; ++r_outer_block_) {  // r of y, by 4, blocks of 64
    float y_mean_part_;
    int64_t y_mean_part2_;
    y_mean_part_ = 0.0f;
    y_mean_part2_ = 0;
    for (int r_outer_step_ = 0; r_outer_step_ < sr::min((r_extent_ + 3) / 4 - r_outer_block_ * 64, 64); ++r_outer_step_) {  // r of y, by 4, within a block
      const int r_outer_ = r_outer_block_ * 64 + r_outer_step_;
      const int r_inner_ = threadIdx.y;  // r of y, within 4, of 4
      const int r_ = r_outer_ * 4 + r_inner_;
      const bool inside_ = r_ < r_extent_;
      const int i_ = int(offsets_[c_]) + r_;
      const int d_inner_ = threadIdx.x;  // d of y, within 32, of 32
      const int d_ = d_outer_ * 32 + d_inner_;
      if (inside_) {
        const int64_t y_mean_part2_next_ = y_mean_part2_ + 1;
        y_mean_part_ += float(x_[i_ * 64 + d_]);
        y_mean_part2_ = y_mean_part2_next_;
      }
    }
    const int64_t y_count_next_ = y_count_ + y_mean_part2_;
    y_mean_ += double(y_mean_part_);
    y_count_ = y_count_next_;
  }
  {
    // y_mean_, y_count_: combined over threadIdx.y
    struct State {
      double y_mean_;
      int64_t y_count_;
    };
    const auto combine = [=](State left, State right) {
      return State{left.y_mean_ + right.y_mean_, left.y_count_ + right.y_count_};
    };
    const State state = sr::block_reduce<128>(State{y_mean_, y_count_}, int(threadIdx.y), 4, int(threadIdx.x), 32, combine);
    y_mean_ = state.y_mean_;
    y_count_ = state.y_count_;
  }
  y_mean_ /= double(y_count_);
  const int d_inner_ = threadIdx.x;  // d of y, within 32, of 32
  const int d_ = d_outer_ * 32 + d_inner_;
  const int tidy_ = threadIdx.y;  // y is stored once, of 4
  const bool inside_ = tidy_ == 0;
  if (inside_) {
    y_[c_ * 64 + d_] = __nv_bfloat16(float(y_mean_));
  }
}
