// gelu(x) · x + 1 of [k, r, 64], all values as one axis: blocks of 256 threads, four values each.
// Launched as (((n * 64 + 3) / 4 + 255) / 256, 1, 1) blocks of (256, 1, 1) threads.

extern "C" __global__ void __launch_bounds__(256) gelu_flat_cuda(
    const float* __restrict__ x,  // [n * 64]
    float* __restrict__ y,  // [n * 64]
    int64_t n) {
  const int64_t crd_outer_outer = blockIdx.x;  // crd_outer of y, by 256, of (n * 16 + 255) / 256
  const int64_t crd_outer_inner = threadIdx.x;  // crd_outer of y, within 256, of 256
  const int64_t crd_outer = crd_outer_outer * 256 + crd_outer_inner;
  if (crd_outer < n * 16) {
    float x_lanes[4];
    sr::load<4>(x_lanes, x + crd_outer * 4);  // crd of y, within 4
    float y_lanes[4];
#pragma unroll
    for (int64_t crd_inner = 0; crd_inner < 4; ++crd_inner) {  // crd of y, within 4
      const float x_at = x_lanes[crd_inner];
      y_lanes[crd_inner] = 0.5f * x_at * (1.0f + erff(x_at * 0.70710677f)) * x_at + 1.0f;
    }
    sr::store<4>(y + crd_outer * 4, y_lanes);  // crd of y, within 4
  }
}
