// This file turns places of a shuffled order into rows, by the Feistel network that serrate.table.loading.sampling
// describes.

#include "common.h"

namespace {

constexpr int kRounds = 8;
constexpr int kTogether = 64;  // This many places go through the network side by side.

struct Network {
  const uint64_t* key;
  int low, high;  // the numbers of bits of the right and of the left half of a place; the left may have one more

  static uint64_t hashed(uint64_t number, uint64_t key) {
    number += key;
    number ^= number >> 32;
    number *= 0xBF58476D1CE4E5B9;
    number ^= number >> 29;
    number *= 0x94D049BB133111EB;
    return number ^ number >> 32;
  }

  template <int N>
  void through(uint64_t* places) const {
    uint64_t left[N], right[N];
    for (int i = 0; i < N; ++i) {
      left[i] = places[i] >> low;
      right[i] = places[i] & ((uint64_t(1) << low) - 1);
    }
    for (int turn = 0; turn < kRounds; turn += 2) {
      for (int i = 0; i < N; ++i) left[i] ^= hashed(right[i], key[turn]) >> (64 - high);
      for (int i = 0; i < N; ++i) right[i] ^= hashed(left[i], key[turn + 1]) >> (64 - low);
    }
    for (int i = 0; i < N; ++i) places[i] = left[i] << low | right[i];
  }
};

// Replaces `count` places by the rows at these places. Each place is below `rows`, and `rows` is more than 2.
int64_t walk(uint64_t* places, int64_t count, uint64_t rows, const uint64_t* key) {
  const int bits = 64 - __builtin_clzll(rows - 1);
  const Network network{key, bits / 2, bits - bits / 2};
  int64_t done = 0;
  for (; done + kTogether <= count; done += kTogether) network.through<kTogether>(places + done);
  for (; done < count; ++done) network.through<1>(places + done);
  for (int64_t i = 0; i < count; ++i) {
    while (places[i] >= rows) network.through<1>(places + i);
  }
  return 0;
}

}  // namespace

SERRATE_EXPORT(walk, walk)
