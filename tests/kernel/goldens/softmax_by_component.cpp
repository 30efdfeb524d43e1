// Softmax over the rows of each component; exponentials are kept in scratch memory between phases.

extern "C" void softmax_by_component_(
    const float* __restrict__ x_,  // [n_ * 64]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    float* __restrict__ y_,  // [n_ * 64]
    int64_t k_,
    int64_t n_) {
#pragma omp parallel for schedule(dynamic, k_ / 64 + 1) if (n_ * 64 + (k_ + 1) > 32768)
  for (int64_t c_ = 0; c_ < k_; ++c_) {  // c of y
    const int64_t r_extent_ = offsets_[c_ + 1] - offsets_[c_];
    alignas(64) float t3_max_[64];
#pragma omp simd
    for (int64_t s_ = 0; s_ < 64; ++s_) {  // states
      t3_max_[s_] = -INFINITY;
    }
    for (int64_t r_ = 0; r_ < r_extent_; ++r_) {  // r of y
      const int64_t i_ = offsets_[c_] + r_;
#pragma omp simd
      for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
        t3_max_[d_] = sr::max(t3_max_[d_], x_[i_ * 64 + d_]);
      }
    }
    float* const t5_kept_ = sr::scratch<float, 1>(r_extent_ * 64);
    if (t5_kept_ == nullptr) continue;
    alignas(64) double t6_sum_[64];
#pragma omp simd
    for (int64_t s_ = 0; s_ < 64; ++s_) {  // states
      t6_sum_[s_] = 0.0;
    }
    for (int64_t r_block_ = 0; r_block_ < (r_extent_ + 63) / 64; ++r_block_) {  // r of y, blocks of 64
      alignas(64) float t6_sum_part_[64];
#pragma omp simd
      for (int64_t s_ = 0; s_ < 64; ++s_) {  // states
        t6_sum_part_[s_] = 0.0f;
      }
      for (int64_t r_step_ = 0; r_step_ < sr::min(r_extent_ - r_block_ * 64, 64); ++r_step_) {  // r of y, within a block
        const int64_t r_ = r_block_ * 64 + r_step_;
        const int64_t i_ = offsets_[c_] + r_;
#pragma omp simd
        for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
          const float t5_at_ = sr::exp(x_[i_ * 64 + d_] - t3_max_[d_]);
          t5_kept_[r_ * 64 + d_] = t5_at_;
          t6_sum_part_[d_] += t5_at_;
        }
      }
#pragma omp simd
      for (int64_t d_ = 0; d_ < 64; ++d_) {  // partial results
        t6_sum_[d_] += double(t6_sum_part_[d_]);
      }
    }
    alignas(64) float t7_kept_[64];
#pragma omp simd
    for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
      t7_kept_[d_] = 1.0f / float(t6_sum_[d_]);
    }
    for (int64_t r_ = 0; r_ < r_extent_; ++r_) {  // r of y
      const int64_t i_ = offsets_[c_] + r_;
#pragma omp simd
      for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
        y_[i_ * 64 + d_] = t5_kept_[r_ * 64 + d_] * t7_kept_[d_];
      }
    }
  }
}
