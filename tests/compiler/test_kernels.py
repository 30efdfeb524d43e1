"""How many kernels well-known functions become, forwards and backwards, and that they are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.compiler.harness import agree, agree_with_gradients, with_gradients
from torch.nn import functional as F

import serrate as sr

LENGTHS = [5, 0, 1, 17, 3, 0, 8]
OTHER_LENGTHS = [2, 40, 0, 0]


def rows(*features: int, lengths: list[int] = LENGTHS, seed: int = 0) -> sr.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return sr.from_lengths(torch.rand(sum(lengths), *features, generator=generator) - 0.3, lengths)


def dense(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) - 0.3


def gelu_of_x(x: Any) -> Any:
    return sr.gelu(x) * x + 1


def bias_block(x: Any, bias: Any, residual: Any, weight: Any, shift: Any) -> Any:
    return sr.gelu(sr.layer_norm(x + bias + residual, weight, shift))


def bias_block_of_torch(x: Any, bias: Any, residual: Any, weight: Any, shift: Any) -> Any:
    return F.gelu(F.layer_norm(x + bias + residual, (8,), weight, shift))


def dropout_block(x: Any, residual: Any, weight: Any, shift: Any) -> Any:
    return sr.layer_norm(sr.dropout(x, 0.25) + residual, weight, shift)


def masked_softmax(x: Any, mask: Any) -> Any:
    return sr.softmax(sr.where(mask, x * 0.125, -torch.inf), axis=1)


def padded(d: Any, like: Any) -> Any:
    return sr.gelu(sr.from_dense(d, like=like)).to_dense(0.0)


def unpadded(x: Any) -> Any:
    return sr.from_dense(sr.gelu(x.to_dense(0.0)), like=x)


def sums_of_exponentials(x: Any) -> Any:
    return sr.cumulative_sum(sr.exp(x), axis=1)


def mean_of_means(x: Any) -> Any:
    return sr.mean(sr.mean(x, axis=2), axis=1)


def codes(lengths: list[int]) -> sr.Tensor:
    """Patients, visits, codes."""
    visits = [1 + number % 3 for number in range(sum(lengths))]
    return sr.from_lengths(dense(sum(visits), 8), [lengths, visits])


def of(lengths: list[int]) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]]:
    """Each function with arguments of these lengths, and how many kernels it may be."""
    x = rows(8, lengths=lengths)
    residual = x._with(dense(sum(lengths), 8, seed=4))
    block = (x, dense(8), residual, dense(8, seed=2) + 1, dense(8, seed=3))
    mask = x._with(dense(sum(lengths), 8, seed=6) > -0.2)
    return {
        "gelu(x) * x + 1": (gelu_of_x, (x,), 1),
        "bias, residual, layer norm, gelu": (bias_block, block, 1),
        "bias, residual, layer norm, gelu of torch": (bias_block_of_torch, block, 1),
        "dropout, residual, layer norm": (dropout_block, (x, *block[2:]), 1),
        "softmax with scale and mask": (masked_softmax, (x, mask), 1),
        "unpad, gelu, pad": (padded, (dense(len(lengths), max(lengths), 8), x), 1),
        "pad, gelu, unpad": (unpadded, (x,), 1),
        "cumulative sums of exponentials": (sums_of_exponentials, (x,), 1),
        "mean over visits of mean over codes": (mean_of_means, (codes([3, 1, 2]),), 2),
    }


@pytest.mark.parametrize("name", of(LENGTHS))
def test_one_kernel_for_each_of_these_functions_and_no_library_call(name):
    function, given, most = of(LENGTHS)[name]
    made = sr.jit(function)
    with torch.no_grad():
        made(*given)
    assert made.stats.eager_calls == 0
    assert made.stats.library_calls == 0
    assert 1 <= made.stats.kernels <= most, str(made.lower(*given).fusions)


@pytest.mark.parametrize("name", of(LENGTHS))
def test_the_way_back_of_each_of_these_functions_is_at_most_three_kernels(name):
    function, given, most = of(LENGTHS)[name]
    made = sr.jit(function)
    stages = made.lower(*with_gradients(given))
    assert not isinstance(stages.compiled, str), stages.reason
    assert stages.compiled.back is not None
    kept = name in ("unpad, gelu, pad", "pad, gelu, unpad")  # what was moved is stored for the way back
    assert stages.compiled.forward.kernels <= most + kept, str(stages.fusions)
    assert stages.compiled.back.kernels <= 3, str(stages.fusions)
    assert stages.compiled.forward.library_calls == 0
    assert stages.compiled.back.library_calls <= kept


@pytest.mark.parametrize("lengths", [LENGTHS, OTHER_LENGTHS, [0, 0], [3]])
@pytest.mark.parametrize("name", of(LENGTHS))
def test_these_functions_compiled_are_what_they_are_eagerly(name, lengths):
    function, given, _ = of(lengths)[name]
    with torch.no_grad():
        agree(function, *given)
    agree_with_gradients(function, *given, scale=4)


def test_explain_shows_the_kernels_the_cuts_and_what_runs_each_operation():
    function, given, _ = of(LENGTHS)["bias, residual, layer norm, gelu"]
    text = str(sr.explain(sr.jit(function), *with_gradients(given)))
    assert "layer_norm" in text
    assert text.count("fused") >= 2  # there, and back
    assert "bias_block" in text


def test_explain_says_which_operation_is_a_library_call_and_why():
    def product(x: Any, w: Any) -> Any:
        return sr.gelu(x @ w) + 1

    text = str(sr.explain(sr.jit(product), rows(8), dense(8, 8)))
    assert "matmul" in text
    assert "called" in text


def test_explain_takes_a_plain_function_too_and_writes_html(tmp_path):
    stages = sr.explain(gelu_of_x, rows(8))
    stages.to_html(tmp_path / "stages.html")
    text = (tmp_path / "stages.html").read_text()
    assert all(part in text for part in ("gelu", "program", "kernels", "host"))


def test_lower_gives_each_stage_as_text_and_runs_nothing():
    made = sr.jit(gelu_of_x)
    stages = made.lower(rows(8))
    assert "gelu" in stages.program
    assert stages.source
    assert stages.host
    assert made.stats.calls == 0


def test_stats_say_what_was_done():
    made = sr.jit(gelu_of_x)
    for lengths in ([3, 1], [0, 2, 5]):
        made(rows(8, lengths=lengths))
    assert (made.stats.calls, made.stats.traces, made.stats.kernels, made.stats.library_calls) == (2, 1, 1, 0)
    assert made.stats.compiles + made.stats.disk_hits <= 1


def test_one_giant_row_among_many_short_ones_is_right():
    lengths = [1] * 3000 + [20_000] + [0, 2] * 1000
    x = rows(2, lengths=lengths)
    agree(gelu_of_x, x)
    got = sr.jit(lambda x: sr.softmax(x, axis=1))(x)
    torch.testing.assert_close(got.values, sr.softmax(x, axis=1).values, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("reduce", [sr.sum, sr.max, sr.mean, sr.any])
def test_a_row_that_is_reduced_from_its_end_is_reduced_in_a_kernel(reduce):
    x = sr.ragged([[[1.0, 2.0], [3.0]], [], [[4.0, 5.0, 4.5]]])
    for axis in (2, (1, 2)):
        agree_with_gradients(lambda x: reduce(sr.flip(x, axis=2), axis=axis), x)  # noqa: B023
        made = agree(lambda x: reduce(sr.flip(x, axis=2), axis=axis), x)  # noqa: B023
        assert (made.stats.kernels, made.stats.library_calls) == (1, 0)
    agree(lambda x: sr.argmax(sr.flip(x, axis=2), axis=2), x)


def test_the_time_of_a_trace_grows_with_the_number_of_flips():
    def flipped(x: sr.Tensor) -> sr.Tensor:
        for _ in range(40):  # each partition is made of the one before, twice
            x = sr.flip(x, axis=0)
        return x * 2

    x = sr.ragged([[[1.0, 2.0], [3.0]], [], [[4.0]]])
    made = agree(flipped, x)
    assert len(made.lower(x).forward) < 100_000
