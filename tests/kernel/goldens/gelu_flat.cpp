// gelu(x) · x + 1 of [k, r, 64], all values as one axis: threads and lanes.

extern "C" void gelu_flat_(
    const float* __restrict__ x_,  // [n_ * 64]
    float* __restrict__ y_,  // [n_ * 64]
    int64_t n_) {
#pragma omp parallel for schedule(dynamic, n_ / 64 + 1) if (n_ * 64 > 32768)
  for (int64_t crd_outer_ = 0; crd_outer_ < n_; ++crd_outer_) {  // crd of y, by 64
#pragma omp simd
    for (int64_t crd_inner_ = 0; crd_inner_ < 64; ++crd_inner_) {  // crd of y, within 64
      const int64_t crd_ = crd_outer_ * 64 + crd_inner_;
      const float x_at_ = x_[crd_];
      y_[crd_] = 0.5f * x_at_ * (1.0f + sr::erf(x_at_ * 0.70710677f)) * x_at_ + 1.0f;
    }
  }
}
