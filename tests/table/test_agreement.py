"""Agreement with nested_ragged_tensors 0.3.0 where it is right; and, one test each, what it does where it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nested_ragged_tensors.ragged_numpy import JointNestedRaggedTensorDict as Joint
from safetensors import SafetensorError

import serrate as sr

Columns = dict[str, list[Any]]

PATIENTS: Columns = {
    "S": [1, 2, 3],
    "T": [[1, 2, 3], [4, 5], [6]],
    "id": [[[1, 2, 3], [3, 4], [1, 2]], [[3], [3, 2, 2]], [[7]]],
    "val": [[[1.0, 0.25, 0.0], [3.5, 0.0], [1.0, 2.25]], [[3.0], [3.5, 2.0, 0.0]], [[9.0]]],
}
SCHEMA = {"S": np.int64, "T": np.int64, "id": np.int64, "val": np.float32}
MASKS = {"dim1/mask": 1, "dim2/mask": 2}


def joint(columns: Columns = PATIENTS) -> Joint:
    return Joint(columns, schema={name: SCHEMA[name] for name in columns})


def table(columns: Columns = PATIENTS) -> sr.Table:
    """Floats in the package's dtype, where both are compared."""
    return sr.Table(columns, {"val": torch.float32} if "val" in columns else None)


def from_file(columns: Columns, folder: Path) -> Joint:
    joint(columns).save(folder / "t.nrt")
    return Joint(tensors_fp=folder / "t.nrt")


@st.composite
def columns(draw: Any, at_least: int = 1) -> Columns:
    """What both can hold: at least one row, each with a visit, each of those with a code.

    The package loses lists at the end of a table that are empty, and has no type for a column without values.
    """
    sizes = st.lists(st.lists(st.integers(at_least, 4), min_size=1, max_size=4), min_size=1, max_size=5)
    rows = draw(sizes)
    number = iter(range(10_000))
    made: Columns = {
        "S": [next(number) for _ in rows],
        "T": [[next(number) for _ in row] for row in rows],
        "id": [[[next(number) for _ in range(n)] for n in row] for row in rows],
    }
    return made | {"val": [[[x / 4 for x in codes] for codes in row] for row in made["id"]]}


def same_dense(ours: sr.Table, theirs: dict[str, np.ndarray[Any, Any]], **options: Any) -> None:
    """Every array that the package gives, we give too."""
    dense = ours.to_dense(**options)
    for name, array in theirs.items():
        found = dense.masks[ours.levels[MASKS[name]]] if name in MASKS else dense[name]
        assert found.tolist() == array.tolist(), name
        assert found.numpy().dtype == array.dtype, name


# ------------------------------------------------------------------------------------------------ where it is right


@given(columns(), st.sampled_from(["left", "right"]))
def test_dense_columns_and_masks(given: Columns, side: str) -> None:
    same_dense(table(given), joint(given).to_dense(padding_side=side), side=side)


@given(columns(at_least=0).filter(lambda made: any(codes for row in made["id"] for codes in row)))
def test_dense_with_empty_inner_rows(given: Columns) -> None:
    same_dense(table(given), joint(given).to_dense())


@given(columns(), st.data())
def test_slices_within_the_rows(given: Columns, data: Any) -> None:
    count = len(given["S"])
    first = data.draw(st.integers(0, count - 1))
    last = data.draw(st.integers(first + 1, count))
    same_dense(table(given)[first:last], joint(given)[first:last].to_dense())


@given(columns(), st.data())
def test_one_row_and_a_run_of_its_visits(given: Columns, data: Any) -> None:
    row = data.draw(st.integers(0, len(given["S"]) - 1))
    same_dense(table(given)[row], joint(given)[row].to_dense())
    first = data.draw(st.integers(0, len(given["T"][row]) - 1))
    last = data.draw(st.integers(first + 1, len(given["T"][row])))
    same_dense(table(given)[row, first:last], joint(given)[row, first:last].to_dense())


@given(columns(), st.data())
def test_one_visit_of_a_row(given: Columns, data: Any) -> None:
    row = data.draw(st.integers(-len(given["S"]), len(given["S"]) - 1))
    visit = data.draw(st.integers(-len(given["T"][row]), len(given["T"][row]) - 1))
    same_dense(table(given)[row, visit], joint(given)[row, visit].to_dense())


@given(columns(), st.data())
def test_rows_by_an_array(given: Columns, data: Any) -> None:
    count = len(given["S"])
    rows = np.array(data.draw(st.lists(st.integers(-count, count - 1), min_size=1)))
    same_dense(table(given)[rows], joint(given)[rows].to_dense())


@given(columns())
def test_flatten_spreads_the_parent_over_its_first_child(given: Columns) -> None:
    same_dense(table(given).flatten_level(), joint(given).flatten().to_dense())
    same_dense(table(given).flatten_level().flatten_level(), joint(given).flatten().flatten().to_dense())


@given(columns(), columns())
def test_concatenated_tables(one: Columns, other: Columns) -> None:
    same_dense(sr.Table.concat([table(one), table(other)]), Joint.concatenate([joint(one), joint(other)]).to_dense())


