"""Lengths that only a device knows: no call waits for them, guards are checked late, offsets stay where they were."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.compiler.harness import agree_with_gradients, close, packed, with_gradients

import serrate as sr


def rows(lengths: list[int], spare: int = 0, seed: int = 0) -> sr.Tensor:
    generator = torch.Generator().manual_seed(seed)
    made = sr.from_lengths(torch.rand(sum(lengths), 2, generator=generator), lengths)
    return sr.testing.device_born(made, spare=spare)


def several(x: Any) -> Any:
    part = x[:, 1:]
    return sr.softmax(x, axis=1) * 2, part, sr.sum(part, axis=1), sr.cumulative_sum(sr.exp(part), axis=1)


@pytest.mark.parametrize("spare", [0, 3])
def test_no_call_waits_and_offsets_of_new_rows_are_born_on_the_device(spare):
    made = sr.jit(several)
    for lengths in ([3, 0, 2], [1, 4], [2, 2, 2, 2]):
        x = rows(lengths, spare)
        with sr.testing.forbid_sync():
            got = made(x)
            sr.testing.raise_deferred()
        for one, other in zip(got, several(x), strict=True):
            close(packed(one), packed(other))
        assert not got[1].partitions[0].is_host_born
        assert got[0].partitions[0] is x.partitions[0]
        assert got[3].partitions[0] is got[1].partitions[0]
    assert (made.stats.traces, made.stats.eager_calls) == (1, 0)
    if not spare:  # gradients of undefined rows are undefined
        agree_with_gradients(lambda x: sr.sum(sr.softmax(x, axis=1) * x, axis=1), rows([3, 0, 2]))


def test_gradients_wait_for_nothing_either():
    made, x = sr.jit(lambda x: sr.sum(sr.softmax(x, axis=1) * x, axis=1)), with_gradients(rows([3, 0, 2], 2))
    made(x)
    with sr.testing.forbid_sync():
        made(x).values.sum().backward()


def test_partitions_that_fit_are_taken_for_equal_and_others_raise_what_eager_code_raises_when_it_is_known():
    def added(x: Any, y: Any) -> Any:
        return x + y

    def raised(run: Any, *given: Any) -> BaseException:
        def call_and_wait() -> None:
            with sr.testing.forbid_sync():
                run(*given)
            sr.testing.raise_deferred()

        with pytest.raises(sr.errors.RaggednessError) as found:
            call_and_wait()
        return found.value

    made = sr.jit(added)
    with sr.testing.forbid_sync():
        made(rows([3, 0, 2]), rows([3, 0, 2], seed=1))
        sr.testing.raise_deferred()
    error, other = (raised(run, rows([3, 0, 2]), rows([2, 1, 2])) for run in (made, added))
    assert str(error) == str(other)
    error, other = (raised(run, rows([3, 0, 2]), rows([2, 1, 1])) for run in (made, added))  # another capacity
    assert str(error) == str(other)
    assert made.stats.traces == 1


def test_what_needs_a_number_of_the_device_is_refused_by_name_where_nobody_may_wait():
    made = sr.jit(lambda x: x.to_dense(0.0))
    with sr.testing.forbid_sync(), pytest.raises(sr.errors.SyncError, match=r"longest|max_lengths"):
        made(rows([3, 0, 2]))
    assert made(rows([3, 0, 2])).shape == (3, 3, 2)
