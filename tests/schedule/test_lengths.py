"""Which kernel a call takes by the lengths of rows: short rows, and one that is a large part of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.schedule.running import check_run

from serrate.fusion import Fusion, TensorView, symbol
from serrate.kernel import Lowered, cpp
from serrate.runtime.signature import Compiled
from serrate.schedule import Planned, model, plan
from serrate.schedule.lengths import ByLength


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of some hundred elements are long, so that tests need not have more."""
    monkeypatch.setattr(model, "SHARED_ELEMENTS", 200)
    monkeypatch.setattr(model, "SHARED_ROWS", 4)


def nested(fusion: Fusion, features: int, name: str = "x") -> TensorView:
    """[k, r, features], or [k, r] if there are 0."""
    if "offsets" not in [tensor.name for tensor in fusion.tensors]:
        fusion.input("offsets", [symbol("k") + 1], "int64")
    data = fusion.input(name, ["n", features] if features else ["n"])
    return fusion.view_as_nested(data, fusion.named("offsets"))


def softmax(features: int) -> Fusion:
    fusion = Fusion()
    x = nested(fusion, features)
    exponentials = fusion.unary("exp", x - fusion.reduce("max", x, [1], keepdims=True))
    fusion.output(exponentials / fusion.reduce("sum", exponentials, [1], keepdims=True), "y")
    return fusion


def sums(features: int) -> Fusion:
    fusion = Fusion()
    x = nested(fusion, features)
    fusion.output(fusion.reduce("sum", x, [1]), "total")
    fusion.output(fusion.reduce("mean", x, [1]), "mean")
    return fusion


def scaled(features: int) -> Fusion:
    """x · w + b, one row of w for each component, one of b for all."""
    fusion = Fusion()
    x = nested(fusion, features)
    w = fusion.input("w", ["k", features] if features else ["k"])
    b = fusion.input("b", [features] if features else [])
    fusion.output(x * fusion.broadcast(w, [False, True] + [False] * bool(features)) + b, "y")
    return fusion


def unpadded(features: int) -> Fusion:
    fusion = Fusion()
    x = nested(fusion, features)
    dense = fusion.input("dense", ["k", "m", features] if features else ["k", "m"])
    fusion.output(fusion.from_dense(dense, x), "y")
    return fusion


def with_places() -> Fusion:
    """The number of the component would be another one in a part."""
    fusion = Fusion()
    x = nested(fusion, 0)
    numbers = fusion.cast(fusion.positions(x, 0), "float32")
    fusion.output(fusion.reduce("sum", x * numbers, [1]), "y")
    return fusion


def with_others() -> Fusion:
    """Each component reads a number of its own, and that of another."""
    fusion = Fusion()
    x, w, ids = nested(fusion, 0), fusion.input("w", ["k"]), fusion.input("ids", ["k"], "int64")
    own, other = (fusion.broadcast(each, [False, True]) for each in (w, fusion.gather(w, ids)))
    fusion.output(fusion.reduce("sum", x * own + other, [1]), "y")
    return fusion


def with_other_rows() -> Fusion:
    """Rows of all components are read by number, and as they are."""
    fusion = Fusion()
    x, ids = nested(fusion, 0), fusion.input("ids", ["n"], "int64")
    other = fusion.view_as_nested(fusion.gather(fusion.named("x"), ids), fusion.named("offsets"))
    fusion.output(fusion.reduce("sum", x * other, [1]), "y")
    return fusion


MAKE: list[Callable[[int], Fusion]] = [softmax, sums, scaled, unpadded]
LENGTHS = {
    "first": [300, 2, 0, 5],
    "last": [1, 0, 300],
    "several": [3, 300, 0, 280, 4, 5, 290],
    "only": [400],
    "none": [30, 20, 25, 0, 30],
    "equal": [250, 250, 250],
}


