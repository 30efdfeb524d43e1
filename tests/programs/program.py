"""Programs: statements that run in Serrate as text and in the oracle as functions, and how one is drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from tests.programs.leaves import DTYPES, Leaf, random_leaf
from tests.programs.mapped import Mapped
from tests.programs.verdicts import Verdict, decide

Environment = dict[str, Mapped]


@dataclass(frozen=True)
class Given:
    """A statement that makes a leaf."""

    name: str
    leaf: Leaf

    def text(self, born: bool = True) -> str:
        return f"{self.name} = {self.leaf.text(born)}"


@dataclass(frozen=True)
class Step:
    """A statement that computes or writes."""

    operation: str
    """The operation's name in the table, or `getitem`, `setitem`, …"""
    expression: str
    """What is evaluated; a whole statement if it writes."""
    oracle: Callable[[Environment], Any]
    """The results, by the oracle; it may raise Refused and Undecided."""
    uses: tuple[str, ...]
    names: tuple[str, ...] = ()
    """What the results are called."""
    writes: str = ""
    """The tensor that is written to."""
    waits: bool = True
    """Whether it may wait for a device, where lengths were born on one."""
    same_shape: bool = False
    """Whether results share the partitions of the first operand."""

    def text(self, born: bool = True) -> str:
        if self.writes:
            return self.expression
        names = f"{self.names[0]}," if len(self.names) == 1 and self.expression.startswith("*") else ""
        return f"{names or ', '.join(self.names)} = {self.expression.lstrip('*')}"


Statement = Given | Step


@dataclass(frozen=True)
class Outcome:
    """What the oracle says about a statement: the verdict, and what tensors hold afterwards."""

    verdict: Verdict
    after: tuple[tuple[str, Mapped, torch.Tensor], ...] = ()
    """Tensors to look at: what is called so, its shape, and its elements at that time."""
    views: frozenset[tuple[str, str]] = frozenset()
    """Which results share memory with which operands."""


@dataclass
class Program:
    """Statements, and the oracle's outcome of each."""

    seed: int
    statements: list[Statement] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    environment: Environment = field(default_factory=dict)
    leaves: dict[str, torch.Tensor] = field(default_factory=dict)
    """The elements of leaves whose gradients are compared."""
    gradients: Any = None
    """Of those, by the oracle, once they were asked for."""
    plain: set[str] = field(default_factory=set)
    """Leaves that are torch's own tensors."""
    overwrites: bool = False
    """Whether something was written to that was computed with before, which autograd may refuse."""

    def add(self, statement: Statement) -> Outcome:
        """Run one more statement in the oracle."""
        outcome = self._run(statement)
        self.statements.append(statement)
        self.outcomes.append(outcome)
        return outcome

    def _run(self, statement: Statement) -> Outcome:
        env = self.environment
        if isinstance(statement, Given):
            made = env[statement.name] = statement.leaf.mapped()
            if statement.leaf.plain:
                self.plain.add(statement.name)
            if statement.leaf.grad:
                self.leaves[statement.name] = made.memory.flat
            return Outcome(Verdict((made,)), ((statement.name, made, made.flat),))
        if statement.writes:
            return self._run_write(statement, env[statement.writes])
        verdict = decide(statement.oracle, env)
        if not verdict.is_certain:
            return Outcome(verdict)
        assert verdict.results is not None
        made = dict(zip(statement.names, verdict.results, strict=True))
        views = {(n, used) for n, m in made.items() for used in statement.uses if m.memory is env[used].memory}
        for used in statement.uses:
            env[used].memory.was_used |= all((n, used) not in views for n in made)
        for n, m in made.items():  # autograd may need what was computed, too
            m.memory.was_used |= statement.operation != "clone" and all(
                (n, used) not in views for used in statement.uses
            )
        env.update(made)
        return Outcome(verdict, tuple((n, m, m.flat) for n, m in made.items()), frozenset(views))

    def _run_write(self, statement: Step, target: Mapped) -> Outcome:
        held = target.memory.flat
        used_before = target.memory.was_used
        verdict = decide(statement.oracle, self.environment)
        if verdict.errors or verdict.results is None:
            target.memory.flat = held
        elif used_before:
            self.overwrites = True
        seen = [(n, m, m.flat) for n, m in self.environment.items() if m.memory is target.memory]
        return Outcome(verdict, tuple(seen))


