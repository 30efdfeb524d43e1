// This file computes softmax of the rows of each component, for each column, its logarithm, the gradients of both, and
// the logarithm of the sum of exponentials.
//
// All of them have one form: a sum over the rows of a column, and a result for each row that needs this sum. Sums of
// float32 are added up in float64, groups of four rows first; sums of float64 are added up in groups of 64 rows. For
// wrong offsets a function returns -1 and writes nothing.

#include "runs.h"
#include "vectors.h"

namespace {

template <class T>
constexpr int64_t kGroup = std::is_same_v<T, float> ? 4 : 64;

// A form says which terms are added for a vector of elements x and others y beside them, given the greatest x of each
// column; what is made of the sum; and what the elements become. With kTop the greatest is subtracted, so that nothing
// overflows, with kKept the terms are written first and become the result, and with kBeside there is a y.
struct Softmax {
  static constexpr bool kTop = true, kKept = true, kBeside = false;
  template <class X>
  static SERRATE_INLINE X term(const X& x, const X&, const X& top) { return exp_of(x - top); }
  static SERRATE_INLINE double ready(double sum) { return 1 / sum; }
  template <class X>
  static SERRATE_INLINE X result(const X& term, const X&, const X&, const X& sum) { return term * sum; }
};

struct LogSoftmax {
  static constexpr bool kTop = true, kKept = false, kBeside = false;
  template <class X>
  static SERRATE_INLINE X term(const X& x, const X&, const X& top) { return exp_of(x - top); }
  static SERRATE_INLINE double ready(double sum) { return log_of(sum); }
  template <class X>
  static SERRATE_INLINE X result(const X& x, const X&, const X& top, const X& sum) { return (x - top) - sum; }
};

// In gradients x is the gradient of the result, and y is the result.
struct SoftmaxGradient {
  static constexpr bool kTop = false, kKept = false, kBeside = true;
  template <class X>
  static SERRATE_INLINE X term(const X& x, const X& y, const X&) { return x * y; }
  static SERRATE_INLINE double ready(double sum) { return sum; }
  template <class X>
  static SERRATE_INLINE X result(const X& x, const X& y, const X&, const X& sum) { return y * (x - sum); }
};

struct LogSoftmaxGradient {
  static constexpr bool kTop = false, kKept = false, kBeside = true;
  template <class X>
  static SERRATE_INLINE X term(const X& x, const X&, const X&) { return x; }
  static SERRATE_INLINE double ready(double sum) { return sum; }
  template <class X>
  static SERRATE_INLINE X result(const X& x, const X& y, const X&, const X& sum) { return x - exp_of(y) * sum; }
};

// This form has one result for each column. Where the greatest is infinite, 0 takes its place, so that the sum tells
// whether the result is infinite or NaN.
struct LogSum {
  static constexpr bool kTop = true, kKept = false, kBeside = false;
  template <class X>
  static SERRATE_INLINE X term(const X& x, const X&, const X& top) { return exp_of(x - top); }
  static SERRATE_INLINE double ready(double sum) {
    return sum == 0 ? -std::numeric_limits<double>::infinity() : log_of(sum);
  }
  template <class T>
  static SERRATE_INLINE T finite(T top) { return top - top == 0 ? top : T(0); }
};

// The element x that stands where there is none: its term is 0.
template <class Form, class T>
constexpr T kNone = Form::kTop ? -std::numeric_limits<T>::infinity() : T(0);

// Finds the greatest number at each place of the lines of a piece. If one is NaN, this does not matter: the sum is then.
template <class T>
void find_top(const T* x, const Lines& lines, int64_t piece, T* top) {
  std::fill(top, top + kTile, -std::numeric_limits<T>::infinity());
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
  std::fill(sums, sums + kTile, 0.0);
  each_block(lines, piece, [&](int64_t at, int64_t count, auto columns) {
    for (int64_t i = 0; i < count; i += kGroup<T>) {
      Numbers<T> group[kTile / kNumbers<T>] = {};
      for (int64_t k = i; k < std::min(i + kGroup<T>, count); ++k) {
        const int64_t first = at + k * lines.stride;
        each_vector<T>(columns, [&](int64_t j, auto whole, int64_t size) {
          const Numbers<T> line = load_some<whole>(x + first + j, size, kNone<Form, T>);
          const Numbers<T> beside = Form::kBeside ? load_some<whole>(y + first + j, size) : line;
          const Numbers<T> term = Form::term(line, beside, load<T>(top + j));
          if (Form::kKept) store_some<whole>(out + first + j, term, size);
          group[j / kNumbers<T>] += term;
        });
      }
      T terms[kTile];
      std::memcpy(terms, group, sizeof(terms));
      for (int64_t j = 0; j < kTile; ++j) sums[j] += terms[j];
    }
  });
}

template <class Form, class T>
void write_results(const T* x, const T* y, const Lines& lines, int64_t piece, const T* top, const T* sums, T* out) {
  each_block(lines, piece, [&](int64_t at, int64_t count, auto columns) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = at + i * lines.stride;
      each_vector<T>(columns, [&](int64_t j, auto whole, int64_t size) {
        T* made = out + first + j;
        const Numbers<T> line = load_some<whole>(Form::kKept ? made : x + first + j, size);
        const Numbers<T> beside = Form::kBeside ? load_some<whole>(y + first + j, size) : line;
        store_some<whole>(made, Form::result(line, beside, load<T>(top + j), load<T>(sums + j)), size);
      });
    }
  });
}

