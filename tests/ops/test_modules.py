"""torch's modules on ragged batches, against the same on padded and masked ones: outputs, gradients, training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import serrate as sr
from serrate.errors import AxisError

LENGTHS, OTHER = [3, 1, 4, 2], [2, 5, 1, 3]
WIDTH, HEADS = 8, 2


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mask_of(lengths: list[int]) -> torch.Tensor:
    """Which entries of the padded batch there are."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def pad(values: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """The padded batch, [B, longest, …], with 0 for padding."""
    mask = mask_of(lengths)
    made = values.new_zeros(*mask.shape, *values.shape[1:])
    return made.index_put((mask,), values)


def seeded(make: Callable[[], nn.Module], **options: Any) -> nn.Module:
    torch.manual_seed(3)
    module = make(**options).double()
    with torch.no_grad():
        for p in module.parameters():  # biases and norms start at 0 and 1
            p.add_(0.3 * torch.randn_like(p))
    return module


def gradients(module: nn.Module, out: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    g = noise(*out.shape, seed=9)
    everything = [*module.parameters(), *leaves]
    if not out.requires_grad:
        return []
    return list(torch.autograd.grad(out, everything, g, allow_unused=True, materialize_grads=True))


def same(module: nn.Module, ragged: Any, padded: Any, lengths: list[int], leaves: list[torch.Tensor]) -> None:
    """`ragged()` gives what `padded()` gives where there are entries, with the same gradients; trained or not."""
    for training in (True, False):
        module.train(training)
        got, want = ragged(), padded()[mask_of(lengths)]
        assert isinstance(got, sr.Tensor)
        assert got.lengths[0].tolist() == lengths
        torch.testing.assert_close(got.values, want, rtol=1e-10, atol=1e-10)
        for a, b in zip(gradients(module, got.values, leaves), gradients(module, want, leaves), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
        with torch.no_grad():
            torch.testing.assert_close(ragged().values, want, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------------------------------------- entry by entry

FEATUREWISE: dict[str, Callable[[], nn.Module]] = {
    "Linear": lambda: nn.Linear(WIDTH, 5),
    "Linear without bias": lambda: nn.Linear(WIDTH, 5, bias=False),
    "LayerNorm": lambda: nn.LayerNorm(WIDTH),
    "LayerNorm without bias": lambda: nn.LayerNorm(WIDTH, bias=False),
    "LayerNorm plain": lambda: nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-2),
    "RMSNorm": lambda: nn.RMSNorm(WIDTH),
    "RMSNorm plain": lambda: nn.RMSNorm(WIDTH, elementwise_affine=False, eps=1e-3),
    "GELU": nn.GELU,
    "GELU tanh": lambda: nn.GELU(approximate="tanh"),
    "ReLU": nn.ReLU,
    "SiLU": nn.SiLU,
    "Mish": nn.Mish,
    "ELU": lambda: nn.ELU(0.5),
    "LeakyReLU": lambda: nn.LeakyReLU(0.2),
    "Softplus": lambda: nn.Softplus(2.0),
    "LogSigmoid": nn.LogSigmoid,
    "Sigmoid": nn.Sigmoid,
    "Tanh": nn.Tanh,
    "Identity": nn.Identity,
    "Softmax of features": lambda: nn.Softmax(dim=-1),
    "LogSoftmax of features": lambda: nn.LogSoftmax(dim=2),
    "Dropout 0": lambda: nn.Dropout(0.0),
    "Sequential": lambda: nn.Sequential(
        nn.Linear(WIDTH, 3), nn.ReLU(), nn.Dropout(0.0), nn.Linear(3, 2), nn.Softmax(-1)
    ),
}


@pytest.mark.parametrize("name", FEATUREWISE)
def test_modules_of_features(name):
    module = seeded(FEATUREWISE[name])
    values = noise(sum(LENGTHS), WIDTH, seed=1).requires_grad_()
    x = sr.from_lengths(values, LENGTHS)
    same(module, lambda: module(x), lambda: module(pad(values, LENGTHS)), LENGTHS, [values])


def test_norms_over_several_axes():
    for module in (seeded(lambda: nn.LayerNorm([2, 3])), seeded(lambda: nn.RMSNorm([2, 3]))):
        values = noise(sum(LENGTHS), 2, 3, seed=1).requires_grad_()
        x = sr.from_lengths(values, LENGTHS)
        same(module, lambda: module(x), lambda: module(pad(values, LENGTHS)), LENGTHS, [values])  # noqa: B023


def test_features_that_are_not_last_are_refused():
    """[batch, features, sequence]: the last axis is ragged, whatever its values look like when packed."""
    x = sr.from_lengths(noise(16, WIDTH), [8, 8]).mT
    for module in (nn.Linear(WIDTH, 2), nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH), encoder_layer()):
        with pytest.raises(ValueError, match=r"axis|axes|features|shape"):
            module.double()(x)


@pytest.mark.parametrize("make", [nn.Softmax, nn.LogSoftmax])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_softmax_along_the_ragged_axis(make, shape):
    values = noise(sum(LENGTHS), *shape, seed=1).requires_grad_()
    hidden = ~mask_of(LENGTHS).view(4, -1, *[1] * len(shape))
    module = make(dim=1)

    def padded():
        made = module(pad(values, LENGTHS).masked_fill(hidden, -float("inf")))
        return made.masked_fill(hidden, 0)

    same(module, lambda: module(sr.from_lengths(values, LENGTHS)), padded, LENGTHS, [values])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"padding_idx": -1}])
def test_embedding(options, dtype):
    module = seeded(lambda: nn.Embedding(6, WIDTH, **options))
    ids = torch.tensor([1, 2, 5, 2, 0, 3, 3, 1, 4, 5], dtype=dtype)
    same(module, lambda: module(sr.from_lengths(ids, LENGTHS)), lambda: module(pad(ids, LENGTHS)), LENGTHS, [])


@pytest.mark.parametrize("options", [{"max_norm": 0.5}, {"sparse": True}, {"scale_grad_by_freq": True}])
def test_options_of_embedding(options):
    """Compared on the packed ids: padding would count as an index."""
    ids = torch.tensor([1, 2, 5, 2, 0, 3, 3, 1, 4, 5])
    made = []
    for given in (sr.from_lengths(ids, LENGTHS), ids):
        module = seeded(lambda: nn.Embedding(6, WIDTH, **options))
        out = module(given)
        out = out.values if isinstance(out, sr.Tensor) else out
        (out * noise(*out.shape)).sum().backward()
        made.append((out, module.weight.detach(), module.weight.grad.to_dense()))
        assert module.weight.grad.is_sparse == ("sparse" in options)
    for a, b in zip(*made, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"include_last_offset": True}])
def test_embedding_bag(mode, options):
    lengths = [3, 0, 4, 1, 2]
    ids = torch.tensor([1, 2, 5, 2, 0, 3, 3, 1, 4, 5])
    module = seeded(lambda: nn.EmbeddingBag(6, WIDTH, mode=mode, **options))
    plain = seeded(
        lambda: nn.EmbeddingBag(6, WIDTH, mode=mode, **{k: v for k, v in options.items() if "last" not in k})
    )
    offsets = torch.tensor([0, 3, 3, 7, 8])
    got, want = module(sr.from_lengths(ids, lengths)), plain(ids, offsets)
    assert type(got) is torch.Tensor
    torch.testing.assert_close(got, want)
    assert got[1].eq(0).all()
    g = noise(*want.shape)
    got.backward(g)
    want.backward(g)
    torch.testing.assert_close(module.weight.grad, plain.weight.grad)
    if mode == "sum":
        weights = noise(10, seed=5).requires_grad_()
        one = module(sr.from_lengths(ids, lengths), per_sample_weights=sr.from_lengths(weights, lengths))
        two = plain(ids, offsets, per_sample_weights=weights)
        torch.testing.assert_close(one, two)
        torch.testing.assert_close(torch.autograd.grad(one, [weights], g), torch.autograd.grad(two, [weights], g))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_in_training(p):
    """Each element is 0 with probability p, else divided by 1 - p, and the gradient is the same mask."""
    torch.manual_seed(0)
    module = nn.Dropout(p)
    lengths = [3000, 0, 7000, 500]
    x = sr.from_lengths(torch.ones(sum(lengths), 4, dtype=torch.float64), lengths).requires_grad_()
    y = module(x)
    dropped = (y.values == 0).double()
    assert ((y.values == 0) | (y.values == 1 / (1 - p))).all()
    assert abs(dropped.mean().item() - p) < 0.01
    for column in dropped.T:
        assert abs(column.mean().item() - p) < 0.02
    near = (dropped[1:] * dropped[:-1]).mean().item()
    assert abs(near - p * p) < 0.02  # neighbours are independent
    y.values.sum().backward()
    assert torch.equal(x.values.grad, y.values.detach())
    assert not torch.equal(module(x).values, y.values)
    module.eval()
    assert torch.equal(module(x).values, x.values)
    assert nn.Dropout(1.0)(x).values.eq(0).all()
    torch.manual_seed(7)
    first = module.train()(x).values
    torch.manual_seed(7)
    assert torch.equal(module(x).values, first)


@pytest.mark.parametrize("padding", [0, "same", 2])
def test_conv1d(padding):
    """With zeros beyond the ends, padded entries are what the module puts there itself."""
    module = seeded(lambda: nn.Conv1d(WIDTH, 4, 3, padding=padding))
    lengths = [3, 5, 4, 3]
    values = noise(sum(lengths), WIDTH, seed=1).requires_grad_()
    grown = {0: -2, "same": 0, 2: 2}[padding]
    made = [n + grown for n in lengths]
    x = sr.from_lengths(values, lengths)
    same(module, lambda: module(x.mT).mT, lambda: module(pad(values, lengths).mT).mT, made, [values])


# -------------------------------------------------------------------------------------------------- attention

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no bias": {"bias": False},
    "extra key": {"add_bias_kv": True},
    "extra zeros": {"add_zero_attn": True},
    "both extra": {"add_bias_kv": True, "add_zero_attn": True},
}


def columns(n: int, longest: int, options: dict[str, Any]) -> list[int]:
    """Where the keys of a row of `n` stand in the padded weights; extra keys come last."""
    return [*range(n), *range(longest, longest + len([k for k in options if k.startswith("add_")]))]


def same_weights(got: sr.Tensor, want: torch.Tensor, own: list[int], other: list[int], options: dict[str, Any]) -> None:
    for b, (q, k) in enumerate(zip(own, other, strict=True)):
        chosen = want[b][..., :q, :][..., columns(k, max(other), options)]
        torch.testing.assert_close(got[b].torch(), chosen, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("kind", ["self", "cross", "other widths"])
def test_multihead_attention(kind, name, average):
    options = OPTIONS[name]
    widths = {"kdim": 3, "vdim": 5} if kind == "other widths" else {}
    module = seeded(lambda: nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options, **widths))
    lengths = LENGTHS if kind == "self" else OTHER
    values = [noise(sum(LENGTHS), WIDTH, seed=1).requires_grad_()]
    if kind != "self":
        sizes = (3, 5) if kind == "other widths" else (WIDTH, WIDTH)
        values += [noise(sum(OTHER), size, seed=size).requires_grad_() for size in sizes]

    def both(need: bool) -> tuple[Any, Any]:
        x = [sr.from_lengths(v, n) for v, n in zip(values, (LENGTHS, OTHER, OTHER), strict=False)]
        d = [pad(v, n) for v, n in zip(values, (LENGTHS, OTHER, OTHER), strict=False)]
        x, d = (x * 3 if kind == "self" else x), (d * 3 if kind == "self" else d)
        settings = {"need_weights": need, "average_attn_weights": average}
        return module(*x, **settings), module(*d, key_padding_mask=~mask_of(lengths), **settings)

    for need in (True, False):
        same(module, lambda: both(need)[0][0], lambda: both(need)[1][0], LENGTHS, values)  # noqa: B023
        (_, got), (_, want) = both(need)
        if need:
            same_weights(got, want, LENGTHS, lengths, options)
            found = [
                torch.autograd.grad(w.values.square().sum() if isinstance(w, sr.Tensor) else w.square().sum(), leaves)
                for w, leaves in ((got, values[:1]), (masked(want, LENGTHS, lengths, options), values[:1]))
            ]
            torch.testing.assert_close(*found)
        else:
            assert got is None
            assert want is None


def masked(weights: torch.Tensor, own: list[int], other: list[int], options: dict[str, Any]) -> torch.Tensor:
    """Padded weights with 0 for pairs that there are not."""
    keep = torch.zeros_like(weights)
    for b, (q, k) in enumerate(zip(own, other, strict=True)):
        for column in columns(k, max(other), options):
            keep[b][..., :q, column] = 1
    return weights * keep


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("form", ["bool", "float", "bool per head", "float per head", "causal", "causal hint"])
def test_masks_of_multihead_attention(form, more, need):
    """One mask for all rows, or one per head of each; True hides a key. Its top-left block counts."""
    module = seeded(lambda: nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    values = noise(sum(LENGTHS), WIDTH, seed=1).requires_grad_()
    size = max(LENGTHS) + more
    number = (len(LENGTHS) * HEADS,) if "head" in form else ()
    mask = noise(*number, size, size, seed=4) > 0.4
    mask[..., 0] = False  # nobody is left without a key, queries that are padding included: torch gives NaN there
    mask = torch.ones(size, size).triu(1) > 0 if "causal" in form else mask
    mask = torch.where(mask, -float("inf"), noise(*mask.shape, seed=6)) if form.startswith("float") else mask
    block = mask[..., : max(LENGTHS), : max(LENGTHS)]
    padding = (
        ~mask_of(LENGTHS) if mask.dtype == torch.bool else torch.where(mask_of(LENGTHS), 0.0, -float("inf")).double()
    )
    hint = {"is_causal": form == "causal hint"}

    def ragged():
        x = sr.from_lengths(values, LENGTHS)
        return module(x, x, x, attn_mask=mask, need_weights=need, **hint)

    def padded():
        d = pad(values, LENGTHS)
        return module(d, d, d, attn_mask=block, key_padding_mask=padding, need_weights=need, **hint)

    same(module, lambda: ragged()[0], lambda: padded()[0], LENGTHS, [values])
    if need:
        same_weights(ragged()[1], padded()[1], LENGTHS, LENGTHS, {})


def as_padded_or_refused(call: Any, want: torch.Tensor, name: str) -> None:
    try:
        got = call()
    except TypeError as error:
        if name not in str(error):
            raise
        return
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("shape", ["ragged", "dense"])
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_masks_of_the_function_that_modules_call(kind, shape, need):
    """multi_head_attention_forward takes masks as they come: True hides, numbers are added; [B, q, k] may be ragged."""
    module = seeded(lambda: nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    values = noise(sum(LENGTHS), WIDTH, seed=1)
    x, d = sr.from_lengths(values, LENGTHS), pad(values, LENGTHS)
    full = noise(4, 4, 4, seed=4)
    dense = (full > 0.4).index_fill(2, torch.tensor([0]), False) if kind == "bool" else full
    blocks = torch.cat([dense[b, :n, :n].flatten() for b, n in enumerate(LENGTHS)])
    mask = sr.from_product(blocks, x.partitions[0], x.partitions[0]) if shape == "ragged" else dense[0]
    padding = ~mask_of(LENGTHS)
    padding = padding if kind == "bool" else torch.where(padding, -float("inf"), 0.0).double()
    wide = dense.repeat_interleave(HEADS, 0) if shape == "ragged" else dense[0]
    want = module(d, d, d, attn_mask=wide, key_padding_mask=padding, need_weights=need)[0][mask_of(LENGTHS)]
    turned = x.permute_dims((1, 0, 2))
    weights = (module.in_proj_weight, module.in_proj_bias, None, None, False, 0.0)
    project = (module.out_proj.weight, module.out_proj.bias)

    def call() -> torch.Tensor:
        out, _ = F.multi_head_attention_forward(
            turned, turned, turned, WIDTH, HEADS, *weights, *project, attn_mask=mask, need_weights=need
        )
        return out.values

    if kind == "bool":
        as_padded_or_refused(call, want, "mask")
    else:
        torch.testing.assert_close(call(), want)


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_a_ragged_mask_of_keys(kind, causal, need):
    """Ragged [B, k] in the place of the padding mask hides keys of each row, beside a mask for all rows."""
    module = seeded(lambda: nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    values = noise(sum(LENGTHS), WIDTH, seed=1)
    x, d = sr.from_lengths(values, LENGTHS), pad(values, LENGTHS)
    keys = torch.tensor([False, True, False, False, False, False, True, True, False, True])
    keys = keys if kind == "bool" else torch.where(keys, -1.5, 0.5).double()
    padding = ~mask_of(LENGTHS)
    other = torch.where(padding, True if kind == "bool" else -float("inf"), pad(keys, LENGTHS))
    mask = torch.ones(6, 6).triu(1) > 0
    mask = mask if kind == "bool" else torch.where(mask, -float("inf"), 0.0).double()
    ours, theirs = ({"attn_mask": mask}, {"attn_mask": mask[:4, :4]}) if causal else ({}, {})
    want = module(d, d, d, key_padding_mask=other, need_weights=need, **theirs)[0][mask_of(LENGTHS)]
    got = module(x, x, x, key_padding_mask=sr.from_lengths(keys, LENGTHS), need_weights=need, **ours)[0].values
    torch.testing.assert_close(got, want)


def test_a_padding_mask_has_no_meaning():
    module = seeded(lambda: nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    x = sr.from_lengths(noise(sum(LENGTHS), WIDTH), LENGTHS)
    for mask in (torch.zeros(4, 4, dtype=torch.bool), torch.zeros(4, 4, dtype=torch.float64)):
        with pytest.raises(TypeError, match="key_padding_mask"):
            module(x, x, x, key_padding_mask=mask)


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_an_extra_key_with_a_mask_is_as_padded_or_refused(options):
    values = noise(sum(LENGTHS), WIDTH, seed=1)
    mask = torch.ones(4, 4).triu(1) > 0
    x, d = sr.from_lengths(values, LENGTHS), pad(values, LENGTHS)
    module = seeded(lambda: nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options))
    want = module(d, d, d, attn_mask=mask, key_padding_mask=~mask_of(LENGTHS))[0][mask_of(LENGTHS)]
    as_padded_or_refused(lambda: module(x, x, x, attn_mask=mask)[0].values, want, "attn_mask")
    hidden = sr.from_lengths(torch.zeros(sum(LENGTHS), dtype=torch.bool), LENGTHS)
    want = module(d, d, d, key_padding_mask=~mask_of(LENGTHS))[0][mask_of(LENGTHS)]
    as_padded_or_refused(lambda: module(x, x, x, key_padding_mask=hidden)[0].values, want, "key_padding_mask")


def test_batch_first_is_named_where_it_is_missing():
    x = sr.from_lengths(noise(sum(LENGTHS), WIDTH), LENGTHS)
    layers: list[Any] = [
        lambda: nn.MultiheadAttention(WIDTH, HEADS).double()(x, x, x),
        lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 16).double()(x),
        lambda: nn.TransformerDecoderLayer(WIDTH, HEADS, 16).double()(x, x),
        lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 16).double().eval()(x),
    ]
    for call in layers:
        with pytest.raises(AxisError, match="batch_first"):
            call()


def test_sequence_first_views_need_no_batch_first():
    """[sequence, batch, features], the ragged axis first, is what such modules take."""
    module = seeded(lambda: nn.MultiheadAttention(WIDTH, HEADS))
    values = noise(sum(LENGTHS), WIDTH, seed=1)
    x = sr.from_lengths(values, LENGTHS).permute_dims((1, 0, 2))
    got, _ = module(x, x, x, need_weights=False)
    d = pad(values, LENGTHS).transpose(0, 1)
    want = module(d, d, d, key_padding_mask=~mask_of(LENGTHS), need_weights=False)[0].transpose(0, 1)
    assert got.shape == x.shape
    torch.testing.assert_close(got.values, want[mask_of(LENGTHS)])


def test_attention_dropout_in_training():
    module = seeded(lambda: nn.MultiheadAttention(WIDTH, HEADS, dropout=0.5, batch_first=True))
    values = noise(sum(LENGTHS), WIDTH, seed=1).requires_grad_()
    x = sr.from_lengths(values, LENGTHS)
    torch.manual_seed(0)
    _, weights = module(x, x, x, average_attn_weights=False)
    clean = copy.deepcopy(module).eval()(x, x, x, average_attn_weights=False)[1]
    kept = weights.values != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(weights.values[kept], 2 * clean.values[kept])
    module.eval()
    torch.testing.assert_close(module(x, x, x)[0].values, module(x, x, x, need_weights=False)[0].values)


# ----------------------------------------------------------------------------------------------- transformers


def encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(WIDTH, HEADS, 16, **({"dropout": 0.0, "batch_first": True} | options))


def decoder_layer(**options: Any) -> nn.TransformerDecoderLayer:
    return nn.TransformerDecoderLayer(WIDTH, HEADS, 16, **({"dropout": 0.0, "batch_first": True} | options))


LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm first": {"norm_first": True},
    "gelu": {"activation": "gelu"},
    "a function": {"activation": F.silu, "norm_first": True},
    "no bias": {"bias": False},
}


@pytest.mark.parametrize("name", LAYERS)
def test_encoder_layers(name):
    module = seeded(encoder_layer, **LAYERS[name])
    values = noise(sum(LENGTHS), WIDTH, seed=1).requires_grad_()
    hidden = ~mask_of(LENGTHS)
    same(
        module,
        lambda: module(sr.from_lengths(values, LENGTHS)),
        lambda: module(pad(values, LENGTHS), src_key_padding_mask=hidden),
        LENGTHS,
        [values],
    )


@pytest.mark.parametrize("more", [0, 5])
@pytest.mark.parametrize("kind", ["float", "bool"])
@pytest.mark.parametrize("is_causal", [True, False])
def test_encoders_with_a_mask(kind, more, is_causal):
    """A causal mask, as large as the longest row or larger; is_causal says so or leaves it to the mask."""
    layer = seeded(encoder_layer)
    module = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(WIDTH).double(), enable_nested_tensor=False)
    values = noise(sum(LENGTHS), WIDTH, seed=1).requires_grad_()
    mask = nn.Transformer.generate_square_subsequent_mask(max(LENGTHS) + more, dtype=torch.float64)
    mask = mask < 0 if kind == "bool" else mask
    hidden = ~mask_of(LENGTHS)
    hidden = hidden if kind == "bool" else torch.where(hidden, -float("inf"), 0.0).double()
    block = mask[: max(LENGTHS), : max(LENGTHS)]
    same(
        module,
        lambda: module(sr.from_lengths(values, LENGTHS), mask=mask, is_causal=is_causal),
        lambda: module(pad(values, LENGTHS), mask=block, src_key_padding_mask=hidden, is_causal=is_causal),
        LENGTHS,
        [values],
    )


def test_encoders_without_a_mask_and_with_any_mask():
    module = nn.TransformerEncoder(seeded(encoder_layer), 2, enable_nested_tensor=False)
    values = noise(sum(LENGTHS), WIDTH, seed=1).requires_grad_()
    hidden = ~mask_of(LENGTHS)
    x = sr.from_lengths(values, LENGTHS)
    same(
        module, lambda: module(x), lambda: module(pad(values, LENGTHS), src_key_padding_mask=hidden), LENGTHS, [values]
    )
    mask = (noise(7, 7, seed=4) > 0.4).index_fill(1, torch.tensor([0]), False)
    same(
        module,
        lambda: module(x, mask=mask, is_causal=False),
        lambda: module(pad(values, LENGTHS), mask=mask[:4, :4], src_key_padding_mask=hidden, is_causal=False),
        LENGTHS,
        [values],
    )


def test_a_mask_in_an_encoder_needs_is_causal():
    """torch would compare it with a causal one as long as the rows, which have no one length."""
    module = nn.TransformerEncoder(seeded(encoder_layer), 1, enable_nested_tensor=False)
    x = sr.from_lengths(noise(sum(LENGTHS), WIDTH, seed=1), LENGTHS)
    with pytest.raises(TypeError):
        module(x, mask=torch.ones(4, 4).triu(1) > 0)


def test_a_mask_smaller_than_the_longest_row_is_refused():
    x = sr.from_lengths(noise(sum(LENGTHS), WIDTH, seed=1), LENGTHS)
    module = seeded(encoder_layer)
    for mask in (torch.zeros(3, 3, dtype=torch.bool), torch.zeros(3, 4, dtype=torch.float64)):
        with pytest.raises(ValueError, match="smaller than the longest row, 4"):
            module(x, src_mask=mask)


@pytest.mark.parametrize("name", LAYERS)
def test_decoder_layers(name):
    module = seeded(decoder_layer, **LAYERS[name])
    values = [noise(sum(n), WIDTH, seed=s).requires_grad_() for n, s in ((LENGTHS, 1), (OTHER, 2))]
    x, memory = (sr.from_lengths(v, n) for v, n in zip(values, (LENGTHS, OTHER), strict=True))
    hidden = {"tgt_key_padding_mask": ~mask_of(LENGTHS), "memory_key_padding_mask": ~mask_of(OTHER)}

    def padded(**options: Any) -> torch.Tensor:
        return module(pad(values[0], LENGTHS), pad(values[1], OTHER), **hidden, **options)

    same(module, lambda: module(x, memory), padded, LENGTHS, values)
    causal = torch.ones(9, 9).triu(1) > 0
    for hint in (True, False):
        same(
            module,
            lambda: module(x, memory, tgt_mask=causal, tgt_is_causal=hint),  # noqa: B023
            lambda: padded(tgt_mask=causal[:4, :4], tgt_is_causal=hint),  # noqa: B023
            LENGTHS,
            values,
        )
    across = (noise(6, 6, seed=4) > 0.5).index_fill(1, torch.tensor([0]), False)
    same(
        module,
        lambda: module(x, memory, memory_mask=across),
        lambda: padded(memory_mask=across[:4, :5]),
        LENGTHS,
        values,
    )


@pytest.mark.parametrize("need", [True, False])
def test_one_side_of_attention_may_be_dense(need):
    """Queries of a fixed number look at ragged rows, and ragged rows at a fixed number of keys."""
    module = seeded(lambda: nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    values, fixed = noise(sum(OTHER), WIDTH, seed=2).requires_grad_(), noise(4, 3, WIDTH, seed=5).requires_grad_()
    x, hidden = sr.from_lengths(values, OTHER), ~mask_of(OTHER)
    got, weights = module(fixed, x, x, need_weights=need)
    want, _ = module(fixed, pad(values, OTHER), pad(values, OTHER), key_padding_mask=hidden, need_weights=need)
    assert type(got) is torch.Tensor
    torch.testing.assert_close(got, want)
    for a, b in zip(*(gradients(module, out, [values, fixed]) for out in (got, want)), strict=True):
        torch.testing.assert_close(a, b)
    assert not need or weights.shape == (4, 3, sr.Ragged(OTHER))
    same(
        module,
        lambda: module(x, fixed, fixed, need_weights=need)[0],
        lambda: module(pad(values, OTHER), fixed, fixed)[0],
        OTHER,
        [values, fixed],
    )


def test_one_side_of_a_decoder_may_be_dense():
    module = seeded(decoder_layer)
    values, fixed = noise(sum(OTHER), WIDTH, seed=2).requires_grad_(), noise(4, 3, WIDTH, seed=5).requires_grad_()
    x, hidden = sr.from_lengths(values, OTHER), ~mask_of(OTHER)
    got, want = module(fixed, x), module(fixed, pad(values, OTHER), memory_key_padding_mask=hidden)
    assert type(got) is torch.Tensor
    torch.testing.assert_close(got, want)
    for a, b in zip(*(gradients(module, out, [values, fixed]) for out in (got, want)), strict=True):
        torch.testing.assert_close(a, b)
    same(
        module,
        lambda: module(x, fixed),
        lambda: module(pad(values, OTHER), fixed, tgt_key_padding_mask=hidden),
        OTHER,
        [values, fixed],
    )


def test_a_transformer_of_both():
    torch.manual_seed(0)
    module = nn.Transformer(WIDTH, HEADS, 2, 2, 16, dropout=0.0, batch_first=True, dtype=torch.float64)
    module.encoder.enable_nested_tensor = False
    values = [noise(sum(n), WIDTH, seed=s).requires_grad_() for n, s in ((OTHER, 1), (LENGTHS, 2))]
    causal = torch.ones(4, 4).triu(1) > 0
    same(
        module,
        lambda: module(
            sr.from_lengths(values[0], OTHER), sr.from_lengths(values[1], LENGTHS), tgt_mask=causal, tgt_is_causal=True
        ),
        lambda: module(
            pad(values[0], OTHER),
            pad(values[1], LENGTHS),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=~mask_of(OTHER),
            memory_key_padding_mask=~mask_of(OTHER),
            tgt_key_padding_mask=~mask_of(LENGTHS),
        ),
        LENGTHS,
        values,
    )


@pytest.mark.parametrize("lengths", [[3, 0, 2, 0], [1], [2, 2, 2], [0, 0], []])
def test_batches_of_every_kind_equal_their_rows_alone(lengths):
    """Empty rows stay empty; no rows, one row and equal rows are batches like any other."""
    module = seeded(encoder_layer)
    values = noise(sum(lengths), WIDTH, seed=1).requires_grad_()
    for training in (True, False):
        module.train(training)
        got = module(sr.from_lengths(values, lengths)).values
        rows = [module(row[None])[0] for row in (values.split(lengths) if lengths else []) if len(row)]
        want = torch.cat(rows) if rows else values + 0
        torch.testing.assert_close(got, want)
        found, wanted = gradients(module, got, [values]), gradients(module, want, [values])
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)


def test_a_spoilt_row_leaves_the_others():
    module = nn.TransformerEncoder(seeded(encoder_layer), 2, enable_nested_tensor=False)
    lengths = [9, 8, 9, 3]
    clean = noise(sum(lengths), WIDTH, seed=1)
    spoilt = clean.clone()
    spoilt[9:17] = float("nan")
    made = []
    for values in (clean, spoilt):
        leaf = values.clone().requires_grad_()
        out = module(sr.from_lengths(leaf, lengths)).values
        (gradient,) = torch.autograd.grad(out, [leaf], noise(*out.shape, seed=2))
        made.append((out, gradient))
    keep = [*range(9), *range(17, 29)]
    for a, b in zip(*made, strict=True):
        torch.testing.assert_close(a[keep], b[keep])
        assert b[9:17].isnan().all()


@pytest.mark.parametrize("spare", [0, 3])
def test_lengths_born_on_a_device(spare):
    """Also where rows past the last offset hold NaN: they have no part in any output or gradient."""
    ids = torch.tensor([1, 2, 5, 2, 0, 3, 3, 1, 4, 5])
    torch.manual_seed(0)
    module = nn.ModuleList([nn.Embedding(6, WIDTH), encoder_layer(), nn.Linear(WIDTH, 3), nn.RMSNorm(WIDTH)]).double()

    def run(x: sr.Tensor, more: sr.Tensor) -> torch.Tensor:
        made = module[2](module[1](module[0](x) + module[3](more)))
        return F.mse_loss(made, sr.zeros_like(made)) + made.sum().torch()

    values = noise(len(ids), WIDTH, seed=1)
    x, more = sr.from_lengths(ids, LENGTHS), sr.from_lengths(values, LENGTHS)
    run(x, more).backward()
    want = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    born = [sr.testing.device_born(t, spare=spare) for t in (x, more)]
    if spare:
        born[1].values[-spare:] = float("nan")
    loss = run(*born)
    torch.testing.assert_close(loss, run(x, more))
    loss.backward()
    for p, g in zip(module.parameters(), want, strict=True):
        torch.testing.assert_close(p.grad, g)


# --------------------------------------------------------------------------------------------------- training


class Tagger(nn.Module):
    """Embedding, two encoder layers, a head: a class or a number for every token."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.table = nn.Embedding(20, WIDTH)
        self.encoder = nn.TransformerEncoder(encoder_layer(norm_first=True), 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, outputs)

    def forward(self, ids: Any, hidden: torch.Tensor | None = None) -> Any:
        return self.head(self.encoder(self.table(ids), src_key_padding_mask=hidden))


