// x[c, r, d] · w[c, d], a loop over components around one over the rows of each.

extern "C" void scale_by_component_(
    const float* __restrict__ x_,  // [n_ * 64]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    const float* __restrict__ w_,  // [k_ * 64]
    float* __restrict__ y_,  // [n_ * 64]
    int64_t k_,
    int64_t n_) {
#pragma omp parallel for schedule(dynamic, k_ / 64 + 1) if (n_ * 64 + (k_ + 1) + k_ * 64 > 32768)
  for (int64_t c_ = 0; c_ < k_; ++c_) {  // c of y
    const int64_t r_extent_ = offsets_[c_ + 1] - offsets_[c_];
    for (int64_t r_ = 0; r_ < r_extent_; ++r_) {  // r of y
      const int64_t i_ = offsets_[c_] + r_;
#pragma omp simd
      for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
        y_[i_ * 64 + d_] = x_[i_ * 64 + d_] * w_[c_ * 64 + d_];
      }
    }
  }
}
