"""The face of nested_ragged_tensors beside nested_ragged_tensors 0.3.0 itself: the same where that is right.

Where it is wrong, a test shows what it gives, and that ours is what Python lists give.
"""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

import serrate as sr
from serrate.compat.nested_ragged_tensors import JointNestedRaggedTensorDict as Ours

Theirs = pytest.importorskip("nested_ragged_tensors.ragged_numpy").JointNestedRaggedTensorDict

# These columns have no empty inner lists and no entries at depth 0; the other library is right about most of them.
PLAIN = {
    "T": [[1, 2, 3], [4, 5], [6]],
    "id": [[[1, 2, 3], [300], [1, 2]], [[3], [3, 2, 2]], [[9]]],
    "val": [[[1, 0.2, 0], [3.1], [1, 2.2]], [[3], [3.3, 2, 0]], [[-1.5]]],
}
ROWS = {"S": [7, 8, 9], "T": [[1, 2, 3], [4, 5], [6]], "id": [[[1, 2, 3], [], [1, 2]], [[3], [3, 2, 2]], [[]]]}


def both(data, **options):
    return Ours(data, **options), Theirs(data, **options)


def assert_same(ours, theirs):
    """Assert that both have the same arrays, dtypes and schema."""
    mine, other = ours.tensors, theirs.tensors
    assert mine.keys() == other.keys()
    for key in mine:
        np.testing.assert_array_equal(mine[key], other[key], strict=True)
    assert_same_dense(ours.to_dense(), theirs.to_dense())


def assert_same_dense(mine, other):
    assert mine.keys() == other.keys()
    for key in mine:
        np.testing.assert_array_equal(mine[key], other[key], strict=True)


# ------------------------------------------------------------------------------------------- both libraries agree


def test_tensors_schema_and_names():
    ours, theirs = both(PLAIN)
    assert_same(ours, theirs)
    assert ours.schema == theirs.schema
    assert ours.keys() == theirs.keys()
    assert len(ours) == len(theirs) == 3
    assert (ours.max_n_dims, ours.min_n_dims) == (theirs.max_n_dims, theirs.min_n_dims) == (3, 2)
    for dim in range(-1, 4):
        assert ours.keys_at_dim(dim) == theirs.keys_at_dim(dim)
    with_rows = {"S": [7, 8, 9], **PLAIN}
    assert both(with_rows)[0].min_n_dims == both(with_rows)[1].min_n_dims == 1
    assert both({"id": PLAIN["id"]})[0].min_n_dims == both({"id": PLAIN["id"]})[1].min_n_dims == 2
    assert both({"x": [1]})[0].max_n_dims == both({"x": [1]})[1].max_n_dims == 1


@pytest.mark.parametrize("side", ["right", "left"])
def test_dense(side):
    for data in (PLAIN, ROWS, {"x": [1, 2]}, {"x": [[[1]]]}):
        ours, theirs = both(data)
        assert_same_dense(ours.to_dense(padding_side=side), theirs.to_dense(padding_side=side))
    with pytest.raises(ValueError, match="padding_side must be 'left' or 'right'; got 'up'"):
        ours.to_dense("up")


@pytest.mark.parametrize(
    "idx",
    [
        0, 2, -1, slice(None), slice(1, 3), slice(0, 1), slice(1, None), (0, 1), (1, -1), (0, slice(0, 2)),
        (0, slice(1, 3)), (1, slice(1, None)), np.array([2, 0]), np.array([1, 1, 0], np.uint8), (1,),
    ],
    ids=str,
)  # fmt: skip
def test_indexing(idx, tmp_path):
    ours, theirs = both(PLAIN)
    assert_same_dense(ours[idx].to_dense(), theirs[idx].to_dense())
    assert len(ours[idx].to_dense()) == len(theirs[idx].to_dense())
    theirs.save(tmp_path / "t.nrt")
    lazy = Ours(tensors_fp=tmp_path / "t.nrt")
    assert_same_dense(lazy[idx].to_dense(), theirs[idx].to_dense())
    if isinstance(idx, slice | np.ndarray):
        assert_same(ours[idx], theirs[idx])


