// This file scans the rows of each component, column by column: running sums, products, extremes, and recurrences.
//
// Running sums of float32 are kept in float64. Those of float64 are added up in groups of rows, and what rounding takes
// from the sum of all groups before is kept beside it. For wrong offsets a function returns -1 and writes nothing.

#include "runs.h"

namespace {

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float>, double, T>;

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

// The rows of one component in the order in which they are scanned: row i lies at start + i · step.
struct Order {
  int64_t start, step, rows;
};

// Adds x to a sum; `rest` collects what rounding takes from it, so that sum + rest loses nothing to the number of rows.
template <class T>
inline void add(T& sum, T& rest, T x) {
  const T next = sum + x, part = next - sum;
  rest += (sum - (next - part)) + (x - part);
  sum = next;
}

// Returns sum + rest; the rest of an infinite sum is not a number.
template <class T>
inline T whole(T sum, T rest) {
  return rest - rest == 0 ? sum + rest : sum;
}

// A scan keeps a state for each of up to kTile columns, and writes a line of results for each line of values.

// Sums of types that are wide enough: integers, and float32 in float64.
struct WideSums {
  template <class T, class Columns>
  static void scan(const T* x, T* out, const Order& order, Columns columns) {
    Wide<T> sums[kTile];
    for (int64_t j = 0; j < columns; ++j) sums[j] = 0;
    for (int64_t i = 0; i < order.rows; ++i) {
      const int64_t at = order.start + i * order.step;
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) out[at + j] = static_cast<T>(sums[j] += x[at + j]);
    }
  }
};

// Sums of float64.
struct CarriedSums {
  static constexpr int64_t kGroup = 8;  // rows
  template <class Columns>
  static void scan(const double* x, double* out, const Order& order, Columns columns) {
    double sums[kTile], rests[kTile], before[kTile], group[kTile];
    for (int64_t j = 0; j < columns; ++j) sums[j] = rests[j] = 0;
    for (int64_t first = 0; first < order.rows; first += kGroup) {
      for (int64_t j = 0; j < columns; ++j) group[j] = 0, before[j] = whole(sums[j], rests[j]);
      for (int64_t i = first; i < std::min(first + kGroup, order.rows); ++i) {
        const int64_t at = order.start + i * order.step;
#pragma GCC ivdep
        for (int64_t j = 0; j < columns; ++j) out[at + j] = before[j] + (group[j] += x[at + j]);
      }
      for (int64_t j = 0; j < columns; ++j) add(sums[j], rests[j], group[j]);
    }
  }
};

struct Products {
  template <class T, class Columns>
  static void scan(const T* x, T* out, const Order& order, Columns columns) {
    Wide<T> products[kTile];
    for (int64_t j = 0; j < columns; ++j) products[j] = 1;
    for (int64_t i = 0; i < order.rows; ++i) {
      const int64_t at = order.start + i * order.step;
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) out[at + j] = static_cast<T>(products[j] *= x[at + j]);
    }
  }
};

// ----------------------------------------------------------------------------------------------- rows of one number

constexpr int kLanes = 8;
template <class T>
using Vector __attribute__((vector_size(kLanes * sizeof(T)))) = T;

#ifdef __clang__
#define SERRATE_MOVED(V, ...) __builtin_shufflevector(Vector<W>{}, V, __VA_ARGS__)
#else
#define SERRATE_MOVED(V, ...) __builtin_shuffle(Vector<W>{}, V, Vector<Bits<W>>{__VA_ARGS__})
#endif

// Returns the running sums of the numbers of a vector, from its first lane on or from its last.
template <bool kBack, class W>
inline Vector<W> running(Vector<W> v) {
  if constexpr (kBack) {
    v += SERRATE_MOVED(v, 9, 10, 11, 12, 13, 14, 15, 0);
    v += SERRATE_MOVED(v, 10, 11, 12, 13, 14, 15, 0, 0);
    v += SERRATE_MOVED(v, 12, 13, 14, 15, 0, 0, 0, 0);
  } else {
    v += SERRATE_MOVED(v, 0, 8, 9, 10, 11, 12, 13, 14);
    v += SERRATE_MOVED(v, 0, 0, 8, 9, 10, 11, 12, 13);
    v += SERRATE_MOVED(v, 0, 0, 0, 0, 8, 9, 10, 11);
  }
  return v;
}

// Scans `count` numbers that lie one behind the other: whole vectors first, then one number after the other.
template <bool kBack, class T>
void sum_numbers(const T* x, T* out, int64_t count) {
  using W = Wide<T>;
  W sum = 0, rest = 0;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const int64_t at = kBack ? count - i - kLanes : i;
    Vector<T> given;
    std::memcpy(&given, x + at, sizeof(given));
    const Vector<W> sums = running<kBack, W>(__builtin_convertvector(given, Vector<W>));
    const W carried = std::is_same_v<T, double> ? whole(sum, rest) : sum;
    const Vector<T> made = __builtin_convertvector(sums + carried, Vector<T>);
    std::memcpy(out + at, &made, sizeof(made));
    const W all = sums[kBack ? 0 : kLanes - 1];
    if constexpr (std::is_same_v<T, double>) add(sum, rest, all);
    else sum += all;
  }
  W group = 0;
  const W carried = std::is_same_v<T, double> ? whole(sum, rest) : sum;
  for (; i < count; ++i) {
    const int64_t at = kBack ? count - 1 - i : i;
    group += x[at];
    out[at] = static_cast<T>(carried + group);
  }
}

