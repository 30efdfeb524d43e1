"""Every number of the two seeds of the loop layer, through the public names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch

from serrate.errors import RaggednessError
from serrate.fusion import (
    Fusion,
    IterDomain,
    IterType,
    ParallelType,
    RaggedIterDomain,
    Scalar,
    TensorDomain,
    const,
    inject_offsets,
    symbol,
)
from serrate.fusion.analysis import evaluate
from serrate.fusion.domain import history
from serrate.fusion.expressions import extent_of

EXPERTS = [127, 0, 198, 64, 412, 89, 103, 31]
EXPERT_OFFSETS = [0, 127, 127, 325, 389, 801, 890, 993, 1024]


def numbers(scalars: Iterable[Scalar]) -> list[int]:
    return [scalar.value for scalar in scalars]


def extents(axis: IterDomain) -> list[int]:
    assert isinstance(axis, RaggedIterDomain)
    return numbers(domain.extent for domain in axis.nested_domains)


def ragged_of(*lengths: int) -> RaggedIterDomain:
    return RaggedIterDomain([IterDomain(length) for length in lengths])


# RaggedIterDomain


def test_extents_and_offsets() -> None:
    nested = [IterDomain(3), IterDomain(5), IterDomain(2)]
    ragged = RaggedIterDomain(nested)
    assert isinstance(ragged, IterDomain)
    assert ragged.nested_domains == tuple(nested)
    assert numbers([ragged.extent]) == [10]
    assert numbers(ragged.extent_for_component(c) for c in range(3)) == [3, 5, 2]
    assert numbers(ragged.offset_for_component(c) for c in range(3)) == [0, 3, 8]
    assert numbers(ragged.offsets) == [0, 3, 8, 10]
    with pytest.raises(IndexError, match="component 3 of 3"):
        ragged.extent_for_component(3)


def test_a_tensor_domain_of_regular_and_ragged_axes() -> None:
    batch, ragged, feature = IterDomain(3), ragged_of(3, 5, 2), IterDomain(4)
    domain = TensorDomain([batch, ragged, feature])
    assert domain.logical == (batch, ragged, feature)
    assert ragged.component is batch
    assert numbers(axis.extent for axis in domain.allocation) == [10, 4]  # contiguous, no padding


def test_split() -> None:
    outer, inner = IterDomain.split(ragged_of(3, 5, 2), 2)
    assert extents(outer) == [2, 3, 1]
    assert numbers(outer.offsets) == [0, 2, 5, 6]  # type: ignore[attr-defined]
    assert not inner.is_ragged
    assert inner.extent.value == 2


def test_merge() -> None:
    merged = IterDomain.merge(ragged_of(3, 5, 2), IterDomain(4))
    assert extents(merged) == [3 * 4, 5 * 4, 2 * 4] == [12, 20, 8]
    assert merged.extent.value == 40


def test_parallelize_reaches_every_component() -> None:
    ragged = ragged_of(3, 5, 2)
    ragged.parallelize(ParallelType.TIDx)
    assert ragged.parallel_type == ParallelType.TIDx
    assert [domain.parallel_type for domain in ragged.nested_domains] == [ParallelType.TIDx] * 3
    outer, _ = IterDomain.split(ragged_of(3, 5, 2), 2)
    outer.parallelize(ParallelType.BIDx)
    assert {domain.parallel_type for domain in outer.nested_domains} == {ParallelType.BIDx}  # type: ignore[attr-defined]


def test_select_gives_the_row() -> None:
    fusion = Fusion()
    x = fusion.input("x", [IterDomain(3), ragged_of(3, 5, 2), IterDomain(4)])
    row = fusion.output(x.select(0, 1))
    assert numbers(axis.extent for axis in row.domain.logical) == [5, 4]
    assert not any(axis.is_ragged for axis in row.domain.logical)
    data = torch.arange(40.0).reshape(10, 4)
    assert torch.equal(fusion.evaluate(data)[0], data[3:8])
    with pytest.raises(IndexError, match="index 3"):
        x.select(0, 3)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"parallel_type": ParallelType.TIDx}, "parallel type TIDx, others Serial"),
        ({"iter_type": IterType.Reduction}, "iter type Reduction, others Iteration"),
        ({"start": 1}, "starts at 1, not at 0"),
        ({"is_rfactor_domain": True}, "is an rfactor axis, unlike others"),
        ({"is_padded_dimension": True}, "is_padded_dimension"),
        ({"is_clustered_dimension": True}, "is_clustered_dimension"),
        ({"padded_to_size": 8}, "padded to size 8"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_components_are_uniform(second: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"component 1 .*{message}"):
        RaggedIterDomain([IterDomain(3), IterDomain(5, **second), IterDomain(2)])


def test_uniform_properties_that_all_components_share_are_taken_over() -> None:
    shared = {"parallel_type": ParallelType.BIDx, "iter_type": IterType.Reduction, "is_rfactor_domain": True}
    ragged = RaggedIterDomain([IterDomain(3, **shared), IterDomain(5, **shared)])  # type: ignore[arg-type]
    assert (ragged.parallel_type, ragged.iter_type, ragged.is_rfactor_domain) == tuple(shared.values())


def test_a_ragged_axis_has_components_and_they_are_regular() -> None:
    with pytest.raises(ValueError, match="at least one component"):
        RaggedIterDomain([])
    with pytest.raises(ValueError, match="must be regular axes"):
        RaggedIterDomain([IterDomain(3), ragged_of(1, 2)])


@pytest.mark.parametrize("steps", range(5))
def test_a_foreign_component_is_refused_however_many_operations_lie_between(steps: int) -> None:
    batch, ragged, other = IterDomain(3), ragged_of(3, 5, 2), IterDomain(3)
    TensorDomain([batch, ragged])
    axis: IterDomain = ragged
    for operation in (
        lambda axis: IterDomain.split(axis, 2)[0],
        lambda axis: IterDomain.merge(axis, IterDomain(4)),
        lambda axis: IterDomain.resize(axis, 1, 2),
        lambda axis: IterDomain.merge(IterDomain(3), axis),
    )[:steps]:
        axis = operation(axis)
    with pytest.raises(RaggednessError, match="not its component axis"):
        IterDomain.combine(other, axis)
    assert not IterDomain.combine(batch, axis).is_ragged


# Nested tensors from data and offsets


def nested_data(fusion: Fusion) -> Any:
    data, offsets = fusion.input("data", [325, 512]), fusion.input("offsets", [4], "int64")
    return fusion.view_as_nested(data, offsets, ragged_dim=0)


def test_view_as_nested() -> None:
    fusion = Fusion()
    nested = nested_data(fusion)
    batch, ragged, hidden = nested.domain.logical
    assert (batch.extent.value, hidden.extent.value) == (3, 512)
    assert ragged.is_ragged
    assert ragged.component is batch
    lengths = ragged.raggedness.lengths({"offsets": torch.tensor([0, 127, 127, 325])}, {})
    assert lengths.tolist() == [127, 0, 198]
    assert numbers(axis.extent for axis in nested.domain.allocation) == [325, 512]  # a view: data lies as it did


def test_view_as_nested_keeps_the_elements() -> None:
    fusion = Fusion()
    sums = fusion.output(fusion.reduce("sum", nested_data(fusion), [1]))
    assert sums.ndim == 2
    data, offsets = torch.ones(325, 512), torch.tensor([0, 127, 127, 325])
    assert fusion.evaluate(data, offsets)[0][:, 0].tolist() == [127, 0, 198]


def test_experts() -> None:
    ragged = ragged_of(*EXPERTS)
    assert numbers(ragged.offsets) == EXPERT_OFFSETS
    assert ragged.extent.value == 1024
    fusion = Fusion()  # as data that is born where the kernel runs
    counts = fusion.input("counts", [8], "int64")
    rows = RaggedIterDomain.from_extents(counts, size=1024)
    assert rows.raggedness.count.value == 8
    fusion.output(fusion.named(rows.raggedness.base_arrays[0]))
    assert fusion.evaluate(torch.tensor(EXPERTS))[0].tolist() == EXPERT_OFFSETS


def test_offsets_are_injected_after_nested_outputs() -> None:
    """Section 6.7: the user's fusion has one output, the transformed one the data and the offsets."""
    fusion = Fusion()
    data, offsets = fusion.input("data", ["tokens", 512]), fusion.input("offsets", [9], "int64")
    fusion.output(fusion.unary("relu", fusion.view_as_nested(data, offsets, ragged_dim=0)), "result")
    injected = inject_offsets(fusion)
    assert [tensor.name for tensor in fusion.outputs] == ["result"]
    assert [tensor.name for tensor in injected.outputs] == ["result", "result_offsets"]
    assert [tensor.name for tensor in injected.inputs] == ["data", "offsets"]
    values, limits = torch.randn(1024, 512), torch.tensor(EXPERT_OFFSETS)
    result, result_offsets = injected.evaluate(values, limits)
    assert torch.equal(result, values.relu())
    assert result_offsets.tolist() == EXPERT_OFFSETS