@pytest.mark.parametrize(
    ("idx", "error"),
    [(3, IndexError), (-4, IndexError), ((0, 3), IndexError), ((1, -3), IndexError), ((0, 0, 0, 0), IndexError),
     ("T", TypeError), (1.5, TypeError), (np.array([0, 3]), IndexError), (np.array([0.5]), TypeError)],
    ids=str,
)  # fmt: skip
def test_indices_that_are_none(idx, error):
    ours, theirs = both(PLAIN)
    with pytest.raises(error):
        theirs[idx]
    with pytest.raises(error):
        ours[idx]


def test_iteration():
    ours, theirs = both(PLAIN)
    rows, others = list(ours), list(theirs)
    assert len(rows) == len(others) == 3
    for row, other in zip(rows, others, strict=True):
        assert_same(row, other)


def test_columns_that_an_integer_drops():
    ours, theirs = both({"S": [7, 8, 9], **PLAIN})
    assert_same(ours[1], theirs[1])  # Both keep S under "dim-1", and leave it out of dense arrays.
    assert ours[1].keys() == theirs[1].keys()
    one, other = both({"x": [4, 5]})
    assert one[1].tensors == other[1].tensors == {"dim-1/x": np.array([5])}
    assert one[1].to_dense() == {}
    assert ours[0, 0, 2].tensors["dim-1/val"].tolist() == theirs[0, 0, 2].tensors["dim-1/val"].tolist() == [0]


def test_squeeze_and_unsqueeze():
    ours, theirs = both({name: rows[:1] for name, rows in PLAIN.items()})
    assert_same(ours.squeeze(0), theirs.squeeze(0))
    ours, theirs = both({"S": [7, 8, 9], **PLAIN})
    assert_same(ours.unsqueeze(0), theirs.unsqueeze(0))
    assert ours.unsqueeze(0).squeeze(0) == ours
    for call in ("squeeze", "unsqueeze"):
        with pytest.raises(ValueError, match="Only supports dim = 0 for now; got 1"):
            getattr(ours, call)(1)


def test_flatten():
    for data in (PLAIN, {"S": [7, 8, 9], **PLAIN}, {"a": [[1, 2], [3]]}, {"s": [1, 2], "a": [[1, 2], [3]]}):
        ours, theirs = both(data)
        while theirs.max_n_dims > 1:
            assert_same(ours.flatten(), theirs.flatten())
            assert_same(ours.flatten(dim=ours.max_n_dims - 1), theirs.flatten())
            with pytest.raises(ValueError, match="Only supports dim = -1 or"):
                ours.flatten(dim=0)
            ours, theirs = ours.flatten(), theirs.flatten()
    empty = {"T": [1, 2], "Z": [[], []]}
    ours, theirs = both(empty, schema={"T": int, "Z": int})
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert_same(ours.flatten(), theirs.flatten())


def test_concatenate_and_vstack():
    ours, theirs = both(PLAIN)
    assert_same(Ours.concatenate([ours, ours]), Theirs.concatenate([theirs, theirs]))
    rows, others = [ours[i] for i in (2, 0)], [theirs[i] for i in (2, 0)]
    assert_same(Ours.vstack(rows), Theirs.vstack(others))
    assert Ours.concatenate([ours]) == ours
    for wrong in (
        [],
        [ours, Ours({"T": [1]})],
        [ours, Ours({**PLAIN, "T": [1, 2, 3]})],
        [Ours({"x": [1]}), Ours({"x": [0.5]})],
    ):
        with pytest.raises(ValueError, match=r"empty list|inconsistent"):
            Ours.concatenate(wrong)


def test_equality():
    ours, again = Ours(PLAIN), Ours(PLAIN)
    assert ours == again
    assert ours != Ours({**PLAIN, "T": [[1, 2, 3], [4, 5], [7]]})
    assert ours != Ours({"T": PLAIN["T"]})
    assert ours != PLAIN
    nan = {"x": [[float("nan"), 1.0], [2.0]]}
    assert Ours(nan) != Ours(nan)
    assert Ours(nan).equals(Ours(nan), equal_nan=True)
    assert Theirs(nan).equals(Theirs(nan), equal_nan=True)


