"""Programs over teams: what all ranks compute together is what one process computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.dialects.ranks import Rank, Team
from tests.dialects.traced import traced

import serrate as sr
from serrate.dialects import dist_to_runtime, lower_ptensor
from serrate.dialects.distributing import without_teams
from serrate.dialects.from_text import program_of
from serrate.dialects.running import Machine
from serrate.dialects.texts import Module, TextError, parse
from serrate.dialects.to_text import module_of
from serrate.program.program import Instruction, Program, replaced
from serrate.program.types import Value
from serrate.team.runtime import Cut, SingleProcess
from serrate.tensor.tensor import Tensor

TEAM = 7


def in_team(program: Program) -> Program:
    """The program, whose tensors a team holds."""

    def held(part: Any) -> Any:
        return Value(replace(part.type, team=TEAM), part.name) if isinstance(part, Value) else part

    def changed(each: Instruction) -> Instruction:
        named = tuple((name, replaced(part, held)) for name, part in each.named)
        return replace(each, arguments=replaced(each.arguments, held), named=named, result=replaced(each.result, held))

    return replace(
        program,
        inputs=tuple(map(held, program.inputs)),
        instructions=tuple(map(changed, program.instructions)),
        outputs=replaced(program.outputs, held),
    )


def module_of_team(function: Callable[..., Any], operands: tuple[Any, ...]) -> Module:
    """The text of a function over a team, after it was read again."""
    program = in_team(traced(function, *operands, is_static=True))
    text = str(module_of(program))
    assert "team = 7" in text
    return parse(text)


def of_ranks(module: Module, operands: tuple[torch.Tensor, ...], ranks: int) -> list[list[Any]]:
    """The results of a module, by ranks: tensors alone."""
    lowered = str(dist_to_runtime.run(lower_ptensor.run(module)))

    def work(rank: Rank) -> list[Any]:
        given: list[Any] = []
        for each in operands:
            mine = rank.block(len(each)) if each.ndim else None
            part = each if mine is None else each[mine.start : mine.stop]
            given += [Tensor(part.clone()), TEAM, rank.init_dtensor(TEAM, tuple(each.shape))]
        made = Machine(parse(lowered), rank).call("main", *given)
        for tensor, team, gid in zip(made[::3], made[1::3], made[2::3], strict=True):
            assert team == TEAM
            assert rank.local_shape(TEAM, gid) == tuple(tensor.shape)
        return made[::3]

    return Team(ranks).run(work)


X = torch.linspace(-2, 2, 44).view(11, 4)
Y = torch.linspace(3, 1, 44).view(11, 4)
S = torch.tensor(1.5)
CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "arange": (lambda: sr.arange(2, 33, 3), ()),
    "arange down": (lambda: sr.arange(10, -5, -2), ()),
    "arange of nothing": (lambda: sr.arange(5, 5), ()),
    "arange float": (lambda: sr.arange(0.1, 1.3, 0.1), ()),
    "arange as float": (lambda: sr.arange(7, dtype=torch.float32), ()),
    "linspace": (lambda: sr.linspace(0.0, 1.0, 10), ()),
    "zeros and full": (lambda: (sr.zeros((5, 2)), sr.full((7,), 3), sr.ones((2, 3), dtype=torch.int8)), ()),
    "eye": (lambda: (sr.eye(5, 4, k=-1), sr.eye(3)), ()),
    "created and used": (lambda: sr.arange(9) * 2 + sr.ones((9,), dtype=torch.int64), ()),
    "elements": (lambda x, y: sr.exp(x) * y + 1, (X, Y)),
    "a number for all": (lambda x, s: x * s, (X, S)),
    "tests and where": (lambda x, y: sr.where(sr.greater(x, y), x, y), (X, Y)),
    "cast": (lambda x: sr.astype(x, torch.float64), (X,)),
    "rows": (lambda x: sr.sum(x, axis=1), (X,)),
    "all": (lambda x: sr.sum(x), (X,)),
    "largest of all": (lambda x: (sr.max(x), sr.min(x)), (X,)),
    "any of all": (lambda x: (sr.any(x > 1.9), sr.all(x > 1.9)), (X,)),
    "centred": (lambda x: x - sr.sum(x), (X,)),
    "of a norm": (lambda x: x * (1.0 / sr.sqrt(sr.sum(x * x))), (X,)),
    "slice": (lambda x: x[2:9], (X,)),
    "slice of a slice": (lambda x: x[1:][::3] + 1, (X,)),
    "nothing of it": (lambda x: x[4:4], (X,)),
    "halves": (lambda x: x[:5] * x[5:10], (X,)),
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("name", CASES)
def test_ranks_compute_together_what_one_process_does(name: str, ranks: int) -> None:
    function, operands = CASES[name]
    wanted = function(*map(sr.asarray, operands))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    found = of_ranks(module_of_team(function, operands), operands, ranks)
    for number, want in enumerate(wanted):
        parts = [each[number].values for each in found]
        if want.ndim == 0:
            for part in parts:
                torch.testing.assert_close(part, want.values)
        else:
            exact = name.startswith(("arange", "linspace"))
            close = {"rtol": 0.0, "atol": 0.0} if exact else {}
            torch.testing.assert_close(torch.cat(parts), want.values, **close)


@pytest.mark.parametrize("name", CASES)
def test_a_program_without_its_team(name: str) -> None:
    function, operands = CASES[name]
    module = lower_ptensor.run(module_of_team(function, operands), ignore_team=True)
    alone = lower_ptensor.run(parse(str(module_of(traced(function, *operands, is_static=True)))))
    assert str(module) == str(alone)
    assert "dist." not in str(module)


REFUSED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "permute_dims .* cannot be lowered: it has no rule for tensors that a team holds": (
        lambda x: sr.permute_dims(x, (1, 0)),
        (X,),
    ),
    "sum .* cannot be lowered: a team reduces all elements": (lambda x: sr.sum(x, axis=0), (X,)),
    "mean .* cannot be lowered: a team reduces all elements, by sum, prod": (lambda x: sr.mean(x), (X,)),
    "add .* cannot be lowered: v1 is .*, whose parts are not those": (lambda x: sr.sum(x, axis=1)[:4] + x, (X,)),
    "getitem .* cannot be lowered: a team cuts slices of the first axis alone": (lambda x: x[:, 1:], (X,)),
    "getitem .* a team cuts slices of the first axis": (lambda x: x[3], (X,)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_rule_is_refused(message: str) -> None:
    function, operands = REFUSED[message]
    with pytest.raises(TextError, match=message):
        lower_ptensor.run(module_of_team(function, operands))


def test_ragged_tensors_of_teams_are_refused() -> None:
    program = in_team(traced(lambda x: x + 1, sr.ragged([[1.0], [2.0, 3.0]])))
    with pytest.raises(TextError, match="teams hold dense tensors of known sizes"):
        lower_ptensor.run(module_of(program))


def test_a_program_keeps_its_team_as_text() -> None:
    alone = traced(lambda x: sr.arange(11) + sr.sum(x, axis=1), X, is_static=True)
    program = in_team(alone)
    assert without_teams(program) == alone
    text = str(module_of(program))
    wrong = text.replace("team = 7 : i64", "team = 8 : i64")
    assert wrong != text
    assert program_of(parse(text)) == program
    with pytest.raises(TextError, match=r"a tensor of the team 8 is created, and its type is .* in team 7"):
        program_of(parse(wrong))


def test_the_team_of_one_process_says_what_is_wrong() -> None:
    team = SingleProcess()
    whole = team.init_dtensor(1, (4,))
    with pytest.raises(LookupError, match="the team 2 knows no tensor of the number 1"):
        team.local_shape(2, whole)
    with pytest.raises(IndexError, match="reaches beyond an axis of 4 elements"):
        team.init_view(1, whole, (Cut(2, 3, 1),))
    with pytest.raises(ValueError, match=r"of the shape \(4,\) is copied to one of \(3,\)"):
        team.copy(1, whole, team.init_dtensor(1, (3,)), torch.ones(4), torch.ones(3))
    with pytest.raises(ValueError, match="of which there is one, and 4 are here"):
        team.exchange(1, torch.ones(4), torch.tensor([2, 2]))
    team.fini_dtensor(1, whole)
    with pytest.raises(LookupError, match="knows no tensor"):
        team.fini_dtensor(1, whole)


def test_rows_go_to_other_ranks_and_come_back() -> None:
    text = """
    func.func @main(%x: tensor<4xi64>, %counts: tensor<3xi64>, %team: i64) -> (tensor<?xi64>, tensor<3xi64>) {
      %r:2 = "dist.exchange"(%team, %x, %counts) : (i64, tensor<4xi64>, tensor<3xi64>) -> (tensor<?xi64>, tensor<3xi64>)
      %b:2 = "dist.exchange"(%team, %r#0, %r#1) : (i64, tensor<?xi64>, tensor<3xi64>) -> (tensor<?xi64>, tensor<3xi64>)
      func.return %b#0, %b#1 : tensor<?xi64>, tensor<3xi64>
    }
    """
    lowered = str(dist_to_runtime.run(parse(text)))

    def work(rank: Rank) -> list[Any]:
        x, counts = torch.arange(4) + 10 * rank.rank, torch.tensor([1, rank.rank, 3 - rank.rank])
        back = Machine(parse(lowered), rank).call("main", Tensor(x), Tensor(counts), TEAM)
        assert back[0].tolist() == x.tolist()
        return back[1].tolist() == counts.tolist()

    assert all(Team(3).run(work))


def run_alone(module: Module, **given: torch.Tensor) -> list[Any]:
    """What a module gives in a team of one process, for inputs by their names."""
    machine = Machine(parse(str(dist_to_runtime.run(lower_ptensor.run(module))), "f.mlir"), SingleProcess())
    return machine.call("main", *machine.arguments("main", given))


@pytest.mark.parametrize("name", ["slice", "slice of a slice", "nothing of it", "halves", "all"])
def test_inputs_belong_to_the_team_that_the_module_was_made_for(name: str) -> None:
    function, operands = CASES[name]
    found = run_alone(module_of_team(function, operands), x0=operands[0])
    torch.testing.assert_close(found[0].values, function(*map(sr.asarray, operands)).values)
    assert found[1] == TEAM


@pytest.mark.parametrize("function", [lambda x: sr.sum(x), lambda x: x + 1])
@pytest.mark.parametrize("given", [torch.ones(12, 4), torch.ones(11, 3), torch.ones(11), torch.ones(11, 4).int()])
def test_inputs_of_other_types_are_refused(function: Callable[..., Any], given: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"the input x0 is .*11 x 4 x f32, team = 7.*, got values torch"):
        run_alone(module_of_team(function, (X,)), x0=given)


def test_ragged_inputs_beside_teams_are_refused() -> None:
    text = """
    func.func @main(%x: tensor<?xf32, #host.layout<n0 x @p0 x f32>>, %team: i64) -> i64 {
      func.return %team : i64
    }
    """
    machine = Machine(parse(text), SingleProcess())
    with pytest.raises(ValueError, match="beside tensors of teams every input has a known shape"):
        machine.arguments("main", {"x": torch.ones(3)})


CALLS = {
    "f.mlir:3:1: there is no operation exponential, and the call": """
        "host.call"(%x) {callee = "exponential"} : (tensor<4xf32>) -> ()""",
    "f.mlir:3:1: a team has no team.nothing; there are team.init_dtensor": """
        "host.call"() {callee = "team.nothing"} : () -> ()""",
    "f.mlir:3:1: team.fini_dtensor cannot be run: the team 1 knows no tensor": """
        "host.call"(%t, %t) {callee = "team.fini_dtensor"} : (i64, i64) -> ()""",
    "f.mlir:3:1: exp gives 1 values, and the text 0": """
        "host.call"(%x) {callee = "exp"} : (tensor<4xf32>) -> ()""",
    "f.mlir:3:1: add cannot be run: ": """
        %y = "host.call"(%x) {callee = "add"} : (tensor<4xf32>) -> tensor<4xf32>""",
    "f.mlir:4:1: exp reads %x, whose memory was given back": """
        "host.free"(%x) : (tensor<4xf32>) -> ()
"host.call"(%x) {callee = "exp"} : (tensor<4xf32>) -> ()""",
    "f.mlir:3:1: a whole number is expected, got 1.0": "%c = arith.constant 1.0 : f32",
    "f.mlir:3:1: a function may not call itself, and @main does": """
        func.call @main(%x) : (tensor<4xf32>) -> ()""",
}


@pytest.mark.parametrize("message", CALLS)
def test_what_cannot_be_run_is_said_with_its_place(message: str) -> None:
    text = (
        f"func.func @main(%x: tensor<4xf32>) {{\n%t = arith.constant 1 : i64\n{CALLS[message].strip()}\nfunc.return\n}}"
    )
    with pytest.raises(TextError, match=message):
        Machine(parse(text, "f.mlir"), SingleProcess()).call("main", Tensor(torch.ones(4)))


def test_a_number_before_any_tensor_is_refused() -> None:
    machine = Machine(parse("func.func @main(%t: i64, %g: i64) { func.return }"), SingleProcess())
    with pytest.raises(ValueError, match="@main takes the number of a tensor before any tensor: i64"):
        machine.arguments("main", {})


@pytest.mark.parametrize(
    ("number", "message"),
    [("%t", "a number that means nothing"), ("%g", r"has the shape \(4,\), and its team 1 says \(3,\)")],
)
def test_results_that_a_team_does_not_know(number: str, message: str) -> None:
    text = f"""func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, i64, i64) {{
      %t = arith.constant 1 : i64
      %n = arith.constant 3 : index
      %u = "host.call"(%t, %n) {{callee = "team.init_dtensor"}} : (i64, index) -> i64
      %g = "host.call"(%t, %n) {{callee = "team.init_dtensor"}} : (i64, index) -> i64
      "host.call"(%t, %u) {{callee = "team.fini_dtensor"}} : (i64, i64) -> ()
      func.return %x, %t, {number} : tensor<?xf32>, i64, i64
    }}"""
    with pytest.raises(TextError, match=f"f.mlir:7:7: result 0 of @main has {message.removeprefix('has ')}"):
        Machine(parse(text, "f.mlir"), SingleProcess()).call("main", Tensor(torch.ones(4)))