// --------------------------------------------------------------------------------------------------- all components

// Calls function(order, first, columns) for each tile of columns of a component; the number of columns is a constant
// where a tile is whole.
template <class Function>
inline void each_column(int64_t rows, int64_t width, bool back, const Function& function) {
  const Order order{back ? (rows - 1) * width : 0, back ? -width : width, rows};
  for (int64_t first = 0; first < width; first += kTile) {
    if (width - first >= kTile) function(order, first, std::integral_constant<int64_t, kTile>());
    else function(order, first, width - first);
  }
}

template <class Scan, class T>
int64_t of_runs(const T* x, const int64_t* offsets, int64_t components, int64_t rows, int64_t width, T* out,
                int64_t back, int64_t threads) {
  if (!are_runs(offsets, components, rows)) return -1;
  advise(out, rows * width * sizeof(T));
  clear_others(offsets, components, rows, width, out);
  each_run(offsets, components, threads, [&](int64_t c, int64_t) {
    const int64_t begin = offsets[c] * width, count = offsets[c + 1] - offsets[c];
    if constexpr (!std::is_same_v<Scan, Products>) {
      if (width == 1) {
        return back ? sum_numbers<true>(x + begin, out + begin, count) : sum_numbers<false>(x + begin, out + begin, count);
      }
    }
    each_column(count, width, back, [&](const Order& order, int64_t first, auto columns) {
      Scan::scan(x + begin + first, out + begin + first, order, columns);
    });
  });
  return 0;
}

// Computes out = b + a · (out before it) in each component; the first row of a component is that of b.
template <class T>
int64_t recurrence(const T* a, const T* b, const int64_t* offsets, int64_t components, int64_t rows, int64_t width,
                   T* out, int64_t back, int64_t threads) {
  if (!are_runs(offsets, components, rows)) return -1;
  advise(out, rows * width * sizeof(T));
  clear_others(offsets, components, rows, width, out);
  each_run(offsets, components, threads, [&](int64_t c, int64_t) {
    const int64_t begin = offsets[c] * width;
    each_column(offsets[c + 1] - offsets[c], width, back, [&](const Order& order, int64_t first, auto columns) {
      T state[kTile];
      for (int64_t i = 0; i < order.rows; ++i) {
        const int64_t at = begin + first + order.start + i * order.step;
#pragma GCC ivdep
        for (int64_t j = 0; j < columns; ++j) {
          state[j] = i ? b[at + j] + a[at + j] * state[j] : b[at + j];
          out[at + j] = state[j];
        }
      }
    });
  });
  return 0;
}

// Finds the greatest (least) of each element and all before it in its component, and the last position it stands at.
// NaN is the greatest (least) of all.
template <bool kLargest, class T>
int64_t extremes(const T* x, const int64_t* offsets, int64_t components, int64_t rows, int64_t width, T* out,
                 int64_t* positions, int64_t threads) {
  if (!are_runs(offsets, components, rows) || rows > std::numeric_limits<Bits<T>>::max()) return -1;
  advise(out, rows * width * sizeof(T));
  advise(positions, rows * width * sizeof(int64_t));
  clear_others(offsets, components, rows, width, out);
  clear_others(offsets, components, rows, width, positions);
  each_run(offsets, components, threads, [&](int64_t c, int64_t) {
    const int64_t begin = offsets[c] * width;
    each_column(offsets[c + 1] - offsets[c], width, false, [&](const Order& order, int64_t first, auto columns) {
      T best[kTile];
      Bits<T> place[kTile];
      for (int64_t i = 0; i < order.rows; ++i) {
        const int64_t at = begin + first + i * order.step;
        const Bits<T> here = static_cast<Bits<T>>(i);
#pragma GCC ivdep
        for (int64_t j = 0; j < columns; ++j) {
          const T given = x[at + j];
          const bool reaches = kLargest ? given >= best[j] : given <= best[j];
          const bool taken = (i == 0) | (given != given) | ((best[j] == best[j]) & reaches);
          best[j] = taken ? given : best[j];
          place[j] = taken ? here : place[j];
          out[at + j] = best[j];
          positions[at + j] = place[j];
        }
      }
    });
  });
  return 0;
}

}  // namespace

SERRATE_EXPORT(running_sums_float32, of_runs<WideSums, float>)
SERRATE_EXPORT(running_sums_float64, of_runs<CarriedSums, double>)
SERRATE_EXPORT(running_sums_int64, of_runs<WideSums, int64_t>)
SERRATE_EXPORT(running_products_float32, of_runs<Products, float>)
SERRATE_EXPORT(running_products_float64, of_runs<Products, double>)
SERRATE_EXPORT(running_products_int64, of_runs<Products, int64_t>)
SERRATE_EXPORT(recurrence_float32, recurrence<float>)
SERRATE_EXPORT(recurrence_float64, recurrence<double>)

#define SERRATE_FOR_NUMBERS(NAME, T)               \
  SERRATE_EXPORT(running_largest_##NAME, extremes<true, T>) \
  SERRATE_EXPORT(running_least_##NAME, extremes<false, T>)

SERRATE_FOR_NUMBERS(float32, float)
SERRATE_FOR_NUMBERS(float64, double)
SERRATE_FOR_NUMBERS(int64, int64_t)
