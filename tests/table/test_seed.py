"""The example of the seed: two patients of 3 visits and 1, with 2, 4, 1 and 3 codes, and how it lies."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

import serrate as sr

# pijk is code k of visit j of patient i.
CODES = [[[111, 112], [121, 122, 123, 124], [131]], [[221, 222, 223]]]
TIMES = [[10, 20, 30], [40]]
PRIORITY = [[[1, 2], [4, 3, 2, 1], [1]], [[3, 1, 2]]]
LEVELS = {"code": "visits.codes", "time": "visits", "priority": "visits.codes"}
DENSE = [
    [[111, 112, 0, 0], [121, 122, 123, 124], [131, 0, 0, 0]],
    [[221, 222, 223, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
]


def patients() -> sr.Table:
    return sr.Table({"code": CODES, "time": TIMES, "priority": PRIORITY}, LEVELS)


def test_ten_codes_stand_for_twenty_four_dense_ones() -> None:
    table = patients().select(["code"])
    dense = table.to_dense()
    assert dense["code"].tolist() == DENSE
    assert table["code"].values.tolist() == [code for row in CODES for visit in row for code in visit]
    assert dense["code"].numel() == 24
    assert table["code"].numel() == 10
    assert table.dense_nbytes == 24 * 8 + 24 + 6  # and a mask of codes, and one of visits


def test_lengths_per_level_and_their_sums() -> None:
    packed = patients().to_packed()
    assert packed.lengths["visits"].tolist() == [3, 1]
    assert packed.lengths["visits.codes"].tolist() == [2, 4, 1, 3]
    assert packed.offsets["visits"].tolist() == [0, 3, 4]
    assert packed.offsets["visits.codes"].tolist() == [0, 2, 6, 7, 10]


def test_one_patient_and_one_patients_visits() -> None:
    table = patients()
    assert table[0]["code"].tolist() == CODES[0]
    assert table[0]["time"].tolist() == TIMES[0]
    assert table[0, 1:3]["code"].tolist() == CODES[0][1:3]
    assert table[0, 1]["code"].tolist() == CODES[0][1]
    assert table[0, 1]["time"].tolist() == 20
    assert table[1, -1, 0]["code"].tolist() == 221


def test_columns_share_their_structure() -> None:
    table = patients()
    code, time, priority = table["code"], table["time"], table["priority"]
    assert code.partitions[0] is time.partitions[0]
    assert code.partitions[0] is priority.partitions[0]
    assert code.partitions[1] is priority.partitions[1]


def test_columns_are_views() -> None:
    values = torch.arange(10)
    given = sr.ragged(CODES)
    made = sr.Table({"code": sr.Tensor(values, given.structure)})
    assert made["code"].values.data_ptr() == values.data_ptr()


def test_the_file_has_each_length_once(tmp_path: Path) -> None:
    patients().save(tmp_path / "patients.safetensors")
    tensors = load_file(tmp_path / "patients.safetensors")
    held = {name: tensor.tolist() for name, tensor in tensors.items() if not name.startswith("padding/")}
    assert held == {
        "offsets/visits": [0, 3, 4],
        "offsets/visits.codes": [0, 2, 6, 7, 10],
        "composed/visits.codes": [0, 7, 10],
        "values/time": [10, 20, 30, 40],
        "values/code": [code for row in CODES for visit in row for code in visit],
        "values/priority": [1, 2, 4, 3, 2, 1, 1, 3, 1, 2],
    }
    assert tensors["offsets/visits"].dtype == torch.int32


def test_what_is_read_is_what_was_saved(tmp_path: Path) -> None:
    patients().save(tmp_path / "patients", rows_per_shard=1)
    assert sr.open(tmp_path / "patients") == patients()
    assert sr.open(tmp_path / "patients").to_dense()["code"].tolist() == DENSE
