// This file copies, selects, counts and sums runs of packed rows on the CPU.
//
// A row has `width` bytes. Functions that take lengths, indices or offsets from a user check them before they use them,
// and return -1 if these are wrong. The other functions say what they rely on.

#include <memory>
#include <new>

#include "common.h"

// ------------------------------------------------------------------------------------------------- runs of rows

namespace {

// Returns how many rows runs have together, or -1 unless all of them lie within `rows`: run j has the rows source[j] ..
// source[j] + lengths[j]. A number that is too small or too large leaves a sign in `wrong`, which takes no branch.
template <class T>
int64_t check_runs(const int64_t* source, const T* lengths, int64_t count, int64_t rows) {
  int64_t total = 0, wrong = 0;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t length = lengths[j], left = rows - length;
    wrong |= source[j] | length | left | (left - source[j]);
    total += length;
  }
  return wrong < 0 ? -1 : total;
}

// Returns whether each run begins where the one before it ends, or later. The runs are checked before.
template <class T>
bool are_ascending(const int64_t* source, const T* lengths, int64_t count) {
  int64_t wrong = 0;
  for (int64_t j = 1; j < count; ++j) wrong |= source[j] - source[j - 1] - lengths[j - 1];
  return wrong >= 0;
}

// Returns for each run the number of rows of the runs before it. Several threads need that to know where each run goes;
// without memory for it the result is null, and one thread copies all.
template <class T>
std::unique_ptr<int64_t[]> starts_of(const T* lengths, int64_t count, int64_t threads) {
  std::unique_ptr<int64_t[]> starts(threads > 1 ? new (std::nothrow) int64_t[count] : nullptr);
  for (int64_t j = 0, at = 0; starts && j < count; at += lengths[j++]) starts[j] = at;
  return starts;
}

// Calls function(j, the number of rows before run j) for each run.
template <class T, class Function>
void each_run(const T* lengths, int64_t count, const int64_t* starts, int64_t threads, const Function& function) {
  if (!starts) {
    for (int64_t j = 0, at = 0; j < count; at += lengths[j++]) function(j, at);
    return;
  }
#pragma omp parallel for num_threads(threads)
  for (int64_t j = 0; j < count; ++j) function(j, starts[j]);
}

// Copies runs of `given` rows one after the other; together they must have `rows` rows.
template <class T>
int64_t copy_runs(const char* values, int64_t given, const int64_t* source, const T* lengths, int64_t count,
                  int64_t width, int64_t rows, char* out, int64_t threads) {
  if (check_runs(source, lengths, count, given) != rows) return -1;
  const std::unique_ptr<int64_t[]> starts = starts_of(lengths, count, threads);
  advise(out, rows * width);
  each_run(lengths, count, starts.get(), threads, [&](int64_t j, int64_t at) {
    copy(out + at * width, values + source[j] * width, lengths[j] * width);
  });
  return 0;
}

// Copies packed runs of `given` rows back to their rows of `out`, and sets all other rows to 0. No two runs may share a
// row.
template <class T>
int64_t put_runs(const char* values, int64_t given, const int64_t* source, const T* lengths, int64_t count,
                 int64_t width, int64_t rows, char* out, int64_t threads) {
  constexpr int64_t kShort = 256;  // So many bytes are cleared faster than a function is called for them.
  if (check_runs(source, lengths, count, rows) != given) return -1;
  advise(out, rows * width);
  if (rows * width < kShort * count || !are_ascending(source, lengths, count)) {
    const std::unique_ptr<int64_t[]> starts = starts_of(lengths, count, threads);
    if (given < rows) clear(out, rows * width);
    each_run(lengths, count, starts.get(), threads, [&](int64_t j, int64_t at) {
      copy(out + source[j] * width, values + at * width, lengths[j] * width);
    });
    return 0;
  }
  int64_t end = 0;  // Rows between runs are set to 0 on the way, so that each row is written once.
  each_run(lengths, count, nullptr, 1, [&](int64_t j, int64_t at) {
    if (!lengths[j]) return;
    clear(out + end * width, (source[j] - end) * width);
    copy(out + source[j] * width, values + at * width, lengths[j] * width);
    end = source[j] + lengths[j];
  });
  clear(out + end * width, (rows - end) * width);
  return 0;
}

// Adds packed runs to their rows of `out`, which have `width` elements and begin with 0. Runs may share rows.
template <class Number, class T>
int64_t add_runs(const Number* values, int64_t given, const int64_t* source, const T* lengths, int64_t count,
                 int64_t width, int64_t rows, Number* out, int64_t) {
  if (check_runs(source, lengths, count, rows) != given) return -1;
  advise(out, rows * width * sizeof(Number));
  std::fill(out, out + rows * width, Number(0));
  each_run(lengths, count, nullptr, 1, [&](int64_t j, int64_t at) {
    const Number* part = values + at * width;
    Number* run = out + source[j] * width;
#pragma GCC ivdep
    for (int64_t i = 0; i < lengths[j] * width; ++i) run[i] += part[i];
  });
  return 0;
}

