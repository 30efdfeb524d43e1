"""Answers about types: found again by equal questions, and only by these; noted down for other processes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch

import serrate as sr
from serrate.ops import recording, remembering
from serrate.ops.record import TABLE
from serrate.ops.recording import Names, NotRecorded, record_calls
from serrate.ops.remembering import answer_to, noted, question, remember
from serrate.program.inputs import Inputs
from serrate.program.types import Value


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "_answers", {})


def value(name: str = "x", dtype: torch.dtype = torch.float32) -> Value:
    return Value(Inputs().type_of(sr.ragged([[1.0, 2.0], []], dtype=dtype)), name)


def test_values_count_by_their_types_and_by_which_are_the_same() -> None:
    x, y = value("x"), value("y")
    assert question("a", x) == question("a", y)
    assert question("a", x, x) == question("a", y, y)
    assert question("a", x, y) != question("a", x, x)
    assert question("a", x) != question("b", x)
    assert question("a", x) != question("a", value(dtype=torch.float64))
    assert question("a", 1) != question("a", True)


def test_what_torch_was_told_for_all_calls_is_a_part_of_the_question() -> None:
    before = question("a", value())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = question("a", value())
        with torch.autocast("cpu", dtype=torch.float16):
            assert question("a", value()) not in (inside, before)
    torch.set_default_dtype(torch.float64)
    try:
        changed = question("a", value())
    finally:
        torch.set_default_dtype(torch.float32)
    assert len({before, inside, changed}) == 3


def test_an_answer_is_given_in_types_of_the_program_that_asks() -> None:
    one, other = value(), value()
    assert one.type.program != other.type.program
    remember(question("a", one), (one, [one.type], 3))
    made = answer_to(question("a", other), other.type.program)
    assert made == (one, [one.type], 3)
    assert made[0].type.program == made[1][0].program == other.type.program


def test_a_question_that_cannot_be_written_down_is_not_remembered() -> None:
    asked = question("a", lambda x: x)
    assert asked is None
    remember(asked, 3)
    assert answer_to(asked, None) is None
    assert question("a", torch.zeros(100_000)) is None


def test_only_so_many_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "MOST", 3)
    for number in range(5):
        remember(question(number), number)
    assert [answer_to(question(number), None) for number in range(5)] == [None, None, 2, 3, 4]


def runs_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is run on tensors without elements from now on."""
    ran: list[str] = []
    found = recording.found_at_points

    def counted(name: str, *given: Any, **named: Any) -> Any:
        ran.append(name)
        return found(name, *given, **named)

    monkeypatch.setattr(recording, "found_at_points", counted)
    return ran


def recorded(x: Value) -> Any:
    def program(x: Any) -> Any:
        return sr.exp(x) * 2

    return record_calls(program, (x,), {}, Names(), title="program", memo="of this test")


def test_a_program_that_was_recorded_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = runs_of(monkeypatch)
    with noted({}) as notes:
        first = recorded(value())
    assert ran == ["program"]
    second = recorded(value())
    assert ran == ["program"]
    assert [str(each) for each in second.instructions] == [str(each) for each in first.instructions]
    # Another process begins with the notes.
    monkeypatch.setattr(remembering, "_answers", {})
    with noted(pickle.loads(pickle.dumps(notes))) as again:
        third = recorded(value())
    assert ran == ["program"]
    assert again.keys() == notes.keys()
    assert [str(each) for each in third.instructions] == [str(each) for each in first.instructions]


def test_that_a_program_cannot_be_recorded_is_remembered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = runs_of(monkeypatch)
    messages = set()
    for _ in range(2):
        with pytest.raises(NotRecorded) as refused:
            record_calls(lambda x: x._with(x.values + 1), (value(),), {}, Names(), title="other", memo="means")
        messages.add(str(refused.value))
    assert ran == ["other"]
    assert len(messages) == 1


def test_what_elements_decide_about_is_never_remembered() -> None:
    """Rows that masks choose are named after the masks: two masks of one type choose different rows."""
    x = value()
    masks = [Value(Inputs().type_of(sr.ragged([[True, False], []])), name) for name in ("m0", "m1")]
    made = [
        record_calls(TABLE["Tensor.getitem"].function, (x, Value(_of(x, mask), mask.name)), {}, Names(), memo="masked")
        for mask in masks
    ]
    one, other = (each.result.type.partitions for each in made)
    assert one != other


def _of(x: Value, mask: Value) -> Any:
    """The type of a mask with the rows of x."""
    return replace(x.type, dtype=mask.type.dtype)
