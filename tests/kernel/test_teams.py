"""A loop over the ranks of a team: every rank's kernel, one after another, and their results put together."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.kernel.harness import NVCC, as_numpy, check

from serrate.errors import ScheduleError
from serrate.fusion import Fusion, IterDomain, Memory, ParallelType, TensorView, symbol
from serrate.kernel import Lowered, compile_together, lower
from serrate.kernel.check import Violation, run

LENGTHS = ([3, 0, 5, 2, 1, 0, 4], [4], [], [0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8])


def nested(fusion: Fusion) -> TensorView:
    x = fusion.input("x", ["n", 3])
    return fusion.view_as_nested(x, fusion.input("offsets", [symbol("k") + 1], "int64"))


def rows(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    generator = torch.Generator().manual_seed(len(lengths))
    return torch.randn(int(offsets[-1]), 3, generator=generator), offsets


def components_of(rank: int, size: int, count: int) -> range:
    """The components of a rank, in pieces of one length, of which the last ranks may have fewer or none."""
    each = -(-count // size)
    return range(min(rank * each, count), min((rank + 1) * each, count))


def interpreted(lowered: Lowered, inputs: list[torch.Tensor], valid: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the checking interpreter stores; `valid` says which elements the rank has to store, and no others."""
    made, sizes = lowered.arguments(inputs)
    outputs = {tensor.name for tensor in lowered.fusion.outputs}
    arrays = {name: as_numpy(tensor) for name, tensor in made.items() if name not in outputs}
    return run(lowered.kernel, arrays, sizes, valid=valid)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("target", ["cpp", "cuda"])
def test_components_spread_over_ranks(target: str, lengths: list[int], size: int) -> None:
    """Softmax of each row, and the sum of each: one kernel for any team, as its size has a name."""
    fusion = Fusion()
    x = nested(fusion)
    exponentials = fusion.unary("exp", x)
    total = fusion.reduce("sum", exponentials, [1], keepdims=True)
    y = fusion.output(exponentials / total, "y")
    fusion.output(fusion.reduce("sum", x, [1]), "s")
    y.split(0, symbol("ranks"), inner_split=False).parallelize(0, ParallelType.DIDx)
    y.parallelize(1, ParallelType.Thread if target == "cpp" else ParallelType.BIDx)
    lowered = lower(fusion, y, target=target)
    assert "rank" in map(str, lowered.kernel.sizes)
    values, offsets = rows(lengths)
    want = fusion.evaluate(values, offsets)
    sums = [torch.zeros_like(each) for each in want]
    together = [torch.full_like(each, torch.nan) for each in want]
    for rank in range(size):
        mine = lowered.on_rank(rank, size)
        own = components_of(rank, size, len(lengths))
        first, last = (int(offsets[c]) for c in (own.start, own.stop))
        valid = {"y": np.zeros((len(values), 3), bool), "s": np.zeros((len(lengths), 3), bool)}
        valid["y"][first:last], valid["s"][own.start : own.stop] = True, True
        flat = {name: mask.reshape(-1) for name, mask in valid.items()}
        found = interpreted(mine, [values, offsets], flat)
        for number, name in enumerate(("y", "s")):
            where = torch.from_numpy(valid[name])
            stored = torch.from_numpy(np.array(found[name], np.float32)).reshape(where.shape)
            torch.testing.assert_close(stored[where], want[number][where].float())
            sums[number][where] += stored[where]
        if target == "cpp":
            results = mine(values, offsets)
            for result, name in zip(results, ("y", "s"), strict=True):
                assert not result[~torch.from_numpy(valid[name])].any()  # the sum over ranks is the whole
            mine(values, offsets, out=together)
    for made, expected in zip(sums, want, strict=True):
        torch.testing.assert_close(made, expected)
    if target == "cpp":
        for made, expected in zip(together, want, strict=True):
            torch.testing.assert_close(made, expected)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 4, 7, 12])