template <class T>
SERRATE_INLINE Numbers<T> greater(const Numbers<T>& a, const Numbers<T>& b) { return b > a ? b : a; }

template <class T>
SERRATE_INLINE Numbers<T> added(const Numbers<T>& a, const Numbers<T>& b) { return a + b; }

// What is known of each piece of a tile: the greatest numbers, and sums.
template <class T>
struct Known {
  T top[kTile];
  double sums[kTile];
};

// Finds the greatest number of each column, and what is made of its sum, at each place of a line.
template <class Form, class T>
void sum_tile(const T* x, const T* y, const Lines& lines, int64_t threads, Known<T>* known, T* out) {
  const int64_t pieces = lines.pieces(), places = lines.used();
  if (Form::kTop) {
    each_piece(lines, threads, [&](int64_t p) { find_top(x, lines, p, known[p].top); });
    for (int64_t p = 1; p < pieces; ++p) {
      for (int64_t j = 0; j < places; ++j) known->top[j] = std::max(known->top[j], known[p].top[j]);
    }
    fold(known->top, lines, [](T a, T b) { return a > b ? a : b; }, [](T a) { return a; });
  } else {
    std::fill(known->top, known->top + kTile, T(0));
  }
  if constexpr (std::is_same_v<Form, LogSum>) {
    for (int64_t j = 0; j < places; ++j) known->top[j] = Form::finite(known->top[j]);
  }
  each_piece(lines, threads, [&](int64_t p) { add_terms<Form>(x, y, lines, p, known->top, out, known[p].sums); });
  for (int64_t step = 1; step < pieces; step *= 2) {
    for (int64_t p = 0; p + step < pieces; p += 2 * step) {
      for (int64_t j = 0; j < places; ++j) known[p].sums[j] += known[p + step].sums[j];
    }
  }
  fold(known->sums, lines, [](double a, double b) { return a + b; }, [](double sum) { return Form::ready(sum); });
}

template <class Form, class T>
void write_tile(const T* x, const T* y, const Lines& lines, int64_t threads, Known<T>* known, T* out) {
  sum_tile<Form>(x, y, lines, threads, known, out);
  T sums[kTile] = {};
  for (int64_t j = 0; j < lines.used(); ++j) sums[j] = static_cast<T>(known->sums[j]);
  each_piece(lines, threads, [&](int64_t p) { write_results<Form>(x, y, lines, p, known->top, sums, out); });
}

// The same for one column of at most kVectors vectors of rows: all of it stays in registers.
template <class Form, int kVectors, class T>
SERRATE_APART void write_short(const T* x, const T* y, int64_t rows, T* out) {
  constexpr int64_t kLast = (kVectors - 1) * kNumbers<T>;
  const int64_t rest = rows - kLast;
  Numbers<T> given[kVectors], beside[kVectors], terms[kVectors], sum = {};
#pragma GCC unroll 8
  for (int v = 0; v < kVectors - 1; ++v) given[v] = load(x + v * kNumbers<T>);
  given[kVectors - 1] = load_first(x + kLast, rest, kNone<Form, T>);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors - 1; ++v) beside[v] = Form::kBeside ? load(y + v * kNumbers<T>) : given[v];
  beside[kVectors - 1] = Form::kBeside ? load_first(y + kLast, rest, T(0)) : given[kVectors - 1];
  Numbers<T> top = {};
  if (Form::kTop) {
    top = given[0];
#pragma GCC unroll 8
    for (int v = 1; v < kVectors; ++v) top = given[v] > top ? given[v] : top;
    top = all(combined<T>(top, greater<T>));
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) sum += terms[v] = Form::term(given[v], beside[v], top);
  const double total = combined<T>(sum, added<T>);
  const Numbers<T> ready = all(static_cast<T>(Form::ready(total)));
  const auto result = [&](int v) { return Form::result(Form::kKept ? terms[v] : given[v], beside[v], top, ready); };
#pragma GCC unroll 8
  for (int v = 0; v < kVectors - 1; ++v) store(out + v * kNumbers<T>, result(v));
  store_first(out + kLast, result(kVectors - 1), rest);
}

// Returns the greatest number of one column; if one is NaN, this may be any other.
template <class T>
SERRATE_INLINE T top_of_column(const T* x, int64_t rows) {
  constexpr T kLeast = -std::numeric_limits<T>::infinity();
  Numbers<T> top = all(kLeast);
  each_vector<T>(rows, [&](int64_t i, auto whole, int64_t size) {
    const Numbers<T> given = load_some<whole>(x + i, size, kLeast);
    top = given > top ? given : top;
  });
  return combined<T>(top, greater<T>);
}

