"""The seeds' own examples: numbers printed in the design documents come out of the library."""

from __future__ import annotations

import pytest
import torch

import serrate as sr

# The jagged seed's table. Its outer offsets [0, 4, 6, 8] are a slip and must read [0, 4, 6, 7].
OUTER = [0, 4, 6, 7]
INNER = [0, 2, 3, 3, 5, 6, 7, 9]
VALUES = [
    [1, 2, 3, 4],
    [5, 6, 7, 8],
    [1, 2, 3, 4],
    [1, 2, 3, 4],
    [5, 6, 7, 8],
    [1, 2, 3, 4],
    [1, 2, 7, 9],
    [1, 2, 3, 4],
    [8, 8, 9, 6],
]
# The same as nested lists: groups of rows of 8, 4 and 0 numbers.
FIGURE = [
    [[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4], [], [1, 2, 3, 4, 5, 6, 7, 8]],
    [[1, 2, 3, 4], [1, 2, 7, 9]],
    [[1, 2, 3, 4, 8, 8, 9, 6]],
]
Z = [0, 0, 0, 0]
DENSE = [
    [[VALUES[0], VALUES[1]], [VALUES[2], Z], [Z, Z], [VALUES[3], VALUES[4]]],
    [[VALUES[5], Z], [VALUES[6], Z], [Z, Z], [Z, Z]],
    [[VALUES[7], VALUES[8]], [Z, Z], [Z, Z], [Z, Z]],
]


def figure() -> sr.Tensor:
    return sr.from_offsets(torch.tensor(VALUES), [OUTER, INNER])


@pytest.mark.parametrize("lengths", [[3, 5, 2], (3, 5, 2), torch.tensor([3, 5, 2]), torch.tensor([3, 5, 2]).int()])
def test_lengths_3_5_2_give_offsets_0_3_8_10(lengths):
    x = sr.from_lengths(torch.arange(10), lengths)
    (offsets,) = x.offsets
    assert offsets.tolist() == [0, 3, 8, 10]
    assert x.shape == (3, sr.Ragged([3, 5, 2]))
    assert x.tolist() == [[0, 1, 2], [3, 4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("make", [sr.from_offsets, sr.view_as_nested])
def test_325_by_512_is_cut_and_flat_gives_back_the_same_storage(make):
    data = torch.randn(325, 512)
    x = make(data, torch.tensor([0, 127, 127, 325]))
    assert x.lengths[0].tolist() == [127, 0, 198]
    assert x.shape == (3, sr.Ragged([127, 0, 198]), 512)
    back = x.flat().torch()
    assert back.data_ptr() == data.data_ptr()
    assert back.shape == data.shape
    assert back.stride() == data.stride()
    assert back.untyped_storage().data_ptr() == data.untyped_storage().data_ptr()


def test_flat_gives_back_strided_storage():
    data = torch.randn(512, 325).T
    back = sr.view_as_nested(data, [0, 127, 127, 325]).flat().torch()
    assert back.data_ptr() == data.data_ptr()
    assert back.stride() == data.stride() == (1, 325)


def test_jagged_figure_has_max_lengths_4_and_2():
    x = figure()
    assert x.max_lengths == (4, 2)
    assert [o.tolist() for o in x.offsets] == [OUTER, INNER]
    assert [n.tolist() for n in x.lengths] == [[4, 2, 1], [2, 1, 0, 2, 1, 1, 2]]


def test_jagged_figure_made_dense():
    dense = figure().to_dense()
    assert dense.shape == (3, 4, 2, 4)
    assert dense.tolist() == DENSE


def test_jagged_figure_back_from_dense():
    x = sr.from_dense(torch.tensor(DENSE), offsets=[OUTER, INNER])
    assert x.values.tolist() == VALUES
    assert x.tolist() == figure().tolist()


def test_jagged_figure_with_the_seeds_slip_is_refused():
    with pytest.raises(sr.errors.RaggednessError, match=r"level 0 .*position 3.* holds 8"):
        sr.from_offsets(torch.tensor(VALUES), [[0, 4, 6, 8], INNER])


def test_rows_of_8_4_and_0_give_values_9_by_4():
    x = sr.ragged(FIGURE, feature_size="gcd")
    assert x.values.shape == (9, 4)
    assert x.values.tolist() == VALUES
    assert [o.tolist() for o in x.offsets] == [OUTER, INNER]
    assert x.to_dense().tolist() == DENSE


def test_feature_size_may_be_given():
    x = sr.ragged(FIGURE, feature_size=2)
    assert x.values.shape == (18, 2)
    assert x.lengths[1].tolist() == [4, 2, 0, 4, 2, 2, 4]
    assert x.flat().torch().reshape(9, 4).tolist() == VALUES


def test_feature_size_that_does_not_divide_a_row_is_refused():
    with pytest.raises(sr.errors.RaggednessError, match=r"row 1 .*4 .*feature_size 8"):
        sr.ragged(FIGURE, feature_size=8)


def test_one_level_of_8_4_and_0_numbers():
    x = sr.ragged([list(range(8)), list(range(4)), []], feature_size="gcd")
    assert x.values.shape == (3, 4)
    assert x.shape == (3, sr.Ragged([2, 1, 0]), 4)


# The jagged seed's product of two tensors of rows of two numbers.
LEFT = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]], [[7.0, 8.0], [9.0, 10.0], [11.0, 12.0]]]
RIGHT = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]], [[7.0, 8.0], [9.0, 5.0], [2.0, 3.0]]]
PRODUCT = [[[1.0, 4.0], [9.0, 16.0]], [[25.0, 36.0]], [[49.0, 64.0], [81.0, 50.0], [22.0, 36.0]]]


