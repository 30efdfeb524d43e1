// gather.cpp and rectangles.cpp share this file: rows of nested tables in blocks of memory, and copies of their
// entries.
//
// A level has entries; the offsets of a level say for each entry of its parent level which entries belong to it. Rows
// are the entries of the level without a parent. The entries of all levels lie in the order of the rows, so that the
// entries of a row are one run at each level. Blocks may be files with wrong contents: every offset is checked before
// it is used, and a second time if the file could have changed since. The caller makes sure that each block has as many
// offsets and values as it says.
//
//   layout   the numbers of levels and columns; for each level its parent, or -1; for each column its level, its
//            elements per entry, and the bytes of an element of the result
//   blocks   for each block: for each level the address of its offsets, whether they are int64, and the number of its
//            entries; for each column the address of its values, their kind, the address of a mask or 0, the address of
//            new codes or 0, and the number of words of its vocabulary, or -1 if it has none. The values of a column
//            with a vocabulary are codes, that is places in the vocabulary, and are checked as well
//   runs     [levels, 2, rows]: where the entries of a row begin and end in its block
//   ends     [levels, rows + 1]: where the entries of a row begin and end in the result
#pragma once

#include "common.h"

namespace {

enum Fault : int64_t { kRow = 1, kOffsets = 2, kCut = 3, kCode = 4 };
enum Kind : int64_t { kUint8, kInt8, kUint16, kInt16, kUint32, kInt32, kOther };

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

// Keeps the first fault; the caller makes an error message of it.
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

// Writes n elements of `in` to `out` as integers of another size. Returns the greatest code, read as an unsigned
// number, so that negative codes are greater than all others; for elements that are no codes it returns 0.
template <class In, class Out, bool Coded>
uint64_t convert(const char* in, char* out, int64_t n) {
  using Code = std::make_unsigned_t<In>;
  Code most = 0;
  for (int64_t j = 0; j < n; ++j) {
    In value;
    std::memcpy(&value, in + j * sizeof(In), sizeof(In));
    if (Coded) most = std::max(most, static_cast<Code>(value));
    const Out made = static_cast<Out>(value);
    std::memcpy(out + j * sizeof(Out), &made, sizeof(Out));
  }
  return most;
}

int64_t element_size(int64_t kind, int64_t size) {
  switch (kind) {
    case kUint8: case kInt8: return 1;
    case kUint16: case kInt16: return 2;
    case kUint32: case kInt32: return 4;
    default: return size;
  }
}

using Convert = uint64_t (*)(const char*, char*, int64_t);

template <class In, bool Coded>
Convert converter(int64_t size) {
  if (size == 2) return convert<In, int16_t, Coded>;
  return size == 4 ? convert<In, int32_t, Coded> : convert<In, int64_t, Coded>;
}

template <class In>
Convert converter(int64_t size, bool coded) {
  return coded ? converter<In, true>(size) : converter<In, false>(size);
}

// Returns the function that converts elements of a kind to elements of `size` bytes, or null if they have this size.
Convert converter(int64_t kind, int64_t size, bool coded) {
  if (element_size(kind, size) == size) return nullptr;
  switch (kind) {
    case kUint8: return converter<uint8_t>(size, coded);
    case kInt8: return converter<int8_t>(size, coded);
    case kUint16: return converter<uint16_t>(size, coded);
    case kInt16: return converter<int16_t>(size, coded);
    case kUint32: return converter<uint32_t>(size, coded);
    default: return converter<int32_t>(size, coded);
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

// Returns the greatest of n codes, read as unsigned numbers.
template <class T>
uint64_t greatest(const char* in, int64_t n) {
  T most = 0;
  for (int64_t j = 0; j < n; ++j) {
    T code;
    std::memcpy(&code, in + j * sizeof(T), sizeof(T));
    most = std::max(most, code);
  }
  return most;
}

uint64_t greatest(const char* in, int64_t bytes, int64_t n) {
  switch (bytes) {
    case 1: return greatest<uint8_t>(in, n);
    case 2: return greatest<uint16_t>(in, n);
    case 4: return greatest<uint32_t>(in, n);
    default: return greatest<uint64_t>(in, n);
  }
}

// Copies entries of one column of one block to places of the result.
struct Copier {
  const char* values;
  char* out;
  int64_t in_width, out_width, per_entry, kind, in_size, out_size;
  Convert convert;
  const uint8_t* valid;
  const int64_t* codes;
  int64_t words, column, block;
  uint64_t limit;  // Codes below it, read as unsigned numbers, are places in the vocabulary.
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
    convert = converter(kind, out_size, given.words >= 0);
    valid = given.valid;
    codes = given.codes;
    words = given.words;
    const bool is_signed = kind == kInt8 || kind == kInt16 || kind == kInt32;
    limit = is_signed ? std::min<uint64_t>(words, uint64_t(1) << (8 * in_size - 1)) : words;
  }

  // Copies the entries first .. first + n of the block to the entries from `place` on of the result.
  int64_t operator()(int64_t first, int64_t place, int64_t n) const {
    const char* in = values + first * in_width;
    char* to = out + place * out_width;
    if (codes) return recode(in, to, first, n);
    uint64_t most = 0;
    if (convert) most = convert(in, to, n * per_entry);
    else if (n * in_width == 8) std::memcpy(to, in, 8);
    else if (n * in_width == 4) std::memcpy(to, in, 4);
    else ::copy(to, in, n * in_width);
    if (words < 0) return 0;
    if (!convert) most = greatest(to, in_size, n);  // reads the copy, since the file may change meanwhile
    return most < limit ? 0 : check(first, n);
  }

  bool is_there(int64_t entry) const { return valid == nullptr || valid[entry]; }

  // Returns a fault if the code of an entry is no place in the vocabulary. A missing entry may have the code 0 even if
  // the vocabulary has no words.
  int64_t check(int64_t entry, int64_t code, bool there) const {
    const bool is_place = code >= 0 && code < (there ? words : std::max<int64_t>(words, 1));
    return is_place ? 0 : report(kCode, column, block, entry, code, words);
  }

  int64_t check(int64_t first, int64_t n) const {
    for (int64_t j = first; j < first + n; ++j) {
      if (const int64_t fault = check(j, code_at(values, kind, in_size, j), is_there(j))) return fault;
    }
    return 0;
  }

  // Writes the codes of one vocabulary as codes of another; a missing entry becomes 0.
  int64_t recode(const char* in, char* to, int64_t first, int64_t n) const {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t code = code_at(in, kind, in_size, j);
      const bool there = is_there(first + j);
      if (const int64_t fault = check(first + j, code, there)) return fault;
      const int64_t made = there ? codes[code] : 0;
      std::memcpy(to + j * out_size, &made, out_size);
    }
    return 0;
  }
};

}  // namespace
