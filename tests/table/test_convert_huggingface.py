"""Datasets of Hugging Face, both ways."""

from __future__ import annotations

import numpy as np
import pytest

datasets = pytest.importorskip("datasets")

import serrate as sr  # noqa: E402
from serrate.table.convert.huggingface import (  # noqa: E402
    dataset_blocks,
    dataset_to_folder,
    from_datasets,
    to_datasets,
)

FEATURES = datasets.Features({
    "id": datasets.Value("int64"), "label": datasets.ClassLabel(names=["no", "yes"]),
    "tokens": datasets.List(datasets.Value("string")), "tags": datasets.List(datasets.ClassLabel(names=["O", "B"])),
    "visits": datasets.List({"time": datasets.Value("int32"), "codes": datasets.List(datasets.Value("int64"))}),
    "grid": datasets.Array2D((2, 2), "float32"),
})  # fmt: skip
ROWS = {
    "id": [1, 2, 3],
    "label": [0, 1, -1],
    "tokens": [["a", "b"], [], ["c"]],
    "tags": [[0, 1], [], [1]],
    "visits": [[{"time": 1, "codes": [1, 2]}], [], [{"time": 2, "codes": []}, {"time": 3, "codes": [4]}]],
    "grid": np.arange(12).reshape(3, 2, 2).tolist(),
}
EXPECTED = {
    "id": [1, 2, 3],
    "label": ["no", "yes", None],
    "tokens": [["a", "b"], [], ["c"]],
    "tags": [["O", "B"], [], ["B"]],
    "time": [[1], [], [2, 3]],
    "codes": [[[1, 2]], [], [[], [4]]],
    "grid": np.arange(12.0).reshape(3, 2, 2).tolist(),
}


@pytest.fixture(scope="module")
def dataset():
    return datasets.Dataset.from_dict(ROWS, features=FEATURES)


def test_what_a_dataset_holds(dataset):
    t = from_datasets(dataset)
    assert t.tolist() == EXPECTED
    assert t.levels == ("rows", "level1", "visits", "visits.codes")
    assert t.schema["grid"].features == (2, 2)
    assert t["label"].tolist() == [0, 1, 0]
    assert t.valid("label").tolist() == [True, True, False]
    assert t.vocabulary("tags") == ("O", "B")


@pytest.mark.parametrize("rows", [[2, 0], [1], []])
def test_rows_that_were_selected(dataset, rows):
    t = from_datasets(dataset.select(rows))
    assert t.tolist() == {name: [given[i] for i in rows] for name, given in EXPECTED.items()}


def test_streams_and_parts(dataset, tmp_path):
    streamed = dataset.remove_columns("grid").to_iterable_dataset()
    expected = {name: rows for name, rows in EXPECTED.items() if name != "grid"}
    assert from_datasets(streamed).tolist() == expected
    assert [block.rows for block in dataset_blocks(dataset, rows=2)] == [2, 1]
    dataset_to_folder(dataset, tmp_path / "folder", rows=2)
    assert sr.open(tmp_path / "folder").tolist() == EXPECTED
    dataset_to_folder(dataset.select([]), tmp_path / "none")
    assert len(sr.open(tmp_path / "none")) == 0


def test_what_is_no_dataset(dataset):
    with pytest.raises(TypeError, match=r"one split of a dataset, got several: \['train'\]"):
        from_datasets(datasets.DatasetDict({"train": dataset}))
    with pytest.raises(TypeError, match=r"takes a datasets.Dataset, got list"):
        from_datasets([1])
    wrong = datasets.Dataset.from_dict({"label": [0, 1]}).cast_column("label", datasets.Value("int64"))
    wrong.info.features["label"] = datasets.ClassLabel(names=["only"])
    with pytest.raises(ValueError, match="label 1, but only 1 names"):
        from_datasets(wrong)


@pytest.mark.parametrize("flat", [False, True])
def test_and_back(dataset, tmp_path, flat):
    t = from_datasets(dataset)
    made = to_datasets(t.block(), flat=flat)
    assert len(made) == 3
    if flat:
        assert {name: made[name][:] for name in made.column_names} == EXPECTED
    else:
        assert made["visits"][:] == ROWS["visits"]
        assert made["level1"][0] == [{"tokens": "a", "tags": "O"}, {"tokens": "b", "tags": "B"}]
    levels = {"time": "visits", "codes": "visits.codes"} if flat else None
    back = from_datasets(made, levels=levels)
    assert back.drop("grid") == t.drop("grid")
    assert back["grid"].tolist() == t["grid"].tolist()
    mapped = made.map(lambda row: {"id": row["id"] + 1})
    assert mapped["id"][:] == [2, 3, 4]
    made.save_to_disk(tmp_path / "saved", num_proc=1)
    assert from_datasets(datasets.load_from_disk(tmp_path / "saved"), levels=levels).tolist() == back.tolist()


def test_missing_values_and_times():
    t = sr.Table({"n": [1, None, 3], "t": np.array([1, 2, "NaT"], "datetime64[ms]"), "f": np.zeros((3, 2), np.float32)})
    made = to_datasets(t.block())
    assert made["n"][:] == [1, None, 3]
    assert made["t"][2] is None
    assert from_datasets(made)["f"].tolist() == [[0, 0]] * 3
