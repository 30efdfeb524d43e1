// Sums of packed rows on the CPU: of rows that lie next to each other, of rows that an index or their position puts
// together, and of the squares of distances from the mean; and these distances.
//
// float32 is added up in float64, after sums of four in itself, which takes half the time. Sums of neighbours are trees:
// at most kChain rows are added one after the other, then the sums of two such blocks, of two such pairs, and so on, so
// that errors grow with the logarithm of the number of rows. Sums that wait in memory for their next row keep beside a
// float64 what rounding took from it. Which of these a sum is depends on sizes alone: results have the same bits for any
// number of threads.
//
// Nothing is read or written by wrong offsets or indices: they give -1. Where memory is short it is -2.

#include <cstdlib>
#include <memory>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

// Short rows take no longer than the calls between the functions below would.
#define SERRATE_INLINE inline __attribute__((always_inline))
#define SERRATE_APART __attribute__((noinline, noclone))

namespace {

constexpr int kLanes = 8;        // numbers of a vector
constexpr int kTile = 128;       // columns whose sums stay in registers
constexpr int64_t kChain = 64;   // rows that are added one after the other
constexpr int kLevels = 58;      // of a tree: more than 2^63 rows have
constexpr int64_t kNarrow = 16;  // columns up to which several rows are taken for one
constexpr int kFirst = 4;         // rows of float32 that are added up in float32
constexpr int64_t kAhead = 8;    // rows that are fetched before their turn

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
    return _mm512_maskz_cvtps_pd(0xff, part);  // one instruction, where compilers make four of the line below
#else
    return __builtin_convertvector(part, Vector<Wide<T>>);
#endif
  }
}

// The first `count` of a vector, 0 in place of the others.
template <class W>
inline Vector<W> first_of(Vector<W> part, int64_t count) {
  const Vector<int64_t> lane = {0, 1, 2, 3, 4, 5, 6, 7};
  const Vector<W> none = {};
  return lane < count ? part : none;
}

