// The position of the greatest value of each row, −1 for an empty one.

extern "C" void argmax_by_component_(
    const float* __restrict__ x_,  // [n_]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    int64_t* __restrict__ y_,  // [k_]
    int64_t k_,
    int64_t n_) {
#pragma omp parallel for schedule(dynamic, k_ / 64 + 1) if (n_ + (k_ + 1) + k_ > 32768)
  for (int64_t c_ = 0; c_ < k_; ++c_) {  // c of y
    const int64_t r_extent_ = offsets_[c_ + 1] - offsets_[c_];
    float y_value_;
    int64_t y_position_;
    y_value_ = -INFINITY;
    y_position_ = -1;
    for (int64_t r_ = 0; r_ < r_extent_; ++r_) {  // r of y
      const float x_at_ = x_[offsets_[c_] + r_];
      const bool y_value_term_ = sr::isnan(x_at_);
      const bool y_value_term2_ = sr::isnan(y_value_);
      const bool y_value_term3_ = y_value_ < x_at_ || y_value_term_ && !y_value_term2_ || (y_value_ == x_at_ || y_value_term2_ && y_value_term_) && (r_ < y_position_ || y_position_ < 0);
      const int64_t y_position_next_ = y_value_term3_ ? r_ : y_position_;
      y_value_ = y_value_term3_ ? x_at_ : y_value_;
      y_position_ = y_position_next_;
    }
    y_[c_] = y_position_;
  }
}
