"""Attention on ragged rows, against a loop over rows in float64: who sees whom is written out key by key."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import _Count as Counter
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.errors import AxisError, RaggednessError
from serrate.tensor.structure import Structure

OWN, OTHER = [3, 1, 4, 0, 2, 3], [4, 2, 0, 5, 2, 1]
LENGTHS = {
    "self": (OWN, OWN),
    "cross": (OWN, OTHER),
    "one row": ([4], [3]),
    "equal rows": ([2, 2, 2], [3, 3, 3]),
    "no rows": ([], []),
    "all rows empty": ([0, 0], [0, 0]),
    "no query": ([0, 0], [2, 1]),
    "no key": ([2, 1], [0, 0]),
    "wide classes": ([9, 9, 9, 8, 1], [9, 8, 11, 10, 9]),
}
HEADS = {"no heads": (None, None), "heads": (2, 2), "grouped": (4, 2)}
SEEN: dict[str, dict[str, Any]] = {
    "all": {},
    "causal": {"causal": True},
    "upper left": {"causal": "upper_left"},
    "lower right": {"causal": "lower_right"},
    "window": {"window": 1},
    "uneven window": {"window": (2, 0)},
    "open window": {"window": (-1, 0)},
    "own position": {"window": 0},
    "causal window": {"causal": True, "window": (1, 5)},
    "lower right window": {"causal": "lower_right", "window": (2, -1)},
    "scale": {"scale": 0.3, "causal": True},
    "scale 0": {"scale": 0.0},
}


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def packed(lengths: list[int], heads: int | None, features: int, seed: int, dtype: Any = torch.float64) -> torch.Tensor:
    shape = (sum(lengths), features) if heads is None else (sum(lengths), heads, features)
    return noise(*shape, seed=seed, dtype=dtype)


def tensor(values: torch.Tensor, lengths: Any) -> sr.Tensor:
    """Packed [N, (heads,) features] as [B, (heads,) r, features]."""
    x = sr.from_offsets(values, lengths) if isinstance(lengths, sr.Partition) else sr.from_lengths(values, lengths)
    return x if x.ndim == 3 else x.permute_dims((0, 2, 1, 3))


def pieces(values: torch.Tensor, lengths: list[int]) -> list[torch.Tensor]:
    """The rows of packed [N, (heads,) features], each [(heads,) n, features]."""
    made = values.split(lengths) if lengths else []
    return [row if row.ndim == 2 else row.transpose(0, 1) for row in made]


def may_see(i: int, j: int, queries: int, keys: int, causal: Any, window: Any) -> bool:
    at = i + (keys - queries if causal == "lower_right" else 0)
    if causal and j > at:
        return False
    before, after = (-1, -1) if window is None else (window, window) if isinstance(window, int) else window
    return (before < 0 or at - j <= before) and (after < 0 or j - at <= after)


def one_row(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal=False, window=None, scale=None, bias=None, mask=None
) -> torch.Tensor:
    """Attention of one row, [(heads,) n, features]; a query that sees no key gives 0."""
    if q.ndim == 3 and q.shape[0] != k.shape[0]:
        k, v = (x.repeat_interleave(q.shape[0] // k.shape[0], 0) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    count = scores.shape[-2:]
    grid = itertools.product(range(count[0]), range(count[1]))
    seen = torch.tensor([may_see(i, j, *count, causal, window) for i, j in grid], dtype=torch.bool).view(count)
    seen = seen.expand(scores.shape)
    scores = scores if bias is None else scores + bias
    seen = seen if mask is None else seen & mask
    seen = seen & (scores > -float("inf"))
    safe = scores.masked_fill(~seen, -1e300)
    top = safe.detach().amax(-1, keepdim=True) if count[1] else 0
    weights = torch.where(seen, (safe - top).exp(), 0)
    total = weights.sum(-1, keepdim=True)
    return (weights / torch.where(total == 0, 1, total)) @ v


def by_rows(q, k, v, lengths, blocks: dict[str, list[torch.Tensor]] | None = None, **options) -> torch.Tensor:
    """The loop over rows on packed values; `blocks` are the bias and the mask of each row."""
    own, other = lengths
    rows = zip(pieces(q, own), pieces(k, other), pieces(v, other), strict=True)
    made = [
        one_row(*row, **options, **{name: block[i] for name, block in (blocks or {}).items()})
        for i, row in enumerate(rows)
    ]
    made = [row if row.ndim == 2 else row.transpose(0, 1) for row in made]
    return torch.cat(made) if made else q[..., :1].expand(*q.shape[:-1], v.shape[-1])


def operands(lengths, heads=(None, None), dtype=torch.float64) -> list[torch.Tensor]:
    (own, other), (ours, theirs) = lengths, heads
    made = [packed(own, ours, 3, 1, dtype), packed(other, theirs, 3, 2, dtype), packed(other, theirs, 5, 3, dtype)]
    return [x.requires_grad_() for x in made]


def attend(values, lengths, **options) -> sr.Tensor:
    """sr.attention on packed values; keys have a partition of their own unless lengths are equal."""
    own, other = lengths
    q = tensor(values[0], own)
    rows = q.partitions[0] if own == other else other
    return sr.attention(q, tensor(values[1], rows), tensor(values[2], rows), **options)


def agree(values, got: torch.Tensor, want: torch.Tensor, fine: float = 1e-12) -> None:
    """The same values and the same gradients of all three operands."""
    torch.testing.assert_close(got, want, rtol=fine, atol=fine)
    assert got.isfinite().all()
    g = noise(*want.shape, seed=9)
    found = torch.autograd.grad(got, values, g, allow_unused=True, materialize_grads=True)
    wanted = torch.autograd.grad(want, values, g, allow_unused=True, materialize_grads=True)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=fine, atol=fine)


# ------------------------------------------------------------------------------------------------- who sees whom


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", LENGTHS)
def test_equals_a_loop_over_rows(name, heads, seen):
    lengths, options = LENGTHS[name], SEEN[seen]
    values = operands(lengths, HEADS[heads])
    got = attend(values, lengths, **options)
    assert isinstance(got, sr.Tensor)
    agree(values, got.values, by_rows(*values, lengths, **options))


@pytest.mark.parametrize("seen", ["all", "causal", "lower right", "causal window"])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", ["self", "cross", "wide classes", "no query", "no key", "no rows"])
def test_the_scores_form_equals_the_same_loop(name, heads, seen):
    """A mask that hides nothing keeps the kernels away."""
    lengths, options = LENGTHS[name], SEEN[seen]
    values = operands(lengths, HEADS[heads])
    got = attend(values, lengths, mask=every(lengths, HEADS[heads][0]), **options)
    agree(values, got.values, by_rows(*values, lengths, **options))


def lengths_of(lengths) -> tuple[sr.Partition, sr.Partition]:
    return sr.Partition.from_lengths(lengths[0]), sr.Partition.from_lengths(lengths[1])


def every(lengths, heads: int | None = None) -> sr.Tensor:
    """A mask that hides nothing."""
    made = sr.from_product(torch.ones(sum(map(int.__mul__, *lengths))) > 0, *lengths_of(lengths))
    return made if heads is None else sr.expand_dims(made, axis=1)


def full(lengths, heads: int | None, seed: int) -> torch.Tensor:
    """Numbers for each pair of a padded batch, [B, (heads,) longest, longest]."""
    sizes = [max(side, default=0) for side in lengths]
    return noise(len(lengths[0]), *([] if heads is None else [heads]), *sizes, seed=seed)


def cut(dense: torch.Tensor, lengths) -> list[torch.Tensor]:
    return [dense[i][..., :q, :k] for i, (q, k) in enumerate(zip(*lengths, strict=True))]


def product_of(dense: torch.Tensor, lengths) -> sr.Tensor:
    """A padded [B, (heads,) q, k] as ragged [B, (heads,) q, k]."""
    blocks = [b if b.ndim == 2 else b.permute(1, 2, 0) for b in cut(dense, lengths)]
    values = torch.cat([b.flatten(0, 1) for b in blocks])
    x = sr.from_product(values, *lengths_of(lengths))
    return x if x.ndim == 3 else x.permute_dims((0, 3, 1, 2))


@pytest.mark.parametrize("causal", [False, True, "lower_right"])
@pytest.mark.parametrize("kinds", ["bias", "mask", "both"])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", ["self", "cross", "one row", "equal rows", "all rows empty", "no query", "no key"])
def test_ragged_bias_and_mask(name, heads, kinds, causal):
    lengths = LENGTHS[name]
    number = HEADS[heads][0]
    values = operands(lengths, HEADS[heads])
    bias, mask = full(lengths, number, 5), full(lengths, number, 6) > 0.3
    bias = torch.where(bias > 1, -float("inf"), bias)
    given: dict[str, Any] = {}
    blocks: dict[str, Any] = {}
    if kinds != "mask":
        given["bias"], blocks["bias"] = product_of(bias, lengths), cut(bias, lengths)
    if kinds != "bias":
        given["mask"], blocks["mask"] = product_of(mask, lengths), cut(mask, lengths)
    got = attend(values, lengths, causal=causal, **given)
    agree(values, got.values, by_rows(*values, lengths, blocks, causal=causal))


@pytest.mark.parametrize("heads", [None, 2])
@pytest.mark.parametrize("name", ["self", "cross"])
def test_the_bias_has_a_gradient(name, heads):
    lengths = LENGTHS[name]
    values = operands(lengths, (heads, heads))
    padded = full(lengths, heads, 5).requires_grad_()
    want = by_rows(*values, lengths, {"bias": cut(padded, lengths)})
    g = noise(*want.shape, seed=9)
    (wanted,) = torch.autograd.grad(want, [padded], g)
    ragged = product_of(padded.detach(), lengths).requires_grad_()
    (found,) = torch.autograd.grad(attend(values, lengths, bias=ragged).values, [ragged.values], g)
    torch.testing.assert_close(found, product_of(wanted, lengths).values)
    one = full(lengths, None, 7).amax(0).requires_grad_()  # for all rows
    want = by_rows(*values, lengths, {"bias": cut(one.expand(len(lengths[0]), *one.shape), lengths)})
    got = attend(values, lengths, bias=one).values
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got, [one], g), torch.autograd.grad(want, [one], g))


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", ["self", "cross", "no key", "equal rows"])
def test_a_mask_of_keys_and_one_of_all_rows(name, heads):
    """[B, 1, 1, k], and dense [Lq, Lk] whose top-left block counts, larger than any row and just as large."""
    lengths = LENGTHS[name]
    number = HEADS[heads][0]
    values = operands(lengths, HEADS[heads])
    keys = sr.from_lengths(noise(sum(lengths[1]), seed=4) > 0, lengths[1])
    rows = [row[None] for row in keys.values.split(lengths[1])]
    shaped = sr.expand_dims(keys, axis=1) if number is None else sr.expand_dims(sr.expand_dims(keys, axis=1), axis=1)
    got = attend(values, lengths, mask=shaped)
    agree(values, got.values, by_rows(*values, lengths, {"mask": rows}))
    sizes = [max(side) for side in lengths]
    for more in (0, 3):
        seen = noise(sizes[0] + more, sizes[1] + more, seed=8) > 0.2
        blocks = [seen[:q, :k] for q, k in zip(*lengths, strict=True)]
        for mask in (seen, sr.Tensor(seen)):
            for causal in (False, True, "lower_right"):
                got = attend(values, lengths, mask=mask, causal=causal)
                agree(values, got.values, by_rows(*values, lengths, {"mask": blocks}, causal=causal))
        bias = torch.where(seen, noise(*seen.shape, seed=2), -float("inf"))
        blocks = [bias[:q, :k] for q, k in zip(*lengths, strict=True)]
        got = attend(values, lengths, bias=bias, window=(1, 2))
        agree(values, got.values, by_rows(*values, lengths, {"bias": blocks}, window=(1, 2)))
        got = attend(values, lengths, bias=bias, mask=seen)
        agree(values, got.values, by_rows(*values, lengths, {"bias": blocks}))


@pytest.mark.parametrize("shape", ["1k", "q1", "11", "b1qk", "bhqk"])
def test_dense_masks_that_stretch(shape):
    lengths = LENGTHS["cross"]
    values = operands(lengths, (2, 2))
    sizes = [max(side) for side in lengths]
    letters = {"1": 1, "q": sizes[0], "k": sizes[1], "b": len(lengths[0]), "h": 2}
    mask = noise(*[letters[c] for c in shape], seed=3) > -0.3
    wide = mask.expand(len(lengths[0]), 2, *sizes)
    got = attend(values, lengths, mask=mask)
    agree(values, got.values, by_rows(*values, lengths, {"mask": cut(wide, lengths)}))
    bias = torch.where(mask, 0.5, -float("inf")).to(torch.float64)
    got = attend(values, lengths, bias=bias)
    agree(values, got.values, by_rows(*values, lengths, {"bias": cut(bias.expand(wide.shape), lengths)}))


def test_a_query_that_sees_no_key_gives_zero_in_both_forms():
    lengths = ([3, 2], [3, 2])
    values = operands(lengths)
    nothing = torch.zeros(3, 3, dtype=torch.bool)
    hidden = torch.full((3, 3), -float("inf"), dtype=torch.float64)
    for options in ({"mask": nothing}, {"bias": hidden}, {"mask": nothing, "causal": True}):
        got = attend(values, lengths, **options)
        assert got.values.eq(0).all()
        for gradient in torch.autograd.grad(got.values.sum(), values):
            assert gradient.eq(0).all()
    longer = operands(([4, 3], [2, 0]))
    got = attend(longer, ([4, 3], [2, 0]), causal="lower_right")
    assert got.values[:2].eq(0).all()  # two queries more than keys: the first two see nothing
    assert got.values[4:].eq(0).all()
    assert got.values[2:4].ne(0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_query_that_sees_no_key_gives_zero_in_every_dtype(dtype):
    lengths = ([3, 2], [3, 2])
    values = operands(lengths, (2, 2), dtype)
    some = torch.ones(3, 3, dtype=torch.bool)
    some[1] = False
    for mask in (some, ~some):
        for options in ({"mask": mask}, {"bias": torch.where(mask, 0.0, -float("inf")).to(dtype)}):
            got = attend(values, lengths, **options)
            hidden = ~mask.any(1)
            rows = torch.cat([hidden[:3], hidden[:2]])
            assert got.values[rows].eq(0).all()
            assert got.values[~rows].ne(0).all()
            for gradient in torch.autograd.grad(got.values.float().sum(), values):
                assert gradient.isfinite().all()


# --------------------------------------------------------------------------------------------------- other shapes


def test_several_levels():
    """[B, r1, r2, d]: each innermost row attends to itself."""
    outer, inner = [2, 0, 3], [3, 0, 2, 1, 4]
    values = [packed(inner, None, 3, seed).requires_grad_() for seed in (1, 2, 3)]
    x = [sr.from_lengths(v, [outer, inner]) for v in values]
    for options in SEEN.values():
        got = sr.attention(*x, **options)
        assert got.partitions == x[0].partitions
        agree(values, got.values, by_rows(*values, (inner, inner), **options))
    other = [1, 5, 0, 2, 2]
    keys = [packed(other, None, 3, seed).requires_grad_() for seed in (4, 5)]
    made = [sr.from_lengths(v, [outer, other]) for v in keys]
    got = sr.attention(x[0], *made, causal="lower_right")
    agree([values[0], *keys], got.values, by_rows(values[0], *keys, (inner, other), causal="lower_right"))


def test_several_levels_with_heads():
    """[B, r1, H, r2, d]."""
    inner = [3, 0, 2, 1, 4]
    values = operands((inner, inner), (4, 2))
    x = [sr.from_lengths(v, [[2, 0, 3], inner]).permute_dims((0, 1, 3, 2, 4)) for v in values]
    hides_nothing = {"mask": torch.ones(4, 4, dtype=torch.bool), "bias": torch.zeros(4, 4, dtype=torch.float64)}
    for options in SEEN.values():
        for more in ({}, hides_nothing):
            want = by_rows(*values, (inner, inner), **options)
            agree(values, sr.attention(*x, **options, **more).values, want)


@pytest.mark.parametrize("ndim", [3, 4])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": "lower_right"}, {"window": (0, 1)}])
def test_dense_queries_and_ragged_keys(ndim, options):
    heads = 2 if ndim == 4 else None
    count = len(OTHER)
    q = noise(count, *([2] if heads else []), 3, 3, seed=1).requires_grad_()
    k, v = (packed(OTHER, heads, width, seed).requires_grad_() for width, seed in ((3, 2), (5, 3)))
    got = sr.attention(q, tensor(k, OTHER), tensor(v, OTHER), **options)
    assert not got.is_ragged
    rows = zip(q, pieces(k, OTHER), pieces(v, OTHER), strict=True)
    agree([q, k, v], got.torch(), torch.stack([one_row(*row, **options) for row in rows]))
    mask = noise(3, max(OTHER) + 2, seed=4) > 0
    got = sr.attention(q, tensor(k, OTHER), tensor(v, OTHER), mask=mask, **options)
    rows = enumerate(zip(q, pieces(k, OTHER), pieces(v, OTHER), strict=True))
    want = torch.stack([one_row(*row, mask=mask[:, : OTHER[i]], **options) for i, row in rows])
    agree([q, k, v], got.torch(), want)


def test_ragged_queries_and_dense_keys():
    q = packed(OWN, 2, 3, 1).requires_grad_()
    k, v = (noise(len(OWN), 2, 4, width, seed=width).requires_grad_() for width in (3, 5))
    for options in ({}, {"causal": True}, {"causal": "lower_right"}):
        got = sr.attention(tensor(q, OWN), k, v, **options)
        made = [one_row(*row, **options).transpose(0, 1) for row in zip(pieces(q, OWN), k, v, strict=True)]
        agree([q, k, v], got.values, torch.cat(made))


def test_dense_operands_alone():
    q, k, v = (noise(2, 2, 4, 3, seed=i).requires_grad_() for i in range(3))
    for options in ({}, {"causal": True}, {"window": 1}, {"mask": torch.rand(4, 4) > 0.5}):
        got = sr.attention(q, k, v, **options)
        want = torch.stack([one_row(*row, **options) for row in zip(q, k, v, strict=True)])
        agree([q, k, v], got.torch(), want)


def test_heads_stored_in_another_place():
    """[N, d, H] seen as [B, H, r, d], and values that are not contiguous."""
    lengths = LENGTHS["self"]
    q, k, v = operands(lengths, (2, 2))
    turned = sr.from_lengths(q.transpose(1, 2).contiguous(), OWN).permute_dims((0, 3, 1, 2))
    spread = sr.from_lengths(torch.stack([k, k], 0).transpose(0, 1)[:, 1], OWN).permute_dims((0, 2, 1, 3))
    for options in ({}, {"causal": True}):
        got = sr.attention(turned, spread, tensor(v, OWN), **options)
        assert got.shape == (6, 2, sr.Ragged(OWN), 5)
        want = by_rows(q, k, v, lengths, **options)
        torch.testing.assert_close(torch.cat([row.torch().transpose(0, 1) for row in got]), want)


def test_heads_that_are_parents():
    """[B, H, r, d] with r on (B, H): every head has lengths of its own."""
    lengths = [3, 1, 0, 2, 4, 2]
    values = [packed(lengths, None, 3, seed).requires_grad_() for seed in (1, 2, 3)]
    x = [sr.stack([sr.from_lengths(v[:4], lengths[:3]), sr.from_lengths(v[4:], lengths[3:])]) for v in values]
    assert x[0].shape == (2, 3, sr.Ragged(lengths, (0, 1)), 3)
    for options in ({}, {"causal": True}, {"window": 1}):
        got = sr.attention(*x, **options)
        agree(values, got.values, by_rows(*values, (lengths, lengths), **options))
        got = sr.attention(*x, mask=torch.ones(5, 5, dtype=torch.bool), **options)
        agree(values, got.values, by_rows(*values, (lengths, lengths), **options))


def test_equal_lengths_in_partitions_of_their_own():
    """Queries and keys have the same lengths, but nobody knows without looking."""
    lengths = ([9, 8, 0, 9, 2], [9, 8, 0, 9, 2])
    values = operands(lengths, (2, 2))
    for options in SEEN.values():
        got = sr.attention(*(tensor(x, lengths[0]) for x in values), **options)
        agree(values, got.values, by_rows(*values, lengths, **options))


def test_no_row_has_both_queries_and_keys():
    lengths = ([2, 0, 1], [0, 3, 0])
    for options in SEEN.values():
        values = operands(lengths, (2, 2))
        got = attend(values, lengths, **options).values
        assert got.eq(0).all()
        for gradient in torch.autograd.grad(got.sum(), values):
            assert gradient.eq(0).all()


@pytest.mark.parametrize(("width", "height"), [(0, 2), (3, 0), (0, 0)])
@pytest.mark.parametrize("form", ["fused", "scores"])
def test_zero_size_features(width, height, form):
    """Without features all scores are 0, so that each query gives the mean of the values."""
    q, v = (noise(3, size, seed=size).requires_grad_() for size in (width, height))
    x, y = tensor(q, [2, 1]), tensor(v, [2, 1])
    options = {"mask": torch.ones(2, 2, dtype=torch.bool), "bias": torch.zeros(2, 2)} if form == "scores" else {}
    got = sr.attention(x, x, y, **options)
    assert got.values.shape == (3, height)
    if width == 0:
        want = torch.cat([v[:2].mean(0, keepdim=True).expand(2, -1), v[2:]])
        torch.testing.assert_close(got.values, want)
    found = torch.autograd.grad(got.values.sum(), [q, v], allow_unused=True, materialize_grads=True)
    assert [g.shape for g in found] == [q.shape, v.shape]


def test_int32_offsets():
    values = operands(LENGTHS["self"])
    offsets = torch.tensor([0, *itertools.accumulate(OWN)], dtype=torch.int32)
    x = [sr.from_offsets(v, offsets) for v in values]
    agree(values, sr.attention(*x, causal=True).values, by_rows(*values, LENGTHS["self"], causal=True))


def test_what_the_result_shares():
    q, k, v = (tensor(x, OWN) for x in operands(LENGTHS["self"], (2, 2)))
    for options in ({}, {"causal": True}, {"mask": torch.ones(4, 4, dtype=torch.bool)}):
        assert sr.attention(q, k, v, **options).partitions[0] is q.partitions[0]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=7),
    st.sampled_from([False, True, "lower_right"]),
    st.none() | st.tuples(st.integers(-1, 4), st.integers(-1, 4)),
    st.sampled_from(sorted(HEADS)),
)
def test_any_lengths(rows, causal, window, heads):
    lengths = ([q for q, _ in rows], [k for _, k in rows])
    values = operands(lengths, HEADS[heads])
    got = attend(values, lengths, causal=causal, window=window)
    agree(values, got.values, by_rows(*values, lengths, causal=causal, window=window))


# ---------------------------------------------------------------------------------------------------- elements


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", ["fused", "scores"])
def test_narrow_elements(dtype, form):
    lengths = ([70, 3, 0, 33], [65, 3, 4, 33])
    values = operands(lengths, (2, 2), dtype)
    options: dict[str, Any] = {"mask": every(lengths, 2)} if form == "scores" else {}
    got = attend(values, lengths, causal=True, **options)
    assert got.dtype == dtype
    fine = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]
    wide = [x.detach().to(torch.float64).requires_grad_() for x in values]
    want = by_rows(*wide, lengths, causal=True)
    torch.testing.assert_close(got.values.to(torch.float64), want, rtol=fine, atol=fine)
    g = noise(*want.shape, seed=9)
    for a, b in zip(
        torch.autograd.grad(got.values, values, g.to(dtype)), torch.autograd.grad(want, wide, g), strict=True
    ):
        assert a.dtype == dtype
        torch.testing.assert_close(a.to(torch.float64), b, rtol=10 * fine, atol=10 * fine)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_a_wider_bias_leaves_the_dtype_of_the_query(dtype, wide):
    """dtype of the result is the query's, whichever form a bias leads to."""
    lengths = LENGTHS["self"]
    values = operands(lengths, dtype=dtype)
    dense = full(lengths, None, 5).amax(0).to(wide)
    ragged = product_of(full(lengths, None, 5).to(wide), lengths)
    for bias in (dense, ragged):
        assert attend(values, lengths, bias=bias).dtype == dtype


