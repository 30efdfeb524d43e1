#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE

// Vector forms of functions are in glibc's libmvec, which without -ffast-math only needs to be told of. The rows of
// scalar functions say which have one; their declarations are written where VECTOR_FORMS stands.
#if defined(__GLIBC__) && defined(__x86_64__) && !defined(__clang__)
#if __GLIBC_PREREQ(2, 35)
#define VECTOR_FORM extern "C" __attribute__((simd("notinbranch")))
VECTOR_FORMS
#undef VECTOR_FORM
#endif
#endif

#include "exponential.h"

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

// The error function of a float, to less than 2 ULP: near 0 it is an odd polynomial, elsewhere 1 - e^-v, where v is
// another one. Both are computed of every element, so that there is no branch, and no call: lanes of it take half the
// time of those of C's library.
__attribute__((always_inline)) inline float erf(float x) {
  const float size = fabsf(x), square = x * x;
  float near = -0x1.3825c4p-11f;
  near = fmaf(near, square, 0x1.46c234p-8f);
  near = fmaf(near, square, -0x1.b676cap-6f);
  near = fmaf(near, square, 0x1.ce1904p-4f);
  near = fmaf(near, square, -0x1.8126dcp-2f);
  near = fmaf(near, square, 0x1.06eba6p-3f);
  near = fmaf(near, size, size);
  const float bounded = size < 3.95f ? size : 3.95f;  // from here on it is 1
  float v = 0x1.425322p-10f;
  v = fmaf(v, bounded, -0x1.f8d6f0p-7f);
  v = fmaf(v, bounded, 0x1.730560p-4f);
  v = fmaf(v, bounded, 0x1.4d96fep-1f);
  v = fmaf(v, bounded, 0x1.1e9f46p+0f);
  v = fmaf(v, bounded, 0x1.0b763ep-9f);
  const float shifted = fmaf(v, -0x1.715476p+0f, 0x1.8p+23f);  // the last bits are n, -v = n ln 2 + r
  const float r = fmaf(shifted - 0x1.8p+23f, -0x1.62e430p-1f, -v);
  float p = 0x1.0fe5c6p-7f;
  p = fmaf(p, r, 0x1.575eeep-5f);
  p = fmaf(p, r, 0x1.555a18p-3f);
  p = fmaf(p, r, 0x1.fffd1ap-2f);
  p = fmaf(p, r, 0x1.fffff6p-1f);
  p = fmaf(p, r, 0x1.000002p+0f);
  int32_t n, bits;
  __builtin_memcpy(&n, &shifted, 4);
  __builtin_memcpy(&bits, &p, 4);
  bits += (n - 0x4b400000) << 23;  // times 2^n
  __builtin_memcpy(&p, &bits, 4);
  const float made = size < 0.93f ? near : 1.0f - p;
  return copysignf(size == size ? made : x, x);
}

SCALAR_FUNCTIONS

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

// The same, where the component that was found before, `near`, or one of the next is likely.
template <typename Offset, typename Index>
inline Index search_from(Index& near, const Offset* offsets, typename Same<Index>::type count, Index position) {
  if (near < count && offsets[near] <= position) {
    for (int step = 0; step < 8 && near < count; ++step, ++near) {
      if (position < offsets[near + 1]) return near;
    }
  }
  return near = search(offsets, count, position);
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
