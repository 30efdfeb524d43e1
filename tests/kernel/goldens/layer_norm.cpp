// Layer norm over features, all rows as one axis.

extern "C" void layer_norm_(
    const float* __restrict__ x_,  // [n_ * 64]
    const float* __restrict__ w_,  // [64]
    const float* __restrict__ b_,  // [64]
    float* __restrict__ y_,  // [n_ * 64]
    int64_t n_) {
#pragma omp parallel for schedule(dynamic, n_ / 64 + 1) if (n_ * 64 + 64 > 32768)
  for (int64_t cr_ = 0; cr_ < n_; ++cr_) {  // c and r of y
    alignas(64) float t3_mean_[8];
    alignas(64) int64_t t3_count_[8];
#pragma omp simd
    for (int64_t s_ = 0; s_ < 8; ++s_) {  // states
      t3_mean_[s_] = 0.0f;
      t3_count_[s_] = 0;
    }
    alignas(64) float t5_var_[8];
    alignas(64) float t5_mean_[8];
    alignas(64) int64_t t5_count_[8];
#pragma omp simd
    for (int64_t s_ = 0; s_ < 8; ++s_) {  // states
      t5_var_[s_] = 0.0f;
      t5_mean_[s_] = 0.0f;
      t5_count_[s_] = 0;
    }
    for (int64_t d_outer_ = 0; d_outer_ < 8; ++d_outer_) {  // d of y, by 8
#pragma omp simd
      for (int64_t d_inner_ = 0; d_inner_ < 8; ++d_inner_) {  // d of y, within 8
        const float x_at_ = x_[cr_ * 64 + (d_outer_ * 8 + d_inner_)];
        const int64_t t3_count_next_ = t3_count_[d_inner_] + 1;
        t3_mean_[d_inner_] += x_at_;
        t3_count_[d_inner_] = t3_count_next_;
        const float t5_var_term_ = x_at_ - t5_mean_[d_inner_];
        const int64_t t5_var_term2_ = t5_count_[d_inner_] + 1;
        const float t5_var_term3_ = t5_mean_[d_inner_] + t5_var_term_ / float(t5_var_term2_);
        t5_var_[d_inner_] += t5_var_term_ * (x_at_ - t5_var_term3_);
        t5_mean_[d_inner_] = t5_var_term3_;
        t5_count_[d_inner_] = t5_var_term2_;
      }
    }
#pragma omp simd
    for (int64_t s_ = 0; s_ < 4; ++s_) {  // partial results
      const int64_t t3_count_next_ = t3_count_[s_] + t3_count_[s_ + 4];
      t3_mean_[s_] += t3_mean_[s_ + 4];
      t3_count_[s_] = t3_count_next_;
    }
#pragma omp simd
    for (int64_t s_ = 0; s_ < 2; ++s_) {  // partial results
      const int64_t t3_count_next_ = t3_count_[s_] + t3_count_[s_ + 2];
      t3_mean_[s_] += t3_mean_[s_ + 2];
      t3_count_[s_] = t3_count_next_;
    }
    const int64_t t3_count_next_ = t3_count_[0] + t3_count_[1];
    t3_mean_[0] += t3_mean_[1];
    t3_count_[0] = t3_count_next_;
    t3_mean_[0] /= float(t3_count_[0]);
#pragma omp simd
    for (int64_t s_ = 0; s_ < 4; ++s_) {  // partial results
      const bool t5_var_term_ = t5_count_[s_] == 0;
      const bool t5_var_term2_ = t5_count_[s_ + 4] == 0;
      const float t5_var_term3_ = t5_mean_[s_ + 4] - t5_mean_[s_];
      const int64_t t5_var_term4_ = t5_count_[s_] + t5_count_[s_ + 4];
      const float t5_var_term5_ = float(t5_count_[s_ + 4]) / float(t5_var_term4_);
      const float t5_mean_next_ = t5_var_term_ ? t5_mean_[s_ + 4] : t5_var_term2_ ? t5_mean_[s_] : t5_mean_[s_] + t5_var_term3_ * t5_var_term5_;
      t5_var_[s_] = t5_var_term_ ? t5_var_[s_ + 4] : t5_var_term2_ ? t5_var_[s_] : t5_var_[s_] + t5_var_[s_ + 4] + t5_var_term3_ * t5_var_term3_ * (float(t5_count_[s_]) * t5_var_term5_);
      t5_mean_[s_] = t5_mean_next_;
      t5_count_[s_] = t5_var_term4_;
    }
#pragma omp simd
    for (int64_t s_ = 0; s_ < 2; ++s_) {  // partial results
      const bool t5_var_term_ = t5_count_[s_] == 0;
      const bool t5_var_term2_ = t5_count_[s_ + 2] == 0;
      const float t5_var_term3_ = t5_mean_[s_ + 2] - t5_mean_[s_];
      const int64_t t5_var_term4_ = t5_count_[s_] + t5_count_[s_ + 2];
      const float t5_var_term5_ = float(t5_count_[s_ + 2]) / float(t5_var_term4_);
      const float t5_mean_next_ = t5_var_term_ ? t5_mean_[s_ + 2] : t5_var_term2_ ? t5_mean_[s_] : t5_mean_[s_] + t5_var_term3_ * t5_var_term5_;
      t5_var_[s_] = t5_var_term_ ? t5_var_[s_ + 2] : t5_var_term2_ ? t5_var_[s_] : t5_var_[s_] + t5_var_[s_ + 2] + t5_var_term3_ * t5_var_term3_ * (float(t5_count_[s_]) * t5_var_term5_);
      t5_mean_[s_] = t5_mean_next_;
      t5_count_[s_] = t5_var_term4_;
    }
    const bool t5_var_term_ = t5_count_[0] == 0;
    const bool t5_var_term2_ = t5_count_[1] == 0;
    const float t5_var_term3_ = t5_mean_[1] - t5_mean_[0];
    const int64_t t5_var_term4_ = t5_count_[0] + t5_count_[1];
    const float t5_var_term5_ = float(t5_count_[1]) / float(t5_var_term4_);
    const float t5_mean_next_ = t5_var_term_ ? t5_mean_[1] : t5_var_term2_ ? t5_mean_[0] : t5_mean_[0] + t5_var_term3_ * t5_var_term5_;
    t5_var_[0] = t5_var_term_ ? t5_var_[1] : t5_var_term2_ ? t5_var_[0] : t5_var_[0] + t5_var_[1] + t5_var_term3_ * t5_var_term3_ * (float(t5_count_[0]) * t5_var_term5_);
    t5_mean_[0] = t5_mean_next_;
    t5_count_[0] = t5_var_term4_;
    t5_var_[0] /= float(t5_count_[0]);
    float t7_kept_ = 1.0f / sqrtf(t5_var_[0] + 1e-05f);
    for (int64_t d_outer_ = 0; d_outer_ < 8; ++d_outer_) {  // d of y, by 8
#pragma omp simd
      for (int64_t d_inner_ = 0; d_inner_ < 8; ++d_inner_) {  // d of y, within 8
        const int64_t d_ = d_outer_ * 8 + d_inner_;
        y_[cr_ * 64 + d_] = (x_[cr_ * 64 + d_] - t3_mean_[0]) * t7_kept_ * w_[d_] + b_[d_];
      }
    }
  }
}