// Finds the first row and the length of each component index[j]; `offsets` must be those of the lengths. Unless `ends`
// is null, the offsets of the chosen components are written there. Returns how many rows these components have
// together, or -1 if an index is wrong, or an offset too large.
template <class T>
int64_t select_runs(const T* lengths, const int64_t* offsets, int64_t count, const int64_t* index, int64_t chosen,
                    int64_t* source, T* picked, T* ends) {
  int64_t total = 0;
  for (int64_t j = 0; j < chosen; ++j) {
    if (index[j] < 0 || index[j] >= count) return -1;
    source[j] = offsets[index[j]];
    picked[j] = lengths[index[j]];
    if (ends) ends[j] = static_cast<T>(total);
    total += picked[j];
  }
  if (!ends) return total;
  ends[chosen] = static_cast<T>(total);
  return total <= std::numeric_limits<T>::max() ? total : -1;
}

// Finds for each component j the run of at most `most` of its rows from start[j] on; all components have `rows` rows.
// Returns how many rows the runs have together.
template <class T>
int64_t slice_runs(const T* lengths, const T* start, int64_t count, int64_t rows, int64_t most, int64_t* source,
                   T* picked) {
  int64_t first = 0, total = 0;
  bool good = true;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t length = lengths[j], from = start[j];
    good &= length >= 0 && length <= rows - first && from >= 0 && from <= length;
    if (!good) return -1;
    source[j] = first + from;
    const int64_t some = std::min(length - from, most);
    picked[j] = static_cast<T>(some);
    total += some;
    first += length;
  }
  return first == rows ? total : -1;
}

// Finds for each component the run of its rows start .. stop, as a Python slice of step 1 has them: negative positions
// count from the end of the component. The offsets of the runs are written to `ends`. Returns how many rows the runs have
// together, or -1 for wrong offsets.
template <class T>
int64_t cut_runs(const T* offsets, int64_t count, int64_t start, int64_t stop, int64_t* source, T* picked, T* ends) {
  int64_t total = 0;
  bool good = offsets[0] == 0;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t length = int64_t(offsets[j + 1]) - offsets[j];
    const int64_t first = start < 0 ? std::max<int64_t>(length + start, 0) : std::min(start, length);
    const int64_t last = stop < 0 ? length + stop : std::min(stop, length);
    const int64_t some = std::max<int64_t>(last - first, 0);
    good &= length >= 0;
    source[j] = offsets[j] + first;
    picked[j] = static_cast<T>(some);
    ends[j] = static_cast<T>(total);
    total += some;
  }
  ends[count] = static_cast<T>(total);
  return good ? total : -1;
}

// ----------------------------------------------------------------------------------------- offsets, masks and sums

constexpr int kLanes = 8;

template <class T>
using Lanes __attribute__((vector_size(kLanes * sizeof(T)))) = T;

#ifdef __clang__
#define SERRATE_SHIFTED(V, ...) __builtin_shufflevector(Lanes<T>{}, V, __VA_ARGS__)
#else
#define SERRATE_SHIFTED(V, ...) __builtin_shuffle(Lanes<T>{}, V, Lanes<T>{__VA_ARGS__})
#endif

// Returns the running sums of the numbers of a vector.
template <class T>
Lanes<T> running(Lanes<T> v) {
  v += SERRATE_SHIFTED(v, 0, 8, 9, 10, 11, 12, 13, 14);
  v += SERRATE_SHIFTED(v, 0, 1, 8, 9, 10, 11, 12, 13);
  v += SERRATE_SHIFTED(v, 0, 1, 2, 3, 8, 9, 10, 11);
  return v;
}

// Writes the running sums of `count` numbers, with a 0 before. Returns the bitwise or of the numbers: it is negative if
// one of them is, and otherwise at least as large as each.
template <class T, class Out>
T complete_line(const T* lengths, int64_t count, Out* out) {
  Lanes<T> bits = {};
  T most = 0;
  Out sum = 0;
  *out++ = 0;
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    Lanes<T> some;
    std::memcpy(&some, lengths + j, sizeof(some));
    bits |= some;
    Lanes<Out> sums = running<Out>(__builtin_convertvector(some, Lanes<Out>));
    const Out next = sum + sums[kLanes - 1];
    sums += sum;
    std::memcpy(out + j, &sums, sizeof(sums));
    sum = next;
  }
  for (; j < count; ++j) {
    most |= lengths[j];
    out[j] = sum += lengths[j];
  }
  for (int lane = 0; lane < kLanes; ++lane) most |= bits[lane];
  return most;
}

