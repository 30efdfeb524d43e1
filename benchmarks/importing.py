"""What `import serrate` adds to `import torch`, in fresh processes that take turns.

`python -m benchmarks.importing` prints least and median times; `python -m benchmarks.importing PATH …` those of several
trees, given by their `src` folders, side by side. Bytecode is there, as pip leaves it, but for the line that says
otherwise. torch leaves Python's garbage collector at the edge of a full collection, which then falls into whatever is
imported next; one line shows the time without it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 0.150
ROUNDS = 15
TIMED = "import torch, time; {0}begin = time.perf_counter(); import {1}; print(time.perf_counter() - begin)"
CANDIDATES = {
    "import serrate": ("", "serrate", True),
    "import serrate, collector at rest": ("import gc; gc.disable(); ", "serrate", True),
    "import serrate, from sources": ("", "serrate", False),
    "import serrate.table": ("", "serrate.table", True),
}
"""What is done before, what is imported, and whether there is bytecode."""


def main(trees: list[str] | None = None) -> None:
    """Print the times of each tree."""
    sources = [Path(tree) for tree in trees or [Path(__file__).parents[1] / "src"]]
    with tempfile.TemporaryDirectory() as folder:
        keys = [(source, name) for source in sources for name in CANDIDATES]
        copies = {key: _copied(key[0], Path(folder)) for key in keys}
        taken: dict[tuple[Path, str], list[float]] = {key: [] for key in keys}
        for round_ in range(ROUNDS + 1):  # the first writes the bytecode
            for key in keys[:: -1 if round_ % 2 else 1]:
                seconds = _seconds(key[1], copies[key])
                if round_:
                    taken[key].append(seconds)
    for (source, name), times in taken.items():
        least, middle = min(times), statistics.median(times)
        print(f"{source!s:40} {name:36} {least * 1e3:6.0f} ms  median {middle * 1e3:6.0f} ms")
    least = min(taken[sources[0], "import serrate"])
    print(f"\n{least * 1e3:.0f} ms, {'within' if least <= LIMIT else 'above'} the limit of {LIMIT * 1e3:.0f} ms")


def _copied(source: Path, folder: Path) -> Path:
    """A copy of a tree without bytecode, for one candidate."""
    made = folder / f"{len(list(folder.iterdir()))}"
    return Path(shutil.copytree(source, made, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")))


def _seconds(name: str, source: Path) -> float:
    before, imported, bytecode = CANDIDATES[name]
    variables = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "" if bytecode else "1"}
    command = [sys.executable, "-c", TIMED.format(before, imported)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
