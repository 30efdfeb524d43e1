// table[ids[c, r]]: an embedding of ragged ids, all of them as one axis.

extern "C" void gather_rows_(
    const float* __restrict__ table_,  // [entries_ * 64]
    const int64_t* __restrict__ ids_,  // [n_]
    float* __restrict__ y_,  // [n_ * 64]
    int64_t* __restrict__ faults_,  // [1]
    int64_t entries_,
    int64_t n_) {
#pragma omp parallel for schedule(dynamic, n_ / 64 + 1) if (entries_ * 64 + n_ + n_ * 64 + 1 > 32768)
  for (int64_t cr_ = 0; cr_ < n_; ++cr_) {  // c and r of y
    if (!(0 <= ids_[cr_] && ids_[cr_] < entries_)) faults_[0] = 1;
    if (0 <= ids_[cr_] && ids_[cr_] < entries_) {
#pragma omp simd
      for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
        y_[cr_ * 64 + d_] = table_[ids_[cr_] * 64 + d_];
      }
    }
    if (!(0 <= ids_[cr_] && ids_[cr_] < entries_)) {
#pragma omp simd
      for (int64_t d_ = 0; d_ < 64; ++d_) {  // d of y
        y_[cr_ * 64 + d_] = 0.0f;
      }
    }
  }
}
