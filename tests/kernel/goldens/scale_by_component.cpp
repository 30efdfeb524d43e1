// x[c, r, d] · w[c, d], a loop over components around one over the rows of each.

extern "C" void scale_by_component(
    const float* __restrict__ x,  // [n * 64]
    const int64_t* __restrict__ offsets,  // [k + 1]
    const float* __restrict__ w,  // [k * 64]
    float* __restrict__ y,  // [n * 64]
    int64_t k,
    int64_t n) {
#pragma omp parallel for schedule(dynamic, k / 64 + 1)
  for (int64_t c = 0; c < k; ++c) {  // c of y
    const int64_t r_extent = offsets[c + 1] - offsets[c];
    for (int64_t r = 0; r < r_extent; ++r) {  // r of y
      const int64_t i = offsets[c] + r;
#pragma omp simd
      for (int64_t d = 0; d < 64; ++d) {  // d of y
        y[i * 64 + d] = x[i * 64 + d] * w[c * 64 + d];
      }
    }
  }
}
