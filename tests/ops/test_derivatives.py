"""Derivatives by the rules of records, against torch's autograd through the operations and through each row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.ops.calls import Call, calls, is_inexact, kind_of, tensors, with_values
from tests.ops.matrix import arguments, result_of
from tests.ops.samples import sample

import serrate as sr
from serrate.ops.derivatives import pullback, reduced_to
from serrate.ops.record import BY_TORCH, TABLE, Op, ops

RULED = [op for op in TABLE.values() if op.vjp is not None or (op.body is not None and not op.flat)]
STRUCTURES = ["features", "rows", "empty rows", "equal rows", "two levels", "permuted", "one row"]
# Results of complex operands that are determined up to a phase: torch refuses gradients that depend on it.
PHASES = {"linalg.eigh": (1,), "linalg.svd": (0, 2)}


class Program:
    """A sample of an operation as a function of its inexact operands, which are Tensors."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.phases = PHASES.get(call.op.name, ())
        self.operands = [part for part in found((call.args, call.options)) if is_inexact(part)]

    def __call__(self, *operands: sr.Tensor) -> Any:
        given = iter(operands)
        args, options = replaced((self.call.args, self.call.options), given)
        torch.manual_seed(0)
        return result_of(self.call.op, args, options)


def found(given: Any) -> list[Any]:
    """The tensors in arguments, in order."""
    if isinstance(given, (sr.Tensor, torch.Tensor)):
        return [given]
    parts = given.values() if isinstance(given, dict) else given if isinstance(given, (list, tuple)) else ()
    return [tensor for part in parts for tensor in found(part)]


def replaced(given: Any, operands: Any) -> Any:
    """The same arguments with other tensors in the place of inexact ones."""
    if is_inexact(given):
        return next(operands)
    if isinstance(given, dict):
        return {name: replaced(part, operands) for name, part in given.items()}
    return type(given)(replaced(part, operands) for part in given) if type(given) in (list, tuple) else given


def leaf(x: Any, seed: int) -> sr.Tensor:
    """The operand with values of its own that ask for a gradient; equal operands become different ones."""
    values = (x.values if isinstance(x, sr.Tensor) else x).detach().clone()
    values = values + 0.01 * torch.arange(values.numel(), dtype=torch.float64).sin().view(values.shape) * seed
    values.requires_grad_()
    return with_values(x, values) if isinstance(x, sr.Tensor) else sr.asarray(values)


def results(made: Any) -> list[sr.Tensor]:
    return [part for part in found(made) if isinstance(part, sr.Tensor)]


def directions(phases: tuple[int, ...], outs: list[sr.Tensor], seed: int) -> list[Any]:
    """Gradients of results: numbers of any size; None for results that have no derivative, or one up to a phase."""
    generator = torch.Generator().manual_seed(seed)
    made: list[Any] = []
    for number, out in enumerate(outs):
        if out.is_complex() and number in phases:
            made.append(None)
            continue
        values = torch.randn(out.values.shape, generator=generator, dtype=torch.float64)
        if out.is_complex():
            values = torch.complex(values, values.flip(0))
        made.append(out._with(values) if is_inexact(out) else None)
    return made


def compared(program: Program) -> int:
    """First derivatives by the rules and by autograd; how many gradients there were."""
    operands = [leaf(x, seed) for seed, x in enumerate(program.operands)]
    with torch.enable_grad():
        made = program(*operands)
    outs = results(made)
    given = directions(program.phases, outs, seed=3)
    asked = [(o, g) for o, g in zip(outs, given, strict=True) if g is not None and o.values.requires_grad]
    if not asked:
        return 0
    values = [x.values for x in operands]
    want = torch.autograd.grad(
        [o.values for o, _ in asked], values, [g.values for _, g in asked], allow_unused=True, materialize_grads=True
    )
    with torch.no_grad():
        constant = [with_values(x, x.values.detach()) for x in operands]
        again, back = pullback(program, *constant)
        got = back(given[0] if isinstance(again, sr.Tensor) else given)
    for x, mine, theirs in zip(constant, got, want, strict=True):
        agree(program, x, mine, theirs)
    return len(want)


def agree(program: Program, x: sr.Tensor, mine: Any, theirs: torch.Tensor) -> None:
    where = str(program.call)
    if mine is None:
        assert (theirs.abs() < 1e-12).all(), f"{where}: a gradient is missing, autograd has {theirs}"
        return
    assert mine.shape == x.shape, f"{where}: the gradient has shape {mine.shape}, the operand {x.shape}"
    assert mine.dtype == x.dtype, where
    laid = sr.zeros_like(x) + mine  # in the layout of the operand
    wanted = x._with(theirs)
    torch.testing.assert_close(
        laid.contiguous().values, wanted.contiguous().values, rtol=1e-7, atol=1e-9, equal_nan=True,
        msg=lambda text: f"{where}: {text}",
    )  # fmt: skip


