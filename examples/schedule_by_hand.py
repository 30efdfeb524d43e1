"""A softmax over the rows of a ragged batch, scheduled by hand, compiled to C++, and checked.

Run with: python examples/schedule_by_hand.py
"""

from __future__ import annotations

import torch

import serrate as sr
from serrate.fusion import Fusion, ParallelType, symbol
from serrate.kernel import lower


def main() -> None:
    fusion = Fusion()
    values = fusion.input("x", ["n", 64])
    offsets = fusion.input("offsets", [symbol("k") + 1], "int64")
    x = fusion.view_as_nested(values, offsets)  # [k, r, 64]
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")

    # One thread per row, 64 lanes at a time; exponentials wait in the place of the result.
    y.parallelize(0, ParallelType.Thread).parallelize(2, ParallelType.Simd)
    exponentials.keep_in(y)
    softmax = lower(fusion, y, name="ragged_softmax")
    print(softmax.kernel)

    batch = sr.from_lengths(torch.randn(13, 64), [3, 0, 9, 1])
    (result,) = softmax(batch.values, batch.offsets[0])
    torch.testing.assert_close(result, sr.softmax(batch, axis=1).values)
    print("\nas sr.softmax:", result.shape)


if __name__ == "__main__":
    main()
