// gelu(x) · x + 1 of [k, r, 64], all values as one axis: threads and lanes.

extern "C" void gelu_flat(
    const float* __restrict__ x,  // [n * 64]
    float* __restrict__ y,  // [n * 64]
    int64_t n) {
#pragma omp parallel for schedule(dynamic, n / 64 + 1)
  for (int64_t crd_outer = 0; crd_outer < n; ++crd_outer) {  // crd of y, by 64
#pragma omp simd
    for (int64_t crd_inner = 0; crd_inner < 64; ++crd_inner) {  // crd of y, within 64
      const int64_t crd = crd_outer * 64 + crd_inner;
      const float x_at = x[crd];
      y[crd] = 0.5f * x_at * (1.0f + erff(x_at * 0.70710677f)) * x_at + 1.0f;
    }
  }
}
