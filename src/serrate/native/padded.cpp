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

// ------------------------------------------------------------------------------------------------ padding and packing

constexpr int64_t kDeepest = 16;

// One level of cells inside cells: offsets cut them, or without offsets each cell outside has `size` of them. The padded
// memory has room for `size` cells in each cell outside, of which there are `components`.
struct Level {
  const int64_t* offsets;
  int64_t components, size;
  int64_t first(int64_t cell) const { return offsets ? offsets[cell] : cell * size; }
  int64_t count(int64_t cell) const { return offsets ? offsets[cell + 1] - offsets[cell] : size; }
};

// Levels, outermost first; the cells of the last one are packed rows of `width` bytes.
struct Grid {
  Level levels[kDeepest];
  int64_t bytes[kDeepest];  // what a cell of each level has in the padded memory
  int64_t depth, width, end = -1;
  const char* filling;
  int64_t size;

  // Sets `end` to the number of rows in a component; it stays -1 if offsets are wrong or end past `rows`.
  Grid(const Level& outer, const Level* inner, int64_t more, int64_t rows, int64_t width, const char* filling,
       int64_t size)
      : depth(more + 1), width(width), filling(filling), size(size) {
    if (depth > kDeepest) return;
    levels[0] = outer;
    std::copy(inner, inner + more, levels + 1);
    int64_t cells = outer.components;
    for (int64_t d = 0; d < depth; ++d) {
      const Level& level = levels[d];
      if (cells > level.components) return;
      cells = level.offsets ? total(level.offsets, cells + 1) : cells * level.size;
      if (cells < 0) return;
    }
    bytes[depth - 1] = width;
    for (int64_t d = depth - 1; d > 0; --d) bytes[d - 1] = bytes[d] * levels[d].size;
    if (cells <= rows) end = cells;
  }

  // Pads the rows first .. first + count.
  void pad_rows(const char* packed, int64_t first, int64_t count, int64_t most, char* out) const {
    const int64_t have = std::min(count, most) * width, all = most * width;
    copy(out, packed + first * width, have);
    fill(out + have, all - have, filling, size);
  }

  // Packs the rows first .. first + count, of which `most` have a place in the padded memory.
  void unpad_rows(const char* in, int64_t first, int64_t count, int64_t most, char* packed) const {
    const int64_t all = count * width, have = std::min(count, most) * width;
    char* out = packed + first * width;
    copy(out, in, have);
    fill(out + have, all - have, filling, size);
  }

  SERRATE_APART void pad(const char* packed, int64_t d, int64_t cell, char* out) const {
    const Level& level = levels[d];
    const int64_t first = level.first(cell), have = std::min(level.count(cell), level.size);
    if (d == depth - 1) return pad_rows(packed, first, have, level.size, out);
    for (int64_t i = 0; i < have; ++i) pad(packed, d + 1, first + i, out + i * bytes[d]);
    fill(out + have * bytes[d], (level.size - have) * bytes[d], filling, size);
  }

  // Packs a cell; without a place in the padded memory, `in` is null.
  SERRATE_APART void unpad(const char* in, int64_t d, int64_t cell, char* packed) const {
    const Level& level = levels[d];
    const int64_t first = level.first(cell), count = level.count(cell), have = in ? std::min(count, level.size) : 0;
    if (d == depth - 1) return unpad_rows(in, first, count, have, packed);
    for (int64_t i = 0; i < count; ++i) unpad(i < have ? in + i * bytes[d] : nullptr, d + 1, first + i, packed);
  }
};

// Writes padded rows of `width` bytes from packed ones. `filling` is one element of `size` bytes, or null for zeros.
// Inside the level of the offsets there are `more` levels.
int64_t pad(const char* packed, const int64_t* offsets, char* padded, int64_t components, int64_t rows, int64_t most,
            int64_t width, const char* filling, int64_t size, int32_t threads, const Level* inner, int64_t more) {
  const Grid grid({offsets, components, most}, inner, more, rows, width, filling, size);
  if (grid.end < 0) return -1;
  const int64_t all = most * grid.bytes[0];
  advise(padded, components * all);
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    if (more) grid.pad(packed, 0, b, padded + b * all);
    else grid.pad_rows(packed, offsets[b], offsets[b + 1] - offsets[b], most, padded + b * all);
  }
  return 0;
}

// Writes packed rows from padded ones. Rows without a place there, and those past the last offset, are filled.
int64_t unpad(const char* padded, const int64_t* offsets, char* packed, int64_t components, int64_t rows, int64_t most,
              int64_t width, const char* filling, int64_t size, int32_t threads, const Level* inner, int64_t more) {
  const Grid grid({offsets, components, most}, inner, more, rows, width, filling, size);
  if (grid.end < 0) return -1;
  const int64_t all = most * grid.bytes[0];
  advise(packed, rows * width);
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    if (more) grid.unpad(padded + b * all, 0, b, packed);
    else grid.unpad_rows(padded + b * all, offsets[b], offsets[b + 1] - offsets[b], most, packed);
  }
  fill(packed + grid.end * width, (rows - grid.end) * width, filling, size);
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
