"""gather, take and scatter: against an enumeration of all elements, with gradients, on torch's face, and bad input."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.ops.samples import DTYPES, NAMES, elements, sample
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import RaggednessError
from serrate.ops.record import TABLE

OPS = [op for op in TABLE.values() if op.family == "gathering"]
SMALL = [n for n in NAMES if n != "one giant row"]
ALL_DTYPES = [d for kind in DTYPES.values() for d in kind]
Index = tuple[int, ...]


def cells(nested: Any, at: Index = ()) -> list[tuple[Index, Any]]:
    if not isinstance(nested, list):
        return [(at, nested)]
    return [found for i, inner in enumerate(nested) for found in cells(inner, (*at, i))]


def elements_of(x: sr.Tensor) -> dict[Index, Any]:
    return dict(cells(x.tolist()))


def moved(index: Index, axis: int, to: int) -> Index:
    return (*index[:axis], to, *index[axis + 1 :])


def places_along(x: sr.Tensor, axis: int) -> dict[Index, list[int]]:
    """For each position on the other axes, the positions there are along `axis`."""
    found: dict[Index, list[int]] = {}
    for index in elements_of(x):
        found.setdefault(moved(index, axis, 0), []).append(index[axis])
    return found


def indices_for(x: sr.Tensor, axis: int, unique: bool = False, seed: int = 0) -> sr.Tensor:
    """Indices of x's own shape, each one that its row has; a permutation of each row if `unique`."""
    chance = random.Random(seed)
    numbers = elements_of(x._with(torch.arange(x.values.numel()).view(x.values.shape)))
    values = torch.zeros(x.values.numel(), dtype=torch.int64)
    orders = {key: chance.sample(have, len(have)) for key, have in places_along(x, axis).items()}
    for index, place in numbers.items():
        have = orders[moved(index, axis, 0)]
        values[place] = have.pop() if unique else chance.choice(have)
    return x._with(values.view(x.values.shape))


def same(got: sr.Tensor, want: dict[Index, Any]) -> None:
    assert str(dict(sorted(elements_of(got).items()))) == str(dict(sorted(want.items())))


def is_parent(x: sr.Tensor, axis: int) -> bool:
    return any(isinstance(n, sr.Ragged) and axis in n.parents for n in x.shape)


@pytest.mark.parametrize("name", SMALL)
def test_gather_along_every_axis_equals_enumeration(name):
    for dtype in ALL_DTYPES:
        if name == "NaN and inf" and not dtype.is_floating_point:
            continue
        x = sample(name, dtype)
        have = elements_of(x)
        for axis in range(x.ndim):
            indices = indices_for(x, axis)
            want = {at: have[moved(at, axis, to)] for at, to in elements_of(indices).items()}
            for got in (
                sr.gather(x, indices, axis=axis),
                torch.gather(x, axis, indices),
                sr.take_along_axis(x, indices, axis=axis - x.ndim),
                torch.take_along_dim(x, indices, axis),
                x.gather(axis, indices),
            ):
                assert got.dtype == dtype
                assert got.shape == x.shape
                assert got.structure is x.structure
                same(got, want)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool])
