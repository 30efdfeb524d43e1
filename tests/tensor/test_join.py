"""sr.concat and sr.stack on every axis, against the same on nested lists."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tests import oracle
from tests.oracle import Sample, build, chain, lengths, levels, lists_of, many, offsets_of, operations, samples

import serrate as sr
from serrate.errors import RaggednessError
from serrate.tensor.structure import Axis, Ragged


def shifted(s: Sample, by: int) -> tuple[sr.Tensor, Any]:
    """The sample with other elements, so that parts can be told apart."""
    count = [*range(s.x.ndim)]
    return sr.Tensor(s.x.values + by, s.x.structure), oracle.at_depth(s.nested, len(count), lambda leaf: leaf + by)


def sibling(data: Any, s: Sample, axis: int) -> Sample:
    """A sample that may join `s` along packed axis `axis`: other sizes there and in what depends on it."""
    axes: list[Axis] = []
    for number, old in enumerate(s.axes):
        changes = number == axis or (isinstance(old, Ragged) and axis in old.parents)
        if not changes:
            axes.append(old)
        elif isinstance(old, Ragged):
            count = len(oracle._cells(axes, old.parents))
            axes.append(Ragged(data.draw(lengths(count, 3)), old.parents))
        else:
            axes.append(data.draw(st.integers(0, 3)))
    return build(axes, s.features)


# ------------------------------------------------------------------------------------------------------ concat


def test_rows_grow_on_a_ragged_axis() -> None:
    a = sr.from_lengths(torch.arange(10), [3, 5, 2])
    b = sr.from_lengths(torch.arange(5), [1, 0, 4])
    y = sr.concat([a, b], axis=1)
    assert y.lengths[0].tolist() == [4, 5, 6]
    assert lists_of(y) == [[0, 1, 2, 0], [3, 4, 5, 6, 7], [8, 9, 1, 2, 3, 4]]
    assert lists_of(sr.concat([a, b], axis=-1)) == lists_of(y)
    assert lists_of(sr.concat([a, b])) == a.tolist() + b.tolist()
    assert sr.concat([a, b], axis=None).tolist() == [*range(10), *range(5)]
    assert lists_of(sr.concat([a], axis=1)) == a.tolist()


def test_concat_where_parents_leave_out_an_axis_in_between() -> None:
    axes: list[Axis] = [2, 2, Ragged([1, 2]), 1, Ragged([1, 1]), 1, Ragged([1, 2, 1, 1], (0, 1, 3, 4, 5))]
    s = build(axes)
    for axis in range(7):
        (x, first), (y, second) = shifted(s, 0), shifted(s, 100)
        assert lists_of(sr.concat([x, y], axis=axis)) == oracle.concat([first, second], axis), axis


def joined_lengths(parts: list[Sample], axis: int) -> list[list[int] | None]:
    """The lengths of each ragged axis after joining along `axis`: each part's components, moved behind the others'."""

    def of(sample: Sample, number: int) -> dict[tuple[int, ...], int]:
        ragged = sample.axes[number]
        assert isinstance(ragged, Ragged)
        return dict(zip(oracle._cells(sample.axes, ragged.parents), ragged.partition.lengths.tolist(), strict=True))

    def size(sample: Sample, cell: dict[int, int]) -> int:
        """How long the joined axis is at this index of its parents."""
        own = sample.axes[axis]
        return own if isinstance(own, int) else of(sample, axis)[tuple(cell[p] for p in own.parents)]

    found: list[list[int] | None] = []
    for number, old in enumerate(parts[0].axes):
        if not isinstance(old, Ragged):
            found.append(None)
        elif number == axis:
            found.append([sum(lengths) for lengths in zip(*(of(p, number).values() for p in parts), strict=True)])
        elif axis not in old.parents:
            found.append(list(of(parts[0], number).values()))
        else:
            moved: dict[tuple[int, ...], int] = {}
            for i, part in enumerate(parts):
                for cell, length in of(part, number).items():
                    at = dict(zip(old.parents, cell, strict=True))
                    at[axis] += sum(size(before, at) for before in parts[:i])
                    moved[tuple(at.values())] = length
            found.append([moved[cell] for cell in sorted(moved)])
    return found


@many
@given(st.data(), samples(), st.sampled_from([None, 0, 2]))
def test_concat_keeps_parents_and_has_every_length(data: Any, s: Sample, spare: int | None) -> None:
    """Components without cells have a length too; `spare` rows are undefined, where lengths were born on a device."""
    axis = data.draw(st.integers(0, len(s.axes) - 1))
    parts = [s, *(sibling(data, s, axis) for _ in range(data.draw(st.integers(1, 2))))]
    given = [shifted(part, 1000 * i)[0] for i, part in enumerate(parts)]
    want = sr.concat(given, axis=axis)
    assert [a.parents for a in want.shape if isinstance(a, Ragged)] == [
        a.parents for a in s.x.shape if isinstance(a, Ragged)
    ]
    wanted = joined_lengths(parts, axis)
    assert [a.lengths.tolist() if isinstance(a, Ragged) else None for a in want.shape[: len(s.axes)]] == wanted
    if spare is not None:
        chosen = [data.draw(st.booleans()) for _ in given]
        born = [
            sr.testing.device_born(x, spare=spare if x.values.shape[0] else 0) if b else x
            for x, b in zip(given, chosen, strict=True)
        ]
        got = sr.concat(born, axis=axis)
        assert [p.lengths.tolist() for p in got.partitions] == [n for n in wanted if n is not None]
        assert got.tolist() == want.tolist()


def test_what_lies_behind_the_joined_axis_keeps_its_parents() -> None:
    x = sr.zeros((2, sr.Ragged([1, 2]), sr.Ragged([2, 0]), sr.Ragged([1, 2, 1], (0, 1))))
    y = sr.concat([x, x], axis=1)
    assert y.shape == (2, sr.Ragged([2, 4]), sr.Ragged([2, 0]), sr.Ragged([1, 1, 2, 1, 2, 1], (0, 1)))
    assert y.partitions[1] is x.partitions[1]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_device_born_products_join_without_waiting(axis: int) -> None:
    x = sr.from_product(torch.arange(7), sr.Partition.from_lengths([2, 1, 0]), sr.Partition.from_lengths([3, 1, 2]))
    for spare in (0, 2):
        with sr.testing.forbid_sync():
            born = sr.testing.device_born(x, spare=spare)
            joined, stacked = sr.concat([born, born], axis=axis), sr.stack([born, born], axis=axis)
        assert lists_of(joined) == oracle.concat([x.tolist()] * 2, axis)
        assert lists_of(stacked) == oracle.stack([x.tolist()] * 2, axis)


@many
@given(st.data(), samples())
def test_concat_along_any_packed_axis(data: Any, s: Sample) -> None:
    axis = data.draw(st.integers(0, len(s.axes) - 1))
    others = [sibling(data, s, axis) for _ in range(data.draw(st.integers(1, 2)))]
    parts = [shifted(o, 1000 * i) for i, o in enumerate([s, *others])]
    if axis:  # a list of lists must have as many rows everywhere outside to be joined inside
        assume(all(len(oracle.nodes(n, axis)) == len(oracle.nodes(s.nested, axis)) for _, n in parts))
    y = sr.concat([x for x, _ in parts], axis=data.draw(st.sampled_from([axis, axis - s.x.ndim])))
    assert lists_of(y) == oracle.concat([n for _, n in parts], axis)


@given(st.data(), samples(min_features=1))
def test_concat_along_features_keeps_the_partitions(data: Any, s: Sample) -> None:
    axis = data.draw(st.integers(len(s.axes), s.x.ndim - 1))
    parts = [shifted(s, 1000 * i) for i in range(3)]
    y = sr.concat([x for x, _ in parts], axis=axis)
    assert lists_of(y) == oracle.concat([n for _, n in parts], axis)
    assert all(a is b for a, b in zip(y.partitions, s.x.partitions, strict=True))


@given(levels(2, 3), st.data())
def test_concat_of_chains_joins_what_lies_below(outer: list[list[int]], data: Any) -> None:
    s = chain(outer, (2,))
    for axis in range(len(s.axes)):
        other = sibling(data, s, axis)
        x, nested = shifted(other, 1000)
        y = sr.concat([s.x, x], axis=axis)
        assert lists_of(y) == oracle.concat([s.nested, nested], axis)
        assert all(a is b for a, b in zip(y.partitions[: max(axis - 1, 0)], s.x.partitions, strict=False))


@given(st.lists(st.integers(0, 4), max_size=4), st.integers(0, 3), st.booleans())
def test_a_dense_part_joins_with_equal_rows(rows: list[int], width: int, first: bool) -> None:
    s = chain([rows], (2,))
    dense = -torch.arange(len(rows) * width * 2).view(len(rows), width, 2) - 1
    for part in (dense, sr.asarray(dense)):
        parts = [part, s.x] if first else [s.x, part, s.x]
        nested = [dense.tolist(), s.nested] if first else [s.nested, dense.tolist(), s.nested]
        assert lists_of(sr.concat(parts, axis=1)) == oracle.concat(nested, 1)


def test_permuted_parts_join_where_their_axes_stand() -> None:
    a, b = chain([[2, 1]], (3,)), chain([[1, 2]], (3,))
    y = sr.concat([a.x.mT, b.x.mT], axis=2)
    assert lists_of(y.mT) == oracle.concat([a.nested, b.nested], 1)
    y = sr.concat([a.x.mT, a.x.mT], axis=1)
    assert lists_of(y.mT) == oracle.concat([a.nested, a.nested], 2)
    with pytest.raises(RaggednessError, match="other axes"):
        sr.concat([a.x.mT, sr.from_lengths(torch.zeros(6, 3), [3, 3])], axis=0)


def test_products_join_on_either_ragged_axis() -> None:
    p, q, r = (sr.Partition.from_lengths(n) for n in ([2, 1, 0], [3, 1, 2], [1, 0, 1]))
    x = sr.from_product(torch.arange(7), p, q)
    y = sr.concat([x, sr.from_product(torch.arange(100, 105), r, q)], axis=1)
    assert lists_of(y) == [[[0, 1, 2], [3, 4, 5], [100, 101, 102]], [[6]], [[103, 104]]]
    assert y.partitions[1] is q
    y = sr.concat([x, sr.from_product(torch.arange(100, 102), p, r)], axis=2)
    assert lists_of(y) == [[[0, 1, 2, 100], [3, 4, 5, 101]], [[6]], []]
    assert y.partitions[0] is p


def test_what_does_not_join() -> None:
    x = chain([[3, 5, 2]], (2,)).x
    with pytest.raises(RaggednessError, match=r"axis 1 has different raggedness: Ragged\(\[3, 5, 2\]\).*tensor 1"):
        sr.concat([x, chain([[3, 4, 3]], (2,)).x], axis=2)
    with pytest.raises(ValueError, match=r"axis 2 must have one size .*2 and, in tensor 1, 3"):
        sr.concat([x, chain([[1, 1, 1]], (3,)).x], axis=1)
    with pytest.raises(ValueError, match=r"axis 0 must have one size .*3 and, in tensor 1, 2"):
        sr.concat([x, chain([[1, 1]], (2,)).x], axis=1)
    with pytest.raises(ValueError, match="as many axes"):
        sr.concat([x, chain([[1, 1, 1]]).x], axis=1)
    with pytest.raises(ValueError, match="at least one"):
        sr.concat([])
    with pytest.raises(IndexError, match="axis 3"):
        sr.concat([x, x], axis=3)
    with pytest.raises(RaggednessError, match="axis 1 is ragged in one tensor and uniform in another"):
        sr.concat([x, torch.zeros(3, 5, 2)], axis=0)
    with pytest.raises(ValueError, match="axis 0"):
        sr.concat([x, torch.zeros(2, 5, 2, dtype=torch.int64)], axis=1)


def test_int32_offsets_stay_int32() -> None:
    x = chain([[3, 0, 2], [2, 1, 0, 4, 1]], dtype=torch.int32).x
    for axis in (0, 1, 2):
        assert {o.dtype for o in sr.concat([x, x], axis=axis).offsets} == {torch.int32}
        assert {o.dtype for o in sr.stack([x, x], axis=axis).offsets} == {torch.int32}


# ------------------------------------------------------------------------------------------------------ stack


@many
@given(st.data(), samples())
def test_stack_on_any_axis(data: Any, s: Sample) -> None:
    axis = data.draw(st.integers(0, s.x.ndim))
    parts = [shifted(s, 1000 * i) for i in range(data.draw(st.integers(1, 3)))]
    y = sr.stack([x for x, _ in parts], axis=data.draw(st.sampled_from([axis, axis - s.x.ndim - 1])))
    assert lists_of(y) == oracle.stack([n for _, n in parts], axis)
    assert y.shape[axis] == len(parts)


@given(levels(1, 3), st.data())
def test_stack_of_different_raggedness_before_the_ragged_axes(outer: list[list[int]], data: Any) -> None:
    a = chain(outer)
    b = sibling(data, a, 1)
    x, nested = shifted(b, 1000)
    for axis in (0, 1):
        y = sr.stack([a.x, x], axis=axis)
        assert lists_of(y) == oracle.stack([a.nested, nested], axis)
    if offsets_of([a.x.lengths[0].tolist()]) != offsets_of([b.x.lengths[0].tolist()]):
        with pytest.raises(RaggednessError, match="axis"):
            sr.stack([a.x, x], axis=2)


def test_what_does_not_stack() -> None:
    x = chain([[3, 5, 2]]).x
    with pytest.raises(IndexError, match="axis 3"):
        sr.stack([x, x], axis=3)
    with pytest.raises(ValueError, match="at least one"):
        sr.stack([])
    with pytest.raises(ValueError, match="axis"):
        sr.stack([x, chain([[3, 5]]).x])
    with pytest.raises(ValueError, match="axes"):
        sr.stack([x, chain([[3, 5, 2]], (2,)).x])
    assert sr.stack([torch.zeros(2), torch.ones(2)], axis=1).tolist() == [[0, 1], [0, 1]]


# ------------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_gradients(axis: int) -> None:
    s = chain([[3, 0, 2], [2, 1, 0, 2, 1]], (2,))
    values = [torch.randn(s.x.values.shape, dtype=torch.float64).requires_grad_() for _ in range(2)]

    def joined(join: Any) -> Any:
        return lambda *given: join([sr.Tensor(v, s.x.structure) for v in given], axis=axis).values

    assert torch.autograd.gradcheck(joined(sr.concat), values)
    assert torch.autograd.gradcheck(joined(sr.stack), values)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8", "uint8", "uint16", "bool", "complex64"])
def test_dtypes(name: str) -> None:
    dtype = getattr(torch, name)
    s = chain([[3, 0, 2], [2, 1, 0, 2, 1]], (2,))
    x = sr.Tensor((s.x.values % 2).to(dtype), s.x.structure)
    for axis in range(4):
        for join in (sr.concat, sr.stack):
            y = join([x, x], axis=axis)
            assert y.dtype == dtype
            want = join([s.x, s.x], axis=axis).values % 2
            assert torch.equal(y.values.to(torch.complex64), want.to(torch.complex64))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_as_many_operations_for_many_rows_as_for_few(axis: int) -> None:
    for join in (sr.concat, sr.stack):
        few, lots = (operations(lambda x, join=join: join([x, x], axis=axis), rows) for rows in (12, 1000))
        assert lots <= few


def test_a_part_that_is_uniform_along_the_joined_axis_brings_each_row_as_many() -> None:
    ragged, uniform = sr.ragged([[[1, 2], [3]], [[4]]]), sr.from_lengths(torch.tensor([[7], [8], [9]]), [2, 1])
    assert sr.concat([ragged, uniform], axis=2).tolist() == [[[1, 2, 7], [3, 8]], [[4, 9]]]
    born = sr.testing.device_born(uniform)
    assert sr.concat([born, ragged], axis=2).tolist() == [[[7, 1, 2], [8, 3]], [[9, 4]]]
