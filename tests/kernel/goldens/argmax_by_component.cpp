// The position of the greatest value of each row, −1 for an empty one.

extern "C" void argmax_by_component(
    const float* __restrict__ x,  // [n]
    const int64_t* __restrict__ offsets,  // [k + 1]
    int64_t* __restrict__ y,  // [k]
    int64_t k,
    int64_t n) {
#pragma omp parallel for schedule(dynamic, k / 64 + 1)
  for (int64_t c = 0; c < k; ++c) {  // c of y
    const int64_t r_extent = offsets[c + 1] - offsets[c];
    float y_value;
    int64_t y_position;
    y_value = -INFINITY;
    y_position = -1;
    for (int64_t r = 0; r < r_extent; ++r) {  // r of y
      const float x_at = x[offsets[c] + r];
      const bool y_value_term = sr::isnan(x_at);
      const bool y_value_term2 = sr::isnan(y_value);
      const bool y_value_term3 = y_value < x_at || y_value_term && !y_value_term2 || (y_value == x_at || y_value_term2 && y_value_term) && (r < y_position || y_position < 0);
      const int64_t y_position_next = y_value_term3 ? r : y_position;
      y_value = y_value_term3 ? x_at : y_value;
      y_position = y_position_next;
    }
    y[c] = y_position;
  }
}
