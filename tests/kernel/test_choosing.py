"""What a scheduler asks: can this be one kernel, under whose loops, and which values are worth keeping."""

from __future__ import annotations

import pytest
import torch
from tests.fusion.test_refused_lowering import refused
from tests.kernel.harness import check, compare

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion import Fusion, ParallelType, TensorView
from serrate.kernel import can_lower, choose_kept, choose_reference, lower
from serrate.kernel.ir import For, walk

P = ParallelType


def nested(fusion: Fusion, *features: int | str) -> TensorView:
    x, offsets = fusion.input("x", ["n", *features]), fusion.input("offsets", ["k"], "int64")
    return fusion.view_as_nested(x, offsets)


def softmax(fusion: Fusion, x: TensorView, axis: int) -> tuple[TensorView, TensorView]:
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [axis], keepdims=True))
    return exponentials, exponentials / fusion.reduce("sum", exponentials, [axis], keepdims=True)


# Can it be one kernel


@pytest.mark.parametrize(
    "name", [n for n, case in refused.cases.items() if case.error in (ScheduleError, RaggednessError)]
)
def test_what_is_refused_is_answered_without_an_exception(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every refusal of lowering, asked for by `can_lower` instead of `lower`."""
    answers = []

    def ask(fusion: Fusion, reference: TensorView, **options: str) -> object:
        answers.append(can_lower(fusion, reference, **options))
        return answers[-1]

    monkeypatch.setattr("tests.fusion.refusals.lower", ask)
    monkeypatch.setattr("tests.fusion.test_refused_lowering.lower", ask)
    case = refused.cases[name]
    try:
        case.call()
    except (ScheduleError, RaggednessError):
        assert not answers  # refused before it was to be lowered
        return
    assert not answers[-1]
    assert answers[-1].reason == case.text


def test_the_tensor_to_store_is_named() -> None:
    fusion = Fusion()
    x = fusion.input("x", [4, 3])
    total = fusion.reduce("sum", x, [1])
    y = fusion.output(x - fusion.broadcast(fusion.pad(fusion.slice(total, 0, 1, None), 0, 0, 1), [False, True]), "y")
    answer = can_lower(fusion, y)
    assert not answer
    assert answer.tensor is total
    # Stored by a kernel of its own it is an input, and the rest is one kernel.
    first, second = Fusion(), Fusion()
    stored = first.output(first.reduce("sum", first.input("x", [4, 3]), [1]), "total")
    x, given = second.input("x", [4, 3]), second.input("total", [4])
    y = second.output(x - second.broadcast(second.pad(second.slice(given, 0, 1, None), 0, 0, 1), [False, True]), "y")
    data = torch.randn(4, 3)
    (sums,) = lower(first, stored)(data)
    answer = can_lower(second, y)
    assert answer.lowered is not None
    expected = data - torch.cat([data.sum(1)[1:], torch.zeros(1)])[:, None]
    torch.testing.assert_close(answer.lowered(data, sums)[0], expected)


# The reference


def test_the_reference_is_the_tensor_that_has_all_axes() -> None:
    fusion = Fusion()
    x = nested(fusion, 3)
    fusion.output(fusion.reduce("sum", x, [1]), "total")
    y = fusion.output(x * 2.0, "y")
    fusion.output(fusion.reduce("max", y, [1, 2]), "most")
    assert choose_reference(fusion) is y
    fusion = Fusion()
    total = fusion.reduce("sum", nested(fusion, 3), [1, 2])
    fusion.output(total * 2.0, "y")
    assert choose_reference(fusion) is total


def test_no_reference_has_the_axes_of_two_programs() -> None:
    fusion = Fusion()
    fusion.output(fusion.unary("exp", fusion.input("a", ["n"])), "y")
    fusion.output(fusion.unary("exp", fusion.input("b", ["m"])), "z")
    assert choose_reference(fusion) is None


# What is kept


def test_exponentials_are_kept_where_the_result_is_stored() -> None:
    fusion = Fusion()
    exponentials, result = softmax(fusion, nested(fusion, 4), 1)
    y = fusion.output(result, "y")
    assert choose_kept(fusion, y) == [exponentials]
    assert exponentials.kept_in is y


def test_what_is_cheap_is_computed_again() -> None:
    fusion = Fusion()
    x = nested(fusion, 4)
    centred = x - fusion.reduce("mean", x, [2], keepdims=True)
    y = fusion.output(centred * fusion.unary("rsqrt", fusion.reduce("var", x, [2], keepdims=True) + 1e-5), "y")
    assert choose_kept(fusion, y) == []


def test_values_of_a_half_type_are_kept_in_memory_of_their_own() -> None:
    fusion = Fusion()
    x, offsets = fusion.input("x", ["n", 4], "float16"), fusion.input("offsets", ["k"], "int64")
    exponentials, result = softmax(fusion, fusion.view_as_nested(x, offsets), 1)
    y = fusion.output(result, "y")
    assert choose_kept(fusion, y) == [exponentials]
    assert exponentials.kept_in is None


def test_several_values_each_have_a_place() -> None:
    fusion = Fusion()
    x = nested(fusion)
    first, y = softmax(fusion, x, 1)
    second, z = softmax(fusion, fusion.unary("tanh", x), 1)
    y, z = fusion.output(y, "y"), fusion.output(z, "z")
    kept = choose_kept(fusion, z)
    assert {first, second} <= set(kept)
    places = [tensor.kept_in for tensor in kept if tensor.kept_in is not None]
    assert len(places) == len(set(places))
    agree(fusion, z)


def test_scores_that_are_sums_are_computed_once() -> None:
    """The softmax over rows of q · k: the products are summed in one phase, and their sums kept."""
    fusion = Fusion()
    k = nested(fusion, 6)
    scores = fusion.reduce("sum", k * fusion.input("q", [6]), [2])
    _, result = softmax(fusion, scores, 1)
    y = fusion.output(result, "y")
    reference = scores
    before = over_features(fusion, reference)
    kept = choose_kept(fusion, reference)
    assert before == 3
    assert over_features(fusion, reference) == 1
    assert kept
    agree(fusion, reference, torch.randn(6))
    assert y in fusion.outputs


def over_features(fusion: Fusion, reference: TensorView) -> int:
    loops = [s for s in walk(lower(fusion, reference).kernel.body) if isinstance(s, For)]
    return sum(loop.axis.startswith("d of") for loop in loops)


def test_cuda_keeps_only_what_is_a_constant_number_of_values() -> None:
    fusion = Fusion()
    _, result = softmax(fusion, fusion.input("x", ["n", "d"]), 1)
    y = fusion.output(result, "y").parallelize(0, P.BIDx)
    assert choose_kept(fusion, y, target="cuda") == []
    fusion = Fusion()
    exponentials, result = softmax(fusion, fusion.input("x", ["n", 8]), 1)
    y = fusion.output(result, "y").parallelize(0, P.BIDx)
    assert choose_kept(fusion, y, target="cuda") == [exponentials]
    check(lower(fusion, y, target="cuda"), [torch.randn(3, 8)])


def agree(fusion: Fusion, reference: TensorView, *more: torch.Tensor) -> None:
    sizes = [6] if more else []
    inputs = [torch.randn(9, *sizes), torch.tensor([0, 3, 3, 8, 9]), *more]
    lowered = lower(fusion, reference)
    check(lowered, inputs)
    outputs = lowered(*inputs)
    compare(lowered, inputs, {t.name: made for t, made in zip(fusion.outputs, outputs, strict=True)})
