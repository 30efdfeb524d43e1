#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#else
#include <math.h>
#include <stdint.h>
#endif

#define DEVICE __device__

namespace sr {

template <typename T>
struct Same {
  using type = T;
};

// max and min give NaN if an operand is NaN.
template <typename T>
__device__ inline T max(T a, typename Same<T>::type b) {
  return a > b || a != a ? a : b;
}

template <typename T>
__device__ inline T min(T a, typename Same<T>::type b) {
  return a < b || a != a ? a : b;
}

// One instruction, which NaN leaves with NaN, too.
__device__ inline float max(float a, float b) {
  float greater;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(greater) : "f"(a), "f"(b));
  return greater;
}

__device__ inline float min(float a, float b) {
  float less;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(less) : "f"(a), "f"(b));
  return less;
}

SCALAR_FUNCTIONS

// The component c < count with offsets[c] <= position < offsets[c + 1].
template <typename Offset, typename Index>
__device__ inline Index search(const Offset* offsets, typename Same<Index>::type count, Index position) {
  Index c = 0;
  while (count > 1) {
    const Index half = count / 2;
    c = offsets[c + half] <= position ? c + half : c;
    count -= half;
  }
  return c;
}

// The widest type of which some bytes, 2, 4, 8 or a multiple of 16, are an array.
template <int Bytes>
struct Word {
  using type = uint4;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<4> {
  using type = unsigned;
};
template <>
struct Word<2> {
  using type = unsigned short;
};

// `Count` adjacent elements to registers. The address is a multiple of the size of a word.
template <int Count, typename T>
__device__ inline void load(T* lanes, const T* from) {
  using Type = typename Word<Count * int(sizeof(T))>::type;
  constexpr int words = Count * sizeof(T) / sizeof(Type), each = sizeof(Type) / sizeof(T);
#pragma unroll
  for (int k = 0; k < words; ++k) {
    const Type word = reinterpret_cast<const Type*>(from)[k];
    memcpy(static_cast<void*>(lanes + k * each), &word, sizeof(Type));
  }
}

// `Count` adjacent elements from registers.
template <int Count, typename T>
__device__ inline void store(T* to, const T* lanes) {
  using Type = typename Word<Count * int(sizeof(T))>::type;
  constexpr int words = Count * sizeof(T) / sizeof(Type), each = sizeof(Type) / sizeof(T);
#pragma unroll
  for (int k = 0; k < words; ++k) {
    Type word;
    memcpy(&word, static_cast<const void*>(lanes + k * each), sizeof(Type));
    reinterpret_cast<Type*>(to)[k] = word;
  }
}

// The state of another lane: `shuffle` gives each of its words.
template <typename State, typename Shuffle>
__device__ inline State exchange(State state, Shuffle shuffle) {
  constexpr int count = (sizeof(State) + 3) / 4;
  unsigned words[count] = {};
  memcpy(words, &state, sizeof(State));
#pragma unroll
  for (int k = 0; k < count; ++k) words[k] = shuffle(words[k]);
  memcpy(&state, words, sizeof(State));
  return state;
}

// The states of `Width` adjacent lanes, a power of two, combined in their order. All lanes of the warp must be there.
template <int Width, typename State, typename Combine>
__device__ inline State warp_reduce(State state, Combine combine) {
#pragma unroll
  for (int step = 1; step < Width; step *= 2)
    state = combine(state, exchange(state, [=](unsigned w) { return __shfl_down_sync(0xffffffffu, w, step, Width); }));
  return exchange(state, [=](unsigned w) { return __shfl_sync(0xffffffffu, w, 0, Width); });
}

// The states of `Count` adjacent threads, a power of two, combined in their order, in a block of `Threads`, whole warps.
template <int Threads, int Count, typename State, typename Combine>
__device__ inline State adjacent_reduce(State state, int thread, Combine combine) {
  if constexpr (Count <= 32) {
    return warp_reduce<Count>(state, combine);
  } else {
    constexpr int warps = Count / 32;  // of one result
    __shared__ alignas(State) unsigned char memory[Threads / 32 * sizeof(State)];
    State* scratch = reinterpret_cast<State*>(memory);
    state = warp_reduce<32>(state, combine);
    if (thread % 32 == 0) scratch[thread / 32] = state;
    __syncthreads();
    state = scratch[thread / Count * warps + thread % warps];
    __syncthreads();
    return warp_reduce<warps>(state, combine);
  }
}

// The states of `count` threads, of which this one is number `rank` of its `group`, one of `groups`, combined in the
// order of their ranks, in a block of at most `Threads`.
template <int Threads, typename State, typename Combine>
__device__ inline State block_reduce(State state, int rank, int count, int group, int groups, Combine combine) {
  __shared__ alignas(State) unsigned char memory[Threads * sizeof(State)];
  State* scratch = reinterpret_cast<State*>(memory) + group;  // states of one rank lie together, in different banks
  scratch[rank * groups] = state;
  __syncthreads();
  if (count <= 32) {
    state = scratch[0];
    for (int other = 1; other < count; ++other) state = combine(state, scratch[other * groups]);
  } else {
    for (int step = 1; step < count; step *= 2) {
      if (rank % (2 * step) == 0 && rank + step < count)
        scratch[rank * groups] = combine(scratch[rank * groups], scratch[(rank + step) * groups]);
      __syncthreads();
    }
    state = scratch[0];
  }
  __syncthreads();
  return state;
}

// Whether this block is the last of `count` to come here. What the others wrote before, it can then read.
__device__ inline bool last_to_arrive(int* counter, int count) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    last = atomicAdd(counter, 1) == count - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  const bool result = last;
  __syncthreads();
  __threadfence();
  return result;
}

}  // namespace sr