def test_memory_of_a_slice(size: int, count: int) -> None:
    """An output that lies in memory by the axis of the loop leaves it out: slices are concatenated, holes cut off."""
    fusion = Fusion()
    x = fusion.input("x", ["n", 3])
    y, z = fusion.output(x * 2.0, "y"), fusion.output(fusion.reduce("max", x, [1]), "z")
    for tensor in (y, z):
        axis, *others = tensor.domain.kept
        parts = IterDomain.split(axis, size, inner_split=False)
        tensor.set_allocation_domain([*parts, *others], fill=-7.0)
    y.split(0, size, inner_split=False).parallelize(0, ParallelType.DIDx)
    lowered, values = lower(fusion, y), torch.randn(count, 3)
    each = -(-count // size)
    slices = []
    for rank in range(size):
        mine = lowered.on_rank(rank, size)
        made = mine(values)
        assert [list(result.shape) for result in made] == [[each, 3], [each]]
        stored = len(range(min(rank * each, count), min((rank + 1) * each, count)))
        valid = {name: np.arange(each * width) < stored * width for name, width in (("y", 3), ("z", 1))}
        arrays, sizes = mine.arguments([values])
        found = run(mine.kernel, {"x": as_numpy(arrays["x"])}, sizes, valid=valid, fill={"y": -7.0, "z": -7.0})
        for result, name in zip(made, ("y", "z"), strict=True):
            assert np.array_equal(found[name], as_numpy(result))
            assert (result.reshape(-1)[torch.from_numpy(~valid[name])] == -7).all()
        slices.append(made)
    whole = [torch.cat(parts)[:count] for parts in zip(*slices, strict=True)]
    assert torch.equal(whole[0], values * 2)
    assert torch.equal(whole[1], values.amax(1))


def test_a_rank_for_each_index_of_an_axis() -> None:
    """The axis itself, not a part of it: no rank's memory has it, whichever output it is of."""
    fusion = Fusion()
    x = fusion.input("x", [4, "n"])
    w = fusion.input("w", ["n"])
    y = fusion.output(x + w, "y")
    fusion.output(fusion.reduce("sum", x, [1]), "z")
    fusion.output(w * 3.0, "same")
    y.parallelize(0, ParallelType.DIDx)
    lowered = lower(fusion, y)
    values, given = torch.randn(4, 5), torch.randn(5)
    made = [lowered.on_rank(rank, 4)(values, given) for rank in range(4)]
    for results in made:
        assert [list(result.shape) for result in results] == [[5], [], [5]]
        assert torch.equal(results[2], given * 3)  # what lacks the axis every rank computes
    torch.testing.assert_close(torch.stack([result[0] for result in made]), values + given)
    torch.testing.assert_close(torch.stack([result[1] for result in made]), values.sum(1))


def test_rows_of_all_components_spread_over_ranks() -> None:
    """The flat axis of all rows cut into pieces of one length, whatever the components are: a slice of packed rows."""
    fusion = Fusion()
    x = nested(fusion)
    w = fusion.broadcast(fusion.input("w", ["k", 3]), [False, True, False])
    y = fusion.output(x * w, "y").combine(0).split(0, 3, inner_split=False)
    y.parallelize(0, ParallelType.DIDx)
    values, offsets = rows([3, 0, 5, 2])
    weights = torch.randn(4, 3)
    want = fusion.evaluate(values, offsets, weights)[0]
    parts = [lower(fusion, y).on_rank(rank, 3)(values, offsets, weights)[0] for rank in range(3)]
    torch.testing.assert_close(parts[0] + parts[1] + parts[2], want)
    for rank, part in enumerate(parts):
        torch.testing.assert_close(part[rank * 4 : rank * 4 + 4], want[rank * 4 : rank * 4 + 4])


def test_a_sum_is_left_to_a_collective() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.reduce("sum", fusion.input("x", ["n"]), [0]), "y")
    y.split(0, 2, inner_split=False).parallelize(0, ParallelType.DIDx)
    with pytest.raises(ScheduleError) as refused:
        lower(fusion, y)
    assert refused.value.tensor is y
    assert str(refused.value) == (
        "y[rD_i_outer{2}, rS_i_inner{(n + 1) / 2}] float32 is reduced over loop rD_i_outer{2} of y, which is "
        "spread over the ranks of a team; what several ranks have is put together by a collective, not by a kernel: "
        "reduce the other loops, by rfactor, and store that"
    )


def test_a_sum_of_which_each_rank_stores_its_part() -> None:
    """What the refusal asks for: the partial sums of the ranks, which a collective would add up."""
    fusion = Fusion()
    total = fusion.reduce("sum", fusion.input("x", ["n"]), [0]).split(0, 3, inner_split=False)
    partial = fusion.output(total.rfactor(0), "partial")
    partial.parallelize(0, ParallelType.DIDx)
    x = torch.randn(10)
    made = [lower(fusion, partial).on_rank(rank, 3)(x)[0] for rank in range(3)]
    assert [result.ndim for result in made] == [0, 0, 0]
    torch.testing.assert_close(sum(made), x.sum())


def spread(fusion: Fusion, factor: int = 2) -> Lowered:
    y = fusion.output(fusion.input("x", ["n"]) * 2.0, "y")
    y.split(0, factor, inner_split=False).parallelize(0, ParallelType.DIDx)
    return lower(fusion, y)