def test_no_offsets_are_injected_for_regular_outputs() -> None:
    fusion = Fusion()
    fusion.output(fusion.unary("exp", fusion.input("x", [4])), "y")
    assert [tensor.name for tensor in inject_offsets(fusion).outputs] == ["y"]


# Loops as the axis table says


class Loops:
    """Loops over `loop`, their indices carried back to `logical`, with the predicates of the walk."""

    def __init__(self, loop: Sequence[IterDomain], logical: Sequence[IterDomain]) -> None:
        self.loop = loop
        self.logical = logical
        self.indices = {axis: symbol(f"loop{number}") for number, axis in enumerate(loop)}
        self.predicated: list[IterDomain] = []
        unsafe: set[IterDomain] = set()
        for step in reversed(history(loop)):
            predicates, after = step.walk_backward(unsafe.__contains__)
            self.predicated += predicates
            unsafe |= set(after)
            outputs = [self.indices[axis] for axis in step.outputs]
            self.indices |= dict(zip(step.inputs, step.backward(outputs, self.indices.__getitem__), strict=True))
        self.predicated += [axis for axis in logical if axis in unsafe]

    def run(self, predicated: Sequence[IterDomain] | None = None) -> list[tuple[int, ...]]:
        """The indices of the logical axes, in the order of the loops, where the predicates hold."""
        chosen = self.predicated if predicated is None else predicated
        found = []
        for numbers_ in itertools.product(*(range(axis.extent.value) for axis in self.loop)):
            values = {self.indices[axis].value: number for axis, number in zip(self.loop, numbers_, strict=True)}
            if all(self._inside(axis, values) for axis in chosen):
                found.append(tuple(evaluate(self.indices[axis], values) for axis in self.logical))
        return found

    def _inside(self, axis: IterDomain, values: dict[str, int]) -> bool:
        extent = evaluate(extent_of(axis, self.indices.__getitem__), values)
        return bool(0 <= evaluate(self.indices[axis], values) < extent)