def test_indices_of_other_lengths_negative_ones_and_broadcasting(dtype):
    x = sr.from_lengths(elements(7, (2,), dtype), [3, 1, 0, 3])
    rows = [row.tolist() for row in x]
    wanted = [[-1, 0, 2, -3], [0], [], [1, -2]]
    ragged = sr.ragged(wanted)
    got = sr.take_along_axis(x, sr.expand_dims(ragged, axis=2), axis=1)
    assert got.shape == (4, sr.Ragged([4, 1, 0, 2]), 2)
    assert got.partitions[0] is ragged.partitions[0]
    assert got.tolist() == [[row[i] for i in want] for row, want in zip(rows, wanted, strict=True)]
    full = x[[0, 1, 3]]
    uniform = sr.take_along_axis(full, torch.tensor([[[-1], [0]], [[0], [0]], [[2], [1]]]), axis=1)
    assert uniform.shape == (3, 2, 2)
    chosen = ([-1, 0], [0, 0], [2, 1])
    assert uniform.tolist() == [
        [row[i] for i in at] for row, at in zip([rows[0], rows[1], rows[3]], chosen, strict=True)
    ]
    column = sr.take_along_axis(x, torch.tensor([[[1]]]), axis=2)
    assert column.tolist() == [[[entry[1]] for entry in row] for row in rows]
    assert column.partitions[0] is x.partitions[0]
    dense = elements(3, (4,), dtype)
    picked = sr.take_along_axis(dense, sr.ragged([[-1, 0], [], [3]]), axis=1)
    assert picked.tolist() == [[dense[0, 3].item(), dense[0, 0].item()], [], [dense[2, 3].item()]]
    assert torch.equal(
        sr.take_along_axis(dense, torch.tensor([[0], [1], [2]])).torch(), dense.gather(1, torch.tensor([[0], [1], [2]]))
    )
    less = sr.gather(x, sr.expand_dims(sr.ragged([[2], [0], [], [0, 1]]), axis=2), axis=1)
    assert less.tolist() == [[[rows[0][2][0]]], [[rows[1][0][0]]], [], [[rows[3][0][0]], [rows[3][1][0]]]]


def test_the_greatest_by_its_place_along_every_axis():
    for name in ("rows", "features", "product", "permuted", "equal rows"):
        x = sample(name, torch.float64)
        for axis in range(x.ndim):
            if any(not have for have in places_along(x, axis).values()) or 0 in sr.argmax(x, axis=axis).values.shape:
                continue
            places = sr.argmax(x, axis=axis, keepdims=True)
            if bool((places.values < 0).any()):
                continue  # nothing there has no place
            got = sr.take_along_axis(x, places, axis=axis)
            assert got.tolist() == sr.max(x, axis=axis, keepdims=True).tolist()


@pytest.mark.parametrize("name", SMALL)
def test_take_equals_enumeration(name):
    for dtype in (torch.float64, torch.float16, torch.int8, torch.bool, torch.complex64):
        if name == "NaN and inf" and not dtype.is_floating_point:
            continue
        x = sample(name, dtype)
        have = elements_of(x)
        fill = True if dtype == torch.bool else 3
        for axis in range(x.ndim):
            for index in ([0, -1, 5], [], -1, 1, torch.tensor([1, -2])):
                got = sr.take(x, index, axis=axis, fill=fill)
                assert got.dtype == dtype
                assert got.ndim == x.ndim - isinstance(index, int)
                want = expected_take(x, have, axis, index)
                mine = elements_of(got) if got.ndim else {(): got.item()}
                for at, value in want.items():
                    assert str(mine.pop(at)) == str(value)
                assert all(value == fill for value in mine.values())


def expected_take(x: sr.Tensor, have: dict[Index, Any], axis: int, index: Any) -> dict[Index, Any]:
    """The elements there are; everything else is fill, or not there."""
    want = {}
    for k, i in enumerate([index] if isinstance(index, int) else list(index)):
        for at, value in have.items():
            if at[axis] == (i + length_of(x, axis, at) if i < 0 else i):
                want[(*at[:axis], *(() if isinstance(index, int) else (k,)), *at[axis + 1 :])] = value
    return want


def length_of(x: sr.Tensor, axis: int, at: Index) -> int:
    nested = x.tolist()
    for i in at[:axis]:
        nested = nested[i]
    return len(nested)


def test_take_without_fill():
    x = sr.ragged([[5, 6, 7], [8]])
    assert sr.take(x, -1, axis=1).tolist() == [7, 8]
    assert sr.take(x, [0, -1], axis=1).tolist() == [[5, 7], [8, 8]]
    assert sr.take(x, [1, 0, 1], axis=0).tolist() == [[8], [5, 6, 7], [8]]
    assert sr.take(x, torch.tensor(0), axis=0).tolist() == [5, 6, 7]
    assert sr.take(torch.tensor([4, 5]), [-1]).tolist() == [5]
    levels = sample("two levels", torch.float64)
    assert sr.take(levels, torch.tensor([1]), axis=3).tolist() == levels[..., [1]].tolist()
    assert sr.take(levels, 1, axis=1, fill=0).tolist() == [[], [], []]
    assert sr.take(levels, -1, axis=2, fill=9.0).tolist() == [
        [levels[0, 0, -1].tolist(), [9.0, 9.0]], [], [levels[2, 0, -1].tolist()]
    ]  # fmt: skip


