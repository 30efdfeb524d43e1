// Rows of nested tables: measured, then copied out of blocks of memory, packed or padded.
//
// A level has entries; `offsets` of a level say for each entry of its parent which of them it has. Rows are entries of
// the level without a parent. Entries of all levels lie in the order of the rows, so that those of a row are one run at
// each level. Blocks may be files that lie: every offset is checked before it is followed, and a second time where a
// file could have changed since. Whoever calls makes sure that each block has as many offsets and values as it says.
//
//   layout   levels, columns; for each level its parent or -1; for each column its level, elements per entry, bytes per
//            element of the result
//   blocks   for each block: for each level the address of its offsets, whether they are int64, its entries; for each
//            column the address of its values, their kind, the addresses of a mask or 0, of new codes or 0, their number
//   runs     [levels, 2, rows]: where a row's entries begin and end in its block
//   ends     [levels, rows + 1]: where they begin and end in the result

namespace {

enum Fault : int64_t { kRow = 1, kOffsets = 2, kCut = 3, kCode = 4 };
enum Kind : int64_t { kUint8, kInt8, kUint16, kInt16, kUint32, kInt32, kOther };

constexpr int64_t kBlockBytes = 1 << 18;  // a part of the result that is filled before it is written to
constexpr int64_t kTouched = 1024;        // bytes of a row that are read before they are needed
constexpr int64_t kChunk = 32;            // rows that a thread takes at once

struct Level {
  const char* offsets;
  int64_t wide, count;

  int64_t at(int64_t entry) const {
    return wide ? reinterpret_cast<const int64_t*>(offsets)[entry] : reinterpret_cast<const int32_t*>(offsets)[entry];
  }
};

struct Column {
  const char* values;
  int64_t kind;
  const uint8_t* valid;
  const int64_t* codes;
  int64_t words;
};

struct Layout {
  int64_t levels, columns;
  const int64_t *parents, *of_columns;

  explicit Layout(const int64_t* given)
      : levels(given[0]), columns(given[1]), parents(given + 2), of_columns(given + 2 + given[0]) {}
  int64_t level_of(int64_t column) const { return of_columns[3 * column]; }
  int64_t per_entry(int64_t column) const { return of_columns[3 * column + 1]; }
  int64_t size(int64_t column) const { return of_columns[3 * column + 2]; }
};

struct Blocks {
  const int64_t* given;
  int64_t levels, stride;
  const int64_t* which;

  Blocks(const Layout& layout, const int64_t* given, const int64_t* which)
      : given(given), levels(layout.levels), stride(3 * layout.levels + 5 * layout.columns), which(which) {}
  int64_t of(int64_t row) const { return which ? which[row] : 0; }
  const Level& level(int64_t block, int64_t level) const {
    return reinterpret_cast<const Level*>(given + block * stride)[level];
  }
  const Column& column(int64_t block, int64_t column) const {
    return reinterpret_cast<const Column*>(given + block * stride + 3 * levels)[column];
  }
};

// What was wrong first, for the caller to say in words.
struct Report {
  int64_t* out;