def flat(found: Sequence[tuple[int, ...]]) -> str:
    return " ".join(str(index) for (index,) in found)


def test_loop_over_one_axis() -> None:
    axis = IterDomain(6)
    assert flat(Loops([axis], [axis]).run()) == "0 1 2 3 4 5"


def test_divisible_split() -> None:
    axis = IterDomain(6)
    outer, inner = IterDomain.split(axis, 2)
    loops = Loops([outer, inner], [axis])
    assert numbers([outer.extent, inner.extent]) == [3, 2]
    assert loops.predicated == []
    assert flat(loops.run()) == "0 1 2 3 4 5"


def test_indivisible_split_and_figure_1() -> None:
    axis = IterDomain(6)
    outer, inner = IterDomain.split(axis, 4)
    loops = Loops([outer, inner], [axis])
    assert numbers([outer.extent, inner.extent]) == [2, 4]
    assert flat(loops.run(predicated=[])) == "0 1 2 3 4 5 6 7"
    assert loops.predicated == [axis]
    assert flat(loops.run()) == "0 1 2 3 4 5"
    wide = IterDomain.resize(IterDomain(6), 0, 2)  # Split(I{6}, 4) = DivisibleSplit(Resize(I{6}, 0, 2), 4)
    assert wide.extent.value == 8
    parts = IterDomain.split(wide, 4)
    assert wide.definition is not None
    resized = Loops(parts, wide.definition.inputs)
    assert resized.run(predicated=[]) == loops.run(predicated=[])
    assert resized.run() == loops.run()


