"""Run benchmark suites: all of them, or those named on the command line."""

from __future__ import annotations

import importlib
import sys

SUITES = [
    "importing",
    "tensor",
    "eager",
    "native",
    "sums",
    "kernels",
    "jit",
    "dialects",
    "moves",
    "compat",
    "table",
    "levels",
    "allocation",
]


def main() -> None:
    for suite in sys.argv[1:] or SUITES:
        print(f"=== {suite}")
        importlib.import_module(f"benchmarks.{suite}").main()


if __name__ == "__main__":
    main()