  int64_t operator()(Fault fault, int64_t of, int64_t block, int64_t entry, int64_t first, int64_t last,
                     int64_t length = 0) const {
#pragma omp critical(serrate_report)
    if (!out[0]) {
      const int64_t all[] = {fault, of, block, entry, first, last, length};
      std::copy_n(all, 7, out);
    }
    return fault;
  }
};

// The longest list of the entries begin .. end of the parent; `wrong` is an entry whose list is none, or -1.
template <class T>
int64_t scan(const T* offsets, int64_t begin, int64_t end, int64_t count, int64_t* wrong) {
  T longest = 0;
  bool good = offsets[begin] >= 0 && offsets[end] <= count;
  for (int64_t e = begin; e < end; ++e) {
    const T length = offsets[e + 1] - offsets[e];  // may wrap, but then one of the offsets is negative or decreases
    good &= offsets[e + 1] >= offsets[e];
    longest = std::max(longest, length);
  }
  if (!good) {
    *wrong = begin;
    while (*wrong + 1 < end && offsets[*wrong] >= 0 && offsets[*wrong + 1] >= offsets[*wrong] &&
           offsets[*wrong + 1] <= count) {
      ++*wrong;
    }
  }
  return longest;
}

int64_t scan(const Level& level, int64_t begin, int64_t end, int64_t* wrong) {
  return level.wide ? scan(reinterpret_cast<const int64_t*>(level.offsets), begin, end, level.count, wrong)
                    : scan(reinterpret_cast<const int32_t*>(level.offsets), begin, end, level.count, wrong);
}

// Runs, ends and for each level its entries and its longest list; `cut` is a level whose entries start .. stop each row keeps, or -1.
int64_t measure(const int64_t* layout_, const int64_t* blocks_, const int64_t* which, const int64_t* row, int64_t rows,
                int64_t cut, const int64_t* start, const int64_t* stop, int64_t* runs, int64_t* ends, int64_t* counts,
                int64_t* longest, int64_t* fault) {
  const Layout layout(layout_);
  const Blocks blocks(layout, blocks_, which);
  const Report report{fault};
  for (int64_t l = 0; l < layout.levels; ++l) {
    const int64_t parent = layout.parents[l];
    int64_t *first = runs + 2 * l * rows, *last = first + rows, *end = ends + l * (rows + 1), most = 0;
    const int64_t *outer = runs + 2 * parent * rows, *outer_last = outer + rows;
    *end = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t b = blocks.of(i);
      const Level& level = blocks.level(b, l);
      if (parent < 0) {
        if (row[i] < 0 || row[i] >= level.count) return report(kRow, l, b, row[i], 0, level.count);
        first[i] = row[i];
        last[i] = row[i] + 1;
      } else if (outer[i] == outer_last[i]) {
        first[i] = last[i] = 0;
      } else {
        if (i + 8 < rows) {
          const Level& next = blocks.level(blocks.of(i + 8), l);
          __builtin_prefetch(next.offsets + (outer[i + 8] << (next.wide ? 3 : 2)));
        }
        int64_t wrong = -1;
        const int64_t found = scan(level, outer[i], outer_last[i], &wrong);
        if (wrong >= 0) return report(kOffsets, l, b, wrong, level.at(wrong), level.at(wrong + 1));
        first[i] = level.at(outer[i]);
        last[i] = level.at(outer_last[i]);
        if (first[i] < 0 || last[i] < first[i] || last[i] > level.count) {  // changed meanwhile
          return report(kOffsets, l, b, outer[i], first[i], last[i]);
        }
        if (l == cut) {
          const int64_t length = last[i] - first[i];
          if (start[i] < 0 || stop[i] < start[i] || stop[i] > length) {
            return report(kCut, l, b, i, start[i], stop[i], length);
          }
          last[i] = first[i] + stop[i];
          first[i] += start[i];
          most = std::max(most, stop[i] - start[i]);
        } else {
          most = std::max(most, found);
        }
      }
      end[i + 1] = end[i] + (last[i] - first[i]);
    }
    counts[l] = end[rows];
    longest[l] = most;
  }
  return 0;
}

// --------------------------------------------------------------------------------------------------------- copying

// n elements from `in` to `out`, as integers of another size.
template <class In, class Out>
void convert(const char* in, char* out, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    In value;
    std::memcpy(&value, in + j * sizeof(In), sizeof(In));
    const Out made = static_cast<Out>(value);
    std::memcpy(out + j * sizeof(Out), &made, sizeof(Out));
  }
}

int64_t element_size(int64_t kind, int64_t size) {
  switch (kind) {
    case kUint8: case kInt8: return 1;
    case kUint16: case kInt16: return 2;
    case kUint32: case kInt32: return 4;
    default: return size;
  }
}

using Convert = void (*)(const char*, char*, int64_t);

template <class In>
Convert converter(int64_t size) {
  return size == 2 ? convert<In, int16_t> : size == 4 ? convert<In, int32_t> : convert<In, int64_t>;
}

