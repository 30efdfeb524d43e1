// The sum over both ragged axes of [k, r, s], where s depends on r.

extern "C" void sum_of_two_levels(
    const int64_t* __restrict__ offsets,  // [k + 1]
    const int64_t* __restrict__ inner_offsets,  // [n + 1]
    const float* __restrict__ x,  // [m]
    float* __restrict__ y,  // [k]
    int64_t k,
    int64_t m,
    int64_t n) {
#pragma omp parallel for schedule(dynamic, k / 64 + 1)
  for (int64_t c = 0; c < k; ++c) {  // c of y
    const int64_t r_extent = offsets[c + 1] - offsets[c];
    double y_sum = 0.0;
    for (int64_t r = 0; r < r_extent; ++r) {  // r of y
      const int64_t cr = offsets[c] + r;
      const int64_t s_extent = inner_offsets[cr + 1] - inner_offsets[cr];
      for (int64_t s_block = 0; s_block < (s_extent + 63) / 64; ++s_block) {  // s of y, blocks of 64
        float y_sum_part = 0.0f;
        for (int64_t s_step = 0; s_step < sr::min(s_extent - s_block * 64, 64); ++s_step) {  // s of y, within a block
          y_sum_part += x[inner_offsets[cr] + (s_block * 64 + s_step)];
        }
        y_sum += double(y_sum_part);
      }
    }
    y[c] = float(y_sum);
  }
}
