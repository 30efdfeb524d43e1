"""Manipulation: against torch on the padded tensor and on each row; views, structure shared, torch's calls."""

from __future__ import annotations

import doctest
import itertools
import math

import numpy as np
import pytest
import torch
from tests.ops.expected import dtype_rule
from tests.ops.samples import DTYPES, NAMES, elements, leaves, sample
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import AxisError, DeviceMismatchError, RaggednessError
from serrate.ops.derivatives import pullback
from serrate.ops.record import TABLE

OPS = [op for op in TABLE.values() if op.family in ("manipulation", "arrangement", "dtypes")]
ALL = [dtype for kind in DTYPES.values() for dtype in kind]


def usable(name: str, dtype: torch.dtype) -> bool:
    return name != "NaN and inf" or dtype.is_floating_point


def numbered(*shape: int | sr.Ragged) -> sr.Tensor:
    """A tensor whose elements are 1, 2, 3, … in storage."""
    x = sr.zeros(shape, dtype=torch.int64)
    return x._with(torch.arange(1, x.values.numel() + 1).view(x.values.shape))


def padded(x: sr.Tensor) -> torch.Tensor:
    return x.to_dense().torch()


def padded_shape(shape: tuple[int | sr.Ragged, ...]) -> list[int]:
    return [axis.partition.max_length if isinstance(axis, sr.Ragged) else axis for axis in shape]


R = sr.Ragged([3, 0, 1, 2])
PAIRS = sr.Ragged([3, 0, 1, 2], parents=(0, 1))
INNER = sr.Ragged([1, 2, 0, 3, 0, 1], parents=(0, 1))
SHAPED = {
    "features": lambda: numbered(4, R, 6, 2),
    "no features": lambda: numbered(4, R),
    "two parents": lambda: numbered(2, 2, PAIRS, 4),
    "two levels": lambda: numbered(4, R, INNER, 4),
    "product": lambda: numbered(4, R, sr.Ragged([1, 2, 0, 2]), 4),
    "features before": lambda: numbered(4, R, 6, 2).permute_dims((2, 0, 3, 1)),
    "features between": lambda: numbered(4, R, 6, 2).permute_dims((0, 3, 1, 2)),
    "features turned": lambda: numbered(4, R, 6, 2).permute_dims((0, 1, 3, 2)),
    "one row": lambda: numbered(1, sr.Ragged([3]), 4),
    "one row behind": lambda: numbered(1, sr.Ragged([3]), 4)[None],
    "no entries": lambda: numbered(4, R, 0, 3),
    "no rows": lambda: numbered(0, sr.Ragged([]), 4),
    "dense": lambda: numbered(4, 6),
}