// What makes elements of `size` bytes out of those of a kind; null where they are the same.
Convert converter(int64_t kind, int64_t size) {
  if (element_size(kind, size) == size) return nullptr;
  switch (kind) {
    case kUint8: return converter<uint8_t>(size);
    case kInt8: return converter<int8_t>(size);
    case kUint16: return converter<uint16_t>(size);
    case kInt16: return converter<int16_t>(size);
    case kUint32: return converter<uint32_t>(size);
    default: return converter<int32_t>(size);
  }
}

int64_t code_at(const char* in, int64_t kind, int64_t size, int64_t j) {
  int64_t code = 0;
  switch (kind) {
    case kInt8: return reinterpret_cast<const int8_t*>(in)[j];
    case kInt16: return reinterpret_cast<const int16_t*>(in)[j];
    case kInt32: return reinterpret_cast<const int32_t*>(in)[j];
    default: break;
  }
  const int64_t bytes = element_size(kind, size);
  std::memcpy(&code, in + j * bytes, bytes);
  return code;
}

// Entries of one column of one block, written to the result wherever they are wanted.
struct Copier {
  const char* values;
  char* out;
  int64_t in_width, out_width, per_entry, kind, in_size, out_size;
  Convert convert;
  const uint8_t* valid;
  const int64_t* codes;
  int64_t words, column, block;
  Report report;

  Copier(const Layout& layout, const Blocks& blocks, int64_t b, int64_t c, char* out, const Report& report)
      : out(out), column(c), block(b), report(report) {
    const Column& given = blocks.column(b, c);
    values = given.values;
    kind = given.kind;
    out_size = layout.size(c);
    in_size = element_size(kind, out_size);
    per_entry = layout.per_entry(c);
    in_width = in_size * per_entry;
    out_width = out_size * per_entry;
    convert = converter(kind, out_size);
    valid = given.valid;
    codes = given.codes;
    words = given.words;
  }

  // Entries first .. first + n of the block as entries `place` and after of the result.
  int64_t operator()(int64_t first, int64_t place, int64_t n) const {
    const char* in = values + first * in_width;
    char* to = out + place * out_width;
    if (codes) return recode(in, to, first, n);
    if (convert) convert(in, to, n * per_entry);
    else if (n * in_width == 8) std::memcpy(to, in, 8);
    else if (n * in_width == 4) std::memcpy(to, in, 4);
    else std::memcpy(to, in, n * in_width);
    return 0;
  }

  // Codes of one vocabulary as those of another; 0 where an entry is missing.
  int64_t recode(const char* in, char* to, int64_t first, int64_t n) const {
    for (int64_t j = 0; j < n; ++j) {
      int64_t made = 0;
      if (valid == nullptr || valid[first + j]) {
        const int64_t code = code_at(in, kind, in_size, j);
        if (code < 0 || code >= words) return report(kCode, column, block, first + j, code, words);
        made = codes[code];
      }
      std::memcpy(to + j * out_size, &made, out_size);
    }
    return 0;
  }
};

// ---------------------------------------------------------------------------------------------------------- packed

// The offsets of a level in the result, from those of the blocks.
template <class T>
void renumber(const Layout& layout, const Blocks& blocks, int64_t l, int64_t rows, const int64_t* runs,
              const int64_t* ends, T* out, int64_t threads) {
  const int64_t parent = layout.parents[l], *end = ends + l * (rows + 1);
  if (layout.parents[parent] < 0) {
    std::copy_n(end, rows + 1, out);
    return;
  }
  const int64_t *outer = runs + 2 * parent * rows, *first = runs + 2 * l * rows, *places = ends + parent * (rows + 1);
  out[places[rows]] = static_cast<T>(end[rows]);
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t i = 0; i < rows; ++i) {
    const Level& level = blocks.level(blocks.of(i), l);
    const int64_t n = places[i + 1] - places[i], shift = end[i] - first[i];
    T* to = out + places[i];
    if (level.wide) {
      const int64_t* from = reinterpret_cast<const int64_t*>(level.offsets) + outer[i];
      for (int64_t j = 0; j < n; ++j) to[j] = static_cast<T>(from[j] + shift);
    } else {
      const int32_t* from = reinterpret_cast<const int32_t*>(level.offsets) + outer[i];
      for (int64_t j = 0; j < n; ++j) to[j] = static_cast<T>(from[j] + shift);
    }
  }
}

