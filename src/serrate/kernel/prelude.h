#include <math.h>
#include <stdint.h>
#include <stdlib.h>

// Vector forms of these functions are in glibc's libmvec, which without -ffast-math only needs to be told of.
#if defined(__GLIBC__) && defined(__x86_64__) && !defined(__clang__)
#if __GLIBC_PREREQ(2, 35)
#define VECTOR_FORM __attribute__((simd("notinbranch")))
#define VECTOR_FORMS(function)                            \
  extern "C" VECTOR_FORM float function##f(float) noexcept; \
  extern "C" VECTOR_FORM double function(double) noexcept;
VECTOR_FORMS(exp)
VECTOR_FORMS(log)
VECTOR_FORMS(tanh)
VECTOR_FORMS(erf)
VECTOR_FORMS(sin)
VECTOR_FORMS(cos)
VECTOR_FORMS(tan)
VECTOR_FORMS(asin)
VECTOR_FORMS(acos)
VECTOR_FORMS(atan)
VECTOR_FORMS(sinh)
VECTOR_FORMS(cosh)
VECTOR_FORMS(asinh)
VECTOR_FORMS(acosh)
VECTOR_FORMS(atanh)
VECTOR_FORMS(expm1)
VECTOR_FORMS(log1p)
VECTOR_FORMS(log2)
VECTOR_FORMS(log10)
#undef VECTOR_FORMS
#undef VECTOR_FORM
#endif
#endif

