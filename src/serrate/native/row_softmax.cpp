// This file computes softmax of the rows of each component, for each column, its logarithm, and the gradients of both.
//
// All of them have one form: a sum over the rows of a column, and a result for each row that needs this sum. Sums of
// float32 are added up in float64, groups of four rows first; sums of float64 are added up in groups of 64 rows. For
// wrong offsets a function returns -1 and writes nothing.

#include "../runtime/exponential.h"
#include "runs.h"

namespace {

template <class T>
constexpr int64_t kGroup = std::is_same_v<T, float> ? 4 : 64;

// A form says which terms are added for an element x and another one y beside it, given the greatest x of the column;
// what is made of the sum; and what an element becomes. With kTop the greatest is subtracted, so that nothing overflows,
// and with kKept the terms are written first and become the result.
struct Softmax {
  static constexpr bool kTop = true, kKept = true;
  template <class T>
  static SERRATE_INLINE T term(T x, T, T top) { return sr::exp(x - top); }
  static double ready(double sum) { return 1 / sum; }
  template <class T>
  static SERRATE_INLINE T result(T term, T, T, T sum) { return term * sum; }
};

struct LogSoftmax {
  static constexpr bool kTop = true, kKept = false;
  template <class T>
  static SERRATE_INLINE T term(T x, T, T top) { return sr::exp(x - top); }
  static double ready(double sum) { return std::log(sum); }
  template <class T>
  static SERRATE_INLINE T result(T x, T, T top, T sum) { return (x - top) - sum; }
};

// In gradients x is the gradient of the result, and y is the result.
struct SoftmaxGradient {
  static constexpr bool kTop = false, kKept = false;
  template <class T>
  static SERRATE_INLINE T term(T x, T y, T) { return x * y; }
  static double ready(double sum) { return sum; }
  template <class T>
  static SERRATE_INLINE T result(T x, T y, T, T sum) { return y * (x - sum); }
};

struct LogSoftmaxGradient {
  static constexpr bool kTop = false, kKept = false;
  template <class T>
  static SERRATE_INLINE T term(T x, T, T) { return x; }
  static double ready(double sum) { return sum; }
  template <class T>
  static SERRATE_INLINE T result(T x, T y, T, T sum) { return x - sr::exp(y) * sum; }
};

// Finds the greatest number at each place of the lines of a piece. If one is NaN, this does not matter: the sum is then.
template <class T>
void find_top(const T* x, const Lines& lines, int64_t piece, T* top) {
  std::fill(top, top + lines.used(), -std::numeric_limits<T>::infinity());
  each_block(lines, piece, [&](int64_t at, int64_t count, auto columns) {
    T found[kTile];
    for (int64_t j = 0; j < columns; ++j) found[j] = top[j];
    for (int64_t i = 0; i < count; ++i) {
      const T* line = x + at + i * lines.stride;
      for (int64_t j = 0; j < columns; ++j) found[j] = line[j] > found[j] ? line[j] : found[j];
    }
    for (int64_t j = 0; j < columns; ++j) top[j] = found[j];
  });
}

template <class Form, class T>
void add_terms(const T* x, const T* y, const Lines& lines, int64_t piece, const T* top, T* out, double* sums) {
  std::fill(sums, sums + lines.used(), 0.0);
  each_block(lines, piece, [&](int64_t at, int64_t count, auto columns) {
    for (int64_t i = 0; i < count; i += kGroup<T>) {
      T group[kTile];
      for (int64_t j = 0; j < columns; ++j) group[j] = 0;
      for (int64_t k = i; k < std::min(i + kGroup<T>, count); ++k) {
        const int64_t first = at + k * lines.stride;
        const T *line = x + first, *beside = y + first;
        T* kept = out + first;
#pragma GCC ivdep
        for (int64_t j = 0; j < columns; ++j) {
          const T term = Form::term(line[j], beside[j], top[j]);
          if (Form::kKept) kept[j] = term;
          group[j] += term;
        }
      }
      for (int64_t j = 0; j < columns; ++j) sums[j] += group[j];
    }
  });
}

template <class Form, class T>
void write_results(const T* x, const T* y, const Lines& lines, int64_t piece, const T* top, const T* sums, T* out) {
  each_block(lines, piece, [&](int64_t at, int64_t count, auto columns) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = at + i * lines.stride;
      T* made = out + first;
      const T *line = Form::kKept ? made : x + first, *beside = y + first;
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) made[j] = Form::result(line[j], beside[j], top[j], sums[j]);
    }
  });
}