// All offsets and values of measured rows. `out` has for each level an address, 0 for none, and whether it takes int64;
// for each column the addresses of values and of a mask, 0 for none.
int64_t pack(const int64_t* layout_, const int64_t* blocks_, int64_t, const int64_t* which, int64_t rows,
             const int64_t* runs, const int64_t* ends, const int64_t* out, int64_t* fault, int64_t threads) {
  const Layout layout(layout_);
  const Blocks blocks(layout, blocks_, which);
  const Report report{fault};
  for (int64_t l = 0; l < layout.levels; ++l) {
    if (out[2 * l] == 0) continue;
    if (out[2 * l + 1]) {
      renumber(layout, blocks, l, rows, runs, ends, reinterpret_cast<int64_t*>(out[2 * l]), threads);
    } else {
      renumber(layout, blocks, l, rows, runs, ends, reinterpret_cast<int32_t*>(out[2 * l]), threads);
    }
  }
  const int64_t* targets = out + 2 * layout.levels;
  int64_t failed = 0;
  for (int64_t c = 0; c < layout.columns; ++c) {
    const int64_t entries = ends[layout.level_of(c) * (rows + 1) + rows];
    advise(reinterpret_cast<const void*>(targets[2 * c]), entries * layout.per_entry(c) * layout.size(c));
  }
#pragma omp parallel num_threads(threads) if (threads > 1)
  for (int64_t c = 0; c < layout.columns; ++c) {
    const int64_t l = layout.level_of(c);
    const int64_t *first = runs + 2 * l * rows, *last = first + rows, *end = ends + l * (rows + 1);
    char* values = reinterpret_cast<char*>(targets[2 * c]);
    uint8_t* valid = reinterpret_cast<uint8_t*>(targets[2 * c + 1]);
#pragma omp for schedule(static) nowait
    for (int64_t chunk = 0; chunk < (rows + 255) / 256; ++chunk) {
      const int64_t stop = std::min(rows, chunk * 256 + 256);
      Copier copy(layout, blocks, blocks.of(chunk * 256), c, values, report);
      for (int64_t i = chunk * 256; i < stop;) {
        const int64_t b = blocks.of(i), begin = first[i], place = end[i];
        if (b != copy.block) copy = Copier(layout, blocks, b, c, values, report);
        int64_t to = last[i++];
        while (i < stop && first[i] == to && blocks.of(i) == b) to = last[i++];  // rows that follow each other
        if (to == begin) continue;
        if (i < stop) __builtin_prefetch(blocks.column(blocks.of(i), c).values + first[i] * copy.in_width);
        if (copy(begin, place, to - begin)) {
#pragma omp atomic write
          failed = 1;
        }
        if (valid == nullptr) continue;
        if (copy.valid) std::memcpy(valid + place, copy.valid + begin, to - begin);
        else std::memset(valid + place, 1, to - begin);
      }
    }
  }
  return failed;
}

// ---------------------------------------------------------------------------------------------------------- padded

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

constexpr int kDeepest = 64;

// The levels from the rows' child down to one, and what a padded result has for them.
struct Chain {
  int64_t depth = 0, level[kDeepest], size[kDeepest], most[kDeepest], left[kDeepest];
  int64_t cells[kDeepest];  // of one list at each level, down to the last

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

// Where the lists of all rows at the end of a chain go. What is left of a row is filled. `Put` writes a list: it may
// write the filling to cells after it, up to the end of the row, since lists are written in the order of their cells.
template <class Put>
struct Walk {
  const Chain& chain;
  const Blocks& blocks;
  const int64_t* runs;
  const Report& report;
  int64_t rows;
  char* out;
  int64_t width;  // bytes of a cell
  const char* filling;
  int64_t filling_size;