@given(columns())
def test_stacked_rows(given: Columns) -> None:
    rows = range(len(given["S"]))
    theirs = Joint.vstack([joint(given)[i] for i in rows]).to_dense()
    same_dense(sr.Table.stack([table(given)[i] for i in rows]), theirs)


@given(columns())
def test_squeeze_takes_back_what_unsqueeze_adds(given: Columns) -> None:
    assert joint(given).unsqueeze(0).squeeze(0) == joint(given)
    assert lists(table(given).unsqueeze().squeeze()) == given
    row = table(given)[0]
    assert row.unsqueeze() == table(given)[:1]
    assert row.unsqueeze().squeeze() == row


def test_keys_by_depth() -> None:
    theirs, ours = joint(), table()
    assert set(ours.keys()) == theirs.keys()
    for depth, level in enumerate(ours.levels):
        assert set(ours.keys_at(level)) == set(ours.keys_at(depth)) == theirs.keys_at_dim(depth)


def test_a_file_reads_as_memory_does(tmp_path: Path) -> None:
    table().save(tmp_path / "ours")
    theirs, ours = from_file(PATIENTS, tmp_path), sr.open(tmp_path / "ours")
    for key in (1, slice(1, 3), (0, slice(1, 3)), np.array([2, 0])):
        same_dense(ours[key], theirs[key].to_dense())


# ------------------------------------------------------------------------------------------------ where it is wrong


def lists(made: sr.Table) -> dict[str, Any]:
    return {name: made[name].tolist() for name in made.keys()}  # noqa: SIM118


def python(key: Any) -> Columns:
    return {name: column[key] for name, column in PATIENTS.items()}


def test_all_but_the_last_row(tmp_path: Path) -> None:
    wrong = joint()[:-1]
    assert wrong.tensors["dim0/S"].tolist() == [1, 2]
    assert wrong.tensors["dim1/T"].tolist() == []  # all visits are lost
    with pytest.raises(OverflowError):
        from_file(PATIENTS, tmp_path)[:-1]
    assert lists(table()[:-1]) == python(slice(None, -1))


def test_a_slice_past_the_end(tmp_path: Path) -> None:
    assert joint()[0:100].tensors["dim1/T"].tolist() == []
    with pytest.raises(SafetensorError):
        from_file(PATIENTS, tmp_path)[0:100]
    assert table()[0:100] == table()
    assert lists(table()[2:100]) == python(slice(2, 100))


def test_the_last_row_as_a_slice(tmp_path: Path) -> None:
    assert joint()[-1:].tensors["dim1/bounds"].tolist() == [6]  # of one visit
    with pytest.raises(OverflowError):
        from_file(PATIENTS, tmp_path)[-1:]
    assert lists(table()[-1:]) == python(slice(-1, None))


def test_all_but_the_last_visit_of_a_row() -> None:
    assert joint()[0, :-1].tensors["dim0/T"].tolist() == [1, 2, 3, 4, 5]  # visits of the next row
    assert table()[0, :-1]["T"].tolist() == [1, 2]
    assert table()[0, :-1]["id"].tolist() == [[1, 2, 3], [3, 4]]


def test_rows_by_an_array_keep_the_columns_of_the_rows() -> None:
    assert joint()[np.array([0, 2])].keys() == {"T", "id", "val"}
    assert table()[np.array([0, 2])]["S"].tolist() == [1, 3]


def test_steps() -> None:
    with pytest.raises(ValueError, match="step"):
        joint()[::2]
    assert lists(table()[::2]) == python(slice(None, None, 2))
    assert lists(table()[::-1]) == python(slice(None, None, -1))


def test_lists_and_masks_of_rows() -> None:
    with pytest.raises(TypeError):
        joint()[[0, 2]]
    with pytest.raises(TypeError):
        joint()[np.array([True, False, True])]
    assert table()[[0, 2]] == table()[np.array([True, False, True])] == table()[::2]


def test_several_rows_and_a_run_of_visits_of_each() -> None:
    with pytest.raises(ValueError, match="Multi-level"):
        joint()[0:2, 1:]
    assert lists(table()[0:2, 1:]) == {
        "S": [1, 2],
        "T": [[2, 3], [5]],
        "id": [[[3, 4], [1, 2]], [[3, 2, 2]]],
        "val": [[[3.5, 0.0], [1.0, 2.25]], [[3.5, 2.0, 0.0]]],
    }


def test_empty_inner_rows_in_flatten() -> None:
    """Of visits without codes it forgets the time, and fails if the last visit is one."""
    given: Columns = {"T": [[1, 2], [3]], "id": [[[], [5]], [[6]]]}
    assert joint(given).flatten().tensors["dim1/T"].tolist() == [2, 3]
    with pytest.raises(IndexError):
        joint({"T": [[1, 2], [3]], "id": [[[5], [6]], [[]]]}).flatten()
    ours = table({"T": [[1, 2], [3]], "id": [[[5], []], [[]]]})
    assert lists(ours.flatten_level()) == {"T": [[1], []], "id": [[5], []]}
    assert lists(ours.flatten_level(how="fill", fill=-1)) == {"T": [[1, 2], [3]], "id": [[5, -1], [-1]]}


