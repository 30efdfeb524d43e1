// exp of [6, 6] laid out as [6, 2, 4]: two holes in each row, filled with 0.

extern "C" void rows_of_eight(
    const float* __restrict__ x,  // [36]
    float* __restrict__ y) {  // [48]
  for (int64_t i = 0; i < 6; ++i) {  // i of y
    for (int64_t d = 0; d < 6; ++d) {  // d of y
      y[(i * 2 + d / 4) * 4 + d % 4] = sr::exp(x[i * 6 + d]);
    }
  }
  for (int64_t i = 0; i < 6; ++i) {  // i of y
    for (int64_t d_outer = 0; d_outer < 2; ++d_outer) {  // d of y, by 4
      for (int64_t d_inner = 0; d_inner < 4; ++d_inner) {  // d of y, within 4
        if (6 <= d_outer * 4 + d_inner) {
          y[(i * 2 + d_outer) * 4 + d_inner] = 0.0f;
        }
      }
    }
  }
}
