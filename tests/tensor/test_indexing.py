"""x[key]: every form equals the same indexing on Python lists, shares what it can, and never walks rows in Python."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.oracle import (
    WHOLE,
    Sample,
    at_depth,
    bounds,
    build,
    chain,
    check,
    index,
    keys,
    levels,
    lists_of,
    many,
    nodes,
    offsets_of,
    operations,
    samples,
    shares_storage,
    slices,
    unpack,
)

import serrate as sr
from serrate.tensor.structure import Ragged

THREE = [[3, 0, 2], [2, 1, 0, 4, 1]]  # [3, r, r]
ROWS = [[3, 4, 2, 5]]


# ------------------------------------------------------------------------------------------------------ against lists


@given(levels())
def test_tolist_is_what_values_and_offsets_say(lengths: list[list[int]]) -> None:
    x = chain(lengths).x
    assert [o.tolist() for o in x.offsets] == offsets_of(lengths)
    assert x.tolist() == unpack(x.values.tolist(), [o.tolist() for o in x.offsets])
    assert x.tolist() == chain(lengths).nested


@given(samples())
def test_tolist_of_any_structure(s: Sample) -> None:
    assert lists_of(s.x) == s.nested


@many
@given(st.data(), samples() | levels(3, 4).map(chain))
def test_keys_equal_the_same_on_lists(data: Any, s: Sample) -> None:
    key = data.draw(keys(s))
    assert lists_of(s.x[key]) == index(s.nested, key)


@many
@given(st.data(), samples())
def test_ellipsis_stands_for_the_axes_left_out(data: Any, s: Sample) -> None:
    key = list(data.draw(keys(s, new_axes=False)))
    key += [WHOLE] * (s.x.ndim - len(key))
    start = data.draw(st.integers(0, len(key)))
    stop = data.draw(st.integers(start, len(key)))
    full = [*key[:start], *[WHOLE] * (stop - start), *key[stop:]]
    assert lists_of(s.x[*key[:start], ..., *key[stop:]]) == index(s.nested, full)
    assert lists_of(s.x[*key[:start], None, ..., *key[stop:]]) == index(s.nested, [*key[:start], None, *full[start:]])


@given(st.data(), levels(1, 2), slices)
@example(None, [[]], slice(None, None, -1))
def test_batch_axis(data: Any, lengths: list[list[int]], cut: slice) -> None:
    s = chain(lengths)
    assert lists_of(s.x[cut]) == s.nested[cut]
    for i in range(-len(s.nested), len(s.nested)):
        assert lists_of(s.x[i]) == s.nested[i]
    for i in (len(s.nested), -len(s.nested) - 1):
        with pytest.raises(IndexError, match=f"index {i} .*size {len(s.nested)}"):
            s.x[i]
    mask = [i % 3 != 1 for i in range(len(s.nested))]
    kept = [row for row, keep in zip(s.nested, mask, strict=True) if keep]
    for form in (mask, np.array(mask, dtype=bool), torch.tensor(mask, dtype=torch.bool)):
        assert mask == [] or lists_of(s.x[form]) == kept
        assert mask == [] or lists_of(s.x[form, 0:2]) == [row[:2] for row in kept]
    if s.nested:
        picked = [-1, 0, len(s.nested) - 1, 0]
        for form in (picked, np.array(picked), torch.tensor(picked), torch.tensor(picked, dtype=torch.int32)):
            assert lists_of(s.x[form]) == [s.nested[i] for i in picked]
    assert lists_of(s.x[[]]) == []


@many
@given(levels(1, 3), bounds, bounds, st.sampled_from([None, 1, 2, 3, -1, -2, -3]))
def test_rows_are_clipped_one_by_one(lengths: list[list[int]], a: int | None, b: int | None, step: int | None) -> None:
    s = chain(lengths)
    for depth in range(1, len(lengths) + 1):
        key = (*[WHOLE] * depth, slice(a, b, step))
        assert lists_of(s.x[key]) == at_depth(s.nested, depth, lambda row: row[a:b:step])


@pytest.mark.parametrize("big", [2**31, sys.maxsize, 10**20])
def test_bounds_and_steps_of_any_size(big: int) -> None:
    s = chain(ROWS)
    for cut in (slice(big), slice(-big, None), slice(big, None), slice(None, None, big), slice(None, None, -big)):
        assert lists_of(s.x[cut]) == s.nested[cut]
        assert lists_of(s.x[:, cut]) == [row[cut] for row in s.nested]
    for key in (big, -big, (WHOLE, big), (WHOLE, -big)):
        with pytest.raises(IndexError, match="out of range"):
            s.x[key]


@given(levels(1, 3), st.integers(-4, 3))
def test_an_int_inside_rows_needs_every_row_to_have_it(lengths: list[list[int]], i: int) -> None:
    s = chain(lengths)
    for depth in range(1, len(lengths) + 1):
        key = (*[WHOLE] * depth, i)
        rows = nodes(s.nested, depth)
        lacking = [n for n, row in enumerate(rows) if not -len(row) <= i < len(row)]
        if not lacking:
            assert lists_of(s.x[key]) == at_depth(s.nested, depth, lambda row: row[i])
            assert lists_of(s.x[*key[:-1], [i]]) == at_depth(s.nested, depth, lambda row: [row[i]])
            continue
        for entry in (i, [i], torch.tensor([i])):
            with pytest.raises(IndexError, match=rf"index {i} .*row {lacking[0]} with {len(rows[lacking[0]])} entries"):
                s.x[*key[:-1], entry]


def test_the_row_named_is_the_row_of_the_tensor_indexed() -> None:
    x = chain([[3, 4, 1, 5]]).x
    with pytest.raises(IndexError, match="index 2 is out of range for row 2 with 1 entries"):
        x[1:, 2]
    with pytest.raises(IndexError, match="row 2"):
        x[[3, 2, 0], -2]
    assert lists_of(x[[0, 1, 3], 2]) == [2, 5, 10]


@many
@given(st.data(), samples(features=False))
def test_ragged_masks_filter_and_keep_the_structure(data: Any, s: Sample) -> None:
    assume(s.x.structure.is_chain)
    depth = data.draw(st.sampled_from([i for i, a in enumerate(s.axes) if isinstance(a, Ragged)]))
    pattern = data.draw(st.lists(st.booleans(), min_size=1, max_size=5))
    m = build(s.axes[: depth + 1])
    mask = sr.Tensor(
        torch.tensor([pattern[int(i) % len(pattern)] for i in m.x.values], dtype=torch.bool), m.x.structure
    )

    def keep(nested: Any, flags: Any, level: int) -> Any:
        pairs = zip(nested, flags, strict=True)
        return [e for e, f in pairs if f] if level == 0 else [keep(e, f, level - 1) for e, f in pairs]

    y = s.x[mask]
    assert lists_of(y) == keep(s.nested, mask.tolist(), depth)
    assert y.ndim == s.x.ndim
    outer = sum(isinstance(a, Ragged) for a in s.axes[:depth])
    assert all(a is b for a, b in zip(y.partitions[:outer], s.x.partitions, strict=False))


@given(st.data(), levels(1, 3))
def test_ragged_indices_gather_within_rows(data: Any, lengths: list[list[int]]) -> None:
    depth = data.draw(st.integers(1, len(lengths)))
    s = chain(lengths, data.draw(st.sampled_from([(), (2,)])))
    chosen = [data.draw(st.lists(st.integers(-n, n - 1), max_size=3)) if n else [] for n in lengths[depth - 1]]
    key = chain([*lengths[: depth - 1], [len(c) for c in chosen]]).x
    key = sr.Tensor(torch.tensor([i for c in chosen for i in c], dtype=torch.int64), key.structure)
    rows = iter(chosen)
    assert lists_of(s.x[key]) == at_depth(s.nested, depth, lambda row: [row[i] for i in next(rows)])


def test_ragged_keys_out_of_range_or_out_of_place() -> None:
    x = chain(ROWS).x
    for rows, bad in (([[0], [4], [], []], "index 4 .*row 1"), ([[0], [], [-3], [9]], "index -3 .*row 2")):
        with pytest.raises(IndexError, match=bad):
            x[sr.ragged(rows, dtype=torch.int64)]
    with pytest.raises(sr.errors.RaggednessError, match="axis 1"):
        x[sr.ragged([[True], [True], [], []])]
    with pytest.raises(sr.errors.RaggednessError, match="axis 0"):
        x[sr.ragged([[0], [1]])]
    with pytest.raises(IndexError, match="float"):
        x[sr.ragged([[0.0], [], [], []])]


@many
@given(st.data(), levels(2, 3))
def test_index_arrays_meet_point_by_point(data: Any, lengths: list[list[int]]) -> None:
    s = chain(lengths)
    points = [(i, j) for i, row in enumerate(s.nested) for j in range(len(row))]
    assume(points)
    chosen = data.draw(st.lists(st.sampled_from(points), min_size=1, max_size=4))
    rows, columns = [i for i, _ in chosen], [j - len(s.nested[i]) * (j % 2) for i, j in chosen]
    want = [s.nested[i][j] for i, j in chosen]
    assert lists_of(s.x[rows, columns]) == want
    assert lists_of(s.x[torch.tensor(rows), np.array(columns), ::-1]) == [row[::-1] for row in want]
    assert lists_of(s.x[[rows, rows]]) == [[s.nested[i] for i in rows]] * 2
    assert lists_of(s.x[[[i] for i in rows], [[j] for j in columns]]) == [[e] for e in want]
    assert lists_of(s.x[rows[0], [columns[0]] * 2]) == [want[0]] * 2


def test_points_out_of_range_and_slices_between() -> None:
    x = chain(THREE).x
    with pytest.raises(IndexError, match=r"index 2 at point 1 .*axis 1.*2 entries"):
        x[[0, 2], [1, 2]]
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0, 0, 0]
    with pytest.raises(IndexError, match="only one"):
        x[..., 0, ...]
    with pytest.raises(IndexError, match="step"):
        x[:, ::0]
    for bad in (1.5, "a", [0.5], slice(0.5, 2), True):
        with pytest.raises(IndexError):
            x[bad]
    with pytest.raises(IndexError, match="mask of shape"):
        x[[True, False]]


@many
@given(st.data(), st.integers(0, 3), st.integers(1, 3))
def test_features_and_points_as_in_torch(data: Any, rows: int, length: int) -> None:
    """Equal rows have a dense twin, and torch itself is the oracle."""
    s = chain([[length] * rows], (3, 2, 4))
    dense = s.x.values.reshape(rows, length, 3, 2, 4)
    feature = st.sampled_from([0, -1, WHOLE, slice(1, None, 2), [1, 0], torch.tensor([[0, 1], [1, 0]])])
    batch = st.sampled_from([WHOLE, slice(None, None, 2)])
    key = (data.draw(batch), data.draw(batch), *[data.draw(feature) for _ in range(data.draw(st.integers(1, 3)))])
    y = check(s.x[key])
    want = dense[key]
    got = y.permute_dims(tuple(range(y.ndim))).to_dense(max_lengths=len(range(length)[key[1]]))
    assert torch.equal(got.torch(), want)
    assert y.is_ragged
    assert lists_of(s.x[..., [True, False, True, True]]) == dense[..., [0, 2, 3]].tolist()


@many
@given(st.data(), samples())
def test_permuted_views(data: Any, s: Sample) -> None:
    perm = data.draw(st.permutations(range(s.x.ndim)))
    key = list(data.draw(keys(s, new_axes=False)))
    key += [WHOLE] * (s.x.ndim - len(key))
    y = check(s.x.permute_dims(perm)[tuple(key[p] for p in perm)])
    kept = [p for p in perm if not isinstance(key[p], int)]
    back = y.permute_dims([kept.index(p) for p in sorted(kept)])
    assert lists_of(back) == index(s.nested, key)
    assert lists_of(s.x.mT.mT if s.x.ndim > 1 else s.x) == s.nested


def test_products_and_views_of_a_middle_axis() -> None:
    p, q = sr.Partition.from_lengths([2, 1, 0]), sr.Partition.from_lengths([3, 0, 2])
    x = sr.from_product(torch.arange(6), p, q)
    assert lists_of(x) == [[[0, 1, 2], [3, 4, 5]], [[]], []]
    assert lists_of(x[:, ::-1, 1:]) == [[[4, 5], [1, 2]], [[]], []]
    assert lists_of(x[0, :, -1]) == [2, 5]
    assert lists_of(x[[1, 0], :, :2]) == [[[]], [[0, 1], [3, 4]]]
    assert lists_of(x[:2, 0]) == [[0, 1, 2], []]
    assert x[:, :1].partitions[1] is q
    assert x[:, :, :1].partitions[0] is p
    assert lists_of(x.mT[0]) == [[0, 3], [1, 4], [2, 5]]
    view = sr.view_as_nested(torch.arange(10).view(2, 5), [0, 2, 2, 5], ragged_dim=1)
    assert lists_of(view[:, :, :2]) == [[[0, 1], [], [2, 3]], [[5, 6], [], [7, 8]]]
    assert lists_of(view[1, ::2]) == [[5, 6], [7, 8, 9]]
    assert lists_of(view[:, [True, False, True], -1]) == [[1, 4], [6, 9]]


# ------------------------------------------------------------------------------------------------------ sharing


def test_views_share_storage_and_untouched_axes_their_partition() -> None:
    x = sr.from_lengths(torch.arange(3 * 5000), [3] * 5000)
    for y in (x[1000:2000], x[7], x[-1], x[1000:2000][5:7], x[:], x[...], x[7, 1:], x[7, 1], x[None]):
        assert shares_storage(x, y)
    s = chain(THREE, (2, 3))
    for key in ((WHOLE, WHOLE, slice(1, 2)), (..., 0), (..., [0, 2]), (WHOLE, WHOLE, slice(None, None, -1)), None):
        assert s.x[key].partitions[0] is s.x.partitions[0]
    for key in ((..., 0), (..., 0, WHOLE), (..., [0, 2]), (..., slice(1, None)), None, (..., None), WHOLE):
        assert all(a is b for a, b in zip(s.x[key].partitions, s.x.partitions, strict=True))
    assert s.x[2].partitions[0] is not s.x.partitions[1]
    on_batch = build([3, 2, Ragged([2, 0, 1], (0,)), Ragged([1] * 6, (0, 1, 2))])
    assert on_batch.x[:, ::-1].partitions[0] is on_batch.x.partitions[0]


def test_int32_offsets_stay_int32() -> None:
    x = chain(THREE, (2,), dtype=torch.int32).x
    mask = sr.Tensor(torch.arange(8) % 2 == 0, x.structure)
    gather = sr.ragged([[[0], [], []], [], [[-1, 0], [0]]], dtype=torch.int64)
    for key in (slice(1, 3), [2, 0], WHOLE, (WHOLE, slice(None, None, -1)), (..., slice(0, 1), 0), mask, None, ...):
        assert {o.dtype for o in x[key].offsets} == {torch.int32}
    assert x[gather].offsets[0].dtype == torch.int32
    assert x[2].offsets[0].dtype == torch.int32


# ------------------------------------------------------------------------------------------------------ numbers

FORMS: list[Any] = [
    1,
    -1,
    slice(None, None, -1),
    slice(1, 3),
    [2, 0, 2],
    [True, False, True, True],
    (WHOLE, slice(1, -1)),
    (WHOLE, slice(None, None, -2)),
    (WHOLE, 1),
    (WHOLE, -2),
    (WHOLE, [0, 1]),
    ([0, 3], [2, -1]),
    (..., 1),
    (..., [1, 0]),
    (..., slice(None, None, -1)),
    (None, [1, 3], slice(None, 2), 0),
    sr.ragged([[0, -1], [], [1], [4, 4]]),
    sr.ragged([[True, False, True], [False] * 4, [True, True], [True] * 5]),
]


@pytest.mark.parametrize("key", FORMS, ids=str)
def test_gradients(key: Any) -> None:
    structure = chain(ROWS, (2,)).x.structure
    values = torch.randn(14, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: sr.Tensor(v, structure)[key].values, values)
    assert torch.autograd.gradgradcheck(lambda v: sr.Tensor(v, structure)[key].values.square(), values)


DTYPES = ["float16", "bfloat16", "float64", "int8", "uint8", "uint16", "bool", "complex64"]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("strided", [False, True])
def test_dtypes_and_strides(name: str, strided: bool) -> None:
    s = chain(ROWS, (2,))
    values = s.x.values.to(getattr(torch, name))
    if strided:
        values = torch.stack([values, values], dim=1).transpose(0, 2).contiguous().transpose(0, 2)[:, 0]
        assert not values.is_contiguous()
    x = sr.Tensor(values, s.x.structure)
    for key in FORMS:
        y, whole = check(x[key]), s.x[key]
        assert y.dtype == values.dtype
        assert torch.equal(y.values, s.x.values.to(values.dtype).flatten()[whole.values])


@pytest.mark.parametrize("key", [k for k in FORMS if not isinstance(k, sr.Tensor) and k != FORMS[5]], ids=str)
def test_as_many_operations_for_many_rows_as_for_few(key: Any) -> None:
    assert operations(lambda x: x[key], 1000) <= operations(lambda x: x[key], 12)


@given(st.data(), st.lists(st.integers(0, 3), max_size=4), st.integers(0, 3))
def test_masks_that_go_down_to_features_filter_the_last_of_them(data: Any, lengths: list[int], width: int) -> None:
    s = chain([lengths], (2, width))
    limit = data.draw(st.integers(0, 40))
    want = [[[[n for n in cells if n > limit] for cells in rows] for rows in row] for row in s.nested]
    assert lists_of(s.x[s.x > limit]) == want


@given(levels(1, 4))
def test_rows_are_what_indexing_gives(lengths: list[list[int]]) -> None:
    s = chain(lengths, (2,))
    assert [lists_of(row) for row in s.x.rows()] == [lists_of(s.x[i]) for i in range(len(s.x))] == s.nested
    assert all(shares_storage(row, s.x) for row in s.x.rows() if row.numel())


@pytest.mark.parametrize("lengths", [[2, 0, 3], [5], [1, 1], [0, 0]])
def test_one_row_of_any_order(lengths: list[int]) -> None:
    x = sr.from_lengths(torch.arange(6.0 * sum(lengths)).view(-1, 2, 3), lengths)
    rows = x.values.split(lengths)
    for order in ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 2, 1), (0, 1, 3, 2)):
        seen = x.permute_dims(order)
        for number in range(-len(lengths), len(lengths)):
            made = seen[number].torch()
            assert torch.equal(made, rows[number].permute([axis - 1 for axis in order[1:]]))
            assert made.untyped_storage().data_ptr() == x.values.untyped_storage().data_ptr()
    for number in (len(lengths), -len(lengths) - 1):
        with pytest.raises(IndexError, match="out of range"):
            x[number]