def reducer(name: str | None) -> Callable[[list[Any]], Any]:
    def product(values: list[Any]) -> Any:
        made = 1
        for value in values:
            made = made * value
        return made

    return {
        None: lambda v: v[-1],
        "sum": sum,
        "prod": product,
        "amax": max,
        "amin": min,
        "mean": lambda v: sum(v) // len(v) if isinstance(v[0], int) else sum(v) / len(v),
    }[name]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("reduce", [None, "sum", "prod", "amax", "amin", "mean"])
def test_scatter_along_every_axis_equals_enumeration(name, reduce):
    for dtype in ALL_DTYPES:
        if name == "NaN and inf" and not dtype.is_floating_point:
            continue
        if (dtype == torch.bool and reduce) or (dtype.is_complex and reduce in ("amax", "amin")):
            continue
        if name == "NaN and inf" and reduce in ("amax", "amin"):
            continue  # Python's max has its own idea of NaN
        x = sample(name, dtype)
        source = sample(name if name != "NaN and inf" else "features", dtype, seed=2)
        source = x._with(source.values)
        for axis in range(x.ndim):
            indices = indices_for(x, axis, unique=reduce is None)
            for include in (True, False) if reduce else (True,):
                met: dict[Index, list[Any]] = {at: [v] for at, v in elements_of(x).items()}
                if not include:
                    touched = {moved(at, axis, to) for at, to in elements_of(indices).items()}
                    met = {at: [] if at in touched else v for at, v in met.items()}
                new = elements_of(source)
                for at, to in elements_of(indices).items():
                    met[moved(at, axis, to)].append(new[at])
                got = sr.scatter(x, indices, source, axis=axis, reduce=reduce, include_self=include)
                assert got.structure is x.structure
                assert got.dtype == dtype
                fine = 4 * torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0
                mine = elements_of(got)
                assert set(mine) == set(met)
                for at, values in met.items():
                    want = reducer(reduce)(values) if len(values) > 1 else values[0]
                    want = wrap(want, dtype)
                    assert mine[at] == pytest.approx(want, rel=fine, abs=fine, nan_ok=True), (axis, at, values)


def wrap(value: Any, dtype: torch.dtype) -> Any:
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return value
    return torch.tensor(value).to(dtype).item()


def test_scatter_on_the_torch_face():
    x = sr.ragged([[1.0, 2.0, 3.0], [4.0]])
    at = sr.ragged([[2, 0], [0]])
    new = sr.ragged([[10.0, 20.0], [30.0]])
    assert torch.scatter(x, 1, at, new).tolist() == [[20.0, 2.0, 10.0], [30.0]]
    assert torch.scatter(x, 1, at, 7.0).tolist() == x.scatter(1, at, value=7.0).tolist() == [[7.0, 2.0, 7.0], [7.0]]
    assert torch.scatter_add(x, 1, at, new).tolist() == [[21.0, 2.0, 13.0], [34.0]]
    assert torch.scatter(x, 1, at, new, reduce="multiply").tolist() == [[20.0, 2.0, 30.0], [120.0]]
    assert x.scatter_reduce(1, at, new, "amax", include_self=False).tolist() == [[20.0, 2.0, 10.0], [30.0]]
    features = sr.from_lengths(torch.zeros(3, 4), [2, 1])
    first = sr.from_lengths(torch.ones(3, 3), [2, 1])
    index = sr.from_lengths(torch.tensor([[3, 0], [1, 2], [0, 1]]), [2, 1])
    assert torch.scatter(features, 2, index, first).tolist() == [
        [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]], [[1.0, 1.0, 0.0, 0.0]]
    ]  # fmt: skip
    assert torch.take(x, torch.tensor([[3, 0], [-1, 1]])).tolist() == [[4.0, 1.0], [4.0, 2.0]]
    assert type(torch.take(x, torch.argmax(x))) is torch.Tensor
    assert x.take(sr.ragged([[1], [3, 3]])).tolist() == [[2.0], [4.0, 4.0]]
    assert torch.take_along_dim(x, torch.tensor([0, 3])).tolist() == [1.0, 4.0]
    assert torch.index_select(x, 0, torch.tensor([1, 1])).tolist() == [[4.0], [4.0]]
    assert x.index_select(1, torch.tensor([0])).tolist() == [[1.0], [4.0]]
    assert type(torch.index_select(x, 1, torch.tensor([0]))) is torch.Tensor
    assert torch.index_add(x, 1, torch.tensor([0]), torch.tensor([[1.0], [2.0]]), alpha=10).tolist() == [
        [11.0, 2.0, 3.0], [24.0]
    ]  # fmt: skip
    with pytest.raises(TypeError, match="out"):
        torch.gather(x, 1, at, out=torch.empty(3))


