// This file copies measured rows of nested tables out of blocks of memory, padded. gather.h describes the arguments.

#include "gather.h"

#ifdef __AVX__
#include <immintrin.h>
#endif

namespace {

constexpr int64_t kBlockBytes = 1 << 18;  // Parts of the result up to this size are filled before lists are written.
constexpr int64_t kTouched = 1024;        // This many bytes of a row are read before they are needed.
constexpr int64_t kLarge = 1 << 24;       // Results from this size on get their padding past the caches.
constexpr int64_t kChunk = 32;            // A thread takes this many rows at once.

// Does the same as `fill`, but writes past the caches, for results that are larger than they are: a cache line that is
// written as a whole need not be read first.
void stream(char* out, int64_t bytes, const char* filling, int64_t size) {
#ifdef __AVX__
  constexpr int64_t kVector = 32;
  const int64_t head = -reinterpret_cast<intptr_t>(out) & (2 * kVector - 1);
  if (bytes >= 16 * kVector && (filling == nullptr || (kVector % size == 0 && head % size == 0))) {
    char pattern[kVector];
    fill(pattern, kVector, filling, size);
    const __m256i vector = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pattern));
    fill(out, head, filling, size);
    int64_t at = head;
    for (; at + 2 * kVector <= bytes; at += 2 * kVector) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(out + at), vector);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(out + at + kVector), vector);
    }
    fill(out + at, bytes - at, filling, size);
    return;
  }
#endif
  fill(out, bytes, filling, size);
}

constexpr int kDeepest = 64;

// A chain has the levels from the first below the rows down to a given one. For each it has the padded size, how many
// entries of a list are kept, whether padding is on the left, and how many cells of the last level a list takes.
struct Chain {
  int64_t depth = 0, level[kDeepest], size[kDeepest], most[kDeepest], left[kDeepest];
  int64_t cells[kDeepest];

  Chain(const Layout& layout, int64_t l, const int64_t* sizes, const int64_t* keep, const int64_t* sides) {
    for (int64_t up = l; layout.parents[up] >= 0; up = layout.parents[up]) level[depth++] = up;
    std::reverse(level, level + depth);
    int64_t below = 1;
    for (int64_t k = depth - 1; k >= 0; --k) {
      size[k] = sizes[level[k]];
      most[k] = std::min(keep[level[k]], size[k]);
      left[k] = sides[level[k]];
      cells[k] = below *= size[k];
    }
  }
};

// Walks over the lists at the end of a chain, and writes each list to its cells by a `Put`. All other cells of a row
// are filled. Lists are written in the order of their cells, so a `Put` may also write the filling to cells after its
// list, up to the end of the row.
template <class Put>
struct Walk {
  const Chain& chain;
  const Blocks& blocks;
  const int64_t* runs;
  const Report& report;
  int64_t rows;
  char* out;
  int64_t width;  // the number of bytes of a cell
  const char* filling;
  int64_t filling_size;
  bool large;

  void blank(char* from, int64_t bytes) const {
    if (large) stream(from, bytes, filling, filling_size);
    else fill(from, bytes, filling, filling_size);
  }

  // Writes the lists of the entries first .. first + kept of the last level but one; the first goes to `cell`.
  template <class T>
  int64_t leaves(const T* ends, int64_t row, int64_t first, int64_t kept, int64_t cell, const Put& put) const {
    const int64_t k = chain.depth - 1, size = chain.size[k], most = chain.most[k], left = chain.left[k];
    const int64_t *run = runs + 2 * chain.level[k] * rows + row, low = run[0], high = run[rows];
    const int64_t last_cell = (row + 1) * chain.cells[0];
    int64_t from = ends[first];
    for (int64_t j = 0; j < kept; ++j, cell += size) {
      const int64_t next = ends[first + j + 1];
      if (from < low || next < from || next > high) {  // A file was changed after it was measured.
        return report(kOffsets, chain.level[k], blocks.of(row), first + j, from, next);
      }
      const int64_t n = std::min(next - from, most);
      if (const int64_t failed = put(from, left ? cell + size - n : cell, n, last_cell)) return failed;
      from = next;
    }
    return 0;
  }

