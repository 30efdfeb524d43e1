// This file finds the greatest or least number of the rows of each component, for each column. A NaN is both.
//
// For wrong offsets a function returns -1 and writes nothing. Without memory it returns -2.

#include "runs.h"
#include "vectors.h"

namespace {

template <bool kLargest, class T>
struct Extreme {
  // What is found where there is no number.
  static constexpr T none() {
    using Limits = std::numeric_limits<T>;
    if constexpr (Limits::has_infinity) return kLargest ? -Limits::infinity() : Limits::infinity();
    else return kLargest ? Limits::min() : Limits::max();
  }

  // X is a number or a vector of them.
  template <class X>
  static SERRATE_INLINE X of(const X& given, const X& found) {
    if constexpr (std::is_integral_v<T>) {
      return (kLargest ? given > found : given < found) ? given : found;
    } else {
      return ((kLargest ? given > found : given < found) | (given != given)) ? given : found;
    }
  }
};

// What was found at each place of the lines of a piece.
template <class T>
struct Found {
  T numbers[kTile];
};

template <class Form, class T>
void search_piece(const T* x, const Lines& lines, int64_t piece, T* found) {
  std::fill(found, found + kTile, Form::none());
  each_block(lines, piece, [&](int64_t at, int64_t count, auto columns) {
    T best[kTile];
    for (int64_t j = 0; j < columns; ++j) best[j] = found[j];
    for (int64_t i = 0; i < count; ++i) {
      const T* line = x + at + i * lines.stride;
      for (int64_t j = 0; j < columns; ++j) best[j] = Form::of(line[j], best[j]);
    }
    for (int64_t j = 0; j < columns; ++j) found[j] = best[j];
  });
}

template <class Form, class T>
void search_tile(const T* x, const Lines& lines, int64_t threads, Found<T>* found, T* out) {
  each_piece(lines, threads, [&](int64_t p) { search_piece<Form>(x, lines, p, found[p].numbers); });
  for (int64_t p = 1; p < lines.pieces(); ++p) {
    for (int64_t j = 0; j < kTile; ++j) found->numbers[j] = Form::of(found[p].numbers[j], found->numbers[j]);
  }
  fold(found->numbers, lines, [](T a, T b) { return Form::of(a, b); }, [](T a) { return a; });
  std::copy(found->numbers, found->numbers + lines.width, out);
}

// Finds the number of one column, vector by vector.
template <class Form, class T>
SERRATE_INLINE T search_column(const T* x, int64_t rows) {
  Numbers<T> found = all(Form::none());
  each_vector<T>(rows, [&](int64_t i, auto whole, int64_t size) {
    found = Form::of(load_some<whole>(x + i, size, Form::none()), found);
  });
  return combined<T>(found, [](const Numbers<T>& a, const Numbers<T>& b) { return Form::of(a, b); });
}

// Writes [components, width] numbers of x [rows, width].
template <bool kLargest, class T>
int64_t extremes(const T* x, const int64_t* offsets, int64_t components, int64_t rows, int64_t width, T* out,
                 int64_t threads) {
  using Form = Extreme<kLargest, T>;
  if (!are_runs(offsets, components, rows)) return -1;
  std::fill(out, out + components * width, Form::none());
  bool short_of_memory = false;
  each_run(offsets, components, threads, [&](int64_t c, int64_t threads) {
    const T* given = x + offsets[c] * width;
    const int64_t rows = offsets[c + 1] - offsets[c];
    if (width == 1 && rows <= kPiece) {
      out[c] = search_column<Form>(given, rows);
      return;
    }
    each_tile(rows, width, [&](int64_t first, const Lines& lines) {
      const bool enough = with_memory<Found<T>>(lines, [&](Found<T>* found) {
        search_tile<Form>(given + first, lines, threads, found, out + c * width + first);
      });
      if (!enough) short_of_memory = true;
    });
  });
  return short_of_memory ? -2 : 0;
}

}  // namespace

#define SERRATE_FOR_NUMBERS(NAME, T)                 \
  SERRATE_EXPORT(largest_##NAME, extremes<true, T>)  \
  SERRATE_EXPORT(least_##NAME, extremes<false, T>)

SERRATE_FOR_NUMBERS(float32, float)
SERRATE_FOR_NUMBERS(float64, double)
SERRATE_FOR_NUMBERS(int32, int32_t)
SERRATE_FOR_NUMBERS(int64, int64_t)