def dtypes_of(op: Op) -> list[torch.dtype]:
    kinds = {"float": torch.float64, "complex": torch.complex128}
    return [dtype for kind, dtype in kinds.items() if kind in op.kinds] or [kind_of(op)]  # some have another operand


@pytest.mark.parametrize("op", RULED, ids=lambda op: op.name)
def test_first_derivatives_equal_those_of_autograd(op: Op) -> None:
    ran = sum(compared(Program(call)) for dtype in dtypes_of(op) for call in calls(op, STRUCTURES, dtype))
    assert ran


@pytest.mark.parametrize("op", [op for op in RULED if op.vjp != BY_TORCH], ids=lambda op: op.name)
def test_second_derivatives_equal_those_of_autograd(op: Op) -> None:
    """The way back is a program too: it is differentiated by the same rules."""
    for dtype in dtypes_of(op):
        for call in calls(op, ["features", "two levels"], dtype):
            compared_twice(Program(call))


def compared_twice(program: Program) -> None:
    operands = [leaf(x, seed) for seed, x in enumerate(program.operands)]
    with torch.enable_grad():
        outs = results(program(*operands))
        given = directions(program.phases, outs, seed=3)
        asked = [(o, g) for o, g in zip(outs, given, strict=True) if g is not None and o.values.requires_grad]
        if not asked:
            return
        values = [x.values for x in operands]
        first = torch.autograd.grad(
            [o.values for o, _ in asked], values, [g.values for _, g in asked], create_graph=True, allow_unused=True,
            materialize_grads=True,
        )  # fmt: skip
    seconds = [torch.randn(v.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5)) for v in values]
    seconds = [s.to(v.dtype) for s, v in zip(seconds, values, strict=True)]
    kept = [(f, s) for f, s in zip(first, seconds, strict=True) if f.requires_grad]
    want = (
        torch.autograd.grad(
            [f for f, _ in kept], values, [s for _, s in kept], allow_unused=True, materialize_grads=True
        )
        if kept
        else [torch.zeros_like(v) for v in values]
    )

    def gradients(*given_operands: sr.Tensor) -> tuple[Any, ...]:
        made, back = pullback(program, *given_operands)
        return back(given[0] if isinstance(made, sr.Tensor) else given)

    with torch.no_grad():
        constant = [with_values(x, x.values.detach()) for x in operands]
        made, back = pullback(gradients, *constant)
        got = back(
            tuple(None if m is None else _along(m, x, s) for m, x, s in zip(made, constant, seconds, strict=True))
        )
    for x, mine, theirs in zip(constant, got, want, strict=True):
        agree(program, x, mine, theirs)


def _along(made: sr.Tensor, x: sr.Tensor, values: torch.Tensor) -> sr.Tensor:
    """A direction for the gradient of an operand, whose layout may be another."""
    return sr.zeros_like(made) + x._with(values)


# ------------------------------------------------------------------------------------------- what has no derivative


def test_every_operation_has_a_rule_a_body_or_a_reason() -> None:
    left = [op.name for op in TABLE.values() if not (op.vjp is not None or op.body is not None or op.flat)]
    assert not left


@pytest.mark.parametrize("op", [op for op in TABLE.values() if op.flat], ids=lambda op: op.name)
def test_what_has_no_derivative_has_none_in_torch_or_zeros(op: Op) -> None:
    """Of every sample: no result asks for a gradient, or all gradients are 0."""
    for call in calls(op, ["features", "two levels"], kind_of(op)):
        program = Program(call)
        operands = [leaf(x, seed) for seed, x in enumerate(program.operands)]
        for out in results(program(*operands)):
            if out.values.requires_grad:
                made = torch.autograd.grad(out.values.sum(), [x.values for x in operands], allow_unused=True)
                assert not any(each.any() for each in made if each is not None), str(call)


# ------------------------------------------------------------------------------------------- attributes and borders


def by_rules(function: Callable[..., Any], *operands: sr.Tensor) -> list[Any]:
    """Gradients by the rules and by autograd of a program over operations, side by side."""
    leaves = [x._with(x.values.clone().requires_grad_()) for x in operands]
    out = function(*leaves)
    g = out._with(torch.linspace(0.5, 2.0, out.values.numel(), dtype=torch.float64).view(out.values.shape))
    want = torch.autograd.grad(out.values, [x.values for x in leaves], g.values, materialize_grads=True)
    with torch.no_grad():
        _, back = pullback(function, *operands)
        got = back(g)
    return [(0 * w if m is None else m.values, w) for m, w in zip(got, want, strict=True)]


