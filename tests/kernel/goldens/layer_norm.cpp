// Layer norm over features, all rows as one axis.

extern "C" void layer_norm(
    const float* __restrict__ x,  // [n * 64]
    const float* __restrict__ w,  // [64]
    const float* __restrict__ b,  // [64]
    float* __restrict__ y,  // [n * 64]
    int64_t n) {
#pragma omp parallel for schedule(dynamic, n / 64 + 1)
  for (int64_t cr = 0; cr < n; ++cr) {  // c and r of y
    alignas(64) float t3_mean[8];
    alignas(64) int64_t t3_count[8];
#pragma omp simd
    for (int64_t s = 0; s < 8; ++s) {  // states
      t3_mean[s] = 0.0f;
      t3_count[s] = 0;
    }
    alignas(64) float t5_var[8];
    alignas(64) float t5_mean[8];
    alignas(64) int64_t t5_count[8];
#pragma omp simd
    for (int64_t s = 0; s < 8; ++s) {  // states
      t5_var[s] = 0.0f;
      t5_mean[s] = 0.0f;
      t5_count[s] = 0;
    }
    for (int64_t d_outer = 0; d_outer < 8; ++d_outer) {  // d of y, by 8
#pragma omp simd
      for (int64_t d_inner = 0; d_inner < 8; ++d_inner) {  // d of y, within 8
        const float x_at = x[cr * 64 + (d_outer * 8 + d_inner)];
        const int64_t t3_count_next = t3_count[d_inner] + 1;
        t3_mean[d_inner] += x_at;
        t3_count[d_inner] = t3_count_next;
        const float t5_var_term = x_at - t5_mean[d_inner];
        const int64_t t5_var_term2 = t5_count[d_inner] + 1;
        const float t5_var_term3 = t5_mean[d_inner] + t5_var_term / float(t5_var_term2);
        t5_var[d_inner] += t5_var_term * (x_at - t5_var_term3);
        t5_mean[d_inner] = t5_var_term3;
        t5_count[d_inner] = t5_var_term2;
      }
    }
#pragma omp simd
    for (int64_t s = 0; s < 4; ++s) {  // partial results
      const int64_t t3_count_next = t3_count[s] + t3_count[s + 4];
      t3_mean[s] += t3_mean[s + 4];
      t3_count[s] = t3_count_next;
    }
#pragma omp simd
    for (int64_t s = 0; s < 2; ++s) {  // partial results
      const int64_t t3_count_next = t3_count[s] + t3_count[s + 2];
      t3_mean[s] += t3_mean[s + 2];
      t3_count[s] = t3_count_next;
    }
    const int64_t t3_count_next = t3_count[0] + t3_count[1];
    t3_mean[0] += t3_mean[1];
    t3_count[0] = t3_count_next;
    t3_mean[0] /= float(t3_count[0]);
#pragma omp simd
    for (int64_t s = 0; s < 4; ++s) {  // partial results
      const bool t5_var_term = t5_count[s] == 0;
      const bool t5_var_term2 = t5_count[s + 4] == 0;
      const float t5_var_term3 = t5_mean[s + 4] - t5_mean[s];
      const int64_t t5_var_term4 = t5_count[s] + t5_count[s + 4];
      const float t5_var_term5 = float(t5_count[s + 4]) / float(t5_var_term4);
      const float t5_mean_next = t5_var_term ? t5_mean[s + 4] : t5_var_term2 ? t5_mean[s] : t5_mean[s] + t5_var_term3 * t5_var_term5;
      t5_var[s] = t5_var_term ? t5_var[s + 4] : t5_var_term2 ? t5_var[s] : t5_var[s] + t5_var[s + 4] + t5_var_term3 * t5_var_term3 * (float(t5_count[s]) * t5_var_term5);
      t5_mean[s] = t5_mean_next;
      t5_count[s] = t5_var_term4;
    }
#pragma omp simd
    for (int64_t s = 0; s < 2; ++s) {  // partial results
      const bool t5_var_term = t5_count[s] == 0;
      const bool t5_var_term2 = t5_count[s + 2] == 0;
      const float t5_var_term3 = t5_mean[s + 2] - t5_mean[s];
      const int64_t t5_var_term4 = t5_count[s] + t5_count[s + 2];
      const float t5_var_term5 = float(t5_count[s + 2]) / float(t5_var_term4);
      const float t5_mean_next = t5_var_term ? t5_mean[s + 2] : t5_var_term2 ? t5_mean[s] : t5_mean[s] + t5_var_term3 * t5_var_term5;
      t5_var[s] = t5_var_term ? t5_var[s + 2] : t5_var_term2 ? t5_var[s] : t5_var[s] + t5_var[s + 2] + t5_var_term3 * t5_var_term3 * (float(t5_count[s]) * t5_var_term5);
      t5_mean[s] = t5_mean_next;
      t5_count[s] = t5_var_term4;
    }
    const bool t5_var_term = t5_count[0] == 0;
    const bool t5_var_term2 = t5_count[1] == 0;
    const float t5_var_term3 = t5_mean[1] - t5_mean[0];
    const int64_t t5_var_term4 = t5_count[0] + t5_count[1];
    const float t5_var_term5 = float(t5_count[1]) / float(t5_var_term4);
    const float t5_mean_next = t5_var_term ? t5_mean[1] : t5_var_term2 ? t5_mean[0] : t5_mean[0] + t5_var_term3 * t5_var_term5;
    t5_var[0] = t5_var_term ? t5_var[1] : t5_var_term2 ? t5_var[0] : t5_var[0] + t5_var[1] + t5_var_term3 * t5_var_term3 * (float(t5_count[0]) * t5_var_term5);
    t5_mean[0] = t5_mean_next;
    t5_count[0] = t5_var_term4;
    t5_var[0] /= float(t5_count[0]);
    float t7_kept = 1.0f / sqrtf(t5_var[0] + 1e-05f);
    for (int64_t d_outer = 0; d_outer < 8; ++d_outer) {  // d of y, by 8
#pragma omp simd
      for (int64_t d_inner = 0; d_inner < 8; ++d_inner) {  // d of y, within 8
        const int64_t d = d_outer * 8 + d_inner;
        y[cr * 64 + d] = (x[cr * 64 + d] - t3_mean[0]) * t7_kept * w[d] + b[d];
      }
    }
  }
}
