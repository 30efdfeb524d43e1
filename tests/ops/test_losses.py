"""Losses against torch's on the rows one after the other, which is what a mean over real entries means."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.ops.samples import NAMES, elements, leaves, sample
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import AxisError, RaggednessError

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
# name, options of torch's function, the module
LOSSES: list[tuple[str, dict[str, Any], Any]] = [
    ("mse_loss", {}, nn.MSELoss()),
    ("l1_loss", {}, nn.L1Loss()),
    ("smooth_l1_loss", {}, nn.SmoothL1Loss()),
    ("smooth_l1_loss", {"beta": 0.1}, nn.SmoothL1Loss(beta=0.1)),
    ("smooth_l1_loss", {"beta": 0.0}, nn.SmoothL1Loss(beta=0.0)),
    ("huber_loss", {}, nn.HuberLoss()),
    ("huber_loss", {"delta": 0.1}, nn.HuberLoss(delta=0.1)),
    ("binary_cross_entropy", {}, nn.BCELoss()),
    ("binary_cross_entropy_with_logits", {}, nn.BCEWithLogitsLoss()),
]
NAMED = list(dict.fromkeys(name for name, _, _ in LOSSES))
REDUCTIONS = ("mean", "sum", "none")


def end_to_end(x: sr.Tensor) -> torch.Tensor:
    """All elements, row after row."""
    parts = [leaf.reshape(-1) for leaf in leaves(x)]
    return torch.cat(parts) if parts else x.values.reshape(-1)


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    fine = {torch.float16: 5e-3, torch.bfloat16: 3e-2, torch.float32: 1e-5}.get(want.dtype, 1e-12)
    torch.testing.assert_close(got, want, rtol=fine, atol=fine, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("structure", NAMES)
@pytest.mark.parametrize(("name", "options", "module"), LOSSES)
def test_equals_torch_on_the_rows_end_to_end(name, options, module, structure, dtype):
    if structure == "NaN and inf" and name == "binary_cross_entropy":
        return  # probabilities are neither
    x, y = sample(structure, dtype), sample(structure if structure != "NaN and inf" else "features", dtype, seed=3)
    function = getattr(F, name)
    a, b = end_to_end(x), end_to_end(y)
    for reduction in REDUCTIONS:
        want = function(a.double(), b.double(), reduction=reduction, **options).to(dtype)
        ours = getattr(sr, name)(x, y, reduction=reduction, **options)
        face = function(x, y, reduction=reduction, **options)
        assert isinstance(ours, sr.Tensor)
        if reduction == "none":
            assert isinstance(face, sr.Tensor)
            assert face.shape == x.shape
            assert face.structure is x.structure
        for got in (ours, face):
            assert got.dtype == dtype
            flat = got if isinstance(got, torch.Tensor) else end_to_end(got)
            close(flat.reshape(want.shape), want)
        if reduction != "none":
            assert type(face) is torch.Tensor
    close(module(x, y), function(a.double(), b.double(), **options).to(dtype))


@pytest.mark.parametrize("structure", ["rows", "empty rows", "two levels", "permuted", "product"])
@pytest.mark.parametrize(("name", "options", "module"), LOSSES)
def test_gradients(name, options, module, structure):
    x, y = sample(structure, torch.float64), sample(structure, torch.float64, seed=3)
    function = getattr(F, name)
    for reduction in REDUCTIONS:
        found = []
        for ragged in (True, False):
            v, w = x.values.clone().requires_grad_(), y.values.clone().requires_grad_()
            pair = (x._with(v), y._with(w)) if ragged else (v, w)
            out = function(*pair, reduction=reduction, **options)
            out = out.values if isinstance(out, sr.Tensor) else out
            g = elements(out.numel(), (), torch.float64, seed=5).view(out.shape)
            first = torch.autograd.grad(out, [v, w], g, create_graph=True)
            found.append(list(first))
            if name not in ("l1_loss",) and options.get("beta") != 0.0:
                found[-1] += torch.autograd.grad(sum(f.square().sum() for f in first), [v, w])
        for a, b in zip(*found, strict=True):
            close(a, b)
    v = x.values.clone().requires_grad_()
    assert gradcheck(lambda t: function(x._with(t), y, **options), [v])
    assert gradgradcheck(lambda t: function(x._with(t), y, **options), [v])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", [n for n in NAMED if n != "smooth_l1_loss"])
@pytest.mark.parametrize("structure", ["features", "permuted", "two levels"])
def test_a_weight_for_each_element(name, structure, reduction):
    """As torch: mse_loss and l1_loss divide by the sum of the weights, the others by the number of elements."""
    x, y, w = (sample(structure, torch.float64, seed=seed) for seed in (0, 3, 6))
    want = getattr(F, name)(*map(end_to_end, (x, y)), weight=end_to_end(w), reduction=reduction)
    got = getattr(sr, name)(x, y, weight=w, reduction=reduction)
    close(end_to_end(got).reshape(want.shape) if got.is_ragged else got.torch(), want)
    if name != "l1_loss":  # torch leaves the weight out before anybody else sees it
        got = getattr(F, name)(x, y, weight=w, reduction=reduction)
        close(end_to_end(got).reshape(want.shape) if isinstance(got, sr.Tensor) else got, want)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss"])
def test_a_weight_that_stretches_counts_for_each_element_or_is_refused(name):
    """A mean is divided by the weight of every element, also where one number stands for several; torch refuses it."""
    x, y = (sample("features", torch.float64, seed=seed) for seed in (0, 3))
    each = torch.tensor([0.5, 2.0], dtype=torch.float64)
    want = getattr(F, name)(x.values, y.values, weight=each.expand(6, 2))
    for weight in (each, each[None, None], sr.Tensor(each)):
        with contextlib.suppress(ValueError):
            close(getattr(sr, name)(x, y, weight=weight).torch(), want)


@pytest.mark.parametrize("name", ["binary_cross_entropy", "binary_cross_entropy_with_logits"])
def test_a_weight_that_stretches(name):
    x, y = (sample("features", torch.float64, seed=seed) for seed in (0, 3))
    each = torch.tensor([0.5, 2.0], dtype=torch.float64)
    for reduction in REDUCTIONS:
        want = getattr(F, name)(x.values, y.values, weight=each, reduction=reduction)
        for got in (
            getattr(F, name)(x, y, each, reduction=reduction),
            getattr(F, name)(x.mT, y.mT, each[:, None], reduction=reduction),
            getattr(F, name)(x, y, sr.Tensor(each[None, None]), reduction=reduction),
        ):
            close(got.values if isinstance(got, sr.Tensor) else got, want)
    module = {"binary_cross_entropy": nn.BCELoss, "binary_cross_entropy_with_logits": nn.BCEWithLogitsLoss}[name]
    close(module(weight=each)(x, y), module(weight=each)(x.values, y.values))
    rows = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)  # one for each row
    spread = rows.repeat_interleave(torch.tensor([3, 1, 2]))[:, None]
    close(getattr(F, name)(x, y, rows[:, None, None]), getattr(F, name)(x.values, y.values, spread))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_weight_of_positives(reduction):
    loss = F.binary_cross_entropy_with_logits
    x, y = sample("features", torch.float64), sample("features", torch.float64, seed=3)
    each = torch.tensor([0.5, 2.0], dtype=torch.float64)
    want = loss(x.values, y.values, reduction=reduction, pos_weight=each)
    for got in (
        loss(x, y, reduction=reduction, pos_weight=each),
        sr.binary_cross_entropy_with_logits(x, y, reduction=reduction, pos_weight=each),
        nn.BCEWithLogitsLoss(reduction=reduction, pos_weight=each)(x, y),
    ):
        close(got.values if isinstance(got, sr.Tensor) else got, want)


@pytest.mark.parametrize("lengths", [[3, 1, 2], [1, 1]])
def test_the_weight_of_positives_meets_the_shape_that_is_seen(lengths):
    """Not the packed values: [2, 1] stands beside classes at axis 1, also where there are two packed entries."""
    loss = F.binary_cross_entropy_with_logits
    x, y = (elements(sum(lengths), (2,), torch.float64, seed=seed) for seed in (0, 3))
    each = torch.tensor([0.5, 2.0], dtype=torch.float64)
    turned = (sr.from_lengths(x, lengths).mT, sr.from_lengths(y, lengths).mT)
    close(loss(*turned, pos_weight=each[:, None]), loss(x, y, pos_weight=each))


def test_the_weight_of_positives_may_be_a_tensor_of_ours():
    x, y = sample("features", torch.float64), sample("features", torch.float64, seed=3)
    each = torch.tensor([0.5, 2.0], dtype=torch.float64)
    loss = F.binary_cross_entropy_with_logits
    close(loss(x, y, pos_weight=sr.Tensor(each)), loss(x.values, y.values, pos_weight=each))


def test_the_weight_of_positives_of_each_element():
    x, y, w = (sample("features", torch.float64, seed=seed) for seed in (0, 3, 6))
    loss = F.binary_cross_entropy_with_logits
    close(loss(x, y, pos_weight=w), loss(x.values, y.values, pos_weight=w.values))


def test_operands_in_different_layouts():
    """The same shape, stored in another order."""
    a, b = (elements(6, (2, 3), torch.float64, seed=seed) for seed in (0, 3))
    x, y = sr.from_lengths(a, [3, 1, 2]), sr.from_lengths(b.mT.contiguous(), [3, 1, 2]).mT
    assert x.shape == y.shape
    for name in NAMED:
        close(getattr(F, name)(x, y), getattr(F, name)(a, b))
        close(getattr(F, name)(x.mT, y.mT), getattr(F, name)(a, b))


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", NAMED)
def test_targets_of_another_shape(name):
    """Stretching follows the shape that is seen; torch warns of it, and refuses it where it takes probabilities."""
    x = sample("features", torch.float64)
    column = elements(6, (1,), torch.float64, seed=3)
    narrow, dense = sr.from_lengths(column, [3, 1, 2]), elements(3, (1, 2), torch.float64, seed=4)
    wide = column.expand(6, 2).contiguous()
    spread = dense.repeat_interleave(torch.tensor([3, 1, 2]), 0)[:, 0]
    for target, same in ((narrow, wide), (dense, spread)):
        want = getattr(F, name)(x.values, same)
        if name.startswith("binary"):
            with contextlib.suppress(ValueError):
                close(getattr(sr, name)(x, target).torch(), want)
        else:
            close(getattr(sr, name)(x, target).torch(), want)
    with pytest.raises(RaggednessError):
        getattr(F, name)(x, elements(3, (3, 2), torch.float64))
    with pytest.raises(RaggednessError):
        getattr(F, name)(x, sr.from_lengths(x.values, [2, 2, 2]))
    with pytest.raises(ValueError, match="as many axes"):
        getattr(F, name)(x, x[..., 0])


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_dtypes_of_input_and_target_promote(name):
    """As torch's functions do: float64 of float32 and float64, except huber_loss; integers become floats."""
    x, y = sample("features", torch.float32), sample("features", torch.float64, seed=3)
    want = getattr(F, name)(x.values, y.values)
    for got in (getattr(F, name)(x, y), getattr(sr, name)(x, y).torch()):
        assert got.dtype == want.dtype
        close(got, want)
    whole = sample("features", torch.int64)
    close(getattr(F, name)(x, whole), getattr(F, name)(x.values, whole.values.float()))