class Bags(nn.Module):
    """The mean of embeddings, then an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(20, WIDTH, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5))

    def forward(self, ids: Any, mask: torch.Tensor | None = None) -> torch.Tensor:
        if mask is None:
            return self.mlp(self.bag(ids))
        taken = F.embedding(ids, self.bag.weight) * mask[..., None]
        return self.mlp(taken.sum(1) / mask.sum(1, keepdim=True).clamp(min=1))


def steps(least: int) -> Any:
    """20 fresh batches: lengths, ids, class numbers and numbers for each token."""
    generator = torch.Generator().manual_seed(11)
    for _ in range(20):
        rows = int(torch.randint(1, 6, (), generator=generator))
        lengths = torch.randint(least, 8, (rows,), generator=generator).tolist()
        lengths[0] = max(lengths[0], 1)
        count = sum(lengths)
        ids = torch.randint(0, 20, (count,), generator=generator)
        labels = torch.randint(0, 5, (count,), generator=generator)
        yield lengths, ids, labels, torch.randn(count, 1, generator=generator, dtype=torch.float64)


def optimizer(name: str, module: nn.Module) -> torch.optim.Optimizer:
    if name == "SGD":
        return torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    return torch.optim.AdamW(module.parameters(), lr=1e-2)


def train(name: str, module: nn.Module, losses: Any) -> list[float]:
    made = []
    chosen = optimizer(name, module)
    for loss in losses(module):
        chosen.zero_grad()
        loss.backward()
        chosen.step()
        made.append(loss.item())
    return made


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
@pytest.mark.parametrize("kind", ["cross entropy", "mse"])
def test_an_encoder_trains_as_the_padded_one(kind, name):
    torch.manual_seed(1)
    ours = Tagger(5 if kind == "cross entropy" else 1).double()
    theirs = copy.deepcopy(ours)

    def ragged(module):
        for lengths, ids, labels, numbers in steps(1):
            out = module(sr.from_lengths(ids, lengths))
            if kind == "mse":
                yield F.mse_loss(out, sr.from_lengths(numbers, lengths))
            else:
                yield F.cross_entropy(out.mT, sr.from_lengths(labels, lengths))

    def padded(module):
        for lengths, ids, labels, numbers in steps(1):
            mask = mask_of(lengths)
            out = module(pad(ids, lengths), ~mask)
            if kind == "mse":
                yield ((out - pad(numbers, lengths)).square() * mask[..., None]).sum() / mask.sum()
            else:
                yield F.cross_entropy(out.mT, pad(labels, lengths).masked_fill(~mask, -100))

    one, two = train(name, ours, ragged), train(name, theirs, padded)
    assert len(one) == 20
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-9
    assert len(set(one)) == 20
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
@pytest.mark.parametrize("kind", ["cross entropy", "mse"])
def test_bags_train_as_the_padded_ones(kind, name):
    torch.manual_seed(1)
    ours = Bags().double()
    theirs = copy.deepcopy(ours)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        wanted = labels[torch.arange(len(out)) % len(labels)]
        return F.cross_entropy(out, wanted) if kind == "cross entropy" else F.mse_loss(out[:, 0], wanted.double())

    def ragged(module):
        for lengths, ids, labels, _ in steps(0):
            yield loss(module(sr.from_lengths(ids, lengths)), labels)

    def padded(module):
        for lengths, ids, labels, _ in steps(0):
            yield loss(module(pad(ids, lengths), mask_of(lengths)), labels)

    one, two = train(name, ours, ragged), train(name, theirs, padded)
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) <= 1e-9
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LSTM(WIDTH, 4, batch_first=True),
        lambda: nn.GRU(WIDTH, 4, batch_first=True),
        lambda: nn.BatchNorm1d(WIDTH),
        lambda: nn.GroupNorm(2, WIDTH),
        lambda: nn.InstanceNorm1d(WIDTH),
        lambda: nn.Bilinear(WIDTH, WIDTH, 2),
        lambda: nn.Upsample(scale_factor=2),
        lambda: nn.AdaptiveAvgPool1d(1),
        lambda: nn.CosineSimilarity(),
    ],
)
def test_modules_without_an_operation_say_so(make):
    """A TypeError that names what is missing, rather than an answer about packed values."""
    module = make().double()
    x = sr.from_lengths(noise(sum(LENGTHS), WIDTH), LENGTHS)
    args = (x, x) if isinstance(module, (nn.Bilinear, nn.CosineSimilarity)) else (x,)
    args = (x.mT,) if isinstance(module, nn.InstanceNorm1d) else args
    with pytest.raises(TypeError, match=r"sr\.Tensor|Tensor"):
        module(*args)
