"""The library that the package carries against the same sources compiled for this processor alone (`-march=native`).

`python -m benchmarks.levels` prints for calls of `benchmarks.compat`, `benchmarks.sums` and `benchmarks.table` the time
by each built level over the time by the library of this processor, at minima and at medians, with one thread and two;
`python -m benchmarks.levels bmm sum` only calls with one of these words in their name.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks import compat_dense, compat_sparse, table_peers
from benchmarks.timing import interleaved
from serrate.compat import fbgemm
from serrate.native import building, gather, loading, padded, row_products, row_sums, rows
from serrate.runtime.toolchain import features

LIMIT = 1.05
HELD: Any = [(module, "_library") for module in (padded, row_products, row_sums, rows)]
HELD += [(gather, "routines"), (gather, "padding_routines")]
Loaded = list[Callable[[], Any]]


def main(words: list[str] | None = None) -> None:
    """Print the ratios, and how many of them are above the limit."""
    with tempfile.TemporaryDirectory() as folder:
        with mock.patch.object(building, "_architecture", return_value=("-march=native",)):
            own = building.build(Path(folder))[0]  # all levels are the same then
        built = [name for name, needed in building.levels().items() if needed <= features()]
        loaded = {"native": _load(own), **{name: _load(building.library_of(name)) for name in built}}
    above = []
    for title, call in _calls():
        if words and not any(word in title for word in words):
            continue
        line = f"{title:86}"
        for threads in (1, 2):
            torch.set_num_threads(threads)
            candidates = {name: _with(routines, call) for name, routines in loaded.items()}
            times = interleaved(candidates, 1000, 0.6)
            for name in built:
                least, middle = (times[name][i] / times["native"][i] for i in (0, 1))
                line += f" {name} {least:5.2f}|{middle:5.2f}"
                if name == building.level() and least > LIMIT:
                    above.append((least, title, threads))
        print(f"{line}  {times['native'][0] * 1e6:9.1f} µs", flush=True)
    print(f"\nabove {LIMIT}, level {building.level()}, by minima: {len(above)}", *sorted(above), sep="\n  ")


def _load(path: Path) -> Loaded:
    """The functions that modules find in a library."""
    digests = {source.name: building.digest_of(source.name) for source in building.sources()}
    with mock.patch.object(loading, "_built", return_value=(path, digests)):
        return [_constant(getattr(module, name).__wrapped__()) for module, name in HELD]


def _constant(given: Any) -> Callable[[], Any]:
    return lambda: given


def _with(routines: Loaded, call: Callable[[], object]) -> Callable[[], object]:
    def called() -> object:
        for (module, name), function in zip(HELD, routines, strict=True):
            setattr(module, name, function)
        return call()

    return called


def _calls() -> Iterator[tuple[str, Callable[[], object]]]:
    for case in (
        *compat_dense.cases("cola", 1024, 128),
        *compat_dense.cases("squad", 128, 128),
        *compat_sparse.rows_cases(4096),
        *compat_sparse.keyed_cases(4096),
    ):
        function = getattr(fbgemm, case.function)
        yield f"{case.function} ({case.title})", _call(function, *case.arguments)
    generator = torch.Generator().manual_seed(0)
    for components, length, width in ((4096, 20, 1), (4096, 20, 64), (512, 400, 16), (64, 400, 512)):
        lengths = torch.randint(0, 2 * length, (components,), generator=generator)
        offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        for dtype in (torch.float32, torch.float64, torch.int64):
            values = torch.randn(int(offsets[-1]), width, generator=generator).mul(100).to(dtype)
            title = f"{components} × about {length} × {width}, {dtype}"
            yield f"sums ({title})", _call(row_sums.sums, values, offsets)
            if dtype.is_floating_point:
                yield f"centred ({title})", _call(row_sums.centred, values, offsets)
    given = table_peers.table(table_peers.arrays(20_000))
    for count in (64, 2048):
        chosen = torch.randint(0, len(given), (count,), generator=generator)
        yield f"rows of a table ({count})", _call(given.__getitem__, chosen)
        yield f"padded rows of a table ({count})", _call(_padded, given, chosen)


def _padded(given: Any, chosen: torch.Tensor) -> object:
    return given[chosen].to_dense()


def _call(function: Callable[..., object], *arguments: Any) -> Callable[[], object]:
    return lambda: function(*arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
