"""explicit-keys: each draw is made of a key that the program draws, in the program's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.passes.running import RAGGED, names, program_of

import serrate as sr
from serrate.passes import explicit_keys


def draws_of(function: Callable[..., Any]) -> int:
    return names(explicit_keys.run(program_of(function, RAGGED))).count(explicit_keys.DRAW)


DRAWING: dict[str, tuple[Callable[[Any], Any], int]] = {
    "nothing random": (lambda x: sr.exp(x), 0),
    "dropout": (lambda x: sr.dropout(x, 0.5), 1),
    "two of them": (lambda x: sr.dropout(sr.dropout(x, 0.5), 0.25), 2),
    "dropout of nothing": (lambda x: sr.dropout(x, 0.0) + 1, 0),
    "dropout outside of training": (lambda x: sr.dropout(x, 0.5, training=False) + 1, 0),
}


@pytest.mark.parametrize("name", DRAWING)
def test_each_draw_has_a_key_of_its_own(name):
    function, count = DRAWING[name]
    assert draws_of(function) == count


def test_keys_are_drawn_in_the_order_of_the_program_and_are_different():
    program = explicit_keys.run(program_of(DRAWING["two of them"][0], RAGGED))
    assert names(program) == [explicit_keys.DRAW, "dropout", explicit_keys.DRAW, "dropout"]
    first, second = (dict(each.named)["key"] for each in program.instructions if each.op == "dropout")
    assert set(first).isdisjoint(second)
    torch.manual_seed(0)
    want = DRAWING["two of them"][0](RAGGED)
    torch.manual_seed(0)
    got = sr.jit(DRAWING["two of them"][0])(RAGGED)
    torch.testing.assert_close(got.values, want.values)


def test_the_pass_does_nothing_the_second_time():
    program = explicit_keys.run(program_of(DRAWING["two of them"][0], RAGGED))
    assert explicit_keys.run(program) == program