  // Writes the list first .. last at level k of the chain from `cell` on; `clean` says that its cells are filled
  // already.
  int64_t list(int64_t k, int64_t row, int64_t first, int64_t last, int64_t cell, bool clean, const Put& put) const {
    const int64_t kept = std::min(last - first, chain.most[k]), each = chain.cells[k] / std::max<int64_t>(chain.size[k], 1);
    const int64_t begin = chain.left[k] ? chain.size[k] - kept : 0;
    if (!clean) {
      char* all = out + cell * width;
      clean = chain.cells[k] * width <= kBlockBytes && (!large || k + 1 == chain.depth);
      if (clean) {
        fill(all, chain.cells[k] * width, filling, filling_size);
      } else {
        blank(all, begin * each * width);
        blank(all + (begin + kept) * each * width, (chain.size[k] - begin - kept) * each * width);
      }
    }
    if (kept == 0) return 0;
    cell += begin * each;
    if (k + 1 == chain.depth) return put(first, cell, kept, (row + 1) * chain.cells[0]);
    const int64_t inner = chain.level[k + 1];
    const Level& level = blocks.level(blocks.of(row), inner);
    if (k + 2 == chain.depth && clean) {
      return level.wide ? leaves(reinterpret_cast<const int64_t*>(level.offsets), row, first, kept, cell, put)
                        : leaves(reinterpret_cast<const int32_t*>(level.offsets), row, first, kept, cell, put);
    }
    const int64_t* run = runs + 2 * inner * rows + row;
    int64_t next = level.at(first);
    for (int64_t j = 0; j < kept; ++j) {
      const int64_t from = next;
      next = level.at(first + j + 1);
      if (from < run[0] || next < from || next > run[rows]) {
        return report(kOffsets, inner, blocks.of(row), first + j, from, next);
      }
      if (const int64_t failed = list(k + 1, row, from, next, cell + j * each, clean, put)) return failed;
    }
    return 0;
  }

  int64_t operator()(int64_t row, const Put& put) const {
    const int64_t* run = runs + 2 * chain.level[0] * rows + row;
    return list(0, row, run[0], run[rows], row * chain.cells[0], false, put);
  }
};

constexpr int kLanes = 8;
constexpr int64_t kLong = 64;  // Lists of more elements are copied as one run.

template <int Bytes> struct Integer;
template <> struct Integer<1> { using type = int8_t; };
template <> struct Integer<2> { using type = int16_t; };
template <> struct Integer<4> { using type = int32_t; };
template <> struct Integer<8> { using type = int64_t; };

template <class T>
using Vector [[gnu::vector_size(kLanes * sizeof(T))]] = T;

// Writes lists of elements as they are, or as elements of a wider type. Short lists are written in whole vectors, with
// the filling in the lanes past the end, so that no branch depends on their length. `One` says that an entry is one
// element. `Coded` says that an element is a code, a place in a vocabulary: each lane remembers the greatest code that
// it has read, also past the end of a list. If one of these is no place, the caller checks the codes of the row again.
template <class In, class Out, bool One, bool Coded>
struct Elements {
  using Lane = typename Integer<sizeof(Out)>::type;
  using Code = std::make_unsigned_t<In>;
  const In* values;
  int64_t readable, per_entry;
  Out* out;
  Out filling;
  uint64_t limit;  // Codes below it are places.
  mutable Vector<Code> most = {};

  bool all_places() const {
    Code found = 0;
    for (int lane = 0; lane < kLanes; ++lane) found = std::max<Code>(found, most[lane]);
    return found < limit;
  }

