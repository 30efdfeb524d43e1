// x[c, r, d] · w[c, d] in tiles of 4 rows, none of which has rows of two components.

extern "C" void scale_by_tile(
    const float* __restrict__ x,  // [n * 64]
    const int64_t* __restrict__ offsets,  // [k + 1]
    const float* __restrict__ w,  // [k * 64]
    const int64_t* __restrict__ offsets_by_4,  // [k + 1]
    float* __restrict__ y,  // [n * 64]
    int64_t k,
    int64_t n) {
#pragma omp parallel for schedule(dynamic, offsets_by_4[k] / 64 + 1)
  for (int64_t cr_outer = 0; cr_outer < offsets_by_4[k]; ++cr_outer) {  // c and r_outer of y
    const int64_t c = sr::search(offsets_by_4, k, cr_outer);
    const int64_t r_outer = cr_outer - offsets_by_4[c];
    for (int64_t r_inner = 0; r_inner < 4; ++r_inner) {  // r of y, within 4
      const int64_t r = r_outer * 4 + r_inner;
      if (r < offsets[c + 1] - offsets[c]) {
        const int64_t cr = offsets[c] + r;
#pragma omp simd
        for (int64_t d = 0; d < 64; ++d) {  // d of y
          y[cr * 64 + d] = x[cr * 64 + d] * w[c * 64 + d];
        }
      }
    }
  }
}