def test_arguments_by_position():
    x, y = sample("features", torch.float64), sample("features", torch.float64, seed=3)
    same = (x.values, y.values)
    close(F.huber_loss(x, y, "sum"), F.huber_loss(*same, "sum"))
    close(F.huber_loss(x, y, "sum", 0.1), F.huber_loss(*same, "sum", 0.1))
    close(F.smooth_l1_loss(x, y, None, None, "sum", 0.1), F.smooth_l1_loss(*same, None, None, "sum", 0.1))
    close(F.mse_loss(x, y, None, None, "sum"), F.mse_loss(*same, None, None, "sum"))
    close(F.mse_loss(x, y, None, None, "sum", y), F.mse_loss(*same, None, None, "sum", y.values))
    close(
        F.binary_cross_entropy(x, y, y, None, None, "sum"),
        F.binary_cross_entropy(*same, y.values, None, None, "sum"),
    )


@pytest.mark.parametrize("spare", [0, 3])
@pytest.mark.parametrize(("name", "options", "module"), LOSSES)
def test_nothing_waits_for_device_born_lengths(name, options, module, spare):
    """Rows past the last offset hold anything: 97 is no probability."""
    for structure in ("features", "empty rows", "two levels", "no rows"):
        x, y = sample(structure, torch.float64), sample(structure, torch.float64, seed=3)
        for reduction in REDUCTIONS:
            want = getattr(sr, name)(x, y, reduction=reduction, **options)
            a, b = (sr.testing.device_born(t, spare=spare) for t in (x, y))
            with sr.testing.forbid_sync():
                got = getattr(sr, name)(a, b, reduction=reduction, **options)
            close(end_to_end(got), end_to_end(want))


