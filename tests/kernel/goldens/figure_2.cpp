// Three indivisible splits of an axis of 15, which need two conditions.

extern "C" void figure_2(
    const float* __restrict__ x,  // [15]
    float* __restrict__ y) {  // [15]
  for (int64_t i_outer_outer = 0; i_outer_outer < 2; ++i_outer_outer) {  // i_outer of y, by 2
    for (int64_t i_outer_inner = 0; i_outer_inner < 2; ++i_outer_inner) {  // i_outer of y, within 2
      const int64_t i_outer = i_outer_outer * 2 + i_outer_inner;
      for (int64_t i_inner_outer = 0; i_inner_outer < 2; ++i_inner_outer) {  // i_inner of y, by 4
        for (int64_t i_inner_inner = 0; i_inner_inner < 4; ++i_inner_inner) {  // i_inner of y, within 4
          const int64_t i_inner = i_inner_outer * 4 + i_inner_inner;
          if (i_inner < 6) {
            const int64_t i = i_outer * 6 + i_inner;
            if (i < 15) {
              y[i] = x[i];
            }
          }
        }
      }
    }
  }
}
