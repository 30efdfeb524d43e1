// The sum of all values: threads, then blocks, of which the last to arrive combines.
// Launched as (maximum((n * 64 + 255) / 256, 1), 1, 1) blocks of (256, 1, 1) threads.

extern "C" __global__ void __launch_bounds__(256) sum_of_all_cuda(
    const float* __restrict__ x,  // [n * 64]
    float* __restrict__ y,  // [1]
    float* __restrict__ y_sum_blocks,  // [maximum((n * 64 + 255) / 256, 1) * 256]
    int* __restrict__ y_arrived,  // [1]
    int64_t n) {
  float y_sum = 0.0f;
  {
    const int64_t crd_outer = blockIdx.x;  // crd of y, by 256, of (n * 64 + 255) / 256
    const int64_t crd_inner = threadIdx.x;  // crd of y, within 256, of 256
    const int64_t crd = crd_outer * 256 + crd_inner;
    const bool inside = crd < n * 64;
    if (inside) {
      y_sum += x[crd];
    }
  }
  {
    // y_sum: combined over threadIdx.x
    struct State {
      float y_sum;
    };
    const auto combine = [=](State left, State right) {
      return State{left.y_sum + right.y_sum};
    };
    const State state = sr::adjacent_reduce<256, 256>(State{y_sum}, int(threadIdx.x), combine);
    y_sum = state.y_sum;
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
      return ((int64_t(group) * blocks + block) * 256 + int(threadIdx.x)) + element;
    };
    y_sum_blocks[place(int(blockIdx.x), 0)] = y_sum;
    if (sr::last_to_arrive(y_arrived + group, blocks)) {
      State state = {y_sum_blocks[place(0, 0)]};
      for (int block = 1; block < blocks; ++block) {
        state = combine(state, State{y_sum_blocks[place(block, 0)]});
      }
      y_sum = state.y_sum;
      const int64_t tidx = threadIdx.x;  // y is stored once, of 256
      const bool inside = tidx == 0;
      if (inside) {
        y[0] = y_sum;
      }
    }
  }
}
