// This file multiplies packed rows, component by component, without padding.
//
// Component b owns the packed rows offsets[b] .. offsets[b + 1], of which the first `most` count. If the offsets are
// wrong or cut more than `rows` rows, a function returns -1 and neither reads nor writes a row. A product of matrices,
// C[m, n] = Σ_k A[m, k] · B[k, n], is computed in tiles that stay in registers.

#include "common.h"

#include <vector>

#ifdef __clang__
#pragma clang fp contract(fast)  // Other compilers multiply and add in one instruction anyway.
#endif

namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
constexpr int64_t kDepth = 256;
constexpr int kRows = 6, kVectors = 2;  // A tile has 12 sums: they hide the latency of additions and fit 16 registers.

template <class T>
struct Lanes {
  typedef T type __attribute__((vector_size(kBytes)));
  typedef T memory __attribute__((vector_size(kBytes), aligned(alignof(T)), may_alias));  // at any address
  static constexpr int count = kBytes / sizeof(T);
  static constexpr int columns = count * kVectors;
};

// Element (i, j) of a matrix is at data[i * row + j * column].
template <class T>
struct Matrix {
  const T* data;
  int64_t row, column;
};

// Computes C[M, columns] = A[M, depth] · B[depth, columns]; the lines of B and C are contiguous.
template <class T, int M>
void tile(int64_t depth, Matrix<T> a, const T* b, int64_t b_row, T* c, int64_t c_row) {
  using V = typename Lanes<T>::type;
  using Memory = typename Lanes<T>::memory;
  V sums[M][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const Memory* line = reinterpret_cast<const Memory*>(b + k * b_row);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      const T factor = a.data[i * a.row + k * a.column];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] += factor * line[v];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) reinterpret_cast<Memory*>(c + i * c_row)[v] = sums[i][v];
  }
}

template <class T>
void tile_of(int64_t rows, int64_t depth, Matrix<T> a, const T* b, int64_t b_row, T* c, int64_t c_row) {
  switch (rows) {
    case 1: return tile<T, 1>(depth, a, b, b_row, c, c_row);
    case 2: return tile<T, 2>(depth, a, b, b_row, c, c_row);
    case 3: return tile<T, 3>(depth, a, b, b_row, c, c_row);
    case 4: return tile<T, 4>(depth, a, b, b_row, c, c_row);
    case 5: return tile<T, 5>(depth, a, b, b_row, c, c_row);
    default: return tile<T, 6>(depth, a, b, b_row, c, c_row);
  }
}

// Copies the columns first .. first + count of B to contiguous lines as wide as a tile, with 0 after the last column.
template <class T>
void pack(int64_t depth, Matrix<T> b, int64_t first, int64_t count, T* packed) {
  constexpr int kWidth = Lanes<T>::columns;
  if (count < kWidth) std::fill(packed, packed + depth * kWidth, T(0));
  for (int64_t j = 0; j < count; ++j) {
    const T* column = b.data + (first + j) * b.column;
    for (int64_t k = 0; k < depth; ++k) packed[k * kWidth + j] = column[k * b.row];
  }
}

// The memory that a thread multiplies with.
template <class T>
struct Room {
  std::vector<T> packed;     // up to kDepth lines as wide as a tile
  std::vector<double> sums;  // lines as wide as a tile, if there is more than one block to add up

  // Makes room for products of up to m lines and sums of up to k products.
  Room(int64_t m, int64_t k)
      : packed(Lanes<T>::columns * std::min(kDepth, k)), sums(k > kDepth ? Lanes<T>::columns * m : 0) {}
};

// Computes C[m, n] = A[m, k] · B[k, n]. Up to kDepth products are summed in tiles; the sums of several such blocks are
// added up in float64, so that errors do not grow with k.
template <class T>
void multiply(int64_t m, int64_t n, int64_t k, Matrix<T> a, Matrix<T> b, T* c, Room<T>& room) {
  constexpr int kWidth = Lanes<T>::columns;
  T edge[kRows * kWidth];
  if (!k) std::fill(c, c + m * n, T(0));
  for (int64_t j = 0; j < n; j += kWidth) {
    const int64_t columns = std::min<int64_t>(kWidth, n - j);
    const bool direct = b.column == 1 && columns == kWidth;
    for (int64_t first = 0; first < k; first += kDepth) {
      const int64_t depth = std::min(kDepth, k - first);
      const Matrix<T> some{b.data + first * b.row, b.row, b.column};
      if (!direct) pack(depth, some, j, columns, room.packed.data());
      const T* lines = direct ? some.data + j : room.packed.data();
      const int64_t line = direct ? b.row : kWidth;
      for (int64_t i = 0; i < m; i += kRows) {
        const int64_t rows = std::min<int64_t>(kRows, m - i);
        const Matrix<T> part{a.data + i * a.row + first * a.column, a.row, a.column};
        T* out = c + i * n + j;
        if (columns == kWidth && k <= kDepth) {
          tile_of(rows, depth, part, lines, line, out, n);
          continue;
        }
        tile_of(rows, depth, part, lines, line, edge, kWidth);
        if (k <= kDepth) {
          for (int64_t r = 0; r < rows; ++r) std::copy_n(edge + r * kWidth, columns, out + r * n);
          continue;
        }
        double* sums = room.sums.data() + i * kWidth;
        for (int64_t q = 0; q < rows * kWidth; ++q) sums[q] = edge[q] + (first ? sums[q] : 0.0);
        if (first + depth < k) continue;
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t q = 0; q < columns; ++q) out[r * n + q] = static_cast<T>(sums[r * kWidth + q]);
        }
      }
    }
  }
}

