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
