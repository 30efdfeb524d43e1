// x[c, r, d] · w[c, d] in tiles of 4 rows, a block each.
// Launched as ((n + k * 3) / 4, 1, 1) blocks of (64, 4, 1) threads.

extern "C" __global__ void __launch_bounds__(256) scale_by_tile_cuda_(
    const float* __restrict__ x_,  // [n_ * 64]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    const float* __restrict__ w_,  // [k_ * 64]
    const int64_t* __restrict__ offsets_by_4_,  // [k_ + 1]
    float* __restrict__ y_,  // [n_ * 64]
    int64_t k_,
    int64_t n_) {
  const int64_t cr_outer_ = blockIdx.x;  // c and r_outer of y, of (n_ + k_ * 3) / 4
  if (cr_outer_ < offsets_by_4_[k_]) {
    const int64_t c_ = sr::search(offsets_by_4_, k_, cr_outer_);
    const int64_t r_outer_ = cr_outer_ - offsets_by_4_[c_];
    const int64_t r_inner_ = threadIdx.y;  // r of y, within 4, of 4
    const int64_t r_ = r_outer_ * 4 + r_inner_;
    if (r_ < offsets_[c_ + 1] - offsets_[c_]) {
      const int64_t i_ = offsets_[c_] + r_;
      const int64_t d_ = threadIdx.x;  // d of y, of 64
      y_[i_ * 64 + d_] = x_[i_ * 64 + d_] * w_[c_ * 64 + d_];
    }
  }
}
