// This file sorts rows of nested tables by their sources, measures them, and copies them out of blocks of memory,
// packed. gather.h describes the arguments.

#include "gather.h"

#include <vector>

namespace {

constexpr int64_t kChunk = 256;  // A thread takes this many rows at once.

// Finds for each row of a table its source and its number there. Source s has the rows bounds[s] .. bounds[s + 1], and
// negative rows count from the end. Returns 0, or i + 1 if rows[i] is no row of the table.
int64_t locate(const int64_t* rows, int64_t count, const int64_t* bounds, int64_t sources, int64_t* source,
               int64_t* local) {
  const int64_t all = bounds[sources];
  for (int64_t i = 0; i < count; ++i) {
    if (rows[i] < -all || rows[i] >= all) return i + 1;
    const int64_t row = rows[i] < 0 ? rows[i] + all : rows[i];
    source[i] = sources == 1 ? 0 : std::upper_bound(bounds, bounds + sources + 1, row) - bounds - 1;
    local[i] = row - bounds[source[i]];
  }
  return 0;
}

// Writes the rows into `grouped`, sorted by their sources; rows of one source keep their order. `used` gets the sources
// that have rows, and `ends` where the rows of each end. `which` gets for each row the place of its source in `used`.
// Returns how many sources are used, or -1 if a row names a source that does not exist.
int64_t group(const int64_t* source, const int64_t* row, int64_t count, int64_t sources, int64_t* which,
              int64_t* grouped, int64_t* used, int64_t* ends) {
  std::vector<int64_t> place(sources, 0);
  for (int64_t i = 0; i < count; ++i) {
    if (source[i] < 0 || source[i] >= sources) return -1;
    ++place[source[i]];
  }
  int64_t found = 0, total = 0;
  for (int64_t s = 0; s < sources; ++s) {
    if (!place[s]) continue;
    used[found] = s;
    ends[found] = total += place[s];
    place[s] = found++;
  }
  std::vector<int64_t> next(found, 0);
  for (int64_t u = 1; u < found; ++u) next[u] = ends[u - 1];
  for (int64_t i = 0; i < count; ++i) {
    which[i] = place[source[i]];
    grouped[next[which[i]]++] = row[i];
  }
  return found;
}

// Returns the length of the longest list of the entries begin .. end of the parent. If the offsets of an entry are
// wrong, `wrong` becomes the first such entry.
template <class T>
int64_t scan(const T* offsets, int64_t begin, int64_t end, int64_t count, int64_t* wrong) {
  T longest = 0;
  bool good = offsets[begin] >= 0 && offsets[end] <= count;
  for (int64_t e = begin; e < end; ++e) {
    const T length = offsets[e + 1] - offsets[e];  // If this wraps, an offset is negative or below the one before.
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

// Finds `runs` and `ends`, and for each level the number of its entries and the length of its longest list. If `cut` is
// a level and not -1, row i keeps only the entries start[i] .. stop[i] of its list there. Returns 0 or a Fault.
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
        if (first[i] < 0 || last[i] < first[i] || last[i] > level.count) {  // A file was changed meanwhile.
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

// -------------------------------------------------------------------------------------------------- packed results

// Writes the offsets of a level of the result, made from the offsets of the blocks.
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

// Writes all offsets and values of measured rows. `out` has for each level the address of its offsets, or 0, and
// whether they are int64; for each column it has the address of its values and that of a mask, or 0. Returns 1 for a
// fault.
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
    for (int64_t chunk = 0; chunk < (rows + kChunk - 1) / kChunk; ++chunk) {
      const int64_t stop = std::min(rows, (chunk + 1) * kChunk);
      Copier copy(layout, blocks, blocks.of(chunk * kChunk), c, values, report);
      for (int64_t i = chunk * kChunk; i < stop;) {
        const int64_t b = blocks.of(i), begin = first[i], place = end[i];
        if (b != copy.block) copy = Copier(layout, blocks, b, c, values, report);
        int64_t to = last[i++];
        // Rows whose entries follow each other are copied as one run.
        while (i < stop && first[i] == to && blocks.of(i) == b) to = last[i++];
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

}  // namespace

SERRATE_EXPORT(locate, locate)
SERRATE_EXPORT(group, group)
SERRATE_EXPORT(measure, measure)
SERRATE_EXPORT(pack, pack)
