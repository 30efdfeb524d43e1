// The sum over components, position by position, of the rows that reach it: the gradient of what all share.

extern "C" void sum_over_components_(
    const float* __restrict__ x_,  // [n_ * 64]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    float* __restrict__ y_,  // [512]
    int64_t k_,
    int64_t n_) {
#pragma omp parallel for schedule(dynamic, 1) if ((k_ + 63) / 64 * 32768 > 32768)
  for (int64_t r_ = 0; r_ < 8; ++r_) {  // r of y
    alignas(64) double y_sum_[64];
#pragma omp simd
    for (int64_t s_ = 0; s_ < 64; ++s_) {  // states
      y_sum_[s_] = 0.0;
    }
    for (int64_t c_block_ = 0; c_block_ < (k_ + 63) / 64; ++c_block_) {  // c of y, blocks of 64
      alignas(64) float y_sum_part_[64];
#pragma omp simd
      for (int64_t s_ = 0; s_ < 64; ++s_) {  // states
        y_sum_part_[s_] = 0.0f;
      }
      for (int64_t c_step_ = 0; c_step_ < sr::min(k_ - c_block_ * 64, 64); ++c_step_) {  // c of y, within a block
        const int64_t c_ = c_block_ * 64 + c_step_;
        if (r_ < offsets_[c_ + 1] - offsets_[c_]) {
          const int64_t i_ = offsets_[c_] + r_;
#pragma omp simd
          for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
            y_sum_part_[d_] += x_[i_ * 64 + d_];
          }
        }
      }
#pragma omp simd
      for (int64_t d_ = 0; d_ < 64; ++d_) {  // partial results
        y_sum_[d_] += double(y_sum_part_[d_]);
      }
    }
#pragma omp simd
    for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
      y_[r_ * 64 + d_] = float(y_sum_[d_]);
    }
  }
}