def inputs_of(fusion: Fusion, lengths: list[int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = {"n": sum(lengths), "k": len(lengths), "m": max(lengths, default=0)}
    made = []
    for tensor in fusion.inputs:
        shape = [sizes.get(str(axis.extent), axis.extent.value) for axis in tensor.domain.logical]
        if tensor.name == "ids":
            made.append(torch.arange(shape[0]).flip(0))
        elif tensor.name == "offsets":
            made.append(torch.tensor([0, *torch.tensor(lengths).cumsum(0)]))
        else:
            made.append(torch.randn(shape, generator=generator))
    return made


def kernels_of(planned: Planned) -> ByLength:
    (step,) = planned.steps
    assert step.by_length is not None
    return step.by_length


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("features", [0, 1, 3, 16])
@pytest.mark.parametrize("make", MAKE)
def test_long_rows_are_right(make: Callable[[int], Fusion], features: int, lengths: str) -> None:
    fusion = make(features)
    planned = plan(fusion)
    assert kernels_of(planned).within is not None
    check_run(planned, inputs_of(fusion, LENGTHS[lengths]))


@pytest.mark.parametrize("make", [softmax, sums])
def test_rows_without_features_have_a_kernel_for_short_ones(make: Callable[[int], Fusion]) -> None:
    fusion = make(0)
    assert kernels_of(plan(fusion)).short is not None
    assert kernels_of(plan(make(16))).short is None
    for lengths in ([3, 0, 2] * 20, [100, 60, 70], [3, 3, 500]):
        check_run(plan(fusion), inputs_of(fusion, lengths))


def launched(planned: Planned, inputs: list[torch.Tensor]) -> list[str]:
    """The kernels that a call launches, by name."""
    names: list[str] = []

    def watched(kernel: Lowered) -> Compiled:
        made = kernel.variant()

        def launcher(device: torch.device) -> Callable[..., None]:
            launch = made.launcher(device)

            def call(*arguments: int) -> None:
                names.append(kernel.kernel.name)
                launch(*arguments)

            return call

        return replace(made, launcher=launcher)

    for kernel in kernels_of(planned).kernels:
        kernel._variants[False, False] = watched(kernel)
    planned.prepared()(*inputs)
    return names


def test_which_kernel_is_called() -> None:
    cases = {
        (60, 70, 80): ["softmax"],
        (3, 0, 4, 5): ["softmax_of_short_rows"],
        (3, 4, 400, 5): ["softmax_of_short_rows", "softmax_of_a_long_row", "softmax_of_short_rows"],
        (60, 400): ["softmax", "softmax_of_a_long_row"],
    }
    for lengths, wanted in cases.items():
        fusion = softmax(0)
        assert launched(plan(fusion, name="softmax"), inputs_of(fusion, list(lengths))) == wanted


def test_offsets_that_change_are_read_again() -> None:
    fusion = softmax(0)
    call = plan(fusion).prepared()
    offsets, x = inputs_of(fusion, [300, 2, 3])
    for end in (300, 5, 150, 302):
        offsets[1] = end
        offsets[2] = max(end, 302)
        (wanted,) = fusion.evaluate(offsets, x)
        assert torch.allclose(call(offsets, x)[0].double(), wanted.double(), atol=1e-5)


def test_wrong_offsets_are_refused_in_parts_too() -> None:
    fusion = softmax(0)
    call = plan(fusion).prepared()
    _, x = inputs_of(fusion, [300, 2, 3])
    for wrong in ([0, 300, 302, 304], [1, 300, 302, 305], [0, 302, 300, 305]):
        with pytest.raises(ValueError, match="offsets"):
            call(torch.tensor(wrong), x)
    fusion = unpadded(0)
    call, given = plan(fusion).prepared(), inputs_of(fusion, [300, 2])
    with pytest.raises(ValueError, match="axis of extent"):
        call(*given[:2], torch.zeros(3, 300))


@pytest.mark.parametrize("make", [with_places, with_others, with_other_rows])
def test_what_knows_its_place_is_not_cut(make: Callable[[], Fusion]) -> None:
    fusion = make()
    (step,) = plan(fusion).steps
    assert step.by_length is None
    check_run(plan(fusion), inputs_of(fusion, [2, 300, 3]))


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp, "LEAST_WORK", 0)
    fusion = sums(3)
    call, given, threads = plan(fusion).prepared(), inputs_of(sums(3), [3, 4000, 5]), torch.get_num_threads()
    results = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        results.append(call(*given))
    torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for result in results[1:] for one, other in zip(results[0], result, strict=True))
