// table[ids[c, r]]: an embedding of ragged ids, all of them as one axis.

extern "C" void gather_rows(
    const float* __restrict__ table,  // [entries * 64]
    const int64_t* __restrict__ ids,  // [n]
    float* __restrict__ y,  // [n * 64]
    int64_t* __restrict__ faults,  // [1]
    int64_t entries,
    int64_t n) {
#pragma omp parallel for schedule(dynamic, n / 64 + 1)
  for (int64_t cr = 0; cr < n; ++cr) {  // c and r of y
    if (!(0 <= ids[cr] && ids[cr] < entries)) faults[0] = 1;
#pragma omp simd
    for (int64_t d = 0; d < 64; ++d) {  // d of y
      const int64_t ids_at = ids[cr];
      y[cr * 64 + d] = 0 <= ids_at && ids_at < entries ? table[ids_at * 64 + d] : 0.0f;
    }
  }
}
