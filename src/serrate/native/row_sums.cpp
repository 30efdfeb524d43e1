// This file sums packed rows on the CPU: neighbours, by components.h, and rows that have the same index or the same
// position in their components.
//
// Sums that are updated row by row are kept in float64. For rows of float64 the rounding error is kept beside each sum.
// The way in which a sum is computed depends only on sizes, so that results have the same bits for any number of
// threads.
//
// For wrong offsets or indices a function returns -1 and writes nothing. If there is not enough memory it returns -2.

#include "components.h"

namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

template <class T>
using Memory = std::unique_ptr<T[], Free>;

// Returns memory that is set to 0.
template <class T>
Memory<T> zeros(int64_t count) {
  return Memory<T>(static_cast<T*>(std::calloc(std::max<int64_t>(count, 1), sizeof(T))));
}

// Sums in memory. Each has kParts numbers: for float64, the second one collects what rounding took from the sum.
template <class T>
struct Waiting {
  static constexpr int64_t kParts = std::is_same_v<T, double> ? 2 : 1;

  // Adds a number to its sum, or a vector of numbers to their sums; the second parts lie `apart` numbers behind.
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

  // Adds numbers to as many sums. If `beyond`, the memory after the last number may be read and written, and only whole
  // vectors are used.
  static SERRATE_INLINE void add(Wide<T>* sums, int64_t apart, const T* values, int64_t count, bool beyond) {
    int64_t j = 0;
    for (; j + kLanes <= count; j += kLanes) put<Vector<Wide<T>>>(sums + j, apart, widen<T>(load(values + j)));
    if (beyond) {
      if (j < count) put<Vector<Wide<T>>>(sums + j, apart, first_of<Wide<T>>(widen<T>(load(values + j)), count - j));
      return;
    }
    for (; j < count; ++j) {
      put<Wide<T>>(sums + j, apart, values[j]);
      asm volatile("" : : : "memory");  // Without this line the compiler makes vectors of the numbers that are left.
    }
  }

  // Writes the final sums to `out`, which may be the memory of the sums.
  template <class X>
  static void write(const Wide<T>* sums, int64_t apart, int64_t count, X* out) {
    for (int64_t j = 0; j < count; ++j) {
      if constexpr (kParts == 1) {
        out[j] = static_cast<X>(sums[j]);
      } else {
        const double rest = sums[apart + j];
        out[j] = rest - rest == 0 ? sums[j] + rest : sums[j];  // The rest of an infinite sum is not a number.
      }
    }
  }
};

template <int64_t kNumber>
using Constant = std::integral_constant<int64_t, kNumber>;

// Computes for each of `cells` numbers the sum of the rows with this index. If there are few sums, each has kCopies
// copies, since an addition to a sum waits for the addition before it.
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
  switch (width) {
    case 1: copies > 1 ? put(Constant<1>(), Constant<kCopies>()) : put(Constant<1>(), Constant<1>()); break;
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

// Computes the same, but sorts the rows by their index first: for so many sums that they do not fit the cache.
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

// Computes for each of `cells` numbers the sum of the rows [width] with this index. Rows with the index `cells` are
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

// Computes for each of `cells` positions the sum of the rows at this position of their components. It goes over blocks
// of columns and positions, and adds for each block the components that reach it.
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
