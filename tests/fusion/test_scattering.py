"""scatter_add and places_of along every axis, by regular and by ragged indices, against torch."""

from __future__ import annotations

import pytest
import torch
from tests.fusion.nested_rows import Rows, every_rows
from tests.fusion.samples import some
from tests.fusion.test_gathers import FULL, ids
from tests.fusion.test_values_of_indices import each_target, on
from tests.kernel.harness import agree

from serrate.errors import AxisError, RaggednessError, ScheduleError
from serrate.fusion import Fusion, stages_of
from serrate.fusion import ParallelType as P
from serrate.kernel import Lowered, choose_reference, lower, lower_stages


def added(values: torch.Tensor, places: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """By torch: one addition after another."""
    shape = [*values.shape[:axis], size, *values.shape[axis + 1 :]]
    return torch.zeros(shape, dtype=values.dtype).index_add_(axis, places.long(), values)


def expect(fusion: Fusion, target: str, inputs: list[torch.Tensor], want: torch.Tensor) -> None:
    """By `evaluate`, by the checking interpreter, compiled for the CPU; where it has stages, by these."""
    torch.testing.assert_close(fusion.evaluate(*inputs)[0], want)
    stages = stages_of(fusion)
    if len(stages) == 1:
        agree(reduced_inside(target, fusion), *inputs)
    if target == "cpp":
        torch.testing.assert_close(lower_stages(fusion, choose_reference)(*inputs)[0], want)


def reduced_inside(target: str, fusion: Fusion) -> Lowered:
    """With the loops that are reduced innermost, so that states are single numbers, which every target has."""
    total = choose_reference(fusion)
    total.reorder(sorted(range(len(total.loop)), key=lambda at: total.loop[at].is_reduction))
    return on(target, fusion, total)


@each_target
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("shape", [[], [3], [2, 3], [0]])
def test_every_regular_axis(shape: list[int], dtype: str, target: str) -> None:
    for axis in range(3):
        fusion, sizes = Fusion(), [2, "n", 4]
        x = fusion.input("x", [*sizes[:axis], *shape, *sizes[axis + 1 :]])
        like = fusion.input("like", sizes)
        fusion.output(fusion.scatter_add(x, fusion.input("ids", shape, dtype), like, axis), "y")
        size = [2, 5, 4]
        values = some(*size[:axis], *shape, *size[axis + 1 :])
        chosen = ids(*shape, below=size[axis], dtype=dtype)
        flat = values.reshape(*size[:axis], -1, *size[axis + 1 :]) if chosen.numel() else values.reshape(
            *size[:axis], 0, *size[axis + 1 :]
        )  # fmt: skip
        want = added(flat, chosen.reshape(-1), axis, size[axis])
        expect(fusion, target, [values, torch.zeros(size), chosen], want)


@each_target
@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float64", "complex64", "int8", "int32", "int64", "uint8", "uint32"]
)
def test_every_dtype(dtype: str, target: str) -> None:
    """Results have the dtype of what is added."""
    fusion = Fusion()
    x, chosen = fusion.input("x", ["n", 2], dtype), fusion.input("ids", ["n"], "int64")
    y = fusion.output(fusion.scatter_add(x, chosen, [4, 2]), "y")
    assert y.dtype == dtype
    values, places = some(5, 2, dtype=dtype), torch.tensor([3, 0, 3, 1, 3])
    wide = torch.complex128 if values.is_complex() else torch.float64 if values.is_floating_point() else torch.int64
    want = added(values.to(wide), places, 0, 4).to(values.dtype)
    assert torch.equal(fusion.evaluate(values, places)[0], want)
    agree(reduced_inside(target, fusion), values, places)


@every_rows
@each_target
def test_embeddings_of_rows(target: str, rows: Rows) -> None:
    """The gradient of a table that was read at ragged indices of any depth."""
    fusion = Fusion()
    table = fusion.input("table", ["v", 2])
    chosen = rows.input(fusion, name="ids", dtype="int64")
    gradient = rows.input(fusion, 2, name="g")
    fusion.output(fusion.scatter_add(gradient, chosen, table), "y")
    values, places = rows.values(2), ids(rows.count, below=5)
    inputs = rows.given(fusion, table=torch.zeros(5, 2), ids=places, g=values)
    assert len(stages_of(fusion)) == 1
    expect(fusion, target, inputs, added(values, places, 0, 5))


