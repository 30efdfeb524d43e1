// q[c, i] · s[c, j] as [k, q, s]: the rows of each component are as many as two lengths multiplied.

extern "C" void outer_product(
    const float* __restrict__ q,  // [n]
    const int64_t* __restrict__ q_offsets,  // [k + 1]
    const float* __restrict__ s,  // [m]
    const int64_t* __restrict__ s_offsets,  // [k + 1]
    const int64_t* __restrict__ q_offsets_and_s_offsets,  // [k + 1]
    float* __restrict__ y,  // [y_size]
    int64_t k,
    int64_t m,
    int64_t n,
    int64_t y_size) {
#pragma omp parallel for schedule(dynamic, k / 64 + 1)
  for (int64_t c = 0; c < k; ++c) {  // c of y
    const int64_t r_extent = q_offsets[c + 1] - q_offsets[c];
    const int64_t r_extent2 = s_offsets[c + 1] - s_offsets[c];
    for (int64_t r = 0; r < r_extent; ++r) {  // r of y
      const int64_t i = q_offsets[c] + r;
      for (int64_t r2 = 0; r2 < r_extent2; ++r2) {  // r of y
        y[q_offsets_and_s_offsets[c] + r * r_extent2 + r2] = q[i] * s[s_offsets[c] + r2];
      }
    }
  }
}
