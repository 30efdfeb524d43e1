// The sum of all values: threads, then blocks, of which the last to arrive combines.
// Launched as (maximum((n * 64 + 255) / 256, 1), 1, 1) blocks of (256, 1, 1) threads.

extern "C" __global__ void __launch_bounds__(256) sum_of_all_cuda_(
    const float* __restrict__ x_,  // [n_ * 64]
    float* __restrict__ y_,  // [1]
    float* __restrict__ y_sum_blocks_,  // [sr::max((n_ * 64 + 255) / 256, 1) * 256]
    int* __restrict__ y_arrived_,  // [1]
    int64_t n_) {
  float y_sum_ = 0.0f;
  {
    const int64_t crd_outer_ = blockIdx.x;  // crd of y, by 256, of (n_ * 64 + 255) / 256
    const int64_t crd_inner_ = threadIdx.x;  // crd of y, within 256, of 256
    const int64_t crd_ = crd_outer_ * 256 + crd_inner_;
    const bool inside_ = crd_ < n_ * 64;
    if (inside_) {
      y_sum_ += x_[crd_];
    }
  }
  {
    // y_sum_: combined over threadIdx.x
    struct State {
      float y_sum_;
    };
    const auto combine = [=](State left, State right) {
      return State{left.y_sum_ + right.y_sum_};
    };
    const State state = sr::adjacent_reduce<256, 256>(State{y_sum_}, int(threadIdx.x), combine);
    y_sum_ = state.y_sum_;
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
      return ((int64_t(group) * blocks + block) * 256 + int(threadIdx.x)) + element;
    };
    y_sum_blocks_[place(int(blockIdx.x), 0)] = y_sum_;
    if (sr::last_to_arrive(y_arrived_ + group, blocks)) {
      State state = {y_sum_blocks_[place(0, 0)]};
      for (int block = 1; block < blocks; ++block) {
        state = combine(state, State{y_sum_blocks_[place(block, 0)]});
      }
      y_sum_ = state.y_sum_;
      const int64_t tidx_ = threadIdx.x;  // y is stored once, of 256
      const bool inside_ = tidx_ == 0;
      if (inside_) {
        y_[0] = y_sum_;
      }
    }
  }
}
