// x[c, r, d] · w[c, d] in tiles of 4 rows, none of which has rows of two components.

extern "C" void scale_by_tile_(
    const float* __restrict__ x_,  // [n_ * 64]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    const float* __restrict__ w_,  // [k_ * 64]
    const int64_t* __restrict__ offsets_by_4_,  // [k_ + 1]
    float* __restrict__ y_,  // [n_ * 64]
    int64_t k_,
    int64_t n_) {
  int64_t near1 = 0;
#pragma omp parallel for schedule(dynamic, offsets_by_4_[k_] / 64 + 1) if (n_ * 64 + (k_ + 1) + k_ * 64 > 32768) firstprivate(near1)
  for (int64_t cr_outer_ = 0; cr_outer_ < offsets_by_4_[k_]; ++cr_outer_) {  // c and r_outer of y
    const int64_t c_ = sr::search_from(near1, offsets_by_4_, k_, cr_outer_);
    const int64_t r_outer_ = cr_outer_ - offsets_by_4_[c_];
    const int64_t r_inner_extent_ = sr::min(offsets_[c_ + 1] - offsets_[c_] - r_outer_ * 4, 4);
    for (int64_t r_inner_ = 0; r_inner_ < r_inner_extent_; ++r_inner_) {  // r of y, within 4
      const int64_t i_ = offsets_[c_] + (r_outer_ * 4 + r_inner_);
#pragma omp simd
      for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
        y_[i_ * 64 + d_] = x_[i_ * 64 + d_] * w_[c_ * 64 + d_];
      }
    }
  }
}
