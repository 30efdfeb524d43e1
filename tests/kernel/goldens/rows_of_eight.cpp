// exp of [6, 6] laid out as [6, 2, 4]: two holes in each row, filled with 0.

extern "C" void rows_of_eight_(
    const float* __restrict__ x_,  // [36]
    float* __restrict__ y_) {  // [48]
  for (int64_t i_ = 0; i_ < 6; ++i_) {  // i of y
    for (int64_t d_ = 0; d_ < 6; ++d_) {  // d of y
      y_[(i_ * 2 + d_ / 4) * 4 + d_ % 4] = sr::exp(x_[i_ * 6 + d_]);
    }
  }
  for (int64_t i_ = 0; i_ < 6; ++i_) {  // i of y
    for (int64_t d_outer_ = 0; d_outer_ < 2; ++d_outer_) {  // d of y, by 4
      for (int64_t d_inner_ = 0; d_inner_ < 4; ++d_inner_) {  // d of y, within 4
        if (6 <= d_outer_ * 4 + d_inner_) {
          y_[(i_ * 2 + d_outer_) * 4 + d_inner_] = 0.0f;
        }
      }
    }
  }
}