constexpr int64_t kNegative = 1, kTooLarge = 2;

// Writes the running sums of each line of `columns` lengths, with a 0 before. Returns 0, or kNegative and kTooLarge for
// what is wrong with the lengths and the sums.
template <class T, class Out>
int64_t complete(const T* lengths, int64_t lines, int64_t columns, Out* out) {
  T bits = 0;
  for (int64_t i = 0; i < lines; ++i) bits |= complete_line(lengths + i * columns, columns, out + i * (columns + 1));
  if (bits >= 0 && bits <= std::numeric_limits<Out>::max() / std::max<int64_t>(columns, 1)) return 0;
  bool negative = false, fits = true;
  for (int64_t i = 0; i < lines; ++i) {
    Out sum = 0;
    for (int64_t j = 0; j < columns; ++j) {
      const T length = lengths[i * columns + j];
      negative |= length < 0;
      fits &= !__builtin_add_overflow(sum, length, &sum);
    }
  }
  return (negative ? kNegative : 0) | (fits ? 0 : kTooLarge);
}

// Finds the positions at which a mask is true, and how many of them each component has; `index` has room for one entry
// more than the mask. Returns the number of these positions, or -1 unless the lengths add up to `rows`.
template <class T>
int64_t keep(const uint8_t* mask, const T* lengths, int64_t count, int64_t rows, int64_t* index, T* kept) {
  int64_t row = 0, found = 0;
  for (int64_t j = 0; j < count; ++j) {
    if (lengths[j] < 0 || lengths[j] > rows - row) return -1;
    const int64_t before = found, end = row + lengths[j];
    const auto next = [&] {
      index[found] = row;
      found += mask[row++] != 0;
    };
    while (row + 4 <= end) next(), next(), next(), next();
    while (row < end) next();
    kept[j] = static_cast<T>(found - before);
  }
  return row == rows ? found : -1;
}

// Returns whether `count` starts begin with 0, never decrease and stay within `size`.
template <class T>
bool are_starts(const T* starts, int64_t count, int64_t size) {
  bool good = count ? starts[0] == 0 && starts[count - 1] <= size : !size;
  for (int64_t i = 1; i < count; ++i) good &= starts[i] >= starts[i - 1];
  return good;
}

// Writes for each of `size` values its distance from the last start before it.
template <class T>
int64_t ranges(const T* starts, int64_t count, int64_t size, T* out) {
  if (!are_starts(starts, count, size)) return -1;
  constexpr int kStep = 16;
  const T lane[kStep] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = starts[i], length = (i + 1 < count ? starts[i + 1] : size) - first;
    T* row = out + first;
    if (first + length + kStep <= size) {  // Whole steps write too much, which the next rows overwrite.
      for (int64_t j = 0; j < length; j += kStep) {
        for (int k = 0; k < kStep; ++k) row[j + k] = lane[k] + static_cast<T>(j);
      }
    } else {
      for (int64_t j = 0; j < length; ++j) row[j] = static_cast<T>(j);
    }
  }
  return 0;
}

// Writes the numbers input[permute[i]] .. input[permute[i] + 1] for each i, one range after the other; `output` must be
// the offsets of these ranges.
template <class T>
int64_t expand(const T* permute, const T* input, const T* output, int64_t features, int64_t chosen, int64_t size,
               T* out) {
  if (input[0] != 0 || output[0] != 0 || output[chosen] != size) return -1;
  for (int64_t i = 0; i < features; ++i) {
    if (input[i + 1] < input[i]) return -1;
  }
  for (int64_t i = 0; i < chosen; ++i) {
    if (permute[i] < 0 || permute[i] >= features) return -1;
    const T first = input[permute[i]], length = input[permute[i] + 1] - first;
    if (output[i + 1] > size || int64_t(output[i + 1]) - output[i] != length) return -1;
    for (T j = 0; j < length; ++j) out[j] = first + j;
    out += length;
  }
  return 0;
}