@dataclass
class Draw:
    """The state of a program that is being drawn: its random numbers, and the tensors there are."""

    random: random.Random
    program: Program
    dtype: torch.dtype
    grad: bool
    spare: int = 0
    """Undefined rows of most leaves: capacities have to agree where lengths do."""
    count: int = 0

    # ------------------------------------------------------------------------------------------------- numbers

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def choice(self, options: Sequence[Any]) -> Any:
        return self.random.choice(list(options))

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    # ------------------------------------------------------------------------------------------------- tensors

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def given(self, leaf: Leaf) -> str:
        """A leaf as one more statement."""
        name = self.name()
        if leaf.spare is not None and self.chance(0.85):
            leaf = replace(leaf, spare=self.spare)
        self.program.add(Given(name, leaf))
        return name

    def leaf(self, dtype: torch.dtype | None = None, **options: Any) -> str:
        """A random leaf; where gradients are asked for, one that has one."""
        dtype = self.dtype if dtype is None else dtype
        grad = self.grad and dtype == torch.float64 and self.chance(0.8)
        return self.given(random_leaf(self.random, dtype, grad=grad, **options))

    def like(self, leaf: Leaf, grad: bool = True) -> str:
        """A leaf that was made to fit something."""
        plain = leaf.is_ragged or leaf.order is None  # a permuted dense tensor has permuted values
        wants = grad and plain and self.grad and leaf.dtype == torch.float64 and self.chance(0.6)
        return self.given(replace(leaf, grad=wants))

    def tensor(
        self, fits: Callable[[Mapped], bool] = lambda x: True, *, plain: bool = False, **options: Any
    ) -> str | None:
        """The name of a tensor that fits, newer ones more often; a new leaf if there is none; None if that does not.

        One of torch's own only if it may be `plain`.
        """
        found = [n for n, x in self.program.environment.items() if fits(x) and (plain or n not in self.program.plain)]
        if found and self.chance(0.9):
            return found[-1] if self.chance(0.6) else self.choice(found)
        for _ in range(6):
            name = self.leaf(**options)
            if fits(self.program.environment[name]) and (plain or name not in self.program.plain):
                return name
            self._forget(name)
        return None

    def _forget(self, name: str) -> None:
        self.program.statements.pop()
        self.program.outcomes.pop()
        del self.program.environment[name]
        self.program.leaves.pop(name, None)
        self.program.plain.discard(name)

    def __getitem__(self, name: str) -> Mapped:
        return self.program.environment[name]


Generator = Callable[[Draw], Step | None]
GENERATORS: list[tuple[float, Generator]] = []


def generator(weight: float) -> Callable[[Generator], Generator]:
    """Enter a function that draws a step into those that programs are made of."""

    def enter(function: Generator) -> Generator:
        GENERATORS.append((weight, function))
        return function

    return enter


def draw_program(seed: int, most_steps: int = 5) -> Program:
    """The program of a seed: always the same, whatever Serrate does with it."""
    numbers = random.Random(seed)
    grad = numbers.random() < 0.55
    dtype = torch.float64 if grad else numbers.choice(DTYPES)
    draw = Draw(numbers, Program(seed), dtype, grad, numbers.choice((0, 0, 1, 2, 5)))
    draw.leaf()
    weights = [weight for weight, _ in GENERATORS]
    for _ in range(numbers.randint(1, most_steps)):
        (chosen,) = numbers.choices([made for _, made in GENERATORS], weights)
        step = chosen(draw)
        if step is None:
            continue
        outcome = draw.program.add(step)
        if step.writes and outcome.verdict.results is None and not outcome.verdict.errors:
            break  # nobody knows what it holds now
        _drop_wild(draw.program, step)
    return draw.program


def _drop_wild(program: Program, step: Step) -> None:
    """What is not finite, or large, is compared but not computed with: errors would grow beyond any tolerance."""
    for name in step.names:
        made = program.environment.get(name)
        if made is None or not made.flat.numel():
            continue
        flat = made.flat.detach()
        if flat.is_floating_point() or flat.is_complex():
            size = flat.abs().to(torch.float64)
            if not bool((size < 1e3).all()):
                del program.environment[name]
        elif flat.dtype != torch.bool and bool((flat.to(torch.float64).abs() > 1e4).any()):
            del program.environment[name]