def factorings(size: int, most: int = 3) -> list[tuple[int, ...]]:
    """Ways to write a run of axes with `size` entries, some with ones."""
    if size == 0:
        return [(0,), (0, 2), (3, 0), (2, 0, 1)]
    found = {(size,), (1, size), (size, 1)} | ({()} if size == 1 else set())
    for a in range(2, size):
        if size % a == 0:
            found |= {(a, size // a), (a, 1, size // a)}
            found |= {(a, *rest) for rest in factorings(size // a, most - 1) if most > 1 and size // a > 1}
    return sorted(found)


def runs(shape: tuple[int | sr.Ragged, ...]) -> list[list[int]]:
    found: list[list[int]] = [[]]
    for axis in shape:
        if isinstance(axis, sr.Ragged):
            found.append([])
        else:
            found[-1].append(axis)
    return found


def holds_parents(x: sr.Tensor, run: int) -> bool:
    ragged = [i for i, axis in enumerate(x.shape) if isinstance(axis, sr.Ragged)]
    parents = {p for i in ragged for p in x.shape[i].parents if p not in ragged}
    return any(sum(i < p for i in ragged) == run for p in parents)


def reshapings(x: sr.Tensor):
    ragged = [axis for axis in x.shape if isinstance(axis, sr.Ragged)]
    for chosen in itertools.product(*[factorings(math.prod(run)) for run in runs(x.shape)]):
        shape: list[int | sr.Ragged] = [*chosen[0]]
        for axis, run in zip(ragged, chosen[1:], strict=True):
            shape += [axis, *run]
        yield tuple(shape)


# --------------------------------------------------------------------------------------------------------- reshape


@pytest.mark.parametrize("name", SHAPED)
def test_reshape_equals_that_of_the_padded_tensor(name):
    x = SHAPED[name]()
    done, refused = 0, []
    for shape in reshapings(x):
        try:
            got = sr.reshape(x, shape)
        except RaggednessError:
            refused.append(shape)
            continue
        done += 1
        assert padded_shape(got.shape) == padded_shape(shape)
        assert torch.equal(padded(got), padded(x).reshape(padded_shape(shape))), shape
        assert all(a is b for a, b in zip(got.partitions, x.partitions, strict=True))
        back = sr.reshape(got, x.shape)
        assert back.shape == x.shape
        assert torch.equal(padded(back), padded(x))
    assert done > 3
    numbering = [i for i, run in enumerate(runs(x.shape)) if run and holds_parents(x, i)]
    for shape in refused:  # only where axes that number rows would change
        assert any(runs(shape)[i] != runs(x.shape)[i] for i in numbering), shape


def test_features_may_always_be_split_and_merged():
    x = SHAPED["features"]()
    for features in factorings(12):
        got = sr.reshape(x, (4, R, *features))
        assert got.structure is x.structure
        assert got.values.data_ptr() == x.values.data_ptr()
        for row, want in zip(leaves(got), leaves(x), strict=True):
            assert torch.equal(row, want.reshape(want.shape[0], *features))


def test_parents_may_be_split_and_merged_together():
    x = SHAPED["two parents"]()
    merged = sr.reshape(x, (4, x.shape[2], 4))
    assert merged.shape == (4, sr.Ragged([3, 0, 1, 2]), 4)
    assert merged.partitions[0] is x.partitions[0]
    assert merged.tolist() == [row for half in x.tolist() for row in half]
    assert sr.reshape(SHAPED["two levels"](), (2, 2, R, INNER, 4)).shape[3].parents == (0, 1, 2)
    with pytest.raises(RaggednessError, match="number the same rows"):
        sr.reshape(numbered(4, R, 6).permute_dims((0, 2, 1)), (24, R))
    lone = numbered(2, 2, sr.Ragged([3, 1]), sr.Ragged([1, 2, 0, 1], parents=(0, 1)))
    with pytest.raises(RaggednessError, match="number the same rows"):
        sr.reshape(lone, (4, *lone.shape[2:]))


@pytest.mark.parametrize("lengths", [[3], [3, 1]])
def test_a_batch_of_one_row_reshapes_as_any_other(lengths):
    x = numbered(len(lengths), sr.Ragged(lengths), 4)
    assert sr.reshape(x[None], x.shape).tolist() == x.tolist()
    assert sr.reshape(x[:, None], x.shape).tolist() == x.tolist()
    assert sr.reshape(x, x[None].shape).shape == x[None].shape
    assert sr.reshape(x, x[:, None].shape).shape == x[:, None].shape


def test_minus_one_stands_for_what_is_left():
    x = SHAPED["features"]()
    assert sr.reshape(x, (4, R, -1)).shape == (4, R, 12)
    assert sr.reshape(x, (-1, R, 6, 2)).shape == x.shape
    assert sr.reshape(x, (4, -1, 3, 4)).shape == (4, R, 3, 4)
    assert sr.reshape(x, (2, 2, -1, 12)).shape == (2, 2, PAIRS, 12)
    two = SHAPED["two levels"]()
    assert sr.reshape(two, (4, R, -1, 2, 2)).shape == (4, R, INNER, 2, 2)
    assert sr.reshape(two, (4, -1, INNER, 4)).shape == two.shape
    for shape in ((4, -1), (4, R, -1, 5), (4, R, -1, -1), (4, R, -2, 6)):
        with pytest.raises(ValueError, match="does not become"):
            sr.reshape(x, shape)
    for shape in ((-1,), (72,), (4, 3, 12), (24, 12)):
        with pytest.raises((RaggednessError, ValueError), match=r"x\.combine|does not become"):
            sr.reshape(x, shape)
    with pytest.raises(ValueError, match="does not become"):
        sr.reshape(SHAPED["no entries"](), (4, R, -1, 0))


def test_copies_and_views():
    x = SHAPED["features"]()
    assert sr.reshape(x, (4, R, 12)).values.data_ptr() == x.values.data_ptr()
    copied = sr.reshape(x, (4, R, 12), copy=True)
    assert copied.values.data_ptr() != x.values.data_ptr()
    assert copied.tolist() == sr.reshape(x, (4, R, 12)).tolist()
    turned = SHAPED["features turned"]()
    assert sr.reshape(turned, (4, R, 12)).tolist() == [
        [torch.tensor(entry).flatten().tolist() for entry in row] for row in turned.tolist()
    ]
    for call in (lambda: sr.reshape(turned, (4, R, 12), copy=False), lambda: turned.view(4, R, 12)):
        with pytest.raises(ValueError, match=r"sr\.reshape copies"):
            call()
    assert turned.contiguous().view(4, R, 12).tolist() == sr.reshape(turned, (4, R, 12)).tolist()
    assert turned.contiguous().values.is_contiguous()
    assert turned.contiguous().tolist() == turned.tolist()
    assert x.contiguous() is x
    with pytest.raises(RaggednessError, match=r"sr\.view_as_nested"):
        sr.reshape(sr.zeros((6, 2)), (4, R, 2))


def test_heads_of_attention():
    x = SHAPED["features"]().reshape(4, R, 12).double()
    batch, length, width = x.size()
    heads = x.view(batch, length, 3, 4).transpose(1, 2)
    assert heads.shape == (4, 3, R, 4)
    assert heads.structure is x.structure
    assert heads.values.data_ptr() == x.values.data_ptr()
    for got, row in zip(heads, leaves(x), strict=True):
        assert torch.equal(got.torch(), row.view(-1, 3, 4).transpose(0, 1))
    for joined in (
        heads.transpose(1, 2).reshape(batch, length, width),
        heads.transpose(1, 2).contiguous().view(batch, -1, width),
        heads.permute(0, 2, 1, 3).flatten(2),
    ):
        assert joined.shape == x.shape
        assert joined.tolist() == x.tolist()


@pytest.mark.parametrize("name", ["features", "two parents", "product"])
def test_gradients_of_shapes(name):
    x = SHAPED[name]().double()
    values = x.values.clone().requires_grad_()
    shape = (*x.shape[:-1], 2, -1)
    for run in (
        lambda v: sr.reshape(x._with(v), shape).values,
        lambda v: sr.expand_dims(x._with(v), axis=1).values,
        lambda v: sr.broadcast_to(x._with(v)[..., :1], x.shape).values,
        lambda v: sr.broadcast_to(sr.expand_dims(x._with(v), axis=0), (2, *[-1] * 0, *shifted(x.shape))).values,
    ):
        assert gradcheck(run, [values])
        assert gradgradcheck(lambda v, run=run: run(v * v), [values])


def shifted(shape):
    return tuple(sr.Ragged(a.partition, [p + 1 for p in a.parents]) if isinstance(a, sr.Ragged) else a for a in shape)


RULES = {
    "reshape": [{"shape": (4, R, 3, 4)}, {"shape": (2, 2, R, 12)}],
    "moveaxis": [{"source": 3, "destination": 1}, {"source": (0, 1), "destination": (1, 0)}],
    "permute_dims": [{"axes": (1, 3, 0, 2)}],
    "expand_dims": [{"axis": 1}, {"axis": -1}],
    "squeeze": [{"axis": 4}],
    "flip": [{"axis": 1}, {"axis": None}, {"axis": 0}],
    "roll": [{"shift": 1, "axis": 1}, {"shift": -2, "axis": 0}],
    "astype": [{"dtype": torch.float64}],
}


def test_every_gradient_rule_equals_autograd():
    for name, cases in RULES.items():
        for options in cases:
            x = SHAPED["features"]().double()
            x = sr.expand_dims(x, axis=-1) if name == "squeeze" else x
            leaf = x._with(x.values.clone()).requires_grad_()
            positional = name in ("moveaxis", "astype", "roll", "permute_dims")
            arguments = list(options.values())[
                : {"moveaxis": 2, "astype": 1, "roll": 1, "permute_dims": 1}.get(name, 0)
            ]
            rest = dict(list(options.items())[len(arguments) :]) if positional else options
            out = TABLE[name].function(leaf, *arguments, **rest)
            g = out._with(elements(out.values.shape[0], tuple(out.values.shape[1:]), torch.float64, 3))
            (want,) = torch.autograd.grad(out.values, leaf.values, g.values)
            function = TABLE[name].function
            _, back = pullback(lambda x, f=function, a=arguments, r=rest: f(x, *a, **r), x)
            (got,) = back(g)
            assert got.shape == x.shape
            torch.testing.assert_close(padded(got), padded(x._with(want)))


# ------------------------------------------------------------------------------------------------------- broadcast


@pytest.mark.parametrize("name", NAMES)
def test_broadcast_to_every_structure(name):
    for dtype in ALL:
        if not usable(name, dtype):
            continue
        x = sample(name, dtype)
        zero = sr.zeros_like(x)
        operands = [x, x[..., :1], torch.ones((), dtype=dtype), torch.ones((1,) * x.ndim, dtype=dtype)]
        operands += [torch.ones((x.shape[0], *[1] * (x.ndim - 1)), dtype=dtype)] if isinstance(x.shape[0], int) else []
        for operand in operands:
            if isinstance(operand, sr.Tensor) and operand is not x and isinstance(x.shape[-1], sr.Ragged):
                continue  # x[..., :1] of a ragged axis is ragged
            if operand is not x and operand.numel() == 0 and x.numel():
                continue
            got = sr.broadcast_to(operand, x.shape)
            want = torch.logical_or(operand, zero) if dtype == torch.bool else operand + zero
            assert got.shape == x.shape
            assert str(got.tolist()) == str(want.tolist())
            assert all(a is b for a, b in zip(got.partitions, x.partitions, strict=True))


def test_broadcasting_shares_structure_and_storage():
    x = SHAPED["features"]()
    wide = sr.broadcast_to(x, (3, *shifted(x.shape)))
    assert wide.structure is x.structure
    assert wide.values.data_ptr() == x.values.data_ptr()
    assert wide.shape == (3, *shifted(x.shape))
    assert wide.tolist() == [x.tolist()] * 3
    assert sr.broadcast_to(x, (3, *x.shape)).shape == wide.shape  # a shape that counts as x counts
    made = sr.broadcast_arrays(torch.zeros(4, 1, 1, 1), x, torch.zeros(2))
    assert [m.shape for m in made] == [x.shape] * 3
    assert all(m.structure is x.structure for m in made)
    assert sr.broadcast_arrays() == []
    dense = sr.broadcast_arrays(torch.zeros(3, 1), torch.zeros(2))
    assert [d.shape for d in dense] == [(3, 2)] * 2
    ragged = sr.broadcast_arrays(numbered(4, R, 1), torch.ones(4, 1, 3))
    assert [m.shape for m in ragged] == [(4, R, 3)] * 2
    product = sr.broadcast_arrays(numbered(4, R, 1), numbered(4, 1, sr.Ragged([1, 2, 0, 2])))
    assert product[0].shape == product[1].shape == (4, R, sr.Ragged([1, 2, 0, 2]))
    assert product[0].structure is product[1].structure
    with pytest.raises(DeviceMismatchError):
        sr.broadcast_arrays(torch.zeros(2), torch.zeros(2, device="meta"))


def test_expand():
    x = numbered(4, R, 1)
    assert x.expand(-1, -1, 5).shape == (4, R, 5)
    assert x.expand(4, R, 5).tolist() == [[entry * 5 for entry in row] for row in x.tolist()]
    assert x.expand((2, -1, -1, -1)).shape == (2, 4, sr.Ragged(R.partition, (1,)), 1)
    assert torch.zeros(4, 1, 1).expand_as(x).shape == x.shape
    assert sr.Tensor(torch.zeros(4, 1)).expand(4, R).tolist() == filled(numbered(4, R).tolist())
    assert torch.broadcast_to(x, (4, R, 2)).shape == (4, R, 2)
    assert [t.shape for t in torch.broadcast_tensors(x, torch.zeros(2))] == [(4, R, 2)] * 2
    with pytest.raises(ValueError, match="-1 keeps an axis"):
        x.expand(-1, 4, -1, 1)


def filled(nested):
    return [filled(inner) for inner in nested] if isinstance(nested, list) else 0.0


# ----------------------------------------------------------------------------------------------------- order of axes


@pytest.mark.parametrize("name", [n for n in SHAPED if n != "no rows"])
def test_axes_move_as_in_the_padded_tensor(name):
    x = SHAPED[name]()
    full = padded(x)
    for a, b in itertools.product(range(-x.ndim, x.ndim), repeat=2):
        assert torch.equal(padded(sr.moveaxis(x, a, b)), full.movedim(a, b))
        assert torch.equal(padded(x.transpose(a, b)), full.transpose(a, b))
        assert torch.equal(padded(x.swapaxes(a, b)), full.transpose(a, b))
    for axes in itertools.permutations(range(x.ndim)):
        assert torch.equal(padded(x.permute(*axes)), full.permute(axes))
        assert torch.equal(padded(x.permute(axes)), full.permute(axes))
        moved = sr.moveaxis(x, axes, tuple(range(x.ndim)))
        assert torch.equal(padded(moved), full.permute(axes))
        assert moved.values.data_ptr() == x.values.data_ptr()
    for axis in range(-x.ndim - 1, x.ndim + 1):
        assert torch.equal(padded(x.unsqueeze(axis)), full.unsqueeze(axis))
        assert x.unsqueeze(axis).squeeze(axis).shape == x.shape
    if x.shape[0] != 1:
        assert x.unsqueeze(1).squeeze().shape == x.shape
        assert x.squeeze(0) is x  # torch leaves an axis that has not size 1


def test_flatten_and_unflatten():
    x = SHAPED["features"]()
    assert x.flatten(2).shape == (4, R, 12)
    assert torch.flatten(x, 2, 3).tolist() == sr.reshape(x, (4, R, 12)).tolist()
    assert x.flatten(1, 1) is x
    assert torch.nn.Flatten(2)(x).shape == (4, R, 12)
    assert x.unflatten(2, (3, -1)).shape == (4, R, 3, 2, 2)
    assert torch.unflatten(x, 0, (2, 2)).shape == (2, 2, PAIRS, 6, 2)
    assert torch.equal(torch.flatten(sr.Tensor(torch.ones(2, 3))), torch.ones(6))
    assert sr.Tensor(torch.ones(())).flatten().shape == (1,)
    with pytest.raises(RaggednessError, match=r"x\.combine"):
        x.flatten()
    with pytest.raises(RaggednessError, match="axis 1 of shape"):
        x.unflatten(1, (2, -1))
    with pytest.raises(ValueError, match="start_dim before end_dim"):
        x.flatten(3, 2)


def test_unstack():
    for name in ("features", "two parents", "features before", "dense"):
        x = SHAPED[name]()
        for axis, size in enumerate(x.shape):
            if isinstance(size, int):
                got = sr.unstack(x, axis=axis)
                assert isinstance(got, tuple)
                for i, entry in enumerate(got):
                    assert entry.shape == x[(*[slice(None)] * axis, i)].shape
                    assert entry.tolist() == x[(*[slice(None)] * axis, i)].tolist()
    assert [type(t) for t in torch.unbind(SHAPED["features"]())] == [torch.Tensor] * 4
    assert len(SHAPED["features"]().unbind(3)) == 2
    with pytest.raises(AxisError):
        sr.unstack(torch.ones(()))


# --------------------------------------------------------------------------------------------- joining and repeating


def test_torch_calls_of_joining_and_splitting():
    x, y = SHAPED["features"](), SHAPED["features"]() * 2
    for call in (torch.cat, torch.concat, torch.concatenate):
        assert call([x, y], 1).tolist() == [a + b for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        assert call([x, y], dim=0).tolist() == x.tolist() + y.tolist()
    assert torch.cat([x, y], axis=2).shape == (4, R, 12, 2)
    assert torch.stack([x, y]).tolist() == [x.tolist(), y.tolist()]
    assert torch.stack([x, y], dim=-1).shape == (4, R, 6, 2, 2)
    pieces = torch.split(x, 2, dim=1)
    assert isinstance(pieces, tuple)
    assert [p.tolist() for p in pieces] == [[row[:2] for row in x.tolist()], [row[2:4] for row in x.tolist()]]
    assert [p.shape[2] for p in x.split([1, 5], 2)] == [1, 5]
    assert [p.shape[0] for p in x.split(split_size=3)] == [3, 1]
    assert [p.shape[2] for p in x.chunk(4, 2)] == [c.shape[0] for c in torch.arange(6).chunk(4)]
    assert [p.shape for p in SHAPED["no entries"]().chunk(2, 2)] == [(4, R, 0, 3)] * 2
    assert torch.chunk(x, 3)[1].shape[0] == 2
    with pytest.raises(RaggednessError, match="split takes"):
        x.chunk(2, 1)
    with pytest.raises(ValueError, match="positive number"):
        x.chunk(0)
    with pytest.raises(TypeError, match=r"not defined for sr\.Tensor"):
        torch.cat([x, y], 1, out=torch.zeros(2))


def test_torch_calls_of_reordering():
    x = SHAPED["features"]()
    rows = x.tolist()
    assert torch.flip(x, [1]).tolist() == [row[::-1] for row in rows]
    assert x.flip(0, 1).tolist() == [row[::-1] for row in rows[::-1]]
    assert x.flip(dims=(0,)).tolist() == rows[::-1]
    assert torch.roll(x, 1, 1).tolist() == [row[-1:] + row[:-1] for row in rows]
    assert x.roll(shifts=(1, 1), dims=(0, 1)).tolist() == sr.roll(x, (1, 1), axis=(0, 1)).tolist()
    assert torch.roll(x, 2).values.flatten().tolist() == x.values.roll(2).flatten().tolist()
    assert torch.tile(x, (2, 1, 1)).tolist() == [row * 2 for row in rows]
    assert x.tile(2, 1, 1).tolist() == [row * 2 for row in rows]
    assert x.repeat(1, 2, 1, 1).tolist() == [row * 2 for row in rows]
    assert x.repeat(2, 1, 1, 1, 1).tolist() == [rows, rows]
    assert torch.repeat_interleave(x, 2, dim=1).tolist() == [[e for e in row for _ in range(2)] for row in rows]
    assert x.repeat_interleave(2, 0).tolist() == [row for row in rows for _ in range(2)]
    with pytest.raises(ValueError, match="a count for each of the 4 axes"):
        x.repeat(2, 2)


def test_clone_and_detach():
    x = sample("features", torch.float64).requires_grad_()
    made = torch.clone(x, memory_format=torch.preserve_format)
    assert made.values.data_ptr() != x.values.data_ptr()
    assert made.requires_grad
    assert not torch.detach(x).requires_grad
    assert torch.detach(x).partitions[0] is x.partitions[0]


# ----------------------------------------------------------------------------------------------------------- dtypes


def test_astype_and_torchs_calls():
    x = sample("features", torch.float32)
    assert sr.astype(x, torch.float32, copy=False) is x
    assert sr.astype(x, torch.float32).values.data_ptr() != x.values.data_ptr()
    assert sr.astype(x, torch.int8).structure is x.structure
    assert sr.astype(x, torch.float64, device="meta").device.type == "meta"
    calls = {"float": 32, "double": 64, "half": 16, "bfloat16": 16, "long": 64, "int": 32, "short": 16, "char": 8}
    for name, size in {**calls, "byte": 8, "bool": 8, "cfloat": 64, "cdouble": 128}.items():
        got = getattr(x, name)()
        assert got.dtype == getattr(x.values, name)().dtype
        assert got.dtype.itemsize * 8 == size
        assert torch.equal(got.values, getattr(x.values, name)())
    assert x.type_as(x.half()).dtype == torch.float16
    assert x.type_as(torch.ones(1).long()).dtype == torch.int64
    assert torch.ones(2).type_as(x.double()).dtype == torch.float64


KINDS = {
    "bool": ["bool"],
    "signed integer": ["int8", "int16", "int32", "int64"],
    "unsigned integer": ["uint8", "uint16", "uint32", "uint64"],
    "real floating": ["float16", "bfloat16", "float32", "float64"],
    "complex floating": ["complex64", "complex128"],
}


def test_kinds_of_dtypes():
    kinds = KINDS | {"integral": KINDS["signed integer"] + KINDS["unsigned integer"]}
    kinds["numeric"] = [n for kind, names in KINDS.items() if kind != "bool" for n in names]
    everything = [n for names in KINDS.values() for n in names]
    for kind, names in kinds.items():
        for name in everything:
            assert sr.isdtype(getattr(torch, name), kind) == (name in names)
    assert sr.isdtype(torch.int8, torch.int8)
    assert sr.isdtype(torch.int8, ("bool", "integral"))
    assert not sr.isdtype(torch.float32, (torch.int8, ("bool",)))
    with pytest.raises(ValueError, match="kind must be"):
        sr.isdtype(torch.int8, "integer")
    with pytest.raises(TypeError, match="kind must be"):
        sr.isdtype(torch.int8, 5)


def test_promotion():
    assert sr.result_type(torch.int32, torch.int64) == torch.int64
    assert sr.result_type(torch.uint8, torch.int8) == torch.int16
    assert sr.result_type(torch.float16, 2.5) == torch.float16
    assert sr.result_type(torch.int16, 5) == torch.int16
    assert sr.result_type(torch.int16, 5.0) == torch.get_default_dtype()
    assert sr.result_type(torch.float64, 1j) == torch.complex128
    assert sr.result_type(sr.ragged([[1.0]]), torch.ones(1).double()) == torch.float64
    assert sr.result_type(torch.float32, np.float64(2)) == torch.float32
    with pytest.raises(ValueError, match="at least one"):
        sr.result_type(1, 2.0)
    with pytest.raises(TypeError, match=r"sr\.Tensor"):
        sr.result_type("float32")
    assert sr.can_cast(torch.int8, torch.int32)
    assert sr.can_cast(sr.ragged([[True]]), torch.int8)
    assert not sr.can_cast(torch.int32, torch.int8)
    assert not sr.can_cast(torch.complex64, torch.float32)
    for name in ("float32", "float64", "float16", "bfloat16"):
        found, want = sr.finfo(getattr(torch, name)), torch.finfo(getattr(torch, name))
        assert found.dtype == getattr(torch, name)
        assert all(getattr(found, n) == getattr(want, n) for n in ("bits", "eps", "max", "min", "smallest_normal"))
    assert sr.finfo(torch.complex128) == sr.finfo(torch.float64) == sr.finfo(torch.ones(1).double())
    assert (sr.iinfo(torch.uint8).max, sr.iinfo(sr.ragged([[1]])).bits) == (255, 64)
    with pytest.raises(TypeError, match="finfo needs"):
        sr.finfo(torch.int8)
    with pytest.raises(TypeError, match="iinfo needs"):
        sr.iinfo(torch.float32)


# ---------------------------------------------------------------------------------------- device-born, and the records


def test_nothing_waits_for_device_born_lengths():
    for name in ("features", "two levels", "product"):
        x = SHAPED[name]()
        d = sr.testing.device_born(x, spare=3)
        with sr.testing.forbid_sync():
            made = [
                sr.reshape(d, (*d.shape[:-1], 2, -1)),
                d.view(d.shape),
                sr.broadcast_to(d, (2, *d.shape)),
                sr.broadcast_arrays(d, torch.ones(()))[1],
                sr.broadcast_to(torch.ones(4, *[1] * (d.ndim - 1)), d.shape) if name != "product" else d,
                sr.moveaxis(d, -1, 1),
                d.unsqueeze(0).squeeze(0),
                d.half(),
            ]
        wanted = [
            sr.reshape(x, (*x.shape[:-1], 2, -1)),
            x,
            sr.broadcast_to(x, (2, *x.shape)),
            sr.ones_like(x),
            sr.ones_like(x) if name != "product" else x,
            sr.moveaxis(x, -1, 1),
            x,
            x.half(),
        ]
        assert [m.tolist() for m in made] == [w.tolist() for w in wanted]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_samples_run_on_every_structure_and_dtype(op):
    for name in NAMES:
        for dtype in ALL:
            if usable(name, dtype):
                x = sample(name, dtype)
                for arguments in op.samples:
                    got = eval(f"op.function({arguments})", {"op": op, "x": x, "sr": sr, "torch": torch})
                    parts = got if isinstance(got, (list, tuple)) else [got]
                    assert all(isinstance(part, sr.Tensor) for part in parts)
                    if dtype_rule(op.name) == "same" and "torch." not in arguments:
                        assert all(part.dtype == dtype for part in parts)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_wrong_calls_are_named(op):
    x = sr.from_lengths(torch.ones(6, 2), [3, 1, 2])
    assert op.errors
    for arguments, kind, text in op.errors:
        with pytest.raises(kind, match=text):
            eval(f"op.function({arguments})", {"op": op, "x": x, "sr": sr, "torch": torch})


def test_more_wrong_calls():
    x = SHAPED["features"]()
    with pytest.raises(TypeError, match=r"view of an sr\.Tensor takes a shape"):
        x.view(torch.int32)
    with pytest.raises(RaggednessError, match="has Ragged"):
        x.view(4, sr.Ragged([1, 2, 3, 0]), 12)
    with pytest.raises(RaggednessError, match="in this order"):
        sr.reshape(SHAPED["two levels"](), (4, R, 4))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_docstring_and_the_example_run(op):
    call, gives = op.example
    for text in (op.function.__doc__, f">>> import torch, serrate as sr\n>>> {call}\n{gives}\n"):
        found = doctest.DocTestParser().get_doctest(text, {}, op.name, None, 0)
        assert found.examples
        assert doctest.DocTestRunner(verbose=False).run(found).failed == 0
