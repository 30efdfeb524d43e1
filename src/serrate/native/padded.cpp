// Packed and padded rows on the CPU: copied from one to the other, added and multiplied.
//
// Component b of B owns the packed rows offsets[b] .. offsets[b + 1] of `rows`; the padded memory has `most` rows for
// each. Offsets that do not start with 0, decrease or end past the rows give -1, and nothing is read or written by them.

namespace {

bool are_wrong(const int64_t* offsets, int64_t components, int64_t rows) {
  const int64_t end = total(offsets, components + 1);
  return end < 0 || end > rows;
}

// Padded rows of `width` bytes out of packed ones; `filling` is one element of `size` bytes, null for zeros.
int64_t pad(const char* packed, const int64_t* offsets, char* padded, int64_t components, int64_t rows, int64_t most,
            int64_t width, const char* filling, int64_t size, int32_t threads) {
  if (are_wrong(offsets, components, rows)) return -1;
  advise(padded, components * most * width);
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    const int64_t have = std::min(offsets[b + 1] - offsets[b], most) * width, all = most * width;
    char* row = padded + b * all;
    copy(row, packed + offsets[b] * width, have);
    fill(row + have, all - have, filling, size);
  }
  return 0;
}

// Packed rows out of padded ones, 0 where a component is longer than `most`, and from the last offset on.
int64_t unpad(const char* padded, const int64_t* offsets, char* packed, int64_t components, int64_t rows, int64_t most,
              int64_t width, int32_t threads) {
  if (are_wrong(offsets, components, rows)) return -1;
  advise(packed, rows * width);
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    const int64_t all = (offsets[b + 1] - offsets[b]) * width, have = std::min(all, most * width);
    char* row = packed + offsets[b] * width;
    copy(row, padded + b * most * width, have);
    clear(row + have, all - have);
  }
  const int64_t end = offsets[components];
  clear(packed + end * width, (rows - end) * width);
  return 0;
}

// ------------------------------------------------------------------------------------- sums and products of elements

struct Add {
  template <class T>
  static T of(T a, T b) { return a + b; }
  template <class T>
  static T alone(T a) { return a + T(0); }  // which is a, but for -0.0
};

struct Multiply {
  template <class T>
  static T of(T a, T b) { return a * b; }
  template <class T>
  static T alone(T) { return T(0); }
};

// out[i] = x[i] op y[i]; `out` may be `x`.
template <class Op, class T>
void combine(const T* x, const T* y, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = Op::of(x[i], y[i]);
}

template <class Op, class T>
void keep_alone(const T* x, T* out, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = Op::alone(x[i]);
}

// Packed rows of `width` elements: x with what y, padded, has at its place, or alone where it has none. `out` may be x.
template <class Op, class T>
int64_t packed(const T* x, const T* y, const int64_t* offsets, T* out, int64_t components, int64_t rows, int64_t most,
               int64_t width, int32_t threads) {
  if (are_wrong(offsets, components, rows)) return -1;
  advise(out, rows * width * sizeof(T));
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    const int64_t first = offsets[b] * width, all = offsets[b + 1] * width - first, have = std::min(all, most * width);
    combine<Op>(x + first, y + b * most * width, out + first, have);
    keep_alone<Op>(x + first + have, out + first + have, all - have);
  }
  const int64_t end = offsets[components] * width;
  keep_alone<Op>(x + end, out + end, rows * width - end);
  return 0;
}

// Padded rows of `width` elements. `row` writes those of a component: it is told where they begin, how many there are,
// where its packed elements begin, and how many of them have a place.
template <class T, class Row>
int64_t padded(const int64_t* offsets, T* out, int64_t components, int64_t rows, int64_t most, int64_t width,
               int32_t threads, const Row& row) {
  if (are_wrong(offsets, components, rows)) return -1;
  const int64_t all = most * width;
  advise(out, components * all * sizeof(T));
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t b = 0; b < components; ++b) {
    const int64_t first = offsets[b] * width;
    row(b * all, all, first, std::min(offsets[b + 1] * width - first, all));
  }
  return 0;
}

// What x, packed, has at a place, or 0, plus y, padded.
template <class T>
int64_t padded_sum(const T* x, const T* y, const int64_t* offsets, T* out, int64_t components, int64_t rows,
                   int64_t most, int64_t width, int32_t threads) {
  return padded(offsets, out, components, rows, most, width, threads,
                [=](int64_t at, int64_t all, int64_t first, int64_t have) {
                  combine<Add>(x + first, y + at, out + at, have);
                  keep_alone<Add>(y + at + have, out + at + have, all - have);
                });
}

// The products of two packed ones, and 0.
template <class T>
int64_t padded_product(const T* x, const T* z, const int64_t* offsets, T* out, int64_t components, int64_t rows,
                       int64_t most, int64_t width, int32_t threads) {
  return padded(offsets, out, components, rows, most, width, threads,
                [=](int64_t at, int64_t all, int64_t first, int64_t have) {
                  combine<Multiply>(x + first, z + first, out + at, have);
                  std::fill(out + at + have, out + at + all, T(0));
                });
}

}  // namespace

SERRATE_EXPORT(total, total)
SERRATE_EXPORT(pad, pad)
SERRATE_EXPORT(unpad, unpad)

#define SERRATE_FOR_NUMBERS(NAME, T)                          \
  SERRATE_EXPORT(packed_sum_##NAME, packed<Add, T>)           \
  SERRATE_EXPORT(packed_product_##NAME, packed<Multiply, T>)  \
  SERRATE_EXPORT(padded_sum_##NAME, padded_sum<T>)            \
  SERRATE_EXPORT(padded_product_##NAME, padded_product<T>)

SERRATE_FOR_NUMBERS(float32, float)
SERRATE_FOR_NUMBERS(float64, double)
SERRATE_FOR_NUMBERS(int32, int32_t)
SERRATE_FOR_NUMBERS(int64, int64_t)
