// x[c, r, d] · w[c, d] in tiles of 4 rows, a block each.
// Launched as ((n + k * 3) / 4, 1, 1) blocks of (64, 4, 1) threads.

extern "C" __global__ void __launch_bounds__(256) scale_by_tile_cuda(
    const float* __restrict__ x,  // [n * 64]
    const int64_t* __restrict__ offsets,  // [k + 1]
    const float* __restrict__ w,  // [k * 64]
    const int64_t* __restrict__ offsets_by_4,  // [k + 1]
    float* __restrict__ y,  // [n * 64]
    int64_t k,
    int64_t n) {
  const int64_t cr_outer = blockIdx.x;  // c and r_outer of y, of (n + k * 3) / 4
  if (cr_outer < offsets_by_4[k]) {
    const int64_t c = sr::search(offsets_by_4, k, cr_outer);
    const int64_t r_outer = cr_outer - offsets_by_4[c];
    const int64_t r_inner = threadIdx.y;  // r of y, within 4, of 4
    const int64_t r = r_outer * 4 + r_inner;
    if (r < offsets[c + 1] - offsets[c]) {
      const int64_t cr = offsets[c] + r;
      const int64_t d = threadIdx.x;  // d of y, of 64
      y[cr * 64 + d] = x[cr * 64 + d] * w[c * 64 + d];
    }
  }
}