DTYPES = [
    [1, 2, 3], [1, 256], [66_000], [2**40], [-1, 200], [-66_000], [True, False], [True, 5], [1, 2.5],
    [float("nan"), 1.0], [float("nan")], [-1, 2**63], [3.14, 4 * 10**19], [2**63], [-(2**63)], [np.float64(1.5), 2],
    [np.int8(3)],
]  # fmt: skip


@pytest.mark.parametrize("values", DTYPES, ids=str)
def test_inferred_dtypes(values):
    for data in ({"x": values}, {"x": [values, values]}):
        ours, theirs = both(data)
        assert_same(ours, theirs)
        assert ours.schema == theirs.schema


@pytest.mark.parametrize(
    "values",
    [[1e39], [float("inf")], [1e39, float("nan")], [2**64], [1, None], ["a"], [3.14, 10**400]],
    ids=str,
)
def test_values_that_no_dtype_holds(values):
    for data in ({"x": values}, {"x": [values]}):
        for kind in (Ours, Theirs):
            with pytest.raises(ValueError, match=r"."):
                kind(data)


@pytest.mark.parametrize("dtype", [int, float, np.float16, np.int16, np.uint64, bool])
def test_declared_dtypes(dtype):
    ours, theirs = both({"x": [[1, 0], [1]]}, schema={"x": dtype})
    assert_same(ours, theirs)
    assert ours.schema["x"] == np.dtype(dtype)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, ValueError), ({"raw_tensors": {"a": [1]}, "tensors_fp": "x"}, ValueError),
        ({"raw_tensors": {"a": [1]}, "keys": {"a"}}, ValueError), ({"raw_tensors": {"bounds": [1]}}, ValueError),
        ({"raw_tensors": {"mask": [[1]]}}, ValueError), ({"raw_tensors": {"a": [[1], 2]}}, ValueError),
        ({"raw_tensors": {"a": []}}, ValueError), ({"raw_tensors": {"a": [[1], [2]], "b": [[1, 2], []]}}, ValueError),
    ],
)  # fmt: skip
def test_constructors_that_fail(arguments, error):
    for kind in (Ours, Theirs):
        with pytest.raises(error):
            kind(**arguments)


def test_files_both_ways(tmp_path):
    for number, data in enumerate((PLAIN, ROWS, {"x": [1, 2]}, {"b": [[True], []], "h": [[1.5], []]})):
        ours, theirs = both(data)
        ours.save(tmp_path / f"{number}.nrt")
        assert_same(ours, Theirs(tensors_fp=tmp_path / f"{number}.nrt"))
        theirs.save(tmp_path / f"{number}.nrt")
        again = Ours(tensors_fp=tmp_path / f"{number}.nrt")
        assert_same(again, theirs)
        assert again == ours == Ours.load(str(tmp_path / f"{number}.nrt"))
        again.save(tmp_path / f"{number}.nrt")  # The other library refuses to write what it has read.
        assert Theirs(tensors_fp=tmp_path / f"{number}.nrt") == theirs
    with pytest.raises(ValueError, match="Already saved"):
        Theirs(tensors_fp=tmp_path / "0.nrt").save(tmp_path / "other.nrt")
    with pytest.raises(FileNotFoundError, match="Tensors filepath must exist"):
        Ours(tensors_fp=tmp_path / "missing.nrt")


def test_keys_of_a_file(tmp_path):
    Theirs(PLAIN).save(tmp_path / "t.nrt")
    for keys in ({"T"}, ["id"], {"T", "val"}):
        ours, theirs = (kind(tensors_fp=tmp_path / "t.nrt", keys=keys) for kind in (Ours, Theirs))
        assert_same(ours, theirs)
        assert ours.keys() == theirs.keys() == set(keys)
        assert ours.max_n_dims == theirs.max_n_dims
    for wrong, error in (
        ("T", TypeError),
        ([], ValueError),
        ({"T", 1}, TypeError),
        ({"bounds"}, ValueError),
        ({"no"}, KeyError),
    ):
        for kind in (Ours, Theirs):
            with pytest.raises(error):
                kind(tensors_fp=tmp_path / "t.nrt", keys=wrong)


