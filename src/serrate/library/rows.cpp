// Rows of components on the CPU: copied between packed and padded memory, counted, cut and summed.
//
// Component b of B owns the packed rows offsets[b] .. offsets[b + 1]; the padded memory has `most` rows for each. A row
// has `width` bytes. Functions that take lengths, indices or offsets from a user check them before anything is read or
// written by them, and give -1 for wrong ones; others say what they rely on.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace {

void fill(char* out, int64_t bytes, const char* filling, int64_t size) {
  if (filling == nullptr) {
    std::memset(out, 0, bytes);
    return;
  }
  int64_t done = std::min(size, bytes);
  std::memcpy(out, filling, done);
  while (done < bytes) {
    const int64_t next = std::min(done, bytes - done);
    std::memcpy(out + done, out, next);
    done += next;
  }
}

}  // namespace

// Ask for large pages below a result that nobody has touched yet: a thousandth of the page faults.
extern "C" void serrate_advise(char* memory, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kPage = uintptr_t(1) << 21;
  const uintptr_t first = reinterpret_cast<uintptr_t>(memory), begin = (first + kPage - 1) / kPage * kPage;
  const uintptr_t end = (first + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

// The last of `count` offsets, or -1 unless they start with 0 and never decrease.
extern "C" int64_t serrate_total(const int64_t* offsets, int64_t count) {
  bool rise = offsets[0] == 0;
  for (int64_t i = 1; i < count; ++i) rise &= offsets[i] >= offsets[i - 1];
  return rise ? offsets[count - 1] : -1;
}

// ------------------------------------------------------------------------------------------------ packed and padded

// Padded rows out of `rows` packed ones; `filling` is one element of `size` bytes, null for zeros.
extern "C" int64_t serrate_pad(const char* packed, const int64_t* offsets, char* padded, int64_t components,
                               int64_t rows, int64_t most, int64_t width, const char* filling, int64_t size,
                               int32_t threads) {
  const int64_t total = serrate_total(offsets, components + 1);
  if (total < 0 || total > rows) return -1;
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    const size_t have = std::min(offsets[b + 1] - offsets[b], most) * width, all = most * width;
    char* row = padded + b * all;
    if (have) std::memcpy(row, packed + offsets[b] * width, have);
    if (all > have) fill(row + have, all - have, filling, size);
  }
  return 0;
}

// `rows` packed rows out of padded ones, 0 where a component is longer than `most`, and from the last offset on.
extern "C" int64_t serrate_unpad(const char* padded, const int64_t* offsets, char* packed, int64_t components,
                                 int64_t rows, int64_t most, int64_t width, int32_t threads) {
  const int64_t total = serrate_total(offsets, components + 1);
  if (total < 0 || total > rows) return -1;
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    const size_t all = (offsets[b + 1] - offsets[b]) * width, have = std::min<size_t>(all, most * width);
    char* row = packed + offsets[b] * width;
    if (have) std::memcpy(row, padded + b * most * width, have);
    if (all > have) std::memset(row + have, 0, all - have);
  }
  if (rows > total && width) std::memset(packed + total * width, 0, (rows - total) * width);
  return 0;
}

// ------------------------------------------------------------------------------------------------- runs of rows

namespace {

// Run j, rows source[j] .. source[j] + lengths[j] of one side, is what follows run j - 1 on the other.
template <class T>
void copy_runs(const char* values, const int64_t* source, const T* lengths, int64_t count, int64_t width, char* out) {
  for (int64_t j = 0; j < count; ++j) {
    const int64_t bytes = lengths[j] * width;
    if (bytes) std::memcpy(out, values + source[j] * width, bytes);
    out += bytes;
  }
}

// The same back, for runs that share no row; 0 in all other rows.
template <class T>
void put_runs(const char* values, const int64_t* source, const T* lengths, int64_t count, int64_t width, int64_t rows,
              char* out) {
  int64_t covered = 0;
  for (int64_t j = 0; j < count; ++j) covered += lengths[j];
  if (covered < rows) std::memset(out, 0, rows * width);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t bytes = lengths[j] * width;
    if (bytes) std::memcpy(out + source[j] * width, values, bytes);
    values += bytes;
  }
}

