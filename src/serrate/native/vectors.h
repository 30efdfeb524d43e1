// This file has vectors of numbers, as long as those of the processor, of which the last one of a row may have fewer
// numbers; and functions of them.
#pragma once

#include <cmath>

#include "../runtime/exponential.h"
#include "common.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int64_t kBytes = 64;
#elif defined(__AVX2__)
constexpr int64_t kBytes = 32;
#else
constexpr int64_t kBytes = 16;
#endif

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kBytes)));
};
template <class T>
using Numbers = typename VectorOf<T>::type;

template <class T>
constexpr int64_t kNumbers = kBytes / sizeof(T);

template <class T>
using Place = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

// Returns a vector of one number.
template <class T>
SERRATE_INLINE Numbers<T> all(T number) {
  return Numbers<T>{} + number;
}

template <class T>
SERRATE_INLINE Numbers<T> load(const T* memory) {
  Numbers<T> made;
  std::memcpy(&made, memory, sizeof(made));
  return made;
}

template <class T>
SERRATE_INLINE void store(T* memory, const Numbers<T>& numbers) {
  std::memcpy(memory, &numbers, sizeof(numbers));
}

// Returns the vector of the numbers 0, 1, 2, …
template <class T>
SERRATE_INLINE Numbers<Place<T>> places() {
  Numbers<Place<T>> made;
  for (int64_t j = 0; j < kNumbers<T>; ++j) made[j] = static_cast<Place<T>>(j);
  return made;
}

// Reads `count` numbers, 1 to kNumbers; all others are `filling`.
template <class T>
SERRATE_INLINE Numbers<T> load_first(const T* memory, int64_t count, T filling) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return (Numbers<T>)_mm512_mask_loadu_ps((__m512)all(filling), (1u << count) - 1, memory);
  else return (Numbers<T>)_mm512_mask_loadu_pd((__m512d)all(filling), (1u << count) - 1, memory);
#elif defined(__AVX2__)
  const auto chosen = places<T>() < static_cast<Place<T>>(count);
  Numbers<T> found;
  if constexpr (sizeof(T) == 4) found = (Numbers<T>)_mm256_maskload_epi32((const int*)memory, (__m256i)chosen);
  else found = (Numbers<T>)_mm256_maskload_epi64((const long long*)memory, (__m256i)chosen);
  return chosen ? found : all(filling);
#else
  T copy[kNumbers<T>];
  for (int64_t j = 0; j < kNumbers<T>; ++j) copy[j] = filling;
  copy_short(reinterpret_cast<char*>(copy), reinterpret_cast<const char*>(memory), count * sizeof(T));
  return load<T>(copy);
#endif
}

// Writes the first `count` numbers, 1 to kNumbers.
template <class T>
SERRATE_INLINE void store_first(T* memory, const Numbers<T>& numbers, int64_t count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) _mm512_mask_storeu_ps(memory, (1u << count) - 1, (__m512)numbers);
  else _mm512_mask_storeu_pd(memory, (1u << count) - 1, (__m512d)numbers);
#elif defined(__AVX2__)
  const auto chosen = (__m256i)(places<T>() < static_cast<Place<T>>(count));
  if constexpr (sizeof(T) == 4) _mm256_maskstore_epi32((int*)memory, chosen, (__m256i)numbers);
  else _mm256_maskstore_epi64((long long*)memory, chosen, (__m256i)numbers);
#else
  copy_short(reinterpret_cast<char*>(memory), reinterpret_cast<const char*>(&numbers), count * sizeof(T));
#endif
}

template <bool kWhole, class T>
SERRATE_INLINE Numbers<T> load_some(const T* memory, int64_t count, T filling = 0) {
  if constexpr (kWhole) return load(memory);
  else return load_first(memory, count, filling);
}

template <bool kWhole, class T>
SERRATE_INLINE void store_some(T* memory, const Numbers<T>& numbers, int64_t count) {
  if constexpr (kWhole) store(memory, numbers);
  else store_first(memory, numbers, count);
}

// Calls function(j, whole, count) for the vectors of a line of so many columns; the last may have fewer numbers. If the
// number of columns is a constant, the calls are written out.
template <class T, class Function, size_t... V>
SERRATE_INLINE void each_whole(const Function& function, std::index_sequence<V...>) {
  (function(int64_t(V) * kNumbers<T>, std::true_type(), kNumbers<T>), ...);
}

template <class T, class Columns, class Function>
SERRATE_INLINE void each_vector(Columns columns, const Function& function) {
  if constexpr (!std::is_same_v<Columns, int64_t>) {
    each_whole<T>(function, std::make_index_sequence<Columns::value / kNumbers<T>>());
  } else {
    int64_t j = 0;
    for (; j + kNumbers<T> <= columns; j += kNumbers<T>) function(j, std::true_type(), kNumbers<T>);
    if (j < columns) function(j, std::false_type(), columns - j);
  }
}

// Returns the vector whose number j is number j + kBy of another one; after the last number comes the first.
template <int64_t kBy, class T>
SERRATE_INLINE Numbers<T> turned(const Numbers<T>& numbers) {
  const Numbers<Place<T>> from = (places<T>() + static_cast<Place<T>>(kBy)) & static_cast<Place<T>>(kNumbers<T> - 1);
#ifdef __clang__
  Numbers<T> made;
  for (int64_t j = 0; j < kNumbers<T>; ++j) made[j] = numbers[from[j]];
  return made;
#else
  return __builtin_shuffle(numbers, from);
#endif
}

