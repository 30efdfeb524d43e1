// This file sums rows as trees. At most kChain rows are added one after the other; then the sums of two such blocks are
// added, then the sums of two such pairs, and so on, so that errors grow with the logarithm of the number of rows. Rows
// of float32 are added in groups of four, and the sums of the groups are added in float64: this takes half the time of
// float64 alone. The tree depends only on sizes, so that results have the same bits for any number of threads.
#pragma once

#include "common.h"

#include <cstdlib>
#include <memory>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace {

constexpr int kLanes = 8;        // A vector has this many numbers.
constexpr int kTile = 128;       // The sums of this many columns stay in registers.
constexpr int64_t kChain = 64;   // This many rows are added one after the other.
constexpr int kLevels = 58;      // A tree has at most this many levels: this is enough for 2^63 rows.
constexpr int64_t kNarrow = 16;  // If there are at most this many columns, several rows are taken as one.
constexpr int kFirst = 4;        // This many rows of float32 are added up in float32.
constexpr int64_t kAhead = 8;    // Rows are fetched this many rows before they are added.

template <class T>
struct Sum {
  typedef T type;
};
template <>
struct Sum<float> {
  typedef double type;
};
template <class T>
using Wide = typename Sum<T>::type;

template <class T>
using Vector __attribute__((vector_size(kLanes * sizeof(T)))) = T;

template <class T>
inline Vector<T> load(const T* memory) {
  Vector<T> part;
  std::memcpy(&part, memory, sizeof(part));
  return part;
}

template <class T>
inline void store(Vector<T> part, T* memory) {
  std::memcpy(memory, &part, sizeof(part));
}

template <class T>
inline Vector<Wide<T>> widen(Vector<T> part) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return part;
  } else {
#ifdef __AVX512F__
    return _mm512_maskz_cvtps_pd(0xff, part);  // This is one instruction; compilers make four of the line below.
#else
    return __builtin_convertvector(part, Vector<Wide<T>>);
#endif
  }
}

// Returns the vector with 0 in all lanes but the first `count`, which may be negative.
template <class W>
inline Vector<W> first_of(Vector<W> part, int64_t count) {
  typedef std::conditional_t<sizeof(W) == 4, int32_t, int64_t> Lane;
  const Vector<Lane> lane = {0, 1, 2, 3, 4, 5, 6, 7};
  const Vector<W> none = {};
  return lane < static_cast<Lane>(count) ? part : none;
}

template <class W>
inline W total_of(Vector<W> sums) {
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// ------------------------------------------------------------------------------------- rows, and what is added of them

// These rows lie `stride` elements apart; `end` is the end of their memory.
template <class T>
struct Packed {
  const T* values;
  int64_t stride;
  const T* end;
  const T* row(int64_t i) const { return values + i * stride; }
  void fetch(int64_t, int64_t) const {}
  Packed from(int64_t i, int64_t column) const { return {row(i) + column, stride, end}; }
};

// These rows are named by their numbers in `order`, which has kAhead more numbers after the last row.
template <class T>
struct Picked {
  const T* values;
  int64_t stride;
  const uint32_t* order;
  const T* row(int64_t i) const { return values + order[i] * stride; }
  void fetch(int64_t i, int64_t columns) const {
    const char* memory = reinterpret_cast<const char*>(row(i + kAhead));
    for (int64_t at = 0; at < columns * int64_t(sizeof(T)); at += kLine) __builtin_prefetch(memory + at);
  }
  Picked from(int64_t i, int64_t column) const { return {values + column, stride, order + i}; }
};

// Adds the elements as they are.
struct Plain {
  template <class X>
  X operator()(X x, int64_t) const {
    return x;
  }
};

// Adds the elements as they are, but widens each before it is added: for means that are subtracted from the elements.
struct Exact : Plain {};

// Adds the squared distances of the elements from a number for each column.
template <class W>
struct Squares {
  const W* centre;
  template <class X>
  X operator()(X x, int64_t column) const {
    X middle;
    std::memcpy(&middle, centre + column, sizeof(middle));
    const X distance = x - middle;
    return distance * distance;
  }
};

// ------------------------------------------------------------------------------------------------------- trees of sums

// Adds parts in pairs, the sums of pairs in pairs, and so on. Like the digits of a binary number, each level holds a
// sum or nothing.
template <class W>
struct Tree {
  W levels[kLevels][kTile];
  int64_t parts = 0;
  int64_t width;
  explicit Tree(int64_t width) : width(width) {}

  // Adds a part, which is overwritten.
  void add(W* part) {
    int level = 0;
    for (; parts >> level & 1; ++level) {
      for (int64_t j = 0; j < width; ++j) part[j] = levels[level][j] + part[j];
    }
    std::copy(part, part + width, levels[level]);
    ++parts;
  }

  void finish(W* out) const {
    bool first = true;
    for (int level = 0; parts >> level; ++level) {
      if (!(parts >> level & 1)) continue;
      for (int64_t j = 0; j < width; ++j) out[j] = first ? levels[level][j] : levels[level][j] + out[j];
      first = false;
    }
  }
};

// Adds the rows first .. first + count one after the other, in V vectors of columns from `column` on.
template <int V, class T, class Rows, class Each>
SERRATE_APART void add_columns(const Rows& rows, int64_t first, int64_t count, int64_t column, const Each& each,
                               Wide<T>* out) {
  Vector<Wide<T>> sums[V] = {};
  int64_t i = first;
  if constexpr (std::is_same_v<Each, Plain> && !std::is_same_v<T, Wide<T>>) {
    for (; i + kFirst <= first + count; i += kFirst) {
      Vector<T> parts[V];
#pragma GCC unroll 4
      for (int r = 0; r < kFirst; ++r) {
        const T* row = rows.row(i + r) + column;
        rows.fetch(i + r, V * kLanes);
        asm volatile("" : : : "memory");  // Rows are read one by one: reading four at once is slower.
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) parts[v] = r ? parts[v] + load(row + v * kLanes) : load(row + v * kLanes);
      }
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sums[v] += widen<T>(parts[v]);
    }
  }
  for (; i < first + count; ++i) {
    const T* row = rows.row(i) + column;
    rows.fetch(i, V * kLanes);
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) sums[v] += each(widen<T>(load(row + v * kLanes)), column + v * kLanes);
  }
