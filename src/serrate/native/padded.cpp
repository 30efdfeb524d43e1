// This file pads, packs, adds and multiplies packed and padded rows on the CPU.
//
// Component b owns the packed rows offsets[b] .. offsets[b + 1] of `rows`; the padded memory has `most` rows for each
// component. If offsets do not start with 0, decrease or end past the rows, a function returns -1 and neither reads nor
// writes a row.

#include "common.h"

namespace {

bool are_wrong(const int64_t* offsets, int64_t components, int64_t rows) {
  const int64_t end = total(offsets, components + 1);
  return end < 0 || end > rows;
}

// Writes padded rows of `width` bytes from packed ones. `filling` is one element of `size` bytes, or null for zeros.
int64_t pad(const char* packed, const int64_t* offsets, char* padded, int64_t components, int64_t rows, int64_t most,
            int64_t width, const char* filling, int64_t size, int32_t threads) {
  if (are_wrong(offsets, components, rows)) return -1;
  advise(padded, components * most * width);
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    const int64_t have = std::min(offsets[b + 1] - offsets[b], most) * width, all = most * width;
    char* row = padded + b * all;
    copy(row, packed + offsets[b] * width, have);
    fill(row + have, all - have, filling, size);
  }
  return 0;
}

// Writes packed rows from padded ones. Rows past the first `most` of a component, and past the last offset, become 0.
int64_t unpad(const char* padded, const int64_t* offsets, char* packed, int64_t components, int64_t rows, int64_t most,
              int64_t width, int32_t threads) {
  if (are_wrong(offsets, components, rows)) return -1;
  advise(packed, rows * width);
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    const int64_t all = (offsets[b + 1] - offsets[b]) * width, have = std::min(all, most * width);
    char* row = packed + offsets[b] * width;
    copy(row, padded + b * most * width, have);
    clear(row + have, all - have);
  }
  const int64_t end = offsets[components];
  clear(packed + end * width, (rows - end) * width);
  return 0;
}

// ------------------------------------------------------------------------------------- sums and products of elements

struct Add {
  template <class T>
  static T of(T a, T b) { return a + b; }
  template <class T>
  static T alone(T a) { return a + T(0); }  // This is a, but -0.0 becomes 0.0.
};

struct Multiply {
  template <class T>
  static T of(T a, T b) { return a * b; }
  template <class T>
  static T alone(T) { return T(0); }
};

// Computes out[i] = x[i] op y[i]; `out` may be `x`.
template <class Op, class T>
void combine(const T* x, const T* y, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = Op::of(x[i], y[i]);
}

template <class Op, class T>
void keep_alone(const T* x, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = Op::alone(x[i]);
}

// Combines packed rows of `width` elements of x with the elements of padded y at the same places. Elements of x without
// such a place are combined with 0. `out` may be x.
template <class Op, class T>
int64_t packed(const T* x, const T* y, const int64_t* offsets, T* out, int64_t components, int64_t rows, int64_t most,
               int64_t width, int32_t threads) {
  if (are_wrong(offsets, components, rows)) return -1;
  advise(out, rows * width * sizeof(T));
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    const int64_t first = offsets[b] * width, all = offsets[b + 1] * width - first, have = std::min(all, most * width);
    combine<Op>(x + first, y + b * most * width, out + first, have);
    keep_alone<Op>(x + first + have, out + first + have, all - have);
  }
  const int64_t end = offsets[components] * width;
  keep_alone<Op>(x + end, out + end, rows * width - end);
  return 0;
}

// Writes padded rows of `width` elements by calls of `row`, one for each component. Its arguments are: where the padded
// elements of the component begin, how many there are, where its packed elements begin, and how many of these fit.
template <class T, class Row>
int64_t padded(const int64_t* offsets, T* out, int64_t components, int64_t rows, int64_t most, int64_t width,
               int32_t threads, const Row& row) {
  if (are_wrong(offsets, components, rows)) return -1;
  const int64_t all = most * width;
  advise(out, components * all * sizeof(T));
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    const int64_t first = offsets[b] * width;
    row(b * all, all, first, std::min(offsets[b + 1] * width - first, all));
  }
  return 0;
}

// Adds packed x and padded y into padded rows; x counts as 0 where it has no element.
template <class T>
int64_t padded_sum(const T* x, const T* y, const int64_t* offsets, T* out, int64_t components, int64_t rows,
                   int64_t most, int64_t width, int32_t threads) {
  return padded(offsets, out, components, rows, most, width, threads,
                [=](int64_t at, int64_t all, int64_t first, int64_t have) {
                  combine<Add>(x + first, y + at, out + at, have);
                  keep_alone<Add>(y + at + have, out + at + have, all - have);
                });
}

// Multiplies packed x and packed z into padded rows; all other elements become 0.
template <class T>
int64_t padded_product(const T* x, const T* z, const int64_t* offsets, T* out, int64_t components, int64_t rows,
                       int64_t most, int64_t width, int32_t threads) {
  return padded(offsets, out, components, rows, most, width, threads,
                [=](int64_t at, int64_t all, int64_t first, int64_t have) {
                  combine<Multiply>(x + first, z + first, out + at, have);
                  std::fill(out + at + have, out + at + all, T(0));
                });
}

}  // namespace

SERRATE_EXPORT(total, total)
SERRATE_EXPORT(pad, pad)
SERRATE_EXPORT(unpad, unpad)

#define SERRATE_FOR_NUMBERS(NAME, T)                          \
  SERRATE_EXPORT(packed_sum_##NAME, packed<Add, T>)           \
  SERRATE_EXPORT(packed_product_##NAME, packed<Multiply, T>)  \
  SERRATE_EXPORT(padded_sum_##NAME, padded_sum<T>)            \
  SERRATE_EXPORT(padded_product_##NAME, padded_product<T>)

SERRATE_FOR_NUMBERS(float32, float)
SERRATE_FOR_NUMBERS(float64, double)
SERRATE_FOR_NUMBERS(int32, int32_t)
SERRATE_FOR_NUMBERS(int64, int64_t)
