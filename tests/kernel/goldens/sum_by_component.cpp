// The sum over the rows of each component: threads over components, lanes over features.

extern "C" void sum_by_component(
    const float* __restrict__ x,  // [n * 64]
    const int64_t* __restrict__ offsets,  // [k + 1]
    float* __restrict__ y,  // [k * 64]
    int64_t k,
    int64_t n) {
#pragma omp parallel for schedule(dynamic, k / 64 + 1)
  for (int64_t c = 0; c < k; ++c) {  // c of y
    const int64_t r_extent = offsets[c + 1] - offsets[c];
    alignas(64) double y_sum[64];
#pragma omp simd
    for (int64_t s = 0; s < 64; ++s) {  // states
      y_sum[s] = 0.0;
    }
    for (int64_t r_block = 0; r_block < (r_extent + 63) / 64; ++r_block) {  // r of y, blocks of 64
      alignas(64) float y_sum_part[64];
#pragma omp simd
      for (int64_t s = 0; s < 64; ++s) {  // states
        y_sum_part[s] = 0.0f;
      }
      for (int64_t r_step = 0; r_step < sr::min(r_extent - r_block * 64, 64); ++r_step) {  // r of y, within a block
        const int64_t i = offsets[c] + (r_block * 64 + r_step);
#pragma omp simd
        for (int64_t d = 0; d < 64; ++d) {  // d of y
          y_sum_part[d] += x[i * 64 + d];
        }
      }
#pragma omp simd
      for (int64_t d = 0; d < 64; ++d) {  // partial results
        y_sum[d] += double(y_sum_part[d]);
      }
    }
#pragma omp simd
    for (int64_t d = 0; d < 64; ++d) {  // d of y
      y[c * 64 + d] = float(y_sum[d]);
    }
  }
}