  int64_t operator()(int64_t first, int64_t place, int64_t n, int64_t last_cell) const {
    if (!One) {
      first *= per_entry;
      place *= per_entry;
      n *= per_entry;
      last_cell *= per_entry;
    }
    const In* from = values + first;
    Out* to = out + place;
    if (n > kLong || first + n + kLanes > readable || place + n + kLanes > last_cell) {
      if constexpr (sizeof(In) == sizeof(Out)) copy(reinterpret_cast<char*>(to), reinterpret_cast<const char*>(from), n * sizeof(Out));
      else for (int64_t j = 0; j < n; ++j) to[j] = from[j];
      // The written codes are checked, since the file may change meanwhile.
      if constexpr (Coded) {
        Code found = 0;
        for (int64_t j = 0; j < n; ++j) found = std::max<Code>(found, static_cast<Code>(to[j]));
        most[0] = std::max<Code>(most[0], found);
      }
      return 0;
    }
    const Vector<Lane> lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    const Vector<Out> rest = Vector<Out>{} + filling;
    int64_t j = 0;
    do {
      Vector<In> read;
      std::memcpy(&read, from + j, sizeof(read));
      if constexpr (Coded) most = Vector<Code>(read) > most ? Vector<Code>(read) : most;
      const Vector<Out> wide = __builtin_convertvector(read, Vector<Out>);
      const Vector<Out> written = lanes < static_cast<Lane>(n - j) ? wide : rest;
      std::memcpy(to + j, &written, sizeof(written));
      j += kLanes;
    } while (j < n);
    return 0;
  }
};

template <class Put>
constexpr bool kCoded = false;
template <class In, class Out, bool One>
constexpr bool kCoded<Elements<In, Out, One, true>> = true;

// Writes 1 for each entry: the mask of a level.
struct Presence {
  uint8_t* out;

  int64_t operator()(int64_t, int64_t place, int64_t n, int64_t last_cell) const {
    constexpr int kWide = 16;
    if (n > kWide || place + kWide > last_cell) {
      std::memset(out + place, 1, n);
      return 0;
    }
    typedef int8_t Bytes __attribute__((vector_size(kWide)));
    const Bytes lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Bytes written = (lanes < static_cast<int8_t>(n)) & 1;
    std::memcpy(out + place, &written, kWide);
    return 0;
  }
};

// Writes for each entry whether it is valid, 0 if it is missing: the mask of a column.
struct Validity {
  const uint8_t* valid;
  uint8_t* out;

  int64_t operator()(int64_t first, int64_t place, int64_t n, int64_t) const {
    if (valid) std::memcpy(out + place, valid + first, n);
    else std::memset(out + place, 1, n);
    return 0;
  }
};

// Writes lists of all other columns.
struct Anything {
  Copier copy;

  int64_t operator()(int64_t first, int64_t place, int64_t n, int64_t) const { return copy(first, place, n); }
};

// Writes all rows of a batch as rectangles, one column after the other. All threads call its functions.
struct Padding {
  const Layout& layout;
  const Blocks& blocks;
  const Report& report;
  const int64_t *runs, *sizes, *keep, *left;
  int64_t rows;
  bool large;  // whether padding is written past the caches
  int64_t* failed;

  // Reads the values of some rows, so that the waits for them overlap. A prefetch would not do: the processor drops it
  // if it does not know the page yet.
  void touch(int64_t c, int64_t row, int64_t stop) const {
    unsigned sum = 0;
    for (; row < stop; ++row) {
      const Column& column = blocks.column(blocks.of(row), c);
      const int64_t* run = runs + 2 * layout.level_of(c) * rows + row;
      const int64_t width = element_size(column.kind, layout.size(c)) * layout.per_entry(c);
      const int64_t bytes = std::min((run[rows] - run[0]) * width, kTouched);
      for (int64_t at = 0; at < bytes; at += 64) sum += static_cast<uint8_t>(column.values[run[0] * width + at]);
    }
    asm volatile("" : : "r"(sum));
  }

  // Walks over all rows. `make` returns for a block the `Put` that writes its lists; `c` is their column, or -1.
  template <class Make>
  void walk(const Chain& chain, int64_t c, char* out, int64_t width, const char* filling, int64_t filling_size,
            const Make& make) const {
    using Put = decltype(make(0));
    const Walk<Put> each{chain, blocks, runs, report, rows, out, width, filling, filling_size, large};
#pragma omp for schedule(static) nowait
    for (int64_t chunk = 0; chunk < (rows + kChunk - 1) / kChunk; ++chunk) {
      const int64_t stop = std::min(rows, (chunk + 1) * kChunk);
      int64_t block = blocks.of(chunk * kChunk);
      Put put = make(block);
      if (c >= 0) touch(c, chunk * kChunk, stop);
      for (int64_t i = chunk * kChunk; i < stop; ++i) {
        if (blocks.of(i) != block) put = make(block = blocks.of(i));
        int64_t fault = each(i, put);
        if constexpr (kCoded<Put>) fault = fault || put.all_places() ? fault : check_codes(c, i);
        if (fault) {
#pragma omp atomic write
          *failed = 1;
          break;
        }
      }
    }
  }