X = sr.from_lengths(torch.tensor([[-1.5, 0.0], [0.3, -0.2], [2.0, 21.0], [0.0, 6.0], [-3.0, 3.0]]).double(), [2, 0, 3])
Y = sr.from_lengths(torch.tensor([[1.5, 0.0], [0.3, 2.0], [-2.0, 1.0], [0.0, 6.0], [3.0, -3.0]]).double(), [2, 0, 3])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: sr.gelu(x, approximate="tanh"),
        lambda x: sr.clip(x, min=-0.2),
        lambda x: sr.clip(x, max=2.0),
        lambda x: sr.clip(x, min=-1.0, max=2.0),
        lambda x: sr.leaky_relu(x, negative_slope=0.3),
        lambda x: sr.elu(x, alpha=2.0),
        lambda x: sr.celu(x, alpha=0.5),
        lambda x: sr.pow(x, 3),
        lambda x: sr.pow(x, 0),
        lambda x: sr.pow(x, 2.0),
        lambda x: 2 / (x + 7),
        lambda x: 3 - x,
        lambda x: sr.maximum(x, 0.0),
        lambda x: sr.nan_to_num(x, nan=1.0),
        lambda x: x * torch.tensor([2.0, -1.0], dtype=torch.float64),
        lambda x: sr.softplus(x),
        lambda x: sr.hardswish(x),
        lambda x: sr.hardtanh(x),
        lambda x: sr.relu6(x),
        lambda x: sr.abs(x),
    ],
)
def test_attributes_and_borders(function: Callable[..., Any]) -> None:
    for mine, theirs in by_rules(function, X):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", ["maximum", "minimum", "atan2", "hypot", "copysign", "remainder", "logaddexp", "pow"])
def test_two_operands_at_ties_and_zeros(name: str) -> None:
    function = TABLE[name].function
    x, y = (sr.abs(X), sr.abs(Y)) if name == "pow" else (X, Y)
    for mine, theirs in by_rules(lambda a, b: function(a, b), x, y):
        torch.testing.assert_close(mine, theirs, equal_nan=True)


@pytest.mark.parametrize("shape", [(2,), (1, 2), (3, 1, 2), (3, 1, 1), (1, 1, 1), ()])
def test_operands_that_are_stretched_get_sums(shape: tuple[int, ...]) -> None:
    other = sr.asarray(torch.linspace(1, 2, max(1, torch.Size(shape).numel()), dtype=torch.float64).reshape(shape))
    for mine, theirs in by_rules(lambda a, b: a * b + b / (a + 9), X, other):
        torch.testing.assert_close(mine, theirs)


def test_numbers_and_integers_have_no_gradient() -> None:
    g = sr.ragged([[1.0]])
    assert reduced_to(g, 2.0) is None
    assert reduced_to(g, sr.ragged([[1]])) is None
    assert reduced_to(g.to(torch.complex64), g).dtype == torch.float32


def test_values_that_are_used_twice_and_not_at_all() -> None:
    x, y = sr.ragged([[2.0], []]), sr.ragged([[5.0], []])
    out, back = pullback(lambda a, b: a * a + a, x, y)
    assert out.tolist() == [[6.0], []]
    mine, other = back(sr.ragged([[1.0], []]))
    assert mine.tolist() == [[5.0], []]
    assert other is None


def test_a_program_says_what_it_may_not_call() -> None:
    with pytest.raises(TypeError, match=r"calls sr\.exp, and not torch's exp"):
        pullback(torch.exp, sr.ragged([[1.0]]))


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(TABLE["exp"], vjp=lambda g, out, x: g * (out + 1e-5))
    monkeypatch.setitem(TABLE, "exp", wrong)
    (call, *_) = calls(wrong, ["features"])
    with pytest.raises(AssertionError, match="exp"):
        compared(Program(call))


def test_a_derivative_of_torch_is_not_differentiated_again_in_silence() -> None:
    x, weight = sr.from_lengths(torch.ones(5, 1), [2, 3]).mT, sr.asarray(torch.ones(1, 1, 2))

    def slope(w: sr.Tensor) -> sr.Tensor:
        out, back = pullback(lambda v: ops.conv1d(x, v), w)
        return back(sr.ones_like(out))[0]

    assert slope(weight).shape == weight.shape
    with pytest.raises(NotImplementedError, match="the derivative of conv1d is torch's own"):
        pullback(slope, weight)


def test_an_operation_without_a_rule_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, "exp", dataclasses.replace(TABLE["exp"], vjp=None))
    _, back = pullback(lambda x: ops.exp(x), sr.ragged([[1.0]]))
    with pytest.raises(NotImplementedError, match="exp has no rule"):
        back(sr.ragged([[1.0]]))


def test_samples_are_read_for_programs() -> None:
    args, options = arguments("x, x, reduction='sum'", sample("features", torch.float64))
    assert len(found((args, options))) == 2
    assert tensors(args)[0] is args[0].values
