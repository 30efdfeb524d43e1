// x[c, r, d] · w[c, d] in one loop over all rows, each of which looks for its component.

extern "C" void scale_flat(
    const float* __restrict__ x,  // [n * 64]
    const int64_t* __restrict__ offsets,  // [k + 1]
    const float* __restrict__ w,  // [k * 64]
    float* __restrict__ y,  // [n * 64]
    int64_t k,
    int64_t n) {
#pragma omp parallel for schedule(dynamic, n / 64 + 1)
  for (int64_t cr = 0; cr < n; ++cr) {  // c and r of y
    const int64_t c = sr::search(offsets, k, cr);
#pragma omp simd
    for (int64_t d = 0; d < 64; ++d) {  // d of y
      y[cr * 64 + d] = x[cr * 64 + d] * w[c * 64 + d];
    }
  }
}