@pytest.mark.parametrize("causal", [False, True, "lower_right"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_long_rows(dtype, causal):
    """Longer than the blocks kernels work in, and of unlike lengths in one class."""
    lengths = ([700, 650, 3], [680, 700, 5])
    values = operands(lengths, (2, 2), dtype)
    got = attend(values, lengths, causal=causal).values
    g = noise(*got.shape, seed=9, dtype=dtype)
    found = torch.autograd.grad(got, values, g)
    rows = []
    for q, k, v in zip(*(pieces(x, n) for x, n in zip(values, (*lengths, lengths[1]), strict=True)), strict=True):
        at = torch.arange(q.shape[1])[:, None] + (k.shape[1] - q.shape[1] if causal == "lower_right" else 0)
        hidden = (torch.arange(k.shape[1]) > at) if causal else torch.zeros(1, 1, dtype=torch.bool)
        scores = (q.double() @ k.double().mT * 3**-0.5).masked_fill(hidden, -float("inf"))
        weights = torch.where(hidden.all(-1, keepdim=True), 0.0, scores.softmax(-1))
        rows.append((weights.nan_to_num() @ v.double()).transpose(0, 1))
    want = torch.cat(rows)
    fine = 1e-9 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(got.double(), want, rtol=fine, atol=fine)
    if causal != "lower_right":
        for a, b in zip(found, torch.autograd.grad(want, values, g.double()), strict=True):
            torch.testing.assert_close(a, b, rtol=10 * fine, atol=10 * fine)


def test_large_scores_do_not_overflow():
    lengths = ([3, 2], [3, 2])
    for name in ("fused", "scores"):
        values = [x.detach() * 1000 for x in operands(lengths)]
        got = attend(values, lengths, **({"mask": every(lengths)} if name == "scores" else {}))
        torch.testing.assert_close(got.values, by_rows(*values, lengths))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("form", ["fused", "causal", "scores", "dense mask"])
def test_nan_and_inf_stay_in_their_row(form, which, bad):
    lengths = ([8, 9, 3, 0, 9, 8], [10, 9, 2, 3, 11, 9])  # rows of unlike lengths share a class
    lengths = (lengths[1], lengths[1]) if form == "causal" else lengths
    values = operands(lengths, (2, 2))
    options: dict[str, Any] = {
        "fused": {},
        "causal": {"causal": True},
        "scores": {"mask": every(lengths, 2)},
        "dense mask": {"mask": torch.ones(12, 12, dtype=torch.bool)},
    }[form]
    clean = attend(values, lengths, **options)
    g = noise(*clean.values.shape, seed=9)
    want = torch.autograd.grad(clean.values, values, g)
    for row in (0, 1, 4):
        start = [sum(side[:row]) for side in lengths]
        end = [sum(side[: row + 1]) for side in lengths]
        spoilt = [x.detach().clone() for x in values]
        side = 0 if which == 0 else 1
        spoilt[which][start[side] : end[side]] = bad
        for x in spoilt:
            x.requires_grad_()
        got = attend(spoilt, lengths, **options)
        keep = [torch.ones(sum(s), dtype=torch.bool) for s in lengths]
        for k, a, b in zip(keep, start, end, strict=True):
            k[a:b] = False
        torch.testing.assert_close(got.values[keep[0]], clean.values[keep[0]])
        found = torch.autograd.grad(got.values, spoilt, g)
        for a, b, k in zip(found, want, (keep[0], keep[1], keep[1]), strict=True):
            torch.testing.assert_close(a[k], b[k])


# ---------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("form", ["fused", "causal", "lower right", "dense mask", "scores", "bias"])
@pytest.mark.parametrize("heads", HEADS)
def test_gradients_of_first_and_second_order(form, heads):
    lengths = ([2, 0, 1], [1, 1, 2])
    lengths = (lengths[0], lengths[0]) if form == "causal" else lengths
    values = [x.detach()[..., :2].requires_grad_() for x in operands(lengths, HEADS[heads])]
    number = HEADS[heads][0]
    options: dict[str, Any] = {
        "fused": {},
        "causal": {"causal": True},
        "lower right": {"causal": "lower_right", "window": (1, 0)},
        "dense mask": {"mask": torch.tensor([[True, False], [False, False]])},
        "scores": {"mask": every(lengths, number), "causal": True},
        "bias": {"bias": product_of(full(lengths, number, 5), lengths)},
    }[form]

    def run(*given):
        return attend(given, lengths, **options).values

    assert gradcheck(run, values)
    assert gradgradcheck(run, values, fast_mode=True)


def test_second_derivatives_equal_those_of_the_loop():
    lengths = LENGTHS["cross"]
    values = operands(lengths, (4, 2))
    for options in ({}, {"causal": True}, {"causal": "lower_right"}, {"mask": torch.ones(5, 5, dtype=torch.bool)}):
        made = []
        for out in (
            attend(values, lengths, **options).values,
            by_rows(*values, lengths, **{k: v for k, v in options.items() if k != "mask"}),
        ):
            first = torch.autograd.grad(out.square().sum(), values, create_graph=True)
            penalty = sum(g.square().sum() for g in first)
            made.append([*first, *torch.autograd.grad(penalty, values)])
        for a, b in zip(*made, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_the_backward_runs_twice_where_the_graph_is_kept():
    values = operands(LENGTHS["self"])
    out = attend(values, LENGTHS["self"]).values.sum()
    first = torch.autograd.grad(out, values, retain_graph=True)
    second = torch.autograd.grad(out, values)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (0, 2)])
def test_some_operands_need_no_gradient(needed):
    lengths = LENGTHS["cross"]
    values = [x.detach() for x in operands(lengths)]
    for i in needed:
        values[i].requires_grad_()
    chosen = [values[i] for i in needed]
    want = by_rows(*values, lengths).square().sum()
    for options in ({}, {"mask": every(lengths)}):
        got = attend(values, lengths, **options).values.square().sum()
        for a, b in zip(
            torch.autograd.grad(got, chosen), torch.autograd.grad(want, chosen, retain_graph=True), strict=True
        ):
            torch.testing.assert_close(a, b)
    with torch.no_grad():
        assert not attend(values, lengths).requires_grad


# ------------------------------------------------------------------------------------------- work, waits, errors


def _operations(rows: int, **options: Any) -> int:
    own, other = [3, 4, 2, 5] * (rows // 4), [4, 4, 1, 6] * (rows // 4)
    lengths = (own, own if options.pop("own", False) else other)
    values = operands(lengths, (2, 2))
    if options.pop("ragged", False):
        options["bias"] = product_of(full(lengths, 2, 5), lengths)
    with Counter() as count:
        made = attend(values, lengths, **options)
        made.values.sum().backward()
    return count.seen


@pytest.mark.parametrize(
    "options",
    [{}, {"own": True, "causal": True}, {"causal": "lower_right"}, {"mask": torch.ones(9, 9) > 0}, {"ragged": True}],
)
def test_no_loop_over_rows(options):
    assert _operations(8, **options) == _operations(800, **options)


class Kernels(Counter):
    """Counts calls of attention kernels."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += "scaled_dot_product" in func.__name__
        return func(*args, **(kwargs or {}))


def test_one_kernel_call_per_length_class():
    lengths = torch.randint(1, 200, (500,), generator=torch.Generator().manual_seed(0)).tolist()
    x = tensor(noise(sum(lengths), 2, 4), lengths)
    with Kernels() as count:
        sr.attention(x, x, x)
    assert 0 < count.seen <= 4 * math.log2(max(lengths))


@pytest.mark.parametrize("spare", [0, 3])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", ["self", "cross"])
def test_device_born_lengths(name, heads, spare):
    lengths = LENGTHS[name]
    values = [x.detach() for x in operands(lengths, HEADS[heads])]
    x = [tensor(v, side) for v, side in zip(values, (lengths[0], lengths[1], lengths[1]), strict=True)]
    born = [sr.testing.device_born(each, spare=spare) for each in x]
    for options in (*SEEN.values(), {"mask": torch.ones(9, 9, dtype=torch.bool).tril(1), "bias": torch.zeros(9, 9)}):
        got, want = sr.attention(*born, **options), sr.attention(*x, **options)
        for a, b in zip(got.rows(), want.rows(), strict=True):
            torch.testing.assert_close(a.torch(), b.torch())


@pytest.mark.parametrize("form", ["fused", "scores"])
def test_undefined_rows_reach_nothing(form):
    """Rows past the last offset hold NaN; their gradients are 0 or undefined, those of the others as without them."""
    lengths = LENGTHS["self"]
    values = operands(lengths, (2, 2))
    born = []
    for x in (tensor(v.detach(), OWN) for v in values):
        made = sr.testing.device_born(x, spare=3)
        made.values[-3:] = float("nan")
        born.append(made.requires_grad_())
    both = {"mask": torch.ones(4, 4, dtype=torch.bool), "bias": torch.zeros(4, 4, dtype=torch.float64)}
    options: dict[str, Any] = both if form == "scores" else {}
    count = sum(OWN)
    got = sr.attention(*born, causal=True, **options)
    want = by_rows(*values, lengths, causal=True)
    torch.testing.assert_close(got.values[:count], want)
    g = noise(*want.shape, seed=9)
    found = torch.autograd.grad(got.values[:count], [x.values for x in born], g)
    for a, b in zip(found, torch.autograd.grad(want, values, g), strict=True):
        torch.testing.assert_close(a[:count], b)


def test_device_born_lengths_that_differ_are_found():
    q, k = (sr.testing.device_born(sr.from_lengths(torch.ones(6, 2), n)) for n in ([3, 1, 2], [1, 2, 3]))
    with pytest.raises(RaggednessError):
        sr.attention(q, k, q)


def test_the_torch_face():
    values = [x.detach() for x in operands(LENGTHS["cross"], (4, 2))]
    q, k, v = tensor(values[0], OWN), tensor(values[1], OTHER), tensor(values[2], OTHER)
    sdpa = F.scaled_dot_product_attention
    lengths = LENGTHS["cross"]
    same = torch.testing.assert_close
    assert isinstance(sdpa(q, k, v, enable_gqa=True), sr.Tensor)
    same(sdpa(q, k, v, enable_gqa=True).values, by_rows(*values, lengths))
    same(sdpa(q, k, v, None, 0.0, True, enable_gqa=True).values, by_rows(*values, lengths, causal=True))
    same(sdpa(q, k, v, scale=2.0, enable_gqa=True).values, by_rows(*values, lengths, scale=2.0))
    seen = noise(6, 7, seed=1) > 0
    blocks = [seen[:a, :b] for a, b in zip(*lengths, strict=True)]
    same(sdpa(q, k, v, seen, enable_gqa=True).values, by_rows(*values, lengths, {"mask": blocks}))
    bias = full(lengths, 4, 3)
    got = sdpa(q, k, v, attn_mask=product_of(bias, lengths), enable_gqa=True)
    same(got.values, by_rows(*values, lengths, {"bias": cut(bias, lengths)}))
    keys = sr.expand_dims(sr.expand_dims(sr.from_lengths(noise(sum(OTHER), seed=4) > 0, OTHER), axis=1), axis=1)
    seen_keys = [row[None] for row in keys.values.flatten().split(OTHER)]
    same(sdpa(q, k, v, keys, enable_gqa=True).values, by_rows(*values, lengths, {"mask": seen_keys}))
    dense = noise(6, 4, 2, 3, seed=7)
    got = sdpa(dense, k, v, enable_gqa=True)
    assert type(got) is torch.Tensor
    rows = zip(dense, *(pieces(x, OTHER) for x in values[1:]), strict=True)
    same(got, torch.stack([one_row(*row) for row in rows]))
    with pytest.raises(ValueError, match="enable_gqa"):
        sdpa(q, k, v)
    with pytest.raises(ValueError, match="attn_mask or is_causal"):
        sdpa(q, k, v, seen, is_causal=True, enable_gqa=True)


def test_a_dense_query_with_a_ragged_mask_on_the_torch_face():
    keys = sr.from_lengths(noise(sum(OTHER), seed=4) > 0, OTHER)
    k, v = (packed(OTHER, None, 3, seed) for seed in (2, 3))
    q = noise(len(OTHER), 2, 3, seed=1)
    got = F.scaled_dot_product_attention(q, tensor(k, OTHER), tensor(v, OTHER), attn_mask=sr.expand_dims(keys, axis=1))
    rows = zip(q, pieces(k, OTHER), pieces(v, OTHER), keys.values.split(OTHER), strict=True)
    torch.testing.assert_close(got, torch.stack([one_row(*row[:3], mask=row[3][None]) for row in rows]))


def test_masks_that_do_not_fit_are_refused():
    values = operands(LENGTHS["self"])
    x = [tensor(v, OWN) for v in values]
    for small in (torch.ones(3, 3), torch.ones(4, 3), torch.ones(3, 4), torch.ones(2, 2)):
        for options in ({"bias": small.double()}, {"mask": small > 0}):
            for causal in (False, True):
                with pytest.raises(ValueError, match="smaller than the longest row, 4"):
                    sr.attention(*x, causal=causal, **options)
        with pytest.raises(ValueError, match="smaller than the longest row, 4"):
            F.scaled_dot_product_attention(*x, attn_mask=small > 0)
    with pytest.raises(ValueError, match="axes for queries and keys"):
        sr.attention(*x, mask=torch.ones(4) > 0)
    with pytest.raises(RaggednessError):
        sr.attention(*x, mask=every((OWN, OTHER)))
    with pytest.raises(ValueError, match="mask"):
        sr.attention(*x, mask=torch.ones(5, 4, 4) > 0)
    with pytest.raises(TypeError, match="mask must be bool"):
        sr.attention(*x, mask=torch.ones(4, 4))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_a_bias_must_be_floating_point(dtype):
    """A boolean one would be a mask for one form and a number for the other."""
    x = [tensor(v, OWN) for v in operands(LENGTHS["self"])]
    with pytest.raises(TypeError, match="bias"):
        sr.attention(*x, bias=torch.ones(4, 4).to(dtype))
    with pytest.raises(TypeError, match="bias"):
        sr.attention(*x, bias=every((OWN, OWN)).to(dtype))


def test_wrong_operands_are_refused():
    q, k, v = (tensor(x, OWN) for x in operands(LENGTHS["self"], (4, 4)))
    with pytest.raises(ValueError, match="multiple"):
        sr.attention(q, k[:, :3], v[:, :3])
    with pytest.raises(ValueError, match=r"3|heads|ndim|shape"):
        sr.attention(q, k[:, 0], v[:, 0])
    with pytest.raises(ValueError, match=r"size 5 and 6|size 6 and 5|batch"):
        sr.attention(q[:5], k, v)
    with pytest.raises(AxisError, match="features"):
        sr.attention(q.mT, k.mT, v.mT)
    with pytest.raises(TypeError, match="float"):
        sr.attention(q.to(torch.int32), k, v)
    with pytest.raises(ValueError, match="window"):
        sr.attention(q, k, v, window=(1, 2, 3))
    with pytest.raises(ValueError, match="causal"):
        sr.attention(q, k, v, causal="lower_left")
    with pytest.raises(ValueError, match="dropout"):
        sr.attention(q, k, v, dropout=1.5)


@pytest.mark.parametrize("form", ["fused", "scores"])
def test_operands_of_unlike_dtypes_are_refused(form):
    q, k, v = (tensor(x, OWN) for x in operands(LENGTHS["self"]))
    options = {"mask": every((OWN, OWN))} if form == "scores" else {}
    for wrong in ((q, k.to(torch.float32), v), (q, k, v.to(torch.float32)), (q.to(torch.bfloat16), k, v)):
        with pytest.raises(TypeError, match=r"dtype|float"):
            sr.attention(*wrong, **options)


def test_dropout_keeps_the_mean():
    """Each weight is 0 or divided by 1 - p; over many heads the mean is what it was."""
    torch.manual_seed(0)
    lengths = ([2, 3], [3, 2])
    values = [x.detach()[:, :1].expand(-1, 4000, -1).contiguous() for x in operands(lengths, (1, 1))]
    dropped = attend(values, lengths, dropout=0.25)
    want = by_rows(*values, lengths)
    assert not torch.allclose(dropped.values, want)
    torch.testing.assert_close(dropped.values.mean(1), want.mean(1), rtol=0.1, atol=0.1)
    torch.testing.assert_close(attend(values, lengths, dropout=0.0).values, want)


def test_batch_axes_are_paired_as_they_are_seen():
    """Not as they are stored: queries whose batch axes were exchanged meet the keys at their new places."""
    partition = sr.Partition.from_lengths([2] * 4)
    axes = (2, 2, sr.Ragged(partition, (0, 1)))
    q, k = (sr.Tensor(noise(8, 4, seed=seed), Structure(axes)) for seed in (1, 2))
    turned = q.permute_dims((1, 0, 2, 3))
    heads = [sr.from_lengths(noise(5, 2, 4, seed=seed), [2, 3]) for seed in (3, 4)]
    swapped = heads[0].permute_dims((2, 0, 1, 3)), heads[1].permute_dims((0, 2, 1, 3))
    got = sr.attention(*swapped, swapped[1])
    for i, j in itertools.product(range(2), range(2)):
        query, key = swapped[0][i, j].torch(), swapped[1][i, j].torch()  # of as many rows as j, and as i, have
        torch.testing.assert_close(
            got[i, j].torch(), F.scaled_dot_product_attention(query[None], key[None], key[None])[0]
        )
    with pytest.raises((RaggednessError, AxisError)):
        sr.attention(turned, k, k)


def test_a_result_that_the_gradient_needs_is_not_written_to():
    """The kernel keeps its result: a write to it would make the gradient wrong, so torch raises, as of its own."""
    x = sr.from_lengths(torch.randn(5, 4, dtype=torch.float64), [3, 2]).requires_grad_()
    made = sr.attention(x, x, x, causal=True)
    made -= 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.values.sum().backward()
    with torch.no_grad():
        free = sr.attention(x, x, x, causal=True)
        free -= 1.0
        torch.testing.assert_close(free.values, made.values.detach())