def test_tables_and_pickles(tmp_path):
    ours = Ours({"S": [7, 8, 9], **PLAIN})
    assert isinstance(ours.table, sr.Table)
    assert ours.table["T"].tolist() == PLAIN["T"]
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert "tensors_fp" not in repr(ours)
    ours.save(tmp_path / "t.nrt")
    large = Ours({"x": list(range(10_000)), "y": [1] * 10_000})
    large.save(tmp_path / "large.nrt")
    sent = pickle.dumps(Ours(tensors_fp=tmp_path / "large.nrt", keys=["x"]))
    assert len(sent) < 1000  # The pickle has the path, not the values.
    assert pickle.loads(sent).tensors["dim0/x"].tolist() == list(range(10_000))
    assert pickle.loads(sent).keys() == {"x"}
    assert repr(Ours(tensors_fp=tmp_path / "t.nrt")).startswith(f"JointNestedRaggedTensorDict(tensors_fp={tmp_path}")


# -------------------------------------------------------------------------------------- the other library is wrong


def rows_of(made, name):
    """Return the rows of a column, made from its arrays by plain Python."""
    depth = next(int(key[3]) for key in made.tensors if key.split("/", 1)[1] == name)
    entries = made.tensors[f"dim{depth}/{name}"].tolist()
    for d in range(depth, 0, -1):
        ends = made.tensors[f"dim{d}/bounds"].tolist()
        entries = [entries[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return entries


def fails(call):
    """Return the name of the error that a call of the other library raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return caught.type.__name__


def assert_rows(made, data, chosen):
    assert {name: rows_of(made, name) for name in data} == {name: chosen(rows) for name, rows in data.items()}


def test_slices_with_negative_ends():
    ours, theirs = both(ROWS)
    assert theirs[:-1].tensors["dim1/T"].tolist() == []  # All entries of the two rows, two and three, are missing.
    assert fails(lambda: theirs[:-1].to_dense()) == "IndexError"
    assert_rows(ours[:-1], ROWS, lambda rows: rows[:-1])
    assert ours[:-1].to_dense()["T"].tolist() == [[1, 2, 3], [4, 5, 0]]


def test_slices_past_the_end():
    ours, theirs = both(ROWS)
    assert theirs[0:100].tensors["dim1/T"].tolist() == []
    assert_rows(ours[0:100], ROWS, lambda rows: rows)
    assert_rows(ours[2:100], ROWS, lambda rows: rows[2:])


def test_slices_with_negative_starts():
    ours, theirs = both(ROWS)
    assert theirs[-1:].to_dense()["T"].tolist() == [[6] * 6]  # The one entry fills the bounds of six.
    assert_rows(ours[-1:], ROWS, lambda rows: rows[-1:])
    assert ours[-1:].to_dense()["T"].tolist() == [[6]]
    assert theirs[0, -1:].tensors["dim0/T"].tolist() == []
    assert ours[0, -1:].to_dense()["T"].tolist() == [3]
    assert theirs[0, :-1].tensors["dim0/T"].tolist() == [1, 2, 3, 4, 5]  # Some are entries of the next row.
    assert ours[0, :-1].to_dense()["T"].tolist() == [1, 2]


def test_the_same_slices_of_a_file(tmp_path):
    Theirs(ROWS).save(tmp_path / "t.nrt")
    ours, theirs = Ours(tensors_fp=tmp_path / "t.nrt"), Theirs(tensors_fp=tmp_path / "t.nrt")
    for key in (slice(None, -1), slice(0, 100), slice(-1, None)):
        assert fails(lambda key=key: theirs[key]) in ("OverflowError", "SafetensorError")
        assert_rows(ours[key], ROWS, lambda rows, key=key: rows[key])


def test_integer_arrays_keep_the_columns_of_rows():
    ours, theirs = both(ROWS)
    index = np.array([2, 0])
    assert theirs[index].keys() == {"T", "id"}
    assert_rows(ours[index], ROWS, lambda rows: [rows[2], rows[0]])
    assert Theirs.vstack([theirs[2], theirs[0]]).keys() == {"T", "id"}
    assert_rows(Ours.vstack([ours[2], ours[0]]), ROWS, lambda rows: [rows[2], rows[0]])


def test_empty_inner_rows_in_flatten():
    data = {"T": [[1, 2, 3], [4, 5], [6]], "id": [[[1, 2], [], [3]], [[4], []], [[5, 6]]]}
    ours, theirs = both(data)
    assert_same(ours.flatten(), theirs.flatten())  # Both are right if a list with entries follows.
    assert rows_of(ours.flatten(), "T") == [[1, 0, 3], [4], [6, 0]]
    assert rows_of(ours.flatten(), "id") == [[1, 2, 3], [4], [5, 6]]
    last = {"T": [[1, 2]], "id": [[[1], []]]}
    ours, theirs = both(last)
    assert fails(theirs.flatten) == "IndexError"
    assert rows_of(ours.flatten(), "T") == [[1]]
    gap = {"T": [[1], [], [2]], "id": [[[1]], [], [[2]]]}
    ours, theirs = both(gap)
    assert rows_of(ours.flatten(), "id") == [[1], [], [2]]
    leading = {"T": [[], [1]], "id": [[], [[1, 2]]]}
    ours, theirs = both(leading)
    assert rows_of(theirs.flatten(), "id") == [[1, 2], []]  # The first row has no entries.
    assert rows_of(ours.flatten(), "id") == [[], [1, 2]]


def test_empty_selections():
    ours, theirs = both(ROWS)
    assert fails(lambda: theirs[1:1].to_dense()) == "IndexError"
    dense = ours[1:1].to_dense()
    assert {name: array.shape[0] for name, array in dense.items()} == dict.fromkeys(
        ["S", "T", "id", "dim1/mask", "dim2/mask"], 0
    )
    assert fails(lambda: theirs[np.array([], int)]) == "ValueError"
    assert_rows(ours[np.array([], int)], ROWS, lambda rows: [])
    assert theirs[2][0:1].to_dense().keys() == {"T", "dim1/mask"}  # A column of empty lists is missing.
    assert ours[2][0:1].to_dense()["id"].tolist() == [[]]


def test_concatenating_slices():
    ours, theirs = both(ROWS)
    assert (
        fails(lambda: Theirs.concatenate([theirs[0:1], theirs])) == "ValueError"
    )  # The schema of a slice has other names.
    assert_rows(Ours.concatenate([ours[0:1], ours]), ROWS, lambda rows: rows[:1] + rows)
    assert_rows(Ours.concatenate([ours[2:], ours[:0], ours[1:2]]), ROWS, lambda rows: [rows[2], rows[1]])
    small, large = ({"x": [[1], [2]]}, {"x": [[300]]})
    assert fails(lambda: Theirs.concatenate([Theirs(small), Theirs(large)])) == "ValueError"
    joined = Ours.concatenate([Ours(small), Ours(large)])
    assert rows_of(joined, "x") == [[1], [2], [300]]
    assert joined.schema == {"x": np.dtype("uint16")}


def test_empty_shards(tmp_path):
    ours, theirs = both(ROWS)
    theirs[3:].save(tmp_path / "empty.nrt")
    shard = Theirs(tensors_fp=tmp_path / "empty.nrt")
    assert fails(lambda: Theirs.concatenate([theirs, shard])) == "SafetensorError"
    mine = Ours(tensors_fp=tmp_path / "empty.nrt")
    assert len(mine) == 0
    assert Ours.concatenate([mine, ours, mine]) == ours
    ours[3:].save(tmp_path / "again.nrt")
    assert Ours(tensors_fp=tmp_path / "again.nrt") == mine
    with pytest.raises(ValueError, match="Empty list found"):
        Theirs({"x": []}, schema={"x": int})
    assert len(Ours({"x": []}, schema={"x": int})) == 0


def test_arrays_that_are_not_contiguous(tmp_path):
    every_second = {
        "dim0/x": np.arange(6)[::2],
        "dim1/y": np.arange(12).reshape(6, 2)[:, 0],
        "dim1/bounds": np.array([1, 3, 6]),
    }
    Theirs(processed_tensors=every_second).save(tmp_path / "t.nrt")
    assert load_file(tmp_path / "t.nrt")["dim0/x"].tolist() == [0, 1, 2]
    Ours(processed_tensors=every_second).save(tmp_path / "t.nrt")
    assert load_file(tmp_path / "t.nrt")["dim0/x"].tolist() == [0, 2, 4]
    assert rows_of(Ours(tensors_fp=tmp_path / "t.nrt"), "y") == [[0], [2, 4], [6, 8, 10]]
    backwards = Ours(processed_tensors={"dim0/x": np.arange(6)[::-2]})
    assert backwards[np.array([2, 0])].tensors["dim0/x"].tolist() == [1, 5]
    grid = np.arange(12).reshape(3, 4).T
    assert fails(lambda: Theirs({"x": grid})) == "ValueError"
    assert rows_of(Ours({"x": grid}), "x") == grid.tolist()


def test_names_with_slashes(tmp_path):
    data = {"a/b": [[1, 2], [3]], "b": [[4, 5], [6]], "x/bounds": [[1, 1], [1]]}
    ours, theirs = both(data)
    assert fails(theirs.to_dense) in ("KeyError", "ValueError")
    assert theirs.keys() == {"a", "b"}  # A column has also lost its name.
    assert ours.keys() == set(data)
    assert ours.to_dense()["a/b"].tolist() == [[1, 2], [3, 0]]
    assert_rows(ours[1:], data, lambda rows: rows[1:])
    ours.save(tmp_path / "t.nrt")
    assert_rows(Ours(tensors_fp=tmp_path / "t.nrt"), data, lambda rows: rows)
    assert rows_of(Ours(tensors_fp=tmp_path / "t.nrt", keys=["a/b"]), "a/b") == data["a/b"]


def test_squeezing_several_rows():
    ours, theirs = both(PLAIN)
    assert theirs.squeeze(0).tensors["dim0/T"].tolist() == [1, 2, 3, 4, 5, 6]  # The ends of the rows are lost.
    with pytest.raises(ValueError, match="only a table of one row can be squeezed"):
        ours.squeeze(0)


def test_indices_that_theirs_does_not_take():
    ours, theirs = both(ROWS)
    for key, expected in (
        (slice(None, None, -1), lambda rows: rows[::-1]),
        (slice(None, None, 2), lambda rows: rows[::2]),
        ([2, 0], lambda rows: [rows[2], rows[0]]),
        (np.array([True, False, True]), lambda rows: rows[::2]),
    ):
        assert fails(lambda key=key: theirs[key]) in ("ValueError", "TypeError")
        assert_rows(ours[key], ROWS, expected)
    assert fails(lambda: theirs[np.int64(1)]) == "TypeError"
    assert ours[np.int64(1)] == ours[1]
    assert fails(lambda: theirs[1:, 1:]) == "ValueError"
    assert rows_of(ours[1:, 1:], "T") == [row[1:] for row in ROWS["T"][1:]]


# -------------------------------------------------------------------------------------------------- random columns


@st.composite
def datas(draw):
    """Draw columns S, T and id at depths 0, 1 and 2 over one structure; the other library needs non-empty lists."""
    lengths = draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=4))
    number = st.integers(-300, 300)
    return {
        "S": [draw(number) for _ in lengths],
        "T": [[draw(number) for _ in row] for row in lengths],
        "id": [[[draw(number) for _ in range(n)] for n in row] for row in lengths],
    }


@given(datas(), st.data())
def test_random_structures(data, draw):
    ours, theirs = both(data)
    assert_same(ours, theirs)
    assert_same(ours.flatten(), theirs.flatten())
    start = draw.draw(st.integers(0, len(ours) - 1))
    stop = draw.draw(st.integers(start + 1, len(ours)))
    assert_same(ours[start:stop], theirs[start:stop])
    assert_same(ours[start], theirs[start])
    assert_same(ours.unsqueeze(0), theirs.unsqueeze(0))
    side = draw.draw(st.sampled_from(["left", "right"]))
    assert_same_dense(ours.to_dense(side), theirs.to_dense(side))


@given(datas(), st.data())
def test_random_slices_as_lists_have_them(data, draw):
    bound = st.one_of(st.none(), st.integers(-6, 6))
    key = slice(draw.draw(bound), draw.draw(bound), draw.draw(st.sampled_from([None, 1, 2, -1, -2])))
    assert_rows(Ours(data)[key], data, lambda rows: rows[key])
