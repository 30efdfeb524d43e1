"""Programs that call others: values, sizes and partitions of each call are told apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import serrate as sr
from serrate.lowering import parts
from serrate.passes import inline_calls
from serrate.passes.inline_calls import CannotInline
from serrate.passes.matching import Matching, Mismatch
from serrate.program.guards import Guard, Known
from serrate.program.inputs import Inputs
from serrate.program.partitions import Call, Expression
from serrate.program.program import Instruction, Program
from serrate.program.sizes import Symbol, symbol
from serrate.program.types import RaggedAxis, TensorType, Value

X = sr.from_lengths(torch.ones(4), [3, 0, 1])


def ragged_maker() -> Program:
    """A program whose result has rows that nothing but its call decides about."""
    kind = Inputs().type_of(X)
    x = Value(kind, "x")
    token = Call("cut anew", (object(),))
    rows = Expression("cut anew", (token, "#1"), kind.axes[0], None, True, True, torch.int64, torch.device("cpu"))
    y = Value(replace(kind, axes=(kind.axes[0], RaggedAxis(rows, (0,))), rows=rows.values), "y")
    return Program((x,), (Instruction("cut anew", (x,), (), y, parts.values),), y)


def calling(times: int) -> tuple[dict[str, Program], Value]:
    made = ragged_maker()
    x = Value(Inputs().type_of(X), "x")
    results = [Value(made.results[0].type, f"r{number}") for number in range(times)]
    steps = tuple(Instruction("@maker", (x,), (), each) for each in results)
    return {"maker": made, "main": Program((x,), steps, tuple(results))}, x


def test_rows_that_each_call_makes_are_other_ones() -> None:
    programs, _ = calling(2)
    inlined = inline_calls.run(programs)["main"]
    one, other = (each.type.partitions[0] for each in inlined.results)
    assert one != other
    assert one.components == other.components == inlined.inputs[0].type.axes[0]
    assert len({value.name for value in inlined.results}) == 2
    total = Value(inlined.results[0].type, "total")
    step = Instruction("add", programs["main"].results, (), total)
    main = replace(programs["main"], instructions=(*programs["main"].instructions, step), outputs=total)
    with pytest.raises(CannotInline, match=r"add needs the guard cut anew\(, #1\) == cut anew\(, #1\)"):
        inline_calls.inlined(main, programs)


def test_programs_that_do_not_fit() -> None:
    programs, x = calling(1)
    (step,) = programs["main"].instructions
    for wrong, message in (
        (replace(step, op="@other"), "there is no function @other; there are @maker, @main"),
        (replace(step, op="@main"), "a function may not call itself, and @main calls @main"),
        (replace(step, arguments=(x, x)), "@maker takes 1 operands, and 2 are given"),
    ):
        broken = programs | {"main": replace(programs["main"], instructions=(wrong,))}
        with pytest.raises(CannotInline, match=message):
            inline_calls.inlined(broken["main"], broken)


def dense(*sizes: object) -> TensorType:
    order = tuple(range(len(sizes)))
    return TensorType(torch.float32, torch.device("cpu"), (), None, sizes, order)  # type: ignore[arg-type]


N, M, A = symbol("size", "n"), symbol("size", "m"), symbol("size", "a")


@pytest.mark.parametrize(
    ("mine", "other", "message"),
    [
        ((N, 2 * N), (3, 6), None),
        ((2 * N, N), (2 * A, A), None),
        ((N, N), (A, M), None),  # both are taken for equal
        ((N, 2 * N), (3, 7), "a size is 7, and not 2·n, which is 6"),
        ((N, N), (A, 3), "a size is 3, and not n, which is a"),
        ((2 * N,), (6,), "the size 2·n does not say what n is"),
        ((N + M, N), (A, A), "the size n \\+ m does not say what m is"),
        ((3,), (A,), "a size is a, and not 3"),
        ((N, 1), (A,), "it has 1 axes, of which 0 are packed, and not 2 axes"),
    ],
)
def test_sizes_of_operands(mine: tuple[object, ...], other: tuple[object, ...], message: str | None) -> None:
    found = Matching(known=Known((Guard(A, M),)))
    if message is None:
        found.match(dense(*mine), dense(*other))
        assert Known((Guard(A, M),)).size(found.sizes[Symbol("size", ("n",))]) == other[mine.index(N)]
        return
    with pytest.raises(Mismatch, match=message):
        found.match(dense(*mine), dense(*other))
