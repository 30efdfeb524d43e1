"""The one door: a tracer sees every public call as a record, and what it records gives the same results again."""

from __future__ import annotations

import doctest
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.ops.calls import with_values
from tests.ops.matrix import arguments
from tests.ops.samples import DTYPES, sample
from tests.test_documents import DOCUMENTS, PYTHON, blocks, run_python

import serrate as sr
from serrate.ops.call import TRACER, call
from serrate.ops.record import TABLE, Op
from serrate.program.abstract import mapped

PAGES = [
    page
    for page in DOCUMENTS
    if page.name not in ("compiling.md", "ptensor.md")
    and any(block.language in PYTHON for block in blocks(page.read_text()))
]
"""A compiled function leaves its calls to a tracer that stands at the door already, and then counts nothing, as its
page says. What other pages show of counts is left out (`without_counts`)."""
DRAWN = {op.name for op in TABLE.values() if op.family == "random"} | {"empty", "empty_like", "attention"}
"""Operations whose elements may differ between two calls: they draw them, or leave them as the memory was."""


@dataclass
class Step:
    """One recorded call and what it gave."""

    op: Op
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    spelling: Callable[..., Any] | None
    result: Any = None


class Recording:
    """The calls of one thread, in order; calls that an implementation makes are part of its own call.

    A call that raises is seen, but is no step. What transforms of torch.func see is no tensor once they have ended, so
    calls inside of them are seen and are no steps either.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.seen: set[str] = set()
        self.copies: dict[int, tuple[Any, Any]] = {}
        """Tensors that came from outside and what they held before the first call, by the identity of the tensors."""

    def __call__(self, op: Op, arguments: tuple[Any, ...], named: dict[str, Any], spelling: Any) -> Any:
        inside = TRACER.set(None)
        self.seen.add(op.name)
        try:
            if torch._C._are_functorch_transforms_active():
                return call(op, arguments, named, spelling)
            mapped((arguments, named), self._keep)
            step = Step(op, arguments, named, spelling)
            step.result = call(op, arguments, named, spelling)
            for made in leaves(step.result):
                self.copies.setdefault(id(made), (made, made))
            self.steps.append(step)
            return step.result
        finally:
            TRACER.reset(inside)

    def _keep(self, given: Any) -> None:
        if isinstance(given, sr.Tensor | torch.Tensor) and id(given) not in self.copies:
            copy = given.detach().clone()
            self.copies[id(given)] = given, with_values(given, copy.values) if isinstance(given, sr.Tensor) else copy

    def replayed(self) -> Iterator[tuple[Step, Any]]:
        """Each step, and what it gives again, from copies of what came from outside and from earlier results."""
        made = {key: copy for key, (_, copy) in self.copies.items()}
        pairs: list[tuple[Step, Any]] = []
        for step in self.steps:
            given, named = mapped((step.arguments, step.named), lambda part: made.get(id(part), part))
            result = call(step.op, given, named, step.spelling)
            for old, new in zip(leaves(step.result), leaves(result), strict=True):
                made[id(old)] = new
            pairs.append((step, result))
        yield from pairs  # all of them at the end, since a later step may write to an earlier result


@contextmanager
def recording() -> Iterator[Recording]:
    tracer = Recording()
    token = TRACER.set(tracer)
    try:
        yield tracer
    finally:
        TRACER.reset(token)


def leaves(result: Any) -> list[Any]:
    found: list[Any] = []
    mapped(result, found.append)
    return [part for part in found if isinstance(part, sr.Tensor | torch.Tensor)]


def check(steps: Recording) -> None:
    for step, again in steps.replayed():
        for old, new in zip(leaves(step.result), leaves(again), strict=True):
            assert old.shape == new.shape, step.op.name
            assert old.dtype == new.dtype, step.op.name
            if step.op.name not in DRAWN and not any(s.op.name in DRAWN for s in steps.steps):
                one, other = (part.values if isinstance(part, sr.Tensor) else part for part in (old, new))
                torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True, msg=step.op.name)


@pytest.mark.parametrize("op", TABLE.values(), ids=lambda op: op.name)
def test_the_example_of_an_operation_is_seen(op: Op) -> None:
    test = doctest.DocTestParser().get_doctest(op.function.__doc__, {}, op.name, None, 0)
    with recording() as steps:
        assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
    assert op.name in steps.seen
    check(steps)


def without_counts(text: str) -> str:
    """A document without the examples that ask what a compiled function has counted, with as many lines."""
    return re.sub(r"^>>> .*\.stats\..*\n(?!>>>|```).*$", "\n", text, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_call_in_the_documents_is_seen_and_gives_the_same_again(page: Path) -> None:
    text = without_counts(page.read_text())
    with recording() as steps:
        failures = run_python(text, page.name)
    assert not failures, "\n".join(failures)
    check(steps)
    shown = "\n".join(block.text for block in blocks(text) if block.language in PYTHON)
    called = {name for name in TABLE if f"sr.{name}(" in shown and not name.startswith("Tensor.")}
    assert called <= steps.seen | elsewhere(shown), called - steps.seen


def elsewhere(shown: str) -> set[str]:
    """Operations that a page calls where the tracer does not stand: in threads, in processes, in what it compiles."""
    return set(TABLE) if any(word in shown for word in ("DataLoader", "torch.compile", "import threading")) else set()


class Seen(Exception):
    """Raised by a tracer in place of an answer."""


@pytest.mark.parametrize("op", TABLE.values(), ids=lambda op: op.name)
def test_torchs_spellings_are_seen_as_their_operation(op: Op) -> None:
    def tracer(seen: Op, *_: Any) -> Any:
        assert seen is op
        raise Seen

    token = TRACER.set(tracer)
    try:
        for spelling in op.spellings:
            with pytest.raises(Seen):
                sr.Tensor.__torch_function__(spelling, (sr.Tensor,), (), {})  # type: ignore[attr-defined]
    finally:
        TRACER.reset(token)


def test_operators_methods_and_keys_are_seen() -> None:
    x, y = sr.ragged([[1.0, 2.0], []]), sr.ragged([[3.0, 4.0], []])
    with recording() as steps:
        x = x + y * 2
        x -= 1
        x[:, :1] = 0
        (x[:, ::-1] > 0).any()
        torch.exp(x).softmax(1)
        sr.concat([x, x]).to_dense().mT.clone()
        _ = 1 - x
    names = [step.op.name for step in steps.steps]
    assert names == [
        *("multiply", "add", "subtract", "Tensor.copy_", "Tensor.setitem", "Tensor.getitem", "greater", "any", "exp"),
        *("softmax", "concat", "Tensor.to_dense", "permute_dims", "Tensor.clone", "subtract"),
    ]


def test_another_thread_records_nothing() -> None:
    made: list[sr.Tensor] = []
    with recording() as steps:
        thread = threading.Thread(target=lambda: made.append(sr.exp(sr.ragged([[0.0]]))))
        thread.start()
        thread.join()
        assert steps.steps == []
        sr.exp(made[0])
    assert [step.op.name for step in steps.steps] == ["exp"]


def test_the_tracer_answers_in_place_of_the_implementations() -> None:
    token = TRACER.set(lambda op, arguments, named, spelling: (op.name, arguments, named, spelling))
    try:
        x = object.__new__(sr.Tensor)
        assert sr.exp(x) == ("exp", (x,), {}, None)
        assert x.exp(out=3) == ("exp", (x,), {"out": 3}, torch.Tensor.exp)
        assert torch.exp(x) == ("exp", (x,), {}, torch.exp)  # type: ignore[arg-type]
    finally:
        TRACER.reset(token)


@pytest.mark.parametrize("op", TABLE.values(), ids=lambda op: op.name)
def test_samples_give_the_same_again(op: Op) -> None:
    for text in op.samples:
        given, named = arguments(text, sample("two levels", DTYPES[op.kinds[0]][0]))
        with recording() as steps:
            op.function(*given, **named)
        assert [step.op.name for step in steps.steps] == [op.name]
        if op.name not in DRAWN:
            check(steps)
