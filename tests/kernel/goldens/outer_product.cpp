// q[c, i] · s[c, j] as [k, q, s]: the rows of each component are as many as two lengths multiplied.

extern "C" void outer_product_(
    const float* __restrict__ q_,  // [n_]
    const int64_t* __restrict__ q_offsets_,  // [k_ + 1]
    const float* __restrict__ s_,  // [m_]
    const int64_t* __restrict__ s_offsets_,  // [k_ + 1]
    const int64_t* __restrict__ q_offsets_and_s_offsets_,  // [k_ + 1]
    float* __restrict__ y_,  // [y_size_]
    int64_t k_,
    int64_t m_,
    int64_t n_,
    int64_t y_size_) {
#pragma omp parallel for schedule(dynamic, k_ / 64 + 1) if (n_ + (k_ + 1) + m_ + y_size_ > 32768)
  for (int64_t c_ = 0; c_ < k_; ++c_) {  // c of y
    const int64_t r_extent_ = q_offsets_[c_ + 1] - q_offsets_[c_];
    const int64_t r_extent2_ = s_offsets_[c_ + 1] - s_offsets_[c_];
    for (int64_t r_ = 0; r_ < r_extent_; ++r_) {  // r of y
      const int64_t i_ = q_offsets_[c_] + r_;
      for (int64_t r2_ = 0; r2_ < r_extent2_; ++r2_) {  // r of y
        y_[q_offsets_and_s_offsets_[c_] + r_ * r_extent2_ + r2_] = q_[i_] * s_[s_offsets_[c_] + r2_];
      }
    }
  }
}
