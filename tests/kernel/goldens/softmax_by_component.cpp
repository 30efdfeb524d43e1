// Softmax over the rows of each component; exponentials are kept in scratch memory between phases.

extern "C" void softmax_by_component(
    const float* __restrict__ x,  // [n * 64]
    const int64_t* __restrict__ offsets,  // [k + 1]
    float* __restrict__ y,  // [n * 64]
    int64_t k,
    int64_t n) {
#pragma omp parallel for schedule(dynamic, k / 64 + 1)
  for (int64_t c = 0; c < k; ++c) {  // c of y
    const int64_t r_extent = offsets[c + 1] - offsets[c];
    alignas(64) float t3_max[64];
#pragma omp simd
    for (int64_t s = 0; s < 64; ++s) {  // states
      t3_max[s] = -INFINITY;
    }
    for (int64_t r = 0; r < r_extent; ++r) {  // r of y
      const int64_t i = offsets[c] + r;
#pragma omp simd
      for (int64_t d = 0; d < 64; ++d) {  // d of y
        t3_max[d] = sr::max(t3_max[d], x[i * 64 + d]);
      }
    }
    float* const t5_kept = sr::scratch<float, 1>(r_extent * 64);
    if (t5_kept == nullptr) continue;
    alignas(64) double t6_sum[64];
#pragma omp simd
    for (int64_t s = 0; s < 64; ++s) {  // states
      t6_sum[s] = 0.0;
    }
    for (int64_t r_block = 0; r_block < (r_extent + 63) / 64; ++r_block) {  // r of y, blocks of 64
      alignas(64) float t6_sum_part[64];
#pragma omp simd
      for (int64_t s = 0; s < 64; ++s) {  // states
        t6_sum_part[s] = 0.0f;
      }
      for (int64_t r_step = 0; r_step < sr::min(r_extent - r_block * 64, 64); ++r_step) {  // r of y, within a block
        const int64_t r = r_block * 64 + r_step;
        const int64_t i = offsets[c] + r;
#pragma omp simd
        for (int64_t d = 0; d < 64; ++d) {  // d of y
          const float t5_at = sr::exp(x[i * 64 + d] - t3_max[d]);
          t5_kept[r * 64 + d] = t5_at;
          t6_sum_part[d] += t5_at;
        }
      }
#pragma omp simd
      for (int64_t d = 0; d < 64; ++d) {  // partial results
        t6_sum[d] += double(t6_sum_part[d]);
      }
    }
    alignas(64) float t7_kept[64];
#pragma omp simd
    for (int64_t d = 0; d < 64; ++d) {  // d of y
      t7_kept[d] = 1.0f / float(t6_sum[d]);
    }
    for (int64_t r = 0; r < r_extent; ++r) {  // r of y
      const int64_t i = offsets[c] + r;
#pragma omp simd
      for (int64_t d = 0; d < 64; ++d) {  // d of y
        y[i * 64 + d] = t5_kept[r * 64 + d] * t7_kept[d];
      }
    }
  }
}