// The runs of lengths[index[j]] rows, where lengths cut rows one after the other; how many rows they have together.
template <class T>
int64_t select_runs(const T* lengths, const int64_t* offsets, int64_t count, const int64_t* index, int64_t chosen,
                    int64_t* source, T* picked) {
  int64_t total = 0;
  for (int64_t j = 0; j < chosen; ++j) {
    if (index[j] < 0 || index[j] >= count) return -1;
    source[j] = offsets[index[j]];
    picked[j] = lengths[index[j]];
    total += picked[j];
  }
  return total;
}

// The runs of at most `most` rows from start[j] on in component j of `rows` rows; how many rows they have together.
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

// ------------------------------------------------------------------------------------------------- numbers of rows

constexpr int64_t kNegative = 1, kTooLarge = 2;

// Running sums of each line of `columns` lengths with a 0 before it: what was wrong with them, if anything.
template <class T, class Out>
int64_t complete(const T* lengths, int64_t lines, int64_t columns, Out* out) {
  T least = 0, most = 0;
  for (int64_t i = 0; i < lines * columns; ++i) {
    least = std::min(least, lengths[i]);
    most = std::max(most, lengths[i]);
  }
  const Out each = columns ? std::numeric_limits<Out>::max() / columns : 0;
  const bool small = most <= each && least >= -each;  // then no sum can be too large
  bool fits = true;
  for (int64_t i = 0; i < lines; ++i, lengths += columns) {
    Out sum = 0;
    *out++ = 0;
    if (small) {
      int64_t j = 0;
      for (; j + 4 <= columns; j += 4) {  // four at once: only every fourth sum waits for the one before
        const Out one = lengths[j], two = one + lengths[j + 1], three = two + lengths[j + 2];
        out[j] = sum + one;
        out[j + 1] = sum + two;
        out[j + 2] = sum + three;
        out[j + 3] = sum += three + lengths[j + 3];
      }
      for (; j < columns; ++j) out[j] = sum += lengths[j];
      out += columns;
    } else {
      for (int64_t j = 0; j < columns; ++j, *out++ = sum) fits &= !__builtin_add_overflow(sum, lengths[j], &sum);
    }
  }
  return (least < 0 ? kNegative : 0) | (fits ? 0 : kTooLarge);
}

// Where a mask holds, and for how many values of each component; `index` has room for one entry more than the mask.
// How many these are, or -1 unless the components have `rows` values.
template <class T>
int64_t keep(const uint8_t* mask, const T* lengths, int64_t count, int64_t rows, int64_t* index, T* kept) {
  int64_t row = 0, found = 0;
  for (int64_t j = 0; j < count; ++j) {
    if (lengths[j] < 0 || lengths[j] > rows - row) return -1;
    const int64_t before = found;
    for (const int64_t end = row + lengths[j]; row < end; ++row) {
      index[found] = row;
      found += mask[row] != 0;
    }
    kept[j] = static_cast<T>(found - before);
  }
  return row == rows ? found : -1;
}

// Whether `count` starts begin with 0, never decrease and stay within `size`.
template <class T>
bool are_starts(const T* starts, int64_t count, int64_t size) {
  bool good = count ? starts[0] == 0 && starts[count - 1] <= size : !size;
  for (int64_t i = 1; i < count; ++i) good &= starts[i] >= starts[i - 1];
  return good;
}

// For each of `size` values its place after the start before it.
template <class T>
int64_t ranges(const T* starts, int64_t count, int64_t size, T* out) {
  if (!are_starts(starts, count, size)) return -1;
  constexpr int kStep = 16;
  const T lane[kStep] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = starts[i], length = (i + 1 < count ? starts[i + 1] : size) - first;
    T* row = out + first;
    if (first + length + kStep <= size) {  // whole steps, what is too much is overwritten by the next rows
      for (int64_t j = 0; j < length; j += kStep) {
        for (int k = 0; k < kStep; ++k) row[j + k] = lane[k] + static_cast<T>(j);
      }
    } else {
      for (int64_t j = 0; j < length; ++j) row[j] = static_cast<T>(j);
    }
  }
  return 0;
}

// Numbers input[permute[i]] .. input[permute[i] + 1] one after the other, which `output` must be the offsets of.
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

