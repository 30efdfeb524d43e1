// This file computes for the rows of each component, by trees.h: their sum, their distances from their mean, and the
// sum of the squares of these distances.
#pragma once

#include "trees.h"

namespace {

// A form says what is written for a component: one row, or with kRows as many rows as it has. This one writes their
// sum.
struct Sums {
  static constexpr bool kRows = false;
  template <class T, class Rows, class Way>
  static SERRATE_INLINE void write(const Rows& rows, int64_t count, int64_t width, const Plan& plan, const Way& way,
                                   T* out) {
    Wide<T> sums[kTile];
    if constexpr (std::is_integral_v<T>) {  // Integers may be added in any order.
      std::fill(sums, sums + width, T(0));
      for (int64_t i = 0; i < count; ++i) {
        const T* row = rows.row(i);
        for (int64_t j = 0; j < width; ++j) sums[j] += row[j];
      }
    } else {
      if constexpr (std::is_same_v<Rows, Packed<T>>) {
        if (Few<T>::is_one(count, plan)) {
          *out = static_cast<T>(Few<T>(rows, count).sum());
          return;
        }
        if (Run<T>::is_one(count, plan)) {
          *out = static_cast<T>(Run<T>::sum(rows, count));
          return;
        }
      }
      if (count <= kFirst && plan.width > kNarrow && !std::is_same_v<T, Wide<T>>) return add_few(rows, count, width, out);
      add(rows, count, width, Plain(), plan, way, sums);
    }
    for (int64_t j = 0; j < width; ++j) out[j] = static_cast<T>(sums[j]);
  }

  // Adds up to kFirst rows in their own type, without a conversion to a wider one.
  template <class T, class Rows>
  static SERRATE_INLINE void add_few(const Rows& rows, int64_t count, int64_t width, T* out) {
    const T* row[kFirst];
    for (int64_t i = 0; i < kFirst; ++i) row[i] = rows.row(std::min(i, count - 1));
    switch (count) {
      case 1: return void(std::copy(row[0], row[0] + width, out));
      case 2: return each_column(width, out, [&](int64_t j) { return row[0][j] + row[1][j]; });
      case 3: return each_column(width, out, [&](int64_t j) { return row[0][j] + row[1][j] + row[2][j]; });
      default: return each_column(width, out, [&](int64_t j) { return row[0][j] + row[1][j] + row[2][j] + row[3][j]; });
    }
  }

  template <class T, class Function>
  static SERRATE_INLINE void each_column(int64_t width, T* out, const Function& function) {
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j) out[j] = function(j);
  }
};

// Finds the mean of rows of `width` columns; where rows have few columns, the mean is repeated up to `lanes` numbers.
template <class T, class Rows, class Way>
SERRATE_APART void find_mean(const Rows& rows, int64_t count, int64_t width, const Plan& plan, const Way& way,
                             int64_t lanes, Wide<T>* mean) {
  add(rows, count, width, std::conditional_t<std::is_same_v<T, Wide<T>>, Plain, Exact>(), plan, way, mean);
  for (int64_t j = 0; j < width; ++j) mean[j] /= static_cast<Wide<T>>(count);
  for (int64_t j = width; j < lanes; ++j) mean[j] = mean[j - width];
}

// This form writes the sum of the squared distances of the rows from their mean.
struct Distances {
  static constexpr bool kRows = false;
  template <class T, class Rows, class Way>
  static SERRATE_INLINE void write(const Rows& rows, int64_t count, int64_t width, const Plan& plan, const Way& way,
                                   T* out) {
    if (Few<T>::is_one(count, plan)) *out = static_cast<T>(Few<T>(rows, count).distances());
    else write_many(rows, count, width, plan, way, out);
  }

  template <class T, class Rows, class Way>
  static SERRATE_APART void write_many(const Rows& rows, int64_t count, int64_t width, const Plan& plan, const Way& way,
                                       T* out) {
    Wide<T> sums[kTile], mean[kTile];
    find_mean<T>(rows, count, width, plan, way, plan.width > kNarrow ? 0 : plan.rows_of(count) * width, mean);
    add(rows, count, width, Squares<Wide<T>>{mean}, plan, way, sums);
    for (int64_t j = 0; j < width; ++j) out[j] = static_cast<T>(sums[j]);
  }
};

