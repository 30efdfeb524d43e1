// gelu(x) · x + 1 of [k, r, 64], all values as one axis: blocks of 256 threads, four values each.
// Launched as (((n * 64 + 3) / 4 + 255) / 256, 1, 1) blocks of (256, 1, 1) threads.

extern "C" __global__ void __launch_bounds__(256) gelu_flat_cuda(
    const float* __restrict__ x,  // [n * 64]
    float* __restrict__ y,  // [n * 64]
    int64_t n) {
  const int64_t crd_outer_outer = blockIdx.x;  // crd_outer of y, by 256, of (n * 16 + 255) / 256
  const int64_t crd_outer_inner = threadIdx.x;  // crd_outer of y, within 256, of 256
  const int64_t crd_outer = crd_outer_outer * 256 + crd_outer_inner;
#pragma unroll
  for (int64_t crd_inner = 0; crd_inner < 4; ++crd_inner) {  // crd of y, within 4
    const int64_t crd = crd_outer * 4 + crd_inner;
    if (crd < n * 64) {
      const float x_at = x[crd];
      y[crd] = 0.5f * x_at * (1.0f + erff(x_at * 0.70710677f)) * x_at + 1.0f;
    }
  }
}