// Combines all numbers of a vector: halves first, then quarters, and so on.
template <class T, int64_t kHalf = kNumbers<T> / 2, class Combine>
SERRATE_INLINE T combined(const Numbers<T>& numbers, const Combine& combine) {
  if constexpr (kHalf == 0) return numbers[0];
  else return combined<T, kHalf / 2>(combine(numbers, turned<kHalf, T>(numbers)), combine);
}

#ifndef __AVX512F__
template <class T>
SERRATE_INLINE Numbers<T> each_exp(const Numbers<T>& x) {
  T made[kNumbers<T>];
  std::memcpy(made, &x, sizeof(made));
#pragma omp simd
  for (int64_t j = 0; j < kNumbers<T>; ++j) made[j] = sr::exp(made[j]);
  return load<T>(made);
}
#endif

// The exponential of each number. Processors with AVX-512 multiply by a power of two in one instruction, results that
// are too small for a normal number included; and their bounds let a NaN pass, which is the second argument.
SERRATE_INLINE Numbers<float> exp_of(const Numbers<float>& x) {
#ifdef __AVX512F__
  const __m512 bounded = _mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(_mm512_set1_ps(-104.0f), x));
  const __m512 magic = _mm512_set1_ps(0x1.8p+23f);
  const __m512 n = _mm512_fmadd_ps(bounded, _mm512_set1_ps(0x1.715476p+0f), magic) - magic;  // x = n ln 2 + r
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e4p-1f), bounded);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.7f7d1cp-20f), r);
  __m512 p = _mm512_set1_ps(0x1.6a23d0p-10f);
  for (const float next : {0x1.123a20p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f}) {
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(next));
  }
  p = _mm512_fmadd_ps(p, r * r, r) + _mm512_set1_ps(1.0f);
  return _mm512_scalef_ps(p, n);
#else
  return each_exp<float>(x);
#endif
}

SERRATE_INLINE Numbers<double> exp_of(const Numbers<double>& x) {
#ifdef __AVX512F__
  const __m512d bounded = _mm512_min_pd(_mm512_set1_pd(710.0), _mm512_max_pd(_mm512_set1_pd(-746.0), x));
  const __m512d magic = _mm512_set1_pd(0x1.8p+52);
  const __m512d n = _mm512_fmadd_pd(bounded, _mm512_set1_pd(0x1.71547652b82fep+0), magic) - magic;
  __m512d r = _mm512_fmadd_pd(n, _mm512_set1_pd(-0x1.62e42fefa39efp-1), bounded);
  r = _mm512_fmadd_pd(n, _mm512_set1_pd(-0x1.abc9e3b39803fp-56), r);
  __m512d p = _mm512_set1_pd(0x1.6124613a86d09p-33);  // 1/13!, and so on down to 1/2!
  for (const double next :
       {0x1.1eed8eff8d898p-29, 0x1.ae64567f544e4p-26, 0x1.27e4fb7789f5cp-22, 0x1.71de3a556c734p-19, 0x1.a01a01a01a01ap-16,
        0x1.a01a01a01a01ap-13, 0x1.6c16c16c16c17p-10, 0x1.1111111111111p-7, 0x1.5555555555555p-5, 0x1.5555555555555p-3,
        0x1p-1}) {
    p = _mm512_fmadd_pd(p, r, _mm512_set1_pd(next));
  }
  p = _mm512_fmadd_pd(p, r * r, r) + _mm512_set1_pd(1.0);
  return _mm512_scalef_pd(p, n);
#else
  return each_exp<double>(x);
#endif
}

// The logarithm of a number of 1 or more, to about 1 ULP; NaN and infinity stay as they are. Loops over it vectorize.
SERRATE_INLINE double log_of(double x) {
  int64_t bits;
  std::memcpy(&bits, &x, 8);
  const int64_t from = bits - 0x3fe6a09e667f3bcd;  // x = m 2^n with m between the roots of 1/2 and of 2
  const int64_t above = (from >> 52) + 0x4330000000000400;  // 2^52 + 1024 + n, as a double
  const int64_t scaled = bits - (from & ~int64_t(0) << 52);
  double m, n;
  std::memcpy(&n, &above, 8);
  std::memcpy(&m, &scaled, 8);
  n -= 0x1p+52 + 1024;
  const double f = (m - 1) / (m + 1), g = f * f;  // log m = 2 (f + f^3 / 3 + f^5 / 5 + …)
  double p = 1.0 / 21;
  p = p * g + 1.0 / 19;
  p = p * g + 1.0 / 17;
  p = p * g + 1.0 / 15;
  p = p * g + 1.0 / 13;
  p = p * g + 1.0 / 11;
  p = p * g + 1.0 / 9;
  p = p * g + 1.0 / 7;
  p = p * g + 1.0 / 5;
  p = p * g + 1.0 / 3;
  const double made = n * 0x1.62e42fefa39efp-1 + (2 * f + (2 * f * g * p + n * 0x1.abc9e3b39803fp-56));
  return x - x == 0 ? made : x;
}

}  // namespace