@pytest.mark.parametrize(("name", "options", "module"), LOSSES)
def test_undefined_rows_have_no_part_in_gradients(name, options, module):
    """The gradient of a parameter that all rows share."""
    x, y = sample("features", torch.float64), sample("features", torch.float64, seed=3)
    born = [sr.testing.device_born(t, spare=3) for t in (x, y)]
    for reduction in ("mean", "sum"):
        found = []
        for a, b in ((x, y), born):
            w = torch.tensor([0.7, 0.9], dtype=torch.float64, requires_grad=True)
            getattr(F, name)(a * w, b, reduction=reduction, **options).backward()
            found.append(w.grad)
        close(*found)


def test_other_reductions_and_old_arguments_are_refused():
    x = sample("features", torch.float64)
    for name in NAMED:
        with pytest.raises(ValueError, match="reduction"):
            getattr(F, name)(x, x, reduction="batchmean")
        with pytest.raises(TypeError, match=r"takes no|unexpected"):
            getattr(sr, name)(x, x, gamma=1.0)
    with pytest.raises(TypeError, match="reduction"):
        F.mse_loss(x, x, size_average=True)
    with pytest.raises(TypeError, match="floating-point"):
        F.mse_loss(sr.ragged([[1, 2]]), sr.ragged([[1, 2]]))