#pragma GCC unroll 16
  for (int v = 0; v < V; ++v) store<Wide<T>>(sums[v], out + column + v * kLanes);
}

// Adds these rows in `width` columns.
template <class T, class Rows, class Each>
SERRATE_INLINE void add_rows(const Rows& rows, int64_t first, int64_t count, int64_t width, const Each& each,
                             Wide<T>* out) {
  if (width < kLanes) {
    std::fill(out, out + width, Wide<T>(0));
    for (int64_t i = first; i < first + count; ++i) {
      const T* row = rows.row(i);
      rows.fetch(i, width);
      for (int64_t j = 0; j < width; ++j) out[j] += each(static_cast<Wide<T>>(row[j]), j);
    }
    return;
  }
  int64_t j = 0;
  if (width - j >= 16 * kLanes) add_columns<16, T>(rows, first, count, j, each, out), j += 16 * kLanes;
  if (width - j >= 8 * kLanes) add_columns<8, T>(rows, first, count, j, each, out), j += 8 * kLanes;
  if (width - j >= 4 * kLanes) add_columns<4, T>(rows, first, count, j, each, out), j += 4 * kLanes;
  for (; width - j >= kLanes; j += kLanes) add_columns<1, T>(rows, first, count, j, each, out);
  if (j < width) add_columns<1, T>(rows, first, count, width - kLanes, each, out);  // This adds some columns again.
}

template <class T, class Rows, class Each>
SERRATE_APART void add_tree(const Rows& rows, int64_t first, int64_t count, int64_t width, const Each& each,
                            Wide<T>* out) {
  Tree<Wide<T>> tree(width);
  for (int64_t i = 0; i < count; i += kChain) {
    add_rows<T>(rows, first + i, std::min(kChain, count - i), width, each, out);
    tree.add(out);
  }
  tree.finish(out);
}

// One thread adds the rows of one component.
struct Alone {
  template <class T, class Rows, class Each>
  SERRATE_INLINE void add(const Rows& rows, int64_t count, int64_t width, const Each& each, Wide<T>* out) const {
    if (count <= kChain) add_rows<T>(rows, 0, count, width, each, out);
    else add_tree<T>(rows, 0, count, width, each, out);
  }

  // Calls a function for the rows first .. last: once for all of `count` rows, or several times for some of them.
  template <class Function>
  void share(int64_t count, const Function& function) const {
    function(0, count);
  }
};

// Several threads add the rows of one component. Each takes pieces of 2^k blocks, which are branches of the same tree.
struct Together {
  int64_t threads;
  template <class T, class Rows, class Each>
  SERRATE_APART void add(const Rows& rows, int64_t count, int64_t width, const Each& each, Wide<T>* out) const {
    int64_t piece = kChain;
    while (piece * 4 * threads < count) piece *= 2;
    const int64_t pieces = (count + piece - 1) / piece;
    const std::unique_ptr<Wide<T>[]> sums(new (std::nothrow) Wide<T>[pieces * kTile]);
    if (!sums) return add_tree<T>(rows, 0, count, width, each, out);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t p = 0; p < pieces; ++p) {
      add_tree<T>(rows, p * piece, std::min(piece, count - p * piece), width, each, &sums[p * kTile]);
    }
    Tree<Wide<T>> tree(width);
    for (int64_t p = 0; p < pieces; ++p) tree.add(&sums[p * kTile]);
    tree.finish(out);
  }

  template <class Function>
  void share(int64_t count, const Function& function) const {
    const int64_t parts = 4 * threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t p = 0; p < parts; ++p) function(count * p / parts, count * (p + 1) / parts);
  }
};

// ------------------------------------------------------------------------------------------------ rows of few columns

