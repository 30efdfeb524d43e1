"""conv1d on ragged rows, against torch's on each row alone."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from benchmarks.memory import peak
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.samples import DTYPES
from tests.oracle import _Count as Counter
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.eager import taps
from serrate.errors import AxisError

LENGTHS = {
    "rows": [5, 0, 1, 3, 8, 2],
    "one row": [6],
    "equal rows": [4, 4, 4],
    "short rows": [1, 1, 0],
    "all rows empty": [0, 0],
    "no rows": [],
    "one giant row": [1, 300, 0, 2],
}
# stride, padding, dilation, kernel size
SETTINGS = [
    (1, 0, 1, 3),
    (1, 1, 1, 3),
    (1, 3, 1, 3),
    (2, 1, 1, 3),
    (3, 2, 2, 2),
    (2, 0, 3, 2),
    (1, "same", 1, 3),
    (1, "same", 1, 4),
    (1, "same", 2, 4),
    (1, "valid", 1, 2),
    (5, 0, 1, 1),
    (1, 0, 1, 1),
    (4, 9, 1, 2),
]


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if dtype.is_complex:
        return torch.complex(made, made.flip(0)).to(dtype)
    return made.to(dtype) if dtype.is_floating_point else (made * 3).round().to(dtype)


def signals(lengths: list[int], channels: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return noise(sum(lengths), channels, seed=seed, dtype=dtype)


def by_rows(values: torch.Tensor, lengths: list[int], weight, bias=None, **options: Any) -> list[torch.Tensor]:
    """torch on each row, [out, n]; a row without entries, or shorter than the kernel, gives none."""
    made = []
    if options.get("padding") == "same":  # torch warns of even kernels that it copies the input
        total = options.get("dilation", 1) * (weight.shape[2] - 1)
        options = options | {"padding": "valid"}
        ends = (0, 0, total // 2, total - total // 2)
        each = [F.pad(row, ends) if len(row) else row for row in (values.split(lengths) if lengths else [])]
        values, lengths = (torch.cat(each) if each else values), [len(row) for row in each]
    for row in values.split(lengths) if lengths else []:
        if not row.shape[0]:
            made.append(weight.new_zeros((weight.shape[0], 0)))
            continue
        dilation, padding = options.get("dilation", 1), options.get("padding", 0)
        reach = dilation * (weight.shape[2] - 1)
        room = row.shape[0] + (0 if padding == "valid" else 2 * padding)
        if room <= reach:
            made.append(weight.new_zeros((weight.shape[0], 0)))
            continue
        made.append(F.conv1d(row.mT[None], weight, bias, **options)[0])
    return made


def joined(rows: list[torch.Tensor], channels: int, like: torch.Tensor) -> torch.Tensor:
    return torch.cat([row.mT for row in rows]) if rows else like.new_zeros((0, channels))


def check(got: sr.Tensor, rows: list[torch.Tensor], channels: int, fine: float = 1e-12) -> None:
    assert got.shape == (len(rows), channels, sr.Ragged([row.shape[1] for row in rows]))
    want = joined(rows, channels, got.values)
    torch.testing.assert_close(got.values, want, rtol=fine, atol=fine)


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize(("stride", "padding", "dilation", "size"), SETTINGS)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_equals_torch_on_each_row(name, stride, padding, dilation, size, groups):
    lengths = LENGTHS[name]
    values = signals(lengths, 4).requires_grad_()
    weight, bias = noise(8, 4 // groups, size, seed=1).requires_grad_(), noise(8, seed=2).requires_grad_()
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x = sr.from_lengths(values, lengths).mT
    rows = by_rows(values, lengths, weight, bias, **options)
    leaves = [values, weight, bias]
    for got in (
        sr.conv1d(x, weight, bias, **options),
        F.conv1d(x, weight, bias, stride, padding, dilation, groups),
        torch.conv1d(x, weight, bias, **options),
    ):
        assert isinstance(got, sr.Tensor)
        check(got, rows, 8)
        want = joined(rows, 8, values)
        if not want.requires_grad:
            continue
        g = noise(*want.shape, seed=3)
        found = torch.autograd.grad(got.values, leaves, g, allow_unused=True, materialize_grads=True)
        wanted = torch.autograd.grad(want, leaves, g, retain_graph=True, allow_unused=True, materialize_grads=True)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)
    check(sr.conv1d(x, weight, **options), by_rows(values, lengths, weight, **options), 8)


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("padding", [0, 2, "same"])
def test_the_module(padding, depthwise):
    torch.manual_seed(0)
    lengths = LENGTHS["rows"]
    module = nn.Conv1d(3, 6, 3, padding=padding, groups=3 if depthwise else 1).double()
    values = signals(lengths, 3)
    rows = by_rows(values, lengths, module.weight, module.bias, padding=padding, groups=module.groups)
    x = sr.from_lengths(values, lengths)
    check(module(x.mT), rows, 6)
    back = module(x.mT).mT
    assert back.shape[0] == 6
    assert back.shape[2] == 6
    module(x.mT).values.square().sum().backward()
    got = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    joined(rows, 6, values).square().sum().backward()
    for a, p in zip(got, module.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad)


def test_padding_modes_other_than_zeros_are_refused():
    """They pad with other entries of the row, which torch does on the padded tensor."""
    x = sr.from_lengths(torch.ones(6, 3), [4, 2]).mT
    for mode in ("reflect", "replicate", "circular"):
        with pytest.raises(TypeError, match="pad"):
            nn.Conv1d(3, 3, 3, padding=1, padding_mode=mode)(x)


def test_other_convolutions_are_refused():
    x = sr.from_lengths(torch.ones(6, 3), [4, 2]).mT
    for module in (nn.ConvTranspose1d(3, 3, 3), nn.Conv2d(3, 3, 3), nn.MaxPool1d(2), nn.AvgPool1d(2)):
        with pytest.raises(TypeError, match=r"not defined for sr\.Tensor"):
            module(x)


@pytest.mark.parametrize("dtype", [d for kind in ("float", "complex", "int") for d in DTYPES[kind]])
@pytest.mark.parametrize("groups", [1, 2])
def test_every_dtype(dtype, groups):
    lengths = LENGTHS["rows"]
    values, weight, bias = (
        signals(lengths, 4, dtype=dtype),
        noise(2, 4 // groups, 3, seed=1, dtype=dtype),
        noise(2, seed=2, dtype=dtype),
    )
    got = sr.conv1d(sr.from_lengths(values, lengths).mT, weight, bias, padding=1, groups=groups)
    assert got.dtype == dtype
    real = not dtype.is_complex
    wide = torch.float64 if real else torch.complex128
    rows = by_rows(values.to(wide), lengths, weight.to(wide), bias.to(wide), padding=1, groups=groups)
    fine = {torch.float16: 1e-2, torch.bfloat16: 1e-1, torch.float32: 1e-5, torch.complex64: 1e-5}.get(dtype, 1e-12)
    want = joined(rows, 2, values.to(wide))
    if dtype == torch.uint8:
        want = want.remainder(256)
    torch.testing.assert_close(got.values.to(wide), want, rtol=fine, atol=fine)


def test_half_accumulates_in_float32():
    """2¹² ones sum to 2¹², which adding one by one in half never reaches."""
    for dtype in (torch.float16, torch.bfloat16):
        values = torch.ones(6, 4096, dtype=dtype)
        for groups in (1, 2):
            weight = torch.ones(groups, 4096 // groups, 1, dtype=dtype)
            got = sr.conv1d(sr.from_lengths(values, [4, 2]).mT, weight, groups=groups)
            assert got.values.eq(4096 / groups).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("groups", [1, 2])
def test_nan_and_inf_stay_in_their_row(bad, groups):
    lengths = [3, 4, 0, 2]
    clean = signals(lengths, 2)
    weight = noise(2, 2 // groups, 3, seed=1)
    spoilt = clean.clone()
    spoilt[3:7] = bad
    made = []
    for values in (clean, spoilt):
        leaf = values.clone().requires_grad_()
        out = sr.conv1d(sr.from_lengths(leaf, lengths).mT, weight, padding=1, groups=groups)
        (gradient,) = torch.autograd.grad(out.values, [leaf], noise(9, 2, seed=3))
        made.append((out.values, gradient))
    keep = [0, 1, 2, 7, 8]
    torch.testing.assert_close(made[0][0][keep], made[1][0][keep])
    torch.testing.assert_close(made[0][1][keep], made[1][1][keep])


def test_a_bad_weight_of_padding_reaches_nothing():
    """Beyond its ends a row has no entries, so an infinite weight there must not give inf · 0."""
    weight = torch.tensor([[[float("inf"), 1.0, 1.0]]])
    got = sr.conv1d(sr.from_lengths(torch.ones(1, 1), [1]).mT, torch.ones(1, 1, 3), padding=1)
    assert got.tolist() == [[[1.0]]]
    want = F.conv1d(torch.ones(1, 1, 1), weight, padding=1)
    got = sr.conv1d(sr.from_lengths(torch.ones(1, 1), [1]).mT, weight, padding=1)
    torch.testing.assert_close(got.values[0], want[0, 0], equal_nan=True)  # as torch: 0 · inf is NaN


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, 0, 2), (1, "same", 1)])
def test_gradients_of_first_and_second_order(groups, stride, padding, dilation):
    lengths = [4, 0, 1, 5]
    values = signals(lengths, 2).requires_grad_()
    weight, bias = noise(2, 2 // groups, 2, seed=1).requires_grad_(), noise(2, seed=2).requires_grad_()

    def run(v, w, b):
        x = sr.from_lengths(v, lengths).mT
        return sr.conv1d(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups).values

    assert gradcheck(run, [values, weight, bias])
    assert gradgradcheck(run, [values, weight, bias])


@pytest.mark.parametrize("spare", [0, 3])
@pytest.mark.parametrize(("stride", "padding", "dilation", "size"), SETTINGS)
@pytest.mark.parametrize("groups", [1, 2])
def test_nothing_waits_for_device_born_lengths(stride, padding, dilation, size, groups, spare):
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    weight, bias = noise(4, 4 // groups, size, seed=1).requires_grad_(), noise(4, seed=2)
    for lengths in LENGTHS.values():
        x = sr.from_lengths(signals(lengths, 4), lengths)
        born = sr.testing.device_born(x, spare=spare).detach()
        if spare and lengths:
            born.values[-spare:] = float("nan")
        with sr.testing.forbid_sync():
            got = sr.conv1d(born.mT, weight, bias, **options)
        want = sr.conv1d(x.mT, weight, bias, **options)
        for a, b in zip(got.rows(), want.rows(), strict=True):
            torch.testing.assert_close(a.torch(), b.torch())


def test_undefined_rows_have_no_part_in_the_gradient_of_the_weight():
    lengths = LENGTHS["rows"]
    for stride, padding in ((1, 1), (2, 0), (1, 0)):
        x = sr.from_lengths(signals(lengths, 3), lengths)
        born = sr.testing.device_born(x, spare=3)
        born.values[-3:] = float("nan")
        found = []
        for each in (x, born):
            weight = noise(2, 3, 3, seed=1).requires_grad_()
            out = sr.conv1d(each.mT, weight, stride=stride, padding=padding)
            sr.sum(out * out).torch().backward()
            found.append(weight.grad)
        torch.testing.assert_close(*found)


def test_what_the_result_shares():
    x = sr.from_lengths(signals([3, 1], 2), [3, 1]).mT
    weight = noise(2, 2, 3, seed=1)
    assert sr.conv1d(x, weight, padding=1).partitions[0] is x.partitions[0]
    assert sr.conv1d(x, weight, padding="same").partitions[0] is x.partitions[0]
    assert sr.conv1d(x, weight[..., :1]).partitions[0] is x.partitions[0]


def test_values_that_are_not_contiguous_and_int32_offsets():
    values = noise(2, 6, seed=1).T
    offsets = torch.tensor([0, 3, 3, 6], dtype=torch.int32)
    weight = noise(2, 2, 2, seed=1)
    got = sr.conv1d(sr.from_offsets(values, offsets).mT, weight, padding=1)
    check(got, by_rows(values, [3, 0, 3], weight, padding=1), 2)
    assert got.offsets[0].dtype == torch.int32


def test_a_dense_tensor_is_torch_s():
    x, weight = noise(2, 3, 5), noise(4, 3, 2)
    torch.testing.assert_close(sr.conv1d(x, weight).torch(), F.conv1d(x, weight))
    torch.testing.assert_close(F.conv1d(sr.Tensor(x), weight), F.conv1d(x, weight))


@pytest.mark.parametrize("groups", [1, 2])
def test_autocast_gives_what_torch_gives(groups):
    x = sr.from_lengths(signals([4, 2], 4, dtype=torch.float32), [4, 2])
    module = nn.Conv1d(4, 2, 3, padding=1, groups=groups)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, want = module(x.mT), module(x[0].torch().mT[None])
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got.values[:4].mT, want[0], rtol=2e-2, atol=2e-2)


def test_no_loop_over_rows():
    counts = []
    for rows in (8, 800):
        lengths = [3, 4, 0, 5] * (rows // 4)
        values = signals(lengths, 2).requires_grad_()
        with Counter() as count:
            sr.conv1d(sr.from_lengths(values, lengths).mT, noise(2, 1, 3), stride=2, groups=2).values.sum().backward()
        counts.append(count.seen)
    assert counts[0] == counts[1]


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 9), max_size=6),
    st.integers(1, 4),
    st.integers(0, 5),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_any_lengths(lengths, stride, padding, dilation, size):
    values, weight = signals(lengths, 2), noise(3, 2, size, seed=1)
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    got = sr.conv1d(sr.from_lengths(values, lengths).mT, weight, **options)
    check(got, by_rows(values, lengths, weight, **options), 3)


def test_wrong_arguments_are_named():
    x = sr.from_lengths(torch.ones(6, 4), [4, 2])
    weight = torch.ones(2, 4, 3)
    for wrong, error, pattern in (
        ((x, weight), AxisError, "x.mT turns"),
        ((x.permute_dims((2, 0, 1)), weight), AxisError, "batch, channels, sequence"),
        ((x[..., 0], weight), AxisError, "batch, channels, sequence"),
        ((x.mT, torch.ones(2, 4)), ValueError, "weight must be"),
        ((x.mT, torch.ones(2, 3, 3)), ValueError, "weight must be"),
    ):
        with pytest.raises(error, match=pattern):
            sr.conv1d(*wrong)
    for options, pattern in (
        ({"stride": 0}, "positive"),
        ({"dilation": 0}, "positive"),
        ({"padding": -1}, "padding"),
        ({"padding": "same", "stride": 2}, "stride 1"),
        ({"groups": 3}, "groups"),
        ({"groups": 0}, "groups"),
        ({"stride": (1, 2)}, "stride"),
    ):
        with pytest.raises(ValueError, match=pattern):
            sr.conv1d(x.mT, weight, **options)
    two = sr.from_lengths(torch.ones(4, 3), [[2, 0], [3, 1]])
    for order in itertools.permutations(range(4)):
        with pytest.raises(AxisError):
            sr.conv1d(two.permute_dims(order), torch.ones(1, 3, 1))


@pytest.mark.parametrize("shape", [(3,), (1,), (6, 2), (2, 1), ()])
def test_a_bias_of_another_size_is_refused(shape):
    """Adding one that happens to stretch against the packed entries would go unseen."""
    x = sr.from_lengths(torch.ones(6, 4), [4, 2]).mT
    with pytest.raises(ValueError, match="bias"):
        sr.conv1d(x, torch.ones(2, 4, 3), torch.ones(shape), padding=1)


def test_padding_of_another_name_is_refused():
    x = sr.from_lengths(torch.ones(6, 4), [4, 2]).mT
    with pytest.raises(ValueError, match="padding must be"):
        sr.conv1d(x, torch.ones(2, 4, 3), padding="full")


def test_operands_of_unlike_dtypes_are_refused():
    x = sr.from_lengths(torch.ones(6, 4), [4, 2]).mT
    weight = torch.ones(2, 4, 3)
    for wrong in ((x, weight.double()), (x.to(torch.bfloat16), weight), (x, weight, torch.ones(2).double())):
        with pytest.raises(TypeError, match=r"dtype|float"):
            sr.conv1d(*wrong)


# ------------------------------------------------------------------------------------------------- part by part


@pytest.fixture
def parts_of_one(monkeypatch):
    """As many parts as entries: every edge of a part comes up in short rows."""
    monkeypatch.setattr(taps, "_AT_ONCE", {"cpu": 1})
    monkeypatch.setattr(taps, "_PARTS", 1000)


@pytest.mark.parametrize("spare", [None, 0, 3])
@pytest.mark.parametrize(("stride", "padding", "dilation", "size"), SETTINGS)
@pytest.mark.parametrize("groups", [1, 2])
def test_part_by_part_equals_torch_on_each_row(parts_of_one, stride, padding, dilation, size, groups, spare):
    """Values and gradients; what is undefined in device-born tensors is NaN and reaches none of them."""
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    for lengths in LENGTHS.values():
        if max(lengths, default=0) > 10:
            continue
        values = signals(lengths, 4).requires_grad_()
        weight, bias = noise(8, 4 // groups, size, seed=1).requires_grad_(), noise(8, seed=2).requires_grad_()
        x = sr.from_lengths(values, lengths)
        if spare is not None:
            x = sr.testing.device_born(x.detach(), spare=spare)
            x.values[sum(lengths) :] = float("nan")
            x = x.requires_grad_()
        got = sr.conv1d(x.mT, weight, bias, **options)
        rows = by_rows(values, lengths, weight, bias, **options)
        want = joined(rows, 8, values)
        defined = len(want)
        torch.testing.assert_close(got.values[:defined], want)
        if not want.requires_grad:
            continue
        g = torch.full(got.values.shape, float("nan"), dtype=torch.float64)
        g[:defined] = noise(*want.shape, seed=3)
        unused: Any = {"allow_unused": True, "materialize_grads": True}
        found = torch.autograd.grad(got.values, [x.values, weight, bias], g, **unused)
        wanted = torch.autograd.grad(want, [values, weight, bias], g[:defined], **unused)
        torch.testing.assert_close(found[0][: sum(lengths)], wanted[0])
        assert not found[0][sum(lengths) :].isnan().any()
        for a, b in zip(found[1:], wanted[1:], strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.complex128, marks=pytest.mark.slow)])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, 1, 2), (3, 0, 1)])
def test_part_by_part_gradients_of_every_order(parts_of_one, dtype, groups, stride, padding, dilation):
    lengths = [4, 0, 1, 5]
    values = signals(lengths, 2, dtype=dtype).requires_grad_()
    weight = noise(2, 2 // groups, 2, seed=1, dtype=dtype).requires_grad_()

    def run(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x = sr.from_lengths(v, lengths).mT
        return sr.conv1d(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups).values

    assert gradcheck(run, [values, weight], check_forward_ad=True)
    assert gradgradcheck(run, [values, weight])


@pytest.mark.parametrize(("channels", "made"), [(0, 2), (2, 0), (0, 0)])
def test_no_channels(channels, made):
    lengths = LENGTHS["rows"]
    values, weight = signals(lengths, channels).requires_grad_(), noise(made, channels, 3).requires_grad_()
    out = sr.conv1d(sr.from_lengths(values, lengths).mT, weight, padding=1)
    assert out.shape == (6, made, sr.Ragged(lengths))
    assert not out.values.any()
    found = torch.autograd.grad(out.values.sum(), [values, weight])
    assert [g.shape for g in found] == [values.shape, weight.shape]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gradients_of_weights_do_not_lose_digits_over_many_parts(monkeypatch, dtype):
    """Each part adds 1: in half, nothing is added to 2048 any more."""
    monkeypatch.setattr(taps, "_AT_ONCE", {"cpu": 1})
    monkeypatch.setattr(taps, "_PARTS", 10_000)
    x = sr.from_lengths(torch.ones(4096, 1, dtype=dtype), [4000, 96]).mT
    weight = torch.ones(1, 1, 1, dtype=dtype, requires_grad=True)
    (found,) = torch.autograd.grad(sr.conv1d(x, weight).values.sum(), [weight])
    assert found.item() == 4096


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize(("stride", "size"), [(1, 3), (1, 9), (3, 5)])
def test_memory_is_a_few_times_the_input(stride, size, channels):
    """However long the kernel is; with gradients the input's gradient and the gradient given are in memory too."""
    lengths = [1000] * (4000 // channels)  # beside this, what a part takes at least is little
    values = torch.randn(sum(lengths), channels)
    x = sr.from_lengths(values, lengths).mT
    weight = torch.randn(channels, channels, size)
    with torch.no_grad():
        assert peak(lambda: sr.conv1d(x, weight, stride=stride, padding=size // 2)) <= 4 * values.nbytes
    leaf = values.requires_grad_()
    x, weight = sr.from_lengths(leaf, lengths).mT, weight.requires_grad_()

    def train() -> Any:
        out = sr.conv1d(x, weight, stride=stride, padding=size // 2)
        return torch.autograd.grad(out.values.sum(), [leaf, weight])

    assert peak(train) <= 6 * values.nbytes
