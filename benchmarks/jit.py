"""Compiled functions (`sr.jit`): against copies of what they move, against eager code and against other libraries.

`python -m benchmarks.jit [small] [part ...]` measures what is named, else all:

- `rows` are functions of rows, of 128 features, against a copy and other libraries; `gradients` are some of them with
  their gradients.
- `models` are layers of a transformer, forward and backward, against torch.
- `overhead` is what a call on 100 rows costs beside its kernels; `first` what a first call costs.
- `growth` is what a value costs, from 10³ to 10⁷ of them.

`small` takes few values, to see that all runs. Every table is one run, in which the candidates take turns; each result
is compared with that of eager code before. Compiled code and eager code keep the memory of large results for the next
ones, and torch does not; a line says what compiled code takes where its results are in new memory, too.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import torch

from benchmarks.jit_calls import measure_first, measure_overhead
from benchmarks.jit_models import measure_models
from benchmarks.jit_rows import measure_gradients, measure_growth, measure_rows

PARTS: dict[str, Callable[[bool], None]] = {
    "rows": measure_rows,
    "gradients": measure_gradients,
    "models": measure_models,
    "overhead": measure_overhead,
    "first": measure_first,
    "growth": measure_growth,
}


def main(*words: str) -> None:
    warnings.filterwarnings("ignore")
    asked = [word for word in words if word != "small"] or list(PARTS)
    unknown = [word for word in asked if word not in PARTS]
    if unknown:
        raise SystemExit(f"expected parts among {', '.join(PARTS)}, got {', '.join(unknown)}")
    for part in asked:
        torch.manual_seed(0)
        PARTS[part]("small" in words)


if __name__ == "__main__":
    main(*sys.argv[1:])
