"""Random bodies of lanes do the same with wide accesses as without, run in order by a few lines that know nothing of
kernels but what their statements mean."""

from __future__ import annotations

import math
import operator
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from tests.kernel.printed_kernels import N, f32
from tests.kernel.test_wide import i, lane, lanes

from serrate.fusion.scalar import Scalar, const, less, symbol, where
from serrate.kernel.ir import Allocate, For, If, Let, Statement, Store
from serrate.kernel.lanes import Wide
from serrate.kernel.wide import alignments, widened


def value_of(node: Scalar, names: dict[Scalar, Any], memory: dict[str, list[float]]) -> Any:
    if node.op in ("const", "symbol"):
        return node.value if node.is_const else names[node]
    if node.op == "where":
        condition, yes, no = node.args
        return value_of(yes if value_of(condition, names, memory) else no, names, memory)
    args = [value_of(argument, names, memory) for argument in node.args]
    if node.op == "load":
        assert args[0] >= 0
        return memory[node.value][args[0]]
    return {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "index_divide": operator.floordiv,
            "index_remainder": operator.mod, "less": operator.lt, "less_equal": operator.le,
            "logical_and": lambda a, b: a and b, "logical_not": operator.not_}[node.op](*args)  # fmt: skip


def execute(body: tuple[Statement, ...], names: dict[Scalar, Any], memory: dict[str, list[float]]) -> None:
    names = dict(names)
    for statement in body:
        match statement:
            case For(var, extent, inner):
                if isinstance(statement, Wide):
                    assert value_of(statement.base, names, memory) % extent.value == 0
                for index in range(value_of(extent, names, memory)):
                    execute(inner, {**names, var: index}, memory)
            case If(condition, inner):
                if value_of(condition, names, memory):
                    execute(inner, names, memory)
            case Let(var, value):
                names[var] = value_of(value, names, memory)
            case Allocate(registers):
                memory[registers.name] = [math.nan] * registers.size.value
            case Store(name, index, value):
                memory[name][value_of(index, names, memory)] = value_of(value, names, memory)


def random_index(random: Random) -> Scalar:
    start = random.choice([i * 8, i * 8 + 4, i * 4, i * 2, i * 8 + 1, (i + 1) * 4, (i * 2 + 1) % 3 * 4, i // 2 * 4])
    return start + lane if random.random() < 0.8 else start + lane // 2


def random_value(random: Random, known: list[Scalar], depth: int = 2) -> Scalar:
    kind = random.randrange(5 if depth else 2)
    if kind < 2:
        return random.choice(known) if known and kind else f32(random.choice("xy"), random_index(random))
    a, b = (random_value(random, known, depth - 1) for _ in range(2))
    if kind == 2:
        return a + b
    return where(random.choice([less(i, 2), less(lane, 2), less(i * 8 + lane, 16), less(i * 4 + lane, 10)]), a, b)


def random_body(random: Random) -> tuple[Statement, ...]:
    made: list[Statement] = []
    known: list[Scalar] = []
    for number in range(random.randint(1, 5)):
        value = random_value(random, known)
        if random.random() < 0.4:
            known.append(symbol(f"value{number}", "float32"))
            made.append(Let(known[-1], value))
        else:
            made.append(Store("y", random_index(random), value))
    if random.random() < 0.3:
        return (If(less(random_index(random), const(random.choice([16, 18]))), tuple(made)),)
    return tuple(made)


@pytest.mark.parametrize("seed", range(5))
def test_random_lanes(seed: int) -> None:
    random, found = Random(seed), 0
    for _ in range(200):
        kernel = lanes(*random_body(random))
        wide = widened(kernel)
        found += bool(alignments(wide))
        start = {name: [float(random.randrange(10)) for _ in range(48)] for name in "xy"}
        results = []
        for body in (kernel.body, wide.body):
            memory = deepcopy(start)
            execute(body, {N: 4}, memory)
            results.append({name: memory[name] for name in "xy"})
        assert results[0] == results[1], f"{kernel}\n{wide}"
    assert found > 50