// This form writes these distances, row by row; where rows have few columns, several rows are taken at a time.
struct Centred {
  static constexpr bool kRows = true;
  template <class T, class Rows, class Way>
  static SERRATE_APART void write(const Rows& rows, int64_t count, int64_t width, const Plan& plan, const Way& way,
                                  T* out) {
    Wide<T> mean[kTile];
    const int64_t together = plan.width > kNarrow ? 1 : std::max<int64_t>(plan.rows_of(count), 1);
    const int64_t columns = width * together, step = plan.width * together;
    find_mean<T>(rows, count, width, plan, way, columns, mean);
    way.share((count + together - 1) / together, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const T* row = rows.values + i * step;
        const int64_t size = std::min(columns, (count - i * together) * width);
#pragma GCC ivdep
        for (int64_t j = 0; j < size; ++j) out[i * step + j] = static_cast<T>(row[j] - mean[j]);
      }
    });
  }
};

// Writes component c, which has the rows offsets[c] .. offsets[c + 1].
template <class Form, class T, class Rows, class Way>
SERRATE_INLINE void write_one(const Rows& rows, const int64_t* offsets, int64_t c, const Plan& plan, const Way& way,
                              T* out) {
  const int64_t count = offsets[c + 1] - offsets[c], width = plan.width;
  out += (Form::kRows ? offsets[c] : c) * width;
  if (!count) return Form::kRows ? void() : std::fill(out, out + width, T(0));
  for (int64_t column = 0; column < width; column += kTile) {
    const int64_t first = std::max<int64_t>(std::min(column, width - kLanes), 0);  // leaves a whole vector of columns
    const int64_t columns = std::min<int64_t>(width - first, kTile);
    Form::write(rows.from(offsets[c], first), count, columns, plan, way, out + first);
  }
}

// Writes the components of more than `most` rows, each with all threads.
template <class Form, class T, class Rows>
SERRATE_APART void write_giants(const Rows& rows, const int64_t* offsets, int64_t components, const Plan& plan,
                                int64_t most, int64_t threads, T* out) {
  for (int64_t c = 0; c < components; ++c) {
    if (offsets[c + 1] - offsets[c] > most) write_one<Form>(rows, offsets, c, plan, Together{threads}, out);
  }
}

// Writes those of the components first .. last that have at most `most` rows, with one thread.
template <class Form, class T, class Rows>
SERRATE_APART void write_some(const Rows& rows, const int64_t* offsets, int64_t first, int64_t last, const Plan& plan,
                              int64_t most, T* out) {
  for (int64_t c = first; c < last; ++c) {
    if (offsets[c + 1] - offsets[c] <= most) write_one<Form>(rows, offsets, c, plan, Alone(), out);
  }
}

template <class Form, class T, class Rows>
void write_all(const Rows& rows, const int64_t* offsets, int64_t components, int64_t width, int64_t threads, T* out) {
  const Plan plan(width);
  const int64_t begin = offsets[0], total = offsets[components] - begin;
  if (threads == 1) return write_some<Form>(rows, offsets, 0, components, plan, total, out);
  const int64_t tasks = threads * 8, giant = total / (2 * threads);
  const auto start = [&](int64_t task) {
    if (task == tasks) return components;
    return std::lower_bound(offsets, offsets + components, begin + task * (total / tasks)) - offsets;
  };
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t task = 0; task < tasks; ++task) {
    write_some<Form>(rows, offsets, start(task), start(task + 1), plan, giant, out);
  }
  write_giants<Form>(rows, offsets, components, plan, giant, threads, out);
}

inline bool are_offsets(const int64_t* offsets, int64_t components, int64_t rows) {
  bool good = offsets[0] >= 0 && offsets[components] <= rows;
  for (int64_t c = 0; c < components; ++c) good &= offsets[c + 1] >= offsets[c];
  return good;
}

// Writes [width] numbers for each component of values [rows, width], or for each row. Rows of no component become 0.
// Returns -1 for wrong offsets.
template <class Form, class T>
int64_t of_runs(const T* values, const int64_t* offsets, int64_t components, int64_t rows, int64_t width, T* out,
                int64_t threads) {
  if (!are_offsets(offsets, components, rows)) return -1;
  if (Form::kRows) {
    std::fill(out, out + offsets[0] * width, T(0));
    std::fill(out + offsets[components] * width, out + rows * width, T(0));
  }
  write_all<Form>(Packed<T>{values, width, values + rows * width}, offsets, components, width, threads, out);
  return 0;
}

}  // namespace
