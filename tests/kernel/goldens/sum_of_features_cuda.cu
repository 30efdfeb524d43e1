// The sum over all rows, feature by feature: the gradient of a bias. 32 rows a block, combined by the last one.
// Launched as (maximum((n + 31) / 32, 1), 1, 1) blocks of (64, 1, 1) threads.

extern "C" __global__ void __launch_bounds__(64) sum_of_features_cuda(
    const float* __restrict__ x,  // [n * 64]
    float* __restrict__ y,  // [64]
    float* __restrict__ y_sum_blocks,  // [maximum((n + 31) / 32, 1) * 64]
    int* __restrict__ y_arrived,  // [1]
    int64_t n) {
  float y_sum = 0.0f;
  {
    const int64_t cr_outer = blockIdx.x;  // cr of y, by 32, of (n + 31) / 32
    for (int64_t cr_inner = 0; cr_inner < 32; ++cr_inner) {  // cr of y, within 32
      const int64_t cr = cr_outer * 32 + cr_inner;
      const int64_t d = threadIdx.x;  // d of y, of 64
      if (cr < n) {
        y_sum += x[cr * 64 + d];
      }
    }
  }
  {
    // y_sum: combined over blockIdx.x by the last block to arrive
    struct State {
      float y_sum;
    };
    const auto combine = [=](State left, State right) {
      return State{left.y_sum + right.y_sum};
    };
    const int blocks = int(gridDim.x);
    const int group = 0;
    const auto place = [=](int block, int element) {
      return ((int64_t(group) * blocks + block) * 64 + int(threadIdx.x)) + element;
    };
    y_sum_blocks[place(int(blockIdx.x), 0)] = y_sum;
    if (sr::last_to_arrive(y_arrived + group, blocks)) {
      State state = {y_sum_blocks[place(0, 0)]};
      for (int block = 1; block < blocks; ++block) {
        state = combine(state, State{y_sum_blocks[place(block, 0)]});
      }
      y_sum = state.y_sum;
      const int64_t d = threadIdx.x;  // d of y, of 64
      y[d] = y_sum;
    }
  }
}
