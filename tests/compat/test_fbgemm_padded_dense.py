"""Padding and packing under FBGEMM's names are compared with FBGEMM itself and with copies row by row."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest
import torch
from tests.compat.jagged_rows import offsets_of, padded, random_levels, same, unpadded
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.compat import fbgemm
from serrate.compat.fbgemm.padding import are_held, first_rows, pad, put_back, unpad
from serrate.errors import RaggednessError
from serrate.tensor.partition import Partition

pytestmark = pytest.mark.usefixtures("way")

pytest.importorskip("fbgemm_gpu")
theirs = torch.ops.fbgemm


def values_for(offsets: list[torch.Tensor], features: tuple[int, ...], dtype: torch.dtype, spare: int = 0) -> Any:
    rows = int(offsets[-1][-1]) + spare
    made = torch.arange(1, rows * max(1, torch.Size(features).numel()) + 1) % 100
    return made[: rows * torch.Size(features).numel()].reshape(rows, *features).to(dtype)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("most", [0, 1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_like_fbgemm(depth: int, most: int, dtype: torch.dtype) -> None:
    for seed in range(4):
        offsets = offsets_of(*random_levels(depth, 3, seed), dtype=dtype)
        values = torch.randn(int(offsets[-1][-1]), 3)
        sizes = [most] * depth
        same(
            fbgemm.jagged_to_padded_dense(values, offsets, sizes, 1.5),
            theirs.jagged_to_padded_dense(values, offsets, sizes, 1.5),
        )
        dense = torch.randn(3, *sizes, 3)
        ours, expected = fbgemm.dense_to_jagged(dense, offsets), theirs.dense_to_jagged(dense, offsets)
        same(ours[0], expected[0])
        assert all(a is b for a, b in zip(ours[1], offsets, strict=True))


@pytest.mark.parametrize("features", [(), (2,), (2, 3), (1, 2, 1), (0,), (2, 0)])
@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("spare", [0, 3])
def test_any_features_and_rows_past_the_end(features: tuple[int, ...], depth: int, spare: int) -> None:
    offsets = offsets_of(*random_levels(depth, 4, depth))
    values = values_for(offsets, features, torch.float64, spare)
    for most in (0, 1, 4):
        sizes = [most] * depth
        dense = fbgemm.jagged_to_padded_dense(values, offsets, sizes, -2)
        same(dense, padded(values, offsets, sizes, -2))
        assert dense.is_contiguous()
        rows = values.shape[0]
        same(fbgemm.dense_to_jagged(dense, offsets, rows)[0], unpadded(dense, offsets, rows))


DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.bool,
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("depth", [1, 2])
def test_any_dtype(dtype: torch.dtype, depth: int) -> None:
    offsets = offsets_of(*random_levels(depth, 3, 1))
    exact = values_for(offsets, (2,), torch.int64)
    values = (exact % 2).to(dtype)
    for most in (1, 4):
        sizes = [most] * depth
        ours = fbgemm.jagged_to_padded_dense(values, offsets, sizes, 1)
        assert ours.dtype == dtype
        wide = torch.complex128 if dtype.is_complex else torch.float64
        same(ours.to(wide), padded(exact % 2, offsets, sizes, 1).to(wide))
        back = fbgemm.dense_to_jagged(ours, offsets)[0]
        assert back.dtype == dtype
        same(back.to(wide), unpadded(ours.to(wide), offsets, values.shape[0]))


def test_bits_survive() -> None:
    values = torch.tensor([-0.0, float("nan"), float("inf"), 1e-45, -float("inf")])
    made = fbgemm.jagged_to_padded_dense(values, offsets_of([2, 0, 3]), [3], -0.0)
    expected = torch.tensor([[-0.0, float("nan"), -0.0], [-0.0] * 3, [float("inf"), 1e-45, -float("inf")]])
    same(made, expected)
    assert torch.equal(made.signbit(), expected.signbit())


@pytest.mark.parametrize("padding", [float("nan"), float("inf"), -float("inf"), 1e38, 7])
def test_padding_values(padding: float) -> None:
    offsets = offsets_of([1, 0, 2])
    values = torch.randn(3, 2)
    same(
        fbgemm.jagged_to_padded_dense(values, offsets, [2], padding),
        theirs.jagged_to_padded_dense(values, offsets, [2], padding),
    )


def test_layouts() -> None:
    offsets = [torch.tensor([0, 9, 2, 9, 2, 9, 5])[::2]]
    wide = torch.randn(2, 5).T
    same(fbgemm.jagged_to_padded_dense(wide, offsets, [3]), padded(wide, offsets, [3], 0))
    dense = torch.randn(2, 4, 3).permute(2, 1, 0)
    same(fbgemm.dense_to_jagged(dense, offsets)[0], unpadded(dense, offsets, 5))
    same(
        fbgemm.dense_to_jagged(dense[:, :1].expand(3, 4, 2), offsets)[0],
        unpadded(dense[:, :1].expand(3, 4, 2), offsets, 5),
    )


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [5], [2, 2, 2]])
def test_empty_and_equal_rows(lengths: list[int]) -> None:
    offsets = offsets_of(lengths)
    values = torch.randn(sum(lengths), 2)
    for most in (0, 2, 6):
        ours = fbgemm.jagged_to_padded_dense(values, offsets, [most], 3)
        same(ours, padded(values, offsets, [most], 3))
        same(fbgemm.dense_to_jagged(ours, offsets)[0], unpadded(ours, offsets, len(values)))
        same(fbgemm.jagged_2d_to_dense(values, offsets[0], most), padded(values, offsets, [most], 0))
    if values.numel():
        assert fbgemm.jagged_to_padded_dense(values, offsets, [2]).data_ptr() != values.data_ptr()


def test_results_are_nobody_elses() -> None:
    dense = torch.randn(2, 2, 3)
    made = fbgemm.dense_to_jagged(dense, offsets_of([2, 2]))[0]
    made.zero_()
    assert dense.abs().min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16])
def test_one_and_two_dimensional(dtype: torch.dtype) -> None:
    for seed in range(3):
        (offsets,) = offsets_of(*random_levels(1, 5, seed))
        values = torch.randint(-9, 9, (int(offsets[-1]) + seed, 3)).to(dtype)
        first = values[:, 0].contiguous()
        for most in (1, 2, 9):
            same(fbgemm.jagged_1d_to_dense(first, offsets, most, 7), theirs.jagged_1d_to_dense(first, offsets, most, 7))
            same(fbgemm.jagged_2d_to_dense(values, offsets, most), theirs.jagged_2d_to_dense(values, offsets, most))


@pytest.mark.parametrize("spare", [0, 2])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_stacked(spare: int, dtype: torch.dtype) -> None:
    lengths = torch.tensor([[2, 0, 1], [0, 0, 0], [1, 3, 2]], dtype=dtype)
    starts = [0, 3, 3 + spare, 9 + spare]
    values = torch.randn(9 + 2 * spare, 4)
    for sizes in ([2, 1, 3], [1, 0, 2], [5, 2, 1]):
        ours = fbgemm.stacked_jagged_2d_to_dense(values, lengths, starts, sizes, 5)
        first = fbgemm.stacked_jagged_1d_to_dense(values[:, 0], lengths, starts, sizes, 5)
        assert isinstance(ours, list)
        for key, (a, b) in enumerate(zip(ours, first, strict=True)):
            part = values[starts[key] : starts[key + 1]]
            expected = padded(part, offsets_of(lengths[key].tolist()), [sizes[key]], 5)
            same(a, expected)
            same(b, expected[..., 0])
        if 0 not in sizes:
            for a, b in zip(ours, theirs.stacked_jagged_2d_to_dense(values, lengths, starts, sizes, 5), strict=True):
                same(a, b)


# ---------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("most", [1, 3])
def test_gradients(depth: int, most: int) -> None:
    offsets = offsets_of(*random_levels(depth, 3, 2))
    sizes = [most] * depth
    values = torch.randn(int(offsets[-1][-1]) + 1, 2, dtype=torch.float64, requires_grad=True)
    dense = torch.randn(3, *sizes, 2, dtype=torch.float64, requires_grad=True)

    def pad(v: torch.Tensor) -> torch.Tensor:
        return fbgemm.jagged_to_padded_dense(v, offsets, sizes, 2.0) ** 2

    def unpad(d: torch.Tensor) -> torch.Tensor:
        return fbgemm.dense_to_jagged(d, offsets, values.shape[0])[0] ** 2

    for function, given in ((pad, values), (unpad, dense)):
        assert gradcheck(function, (given,), fast_mode=True)
        assert gradgradcheck(function, (given,), fast_mode=True)


def test_gradients_like_fbgemm() -> None:
    offsets = offsets_of([2, 0, 5, 1])
    values = torch.randn(8, 3, requires_grad=True)
    dense = torch.randn(4, 3, 3, requires_grad=True)
    for name, given in (("jagged_to_padded_dense", (values, offsets, [3])), ("dense_to_jagged", (dense, offsets))):
        made = [getattr(where, name)(*given) for where in (fbgemm, theirs)]
        ours, other = (m if isinstance(m, torch.Tensor) else m[0] for m in made)
        seed = torch.randn_like(ours)
        same(*(torch.autograd.grad(m, given[0], seed)[0] for m in (ours, other)))


def test_stacked_gradients() -> None:
    values = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([[2, 1], [0, 3]])

    def stacked(v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(fbgemm.stacked_jagged_2d_to_dense(v, lengths, [0, 3, 6], [2, 2], 1))

    assert gradcheck(stacked, (values,))
    assert gradgradcheck(stacked, (values,))


# ----------------------------------------------------------------------------------- lengths that only a device knows


def on_device(lengths: list[int], spare: int = 0) -> Partition:
    p = Partition.from_lengths(lengths)
    return Partition._of(p.offsets, p.num_values + spare, device_born=True, exact=spare == 0)


@pytest.mark.parametrize("spare", [0, 2])
@pytest.mark.parametrize("most", [0, 1, 3])
def test_moves_without_host_lengths(spare: int, most: int) -> None:
    outer, inner = [2, 0, 1], [1, 3, 2]
    offsets = offsets_of(outer, inner)
    rows = 6 + spare
    values = torch.randn(rows, 2, dtype=torch.float64, requires_grad=True)
    levels = (on_device(outer), on_device(inner, spare))
    with sr.testing.forbid_sync():
        dense = pad(values, levels, [2, most], 4.0)
        back = unpad(dense, levels, rows)
        held = are_held(levels, [2, most], rows)
    same(dense.detach(), padded(values.detach(), offsets, [2, most], 4.0))
    same(back.detach(), unpadded(dense.detach(), offsets, rows))
    same(held, unpadded(torch.ones(3, 2, most, 1), offsets, rows)[:, 0] > 0)
    assert gradcheck(lambda v: pad(v, levels, [2, most]) ** 2, (values,))
    assert gradgradcheck(lambda v: unpad(pad(v, levels, [2, most]) ** 2, levels, rows), (values,))


@pytest.mark.parametrize("most", [0, 1, 2, 9])
@pytest.mark.parametrize("spare", [0, 2])
def test_first_rows(most: int, spare: int) -> None:
    lengths = [3, 0, 1, 4]
    rows = 8 + spare
    values = torch.randn(rows, 2, dtype=torch.float64, requires_grad=True)
    kept = [r for start, n in ((0, 3), (3, 0), (3, 1), (4, 4)) for r in range(start, start + min(n, most))]
    for level in (Partition.from_lengths(lengths), on_device(lengths, spare)):
        made = first_rows(values, level, most)
        assert made.partitions[0].lengths.tolist() == [min(n, most) for n in lengths]
        same(made.values[: len(kept)], values[kept])
        back = torch.zeros_like(values)
        back[kept] = values.detach()[kept]
        same(put_back(made, level, rows).detach(), back)
        assert gradcheck(lambda v, level=level: put_back(first_rows(v, level, most), level, rows) ** 2, (values,))


# --------------------------------------------------------------------------------------------------- wrong calls

GOOD = torch.tensor([0, 2, 3])


@pytest.mark.parametrize(
    ("offsets", "error", "words"),
    [
        ([torch.tensor([1, 3])], RaggednessError, r"offsets\[0\] must start with 0, but position 0 holds 1"),
        ([torch.tensor([0, 2, 1])], RaggednessError, r"never decrease, but position 2 holds 1 after 2"),
        ([torch.tensor([0, 9])], RaggednessError, r"end with at most 3, the number of rows, but position 1 holds 9"),
        ([torch.tensor([], dtype=torch.int64)], RaggednessError, "at least 1; got none"),
        ([torch.tensor([[0, 3]])], RaggednessError, "must be 1-D"),
        ([torch.tensor([0.5, 3])], RaggednessError, "must be integers"),
        ([torch.tensor([0, 1]), GOOD], RaggednessError, r"must end with 2, the number of rows of offsets\[1\]"),
        ([torch.tensor([0, 3]), GOOD], RaggednessError, r"offsets\[0\] must end with 2"),
        ([], TypeError, "one for each jagged dimension, got an empty list"),
        (GOOD, TypeError, "must be a list of offsets, one for each jagged dimension, got a Tensor"),
        ([[0, 3]], TypeError, r"offsets\[0\] must be a tensor of offsets, got a list"),
    ],
)
def test_wrong_offsets(offsets: Any, error: type[Exception], words: str) -> None:
    for narrow in (False, True):
        given = offsets
        if narrow and isinstance(offsets, list):
            given = [
                o.to(torch.int32) if isinstance(o, torch.Tensor) and not o.is_floating_point() else o for o in offsets
            ]
        with pytest.raises(error, match=words):
            fbgemm.jagged_to_padded_dense(torch.ones(3, 2), given, [2] * max(1, len(given)), 0)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: fbgemm.jagged_to_padded_dense([1.0], [GOOD], [2]), TypeError, "values must be a tensor, got a list"),
        (lambda: fbgemm.jagged_to_padded_dense(torch.tensor(1.0), [GOOD], [2]), ValueError, "at least one axis"),
        (lambda: fbgemm.jagged_to_padded_dense(torch.ones(3), [GOOD], [2, 2]), ValueError, "one entry for each jagged"),
        (lambda: fbgemm.jagged_to_padded_dense(torch.ones(3), [GOOD], 2), ValueError, "one entry for each jagged"),
        (
            lambda: fbgemm.jagged_to_padded_dense(torch.ones(3), [GOOD], [-1]),
            ValueError,
            "max_lengths must be 0 or more",
        ),
        (lambda: fbgemm.jagged_to_padded_dense(torch.ones(3), [GOOD], [1.5]), ValueError, "must be an integer"),
        (lambda: fbgemm.jagged_to_padded_dense(torch.arange(3), [GOOD], [2], 0.5), ValueError, "0.5 does not fit"),
        (lambda: fbgemm.jagged_1d_to_dense(torch.ones(3, 2), GOOD, 2, 0), ValueError, "values must have 1 axes"),
        (lambda: fbgemm.jagged_2d_to_dense(torch.ones(3), GOOD, 2), ValueError, "values must have 2 axes"),
        (
            lambda: fbgemm.dense_to_jagged(torch.ones(3, 2, 2), [GOOD]),
            RaggednessError,
            "dense must have a row for each",
        ),
        (lambda: fbgemm.dense_to_jagged(torch.ones(2), [GOOD]), ValueError, "dense must have at least 2 axes"),
        (lambda: fbgemm.dense_to_jagged(torch.ones(2, 2), [GOOD], 2), RaggednessError, "end with at most 2"),
        (lambda: fbgemm.dense_to_jagged(torch.ones(2, 2), [GOOD], -1), RaggednessError, "total_L must be 0 or more"),
        (
            lambda: fbgemm.stacked_jagged_1d_to_dense(torch.ones(3), GOOD, [0, 3], [2], 0),
            ValueError,
            r"lengths must be a tensor \[keys, B\]",
        ),
        (
            lambda: fbgemm.stacked_jagged_1d_to_dense(torch.ones(3), GOOD[None], [0, 3], [2, 2], 0),
            ValueError,
            "max_lengths_per_key 1",
        ),
        (
            lambda: fbgemm.stacked_jagged_1d_to_dense(torch.ones(3), GOOD[None], [0, 9], [2], 0),
            RaggednessError,
            "offset_per_key must never decrease and end with at most 3",
        ),
        (
            lambda: fbgemm.stacked_jagged_1d_to_dense(torch.ones(3), torch.tensor([[2, -1]]), [0, 3], [2], 0),
            RaggednessError,
            r"lengths\[0\] must never decrease",
        ),
        (
            lambda: fbgemm.stacked_jagged_1d_to_dense(torch.ones(3), torch.tensor([[2, 2]]), [0, 3], [2], 0),
            RaggednessError,
            "end with at most 3",
        ),
    ],
)
def test_wrong_calls(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_other_device() -> None:
    with pytest.raises(sr.errors.OffsetsDeviceError, match=r"offsets\[0\] lie on meta, but values lie on cpu"):
        fbgemm.jagged_to_padded_dense(torch.ones(3), [GOOD.to("meta")], [2])


def test_functions_are_plain() -> None:
    assert pickle.loads(pickle.dumps(fbgemm.dense_to_jagged)) is fbgemm.dense_to_jagged


@pytest.mark.parametrize("name", fbgemm.__all__)
def test_signatures(name: str) -> None:
    """The arguments have FBGEMM's names, order and defaults."""
    schema = getattr(theirs, name, None)
    if schema is None:
        pytest.skip(f"fbgemm_gpu {name} is not registered on this machine")
    expected = [(a.name, a.default_value if a.has_default_value() else None) for a in schema.default._schema.arguments]
    parameters = inspect.signature(getattr(fbgemm, name)).parameters
    found = [(n, None if p.default is inspect.Parameter.empty else p.default) for n, p in parameters.items()]
    assert found[: len(expected)] == expected