namespace sr {

template <typename T>
struct Same {
  using type = T;
};

// max and min give NaN if an operand is NaN; in selects, which vectorize.
template <typename T>
inline T max(T a, typename Same<T>::type b) {
  const T larger = a > b ? a : b;
  return a != a ? a : larger;
}

template <typename T>
inline T min(T a, typename Same<T>::type b) {
  const T smaller = a < b ? a : b;
  return a != a ? a : smaller;
}

template <typename T>
inline T abs(T a) {
  return a < 0 ? -a : a;
}

template <typename T>
inline bool isnan(T a) {
  return a != a;
}

template <typename T>
inline bool isinf(T a) {
  return a == a && a - a != a - a;
}

template <typename T>
inline bool isfinite(T a) {
  return a - a == a - a;
}

// NaN has the sign NaN.
template <typename T>
inline T sign(T a) {
  return a != a ? a : T((a > T(0)) - (a < T(0)));
}

// Whole numbers divided as Python does, quotients rounded down; by 0 both are 0.
template <typename T>
inline T floor_divide(T a, typename Same<T>::type b) {
  if (b == 0) return 0;
  if (T(-1) < T(0) && b == T(-1)) return T(0 - a);  // the least number has no opposite: it wraps
  const T quotient = a / b;
  return quotient * b != a && (a < T(0)) != (b < T(0)) ? quotient - 1 : quotient;
}

template <typename T>
inline T remainder(T a, typename Same<T>::type b) {
  if (b == 0 || (T(-1) < T(0) && b == T(-1))) return 0;
  const T rest = a % b;
  return rest != 0 && (rest < T(0)) != (b < T(0)) ? rest + b : rest;
}

// Floats: infinite operands give the infinite or zero quotient that division gives.
template <typename T>
inline T float_floor_divide(T a, T b) {
  if (b == T(0) || isinf(a) || isinf(b)) return a / b;
  const T rest = ::fmod(a, b);
  T quotient = (a - rest) / b;
  if (rest != T(0) && (rest < T(0)) != (b < T(0))) quotient -= T(1);
  if (quotient == T(0)) return ::copysign(T(0), a / b);
  const T down = ::floor(quotient);
  return quotient - down > T(0.5) ? down + T(1) : down;
}

// With the sign of the divisor, that of a zero too.
template <typename T>
inline T float_remainder(T a, T b) {
  T rest = ::fmod(a, b);
  if (rest != T(0) && (rest < T(0)) != (b < T(0))) rest += b;
  return ::copysign(rest, b);
}

inline float floor_divide(float a, float b) { return float_floor_divide(a, b); }
inline double floor_divide(double a, double b) { return float_floor_divide(a, b); }
inline float remainder(float a, float b) { return float_remainder(a, b); }
inline double remainder(double a, double b) { return float_remainder(a, b); }

// A whole power, which wraps. Of negative exponents only the powers of 1 and -1 are whole; all others are 0.
template <typename T>
inline T pow(T base, typename Same<T>::type exponent) {
  if (exponent < T(0)) {
    if (base != T(1) && T(base + 1) != T(0)) return 0;
    return base == T(1) || exponent % 2 == 0 ? T(1) : base;
  }
  T result = 1;
  for (; exponent != 0; exponent /= 2) {
    if (exponent % 2 != 0) result = T(result * base);
    base = T(base * base);
  }
  return result;
}

// Bits that are moved by more than there are, or by a negative number, are all moved out.
template <typename T>
inline T left_shift(T a, typename Same<T>::type by) {
  const bool inside = by >= T(0) && uint64_t(by) < 8 * sizeof(T);
  return inside ? T(uint64_t(a) << by) : T(0);
}

template <typename T>
inline T right_shift(T a, typename Same<T>::type by) {
  const bool inside = by >= T(0) && uint64_t(by) < 8 * sizeof(T);
  return inside ? T(a >> by) : a < T(0) ? T(-1) : T(0);
}

template <typename T>
inline bool signbit(T a) {
  return a < T(0);
}

template <int Bytes>
struct Bits {
  using type = uint64_t;
};
template <>
struct Bits<4> {
  using type = uint32_t;
};
template <>
struct Bits<2> {
  using type = uint16_t;
};

// The bits of a float, as a whole number.
template <typename T>
inline typename Bits<sizeof(T)>::type bits_of(T a) {
  typename Bits<sizeof(T)>::type bits;
  __builtin_memcpy(&bits, &a, sizeof(T));
  return bits;
}

inline bool signbit(float a) { return bits_of(a) >> 31 != 0; }
inline bool signbit(double a) { return bits_of(a) >> 63 != 0; }

// The next number after a towards b, for floats of any width: adjacent numbers have adjacent bits.
template <typename T>
inline T nextafter(T a, typename Same<T>::type b) {
  using Word = typename Bits<sizeof(T)>::type;
  if (a != a || b != b) return a != a ? a : b;
  if (a == b) return b;
  Word bits = bits_of(a);
  const Word sign = Word(Word(1) << (8 * sizeof(T) - 1));
  if (Word(bits & ~sign) == 0) {
    bits = Word(1 | (bits_of(b) & sign));  // the least of numbers, on the side of b
  } else {
    bits = Word((a < b) == ((bits & sign) == 0) ? bits + 1 : bits - 1);
  }
  T next;
  __builtin_memcpy(&next, &bits, sizeof(T));
  return next;
}

// exp of a float, to about 1 ULP, with NaN, infinities and subnormal results as they should be. Without branches and
// calls: it vectorizes, and leaves the registers of the loop around it alone. Bounds are taken of the bits as integers,
// one instruction each, which the same of floats would not be.
inline float exp(float x) {
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
  const int32_t low = (half + 127) << 23, high = (k - half + 127) << 23;
  float a, b;
  __builtin_memcpy(&a, &low, 4);
  __builtin_memcpy(&b, &high, 4);
  return x == x ? p * a * b : x;
}

// The component c < count with offsets[c] <= position < offsets[c + 1].
template <typename Offset, typename Index>
inline Index search(const Offset* offsets, typename Same<Index>::type count, Index position) {
  Index c = 0;
  while (count > 1) {
    const Index half = count / 2;
    c = offsets[c + half] <= position ? c + half : c;
    count -= half;
  }
  return c;
}

// How often memory was short. Who calls a kernel compares it with what it was before.
inline int64_t shortages = 0;

// Memory of the thread, at least `size` elements of it, which the next call for the same number may give again. Null if
// there is not as much: exceptions cannot leave a parallel loop, so that who asks goes on without what needs it.
template <typename T, int number>
inline T* scratch(uint64_t size) {
  struct Memory {
    T* data = nullptr;
    uint64_t size = 0;
    ~Memory() { free(data); }
  };
  static thread_local Memory memory;
  if (memory.data == nullptr || memory.size < size) {
    free(memory.data);
    const bool addressable = size < (uint64_t(1) << 60) / sizeof(T);
    memory.data = addressable ? static_cast<T*>(aligned_alloc(64, (size * sizeof(T) + 127) / 64 * 64)) : nullptr;
    memory.size = size;
    if (memory.data == nullptr) __atomic_fetch_add(&shortages, 1, __ATOMIC_RELAXED);
  }
  return memory.data;
}

// The upper half of a float's bits. Rounds to nearest, ties to even; NaN stays NaN.
struct bfloat16 {
  uint16_t bits;

  bfloat16() = default;

  inline bfloat16(float value) {
    uint32_t word;
    __builtin_memcpy(&word, &value, 4);
    const uint32_t rounded = word + 0x7fff + (word >> 16 & 1);
    bits = (value != value ? word | 0x400000 : rounded) >> 16;
  }

  inline operator float() const {
    const uint32_t word = uint32_t(bits) << 16;
    float value;
    __builtin_memcpy(&value, &word, 4);
    return value;
  }
};

}  // namespace sr
