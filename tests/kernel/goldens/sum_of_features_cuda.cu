// The sum over all rows, feature by feature: the gradient of a bias. 32 rows a block, combined by the last one.
// Launched as (maximum((n + 31) / 32, 1), 1, 1) blocks of (64, 1, 1) threads.

extern "C" __global__ void __launch_bounds__(64) sum_of_features_cuda_(
    const float* __restrict__ x_,  // [n_ * 64]
    float* __restrict__ y_,  // [64]
    float* __restrict__ y_sum_blocks_,  // [sr::max((n_ + 31) / 32, 1) * 64]
    int* __restrict__ y_arrived_,  // [1]
    int64_t n_) {
  float y_sum_ = 0.0f;
  {
    const int64_t cr_outer_ = blockIdx.x;  // cr of y, by 32, of (n_ + 31) / 32
    const int64_t cr_inner_extent_ = sr::min(n_ - cr_outer_ * 32, 32);
    for (int64_t cr_inner_ = 0; cr_inner_ < cr_inner_extent_; ++cr_inner_) {  // cr of y, within 32
      const int64_t cr_ = cr_outer_ * 32 + cr_inner_;
      const int64_t d_ = threadIdx.x;  // d of y, of 64
      if (cr_ < n_) {
        y_sum_ += x_[cr_ * 64 + d_];
      }
    }
  }
  {
    // y_sum_: combined over blockIdx.x by the last block to arrive
    struct State {
      float y_sum_;
    };
    const auto combine = [=](State left, State right) {
      return State{left.y_sum_ + right.y_sum_};
    };
    const int blocks = int(gridDim.x);
    const int group = 0;
    const auto place = [=](int block, int element) {
      return ((int64_t(group) * blocks + block) * 64 + int(threadIdx.x)) + element;
    };
    y_sum_blocks_[place(int(blockIdx.x), 0)] = y_sum_;
    if (sr::last_to_arrive(y_arrived_ + group, blocks)) {
      State state = {y_sum_blocks_[place(0, 0)]};
      for (int block = 1; block < blocks; ++block) {
        state = combine(state, State{y_sum_blocks_[place(block, 0)]});
      }
      y_sum_ = state.y_sum_;
      const int64_t d_ = threadIdx.x;  // d of y, of 64
      y_[d_] = y_sum_;
    }
  }
}
