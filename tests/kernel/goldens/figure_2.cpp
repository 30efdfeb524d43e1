// Three indivisible splits of an axis of 15, which need two conditions.

extern "C" void figure_2_(
    const float* __restrict__ x_,  // [15]
    float* __restrict__ y_) {  // [15]
#pragma GCC unroll 1
  for (int64_t i_outer_outer_ = 0; i_outer_outer_ < 2; ++i_outer_outer_) {  // i_outer of y, by 2
#pragma GCC unroll 1
    for (int64_t i_outer_inner_ = 0; i_outer_inner_ < 2; ++i_outer_inner_) {  // i_outer of y, within 2
      const int64_t i_outer_ = i_outer_outer_ * 2 + i_outer_inner_;
#pragma GCC unroll 1
      for (int64_t i_inner_outer_ = 0; i_inner_outer_ < 2; ++i_inner_outer_) {  // i_inner of y, by 4
#pragma GCC unroll 1
        for (int64_t i_inner_inner_ = 0; i_inner_inner_ < 4; ++i_inner_inner_) {  // i_inner of y, within 4
          const int64_t i_inner_ = i_inner_outer_ * 4 + i_inner_inner_;
          if (i_inner_ < 6) {
            const int64_t i_ = i_outer_ * 6 + i_inner_;
            if (i_ < 15) {
              y_[i_] = x_[i_];
            }
          }
        }
      }
    }
  }
}
