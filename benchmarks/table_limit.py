"""The limit of padded batches: one C loop, written by hand for these very columns, over mapped values and offsets."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from serrate.runtime.compiler import compile

SOURCE = r"""
#include <algorithm>
#include <cstdint>
#include <cstring>

extern "C" void measure(const int32_t* visits, const int32_t* codes, const int64_t* rows, int64_t count, int64_t* out) {
  int64_t most_visits = 0, most_codes = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t first = visits[rows[i]], last = visits[rows[i] + 1];
    most_visits = std::max<int64_t>(most_visits, last - first);
    for (int32_t v = first; v < last; ++v) most_codes = std::max<int64_t>(most_codes, codes[v + 1] - codes[v]);
  }
  out[0] = most_visits;
  out[1] = most_codes;
}

extern "C" void gather(const int32_t* visits, const int32_t* codes, const int64_t* age, const float* time,
                       const int64_t* code, const float* value, const int64_t* rows, int64_t count, int64_t M,
                       int64_t N, int64_t* out_age, float* out_time, int64_t* out_code, float* out_value,
                       uint8_t* visit_mask, uint8_t* code_mask) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = visits[rows[i]], n = visits[rows[i] + 1] - first;
    out_age[i] = age[rows[i]];
    std::memcpy(out_time + i * M, time + first, n * 4);
    std::memset(out_time + i * M + n, 0, (M - n) * 4);
    std::memset(visit_mask + i * M, 1, n);
    std::memset(visit_mask + i * M + n, 0, M - n);
    for (int64_t j = 0; j < n; ++j) {
      const int64_t from = codes[first + j], k = codes[first + j + 1] - from, to = (i * M + j) * N;
      std::memcpy(out_code + to, code + from, k * 8);
      std::memset(out_code + to + k, 0, (N - k) * 8);
      std::memcpy(out_value + to, value + from, k * 4);
      std::memset(out_value + to + k, 0, (N - k) * 4);
      std::memset(code_mask + to, 1, k);
      std::memset(code_mask + to + k, 0, N - k);
    }
    const int64_t to = (i * M + n) * N, rest = (M - n) * N;
    std::memset(out_code + to, 0, rest * 8);
    std::memset(out_value + to, 0, rest * 4);
    std::memset(code_mask + to, 0, rest);
  }
}
"""
DTYPES = {"visits": "int32", "codes": "int32", "age": "int64", "time": "float32", "code": "int64", "value": "float32"}


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(compile(SOURCE).path))
    library.measure.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_void_p]
    library.gather.argtypes = [*[ctypes.c_void_p] * 7, *[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 6]
    return library


def write(folder: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """Plain files of values and offsets."""
    folder.mkdir()
    for name, dtype in DTYPES.items():
        arrays[name].astype(dtype).tofile(folder / name)


class Limit:
    """Padded batches as nothing but these bytes needs to be touched for."""

    def __init__(self, folder: Path) -> None:
        self._library = _library()
        self._maps = {name: np.memmap(folder / name, dtype, mode="r") for name, dtype in DTYPES.items()}
        self._at = [self._maps[name].ctypes.data for name in DTYPES]

    def __call__(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """The rows, padded, with masks."""
        sizes, count = (ctypes.c_int64 * 2)(), rows.numel()
        self._library.measure(self._at[0], self._at[1], rows.data_ptr(), count, sizes)
        most_visits, most_codes = sizes
        grid = (count, most_visits, most_codes)
        made = {
            "age": torch.empty(count, dtype=torch.int64),
            "time": torch.empty(grid[:2]),
            "code": torch.empty(grid, dtype=torch.int64),
            "value": torch.empty(grid),
            "visits": torch.empty(grid[:2], dtype=torch.bool),
            "codes": torch.empty(grid, dtype=torch.bool),
        }
        results = [each.data_ptr() for each in made.values()]
        self._library.gather(*self._at, rows.data_ptr(), count, most_visits, most_codes, *results)
        return made