@each_target
@pytest.mark.parametrize("rows", FULL.values(), ids=FULL.keys())
def test_within_rows(target: str, rows: Rows) -> None:
    """[k, r, …, 2, d] into [k, r, …, d]: as many indices of each of the innermost rows."""
    fusion, outer = Fusion(), Rows(rows.levels[:-1])
    like = rows.input(fusion, 3, name="like")
    names = {"g": (2, 3), "ids": (2,)}
    g, chosen = (
        outer.input(fusion, *features, name=name, dtype="int64" if name == "ids" else "float32")
        if outer.depth
        else fusion.input(name, ["n0", *features], "int64" if name == "ids" else "float32")
        for name, features in names.items()
    )
    fusion.output(fusion.scatter_add(g, chosen, like, rows.depth), "y")
    lengths = torch.tensor(rows.levels[-1], dtype=torch.int64)
    values, places = some(len(lengths), 2, 3), ids(len(lengths), 2, below=1000) % lengths[:, None]
    inputs = rows.given(fusion, like=rows.values(3), g=values, ids=places)
    starts = rows.offsets[-1][:-1, None]
    want = added(values.reshape(-1, 3), (places + starts).reshape(-1), 0, rows.count)
    assert len(stages_of(fusion)) == 2
    expect(fusion, target, inputs, want)


@each_target
def test_shared_regular_axes(target: str) -> None:
    fusion = Fusion()
    x, chosen = fusion.input("x", ["n", 3, 2]), fusion.input("ids", ["n", 3], "int64")
    fusion.output(fusion.scatter_add(x, chosen, ["n", 4, 2], 1, batch=1), "y")
    values, places = some(5, 3, 2), ids(5, 3, below=4)
    want = torch.stack([added(row, p, 0, 4) for row, p in zip(values, places, strict=True)])
    expect(fusion, target, [values, places], want)


@each_target
def test_rows_by_shared_components(target: str) -> None:
    """[k, r, d] into [k, 4, d]: a histogram of each row."""
    rows, fusion = Rows(((3, 0, 2),)), Fusion()
    chosen, x = rows.input(fusion, name="ids", dtype="int64"), rows.input(fusion, 2)
    fusion.output(fusion.scatter_add(x, chosen, ["n0", 4, 2], 1, batch=1), "y")
    values, places = rows.values(2), ids(5, below=4)
    starts, ends = rows.offsets[0][:-1].tolist(), rows.offsets[0][1:].tolist()
    want = torch.stack([added(values[s:e], places[s:e], 0, 4) for s, e in zip(starts, ends, strict=True)])
    expect(fusion, target, rows.given(fusion, x=values, ids=places), want)


def test_indices_that_the_fusion_computes() -> None:
    fusion = Fusion()
    x, chosen = fusion.input("x", ["n"]), fusion.input("ids", ["n"], "int64")
    y = fusion.output(fusion.scatter_add(x * 2.0, chosen + 1, [4]), "y")
    with pytest.raises(ScheduleError, match="before the kernel runs; make it an input, as stages_of does"):
        lower(fusion, y)
    expect(fusion, "cpp", [torch.tensor([1.0, 2, 4]), torch.tensor([0, 2, 0])], torch.tensor([0.0, 10, 0, 4]))


def test_what_is_gathered_and_added_again() -> None:
    """A table by its own indices: the derivative of a gather, in the kernel that reads what was gathered."""
    fusion = Fusion()
    table, chosen = fusion.input("table", ["v", 2]), fusion.input("ids", ["n"], "int64")
    taken = fusion.gather(table, chosen)
    fusion.output(fusion.scatter_add(taken * taken, chosen, table), "y")
    values, places = some(4, 2), torch.tensor([3, 1, 3])
    expect(fusion, "cpp", [values, places], added(values[places] ** 2, places, 0, 4))


def test_other_reductions_of_what_meets() -> None:
    fusion = Fusion()
    x, chosen = fusion.input("x", ["n"]), fusion.input("ids", ["n"], "int64")
    y = fusion.output(fusion.reduce("max", fusion.gather(x, fusion.places_of(chosen, "m")), [1]), "y")
    fusion.input("z", ["m"])  # which says how many there are
    values, places = some(6), torch.tensor([2, 0, 2, 2, 0, 3])
    want = torch.full((4,), -torch.inf).scatter_reduce(0, places, values, "amax")
    agree(lower(fusion, y), values, places, torch.zeros(4))
    assert torch.equal(fusion.evaluate(values, places, torch.zeros(4))[0], want)


