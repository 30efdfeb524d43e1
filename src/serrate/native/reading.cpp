// This file reads ahead in a mapped file. It asks for the pages of many entries together, so that the disk works on
// many pages at once; a page fault waits for a single page. The offsets of the file may be wrong: they are clamped to
// the number of entries before they are used, so that nothing outside of the file is touched.

#include "common.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <new>
#include <vector>

namespace {

constexpr int64_t kTooMany = -1, kNoRow = -2;
constexpr int64_t kSample = 8;       // This many rows are tried to find out whether rows are in memory.
constexpr int64_t kChunk = 1 << 17;  // The system reads at most its read-ahead for one request; this is its default.

// The offsets of a level say where the entries begin that belong to an entry of the parent level, or to a row if the
// parent is -1.
struct Level {
  int64_t address, item, parent, entries;  // `item` is the number of bytes of an offset.
};

// An array has `width` bytes for each entry of a level, or for each row if the level is -1.
struct Array {
  int64_t address, width, level;
};

struct Range {
  int64_t start, stop;
};

struct Table {
  const Level* levels;
  int64_t level_count;
  const Array* arrays;
  int64_t array_count;
};

int64_t major_faults() {
  rusage used;
#ifdef RUSAGE_THREAD
  getrusage(RUSAGE_THREAD, &used);
#else
  getrusage(RUSAGE_SELF, &used);
#endif
  return used.ru_majflt;
}

int64_t offset_at(const Level& level, int64_t place) {
  const char* at = reinterpret_cast<const char*>(level.address) + place * level.item;
  const int64_t found =
      level.item == 4 ? *reinterpret_cast<const int32_t*>(at) : *reinterpret_cast<const int64_t*>(at);
  return std::min(std::max<int64_t>(found, 0), level.entries);
}

Range entries_of(const Level& level, const Range& outer) {
  const int64_t start = offset_at(level, outer.start);
  return {start, std::max(start, offset_at(level, outer.stop))};
}

Range bytes_of(const Array& array, const Range& entries) {
  return {array.address + entries.start * array.width, array.address + entries.stop * array.width};
}

// Returns the bytes of the offsets that say where the entries of `outer` begin and end.
Range bytes_of(const Level& level, const Range& outer) {
  return {level.address + outer.start * level.item, level.address + (outer.stop + 1) * level.item};
}

void touch(const Range& bytes) {
  if (bytes.start < bytes.stop) (void)*reinterpret_cast<volatile const char*>(bytes.start);
}

// Returns whether a sample of the rows is in memory; stops after the first rows whose pages had to be read.
bool resident(const Table& table, const int64_t* rows, int64_t count) {
  std::vector<Range> found(table.level_count);
  const int64_t before = major_faults();
  const int64_t sample = std::min(count, kSample);
  for (int64_t i = 0; i < sample; ++i) {
    const int64_t row = rows[i * count / sample];
    const Range self{row, row + 1};
    for (int64_t l = 0; l < table.level_count; ++l) {
      const Level& level = table.levels[l];
      const Range& outer = level.parent < 0 ? self : found[level.parent];
      found[l] = entries_of(level, outer);
    }
    if (i == 0 && major_faults() != before) return false;
    for (int64_t a = 0; a < table.array_count; ++a) {
      const Array& array = table.arrays[a];
      touch(bytes_of(array, array.level < 0 ? self : found[array.level]));
    }
    // Faults are counted after 1, 2 and 4 rows and after all, since counting takes time, too.
    const bool asks = (i & (i + 1)) == 0 || i + 1 == sample;
    if (asks && major_faults() != before) return false;
  }
  return true;
}

// Returns the pages of the ranges, each page once, in the order of the file.
std::vector<Range> pages_of(std::vector<Range>& ranges) {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  for (Range& range : ranges) {
    range.start &= -page;
    range.stop = (range.stop + page - 1) & -page;
  }
  const auto earlier = [](const Range& a, const Range& b) { return a.start < b.start; };
  if (!std::is_sorted(ranges.begin(), ranges.end(), earlier)) std::sort(ranges.begin(), ranges.end(), earlier);
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (!merged.empty() && range.start <= merged.back().stop)
      merged.back().stop = std::max(merged.back().stop, range.stop);
    else
      merged.push_back(range);
  }
  return merged;
}