@pytest.mark.parametrize("ragged_rank", [1, 2])
def test_the_jagged_seeds_product(ragged_rank):
    a, b = sr.ragged(LEFT, ragged_rank), sr.ragged(RIGHT, ragged_rank)
    assert (a * b).tolist() == PRODUCT
    assert sr.multiply(a, b).tolist() == PRODUCT
    assert (sr.testing.device_born(a, spare=2) * sr.testing.device_born(b, spare=2)).tolist() == PRODUCT


@pytest.mark.parametrize("born", [False, True], ids=["host", "device"])
def test_the_properties_of_c_is_a_x_plus_b(born):
    draw = torch.Generator().manual_seed(0)
    a, x, b = (sr.from_offsets(torch.randn(9, 4, generator=draw), [OUTER, INNER]) for _ in range(3))
    if born:
        a, x, b = (sr.testing.device_born(t) for t in (a, x, b))
    c = a * x + b
    assert c.max_lengths == a.max_lengths == x.max_lengths == b.max_lengths == (4, 2)
    for mine, theirs in zip(c.partitions, a.partitions, strict=True):
        assert mine is theirs
    for t in (a, x, b, c):
        assert [o.tolist() for o in t.offsets] == [OUTER, INNER]
    assert torch.equal(c.values, a.values * x.values + b.values)
    sr.testing.raise_deferred()  # the partitions of x and b were taken for those of a, and are


def test_sums_of_different_raggedness_are_refused():
    a = figure()
    other = sr.from_offsets(torch.tensor(VALUES), [OUTER, [0, 1, 3, 3, 5, 6, 7, 9]])
    with pytest.raises(sr.errors.RaggednessError, match="different raggedness"):
        _ = a + other


# Patient 1 has 3 visits, patient 2 has 1; the visits have 2, 4, 1 and 3 codes. pijk is written ijk.
CODES = [111, 112, 121, 122, 123, 124, 131, 221, 222, 223]
PATIENTS = [
    [[111, 112, 0, 0], [121, 122, 123, 124], [131, 0, 0, 0]],
    [[221, 222, 223, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
]


@pytest.mark.parametrize(
    "x",
    [
        sr.from_lengths(torch.tensor(CODES), [[3, 1], [2, 4, 1, 3]]),
        sr.from_offsets(torch.tensor(CODES), [[0, 3, 4], [0, 2, 6, 7, 10]]),
        sr.ragged([[[111, 112], [121, 122, 123, 124], [131]], [[221, 222, 223]]]),
    ],
    ids=["lengths", "offsets", "lists"],
)
def test_patients_visits_and_codes(x):
    assert [n.tolist() for n in x.lengths] == [[3, 1], [2, 4, 1, 3]]
    assert x.max_lengths == (3, 4)
    assert x.to_dense().tolist() == PATIENTS
    assert x.tolist() == [[[111, 112], [121, 122, 123, 124], [131]], [[221, 222, 223]]]
    assert x.numel() == 10
    assert x.to_dense().numel() == 24


def test_the_nested_seeds_slip_is_refused():
    with pytest.raises(sr.errors.RaggednessError, match=r"level 0 .*4.*5"):
        sr.from_lengths(torch.tensor(CODES), [[3, 2], [2, 4, 1, 3]])