// Returns the largest number of rows of a component that count, or -1 for wrong offsets.
int64_t longest(const int64_t* offsets, int64_t components, int64_t rows, int64_t most) {
  bool good = offsets[0] == 0 && offsets[components] <= rows;
  int64_t found = 0;
  for (int64_t b = 0; b < components; ++b) {
    good &= offsets[b + 1] >= offsets[b];
    found = std::max(found, offsets[b + 1] - offsets[b]);
  }
  return good ? std::min(found, most) : -1;
}

// Computes the derivative of Σ x[l, k] · y[b, k, m] · z[l, m] by operand number `part` of x [N, K], y [B, K, M] and
// z [N, M]; the pointer to this operand is not used.
template <class T>
int64_t product(int32_t part, const T* x, const T* y, const T* z, T* out, const int64_t* offsets, int64_t components,
                int64_t rows, int64_t most, int64_t k, int64_t m, int32_t threads) {
  const int64_t depth = longest(offsets, components, rows, most);
  if (depth < 0) return -1;
  const int64_t width = part == 0 ? k : m;
  advise(out, (part == 1 ? components * k * m : rows * width) * sizeof(T));
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    Room<T> room(part == 1 ? k : depth, part == 0 ? m : part == 1 ? depth : k);
#pragma omp for schedule(dynamic, 4)
    for (int64_t b = 0; b < components; ++b) {
      const int64_t first = offsets[b], all = offsets[b + 1] - first, some = std::min(all, most);
      const T *left = x + first * k, *matrix = y + b * k * m, *right = z + first * m;
      if (part == 1) {
        multiply<T>(k, m, some, {left, 1, k}, {right, m, 1}, out + b * k * m, room);
        continue;
      }
      T* made = out + first * width;
      if (part == 2) multiply<T>(some, m, k, {left, k, 1}, {matrix, m, 1}, made, room);
      if (part == 0) multiply<T>(some, k, m, {right, m, 1}, {matrix, 1, m}, made, room);
      std::fill(made + some * width, made + all * width, T(0));
    }
  }
  if (part != 1) std::fill(out + offsets[components] * width, out + rows * width, T(0));
  return 0;
}

// Adds up the lanes of a vector, one half to the other, again and again.
template <class T, int N>
struct Sum {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
  typedef T half __attribute__((vector_size(N / 2 * sizeof(T))));
  static T of(type v) {
    half low, high;
    std::memcpy(&low, &v, sizeof(half));
    std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof(half), sizeof(half));
    return Sum<T, N / 2>::of(low + high);
  }
};

template <class T>
struct Sum<T, 1> {
  typedef T type __attribute__((vector_size(sizeof(T))));
  static T of(type v) { return v[0]; }
};

template <class T>
T dot(const T* a, const T* b, int64_t count) {
  using Memory = typename Lanes<T>::memory;
  typename Lanes<T>::type sums = {};
  int64_t i = 0;
  for (; i + Lanes<T>::count <= count; i += Lanes<T>::count) {
    sums += *reinterpret_cast<const Memory*>(a + i) * *reinterpret_cast<const Memory*>(b + i);
  }
  T rest = 0;
  for (; i < count; ++i) rest += a[i] * b[i];
  return Sum<T, Lanes<T>::count>::of(sums) + rest;
}

// Computes the derivative of Σ v[b, h, l] · a[l, h, d] · g[b, h, d] by operand number `part` of v [B, H, L], a [N, H,
// D] and g [B, H, D]; the pointer to this operand is not used.
template <class T>
int64_t weighted(int32_t part, const T* v, const T* a, const T* g, T* out, const int64_t* offsets, int64_t components,
                 int64_t rows, int64_t most, int64_t heads, int64_t size, int32_t threads) {
  if (longest(offsets, components, rows, most) < 0) return -1;
  advise(out, (part == 1 ? rows * size : components * (part == 0 ? most : size)) * heads * sizeof(T));
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t item = 0; item < components * heads; ++item) {
    const int64_t b = item / heads, head = item % heads;
    const int64_t first = offsets[b], all = offsets[b + 1] - first, some = std::min(all, most);
    const int64_t weights = item * most, sum = item * size;
    if (part == 0) std::fill(out + weights + some, out + weights + most, T(0));
    if (part == 2) std::fill(out + sum, out + sum + size, T(0));
    for (int64_t l = 0; l < all; ++l) {
      const int64_t row = ((first + l) * heads + head) * size;
      if (part == 1) {
        const T weight = l < some ? v[weights + l] : T(0);
        for (int64_t d = 0; d < size; ++d) out[row + d] = l < some ? weight * g[sum + d] : T(0);
      } else if (l < some && part == 2) {
        const T weight = v[weights + l];
#pragma omp simd
        for (int64_t d = 0; d < size; ++d) out[sum + d] += weight * a[row + d];
      } else if (l < some) {
        out[weights + l] = dot(a + row, g + sum, size);
      }
    }
  }
  if (part == 1) std::fill(out + offsets[components] * heads * size, out + rows * heads * size, T(0));
  return 0;
}

}  // namespace

SERRATE_EXPORT(product_float32, product<float>)
SERRATE_EXPORT(product_float64, product<double>)
SERRATE_EXPORT(weighted_float32, weighted<float>)
SERRATE_EXPORT(weighted_float64, weighted<double>)
