// gelu(x) · x + 1 of [k, r, 64], all values as one axis: blocks of 256 threads, four values each.
// Launched as (((n * 64 + 3) / 4 + 255) / 256, 1, 1) blocks of (256, 1, 1) threads.

extern "C" __global__ void __launch_bounds__(256) gelu_flat_cuda_(
    const float* __restrict__ x_,  // [n_ * 64]
    float* __restrict__ y_,  // [n_ * 64]
    int64_t n_) {
  const int64_t crd_outer_outer_ = blockIdx.x;  // crd_outer of y, by 256, of (n_ * 16 + 255) / 256
  const int64_t crd_outer_inner_ = threadIdx.x;  // crd_outer of y, within 256, of 256
  const int64_t crd_outer_ = crd_outer_outer_ * 256 + crd_outer_inner_;
  if (crd_outer_ < n_ * 16) {
    float x_lanes_[4];
    sr::load<4>(x_lanes_, x_ + crd_outer_ * 4);  // crd of y, within 4
    float y_lanes_[4];
#pragma unroll
    for (int64_t crd_inner_ = 0; crd_inner_ < 4; ++crd_inner_) {  // crd of y, within 4
      const float x_at_ = x_lanes_[crd_inner_];
      y_lanes_[crd_inner_] = 0.5f * x_at_ * (1.0f + erff(x_at_ * 0.70710677f)) * x_at_ + 1.0f;
    }
    sr::store<4>(y_ + crd_outer_ * 4, y_lanes_);  // crd of y, within 4
  }
}