// What is known of each piece of a tile: the greatest numbers, and sums.
template <class T>
struct Known {
  T top[kTile];
  double sums[kTile];
};

template <class Form, class T>
void write_tile(const T* x, const T* y, const Lines& lines, int64_t threads, Known<T>* known, T* out) {
  const int64_t pieces = lines.pieces(), places = lines.used();
  if (Form::kTop) {
    each_piece(lines, threads, [&](int64_t p) { find_top(x, lines, p, known[p].top); });
    for (int64_t p = 1; p < pieces; ++p) {
      for (int64_t j = 0; j < places; ++j) known->top[j] = std::max(known->top[j], known[p].top[j]);
    }
    fold(known->top, lines, [](T a, T b) { return a > b ? a : b; }, [](T a) { return a; });
  } else {
    std::fill(known->top, known->top + places, T(0));
  }
  each_piece(lines, threads, [&](int64_t p) { add_terms<Form>(x, y, lines, p, known->top, out, known[p].sums); });
  for (int64_t step = 1; step < pieces; step *= 2) {
    for (int64_t p = 0; p + step < pieces; p += 2 * step) {
      for (int64_t j = 0; j < places; ++j) known[p].sums[j] += known[p + step].sums[j];
    }
  }
  fold(known->sums, lines, [](double a, double b) { return a + b; }, Form::ready);
  T sums[kTile];
  for (int64_t j = 0; j < places; ++j) sums[j] = static_cast<T>(known->sums[j]);
  each_piece(lines, threads, [&](int64_t p) { write_results<Form>(x, y, lines, p, known->top, sums, out); });
}

// The same for one column of few rows, which are a vector: what is known of them fits into registers.
template <class Form, class T>
void write_column(const T* x, const T* y, int64_t rows, T* out) {
  T top = Form::kTop ? -std::numeric_limits<T>::infinity() : T(0);
  if (Form::kTop) {
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < rows; ++i) top = x[i] > top ? x[i] : top;
  }
  double total = 0;
  for (int64_t first = 0; first < rows; first += kTile * kGroup<T>) {
    const int64_t last = std::min(first + kTile * kGroup<T>, rows);
    T part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = first; i < last; ++i) {
      const T term = Form::term(x[i], y[i], top);
      if (Form::kKept) out[i] = term;
      part += term;
    }
    total += part;
  }
  const T sum = static_cast<T>(Form::ready(total));
#pragma omp simd
  for (int64_t i = 0; i < rows; ++i) out[i] = Form::result(Form::kKept ? out[i] : x[i], y[i], top, sum);
}

// Writes the results of x [rows, width] and y beside it; rows of no component become 0. Returns -2 without memory.
template <class Form, class T>
int64_t of_runs(const T* x, const T* y, const int64_t* offsets, int64_t components, int64_t rows, int64_t width, T* out,
                int64_t threads) {
  if (!are_runs(offsets, components, rows)) return -1;
  advise(out, rows * width * sizeof(T));
  clear_others(offsets, components, rows, width, out);
  bool short_of_memory = false;
  each_run(offsets, components, threads, [&](int64_t c, int64_t threads) {
    const int64_t begin = offsets[c] * width, rows = offsets[c + 1] - offsets[c];
    if (width == 1 && rows <= kPiece) return write_column<Form>(x + begin, y + begin, rows, out + begin);
    each_tile(rows, width, [&](int64_t first, const Lines& lines) {
      Known<T> one;
      std::unique_ptr<Known<T>[]> many;
      if (lines.pieces() > 1) many.reset(new (std::nothrow) Known<T>[lines.pieces()]);
      if (lines.pieces() > 1 && !many) {
        short_of_memory = true;
        return;
      }
      const int64_t at = begin + first;
      write_tile<Form>(x + at, y + at, lines, threads, many ? many.get() : &one, out + at);
    });
  });
  return short_of_memory ? -2 : 0;
}

}  // namespace

#define SERRATE_FOR_NUMBERS(NAME, T)                                 \
  SERRATE_EXPORT(softmax_##NAME, of_runs<Softmax, T>)                \
  SERRATE_EXPORT(log_softmax_##NAME, of_runs<LogSoftmax, T>)         \
  SERRATE_EXPORT(softmax_gradient_##NAME, of_runs<SoftmaxGradient, T>) \
  SERRATE_EXPORT(log_softmax_gradient_##NAME, of_runs<LogSoftmaxGradient, T>)

SERRATE_FOR_NUMBERS(float32, float)
SERRATE_FOR_NUMBERS(float64, double)
