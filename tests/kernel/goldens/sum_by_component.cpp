// The sum over the rows of each component: threads over components, lanes over features.

extern "C" void sum_by_component_(
    const float* __restrict__ x_,  // [n_ * 64]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    float* __restrict__ y_,  // [k_ * 64]
    int64_t k_,
    int64_t n_) {
#pragma omp parallel for schedule(dynamic, k_ / 64 + 1) if (n_ * 64 + (k_ + 1) + k_ * 64 > 32768)
  for (int64_t c_ = 0; c_ < k_; ++c_) {  // c of y
    const int64_t r_extent_ = offsets_[c_ + 1] - offsets_[c_];
    alignas(64) double y_sum_[64];
#pragma omp simd
    for (int64_t s_ = 0; s_ < 64; ++s_) {  // states
      y_sum_[s_] = 0.0;
    }
    for (int64_t r_block_ = 0; r_block_ < (r_extent_ + 63) / 64; ++r_block_) {  // r of y, blocks of 64
      alignas(64) float y_sum_part_[64];
#pragma omp simd
      for (int64_t s_ = 0; s_ < 64; ++s_) {  // states
        y_sum_part_[s_] = 0.0f;
      }
      for (int64_t r_step_ = 0; r_step_ < sr::min(r_extent_ - r_block_ * 64, 64); ++r_step_) {  // r of y, within a block
        const int64_t i_ = offsets_[c_] + (r_block_ * 64 + r_step_);
#pragma omp simd
        for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
          y_sum_part_[d_] += x_[i_ * 64 + d_];
        }
      }
#pragma omp simd
      for (int64_t d_ = 0; d_ < 64; ++d_) {  // partial results
        y_sum_[d_] += double(y_sum_part_[d_]);
      }
    }
#pragma omp simd
    for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
      y_[c_ * 64 + d_] = float(y_sum_[d_]);
    }
  }
}