  // Lists first .. first + kept of the last level but one, whose own lists begin at `cell`.
  template <class T>
  int64_t leaves(const T* ends, int64_t row, int64_t first, int64_t kept, int64_t cell, const Put& put) const {
    const int64_t k = chain.depth - 1, size = chain.size[k], most = chain.most[k], left = chain.left[k];
    const int64_t *run = runs + 2 * chain.level[k] * rows + row, low = run[0], high = run[rows];
    const int64_t last_cell = (row + 1) * chain.cells[0];
    int64_t from = ends[first];
    for (int64_t j = 0; j < kept; ++j, cell += size) {
      const int64_t next = ends[first + j + 1];
      if (from < low || next < from || next > high) {  // only if a file was changed since it was measured
        return report(kOffsets, chain.level[k], blocks.of(row), first + j, from, next);
      }
      const int64_t n = std::min(next - from, most);
      if (const int64_t failed = put(from, left ? cell + size - n : cell, n, last_cell)) return failed;
      from = next;
    }
    return 0;
  }

  // The list first .. last at level k of the chain, from `cell` on; `clean` if its cells are filled already.
  int64_t list(int64_t k, int64_t row, int64_t first, int64_t last, int64_t cell, bool clean, const Put& put) const {
    const int64_t kept = std::min(last - first, chain.most[k]), each = chain.cells[k] / std::max<int64_t>(chain.size[k], 1);
    const int64_t begin = chain.left[k] ? chain.size[k] - kept : 0;
    if (!clean) {
      char* all = out + cell * width;
      clean = chain.cells[k] * width <= kBlockBytes;
      if (clean) {
        fill(all, chain.cells[k] * width, filling, filling_size);
      } else {
        fill(all, begin * each * width, filling, filling_size);
        fill(all + (begin + kept) * each * width, (chain.size[k] - begin - kept) * each * width, filling, filling_size);
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
constexpr int64_t kLong = 64;  // elements from which on a list is copied by memcpy

template <int Bytes> struct Integer;
template <> struct Integer<1> { using type = int8_t; };
template <> struct Integer<2> { using type = int16_t; };
template <> struct Integer<4> { using type = int32_t; };
template <> struct Integer<8> { using type = int64_t; };

template <class T>
using Vector [[gnu::vector_size(kLanes * sizeof(T))]] = T;

// Lists of elements that become elements of a wider type, or stay as they are. Short ones are written by whole vectors,
// the lanes past the end with the filling: no branch depends on their length. `One` if an entry is one element.
template <class In, class Out, bool One>
struct Elements {
  using Lane = typename Integer<sizeof(Out)>::type;
  const In* values;
  int64_t readable, per_entry;
  Out* out;
  Out filling;

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
      if constexpr (sizeof(In) == sizeof(Out)) std::memcpy(to, from, n * sizeof(Out));
      else for (int64_t j = 0; j < n; ++j) to[j] = from[j];
      return 0;
    }
    const Vector<Lane> lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    const Vector<Out> rest = Vector<Out>{} + filling;
    int64_t j = 0;
    do {
      Vector<In> read;
      std::memcpy(&read, from + j, sizeof(read));
      const Vector<Out> wide = __builtin_convertvector(read, Vector<Out>);
      const Vector<Out> written = lanes < static_cast<Lane>(n - j) ? wide : rest;
      std::memcpy(to + j, &written, sizeof(written));
      j += kLanes;
    } while (j < n);
    return 0;
  }
};

// Where there are entries.
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

// Which entries are not missing.
struct Validity {
  const uint8_t* valid;
  uint8_t* out;

  int64_t operator()(int64_t first, int64_t place, int64_t n, int64_t) const {
    if (valid) std::memcpy(out + place, valid + first, n);
    else std::memset(out + place, 1, n);
    return 0;
  }
};

// Lists of whatever else there is.
struct Anything {
  Copier copy;

  int64_t operator()(int64_t first, int64_t place, int64_t n, int64_t) const { return copy(first, place, n); }
};

// All rows of a batch as rectangles, one column after the other; to be called by all threads.
struct Padding {
  const Layout& layout;
  const Blocks& blocks;
  const Report& report;
  const int64_t *runs, *sizes, *keep, *left;
  int64_t rows;
  int64_t* failed;

  // Read the values of some rows, so that the waits for them overlap: a prefetch gives up where a page is not known yet.
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

  // `make` gives for a block what writes its lists; `c` is the column that they are of, -1 for none.
  template <class Make>
  void walk(const Chain& chain, int64_t c, char* out, int64_t width, const char* filling, int64_t filling_size,
            const Make& make) const {
    using Put = decltype(make(0));
    const Walk<Put> each{chain, blocks, runs, report, rows, out, width, filling, filling_size};
#pragma omp for schedule(static) nowait
    for (int64_t chunk = 0; chunk < (rows + kChunk - 1) / kChunk; ++chunk) {
      const int64_t stop = std::min(rows, (chunk + 1) * kChunk);
      int64_t block = blocks.of(chunk * kChunk);
      Put put = make(block);
      if (c >= 0) touch(c, chunk * kChunk, stop);
      for (int64_t i = chunk * kChunk; i < stop; ++i) {
        if (blocks.of(i) != block) put = make(block = blocks.of(i));
        if (each(i, put)) {
#pragma omp atomic write
          *failed = 1;
          break;
        }
      }
    }
  }

  template <class In, class Out, bool One = false>
  void elements(const Chain& chain, int64_t c, char* out, const char* filling) const {
    const int64_t per_entry = layout.per_entry(c);
    Out value = 0;
    if (filling) std::memcpy(&value, filling, sizeof(Out));
    walk(chain, c, out, per_entry * sizeof(Out), filling, sizeof(Out), [&](int64_t b) {
      const int64_t readable = blocks.level(b, layout.level_of(c)).count * per_entry;
      return Elements<In, Out, One>{reinterpret_cast<const In*>(blocks.column(b, c).values), readable, per_entry,
                               reinterpret_cast<Out*>(out), value};
    });
  }

  template <class T>
  bool plain(const Chain& chain, int64_t c, char* out, const char* filling) const {
    if (layout.per_entry(c) == 1) elements<T, T, true>(chain, c, out, filling);
    else elements<T, T>(chain, c, out, filling);
    return true;
  }

  template <class In>
  bool widened(const Chain& chain, int64_t c, char* out, const char* filling) const {
    switch (layout.size(c)) {
      case 2: if constexpr (sizeof(In) < 2) return elements<In, int16_t>(chain, c, out, filling), true; break;
      case 4: if constexpr (sizeof(In) < 4) return elements<In, int32_t>(chain, c, out, filling), true; break;
      case 8: if constexpr (sizeof(In) < 8) return elements<In, int64_t>(chain, c, out, filling), true; break;
      default: break;
    }
    return false;
  }

  // Whether a column whose kind is the same in all blocks could be written element by element.
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

  // A column with one entry for each row.
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

// Masks of all levels and values of all columns, padded to sizes[level]; lists keep their first keep[level] entries,
// at the end of their place where left[level]. `out` has for each level the address of a mask, 0 for none; for each
// column the addresses of values, of a mask, 0 for none, and of one element to fill with, 0 for zeros.
int64_t pad(const int64_t* layout_, const int64_t* blocks_, int64_t count, const int64_t* which, int64_t rows,
            const int64_t* runs, const int64_t* sizes, const int64_t* keep, const int64_t* left, const int64_t* out,
            int64_t* fault, int64_t threads) {
  const Layout layout(layout_);
  const Blocks blocks(layout, blocks_, which);
  const Report report{fault};
  int64_t failed = 0;
  const Padding padding{layout, blocks, report, runs, sizes, keep, left, rows, &failed};
  for (int64_t c = 0; c < layout.columns; ++c) {
    const Chain chain(layout, layout.level_of(c), sizes, keep, left);
    const int64_t cells = chain.depth ? chain.cells[0] : 1;
    advise(reinterpret_cast<const void*>(out[layout.levels + 3 * c]), rows * cells * layout.per_entry(c) * layout.size(c));
  }
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
  }
  return failed;
}

}  // namespace

SERRATE_EXPORT(measure, measure)
SERRATE_EXPORT(pack, pack)
SERRATE_EXPORT(pad, pad)