@pytest.mark.parametrize("name", SMALL)
def test_index_add_equals_enumeration(name):
    for dtype in (torch.float64, torch.float16, torch.int64, torch.complex128):
        if name == "NaN and inf" and not dtype.is_floating_point:
            continue
        x = sample(name, dtype)
        for axis in range(x.ndim):
            index = [0, 0, -1]
            if not x.values.numel():
                continue
            if isinstance(x.shape[axis], sr.Ragged) and bool((x.shape[axis].lengths == 0).any()):
                continue  # some row lacks every position
            source = sr.take(x, index, axis=axis)
            got = sr.index_add(x, index, source, axis=axis, alpha=2)
            want = elements_of(x)
            for at, value in elements_of(source).items():
                size = x.shape[axis] if isinstance(x.shape[axis], int) else length_of(x, axis, moved(at, axis, 0))
                place = moved(at, axis, index[at[axis]] % size)
                want[place] = want[place] + 2 * value
            fine = 8 * torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0
            for at, value in elements_of(got).items():
                assert value == pytest.approx(want[at], rel=fine, abs=fine, nan_ok=True)


def test_half_sums_in_float32():
    x = sr.from_lengths(torch.zeros(2, dtype=torch.float16), [1, 1])
    at, ones = torch.zeros(2, 5000, dtype=torch.int64), torch.ones(2, 5000, dtype=torch.float16)
    assert sr.scatter(x, at, ones, axis=1, reduce="sum").tolist() == [[5000.0], [5000.0]]
    assert sr.index_add(x, [0] * 5000, ones, axis=1).tolist() == [[5000.0], [5000.0]]


@pytest.mark.parametrize("name", ["empty rows", "two levels", "product", "permuted"])
def test_gradients(name):
    x = sample(name, torch.float64)
    values = x.values.clone().requires_grad_()
    for axis in range(x.ndim):
        indices = indices_for(x, axis)
        assert gradcheck(lambda v, a=axis, i=indices: sr.gather(x._with(v), i, axis=a).values, [values])
        assert gradgradcheck(
            lambda v, a=axis, i=indices: sr.gather(x._with(v), i, axis=a).values ** 2, [values], fast_mode=True
        )
        taken = lambda v, a=axis: sr.take(x._with(v), [0, -1, 5], axis=a, fill=2.0).values ** 2  # noqa: E731
        assert gradcheck(taken, [values])
        assert gradgradcheck(taken, [values], fast_mode=True)
        source = elements(values.shape[0], tuple(values.shape[1:]), torch.float64, seed=8).requires_grad_()
        for reduce in (None, "sum", "prod", "mean", "amax", "amin"):
            chosen = indices_for(x, axis, unique=reduce is None)

            def run(v, s, axis=axis, chosen=chosen, reduce=reduce):
                return sr.scatter(x._with(v), chosen, x._with(s), axis=axis, reduce=reduce).values ** 2

            assert gradcheck(run, [values, source])
            assert gradgradcheck(run, [values, source], fast_mode=True)


