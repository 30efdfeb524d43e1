"""Scans along rows, and one giant row among short ones: kernels scheduled by hand, on the CPU.

A scan reads and writes every value once: its measure is a copy into existing memory. One row of 10⁷ values among 10⁵
rows of 8 is summed by rows, and by tiles, on threads, and then by rows; its measure is the even split: half of the time
that the same kernels take on one thread.
"""

from __future__ import annotations

import torch

from benchmarks.eager import log_normal
from benchmarks.kernels import prepared
from benchmarks.tensor import lengths_of
from benchmarks.timing import interleaved
from serrate.fusion import Fusion, ParallelType, TensorView, symbol
from serrate.fusion.axes import ragged
from serrate.kernel import Lowered, lower

HEIGHT = 4096  # of a tile


def nested(fusion: Fusion, *features: int) -> TensorView:
    offsets = [symbol("k") + 1]
    return fusion.view_as_nested(fusion.input("x", ["n", *features]), fusion.input("offsets", offsets, "int64"))


def scan(features: int, reverse: bool = False) -> Lowered:
    """By component on threads, features as lanes; rows of single numbers along lanes."""
    fusion = Fusion()
    y = fusion.output(fusion.scan("sum", nested(fusion, features), 1, reverse=reverse), "y")
    if features == 1:
        return lower(fusion, y.reorder([0, 2, 1]).parallelize(0, ParallelType.Thread).parallelize(2, ParallelType.Simd))
    return lower(fusion, y.parallelize(0, ParallelType.Thread).parallelize(2, ParallelType.Simd), name="scan")


def row_sums() -> Lowered:
    """By component on threads, 16 values of a row at a time."""
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", nested(fusion), [1]), "y").split(1, 16)
    return lower(fusion, y.parallelize(0, ParallelType.Thread).parallelize(2, ParallelType.Simd), name="row_sums")


def tile_sums() -> Lowered:
    """By tile on threads: the sums of the tiles, and where those of each row begin."""
    fusion = Fusion()
    part = fusion.reduce("sum", nested(fusion), [1]).split(1, HEIGHT).rfactor(1)
    fusion.output(part, "part")
    fusion.output(fusion.offsets_of(part, ragged(part.domain.kept[1])))
    part.merge(0).split(1, 16).parallelize(0, ParallelType.Thread).parallelize(2, ParallelType.Simd)
    return lower(fusion, part, name="tile_sums")


def measure_scans(name: str, lengths: torch.Tensor, threads: int) -> None:
    torch.set_num_threads(threads)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    for features in (1, 16, 128):
        x = torch.randn(int(lengths.sum()), features)
        place = torch.empty_like(x)
        calls = {"copy into existing memory": lambda x=x, place=place: place.copy_(x)}
        for reverse in (False, True):
            kernel = scan(features, reverse)
            calls["scan from the end" if reverse else "scan"] = prepared(kernel, [x, offsets], place)
        times = interleaved(calls, rounds=21, seconds=5)
        copy = times.pop("copy into existing memory")
        for what, (least, middle) in times.items():
            ratio = f"{least / copy[0]:6.2f} | {middle / copy[1]:6.2f} × copy"
            print(f"  {name}, {features} features, {threads} thread(s), {what:18} {least * 1e3:8.3f} ms {ratio}")


def measure_skew() -> None:
    lengths = torch.full((100_001,), 8)
    lengths[50_000] = 10_000_000
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    x = torch.randn(int(offsets[-1]))
    by_row, again, by_tile = row_sums(), row_sums(), tile_sums()
    calls = {"by row": lambda: by_row(x, offsets), "by tile": lambda: again(*by_tile(x, offsets))}
    times = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        times[threads] = interleaved(calls, rounds=21, seconds=10)
    for what, (least, middle) in times[2].items():
        alone = times[1][what]
        ratio = f"{2 * least / alone[0]:6.2f} | {2 * middle / alone[1]:6.2f} × the even split"
        print(f"  one row of 10⁷, 10⁵ of 8, {what:8} {alone[0] * 1e3:8.3f} ms alone {least * 1e3:8.3f} ms {ratio}")


def main() -> None:
    with torch.no_grad():
        measure_skew()
        for threads in (1, 2):
            for name, lengths in {"squad": lengths_of("squad", 1024), "log-normal": log_normal(1024)}.items():
                measure_scans(name, lengths, threads)


if __name__ == "__main__":
    main()
