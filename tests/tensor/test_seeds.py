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