SCHEDULES = {
    "threads and lanes": lambda y: y.reorder([0, 2, 1]).parallelize(0, P.Thread).parallelize(1, P.Simd),
    "tiles": lambda y: y.split(1, 2).parallelize(3, P.Simd),
    "parts": lambda y: y.split(1, 3, inner_split=False).parallelize(1, P.Thread),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    """Sums over the places are reductions over rows, and scheduled as such; the same in every run."""
    fusion = Fusion()
    x, chosen = fusion.input("x", ["n", 8]), fusion.input("ids", ["n"], "int64")
    y = fusion.output(fusion.scatter_add(x, chosen, [5, 8]), "y")
    kernel = lower(fusion, SCHEDULES[name](y))
    values, places = some(200, 8), ids(200, below=5)
    agree(kernel, values, places)
    assert torch.equal(kernel(values, places)[0], kernel(values, places)[0])


@pytest.mark.parametrize("wrong", [-1, 4, 2**40])
def test_an_index_out_of_range_is_refused(wrong: int) -> None:
    fusion = Fusion()
    x, chosen = fusion.input("x", ["n"]), fusion.input("ids", ["n"], "int64")
    y = fusion.output(fusion.scatter_add(x, chosen, [4]), "y")
    kernel = lower(fusion, y)
    given = torch.ones(3), torch.tensor([0, wrong, 1])
    for call in (kernel, fusion.evaluate, kernel):
        with pytest.raises(IndexError, match=rf"an index of ids.* is out of range: position 1 holds {wrong}"):
            call(*given)
    given[1][1] = 3
    assert kernel(*given)[0].tolist() == [1, 1, 0, 1]


def test_an_index_of_another_row_is_refused() -> None:
    """Though the next row has it."""
    rows, fusion = Rows(((2, 3),)), Fusion()
    like = rows.input(fusion, name="like")
    g, chosen = fusion.input("g", ["n0", 1]), fusion.input("ids", ["n0", 1], "int64")
    fusion.output(fusion.scatter_add(g, chosen, like, 1), "y")
    inputs = rows.given(fusion, like=rows.values(), g=torch.ones(2, 1), ids=torch.tensor([[2], [2]]))
    for call in (lower_stages(fusion, choose_reference), fusion.evaluate):
        with pytest.raises(IndexError, match="position 0 holds 2"):
            call(*inputs)


def test_places_are_found_once_for_each_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = Fusion()
    x, chosen = fusion.input("x", ["n"]), fusion.input("ids", ["n"], "int64")
    kernel = lower(fusion, fusion.output(fusion.scatter_add(x, chosen, [4]), "y"))
    values, places = torch.ones(3), torch.tensor([0, 1, 1])
    kernel(values, places)
    sorts = []
    real = torch.Tensor.sort
    monkeypatch.setattr(torch.Tensor, "sort", lambda *a, **k: (sorts.append(a), real(*a, **k))[1])
    assert kernel(values, places)[0].tolist() == [1, 2, 0, 0]
    assert not sorts
    places[0] = 3
    assert kernel(values, places)[0].tolist() == [0, 2, 0, 1]
    assert len(sorts) == 1


def test_what_is_refused() -> None:
    fusion = Fusion()
    x, chosen = fusion.input("x", ["n", 2]), fusion.input("ids", ["n"], "int64")
    with pytest.raises(TypeError, match="places need indices of int32 or int64"):
        fusion.scatter_add(x, fusion.input("half", ["n"]), [3, 2])
    with pytest.raises(TypeError, match="scatter_add needs numbers"):
        fusion.scatter_add(fusion.input("b", ["n", 2], "bool"), chosen, [3, 2])
    with pytest.raises(AxisError, match="takes what has the 2 axes"):
        fusion.scatter_add(fusion.input("flat", ["n"]), chosen, [3, 2])
    with pytest.raises(ValueError, match=r"scatter_add of .*: the extents 3 and 2 differ"):
        fusion.scatter_add(x, chosen, [5, 3])
    with pytest.raises(AxisError, match="permute both"):
        fusion.scatter_add(fusion.input("m", ["n", 2, 3]), fusion.input("i", ["n", 3], "int64"), ["n", 2, 4], 2, 1)
    rows = fusion.view_as_nested(chosen, fusion.input("o", ["k"], "int64"), exact=False)
    with pytest.raises(RaggednessError, match="how many there are is data"):
        fusion.places_of(rows, 3)