def test_empty_selections(tmp_path: Path) -> None:
    with pytest.raises(IndexError):
        joint()[0:0].to_dense()
    with pytest.raises(ValueError, match="empty"):
        joint()[np.array([], dtype=int)]
    for none in (table()[0:0], table()[[]], table()[np.array([], dtype=int)], table()[5:7]):
        assert len(none) == 0
        assert lists(none) == {"S": [], "T": [], "id": [], "val": []}
        dense = none.to_dense()
        assert [dense[name].shape for name in PATIENTS] == [(0,), (0, 0), (0, 0, 0), (0, 0, 0)]
        assert dense["val"].dtype == torch.float32


def test_visits_without_codes_keep_their_column() -> None:
    given: Columns = {"T": [[6, 7]], "id": [[[], [8, 9]]]}
    assert "id" not in joint(given)[0, :1].to_dense()
    assert table(given)[0, :1].to_dense()["id"].shape == (1, 0)


def test_an_empty_table() -> None:
    with pytest.raises(ValueError, match="does not support empty"):
        Joint({"S": []})
    with pytest.raises(ValueError, match="infer dtype"):
        Joint({"T": [[], []]})
    assert len(sr.Table({"S": []})) == 0
    assert sr.Table({"T": [[], []]})["T"].tolist() == [[], []]


def test_concatenating_slices_with_tables() -> None:
    with pytest.raises(ValueError, match="Schema inconsistent"):
        Joint.concatenate([joint()[0:1], joint()])
    assert sr.Table.concat([table()[0:1], table()[1:]]) == table()
    assert sr.Table.concat([table()[0:1], table(python(slice(1, None)))]) == table()


def test_concatenating_what_was_narrowed_apart() -> None:
    with pytest.raises(ValueError, match="Schema inconsistent"):
        Joint.concatenate([Joint({"a": [1]}), Joint({"a": [1000]})])
    joined = sr.Table.concat([sr.Table({"a": [1]}, narrow=True), sr.Table({"a": [1000]}, narrow=True)])
    assert joined["a"].tolist() == [1, 1000]
    assert joined["a"].dtype == torch.int64


def test_empty_shards(tmp_path: Path) -> None:
    joint()[0:0].save(tmp_path / "empty.nrt")
    with pytest.raises(SafetensorError):
        Joint.concatenate([Joint(tensors_fp=tmp_path / "empty.nrt"), joint()])
    table()[0:0].save(tmp_path / "empty")
    empty = sr.open(tmp_path / "empty")
    assert len(empty) == 0
    assert empty == table()[0:0]
    assert sr.Table.concat([empty, table(), empty]) == table()


def test_non_contiguous_input(tmp_path: Path) -> None:
    every_second = np.arange(6)[::2]
    Joint(processed_tensors={"dim0/S": every_second}).save(tmp_path / "wrong.nrt")
    assert Joint(tensors_fp=tmp_path / "wrong.nrt").tensors["dim0/S"].tolist() == [0, 1, 2]
    sr.Table({"S": every_second, "T": torch.arange(9).reshape(3, 3).T}).save(tmp_path / "right")
    read = sr.open(tmp_path / "right")
    assert read["S"].tolist() == [0, 2, 4]
    assert read["T"].tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_rectangular_arrays() -> None:
    with pytest.raises(ValueError, match="Failed to parse"):
        Joint({"T": np.arange(6).reshape(2, 3)})
    assert sr.Table({"T": np.arange(6).reshape(2, 3)})["T"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_column_names_with_a_slash(tmp_path: Path) -> None:
    given = {"a/b": [1, 2], "b": [[1], [2, 3]], "dim1/bounds": [[4], [5, 6]]}
    assert Joint({"a/b": [1, 2]}).keys() == {"a"}
    with pytest.raises(KeyError):
        Joint({"a/b": [1, 2]})[0:1]
    made = sr.Table(given)
    assert lists(made) == given
    made.save(tmp_path / "t")
    assert lists(sr.open(tmp_path / "t")[1:]) == {"a/b": [2], "b": [[2, 3]], "dim1/bounds": [[5, 6]]}


def test_squeeze_of_several_rows() -> None:
    assert joint().squeeze(0).tensors["dim0/T"].tolist() == [1, 2, 3, 4, 5, 6]  # rows are forgotten
    with pytest.raises(ValueError, match="3"):
        table().squeeze()


def test_two_lists_below_one_level() -> None:
    with pytest.raises(ValueError, match="Inconsistent bounds"):
        Joint({"codes": [[[1], []]], "labs": [[[2, 3], [4]]]})
    two = sr.Table({"code": [[[1], []]], "lab": [[[2, 3], [4]]]}, {"code": "visits.codes", "lab": "visits.labs"})
    assert lists(two) == {"code": [[[1], []]], "lab": [[[2, 3], [4]]]}
