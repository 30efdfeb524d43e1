// The sum over both ragged axes of [k, r, s], where s depends on r.

extern "C" void sum_of_two_levels_(
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    const int64_t* __restrict__ inner_offsets_,  // [n_ + 1]
    const float* __restrict__ x_,  // [m_]
    float* __restrict__ y_,  // [k_]
    int64_t k_,
    int64_t m_,
    int64_t n_) {
#pragma omp parallel for schedule(dynamic, k_ / 64 + 1) if (k_ + 1 + (n_ + 1) + m_ + k_ > 32768)
  for (int64_t c_ = 0; c_ < k_; ++c_) {  // c of y
    const int64_t r_extent_ = offsets_[c_ + 1] - offsets_[c_];
    double y_sum_ = 0.0;
    for (int64_t r_ = 0; r_ < r_extent_; ++r_) {  // r of y
      const int64_t cr_ = offsets_[c_] + r_;
      const int64_t s_extent_ = inner_offsets_[cr_ + 1] - inner_offsets_[cr_];
      for (int64_t s_block_ = 0; s_block_ < (s_extent_ + 63) / 64; ++s_block_) {  // s of y, blocks of 64
        float y_sum_part_ = 0.0f;
        for (int64_t s_step_ = 0; s_step_ < sr::min(s_extent_ - s_block_ * 64, 64); ++s_step_) {  // s of y, within a block
          y_sum_part_ += x_[inner_offsets_[cr_] + (s_block_ * 64 + s_step_)];
        }
        y_sum_ += double(y_sum_part_);
      }
    }
    y_[c_] = float(y_sum_);
  }
}
