// The C++ sources of this folder share this file: calls from Python, large pages for results, long copies, and filling.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

// For short rows the calls from one function to the next would take as long as the work, so some are always inlined;
// others never are, so that a compiler that knows how short loops may be does not write them out number by number.
#define SERRATE_INLINE inline __attribute__((always_inline))
#define SERRATE_APART __attribute__((noinline, noclone))

namespace {

template <class... P>
constexpr int64_t arity(int64_t (*)(P...)) {
  return sizeof...(P);
}

template <class... P, size_t... I>
int64_t spread(int64_t (*function)(P...), const int64_t* words, std::index_sequence<I...>) {
  return function((P)words[I]...);
}

template <class... P>
int64_t call(int64_t (*function)(P...), const int64_t* words) {
  return words ? spread(function, words, std::index_sequence_for<P...>()) : arity(function);
}

// Asks for large pages for a large result that nobody has touched yet: it then has a thousandth of the page faults.
inline void advise(const void* memory, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr int64_t kLarge = int64_t(1) << 23;
  constexpr uintptr_t kPage = uintptr_t(1) << 21;
  if (bytes < kLarge) return;
  const uintptr_t first = reinterpret_cast<uintptr_t>(memory), begin = (first + kPage - 1) / kPage * kPage;
  const uintptr_t end = (first + bytes) / kPage * kPage;
  if (begin >= end) return;
  unsigned char resident = 0;  // Memory that is used again has its pages already; the advice would only take time.
  if (mincore(reinterpret_cast<void*>(begin + (end - begin) / (2 * kPage) * kPage), 1, &resident) == 0 && resident & 1) return;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

// Long runs are copied and cleared vector by vector. The C library uses rep movsb and rep stosb for them, which take up
// to a fifth longer.
constexpr int64_t kLongRun = 2048, kLine = 64;
typedef int64_t Line __attribute__((vector_size(kLine), may_alias));
typedef int64_t AnyLine __attribute__((vector_size(kLine), aligned(1), may_alias));

// The number of bytes from an address up to the next one that begins a line.
inline int64_t before_line(const char* memory) { return -reinterpret_cast<uintptr_t>(memory) & (kLine - 1); }

// Copies the first and the last kPart bytes of a run; together they are the whole run if it has at most twice as many.
template <int64_t kPart>
SERRATE_INLINE void copy_ends(char* out, const char* in, int64_t bytes) {
  char first[kPart], last[kPart];
  std::memcpy(first, in, kPart);
  std::memcpy(last, in + bytes - kPart, kPart);
  std::memcpy(out, first, kPart);
  std::memcpy(out + bytes - kPart, last, kPart);
}

// Copies a run of at most a line. A call of memcpy takes twice as long for it.
SERRATE_INLINE void copy_short(char* out, const char* in, int64_t bytes) {
  if (bytes > 32) return copy_ends<32>(out, in, bytes);
  if (bytes >= 16) return copy_ends<16>(out, in, bytes);
  if (bytes >= 8) return copy_ends<8>(out, in, bytes);
  if (bytes >= 4) return copy_ends<4>(out, in, bytes);
  for (int64_t at = 0; at < bytes; ++at) out[at] = in[at];
}

// Does the same as memcpy. The first and the last line of a long run overlap others, so that all its bytes are copied by
// whole lines.
inline void copy(char* out, const char* in, int64_t bytes) {
  if (bytes <= kLine) return copy_short(out, in, bytes);
  if (bytes < kLongRun) {
    std::memcpy(out, in, bytes);
    return;
  }
  const int64_t last = bytes - kLine;
  *reinterpret_cast<AnyLine*>(out) = *reinterpret_cast<const AnyLine*>(in);
  for (int64_t at = before_line(out); at < last; at += kLine) {
    *reinterpret_cast<Line*>(out + at) = *reinterpret_cast<const AnyLine*>(in + at);
    asm volatile("" : : : "memory");  // Without this line the compiler turns the loop into a memcpy.
  }
  *reinterpret_cast<AnyLine*>(out + last) = *reinterpret_cast<const AnyLine*>(in + last);
}

// Sets bytes to 0.
inline void clear(char* out, int64_t bytes) {
  if (bytes < kLongRun) {
    if (bytes > 0) std::memset(out, 0, bytes);
    return;
  }
  const int64_t last = bytes - kLine;
  *reinterpret_cast<AnyLine*>(out) = AnyLine{};
  for (int64_t at = before_line(out); at < last; at += kLine) {
    *reinterpret_cast<Line*>(out + at) = Line{};
    asm volatile("" : : : "memory");
  }
  *reinterpret_cast<AnyLine*>(out + last) = AnyLine{};
}

// Fills `bytes` bytes with copies of the `size` bytes at `filling`, or with zeros if `filling` is null.
inline void fill(char* out, int64_t bytes, const char* filling, int64_t size) {
  if (bytes <= 0) return;
  if (filling == nullptr) {
    clear(out, bytes);
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

// Returns the last of `count` offsets, or -1 unless they start with 0 and never decrease.
inline int64_t total(const int64_t* offsets, int64_t count) {
  bool rise = offsets[0] == 0;
  for (int64_t i = 1; i < count; ++i) rise &= offsets[i] >= offsets[i - 1];
  return rise ? offsets[count - 1] : -1;
}

}  // namespace

// Exports a function to Python. Python passes the arguments, which are integers and addresses, as an array of 64-bit
// words; this takes a third of the time in which ctypes converts each argument. Called with a null pointer, the
// function returns the number of its arguments.
#define SERRATE_EXPORT(NAME, ...) \
  extern "C" int64_t serrate_##NAME(const int64_t* words) { return call(__VA_ARGS__, words); }
