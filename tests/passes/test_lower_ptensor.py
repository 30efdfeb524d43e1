"""lower-ptensor: regions that kernels compute, calls of libraries between them, and the reason for each call."""

from __future__ import annotations

from typing import Any

import torch
from tests.passes.running import program_of

import serrate as sr
from serrate.dialects.from_text import program_of as program_read
from serrate.dialects.texts import parse
from serrate.passes import lower_ptensor
from serrate.passes.lower_ptensor import Called, Cutter, Fused

X = sr.from_lengths(torch.rand(5, 4), [3, 0, 2])
W = torch.rand(4, 4)


def steps(function: Any, *given: Any) -> list[Any]:
    program = program_of(function, *given)
    return list(Cutter(program, name="kernel", partitions=frozenset()).run())


def test_what_kernels_know_is_one_region():
    (step,) = steps(lambda x: sr.softmax(sr.gelu(x) + 1, axis=1), X)
    assert isinstance(step, Fused)
    assert {each.region for each in step.instructions} == {"gelu#1", "add#1", "softmax#1"}
    assert lower_ptensor.NAME == "lower-ptensor"


def test_a_library_call_stands_between_two_regions_with_its_reason():
    before, call, after = steps(lambda x, w: sr.exp(sr.exp(x) @ w) * 2, X, W)
    assert isinstance(before, Fused)
    assert isinstance(call, Called)
    assert isinstance(after, Fused)
    assert call.instruction.op == "matmul"
    assert "library" in call.reason


def test_a_region_never_waits_for_itself():
    """What is read on both sides of a call is computed once before it, and the order holds."""
    made = steps(lambda x, w: (sr.softmax(x, axis=1) @ w) * sr.softmax(x, axis=1), X, W)
    have = {"x0", "x1"}
    for step in made:
        parts = step.instructions if isinstance(step, Fused) else (step.instruction,)
        inside = {str(value.name) for part in parts for value in part.results}
        assert {str(value.name) for part in parts for value in part.operands} <= have | inside
        have |= {str(value.name) for value in step.results} if isinstance(step, Fused) else inside


def test_what_depends_on_nothing_in_common_is_a_fusion_of_its_own():
    first, second = steps(lambda x, d: (sr.exp(x), sr.sin(d)), X, torch.rand(7, 3))
    assert isinstance(first, Fused)
    assert isinstance(second, Fused)


def test_draws_stay_in_the_order_of_the_program():
    """A draw behind one that reads a tensor waits for it, though it reads nothing itself."""

    def function(d: Any) -> Any:
        return torch.bernoulli(torch.sigmoid(d)) + torch.rand(3) + torch.rand_like(d) * torch.rand(3)

    calls = [step.instruction.op for step in steps(function, torch.rand(4, 3)) if isinstance(step, Called)]
    assert [op for op in calls if op in lower_ptensor.DRAWS] == [
        "torch.bernoulli", "torch.rand", "torch.rand_like", "torch.rand",
    ]  # fmt: skip


ON_A_GPU = """
func.func @main(%x: !ptensor.ptensor<n0 x 8 x f32, device = "cuda:0">)
    -> !ptensor.ptensor<n0 x 8 x f32, device = "cuda:0"> {
  %y = "ptensor.elementwise_unary_op"(%x) {euop = "exp"}
    : (!ptensor.ptensor<n0 x 8 x f32, device = "cuda:0">) -> !ptensor.ptensor<n0 x 8 x f32, device = "cuda:0">
  func.return %y : !ptensor.ptensor<n0 x 8 x f32, device = "cuda:0">
}
"""


def test_kernels_are_made_for_the_device_of_the_tensors():
    program = program_read(parse(ON_A_GPU))
    (step,) = Cutter(program).run()
    assert isinstance(step, Fused)
    assert step.fusing.target == "cuda"
    assert {kernel.target.name for each in step.planned.steps for kernel in each.kernels} == {"cuda"}
    (step,) = Cutter(program, frozenset({"cpu"})).run()
    assert isinstance(step, Called)
    assert step.reason == "one device computes a kernel, a cpu, and its tensors are on cuda:0"