// Returns the sum of the terms of one column.
template <class Form, class T>
SERRATE_INLINE double total_of_column(const T* x, const T* y, int64_t rows, const Numbers<T>& top, T* out) {
  constexpr int64_t kPart = 16 * kNumbers<T>;
  double total = 0;
  for (int64_t first = 0; first < rows; first += kPart) {
    Numbers<T> part = {};
    each_vector<T>(std::min(kPart, rows - first), [&](int64_t j, auto whole, int64_t size) {
      const int64_t i = first + j;
      const Numbers<T> given = load_some<whole>(x + i, size, kNone<Form, T>);
      const Numbers<T> term = Form::term(given, Form::kBeside ? load_some<whole>(y + i, size) : given, top);
      if (Form::kKept) store_some<whole>(out + i, term, size);
      part += term;
    });
    total += combined<T>(part, added<T>);
  }
  return total;
}

// The same as write_short for one column of any number of rows.
template <class Form, class T>
SERRATE_APART void write_long(const T* x, const T* y, int64_t rows, T* out) {
  const Numbers<T> top = all(Form::kTop ? top_of_column(x, rows) : T(0));
  const Numbers<T> ready = all(static_cast<T>(Form::ready(total_of_column<Form>(x, y, rows, top, out))));
  each_vector<T>(rows, [&](int64_t i, auto whole, int64_t size) {
    const Numbers<T> given = load_some<whole>(Form::kKept ? out + i : x + i, size);
    const Numbers<T> beside = Form::kBeside ? load_some<whole>(y + i, size) : given;
    store_some<whole>(out + i, Form::result(given, beside, top, ready), size);
  });
}

template <class Form, class T>
SERRATE_INLINE void write_column(const T* x, const T* y, int64_t rows, T* out) {
  switch ((rows - 1) / kNumbers<T>) {
    case 0: return write_short<Form, 1>(x, y, rows, out);
    case 1: return write_short<Form, 2>(x, y, rows, out);
    case 2: return write_short<Form, 3>(x, y, rows, out);
    case 3: return write_short<Form, 4>(x, y, rows, out);
    case 4: return write_short<Form, 5>(x, y, rows, out);
    case 5: return write_short<Form, 6>(x, y, rows, out);
    case 6: return write_short<Form, 7>(x, y, rows, out);
    case 7: return write_short<Form, 8>(x, y, rows, out);
    default: return write_long<Form>(x, y, rows, out);
  }
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
      const int64_t at = begin + first;
      const bool enough = with_memory<Known<T>>(lines, [&](Known<T>* known) {
        write_tile<Form>(x + at, y + at, lines, threads, known, out + at);
      });
      if (!enough) short_of_memory = true;
    });
  });
  return short_of_memory ? -2 : 0;
}

// Writes log(sum(exp(x))) [components, width] of x [rows, width]; it is -inf of no rows. Returns -2 without memory.
template <class T>
int64_t log_sums(const T* x, const int64_t* offsets, int64_t components, int64_t rows, int64_t width, T* out,
                 int64_t threads) {
  if (!are_runs(offsets, components, rows)) return -1;
  std::fill(out, out + components * width, -std::numeric_limits<T>::infinity());
  bool short_of_memory = false;
  each_run(offsets, components, threads, [&](int64_t c, int64_t threads) {
    const T* given = x + offsets[c] * width;
    T* made = out + c * width;
    const int64_t rows = offsets[c + 1] - offsets[c];
    if (width == 1 && rows <= kPiece) {
      const T top = LogSum::finite(top_of_column(given, rows));
      *made = static_cast<T>(top + LogSum::ready(total_of_column<LogSum>(given, given, rows, all(top), made)));
      return;
    }
    each_tile(rows, width, [&](int64_t first, const Lines& lines) {
      const bool enough = with_memory<Known<T>>(lines, [&](Known<T>* known) {
        sum_tile<LogSum>(given + first, given + first, lines, threads, known, made);
        for (int64_t j = 0; j < lines.width; ++j) made[first + j] = static_cast<T>(known->top[j] + known->sums[j]);
      });
      if (!enough) short_of_memory = true;
    });
  });
  return short_of_memory ? -2 : 0;
}

}  // namespace

#define SERRATE_FOR_NUMBERS(NAME, T)                                 \
  SERRATE_EXPORT(softmax_##NAME, of_runs<Softmax, T>)                \
  SERRATE_EXPORT(log_softmax_##NAME, of_runs<LogSoftmax, T>)         \
  SERRATE_EXPORT(softmax_gradient_##NAME, of_runs<SoftmaxGradient, T>) \
  SERRATE_EXPORT(log_softmax_gradient_##NAME, of_runs<LogSoftmaxGradient, T>) \
  SERRATE_EXPORT(log_sums_##NAME, log_sums<T>)

SERRATE_FOR_NUMBERS(float32, float)
SERRATE_FOR_NUMBERS(float64, double)
