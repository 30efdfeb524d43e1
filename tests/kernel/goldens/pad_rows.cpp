// Each row with one value before it and two after.

extern "C" void pad_rows(
    const float* __restrict__ x,  // [n]
    const int64_t* __restrict__ offsets,  // [k + 1]
    const int64_t* __restrict__ offsets_plus_3,  // [k + 1]
    float* __restrict__ y,  // [y_size]
    int64_t k,
    int64_t n,
    int64_t y_size) {
#pragma omp parallel for schedule(dynamic, k / 64 + 1)
  for (int64_t c = 0; c < k; ++c) {  // c of y
    const int64_t r_extent = offsets[c + 1] - offsets[c] + 3;
    for (int64_t r = 0; r < r_extent; ++r) {  // r of y
      y[offsets_plus_3[c] + r] = 0 <= r - 1 && r - 1 < offsets[c + 1] - offsets[c] ? x[offsets[c] + r - 1] : -1.0f;
    }
  }
}
