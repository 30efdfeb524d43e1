"""Inputs that do not lie contiguously in memory are read in place, against torch on the same tensors."""

from __future__ import annotations

import pytest
import torch
from tests.fusion.samples import offsets_of
from tests.kernel.harness import agree

from serrate.errors import RaggednessError
from serrate.fusion import Fusion, ParallelType, symbol
from serrate.kernel import Lowered, lower


def doubled(*strides: int | None) -> Lowered:
    fusion = Fusion()
    return lower(fusion, fusion.output(fusion.input("x", ["m", "n"], strides=strides) * 2, "y"))


def memories() -> dict[str, torch.Tensor]:
    x = torch.arange(48.0).reshape(6, 8)
    return {
        "contiguous": x,
        "transposed": x.T,
        "every second": x[::2, 1::3],
        "expanded rows": x[:1].expand(5, 8),
        "expanded columns": x[:, :1].expand(6, 3),
        "one number": x[:1, :1].expand(4, 4),
        "no rows": x[:0, ::2],
        "no columns": x.T[:, :0],
        "one row": x[2:3, ::2],
    }


@pytest.mark.parametrize("name", memories())
def test_any_strides(name: str) -> None:
    lowered, given = doubled(None, None), memories()[name]
    agree(lowered, given)
    assert torch.equal(lowered(given)[0], given * 2)
    out = torch.empty(given.shape)
    assert torch.equal(lowered(given, out=out)[0], given * 2)
    assert torch.equal(lowered.prepared(["cpu"])(given)[0], given * 2)


def test_one_kernel_for_all_strides() -> None:
    lowered = doubled(None, None)
    for given in memories().values():
        assert torch.equal(lowered(given)[0], given * 2)


def test_known_strides() -> None:
    lowered = doubled(None, 1)
    rows = torch.arange(48.0).reshape(6, 8)[:, 2:5]
    agree(lowered, rows)
    assert torch.equal(lowered(rows)[0], rows * 2)
    with pytest.raises(ValueError, match=r"axis 1 of x.* has the stride 1, got 8"):
        lowered(rows.T)
    shared = doubled(0, 1)
    row = torch.arange(4.0).expand(3, 4)
    agree(shared, row)
    assert torch.equal(shared(row)[0], row * 2)
    assert "x_stride0" not in str(shared.kernel)


def test_ragged_values_with_strides() -> None:
    fusion, lengths = Fusion(), [3, 0, 4, 1]
    data = fusion.input("x", ["n", 2], strides=[None, None])
    rows = fusion.view_as_nested(data, fusion.input("offsets", [symbol("k") + 1], "int64"))
    fusion.output(fusion.reduce("sum", rows, [1]), "y")
    values = torch.randn(2, 8).T
    lowered = lower(fusion, fusion.outputs[0])
    agree(lowered, values, offsets_of(lengths))
    want = torch.stack([row.sum(0) for row in values.split(lengths)])
    torch.testing.assert_close(lowered(values, offsets_of(lengths))[0], want)


def test_conjugated_and_negated_memory() -> None:
    fusion = Fusion()
    lowered = lower(fusion, fusion.output(fusion.input("z", ["n"], "complex64", strides=[None]) * 1j, "y"))
    z = torch.randn(6, dtype=torch.complex64)[::2]
    for given in (z, z.conj(), torch._neg_view(z), z):
        assert torch.equal(lowered(given)[0], given * 1j)
    fusion = Fusion()
    lowered = lower(fusion, fusion.output(fusion.input("x", ["n"], strides=[None]) * 2, "y"))
    assert torch.equal(lowered(z.imag)[0], z.imag * 2)
    assert torch.equal(lowered(z.conj().imag)[0], z.conj().imag * 2)


def test_output_between_the_elements_of_an_input_is_refused() -> None:
    memory = torch.zeros(16)
    fusion = Fusion()
    lowered = lower(fusion, fusion.output(fusion.input("x", ["n"], strides=[None]) * 2, "y"))
    with pytest.raises(ValueError, match="shares memory"):
        lowered(memory[::5], out=memory[6:10])


def test_wide_accesses_only_of_what_is_adjacent() -> None:
    for strides, wide in ((None, True), ([None], False), ([1], True)):
        fusion = Fusion()
        y = fusion.output(fusion.input("x", [256], strides=strides) * 2, "y")
        y.split(0, 4).parallelize(1, ParallelType.Vectorize).parallelize(0, ParallelType.TIDx)
        assert ("sr::load<4>(" in lower(fusion, y, target="cuda").source) == wide


def test_contiguous_inputs_are_still_asked_for_by_default() -> None:
    fusion = Fusion()
    lowered = lower(fusion, fusion.output(fusion.input("x", ["n"]) * 2, "y"))
    with pytest.raises(TypeError, match="not contiguous"):
        lowered(torch.zeros(8)[::2])


def test_wrong_strides() -> None:
    fusion = Fusion()
    with pytest.raises(ValueError, match=r"lies in memory by 2 axes, got 1 strides"):
        fusion.input("x", ["m", "n"], strides=[None])
    with pytest.raises(ValueError, match=r"is 0 or more, got -1"):
        fusion.input("y", ["m"], strides=[-1])
    with pytest.raises(TypeError, match=r"a number of elements or None, got 'n'"):
        fusion.input("z", ["m"], strides=["n"])  # type: ignore[list-item]
    with pytest.raises(RaggednessError, match="offsets lie contiguously in memory"):
        fusion.view_as_nested(fusion.input("d", ["n"]), fusion.input("o", ["k"], "int64", strides=[None]))


def test_strides_are_part_of_what_a_fusion_is() -> None:
    keys = set()
    for strides in (None, [None], [1], [2]):
        fusion = Fusion()
        fusion.output(fusion.input("x", ["n"], strides=strides), "y")
        assert fusion.clone() == fusion
        keys.add(fusion.key())
    assert len(keys) == 4