template <class W>
inline W total_of(Vector<W> sums) {
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// ------------------------------------------------------------------------------------------ what is added, of which rows

// Rows that lie `stride` elements apart, before the end of memory.
template <class T>
struct Packed {
  const T* values;
  int64_t stride;
  const T* end;
  const T* row(int64_t i) const { return values + i * stride; }
  void fetch(int64_t, int64_t) const {}
  Packed from(int64_t i, int64_t column) const { return {row(i) + column, stride, end}; }
};

// Rows in the order of their numbers, which go on for kAhead beyond the last.
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

// The elements as they are.
struct Plain {
  template <class X>
  X operator()(X x, int64_t) const {
    return x;
  }
};

// The same, each widened before it is added to another: for means that differences are taken from.
struct Exact : Plain {};

// The squares of their distances from a number for each column.
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

// Sums of parts: of pairs, of pairs of pairs, and so on, as a binary counter counts.
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

// Rows first .. first + count in V vectors of columns from `column` on, one after the other.
template <int V, class T, class Rows, class Each>
SERRATE_APART void add_columns(const Rows& rows, int64_t first, int64_t count, int64_t column, const Each& each, Wide<T>* out) {
  Vector<Wide<T>> sums[V] = {};
  int64_t i = first;
  if constexpr (std::is_same_v<Each, Plain> && !std::is_same_v<T, Wide<T>>) {
    for (; i + kFirst <= first + count; i += kFirst) {
      Vector<T> parts[V];
#pragma GCC unroll 4
      for (int r = 0; r < kFirst; ++r) {
        const T* row = rows.row(i + r) + column;
        rows.fetch(i + r, V * kLanes);
        asm volatile("" : : : "memory");  // row by row: memory sends four at once more slowly
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

// The same in `width` columns.
template <class T, class Rows, class Each>
SERRATE_INLINE void add_rows(const Rows& rows, int64_t first, int64_t count, int64_t width, const Each& each, Wide<T>* out) {
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
  if (j < width) add_columns<1, T>(rows, first, count, width - kLanes, each, out);  // some columns once more
}

template <class T, class Rows, class Each>
SERRATE_APART void add_tree(const Rows& rows, int64_t first, int64_t count, int64_t width, const Each& each, Wide<T>* out) {
  Tree<Wide<T>> tree(width);
  for (int64_t i = 0; i < count; i += kChain) {
    add_rows<T>(rows, first + i, std::min(kChain, count - i), width, each, out);
    tree.add(out);
  }
  tree.finish(out);
}

// Of one component by one thread.
struct Alone {
  template <class T, class Rows, class Each>
  SERRATE_INLINE void add(const Rows& rows, int64_t count, int64_t width, const Each& each, Wide<T>* out) const {
    if (count <= kChain) add_rows<T>(rows, 0, count, width, each, out);
    else add_tree<T>(rows, 0, count, width, each, out);
  }

  // Rows first .. last for a function, all of `count` or some at a time.
  template <class Function>
  void share(int64_t count, const Function& function) const {
    function(0, count);
  }
};

// By several: pieces of a power of two of blocks are branches of the same tree.
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

// ---------------------------------------------------------------------------------------------------- rows of few columns

// How neighbours of `width` columns are added up. Where these are few, several rows count as one long row of whole vectors,
// whose sums are added up in the end.
struct Plan {
  int64_t width, many, some;

  explicit Plan(int64_t width) : width(width), many(together(4 * kLanes)), some(together(kLanes)) {}

  int64_t together(int64_t lanes) const {
    int64_t rows = 1;
    while (width <= kNarrow && (width * rows % kLanes || width * rows < lanes)) rows *= 2;
    return rows;
  }

  // The rows that count as one; 0 where so few are added one after the other.
  int64_t rows_of(int64_t count) const {
    if (count >= 2 * many) return many;
    return count >= 2 * some ? some : 0;
  }
};

// A short run of numbers as two vectors, 0 behind its end: whole vectors, so that there is no branch to be mistaken about.
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

  // The sum of the squares of distances from the mean.
  Wide<T> distances() const {
    const Wide<T> mean = sum() / static_cast<Wide<T>>(count);
    const Vector<Wide<T>> from_one = first(one - mean), from_two = second(two - mean);
    return total_of<Wide<T>>(from_one * from_one + from_two * from_two);
  }
};

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

template <class T, class Each, class Way>
SERRATE_INLINE void add(const Picked<T>& rows, int64_t count, int64_t width, const Each& each, const Plan&,
                        const Way& way, Wide<T>* out) {
  way.template add<T>(rows, count, width, each, out);
}

// --------------------------------------------------------------------------------------------------------- all components

// What is written for a component: the sums of its rows, or with kRows as many rows.
struct Sums {
  static constexpr bool kRows = false;
  template <class T, class Rows, class Way>
  static SERRATE_INLINE void write(const Rows& rows, int64_t count, int64_t width, const Plan& plan, const Way& way, T* out) {
    Wide<T> sums[kTile];
    if constexpr (std::is_integral_v<T>) {  // in any order
      std::fill(sums, sums + width, T(0));
      for (int64_t i = 0; i < count; ++i) {
        const T* row = rows.row(i);
        for (int64_t j = 0; j < width; ++j) sums[j] += row[j];
      }
    } else {
      if constexpr (std::is_same_v<Rows, Packed<T>>) {
        if (Few<T>::is_one(count, plan)) {
          *out = static_cast<T>(Few<T>(rows, count).sum());
          return;
        }
      }
      add(rows, count, width, Plain(), plan, way, sums);
    }
    for (int64_t j = 0; j < width; ++j) out[j] = static_cast<T>(sums[j]);
  }
};

// The mean of rows, `lanes` numbers, which repeat it where rows have few columns.
template <class T, class Rows, class Way>
SERRATE_APART void find_mean(const Rows& rows, int64_t count, int64_t width, const Plan& plan, const Way& way,
                             int64_t lanes, Wide<T>* mean) {
  add(rows, count, width, std::conditional_t<std::is_same_v<T, Wide<T>>, Plain, Exact>(), plan, way, mean);
  for (int64_t j = 0; j < width; ++j) mean[j] /= static_cast<Wide<T>>(count);
  for (int64_t j = width; j < lanes; ++j) mean[j] = mean[j - width];
}

// The sums of the squares of their distances from the mean.
struct Distances {
  static constexpr bool kRows = false;
  template <class T, class Rows, class Way>
  static SERRATE_INLINE void write(const Rows& rows, int64_t count, int64_t width, const Plan& plan, const Way& way, T* out) {
    if (Few<T>::is_one(count, plan)) *out = static_cast<T>(Few<T>(rows, count).distances());
    else write_many(rows, count, width, plan, way, out);
  }

  template <class T, class Rows, class Way>
  static SERRATE_APART void write_many(const Rows& rows, int64_t count, int64_t width, const Plan& plan, const Way& way,
                                       T* out) {
    Wide<T> sums[kTile], mean[kTile];
    find_mean<T>(rows, count, width, plan, way, plan.width > kNarrow ? 0 : plan.rows_of(count) * width, mean);
    add(rows, count, width, Squares<Wide<T>>{mean}, plan, way, sums);
    for (int64_t j = 0; j < width; ++j) out[j] = static_cast<T>(sums[j]);
  }
};

// These distances, row by row; rows of few columns several at a time.
struct Centred {
  static constexpr bool kRows = true;
  template <class T, class Rows, class Way>
  static SERRATE_APART void write(const Rows& rows, int64_t count, int64_t width, const Plan& plan, const Way& way, T* out) {
    Wide<T> mean[kTile];
    const int64_t together = plan.width > kNarrow ? 1 : std::max<int64_t>(plan.rows_of(count), 1);
    const int64_t columns = width * together, step = plan.width * together;
    find_mean<T>(rows, count, width, plan, way, columns, mean);
    way.share((count + together - 1) / together, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const T* row = rows.values + i * step;
        const int64_t size = std::min(columns, (count - i * together) * width);
#pragma GCC ivdep
        for (int64_t j = 0; j < size; ++j) out[i * step + j] = static_cast<T>(row[j] - mean[j]);
      }
    });
  }
};

// Component c has the rows offsets[c] .. offsets[c + 1].
template <class Form, class T, class Rows, class Way>
SERRATE_INLINE void write_one(const Rows& rows, const int64_t* offsets, int64_t c, const Plan& plan, const Way& way, T* out) {
  const int64_t count = offsets[c + 1] - offsets[c], width = plan.width;
  out += (Form::kRows ? offsets[c] : c) * width;
  if (!count) return Form::kRows ? void() : std::fill(out, out + width, T(0));
  for (int64_t column = 0; column < width; column += kTile) {
    const int64_t first = std::max<int64_t>(std::min(column, width - kLanes), 0);  // a vector at least, some columns twice
    const int64_t columns = std::min<int64_t>(width - first, kTile);
    Form::write(rows.from(offsets[c], first), count, columns, plan, way, out + first);
  }
}

// Components of more than so many rows, each by all threads.
template <class Form, class T, class Rows>
SERRATE_APART void write_giants(const Rows& rows, const int64_t* offsets, int64_t components, const Plan& plan,
                                int64_t most, int64_t threads, T* out) {
  for (int64_t c = 0; c < components; ++c) {
    if (offsets[c + 1] - offsets[c] > most) write_one<Form>(rows, offsets, c, plan, Together{threads}, out);
  }
}

template <class Form, class T, class Rows>
SERRATE_APART void write_some(const Rows& rows, const int64_t* offsets, int64_t first, int64_t last, const Plan& plan,
                              int64_t most, T* out) {
  for (int64_t c = first; c < last; ++c) {
    if (offsets[c + 1] - offsets[c] <= most) write_one<Form>(rows, offsets, c, plan, Alone(), out);
  }
}

template <class Form, class T, class Rows>
void write_all(const Rows& rows, const int64_t* offsets, int64_t components, int64_t width, int64_t threads, T* out) {
  const Plan plan(width);
  const int64_t begin = offsets[0], total = offsets[components] - begin;
  if (threads == 1) return write_some<Form>(rows, offsets, 0, components, plan, total, out);
  const int64_t tasks = threads * 8, giant = total / (2 * threads);
  const auto start = [&](int64_t task) {
    if (task == tasks) return components;
    return std::lower_bound(offsets, offsets + components, begin + task * (total / tasks)) - offsets;
  };
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t task = 0; task < tasks; ++task) {
    write_some<Form>(rows, offsets, start(task), start(task + 1), plan, giant, out);
  }
  write_giants<Form>(rows, offsets, components, plan, giant, threads, out);
}

inline bool are_offsets(const int64_t* offsets, int64_t components, int64_t rows) {
  bool good = offsets[0] >= 0 && offsets[components] <= rows;
  for (int64_t c = 0; c < components; ++c) good &= offsets[c + 1] >= offsets[c];
  return good;
}

// For each component [width], or for each row, out of values [rows, width]; 0 for rows of no component.
template <class Form, class T>
int64_t of_runs(const T* values, const int64_t* offsets, int64_t components, int64_t rows, int64_t width, T* out,
                int64_t threads) {
  if (!are_offsets(offsets, components, rows)) return -1;
  if (Form::kRows) {
    std::fill(out, out + offsets[0] * width, T(0));
    std::fill(out + offsets[components] * width, out + rows * width, T(0));
  }
  write_all<Form>(Packed<T>{values, width, values + rows * width}, offsets, components, width, threads, out);
  return 0;
}

// --------------------------------------------------------------------------------------------------- sums that are waiting

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

template <class T>
using Memory = std::unique_ptr<T[], Free>;

// Memory that is 0.
template <class T>
Memory<T> zeros(int64_t count) {
  return Memory<T>(static_cast<T*>(std::calloc(std::max<int64_t>(count, 1), sizeof(T))));
}

// Sums in memory, kParts numbers for each: of float64 also what rounding took from it.
template <class T>
struct Waiting {
  static constexpr int64_t kParts = std::is_same_v<T, double> ? 2 : 1;

  // Adds a number, or a vector of them, to its sum, whose other part is `apart` numbers behind.
  template <class X>
  static SERRATE_INLINE void put(Wide<T>* sums, int64_t apart, X x) {
    X sum;
    std::memcpy(&sum, sums, sizeof(sum));
    const X next = sum + x;
    std::memcpy(sums, &next, sizeof(next));
    if constexpr (kParts > 1) {
      X rest;
      std::memcpy(&rest, sums + apart, sizeof(rest));
      const X part = next - sum;
      rest += (sum - (next - part)) + (x - part);
      std::memcpy(sums + apart, &rest, sizeof(rest));
    }
  }

  // Adds numbers to as many sums; where vectors may be read and written beyond the last one, by vectors alone.
  static SERRATE_INLINE void add(Wide<T>* sums, int64_t apart, const T* values, int64_t count, bool beyond) {
    int64_t j = 0;
    for (; j + kLanes <= count; j += kLanes) put<Vector<Wide<T>>>(sums + j, apart, widen<T>(load(values + j)));
    if (beyond) {
      if (j < count) put<Vector<Wide<T>>>(sums + j, apart, first_of<Wide<T>>(widen<T>(load(values + j)), count - j));
      return;
    }
    for (; j < count; ++j) {
      put<Wide<T>>(sums + j, apart, values[j]);
      asm volatile("" : : : "memory");  // or the compiler makes vectors of the few that are left
    }
  }

  // The sums as they are in the end, which may be where they are now.
  template <class X>
  static void write(const Wide<T>* sums, int64_t apart, int64_t count, X* out) {
    for (int64_t j = 0; j < count; ++j) {
      if constexpr (kParts == 1) {
        out[j] = static_cast<X>(sums[j]);
      } else {
        const double rest = sums[apart + j];
        out[j] = rest - rest == 0 ? sums[j] + rest : sums[j];  // beside infinities the rest is not a number
      }
    }
  }
};

template <int64_t kNumber>
using Constant = std::integral_constant<int64_t, kNumber>;

// For each of `cells` the sum of the rows that have its number. Where there are few sums each has kCopies, since an
// addition to one waits for the addition before it.
template <class T>
int64_t add_each(const T* values, const int64_t* index, int64_t rows, int64_t cells, int64_t width, T* out) {
  using Slots = Waiting<T>;
  constexpr int64_t kCopies = 4, kFew = 4096;
  const int64_t slot = Slots::kParts * width, size = (cells + 1) * slot, copies = size <= kFew ? kCopies : 1;
  const Memory<Wide<T>> sums = zeros<Wide<T>>(copies * size);
  if (!sums) return -2;
  bool good = true;
  const auto put = [&](auto columns, auto among) {
    for (int64_t i = 0; i < rows; ++i) {
      const uint64_t cell = std::min<uint64_t>(index[i], cells);
      good &= cell == static_cast<uint64_t>(index[i]);
      Wide<T>* sum = &sums[i % among * size + cell * (Slots::kParts * columns)];
      if constexpr (std::is_same_v<decltype(columns), int64_t>) {
        Slots::add(sum, columns, values + i * columns, columns, false);
      } else {
        for (int j = 0; j < columns; ++j) Slots::template put<Wide<T>>(sum + j, columns, values[i * columns + j]);
      }
    }
  };
  constexpr Constant<kCopies> some;
  switch (width) {
    case 1: copies > 1 ? put(Constant<1>(), some) : put(Constant<1>(), Constant<1>()); break;
    case 2: put(Constant<2>(), copies); break;
    case 3: put(Constant<3>(), copies); break;
    case 4: put(Constant<4>(), copies); break;
    default: put(width, copies);
  }
  if (!good) return -1;
  for (int64_t c = 0; c < cells; ++c) {
    Wide<T>* sum = &sums[c * slot];
    for (int64_t k = 1; k < copies; ++k) {
      Wide<T>* other = sum + k * size;
      Slots::write(other, width, width, other);
      for (int64_t j = 0; j < width; ++j) Slots::template put<Wide<T>>(sum + j, width, other[j]);
    }
    Slots::write(sum, width, width, out + c * width);
  }
  return 0;
}

// ------------------------------------------------------------------------------------------- rows by an index, by position

// The same with rows brought together first, where sums would take more memory than is near.
template <class T>
int64_t add_sorted(const T* values, const int64_t* index, int64_t rows, int64_t cells, int64_t width, T* out,
                   int64_t threads) {
  bool good = true;
  for (int64_t i = 0; i < rows; ++i) good &= static_cast<uint64_t>(index[i]) <= static_cast<uint64_t>(cells);
  if (!good) return -1;
  const Memory<int64_t> starts = zeros<int64_t>(cells + 3);
  const Memory<uint32_t> order = zeros<uint32_t>(rows + kAhead);
  if (!starts || !order) return -2;
  for (int64_t i = 0; i < rows; ++i) ++starts[index[i] + 2];
  for (int64_t c = 2; c < cells + 3; ++c) starts[c] += starts[c - 1];
  for (int64_t i = 0; i < rows; ++i) order[starts[index[i] + 1]++] = static_cast<uint32_t>(i);
  write_all<Sums>(Picked<T>{values, width, order.get()}, starts.get(), cells, width, threads, out);
  return 0;
}

// For each of `cells` the sum of the rows [width] that have its number in the index; those with the number `cells` are
// left out.
template <class T>
int64_t by_index(const T* values, const int64_t* index, int64_t rows, int64_t cells, int64_t width, T* out,
                 int64_t threads) {
  constexpr int64_t kNear = int64_t(1) << 19;
  const bool near = cells <= kNear / (Waiting<T>::kParts * width);
  if (near || width < kNarrow || rows > std::numeric_limits<uint32_t>::max()) {
    return add_each(values, index, rows, cells, width, out);
  }
  return add_sorted(values, index, rows, cells, width, out, threads);
}

// For each of `cells` positions the sum of the rows that components have there: of one block of columns and positions after
// the other, by those components that reach it.
template <class T>
int64_t by_position(const T* values, const int64_t* offsets, int64_t components, int64_t rows, int64_t cells,
                    int64_t width, T* out, int64_t) {
  using Slots = Waiting<T>;
  constexpr int64_t kBlock = 1024, kRoom = kBlock + kLanes;
  if (!are_offsets(offsets, components, rows)) return -1;
  const T* end = values + rows * width;
  const Memory<int64_t> reach = zeros<int64_t>(components);
  if (!reach) return -2;
  int64_t left = 0;
  for (int64_t c = 0; c < components; ++c) {
    if (offsets[c + 1] - offsets[c] > cells) return -1;
    reach[left] = c;
    left += offsets[c + 1] > offsets[c];
  }
  for (int64_t first = 0; first < cells * width; first += kBlock) {
    const int64_t block = std::min(kBlock, cells * width - first), count = left;
    Wide<T> sums[Slots::kParts * kRoom] = {};
    left = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t c = reach[i], size = (offsets[c + 1] - offsets[c]) * width - first;
      const T* part = values + offsets[c] * width + first;
      Slots::add(sums, kRoom, part, std::min(size, kBlock), part + std::min(size, kBlock) + kLanes <= end);
      reach[left] = c;
      left += size > kBlock;
    }
    Slots::write(sums, kRoom, block, out + first);
  }
  return 0;
}

}  // namespace

#define SERRATE_FOR_NUMBERS(NAME, T)                \
  SERRATE_EXPORT(sums_##NAME, of_runs<Sums, T>)     \
  SERRATE_EXPORT(sums_by_index_##NAME, by_index<T>) \
  SERRATE_EXPORT(sums_by_position_##NAME, by_position<T>)

SERRATE_FOR_NUMBERS(float32, float)
SERRATE_FOR_NUMBERS(float64, double)
SERRATE_FOR_NUMBERS(int64, int64_t)
SERRATE_EXPORT(distances_float32, of_runs<Distances, float>)
SERRATE_EXPORT(distances_float64, of_runs<Distances, double>)
SERRATE_EXPORT(centred_float32, of_runs<Centred, float>)
SERRATE_EXPORT(centred_float64, of_runs<Centred, double>)