// A plan says how neighbours of `width` columns are added. If there are few columns, several rows are taken as one long
// row of whole vectors, and the parts of its sum are added at the end.
struct Plan {
  int64_t width, many, some;

  explicit Plan(int64_t width) : width(width), many(together(4 * kLanes)), some(together(kLanes)) {}

  int64_t together(int64_t lanes) const {
    int64_t rows = 1;
    while (width <= kNarrow && (width * rows % kLanes || width * rows < lanes)) rows *= 2;
    return rows;
  }

  // Returns how many rows are taken as one, or 0 if there are so few that they are added one after the other.
  int64_t rows_of(int64_t count) const {
    if (count >= 2 * many) return many;
    return count >= 2 * some ? some : 0;
  }
};

// A short run of numbers as two vectors, with 0 after its end. No branch depends on its length, so the processor cannot
// predict one wrongly.
template <class T>
struct Few {
  int64_t count;
  Vector<Wide<T>> one, two;

  static bool is_one(int64_t count, const Plan& plan) { return plan.width == 1 && !plan.rows_of(count); }

  SERRATE_INLINE Few(const Packed<T>& rows, int64_t count) : count(count) {
    const T* run = rows.values;
    T copy[2 * kLanes];
    if (rows.end - run < 2 * kLanes) {
      std::fill(std::copy(run, run + count, copy), copy + 2 * kLanes, T(0));
      run = copy;
    }
    one = first(widen<T>(load(run)));
    two = second(widen<T>(load(run + kLanes)));
  }

  Vector<Wide<T>> first(Vector<Wide<T>> part) const { return first_of<Wide<T>>(part, count); }
  Vector<Wide<T>> second(Vector<Wide<T>> part) const { return first_of<Wide<T>>(part, count - kLanes); }
  Wide<T> sum() const { return total_of<Wide<T>>(one + two); }

  // Returns the sum of the squared distances from the mean.
  Wide<T> distances() const {
    const Wide<T> mean = sum() / static_cast<Wide<T>>(count);
    const Vector<Wide<T>> from_one = first(one - mean), from_two = second(two - mean);
    return total_of<Wide<T>>(from_one * from_one + from_two * from_two);
  }
};

// A run of at most kMost numbers, which are added four vectors at a time; the last ones have 0 after the end of the run.
template <class T>
struct Run {
  static constexpr int64_t kStep = 4 * kLanes, kMost = 2 * kChain * kStep;

  static bool is_one(int64_t count, const Plan& plan) { return plan.width == 1 && count <= kMost; }

  static SERRATE_INLINE Vector<Wide<T>> step(const T* run) {
    return widen<T>((load(run) + load(run + kLanes)) + (load(run + 2 * kLanes) + load(run + 3 * kLanes)));
  }

  static SERRATE_INLINE Wide<T> sum(const Packed<T>& rows, int64_t count) {
    const T* run = rows.values;
    Vector<Wide<T>> one = {}, two = {};
    for (; count >= 2 * kStep; count -= 2 * kStep, run += 2 * kStep) one += step(run), two += step(run + kStep);
    if (count >= kStep) one += step(run), count -= kStep, run += kStep;
    T copy[kStep];
    if (rows.end - run < kStep) {
      std::fill(std::copy(run, run + count, copy), copy + kStep, T(0));
      run = copy;
    }
    Vector<T> parts[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) parts[v] = first_of<T>(load(run + v * kLanes), count - v * kLanes);
    two += widen<T>((parts[0] + parts[1]) + (parts[2] + parts[3]));
    return total_of<Wide<T>>(one + two);
  }
};

// Adds rows that are neighbours.
template <class T, class Each, class Way>
SERRATE_INLINE void add(const Packed<T>& rows, int64_t count, int64_t width, const Each& each, const Plan& plan,
                        const Way& way, Wide<T>* out) {
  if (plan.width > kNarrow) return way.template add<T>(rows, count, width, each, out);
  const int64_t together = plan.rows_of(count);
  if (!together) {
    for (int64_t j = 0; j < width; ++j) {
      Wide<T> sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += each(static_cast<Wide<T>>(rows.values[i * width + j]), j);
      out[j] = sum;
    }
    return;
  }
  const int64_t lanes = width * together, longs = count / together, done = longs * lanes;
  Wide<T> sums[kTile];
  way.template add<T>(Packed<T>{rows.values, lanes, rows.end}, longs, lanes, each, sums);
  for (int64_t j = 0; j < count * width - done; ++j) sums[j] += each(static_cast<Wide<T>>(rows.values[done + j]), j);
  for (int64_t half = lanes / 2; half >= width; half /= 2) {
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  std::copy(sums, sums + width, out);
}

// Adds rows that lie anywhere.
template <class T, class Each, class Way>
SERRATE_INLINE void add(const Picked<T>& rows, int64_t count, int64_t width, const Each& each, const Plan&,
                        const Way& way, Wide<T>* out) {
  way.template add<T>(rows, count, width, each, out);
}

}  // namespace
