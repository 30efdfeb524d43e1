// x[c, r, d] · w[c, d] in one loop over all rows, each of which looks for its component.

extern "C" void scale_flat_(
    const float* __restrict__ x_,  // [n_ * 64]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    const float* __restrict__ w_,  // [k_ * 64]
    float* __restrict__ y_,  // [n_ * 64]
    int64_t k_,
    int64_t n_) {
  int64_t near1 = 0;
#pragma omp parallel for schedule(dynamic, n_ / 64 + 1) if (n_ * 64 + (k_ + 1) + k_ * 64 > 32768) firstprivate(near1)
  for (int64_t cr_ = 0; cr_ < n_; ++cr_) {  // c and r of y
    const int64_t c_ = sr::search_from(near1, offsets_, k_, cr_);
#pragma omp simd
    for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
      y_[cr_ * 64 + d_] = x_[cr_ * 64 + d_] * w_[c_ * 64 + d_];
    }
  }
}