// The sum of a run of `length` values, of which `left` may be read: whole vectors, what is past the run left out.
template <class T>
T sum_of(const T* run, int64_t length, int64_t left) {
  constexpr int kLanes = 8;
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

// Sums of the values ends[i] · batch .. ends[i + 1] · batch of `count`: -1 for wrong ends, 1 for a sum too large.
template <class T, class End>
int64_t sums(const T* values, int64_t count, const End* ends, int64_t segments, int64_t batch, T* out) {
  const int64_t rows = batch ? count / batch : std::numeric_limits<int32_t>::max();
  bool good = ends[0] >= 0 && ends[segments] <= rows, fits = true;
  for (int64_t i = 0; i < segments; ++i) good &= ends[i + 1] >= ends[i];
  if (!good) return -1;
  for (int64_t i = 0; i < segments; ++i) {
    const int64_t first = ends[i] * batch, length = (ends[i + 1] - ends[i]) * batch;
    if constexpr (std::is_integral_v<T>) {
      int64_t sum = 0;
      for (int64_t j = 0; j < length; ++j) sum += values[first + j];
      out[i] = static_cast<T>(sum);
      fits &= out[i] == sum;
    } else {
      out[i] = sum_of(values + first, length, count - first);
    }
  }
  return fits ? 0 : 1;
}

}  // namespace

#define SERRATE_FOR_LENGTHS(NAME, T)                                                                                   \
  extern "C" void serrate_copy_runs_##NAME(const char* values, const int64_t* source, const T* lengths, int64_t count, \
                                           int64_t width, char* out) {                                                 \
    copy_runs(values, source, lengths, count, width, out);                                                             \
  }                                                                                                                    \
  extern "C" void serrate_put_runs_##NAME(const char* values, const int64_t* source, const T* lengths, int64_t count,  \
                                          int64_t width, int64_t rows, char* out) {                                    \
    put_runs(values, source, lengths, count, width, rows, out);                                                        \
  }                                                                                                                    \
  extern "C" int64_t serrate_select_runs_##NAME(const T* lengths, const int64_t* offsets, int64_t count,               \
                                                const int64_t* index, int64_t chosen, int64_t* source, T* picked) {    \
    return select_runs(lengths, offsets, count, index, chosen, source, picked);                                        \
  }                                                                                                                    \
  extern "C" int64_t serrate_slice_runs_##NAME(const T* lengths, const T* start, int64_t count, int64_t rows,          \
                                               int64_t most, int64_t* source, T* picked) {                             \
    return slice_runs(lengths, start, count, rows, most, source, picked);                                              \
  }                                                                                                                    \
  extern "C" int64_t serrate_complete_##NAME(const T* lengths, int64_t lines, int64_t columns, T* out) {               \
    return complete(lengths, lines, columns, out);                                                                     \
  }                                                                                                                    \
  extern "C" int64_t serrate_offsets_##NAME(const T* lengths, int64_t lines, int64_t columns, int64_t* out) {          \
    return complete(lengths, lines, columns, out);                                                                     \
  }                                                                                                                    \
  extern "C" int64_t serrate_keep_##NAME(const uint8_t* mask, const T* lengths, int64_t count, int64_t rows,           \
                                         int64_t* index, T* kept) {                                                    \
    return keep(mask, lengths, count, rows, index, kept);                                                              \
  }                                                                                                                    \
  extern "C" int64_t serrate_ranges_##NAME(const T* starts, int64_t count, int64_t size, T* out) {                     \
    return ranges(starts, count, size, out);                                                                           \
  }                                                                                                                    \
  extern "C" int64_t serrate_expand_##NAME(const T* permute, const T* input, const T* output, int64_t features,        \
                                           int64_t chosen, int64_t size, T* out) {                                     \
    return expand(permute, input, output, features, chosen, size, out);                                                \
  }

SERRATE_FOR_LENGTHS(int32, int32_t)
SERRATE_FOR_LENGTHS(int64, int64_t)

#define SERRATE_SUMS(NAME, T, END_NAME, END)                                                                       \
  extern "C" int64_t serrate_sums_##NAME##_##END_NAME(const T* values, int64_t count, const END* ends,             \
                                                      int64_t segments, int64_t batch, T* out) {                   \
    return sums(values, count, ends, segments, batch, out);                                                        \
  }
#define SERRATE_SUMS_OF(NAME, T)             \
  SERRATE_SUMS(NAME, T, int32, int32_t)      \
  SERRATE_SUMS(NAME, T, int64, int64_t)

SERRATE_SUMS_OF(float32, float)
SERRATE_SUMS_OF(float64, double)
SERRATE_SUMS_OF(int32, int32_t)
SERRATE_SUMS_OF(int64, int64_t)