def test_nothing_waits_for_device_born_lengths_and_nothing_undefined_is_read():
    for name in ("rows", "features", "two levels", "permuted", "empty rows", "all rows empty"):
        x = sample(name, torch.float64)
        d = sr.testing.device_born(x, spare=3)
        spare = d.values.shape[0] - x.values.shape[0]
        for axis in range(x.ndim):
            indices = indices_for(x, axis, unique=True)
            wild = indices.values.new_full((spare, *indices.values.shape[1:]), 10**6)
            at = d._with(torch.cat([indices.values, wild]))
            leaf = d.values.clone().requires_grad_()
            with sr.testing.forbid_sync():
                read = sr.gather(d._with(leaf), at, axis=axis)
                written = sr.scatter(d, at, d._with(d.values * 2), axis=axis)
                added = sr.scatter(d, at, d._with(d.values * 2), axis=axis, reduce="sum")
            assert read.structure is d.structure
            assert read.tolist() == sr.gather(x, indices, axis=axis).tolist()
            assert written.tolist() == sr.scatter(x, indices, x * 2, axis=axis).tolist()
            assert added.tolist() == sr.scatter(x, indices, x * 2, axis=axis, reduce="sum").tolist()
            read.values.backward(torch.where(read.values == 0, float("nan"), 1.0))
            assert bool((leaf.grad[: x.values.shape[0]] == 1).all())
            if not is_parent(x, axis):
                with sr.testing.forbid_sync():
                    taken = sr.take(d, [0, -1], axis=axis, fill=7.0)
                assert taken.tolist() == sr.take(x, [0, -1], axis=axis, fill=7.0).tolist()


def test_wrong_calls_are_named():
    x = sr.ragged([[1.0, 2.0], [3.0], []])
    with pytest.raises(IndexError, match="index 1 is out of range for row 1 of axis 1, which has 1 entries"):
        sr.take_along_axis(x, sr.ragged([[0], [0, 1], []]), axis=1)
    with pytest.raises(IndexError, match="index -2 is out of range for row 1"):
        sr.take_along_axis(x, sr.ragged([[-2], [-2], []]), axis=1)
    with pytest.raises(IndexError, match="index 0 is out of range for row 2 of axis 1, which has 0 entries"):
        sr.take(x, [0], axis=1)
    with pytest.raises(IndexError, match="index -1 is out of range for row 0"):
        sr.gather(x, sr.ragged([[-1], [], []]), axis=1)
    with pytest.raises(IndexError, match="index 1 is out of range for row 1 of axis 1"):  # row 1 has no position 1
        sr.gather(x, sr.ragged([[0, 1], [0], []]), axis=0)
    with pytest.raises(RaggednessError, match="axis 1 of indices must be"):
        sr.gather(sr.expand_dims(x, axis=2), sr.ragged([[[0], [0]], [], []], ragged_rank=1), axis=2)
    with pytest.raises(ValueError, match="axis 0 has size 3 and 2"):
        sr.take_along_axis(x, sr.ragged([[0], [0]]), axis=1)
    with pytest.raises(IndexError, match="index 0 is out of range for row 2"):  # one row of indices stretches to three
        sr.take_along_axis(x, sr.ragged([[0]]), axis=1)
    with pytest.raises(ValueError, match="no larger than 3"):
        sr.gather(torch.ones(3, 2), torch.zeros(4, 2).long(), axis=1)
    with pytest.raises(TypeError, match="do not go into"):
        sr.scatter(sr.ragged([[1, 2]]), sr.ragged([[0]]), 1.5, axis=1)
    with pytest.raises(TypeError, match="amax needs ordered"):
        sr.scatter(sr.ragged([[1j]]), sr.ragged([[0]]), 1.5, axis=1, reduce="amax")
    with pytest.raises(TypeError, match="sum needs numbers"):
        sr.scatter(sr.ragged([[True]]), sr.ragged([[0]]), True, axis=1, reduce="sum")
    with pytest.raises(TypeError, match="index_add needs numbers"):
        sr.index_add(sr.ragged([[True]]), [0], True, axis=1)
    with pytest.raises(IndexError, match="axis 2 with size 0 has no entry"):
        sr.take(sample("zero-size features", torch.float32), torch.tensor([0]), axis=2)
    with pytest.raises(IndexError, match="index 2 is out of range for axis 2 with size 2"):
        sr.take(sample("features", torch.float32), torch.tensor([2]), axis=2)
    with pytest.raises(RaggednessError, match="axis 1 is ragged in one operand"):
        sr.scatter(x, sr.ragged([[0], [0], []]), sr.ragged([[[1.0]], [[2.0]], []]), axis=1)
    with pytest.raises(RaggednessError):
        sr.index_add(x, [0], sr.ragged([[1.0]]), axis=0)