int64_t size_of(const std::vector<Range>& ranges) {
  int64_t bytes = 0;
  for (const Range& range : ranges) bytes += range.stop - range.start;
  return bytes;
}

void ask_for(const std::vector<Range>& ranges) {
  for (const Range& range : ranges)
    for (int64_t at = range.start; at < range.stop; at += kChunk)
      madvise(reinterpret_cast<void*>(at), std::min(kChunk, range.stop - at), MADV_WILLNEED);
}

// Returns the rows as runs of neighbours, in ascending order.
std::vector<Range> runs_of(const int64_t* rows, int64_t count) {
  std::vector<int64_t> sorted;
  if (!std::is_sorted(rows, rows + count)) {
    sorted.assign(rows, rows + count);
    std::sort(sorted.begin(), sorted.end());
    rows = sorted.data();
  }
  std::vector<Range> runs;
  for (int64_t i = 0; i < count; ++i) {
    if (!runs.empty() && rows[i] <= runs.back().stop)
      runs.back().stop = rows[i] + 1;
    else
      runs.push_back({rows[i], rows[i] + 1});
  }
  return runs;
}

// Asks for the pages level by level, since the offsets of a level say where its entries lie. The disk reads the columns
// of one level while this function reads the offsets of the next. Returns the number of bytes, or kTooMany.
int64_t fetch(const Table& table, const int64_t* rows, int64_t count, int64_t most) {
  const std::vector<Range> runs = runs_of(rows, count);
  std::vector<std::vector<Range>> found(table.level_count);
  int64_t bytes = 0;
  const auto entries = [&](int64_t level) -> const std::vector<Range>& { return level < 0 ? runs : found[level]; };
  const auto ask_at = [&](int64_t place) {
    std::vector<Range> wanted;
    for (int64_t l = 0; l < table.level_count; ++l)
      if (table.levels[l].parent == place)
        for (const Range& run : entries(place)) wanted.push_back(bytes_of(table.levels[l], run));
    for (int64_t a = 0; a < table.array_count; ++a)
      if (table.arrays[a].level == place)
        for (const Range& run : entries(place))
          if (run.start < run.stop) wanted.push_back(bytes_of(table.arrays[a], run));
    const std::vector<Range> pages = pages_of(wanted);
    bytes += size_of(pages);
    if (bytes <= most) ask_for(pages);
  };
  ask_at(-1);
  for (int64_t l = 0; l < table.level_count && bytes <= most; ++l) {
    const std::vector<Range>& outer = entries(table.levels[l].parent);
    found[l].reserve(outer.size());
    for (const Range& run : outer) found[l].push_back(entries_of(table.levels[l], run));
    ask_at(l);
  }
  return bytes <= most ? bytes : kTooMany;
}

// Asks for the bytes of some rows, unless a sample of them is in memory. Returns how many bytes it asked for, kTooMany
// if they are more than `most`, or kNoRow for a wrong row.
int64_t prefetch(const Level* levels, int64_t level_count, const Array* arrays, int64_t array_count, int64_t row_count,
                 const int64_t* rows, int64_t count, int64_t most) {
  const Table table{levels, level_count, arrays, array_count};
  for (int64_t i = 0; i < count; ++i)
    if (rows[i] < 0 || rows[i] >= row_count) return kNoRow;
  try {
    if (!count || resident(table, rows, count)) return 0;
    return fetch(table, rows, count, most);
  } catch (const std::bad_alloc&) {
    return kTooMany;
  }
}

}  // namespace

SERRATE_EXPORT(prefetch, prefetch)