@pytest.mark.parametrize("function", [F.nll_loss, F.kl_div, F.poisson_nll_loss, F.hinge_embedding_loss, F.ctc_loss])
def test_losses_that_are_not_there_say_so(function):
    x = sample("features", torch.float64)
    more = [torch.tensor([1]), torch.tensor([1])] if function is F.ctc_loss else []
    with pytest.raises(TypeError, match=r"not defined for sr\.Tensor"):
        function(x, x, *more)


# -------------------------------------------------------------------------------------------------- cross entropy

CLASSES = 4
LENGTHS = [3, 0, 1, 2]


def logits(structure: str, dtype: torch.dtype = torch.float64) -> tuple[sr.Tensor, sr.Tensor]:
    """Logits with classes at axis 1, and class numbers."""
    generator = torch.Generator().manual_seed(2)
    levels: Any = {"two levels": [[2, 0, 1], [3, 1, 2]], "no rows": [], "all rows empty": [0, 0]}.get(
        structure, LENGTHS
    )
    count = sum(levels[-1]) if structure == "two levels" else sum(levels)
    more = (2,) if structure == "more axes" else ()
    values = torch.randn(count, *more, CLASSES, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, CLASSES, (count, *more), generator=generator)
    x = sr.from_lengths(values, levels)
    order = (0, x.ndim - 1, *range(1, x.ndim - 1))
    return x.permute_dims(order), sr.from_lengths(labels, levels)


def torch_order(x: sr.Tensor) -> torch.Tensor:
    """Packed logits [N, classes, …]."""
    return x.values.movedim(-1, 1)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"weight": torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64)},
    {"ignore_index": 2},
    {"label_smoothing": 0.2},
    {"weight": torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64), "label_smoothing": 0.3, "ignore_index": 1},
]


