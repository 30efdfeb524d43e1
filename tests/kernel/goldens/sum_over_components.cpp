// The sum over components, position by position, of the rows that reach it: the gradient of what all share.

extern "C" void sum_over_components(
    const float* __restrict__ x,  // [n * 64]
    const int64_t* __restrict__ offsets,  // [k + 1]
    float* __restrict__ y,  // [512]
    int64_t k,
    int64_t n) {
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t r = 0; r < 8; ++r) {  // r of y
    alignas(64) double y_sum[64];
#pragma omp simd
    for (int64_t s = 0; s < 64; ++s) {  // states
      y_sum[s] = 0.0;
    }
    for (int64_t c_block = 0; c_block < (k + 63) / 64; ++c_block) {  // c of y, blocks of 64
      alignas(64) float y_sum_part[64];
#pragma omp simd
      for (int64_t s = 0; s < 64; ++s) {  // states
        y_sum_part[s] = 0.0f;
      }
      for (int64_t c_step = 0; c_step < sr::min(k - c_block * 64, 64); ++c_step) {  // c of y, within a block
        const int64_t c = c_block * 64 + c_step;
        if (r < offsets[c + 1] - offsets[c]) {
          const int64_t cr = offsets[c] + r;
#pragma omp simd
          for (int64_t d = 0; d < 64; ++d) {  // d of y
            y_sum_part[d] += x[cr * 64 + d];
          }
        }
      }
#pragma omp simd
      for (int64_t d = 0; d < 64; ++d) {  // partial results
        y_sum[d] += double(y_sum_part[d]);
      }
    }
#pragma omp simd
    for (int64_t d = 0; d < 64; ++d) {  // d of y
      y[r * 64 + d] = float(y_sum[d]);
    }
  }
}