// Returns the sum of a run of `length` values. `left` values may be read: so the last vector may reach past the run,
// and its lanes past the run are left out.
template <class T>
T sum_of(const T* run, int64_t length, int64_t left) {
  using Number = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef T Vector __attribute__((vector_size(kLanes * sizeof(T))));
  typedef T Memory __attribute__((vector_size(kLanes * sizeof(T)), aligned(alignof(T)), may_alias));
  typedef Number Numbers __attribute__((vector_size(kLanes * sizeof(T))));
  Vector sums = {};
  int64_t j = 0;
  for (; j + kLanes <= length; j += kLanes) sums += *reinterpret_cast<const Memory*>(run + j);
  if (j < length && j + kLanes <= left) {
    const Numbers lane = {0, 1, 2, 3, 4, 5, 6, 7};
    const Vector last = *reinterpret_cast<const Memory*>(run + j), none = {};
    sums += lane < static_cast<Number>(length - j) ? last : none;
    j = length;
  }
  for (; j < length; ++j) sums[0] += run[j];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// Returns the sum of a run of integers. Four vectors of sums are added to in turn, since one would wait for each
// addition.
template <class T>
int64_t sum_of_integers(const T* run, int64_t length) {
  using Bits = std::make_unsigned_t<T>;
  constexpr int kChains = 4, kSize = 32 / sizeof(T), kWide = kChains * kSize;
  typedef Bits Vector __attribute__((vector_size(32)));
  typedef Bits Memory __attribute__((vector_size(32), aligned(alignof(T)), may_alias));
  Vector sums[kChains] = {}, seen = {};
  int64_t j = 0;
  for (; j + kWide <= length; j += kWide) {
#pragma GCC unroll 4
    for (int chain = 0; chain < kChains; ++chain) {
      sums[chain] += *reinterpret_cast<const Memory*>(run + j + chain * kSize);
    }
    seen |= (sums[0] | sums[1]) | (sums[2] | sums[3]);
  }
  Bits sum = 0, bits = 0;
  for (; j < length; ++j) {
    sum += static_cast<Bits>(run[j]);
    bits |= sum;
  }
  const Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  for (int lane = 0; lane < kSize; ++lane) {
    sum += all[lane];
    bits |= seen[lane];
  }
  // No sum of a lane or of the last values was ever more than `bits`. If this is small, no sum has overflowed.
  if (bits <= static_cast<Bits>(std::numeric_limits<T>::max()) / (kWide + 1)) return sum;
  int64_t wide = 0;
  for (j = 0; j < length; ++j) wide += run[j];
  return wide;
}

// Writes the sums of the values ends[i] · batch .. ends[i + 1] · batch of `count` values. Returns 0, or -1 for wrong
// ends, or 1 if a sum does not fit.
template <class T, class End>
int64_t sums(const T* values, int64_t count, const End* ends, int64_t segments, int64_t batch, T* out) {
  const int64_t rows = batch ? count / batch : std::numeric_limits<int32_t>::max();
  bool good = ends[0] >= 0 && ends[segments] <= rows, fits = true;
  for (int64_t i = 0; i < segments; ++i) good &= ends[i + 1] >= ends[i];
  if (!good) return -1;
  for (int64_t i = 0; i < segments; ++i) {
    const int64_t first = ends[i] * batch, length = (ends[i + 1] - ends[i]) * batch;
    if constexpr (std::is_integral_v<T>) {
      const int64_t sum = sum_of_integers(values + first, length);
      out[i] = static_cast<T>(sum);
      fits &= out[i] == sum;
    } else {
      out[i] = sum_of(values + first, length, count - first);
    }
  }
  return fits ? 0 : 1;
}

}  // namespace

#define SERRATE_FOR_LENGTHS(NAME, T)               \
  SERRATE_EXPORT(copy_runs_##NAME, copy_runs<T>)   \
  SERRATE_EXPORT(put_runs_##NAME, put_runs<T>)     \
  SERRATE_EXPORT(select_runs_##NAME, select_runs<T>) \
  SERRATE_EXPORT(slice_runs_##NAME, slice_runs<T>) \
  SERRATE_EXPORT(cut_runs_##NAME, cut_runs<T>)     \
  SERRATE_EXPORT(complete_##NAME, complete<T, T>)  \
  SERRATE_EXPORT(offsets_##NAME, complete<T, int64_t>) \
  SERRATE_EXPORT(keep_##NAME, keep<T>)             \
  SERRATE_EXPORT(ranges_##NAME, ranges<T>)         \
  SERRATE_EXPORT(expand_##NAME, expand<T>)         \
  SERRATE_EXPORT(add_runs_float32_##NAME, add_runs<float, T>) \
  SERRATE_EXPORT(add_runs_float64_##NAME, add_runs<double, T>) \
  SERRATE_EXPORT(sums_float32_##NAME, sums<float, T>) \
  SERRATE_EXPORT(sums_float64_##NAME, sums<double, T>) \
  SERRATE_EXPORT(sums_int32_##NAME, sums<int32_t, T>) \
  SERRATE_EXPORT(sums_int64_##NAME, sums<int64_t, T>)

SERRATE_FOR_LENGTHS(int32, int32_t)
SERRATE_FOR_LENGTHS(int64, int64_t)