  // Returns the fault of the first code of a row that is no place in its vocabulary, or 0.
  int64_t check_codes(int64_t c, int64_t row) const {
    const int64_t* run = runs + 2 * layout.level_of(c) * rows + row;
    return Copier(layout, blocks, blocks.of(row), c, nullptr, report).check(run[0], run[rows] - run[0]);
  }

  template <class In, class Out, bool One = false, bool Coded = false>
  void elements(const Chain& chain, int64_t c, char* out, const char* filling) const {
    const int64_t per_entry = layout.per_entry(c);
    Out value = 0;
    if (filling) std::memcpy(&value, filling, sizeof(Out));
    walk(chain, c, out, per_entry * sizeof(Out), filling, sizeof(Out), [&](int64_t b) {
      const Column& column = blocks.column(b, c);
      const int64_t readable = blocks.level(b, layout.level_of(c)).count * per_entry;
      const uint64_t limit = Coded ? Copier(layout, blocks, b, c, nullptr, report).limit : 0;
      return Elements<In, Out, One, Coded>{reinterpret_cast<const In*>(column.values), readable, per_entry,
                                           reinterpret_cast<Out*>(out), value, limit};
    });
  }

  template <class T>
  bool plain(const Chain& chain, int64_t c, char* out, const char* filling) const {
    if (is_coded(c)) return coded<T, T>(chain, c, out, filling);
    if (layout.per_entry(c) == 1) elements<T, T, true>(chain, c, out, filling);
    else elements<T, T>(chain, c, out, filling);
    return true;
  }

  template <class In, class Out>
  bool wider(const Chain& chain, int64_t c, char* out, const char* filling) const {
    if (is_coded(c)) return coded<In, Out>(chain, c, out, filling);
    elements<In, Out>(chain, c, out, filling);
    return true;
  }

  // Returns whether the values of a column are places in a vocabulary; each entry is then one element.
  bool is_coded(int64_t c) const { return blocks.column(0, c).words >= 0; }

  // Writes codes as int64, as nearly all callers want them. Other types are not worth the time of the compiler: for
  // these the function returns false.
  template <class In, class Out>
  bool coded(const Chain& chain, int64_t c, char* out, const char* filling) const {
    if constexpr (sizeof(Out) == 8) elements<In, Out, true, true>(chain, c, out, filling);
    return sizeof(Out) == 8;
  }

  template <class In>
  bool widened(const Chain& chain, int64_t c, char* out, const char* filling) const {
    switch (layout.size(c)) {
      case 2: if constexpr (sizeof(In) < 2) return wider<In, int16_t>(chain, c, out, filling); break;
      case 4: if constexpr (sizeof(In) < 4) return wider<In, int32_t>(chain, c, out, filling); break;
      case 8: if constexpr (sizeof(In) < 8) return wider<In, int64_t>(chain, c, out, filling); break;
      default: break;
    }
    return false;
  }

  // Writes a column whose kind is the same in all blocks, element by element. Returns false if that is not possible.
  bool by_elements(const Chain& chain, int64_t c, int64_t kind, char* out, const char* filling) const {
    if (element_size(kind, layout.size(c)) == layout.size(c)) {
      switch (layout.size(c)) {
        case 1: return plain<int8_t>(chain, c, out, filling);
        case 2: return plain<int16_t>(chain, c, out, filling);
        case 4: return plain<int32_t>(chain, c, out, filling);
        case 8: return plain<int64_t>(chain, c, out, filling);
        default: return false;
      }
    }
    switch (kind) {
      case kUint8: return widened<uint8_t>(chain, c, out, filling);
      case kInt8: return widened<int8_t>(chain, c, out, filling);
      case kUint16: return widened<uint16_t>(chain, c, out, filling);
      case kInt16: return widened<int16_t>(chain, c, out, filling);
      case kUint32: return widened<uint32_t>(chain, c, out, filling);
      default: return widened<int32_t>(chain, c, out, filling);
    }
  }

