"""Random fusions, planned: every kernel computes what `evaluate` says and breaks no rule of the checking interpreter,
and the function of the plan, compiled, gives the same."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
import torch
from tests.kernel.random_fusions import Program, program
from tests.schedule.running import check_run, check_steps, compile_all

from serrate.kernel import cpp, states
from serrate.schedule import Planned, model, plan


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums by blocks so short that small tensors have several; rows so short that several are long."""
    monkeypatch.setattr(states, "BLOCK", 3)
    monkeypatch.setattr(cpp, "LEAST_WORK", 0)  # small tensors are shared by threads, too
    monkeypatch.setattr(model, "PARTS", 4)
    monkeypatch.setattr(model, "SHARED_ELEMENTS", 1)
    monkeypatch.setattr(model, "SHARED_ROWS", 4)
    monkeypatch.setattr(model, "SHORT_ROWS", 3)


def planned_programs(first: int, count: int) -> list[tuple[int, Program, Planned]]:
    """So many random programs with their plans, whose results are numbers that do not depend on how complex numbers are
    divided by 0."""
    found = []
    for seed in range(first, first + count):
        drawn = program(Random(seed))
        if is_fair(drawn):
            found.append((seed, drawn, plan(drawn.fusion, name=f"program{seed}")))
    return found


def is_fair(drawn: Program) -> bool:
    try:
        results = drawn.fusion.evaluate(*drawn.inputs)
    except IndexError:  # which tests of gathers are about
        return False
    return all(bool(result.isfinite().all()) for result in results if result.is_complex())


def laid_out(drawn: Program) -> list[torch.Tensor]:
    """The inputs, contiguous where they have to be."""
    pairs = zip(drawn.fusion.inputs, drawn.inputs, strict=True)
    return [x if tensor.strides is not None else x.contiguous() for tensor, x in pairs]


def seeds(default: int, slow: int) -> pytest.MarkDecorator:
    """So many pieces that are always tried, and so many more."""
    more = [pytest.param(piece, marks=pytest.mark.slow) for piece in range(default, default + slow)]
    return pytest.mark.parametrize("piece", [*range(default), *more])


@seeds(default=2, slow=10)
def test_in_the_interpreter(piece: int) -> None:
    schedulers: Counter[str] = Counter()
    for seed, drawn, planned in planned_programs(piece * 100, 100):
        try:
            check_steps(planned, drawn.inputs)
        except Exception as error:
            error.add_note(f"seed {seed}\n{drawn.fusion}\n{planned}")
            raise
        schedulers.update(step.scheduler for step in planned.steps)
    assert {"pointwise", "reduction", "normalization", "scan", "copy"} <= set(schedulers)


@seeds(default=2, slow=10)
def test_compiled(piece: int) -> None:
    cases = planned_programs(10_000 + piece * 100, 100)
    compile_all([planned for _, _, planned in cases])
    assert any(step.by_length for _, _, planned in cases for step in planned.steps)
    for seed, drawn, planned in cases:
        given = laid_out(drawn)
        try:
            check_run(planned, given)
        except Exception as error:
            error.add_note(f"seed {seed}\n{drawn.fusion}\n{planned}")
            raise


def joined(seed: int) -> Planned:
    """Several outputs of one random program: all of its tensors of floating-point numbers that it computes."""
    drawn = program(Random(seed))
    fusion = drawn.fusion
    for tensor in [t for t in fusion.tensors if t.definition is not None and t.definition.kind == "pointwise"]:
        if tensor not in fusion.outputs and tensor.dtype in ("float32", "float64"):
            fusion.output(tensor)
    planned = plan(fusion, name=f"joined{seed}")
    check_steps(planned, drawn.inputs)
    stored = [name for step in planned.steps for name in step.outputs]
    assert len(stored) == len(set(stored)), "two kernels store one tensor"
    return planned


@seeds(default=1, slow=5)
def test_several_outputs(piece: int) -> None:
    for seed in range(20_000 + piece * 60, 20_000 + piece * 60 + 60):
        if is_fair(program(Random(seed))):
            joined(seed)


def test_what_is_planned_twice_is_the_same() -> None:
    for seed in range(20):
        one, other = (plan(program(Random(seed)).fusion) for _ in range(2))
        assert str(one) == str(other)
        assert [s.lowered.source for s in one.steps] == [s.lowered.source for s in other.steps]


def test_the_fusion_is_left_as_it_is() -> None:
    for seed in range(40):
        drawn = program(Random(seed))
        before = drawn.fusion.key()
        plan(drawn.fusion)
        assert drawn.fusion.key() == before
        assert not any(tensor.is_scheduled for tensor in drawn.fusion.tensors)


def test_runs_are_bitwise_the_same_with_any_number_of_threads() -> None:
    cases = planned_programs(30_000, 25)
    compile_all([planned for _, _, planned in cases])
    threads = torch.get_num_threads()
    for seed, drawn, planned in cases:
        given = laid_out(drawn)
        results = []
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            made = planned.prepared()(*given)
            results.append([y.view(torch.uint8).tolist() if y.numel() and y.ndim else y.tolist() for y in made])
        torch.set_num_threads(threads)
        assert str(results[0]) == str(results[1]) == str(results[2]), seed