def test_refusals() -> None:
    lowered = spread(Fusion())
    with pytest.raises(TypeError, match=r"kernel is one rank's part of the work of a team, .* on_rank\(rank, size\)"):
        lowered(torch.ones(3))
    with pytest.raises(ScheduleError, match=r"loop iD_i_outer\{2\} has 2 indices, one for each rank; the team has 3"):
        lowered.on_rank(0, 3)
    for rank in (-1, 2):
        with pytest.raises(ValueError, match=f"the ranks of a team of 2 are 0 to 1, got {rank}"):
            lowered.on_rank(rank, 2)
    fusion = Fusion()
    y = fusion.output(nested(fusion) * 2.0, "y")
    with pytest.raises(ScheduleError, match="no loop of kernel is spread over the ranks of a team"):
        lower(fusion, y).on_rank(0, 1)
    y.parallelize(1, ParallelType.DIDx)
    with pytest.raises(ScheduleError, match="is ragged, so that it has no index for each rank"):
        lower(fusion, y)
    y.parallelize(1, ParallelType.Serial).parallelize(0, ParallelType.DIDx).parallelize(2, ParallelType.DIDx)
    with pytest.raises(ScheduleError, match="another loop is DIDx already"):
        lower(fusion, y)


def test_a_number_of_indices_that_only_the_call_knows() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.input("x", ["n"]) * 2.0, "y").split(0, 4).parallelize(0, ParallelType.DIDx)
    lowered = lower(fusion, y)
    x = torch.randn(10)
    parts = [lowered.on_rank(rank, 3)(x)[0] for rank in range(3)]
    assert torch.equal(parts[0] + parts[1] + parts[2], x * 2)
    with pytest.raises(ScheduleError, match="is spread over a team of 2, but has another number of indices"):
        lowered.on_rank(0, 2)(x)


def test_a_size_called_rank() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.input("x", ["rank"]) * 2.0, "y")
    y.split(0, 2, inner_split=False).parallelize(0, ParallelType.DIDx)
    lowered = lower(fusion, y)
    x = torch.randn(5)
    assert torch.equal(lowered.on_rank(0, 2)(x)[0] + lowered.on_rank(1, 2)(x)[0], x * 2)


def test_all_ranks_share_what_is_compiled() -> None:
    lowered = spread(Fusion())
    compile_together([lowered])
    assert lowered.on_rank(0, 2).variant() is lowered.on_rank(1, 2).variant()


def test_the_checker_sees_a_slice_of_another_rank() -> None:
    """What proves that a rank stores its own part can fail."""
    lowered = spread(Fusion())
    x = torch.randn(4)
    for rank in range(2):
        sizes = lowered.on_rank(rank, 2).arguments([x])[1]
        mine = np.arange(4) // 2 == rank
        run(lowered.kernel, {"x": as_numpy(x)}, sizes, valid={"y": mine})
        with pytest.raises(Violation, match="store to the hole"):
            run(lowered.kernel, {"x": as_numpy(x)}, sizes, valid={"y": ~mine})


def test_one_rank_is_the_whole() -> None:
    fusion = Fusion()
    y = fusion.output(nested(fusion) * 2.0, "y").split(0, 1, inner_split=False)
    y.parallelize(0, ParallelType.DIDx).parallelize(1, ParallelType.BIDx).parallelize(3, ParallelType.TIDx)
    lowered = lower(fusion, y, target="cuda").on_rank(0, 1)
    check(lowered, list(rows([3, 0, 2])))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_nvcc_compiles_it(tmp_path: Path) -> None:
    fusion = Fusion()
    y = fusion.output(nested(fusion) * 2.0, "y").split(0, symbol("ranks"), inner_split=False)
    y.parallelize(0, ParallelType.DIDx).parallelize(1, ParallelType.BIDx).parallelize(3, ParallelType.TIDx)
    (tmp_path / "k.cu").write_text(lower(fusion, y, target="cuda").source)
    command = [*NVCC, "-Werror=all-warnings", "k.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_a_rank_has_memory_for_its_own_part_alone() -> None:
    """The loop over ranks stands inside of one that is reduced: nothing is kept for other ranks."""
    fusion = Fusion()
    x = fusion.input("x", [6, 8])
    exponentials = fusion.unary("exp", x).set_memory_type(Memory.SHARED)
    y = fusion.output(exponentials / fusion.reduce("sum", exponentials, [0], keepdims=True), "y")
    y.split(1, 2, inner_split=False).parallelize(1, ParallelType.DIDx)
    lowered = lower(fusion, y)
    values = torch.randn(6, 8)
    parts = [lowered.on_rank(rank, 2) for rank in range(2)]
    for rank, part in enumerate(parts):
        valid = np.zeros((6, 8), bool)
        valid[:, 4 * rank : 4 * rank + 4] = True
        interpreted(part, [values], {"y": valid.reshape(-1)})
    torch.testing.assert_close(parts[0](values)[0] + parts[1](values)[0], values.softmax(0))
    assert lowered.needs.registers == 4 * 4
    assert lowered.needs.shared == 6 * 4 * 4
