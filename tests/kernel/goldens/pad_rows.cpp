// Each row with one value before it and two after.

extern "C" void pad_rows_(
    const float* __restrict__ x_,  // [n_]
    const int64_t* __restrict__ offsets_,  // [k_ + 1]
    const int64_t* __restrict__ offsets_plus_3_,  // [k_ + 1]
    float* __restrict__ y_,  // [y_size_]
    int64_t k_,
    int64_t n_,
    int64_t y_size_) {
#pragma omp parallel for schedule(dynamic, k_ / 64 + 1) if (n_ + (k_ + 1) + y_size_ > 32768)
  for (int64_t c_ = 0; c_ < k_; ++c_) {  // c of y
    const int64_t r_extent_ = offsets_[c_ + 1] - offsets_[c_] + 3;
    for (int64_t r_ = 0; r_ < r_extent_; ++r_) {  // r of y
      y_[offsets_plus_3_[c_] + r_] = 1 <= r_ && r_ - 1 < offsets_[c_ + 1] - offsets_[c_] ? x_[offsets_[c_] + r_ - 1] : -1.0f;
    }
  }
}
