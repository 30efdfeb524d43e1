"""How fusions and schedules are printed, and the names of tensors."""

from __future__ import annotations

import re

import torch
from tests.fusion.samples import everything, nested, offsets_of, some

from serrate.fusion import Fusion, ParallelType


def test_printing() -> None:
    assert str(everything()) == "\n".join([
        "inputs:",
        "  x[iS_i{n}, iS_d{4}] float32",
        "  offsets[iS_i{k + 1}] int64",
        "  w[iS_i{k}, iS_d{4}] float32",
        "  table[iS_i{3}, iS_d{2}] float32",
        "  ids[iS_i{5}] int64",
        "t2[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32 = view_as_nested(x, offsets, 0)",
        "t4[iS_i{k}, bS{1}, iS_d{4}] float32 = broadcast(w, False, True, False)",
        "t5[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32 = multiply(t2, t4)",
        "t6[iS_c{k}, rS_r{[offsets]}, iS_d{4}] float32 = sum(t5, (1,), False)",
        "padded[iS_c{k}, iS_r{[offsets_plus_1]}, iS_d{4}] float32 = pad(t5, 1, 1, 0, 2.0)",
        "rows[iS_i{5}, iS_d{2}] float32 = gather(table, ids, 0, 0)",
        "t11[iS_c{k}, iS_r{[offsets]}, iS_d{4}] bool = less(t2, 0.5)",
        "chosen[iS_c{k}, iS_r{[offsets]}, iS_d{4}] float32 = where(t11, t2, 0.0)",
        "half[iS_c{k}, iS_d{4}] float16 = cast(t6)",
        "row[iS_r{offsets[2] - offsets[1]}, iS_d{4}] float32 = select(t2, 0, 1)",
        "outputs: padded, rows, chosen, half, row",
    ])  # fmt: skip


def test_a_schedule_is_printed() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.copy(nested(fusion, 4)), "y")
    y.split(1, 2).combine(0).parallelize(0, ParallelType.BIDx).parallelize(2, ParallelType.TIDx)
    assert repr(y) == "y[iblockIdx.x_cr_outer{offsets_by_2[k]}, iS_r_inner{2}, ithreadIdx.x_d{4}] float32"
    assert repr(y) in str(fusion)


# Names


def test_names_are_found_and_unique() -> None:
    fusion = everything()
    names = [tensor.name for tensor in fusion.tensors]
    assert len(set(names)) == len(names)
    assert all(fusion.named(name).name == name for name in names)
    assert all(re.fullmatch(r"\w+", name) for name in names)


def test_an_input_as_an_output_is_copied() -> None:
    fusion = Fusion()
    x = fusion.input("x", [3])
    y = fusion.output(x, "y")
    z = fusion.output(nested(fusion, name="data"), "z")
    assert y is not x
    assert [str(tensor.definition) for tensor in (y, z)] == ["copy(x)", "copy(t4)"]
    a = some(3)
    for got in fusion.evaluate(a, a, offsets_of([1, 2])):
        assert torch.equal(got, a)
