// This file sorts the indices of sparse features into buckets, one for each part of a table, on the CPU.
//
// Indices lie in bags, and bags in features. The buckets of a feature have one size, or bounds of its own.

#include <memory>
#include <new>

#include "common.h"

namespace {

struct Found {
  int64_t bucket, place;
};

// Finds buckets of one size, each of which consists of `joined` blocks. An index outside of all buckets is read as an
// unsigned number.
template <class Index>
struct Even {
  int64_t width, limit, buckets, joined;
  double inverse;

  Even(int64_t width, int64_t buckets, int64_t joined)
      : width(width), buckets(buckets), joined(joined), inverse(width > 0 ? 1.0 / double(width) : 0.0) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    limit = width > 0 && buckets > kMost / width ? kMost : width * buckets;
  }

  SERRATE_INLINE Found operator()(Index index) const {
    constexpr int64_t kExact = int64_t(1) << 52;  // Below it a double holds each integer, and a quotient is off by one.
    if (index < 0 || index >= limit) {
      const auto number = static_cast<uint64_t>(static_cast<std::make_unsigned_t<Index>>(index));
      const uint64_t blocks = buckets * joined;
      return {static_cast<int64_t>(number % blocks) / joined, static_cast<int64_t>(number / blocks)};
    }
    if (limit > kExact) return {index / width, index % width};
    int64_t bucket = static_cast<int64_t>(double(index) * inverse), place = index - bucket * width;
    const int64_t less = place < 0, more = place >= width;
    bucket += more - less;
    place += (less - more) * width;
    return {bucket, place};
  }
};

// Finds buckets that have the bounds of a feature. If the feature `folds`, its indices are first brought into the range
// of the bounds.
template <class Index>
struct Uneven {
  const int64_t *bounds, *end;
  int64_t buckets, joined;
  bool folds;

  SERRATE_INLINE Found operator()(Index index) const {
    const auto number = static_cast<uint64_t>(static_cast<std::make_unsigned_t<Index>>(index));
    const uint64_t blocks = buckets * joined;
    const int64_t top = end[-1];
    int64_t seen = folds ? static_cast<int64_t>(number % blocks) * top / static_cast<int64_t>(blocks) : index;
    if (seen < 0 || seen > top) seen = top;
    const int64_t bucket = std::upper_bound(bounds, end, seen) - bounds - 1;
    const bool inside = bucket < buckets;
    const int64_t over = static_cast<int64_t>(number / buckets), left = static_cast<int64_t>(number % buckets);
    const int64_t place = folds ? static_cast<int64_t>(number / blocks) : inside ? index - bounds[bucket] : over;
    return {inside ? bucket : left, place};
  }
};

// What is made of the indices; the last three may be null.
template <class Index, class Length>
struct Made {
  Length* counts;    // [buckets, bags] how many indices of each bag fell into each bucket
  Index* moved;      // the places of the indices in their buckets, bucket by bucket
  int64_t* order;    // where each of these came from
  Index* positions;  // where it stood in its bag
  Index* where;      // where each index went
};

// Finds the bucket of each index of the bags `first` to `last`, and counts.
template <class Index, class Length, class Find>
void count(const Index* indices, const int64_t* offsets, int64_t first, int64_t last, int64_t bags, const Find& find,
           Length* counts, int32_t* bucket) {
  for (int64_t bag = first; bag < last; ++bag) {
    for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      const int64_t found = find(indices[i]).bucket;
      bucket[i] = static_cast<int32_t>(found);
      ++counts[found * bags + bag];
    }
  }
}

// Writes the indices of the bags `first` to `last` to the next free places of their buckets.
template <class Index, class Length, class Find>
void place(const Index* indices, const int64_t* offsets, int64_t first, int64_t last, bool keep, const Find& find,
           const int32_t* bucket, int64_t* next, const Made<Index, Length>& made) {
  for (int64_t bag = first; bag < last; ++bag) {
    for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      const int64_t at = next[bucket[i]]++;
      made.moved[at] = keep ? indices[i] : static_cast<Index>(find(indices[i]).place);
      if (made.order) made.order[at] = i;
      if (made.positions) made.positions[at] = static_cast<Index>(i - offsets[bag]);
      if (made.where) made.where[i] = static_cast<Index>(at);
    }
  }
}

// Calls function(find, feature) with what finds the buckets of each feature. Feature t has buckets of sizes[t] ·
// joined[t] rows, or the bounds starts[t] to starts[t + 1] of all bounds unless `bounds` is null.
template <class Index, class Function>
void each_feature(const int64_t* sizes, const int64_t* joined, const int64_t* bounds, const int64_t* starts,
                  int64_t features, int64_t buckets, const Function& function) {
  for (int64_t t = 0; t < features; ++t) {
    if (bounds) {
      function(Uneven<Index>{bounds + starts[t], bounds + starts[t + 1], buckets, joined[t], sizes[t] == 0}, t);
    } else {
      function(Even<Index>(sizes[t] * joined[t], buckets, joined[t]), t);
    }
  }
}

// Sorts indices by bucket. The bags of feature t are ends[t] to ends[t + 1], and offsets cut the indices into bags; both
// were checked before. Returns -1 if there is no memory.
template <class Index, class Length>
int64_t bucketize(const Index* indices, const int64_t* offsets, int64_t bags, const int64_t* ends, int64_t features,
                  const int64_t* sizes, const int64_t* joined, const bool* keep, const int64_t* bounds,
                  const int64_t* starts, int64_t buckets, Length* counts, Index* moved, int64_t* order,
                  Index* positions, Index* where) {
  const std::unique_ptr<int32_t[]> bucket(new (std::nothrow) int32_t[offsets[bags] + 1]);
  const std::unique_ptr<int64_t[]> next(new (std::nothrow) int64_t[buckets]);
  if (!bucket || !next) return -1;
  const Made<Index, Length> made{counts, moved, order, positions, where};
  std::fill(counts, counts + buckets * bags, Length(0));
  each_feature<Index>(sizes, joined, bounds, starts, features, buckets, [&](const auto& find, int64_t t) {
    count(indices, offsets, ends[t], ends[t + 1], bags, find, counts, bucket.get());
  });
  for (int64_t b = 0, at = 0; b < buckets; ++b) {
    next[b] = at;
    for (int64_t bag = 0; bag < bags; ++bag) at += counts[b * bags + bag];
  }
  each_feature<Index>(sizes, joined, bounds, starts, features, buckets, [&](const auto& find, int64_t t) {
    place(indices, offsets, ends[t], ends[t + 1], keep[t], find, bucket.get(), next.get(), made);
  });
  return 0;
}

}  // namespace

SERRATE_EXPORT(bucketize_int32_int32, bucketize<int32_t, int32_t>)
SERRATE_EXPORT(bucketize_int32_int64, bucketize<int32_t, int64_t>)
SERRATE_EXPORT(bucketize_int64_int32, bucketize<int64_t, int32_t>)
SERRATE_EXPORT(bucketize_int64_int64, bucketize<int64_t, int64_t>)