@pytest.mark.parametrize("born", [False, True])
@pytest.mark.parametrize("name", ["features", "empty rows", "two levels", "permuted"])
def test_a_device_gives_what_the_host_gives_without_a_wait(device, name, born):
    x = sample(name, torch.float64)
    for axis in range(x.ndim):
        indices = indices_for(x, axis, unique=True)
        moved_x, at = x.to(device), indices.to(device)
        if born:
            moved_x = sr.testing.device_born(moved_x, spare=3)
            wild = at.values.new_full((moved_x.values.shape[0] - at.values.shape[0], *at.values.shape[1:]), 10**6)
            at = moved_x._with(torch.cat([at.values, wild]))
        moved_x.offsets  # noqa: B018 (copied there now, not inside the measurement)
        leaf = moved_x._with(moved_x.values.clone().requires_grad_())
        positions = torch.tensor([0, -2], device=device)
        with sr.testing.forbid_sync():
            got = [
                sr.gather(leaf, at, axis=axis),
                sr.take_along_axis(leaf, at, axis=axis),
                sr.scatter(moved_x, at, moved_x * 2, axis=axis),
                sr.scatter(moved_x, at, moved_x * 2, axis=axis, reduce="amax"),
            ]
            if not is_parent(x, axis):
                got.append(sr.take(moved_x, positions, axis=axis, fill=5.0))
        sr.testing.raise_deferred()
        want = [sr.gather(x, indices, axis=axis)] * 2
        want += [sr.scatter(x, indices, x * 2, axis=axis, reduce=reduce) for reduce in (None, "amax")]
        want += [] if is_parent(x, axis) else [sr.take(x, [0, -2], axis=axis, fill=5.0)]
        for mine, theirs in zip(got, want, strict=True):
            assert mine.tolist() == theirs.tolist()
        got[0].values.sum().backward()
        assert bool((leaf.values.grad[: x.values.shape[0]] == 1).all())


def test_positions_out_of_range_are_reported_on_a_device_too(device):
    x = sr.ragged([[1.0, 2.0], [], [3.0]]).to(device)

    def use(function: Any, *given: Any, **options: Any) -> None:
        function(x, *(g.to(device) if isinstance(g, torch.Tensor) else g for g in given), **options)
        sr.testing.raise_deferred()

    with pytest.raises(IndexError, match="index 1 is out of range for row 1 of axis 1, which has 0 entries"):
        use(sr.take, torch.tensor([1]), axis=1)
    with pytest.raises(IndexError, match="index 0 is out of range for row 1"):
        use(sr.index_add, torch.tensor([0]), 1.0, axis=1)
    with pytest.raises(IndexError, match="index 2 is out of range for row 0"):
        use(sr.scatter, torch.full((3, 1), 2), 1.0, axis=1)
    with pytest.raises(IndexError, match="index 2 is out of range for row 0"):
        use(sr.gather, torch.full((3, 1), 2), axis=1)
    assert sr.take(x, -1, axis=1, fill=0).tolist() == [2.0, 0.0, 3.0]


def test_numbers_keep_their_digits():
    x = sr.from_lengths(torch.zeros(2, 1, dtype=torch.float64), [1, 1])
    assert sr.index_add(x, [0], 2.341, axis=2).tolist() == [[[2.341]], [[2.341]]]
    assert sr.scatter(x, sr.zeros(x.shape, dtype=torch.int64), 2.341, axis=2).tolist() == [[[2.341]], [[2.341]]]
