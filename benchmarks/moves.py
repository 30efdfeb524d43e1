"""Rows that are padded, unpadded, cut, joined and gathered by generated kernels, against a copy of as many bytes.

Kernels are scheduled by hand: threads over components, lanes along features. A copy of half the bytes that an operation
reads and writes, into existing memory, moves as many.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.eager import log_normal
from benchmarks.timing import interleaved
from serrate.fusion import Fusion, ParallelType, TensorView, symbol
from serrate.kernel import lower

ROWS, FEATURES, LONGEST = 4096, 64, 64


def nested(fusion: Fusion, name: str, *features: int, dtype: str = "float32") -> TensorView:
    """An input as [k, r, *features]."""
    data = fusion.input(name, ["n", *features], dtype)
    return fusion.view_as_nested(data, fusion.named("offsets"))


def unpadded(fusion: Fusion, x: TensorView) -> TensorView:
    return fusion.from_dense(fusion.input("dense", ["k", LONGEST, FEATURES]), x)


MOVES: dict[str, Callable[[Fusion, TensorView], TensorView]] = {
    "copy": lambda fusion, x: fusion.copy(x),
    "pad to a box": lambda fusion, x: fusion.to_dense(x, 1, LONGEST),
    "read from a box": unpadded,
    "pad each row": lambda fusion, x: fusion.pad(x, 1, 1, 1),
    "last 8 of each row": lambda fusion, x: fusion.slice(x, 1, -8, None),
    "rows joined": lambda fusion, x: fusion.concat([x, nested(fusion, "z", FEATURES)], 1),
    "components stacked": lambda fusion, x: fusion.concat([x, nested(fusion, "z", FEATURES)], 0),
    "features permuted": lambda fusion, x: fusion.gather(x, fusion.input("order", [FEATURES], "int64"), 2),
    "gather within rows": lambda fusion, x: fusion.gather(x, nested(fusion, "places", dtype="int64"), 1),
}


def main() -> None:
    lengths = log_normal(ROWS).clamp(max=LONGEST)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    count = int(offsets[-1])
    given = {
        "offsets": offsets,
        "x": torch.randn(count, FEATURES),
        "z": torch.randn(count, FEATURES),
        "dense": torch.randn(ROWS, LONGEST, FEATURES),
        "order": torch.randperm(FEATURES),
        "places": torch.cat([torch.randperm(int(length)) for length in lengths]),
    }
    for name, move in MOVES.items():
        fusion = Fusion()
        fusion.input("offsets", [symbol("k") + 1], "int64")
        y = fusion.output(move(fusion, nested(fusion, "x", FEATURES)), "y")
        y.parallelize(0, ParallelType.Thread).parallelize(len(y.loop) - 1, ParallelType.Simd)
        lowered = lower(fusion, y)
        inputs = [given[tensor.name] for tensor in fusion.inputs]
        outputs = lowered(*inputs)
        moved = 2 * outputs[0].nbytes  # what is written was read, or is known
        half = torch.randn(moved // 8)
        target = torch.empty_like(half)
        times = interleaved(
            {
                "kernel": lambda lowered=lowered, inputs=inputs, outputs=outputs: lowered(*inputs, out=outputs),
                "copy": lambda target=target, half=half: target.copy_(half),
            }
        )
        kernel, copy = (times[which][0] for which in ("kernel", "copy"))
        print(f"{name:22}{kernel * 1e3:8.2f} ms, {kernel / copy:5.2f} × a copy of {moved / 2e6:.0f} MB")


if __name__ == "__main__":
    main()
