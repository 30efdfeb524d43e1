// This file goes over components of packed rows: neighbours offsets[c] .. offsets[c + 1] of values [rows, width].
//
// The rows of a component are read as lines of at most kTile numbers, so that loops over a line are as long as vectors
// like: several rows of few columns are one line, and rows of many columns are cut into tiles of columns. Lines are cut
// into pieces of kPiece lines, which several threads may share; how they are cut depends on sizes alone.

#pragma once

#include <cmath>
#include <memory>
#include <new>

#include "common.h"

namespace {

constexpr int64_t kTile = 64, kPiece = 2048;

// Lines of a tile of columns: `full` ones of `columns` numbers, `stride` numbers apart, and one of the `rest`. A number
// belongs to the column that its place in the line has modulo `width`.
struct Lines {
  int64_t full, stride, columns, rest, width;

  int64_t count() const { return full + (rest > 0); }
  int64_t used() const { return full ? columns : rest; }  // how many places of a line have numbers
  int64_t pieces() const { return (count() + kPiece - 1) / kPiece; }
};

// Calls function(first, lines) for each tile of columns of a component; `first` is where its numbers begin.
template <class Function>
inline void each_tile(int64_t rows, int64_t width, const Function& function) {
  if (width > kTile) {
    for (int64_t column = 0; column < width; column += kTile) {
      const int64_t columns = std::min(kTile, width - column);
      function(column, Lines{rows, width, columns, 0, columns});
    }
  } else if (width) {
    const int64_t together = kTile / width, columns = together * width;
    function(int64_t(0), Lines{rows / together, columns, columns, rows % together * width, width});
  }
}

// Calls function(at, count, columns) for the lines of a piece: `count` lines of `columns` numbers from `at` on. The
// number of columns is a constant where lines are as long as a tile, so that what is known of it stays in registers.
template <class Function>
inline void each_block(const Lines& lines, int64_t piece, const Function& function) {
  const int64_t first = piece * kPiece, count = std::min(kPiece, lines.full - first), at = first * lines.stride;
  if (count > 0 && lines.columns == kTile) function(at, count, std::integral_constant<int64_t, kTile>());
  if (count > 0 && lines.columns != kTile) function(at, count, lines.columns);
  if (lines.rest && count < kPiece) function(lines.full * lines.stride, int64_t(1), lines.rest);
}

// Calls function(memory) with a state for each piece, and returns whether there was memory for them.
template <class State, class Function>
SERRATE_INLINE bool with_memory(const Lines& lines, const Function& function) {
  if (lines.pieces() <= 1) {
    State one;
    function(&one);
    return true;
  }
  const std::unique_ptr<State[]> many(new (std::nothrow) State[lines.pieces()]);
  if (many) function(many.get());
  return many != nullptr;
}

// Calls function(p) for each piece; a parallel region of one thread would take longer than a short piece does.
template <class Function>
inline void each_piece(const Lines& lines, int64_t threads, const Function& function) {
  const int64_t pieces = lines.pieces();
  if (threads == 1 || pieces == 1) {
    for (int64_t p = 0; p < pieces; ++p) function(p);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t p = 0; p < pieces; ++p) function(p);
}

// Combines the places of a line that belong to the same column, and puts the result at each of them.
template <class T, class Combine, class Finish>
inline void fold(T* line, const Lines& lines, const Combine& combine, const Finish& finish) {
  int64_t places = lines.used();
  const int64_t width = lines.width;
  while (places > width) {
    const int64_t half = (places / width + 1) / 2 * width;
    for (int64_t j = 0; j < places - half; ++j) line[j] = combine(line[j], line[j + half]);
    places = half;
  }
  for (int64_t j = 0; j < places; ++j) line[j] = finish(line[j]);
  for (; places < lines.used(); places *= 2) {
    std::copy(line, line + std::min(places, lines.used() - places), line + places);
  }
}

// Calls run(c, threads) for each component: with one thread, several at a time, or with all threads for giants.
template <class Run>
void each_run(const int64_t* offsets, int64_t components, int64_t threads, const Run& run) {
  const int64_t begin = offsets[0], total = offsets[components] - begin;
  const auto some = [&](int64_t first, int64_t last, int64_t most) {
    for (int64_t c = first; c < last; ++c) {
      const int64_t rows = offsets[c + 1] - offsets[c];
      if (rows && rows <= most) run(c, 1);
    }
  };
  if (threads == 1) return some(0, components, total);
  const int64_t tasks = threads * 8, giant = total / (2 * threads);
  const auto start = [&](int64_t task) {
    if (task == tasks) return components;
    return std::lower_bound(offsets, offsets + components, begin + task * (total / tasks)) - offsets;
  };
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t task = 0; task < tasks; ++task) some(start(task), start(task + 1), giant);
  for (int64_t c = 0; c < components; ++c) {
    if (offsets[c + 1] - offsets[c] > giant) run(c, threads);
  }
}

inline bool are_runs(const int64_t* offsets, int64_t components, int64_t rows) {
  bool good = offsets[0] >= 0 && offsets[components] <= rows;
  for (int64_t c = 0; c < components; ++c) good &= offsets[c + 1] >= offsets[c];
  return good;
}

// Sets the rows of no component to 0.
template <class T>
void clear_others(const int64_t* offsets, int64_t components, int64_t rows, int64_t width, T* out) {
  std::fill(out, out + offsets[0] * width, T(0));
  std::fill(out + offsets[components] * width, out + rows * width, T(0));
}

}  // namespace