  void column(int64_t c, int64_t count, char* out, const char* filling) const {
    const Chain chain(layout, layout.level_of(c), sizes, keep, left);
    const int64_t width = layout.per_entry(c) * layout.size(c), kind = blocks.column(0, c).kind;
    if (width == 0) return;
    bool alike = true;
    for (int64_t b = 0; b < count; ++b) alike &= blocks.column(b, c).kind == kind && !blocks.column(b, c).codes;
    if (alike && by_elements(chain, c, kind, out, filling)) return;
    walk(chain, c, out, width, filling, layout.size(c),
         [&](int64_t b) { return Anything{Copier(layout, blocks, b, c, out, report)}; });
  }

  void presence(int64_t l, uint8_t* out) const {
    const Chain chain(layout, l, sizes, keep, left);
    walk(chain, -1, reinterpret_cast<char*>(out), 1, nullptr, 0, [&](int64_t) { return Presence{out}; });
  }

  void validity(int64_t c, uint8_t* out) const {
    const Chain chain(layout, layout.level_of(c), sizes, keep, left);
    walk(chain, -1, reinterpret_cast<char*>(out), 1, nullptr, 0,
         [&](int64_t b) { return Validity{blocks.column(b, c).valid, out}; });
  }

  // Writes a column with one entry for each row.
  void row_column(int64_t c, char* out, uint8_t* valid) const {
    const int64_t* row = runs + 2 * layout.level_of(c) * rows;
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t b = blocks.of(i);
      const Copier copy(layout, blocks, b, c, out, report);
      if (copy(row[i], i, 1)) {
#pragma omp atomic write
        *failed = 1;
      }
      if (valid) valid[i] = copy.valid ? copy.valid[row[i]] : 1;
    }
  }
};

// Writes the masks of all levels and the values of all columns, padded to sizes[level]. Lists keep their first
// keep[level] entries; if left[level] is set, the padding is before them. `out` has for each level the address of a
// mask, or 0; for each column it has the address of its values, of a mask or 0, and of one element to fill with, or 0
// for zeros. Returns 1 for a fault.
int64_t pad(const int64_t* layout_, const int64_t* blocks_, int64_t count, const int64_t* which, int64_t rows,
            const int64_t* runs, const int64_t* sizes, const int64_t* keep, const int64_t* left, const int64_t* out,
            int64_t* fault, int64_t threads) {
  const Layout layout(layout_);
  const Blocks blocks(layout, blocks_, which);
  const Report report{fault};
  int64_t failed = 0;
  int64_t total = 0;
  for (int64_t c = 0; c < layout.columns; ++c) {
    const Chain chain(layout, layout.level_of(c), sizes, keep, left);
    const int64_t cells = rows * (chain.depth ? chain.cells[0] : 1), bytes = cells * layout.per_entry(c) * layout.size(c);
    advise(reinterpret_cast<const void*>(out[layout.levels + 3 * c]), bytes);
    total += bytes;
  }
  const Padding padding{layout, blocks, report, runs, sizes, keep, left, rows, total >= kLarge, &failed};
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    for (int64_t l = 0; l < layout.levels; ++l) {
      if (out[l]) padding.presence(l, reinterpret_cast<uint8_t*>(out[l]));
    }
    for (int64_t c = 0; c < layout.columns; ++c) {
      const int64_t* target = out + layout.levels + 3 * c;
      char* values = reinterpret_cast<char*>(target[0]);
      uint8_t* valid = reinterpret_cast<uint8_t*>(target[1]);
      if (layout.parents[layout.level_of(c)] < 0) {
        padding.row_column(c, values, valid);
        continue;
      }
      padding.column(c, count, values, reinterpret_cast<const char*>(target[2]));
      if (valid) padding.validity(c, valid);
    }
#ifdef __AVX__
    _mm_sfence();  // Other threads see all writes past the caches before they see that this thread is done.
#endif
  }
  return failed;
}

}  // namespace

SERRATE_EXPORT(pad_measured, pad)