@pytest.mark.parametrize("structure", ["rows", "two levels", "more axes", "no rows", "all rows empty"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "+".join(o) or "plain")
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_equals_torch_on_the_rows_end_to_end(structure, options, reduction):
    x, labels = logits(structure)
    found = []
    module = nn.CrossEntropyLoss(reduction=reduction, **options)
    calls = [
        lambda t: F.cross_entropy(torch_order(t), labels.values, reduction=reduction, **options),
        lambda t: F.cross_entropy(t, labels, reduction=reduction, **options),
        lambda t: sr.cross_entropy(t, labels, reduction=reduction, **options),
        lambda t: module(t, labels),
        lambda t: module(t, labels.to(torch.int32)),
    ]
    for call in calls:
        leaf = x._with(x.values.clone()).requires_grad_()
        out = call(leaf)
        if isinstance(out, sr.Tensor) and out.is_ragged:
            assert out.shape == labels.shape
        out = out.values if isinstance(out, sr.Tensor) else out
        g = elements(out.numel(), (), torch.float64, seed=5).view(out.shape)
        out.backward(g)
        found.append((out, leaf.values.grad))
    assert type(F.cross_entropy(x, labels, reduction="sum")) is torch.Tensor
    for out, gradient in found[1:]:
        close(out, found[0][0])
        close(gradient, found[0][1])


@pytest.mark.parametrize("structure", ["rows", "two levels", "more axes"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("options", [{}, OPTIONS[1], OPTIONS[3]], ids=lambda o: "+".join(o) or "plain")
def test_cross_entropy_with_distributions(structure, reduction, options):
    x, labels = logits(structure)
    soft = x._with(torch.softmax(x.values.flip(0), -1))
    want = F.cross_entropy(torch_order(x), torch_order(soft), reduction=reduction, **options)
    for got in (
        F.cross_entropy(x, soft, reduction=reduction, **options),
        nn.CrossEntropyLoss(reduction=reduction, **options)(x, soft),
        sr.cross_entropy(x, soft, reduction=reduction, **options),
    ):
        close(got.values if isinstance(got, sr.Tensor) else got, want)
    hard = x._with(F.one_hot(labels.values, CLASSES).double())
    close(F.cross_entropy(x, hard), F.cross_entropy(x, labels))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_of_other_orders_of_axes(reduction):
    """[B, classes, 2, r] beside targets [B, 2, r], each stored in its own way."""
    x, labels = logits("more axes")  # [B, classes, r, 2] and [B, r, 2]
    want = F.cross_entropy(torch_order(x), labels.values, reduction=reduction)
    turned = x.permute_dims((0, 1, 3, 2))
    targets = [
        labels.permute_dims((0, 2, 1)),
        sr.from_lengths(labels.values.clone(), LENGTHS).permute_dims((0, 2, 1)),
        x._with(F.one_hot(labels.values, CLASSES).double()).permute_dims((0, 1, 3, 2)),
        sr.from_lengths(F.one_hot(labels.values, CLASSES).double().mT.contiguous(), LENGTHS).permute_dims((0, 2, 3, 1)),
    ]
    for target in targets:
        got = F.cross_entropy(turned, target, reduction=reduction)
        if reduction == "none":
            assert got.shape == targets[0].shape
            got = torch.cat([row.torch().mT for row in got.rows()])
        close(got, want)


def test_class_numbers_stored_in_another_order():
    """The same targets [B, r, 2, 2], their features stored the other way round."""
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(6, 2, 2, CLASSES, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, CLASSES, (6, 2, 2), generator=generator)
    x = sr.from_lengths(values, LENGTHS).permute_dims((0, 4, 1, 2, 3))
    one = sr.from_lengths(labels, LENGTHS)
    two = sr.from_lengths(labels.mT.contiguous(), LENGTHS).mT
    assert torch.equal(one, two)
    for reduction in REDUCTIONS:
        got, want = (F.cross_entropy(x, target, reduction=reduction) for target in (two, one))
        close(end_to_end(got) if reduction == "none" else got, end_to_end(want) if reduction == "none" else want)
    close(F.cross_entropy(x, two), F.cross_entropy(values.movedim(-1, 1), labels))


def test_cross_entropy_of_targets_with_gradients():
    x, _ = logits("rows")
    soft = x._with(torch.softmax(x.values.flip(0), -1).detach()).requires_grad_()
    F.cross_entropy(x, soft).backward()
    got = soft.values.grad.clone()
    soft.values.grad = None
    F.cross_entropy(torch_order(x), torch_order(soft)).backward()
    close(got, soft.values.grad)


@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropy_of_every_dtype(dtype):
    x, labels = logits("rows", dtype)
    for reduction in REDUCTIONS:
        got = F.cross_entropy(x, labels, reduction=reduction)
        assert got.dtype == dtype
        want = F.cross_entropy(x.values.double(), labels.values, reduction=reduction).to(dtype)
        close(got.values if isinstance(got, sr.Tensor) else got, want)


def test_cross_entropy_has_second_derivatives():
    x, labels = logits("rows")
    leaf = x.values.clone().requires_grad_()
    assert gradcheck(lambda v: F.cross_entropy(x._with(v), labels), [leaf])
    assert gradgradcheck(lambda v: F.cross_entropy(x._with(v), labels), [leaf])


def test_everything_ignored_is_what_torch_says():
    x, labels = logits("rows")
    nothing = labels._with(torch.full_like(labels.values, -100))
    assert F.cross_entropy(x, nothing).isnan()
    assert F.cross_entropy(x, nothing, reduction="sum") == 0


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_waits_for_nothing(reduction, soft):
    x, labels = logits("rows")
    target = x._with(torch.softmax(x.values.flip(0), -1)) if soft else labels
    for spare, options in itertools.product((0, 3), OPTIONS):
        if soft and "ignore_index" in options:
            continue
        a, b = (sr.testing.device_born(t, spare=spare) for t in (x, target))
        if spare:
            a.values[-spare:] = float("nan")
        a.requires_grad_()
        with sr.testing.forbid_sync():
            got = sr.cross_entropy(a, b, reduction=reduction, **options)
        want = sr.cross_entropy(x, target, reduction=reduction, **options)
        if reduction == "none":
            close(end_to_end(got), end_to_end(want))
        else:
            close(got.torch(), want.torch())
            got.backward()
            leaf = x._with(x.values.clone()).requires_grad_()
            sr.cross_entropy(leaf, target, reduction=reduction, **options).backward()
            close(a.values.grad[:6], leaf.values.grad)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_undefined_rows_have_no_part_in_the_gradient_of_cross_entropy(reduction):
    x, labels = logits("rows")
    found = []
    for a, b in ((x, labels), (sr.testing.device_born(x, spare=3), sr.testing.device_born(labels, spare=3))):
        w = torch.linspace(0.5, 1.0, CLASSES, dtype=torch.float64)[:, None].requires_grad_()
        F.cross_entropy(a * w, b, reduction=reduction).backward()
        found.append(w.grad)
    close(*found)


def test_wrong_calls_of_cross_entropy_are_named():
    x, labels = logits("rows")
    with pytest.raises(AxisError, match="classes at axis 1"):
        F.cross_entropy(x.mT, labels)
    with pytest.raises(RaggednessError):
        F.cross_entropy(x, sr.from_lengths(labels.values, [0, 3, 1, 2]))
    with pytest.raises(RaggednessError):
        F.cross_entropy(x, torch.zeros(4, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="shape"):
        F.cross_entropy(x, sr.expand_dims(labels, axis=1))
    with pytest.raises(ValueError, match="reduction"):
        F.cross_entropy(x, labels, reduction="most")
    with pytest.raises(IndexError, match="out of"):
        F.cross_entropy(x, labels + 4)
    with pytest.raises((ValueError, RuntimeError), match="weight"):
        F.cross_entropy(x, labels, weight=torch.ones(3, dtype=torch.float64))
    with pytest.raises(TypeError, match="reduction"):
        F.cross_entropy(x, labels, size_average=True)


def test_a_rare_nan_row_spoils_only_its_own_loss():
    x, labels = logits("rows")
    values = x.values.clone()
    values[3] = float("nan")  # the row of length 1
    got = F.cross_entropy(x._with(values), labels, reduction="none")
    assert got.values.isnan().tolist() == [False, False, False, True, False, False]


def test_dense_tensors_go_to_torch():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(4, 3, generator=generator), torch.rand(4, 3, generator=generator)
    for name in NAMED:
        close(getattr(sr, name)(x, y).torch(), getattr(F, name)(x, y))
        close(getattr(F, name)(sr.Tensor(x), y), getattr(F, name)(x, y))
    close(sr.cross_entropy(x, torch.tensor([0, 1, 2, 0])).torch(), F.cross_entropy(x, torch.tensor([0, 1, 2, 0])))


@pytest.mark.parametrize("name", NAMED)
def test_autocast_gives_what_torch_gives(name):
    """Losses run in float32 under autocast; binary_cross_entropy is refused, as torch refuses it."""
    x, y = (t.values.to(torch.bfloat16) for t in (sample("features", torch.float32, s) for s in (0, 3)))
    ragged = [sr.from_lengths(t, [3, 1, 2]) for t in (x, y)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = getattr(F, name)(x, y)
        got = getattr(F, name)(*ragged)
    assert got.dtype == want.dtype
    close(got, want)


def test_a_target_that_stretches_gives_no_warning_about_packed_sizes(recwarn):
    x = sr.from_lengths(torch.arange(6.0).view(3, 2), [2, 1])
    target = torch.tensor([[[1.0, 2.0]]])
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        got = getattr(sr, name)(x, target, reduction="none")
        want = [getattr(F, name)(row.torch(), target[0].expand(len(row), 2), reduction="none").tolist() for row in x]
        assert got.tolist() == want
    assert not recwarn.list