def test_figure_2() -> None:
    i0 = IterDomain(15)
    i1, i2 = IterDomain.split(i0, 6)
    i3, i4 = IterDomain.split(i1, 2)
    i5, i6 = IterDomain.split(i2, 4)
    assert numbers(axis.extent for axis in (i1, i2, i3, i4, i5, i6)) == [3, 6, 2, 2, 2, 4]
    loops = Loops([i3, i4, i5, i6], [i0])
    everything = "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14"
    assert flat(loops.run(predicated=[i0, i1, i2])) == everything
    assert flat(loops.run(predicated=[i0])) == "0 1 2 3 4 5 6 7 6 7 8 9 10 11 12 13 12 13 14"
    assert set(loops.predicated) == {i0, i2}  # Theorem 1: not i1
    assert flat(loops.run()) == everything


LISTING_1 = [
    [(0, 0), (0, 1), (0, 2), (0, 3)],
    [(0, 4), (0, 5), (0, 6), (0, 7)],
    [(1, 0), (1, 1), (1, 2), (1, 3)],
    [(1, 4), (1, 5), (1, 6), (1, 7)],
]
LISTING_2 = [
    [(0, 0), (0, 1), (0, 2), (0, 3)],
    [(0, 4), (1, 0), (1, 1), (1, 2)],
    [(1, 3), (1, 4), (2, 0), (2, 1)],
]


def split_then_merge(rows: int, columns: int, factor: int) -> Loops:
    i1, i2 = IterDomain(rows), IterDomain(columns)
    outer, i5 = IterDomain.split(i2, factor)
    return Loops([IterDomain.merge(i1, outer), i5], [i1, i2])


def merge_then_split(rows: int, columns: int, factor: int) -> Loops:
    i1, i2 = IterDomain(rows), IterDomain(columns)
    return Loops(IterDomain.split(IterDomain.merge(i1, i2), factor), [i1, i2])


def test_theorem_5_listings() -> None:
    first, second = split_then_merge(2, 5, 4), merge_then_split(2, 5, 4)
    assert numbers(axis.extent for axis in first.loop) == [2 * 2, 4]
    assert numbers(axis.extent for axis in second.loop) == [3, 4]
    assert first.run(predicated=[]) == list(itertools.chain(*LISTING_1))
    assert second.run(predicated=[]) == list(itertools.chain(*LISTING_2))
    valid = list(itertools.product(range(2), range(5)))
    assert first.run() == valid
    assert second.run() == valid


@pytest.mark.parametrize(("rows", "columns", "factor"), [*itertools.product([1, 2, 3], [4, 6, 8], [2, 3, 4])])
def test_theorem_5(rows: int, columns: int, factor: int) -> None:
    same = split_then_merge(rows, columns, factor).run([]) == merge_then_split(rows, columns, factor).run([])
    assert same == (columns % factor == 0)


def test_over_allocation() -> None:
    """6 items split by 4 and laid out as [2, 4] take 8."""
    fusion = Fusion()
    tensor = fusion.output(fusion.copy(fusion.input("x", [6])), "t")
    parts = IterDomain.split(tensor.domain.logical[0], 4)
    tensor.set_allocation_domain(parts, fill=0.0)
    assert numbers(axis.extent for axis in tensor.domain.allocation) == [2, 4]
    assert fusion.evaluate(torch.arange(6.0))[0].flatten().tolist() == [0, 1, 2, 3, 4, 5, 0, 0]


def test_memory_layout() -> None:
    """global_index = offset[component] + local_index; components lie one after another."""
    component, ragged = IterDomain(3), ragged_of(3, 5, 2)
    TensorDomain([component, ragged])
    whole = IterDomain.combine(component, ragged)
    assert whole.extent.value == 10
    assert whole.definition is not None
    places = [
        [whole.definition.forward([const(c), const(r)], {}.__getitem__)[0].value for r in range(length)]
        for c, length in enumerate([3, 5, 2])
    ]
    assert places == [[0, 1, 2], [3, 4, 5, 6, 7], [8, 9]]
