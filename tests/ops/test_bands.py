"""Attention block by block of queries: the same as key by key, whatever blocks there are, and in little memory."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from benchmarks.memory import peak
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ops.test_attention import agree, attend, by_rows, noise, operands, tensor
from tests.oracle import _Count as Counter
from torch.autograd import gradgradcheck

import serrate as sr
from serrate.eager import attention_bands as bands
from serrate.eager.attention import Call


@pytest.fixture
def tiny(monkeypatch):
    """Blocks of two queries, or of one where members of a class differ: every edge comes up in short rows."""
    monkeypatch.setattr(bands, "_LEAST", (2, 1))
    monkeypatch.setattr(bands, "_BLOCKS", 1000)


sides = st.sampled_from([-1, 0, 1, 2, 5, 40])


@st.composite
def calls(draw: Any) -> tuple[tuple[list[int], list[int]], dict[str, Any], str | None]:
    """Lengths of queries and keys, who sees whom, and what else is added to scores."""
    count = draw(st.integers(1, 5))
    length = st.sampled_from([0, 1, 2, 6, 7, 8, 11])
    queries = draw(st.lists(length, min_size=count, max_size=count))
    keys = queries if draw(st.booleans()) else draw(st.lists(length, min_size=count, max_size=count))
    options: dict[str, Any] = {"causal": draw(st.sampled_from([False, True, "lower_right"]))}
    options["window"] = draw(st.none() | st.tuples(sides, sides))
    return (queries, keys), options, draw(st.sampled_from([None, None, "mask", "bias"]))


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls(), st.sampled_from([None, 2]))
def test_blocks_of_queries_equal_one_query_at_a_time(tiny, call, heads):
    lengths, options, more = call
    values = operands(lengths, (heads, heads))
    blocks: dict[str, list[torch.Tensor]] = {}
    given = dict(options)
    if more is not None:
        whole = noise(max(max(lengths[0]), 1), max(max(lengths[1]), 1), seed=4)
        whole = whole > -0.5 if more == "mask" else whole
        given[more] = whole
        blocks[more] = [whole[:q, :k] for q, k in zip(*lengths, strict=True)]
    got = attend(values, lengths, **given)
    agree(values, got.values, by_rows(*values, lengths, blocks, **options))


@pytest.mark.parametrize("causal", [False, True, "lower_right"])
@pytest.mark.parametrize("lengths", [([5, 4], [5, 4]), ([4, 3], [6, 2])], ids=["self", "cross"])
def test_second_derivatives_and_repeated_first_ones(tiny, lengths, causal):
    values = operands(lengths)

    def run(*given: torch.Tensor) -> torch.Tensor:
        return attend(list(given), lengths, causal=causal, window=(1, 1)).values

    assert gradgradcheck(run, values, fast_mode=True)
    out = run(*values)
    g = noise(*out.shape, seed=5)
    first, second = (torch.autograd.grad(out, values, g, retain_graph=True) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("window", [(1, 0), (2, 2)])
def test_transforms_of_torch_func(tiny, window):
    """They forbid what keeps masks from being kept, and have another gradient than autograd's."""
    lengths = ([7, 6, 3], [7, 6, 3])
    values = [v.detach() for v in operands(lengths)]

    def total(q: torch.Tensor) -> torch.Tensor:
        return (attend([q, *values[1:]], lengths, window=window).values ** 2).sum()

    def slow(q: torch.Tensor) -> torch.Tensor:
        return (by_rows(q, *values[1:], lengths, window=window) ** 2).sum()

    torch.testing.assert_close(torch.func.grad(total)(values[0]), torch.func.grad(slow)(values[0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_long_rows_of_every_dtype(dtype):
    """Many blocks as they are: a row of 700, others of like lengths, and a batch of short ones."""
    lengths = [700, 210, 205, 3, 0]
    values = [noise(sum(lengths), 2, 8, seed=seed) for seed in range(3)]
    for options in ({"window": (20, 5)}, {"window": (20, 0), "causal": True}, {"window": (-1, 30)}, {"causal": True}):
        x = [tensor(v.to(dtype).requires_grad_(), lengths) for v in values]
        got = sr.attention(*x, **options)
        rough = [tensor(v.to(dtype).double().requires_grad_(), lengths) for v in values]
        want = sr.attention(*rough, mask=seen_by(lengths, **options))
        fine = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}[dtype]
        torch.testing.assert_close(got.values.double(), want.values, rtol=fine, atol=fine)
        grads = [
            torch.autograd.grad(y.values.double().sum(), [v.values for v in o]) for y, o in ((got, x), (want, rough))
        ]
        for mine, other in zip(*grads, strict=True):
            torch.testing.assert_close(mine.double(), other, rtol=fine, atol=4 * fine)


def seen_by(lengths: list[int], window: Any = (-1, -1), causal: bool = False) -> sr.Tensor:
    """The same as a mask for each row, which goes through scores."""
    blocks = []
    for n in lengths:
        apart = torch.arange(n)[None] - torch.arange(n)[:, None]
        seen = (apart >= -window[0]) if window[0] >= 0 else apart > -n - 1
        seen = seen & (apart <= window[1]) if window[1] >= 0 else seen
        blocks.append((seen & (apart <= 0) if causal else seen).reshape(-1))
    p = sr.Partition.from_lengths(lengths)
    return sr.expand_dims(sr.from_product(torch.cat(blocks), p, p), axis=1)


def test_autocast_and_a_window():
    x = tensor(noise(300, 2, 8, dtype=torch.float32).requires_grad_(), [200, 100])
    with torch.autocast("cpu", torch.bfloat16):
        got = sr.attention(x, x, x, window=(20, 20))
    assert got.dtype == torch.bfloat16
    want = sr.attention(x, x, x, window=(20, 20))
    torch.testing.assert_close(got.values.float(), want.values, rtol=5e-2, atol=5e-2)
    (mine,), (other,) = (torch.autograd.grad(y.values.float().sum(), [x.values]) for y in (got, want))
    torch.testing.assert_close(mine, other, rtol=1e-1, atol=1e-1)


def test_a_window_that_holds_whole_rows_takes_the_path_without_one():
    x = tensor(noise(40, 2, 8), [20, 20])
    counts = []
    for options in ({}, {}, {"window": 30}, {"window": (19, 19)}):
        with Counter() as count:
            sr.attention(x, x, x, **options)
        counts.append(count.seen)
    assert counts[1] == counts[2] == counts[3]  # the first call sorts rows into classes


def test_as_many_operations_for_many_rows_as_for_few():
    def operations(lengths: list[int]) -> int:
        x = tensor(noise(sum(lengths), 2, 8), lengths)
        sr.attention(x, x, x, window=(9, 4))
        with Counter() as count:
            sr.attention(x, x, x, window=(9, 4))
        return count.seen

    few, many = operations([190, 180, 40] * 2), operations([190, 180, 40] * 60)
    assert many <= few


# ------------------------------------------------------------------------------------------------- memory

SIZES = {
    "one row": ([1000], [1000]),
    "rows of very different lengths": ([700, 150, 140, 60, 55, 1, 0], [700, 150, 140, 60, 55, 1, 0]),
    "rows of like lengths": ([300, 290, 280, 270], [300, 290, 280, 270]),
    "cross": ([600, 120, 3], [400, 500, 40]),
}


@pytest.mark.parametrize(
    "more",
    ["nothing", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mask", "bias", "ragged bias", "dropout"))],
)
@pytest.mark.parametrize("causal", [False, True, pytest.param("lower_right", marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", SIZES)
def test_a_window_takes_no_more_memory_than_all_keys(size, causal, more):
    """Forward, with gradients, and with the gradients of those; in float32 and bfloat16."""
    lengths = SIZES[size]
    for dtype, order in ((torch.float32, 0), (torch.float32, 1), (torch.float32, 2), (torch.bfloat16, 1)):
        if order == 2 and size != "rows of like lengths":
            continue  # scores are the same whatever the size
        taken = {}
        for window in (None, (16, 0), (16, 16)):
            q = tensor(noise(sum(lengths[0]), 64, dtype=dtype).requires_grad_(bool(order)), lengths[0])
            rows = q.partitions[0] if lengths[0] == lengths[1] else lengths[1]
            k, v = (
                tensor(noise(sum(lengths[1]), 64, seed=s, dtype=dtype).requires_grad_(bool(order)), rows)
                for s in (1, 2)
            )
            options: dict[str, Any] = {"causal": causal, "window": window}
            if more in ("mask", "bias"):
                block = noise(max(lengths[0]), max(lengths[1]), seed=4)
                options[more] = block > -1 if more == "mask" else block.to(dtype)
            elif more == "ragged bias":
                options["bias"] = (q @ k.mT).detach()
            elif more == "dropout":
                options["dropout"] = 0.1
            taken[window] = peak(
                lambda q=q, k=k, v=v, o=options, n=order: derived(sr.attention(q, k, v, **o), [q, k, v], n)
            )
        for window, most in taken.items():
            assert most <= 1.2 * taken[None], (size, dtype, order, window)


def derived(made: sr.Tensor, operands: list[sr.Tensor], order: int) -> Any:
    """The derivatives of this order of the sum of squares."""
    values = [x.values for x in operands]
    found: Any = made.values
    for n in range(order):
        total = sum((part.float() ** 2).sum() for part in (found if isinstance(found, tuple) else (found,)))
        found = torch.autograd.grad(total, values, create_graph=n + 1 < order)
    return found


@pytest.mark.parametrize("window", [(16, 0), (16, 16), (-1, 16)])
def test_memory_grows_with_the_row_and_not_with_its_square(window):
    taken = []
    for length in (2000, 8000):
        x = tensor(noise(length, 64, dtype=torch.float32), [length])
        taken.append(peak(lambda x=x: sr.attention(x, x, x, window=window)))
    assert taken[1] < 5 * taken[0]
    assert taken[1] < 2 * 8000 * 64 * 4


def test_the_blocks_of_a_long_row_cover_it():
    whole = sr.Partition.from_lengths([5000])
    for window, causal in itertools.product([(16, 0), (100, 7), (-1, 3), (3, -1)], [False, True]):
        call = Call(1.0, causal, window, (), None, 0.0)
        made = list(
            bands.Bands(
                call, torch.tensor([0]), (whole, whole), 5000, 5000, True, 64, torch.float32, torch.device("cpu")
            )
        )
        assert [b.queries.start for b in made] == [0, *(b.queries.stop for b in made[:-1])]
        assert made[-1].queries.stop == 5000
        assert len(made) == 1 or 8 <= len(made) <= 400
        for b in made:
            if b.mask is not None:
                assert b.mask().shape[-2:] == (b.queries.stop - b.queries.start, b.keys.stop - b.keys.start)


def test_what_the_kernels_do_not_see_is_zero():
    """Queries so far behind their keys that a window holds none."""
    values = [noise(300, 4, seed=1), noise(5, 4, seed=2), noise(5, 4, seed=3)]
    got = sr.attention(tensor(values[0], [300]), tensor(values[1], [5]), tensor(values[2], [5]), window=(2, 2))
    want = torch.zeros(300, 4, dtype=torch.float64)
    for i in range(7):
        near = slice(max(i - 2, 0), min(i + 3, 5))
        want[i] = F.softmax(values[0][i] @ values[1][near].T / 2, -1) @ values[2][near]
    torch.testing.assert_close(got.values, want)
