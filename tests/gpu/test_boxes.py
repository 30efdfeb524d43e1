"""Boxes on a GPU that has the copy engine, and the ranks of a team one after another, against `evaluate`."""

from __future__ import annotations

import pytest
import torch
from tests.gpu.running import run
from tests.kernel.test_boxes import merged, product_of_matrices, reduced_rows, some

from serrate.fusion import Fusion, ParallelType, symbol
from serrate.kernel import lower

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0),
    reason="needs a device of compute capability 9.0",
)


@hopper
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("shape", [(16, 32), (11, 20), (3, 4), (1000, 260)], ids=str)
def test_sums_of_boxes(shape: tuple[int, int], holes: bool) -> None:
    run(reduced_rows((8, 16), holes=holes), [some(*shape)])


@hopper
def test_boxes_that_do_not_begin_at_a_multiple_of_16_bytes() -> None:
    """A tensor that begins anywhere: its rows are copied by threads."""
    lowered = reduced_rows((8, 16), holes=True)
    memory = torch.randn(11 * 20 + 1, device="cuda")
    x = memory[1:].view(11, 20)
    torch.testing.assert_close(lowered(x)[0], x.sum(1))


@hopper
def test_merges_and_products() -> None:
    run(merged([3, 5, 8], (1, 2), 12), [some(3, 5, 8)])
    run(merged([2, 3, 8], (0, 2), 4), [some(2, 3, 8)])
    run(product_of_matrices(4, 8, 8), [some(9, 20), some(20, 12)])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ranks_of_a_team(size: int) -> None:
    fusion = Fusion()
    x, offsets = fusion.input("x", ["n", 3]), fusion.input("offsets", [symbol("k") + 1], "int64")
    y = fusion.output(fusion.reduce("sum", fusion.view_as_nested(x, offsets), [1]), "y")
    y.split(0, symbol("ranks"), inner_split=False).parallelize(0, ParallelType.DIDx).parallelize(1, ParallelType.BIDx)
    lowered = lower(fusion, y, target="cuda")
    given = [some(10, 3), torch.tensor([0, 3, 3, 8, 9, 10])]
    on_device = [tensor.cuda() for tensor in given]
    total = sum(lowered.on_rank(rank, size)(*on_device)[0] for rank in range(size))
    torch.testing.assert_close(total.cpu(), fusion.evaluate(*given)[0])
