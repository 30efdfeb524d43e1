// exp as kernels that are printed and those that are written by hand use it. Without branches and calls: it vectorizes,
// and leaves the registers of the loop around it alone.

#include <math.h>
#include <stdint.h>

namespace sr {

// exp of a float, to about 1 ULP, with NaN, infinities and subnormal results as they should be. Bounds are taken of the
// bits as integers, one instruction each, which the same of floats would not be.
__attribute__((always_inline)) inline float exp(float x) {
  int32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  bits = bits < 0x42b20000 ? bits : 0x42b20000;  // at most 89
  uint32_t word = bits;
  word = word < 0xc2d00000 ? word : 0xc2d00000;  // at least -104
  float bounded;
  __builtin_memcpy(&bounded, &word, 4);
  const float shifted = fmaf(bounded, 0x1.715476p+0f, 0x1.8p+23f);  // the last bits are n, x = n ln 2 + r
  const float n = shifted - 0x1.8p+23f;
  const float r = fmaf(n, -0x1.7f7d1cp-20f, fmaf(n, -0x1.62e4p-1f, bounded));
  float p = 0x1.6a23d0p-10f;
  p = fmaf(p, r, 0x1.123a20p-7f);
  p = fmaf(p, r, 0x1.5558f2p-5f);
  p = fmaf(p, r, 0x1.555492p-3f);
  p = fmaf(p, r, 0x1.fffffcp-2f);
  p = fmaf(p, r * r, r) + 1.0f;
  int32_t k;
  __builtin_memcpy(&k, &shifted, 4);
  k -= 0x4b400000;  // n; 2^n in two halves, as it may be subnormal
  const int32_t half = k >> 1;
  // What is too small for any float is a product with 0, since products that underflow take processors much longer.
  const int32_t low = (half + 127) << 23, high = word == 0xc2d00000 ? 0 : (k - half + 127) << 23;
  float a, b;
  __builtin_memcpy(&a, &low, 4);
  __builtin_memcpy(&b, &high, 4);
  return x == x ? p * a * b : x;
}

// The same of a double.
__attribute__((always_inline)) inline double exp(double x) {
  double bounded = x < 710.0 ? x : 710.0;
  bounded = bounded > -746.0 ? bounded : -746.0;
  const double shifted = fma(bounded, 0x1.71547652b82fep+0, 0x1.8p+52);  // the last bits are n, x = n ln 2 + r
  const double n = shifted - 0x1.8p+52;
  const double r = fma(n, -0x1.abc9e3b39803fp-56, fma(n, -0x1.62e42fefa39efp-1, bounded));
  double p = 0x1.6124613a86d09p-33;  // 1/13!, and so on down to 1/2!
  p = fma(p, r, 0x1.1eed8eff8d898p-29);
  p = fma(p, r, 0x1.ae64567f544e4p-26);
  p = fma(p, r, 0x1.27e4fb7789f5cp-22);
  p = fma(p, r, 0x1.71de3a556c734p-19);
  p = fma(p, r, 0x1.a01a01a01a01ap-16);
  p = fma(p, r, 0x1.a01a01a01a01ap-13);
  p = fma(p, r, 0x1.6c16c16c16c17p-10);
  p = fma(p, r, 0x1.1111111111111p-7);
  p = fma(p, r, 0x1.5555555555555p-5);
  p = fma(p, r, 0x1.5555555555555p-3);
  p = fma(p, r, 0x1p-1);
  p = fma(p, r * r, r) + 1.0;
  uint64_t k;
  __builtin_memcpy(&k, &shifted, 8);
  k -= 0x4337fffffffff800u;  // n + 2048; 2^n in two halves, as it may be subnormal
  const uint64_t half = k >> 1;
  const uint64_t low = (half - 1) << 52, high = x > -746.0 ? (k - half - 1) << 52 : 0;
  double a, b;
  __builtin_memcpy(&a, &low, 8);
  __builtin_memcpy(&b, &high, 8);
  return x == x ? p * a * b : x;
}

}  // namespace sr
