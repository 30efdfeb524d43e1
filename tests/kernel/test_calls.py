"""How kernels are called: what is remembered between calls, what is asked at each, and how large outputs are."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from serrate.errors import RaggednessError, ScheduleError
from serrate.fusion import Fusion, RaggedIterDomain, TensorView, inject_offsets, remembering, symbol
from serrate.fusion import ParallelType as P
from serrate.fusion.raggedness import Pieces, listed
from serrate.fusion.remembering import forgetting, memory_of, remembered
from serrate.kernel import Lowered, arguments, compile_together, lower


def nested(
    fusion: Fusion, name: str = "x", offsets: str = "offsets", dtype: str = "int64", **options: Any
) -> TensorView:
    data = fusion.input(name, ["n", 2])
    return fusion.view_as_nested(data, fusion.input(offsets, [symbol("k") + 1], dtype), **options)


def doubled(by_tile: bool = False, **options: Any) -> Lowered:
    fusion = Fusion()
    y = fusion.output(nested(fusion, **options) * 2.0, "y")
    return lower(fusion, y.split(1, 2).combine(0) if by_tile else y)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often offsets were checked, and computed of others."""
    found = {"checked": 0, "computed": 0}

    def counted(what: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            found[what] += 1
            return real(*arguments)

        return call

    monkeypatch.setattr(arguments, "check_offsets", counted("checked", arguments.check_offsets))
    monkeypatch.setattr(Pieces, "offsets", counted("computed", Pieces.offsets))
    return found


# What is remembered


def test_offsets_are_checked_and_tiles_computed_once(counts: dict[str, int]) -> None:
    kernel, x, offsets = doubled(by_tile=True), torch.randn(5, 2), torch.tensor([0, 3, 3, 5])
    for _ in range(3):
        assert torch.equal(kernel(x, offsets)[0], x * 2)
        assert torch.equal(kernel(x, offsets, out=torch.empty_like(x))[0], x * 2)
    assert counts == {"checked": 1, "computed": 1}
    assert torch.equal(doubled(by_tile=True)(x, offsets)[0], x * 2)  # another kernel of the same tiles
    assert counts == {"checked": 1, "computed": 1}
    kernel(x, torch.tensor([0, 5]))
    assert counts == {"checked": 2, "computed": 2}


def test_offsets_that_were_written_to_are_checked_again(counts: dict[str, int]) -> None:
    kernel, x, offsets = doubled(by_tile=True), torch.randn(6, 2), torch.tensor([0, 3, 3, 6])
    kernel(x, offsets)
    offsets[1], offsets[2] = 1, 5
    assert torch.equal(kernel(x, offsets)[0], x * 2)
    assert counts == {"checked": 2, "computed": 2}
    offsets[3] = 7
    with pytest.raises(RaggednessError, match="must end with n = 6"):
        kernel(x, offsets)
    offsets[3] = 6
    assert torch.equal(kernel(x, offsets)[0], x * 2)


def test_offsets_that_fit_one_tensor_need_not_fit_another() -> None:
    kernel, offsets = doubled(), torch.tensor([0, 3, 5])
    kernel(torch.ones(5, 2), offsets)
    for rows in (4, 6):
        with pytest.raises(RaggednessError, match=f"must end with n = {rows}"):
            kernel(torch.ones(rows, 2), offsets)
    loose = doubled(exact=False)
    assert loose(torch.ones(6, 2), offsets)[0].shape == (6, 2)
    with pytest.raises(RaggednessError, match="must not exceed n = 4"):
        loose(torch.ones(4, 2), offsets)


def test_offsets_of_inference_mode_are_never_taken_for_granted(counts: dict[str, int]) -> None:
    with torch.inference_mode():
        kernel, x, offsets = doubled(), torch.ones(5, 2), torch.tensor([0, 3, 5])
        kernel(x, offsets)
        offsets[2] = 6
        with pytest.raises(RaggednessError):
            kernel(x, offsets)
    assert counts["checked"] == 2


def test_offsets_of_two_kinds_that_depend_on_each_other() -> None:
    """Products of two lengths: what is computed of both is forgotten if either is written to."""
    first, second = torch.tensor([0, 1, 3]), torch.tensor([0, 2, 4])
    made = []

    def total() -> int:
        return remembered(
            (first, second), "products", lambda: made.append(0) or int((first.diff() * second.diff()).sum())
        )

    assert [total(), total()] == [6, 6]
    second[2] = 5
    assert total() == 8
    first[2] = 2
    assert total() == 5
    assert len(made) == 3


def test_what_is_remembered_goes_with_the_tensor() -> None:
    gc.collect()
    before = len(remembering._known)
    offsets = torch.tensor([0, 2])
    memory_of(offsets)["large"] = torch.empty(10)
    assert len(remembering._known) == before + 1
    assert memory_of(offsets) is memory_of(offsets)
    assert memory_of(offsets[:]) == {}  # another tensor, though of the same memory
    assert torch.equal(pickle.loads(pickle.dumps(offsets)), offsets)
    del offsets
    gc.collect()
    assert len(remembering._known) <= before


def test_what_was_found_wrong_is_looked_at_again() -> None:
    """A device reports an error of a later call; the next call has to find it once more."""
    offsets = torch.tensor([0, 2])
    memory_of(offsets)["checked"] = True
    raised = forgetting(offsets, lambda position: IndexError(f"at {position}"))
    assert memory_of(offsets) == {"checked": True}
    assert str(raised(1)) == "at 1"
    assert memory_of(offsets) == {}


def test_another_tensor_at_the_same_address_is_not_known() -> None:
    offsets, gone = torch.tensor([0, 2]), torch.tensor([0, 2])
    remembering._known[id(offsets)] = weakref.ref(gone), offsets._version, {"last": 3}
    assert memory_of(offsets) == {}


def test_a_view_of_offsets_is_written_to() -> None:
    """torch counts for all tensors of one memory."""
    kernel, x = doubled(), torch.ones(5, 2)
    offsets = torch.tensor([0, 3, 5, 9])[:3]
    assert offsets._base is not None
    kernel(x, offsets)
    offsets._base[2] = 6
    with pytest.raises(RaggednessError):
        kernel(x, offsets)


# What is asked at each call


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (lambda x, o: (x,), TypeError, r"2 inputs \(x, offsets\), got 1"),
        (lambda x, o: (x, o, o), TypeError, r"2 inputs \(x, offsets\), got 3"),
        (lambda x, o: (x.double(), o), TypeError, "was given torch.float64"),
        (lambda x, o: (x, o.int()), TypeError, "was given torch.int32"),
        (lambda x, o: (x.numpy(), o), TypeError, "needs a torch.Tensor, got numpy.ndarray"),
        (lambda x, o: (x.tolist(), o), TypeError, "needs a torch.Tensor, got builtins.list"),
        (lambda x, o: (None, o), TypeError, "needs a torch.Tensor"),
        (lambda x, o: (x.T.contiguous().T, o), TypeError, "contiguous .* got .* not contiguous"),
        (lambda x, o: (x[:, 0], o), ValueError, "2 axes, got shape"),
        (lambda x, o: (x[:, :1].contiguous(), o), ValueError, "extent 2, got 1"),
        (lambda x, o: (x.to("meta"), o), TypeError, "tensor on cpu, got .* on meta"),
        (lambda x, o: (x.requires_grad_(), o), RuntimeError, "has no gradient"),
        (lambda x, o: (x, o[:0]), RaggednessError, "begin with 0"),
    ],
)
def test_wrong_arguments_are_refused_after_right_ones(arguments: Any, error: type[Exception], words: str) -> None:
    """A call that went well makes the next no less careful."""
    kernel, x, offsets = doubled(), torch.ones(5, 2), torch.tensor([0, 2, 5])
    for _ in range(2):
        with pytest.raises(error, match=words):
            kernel(*arguments(torch.ones(5, 2), offsets.clone()))
        assert torch.equal(kernel(x, offsets)[0], x * 2)


def test_wrong_memory_for_results_is_refused_after_right_one() -> None:
    kernel, x, offsets = doubled(), torch.ones(5, 2), torch.tensor([0, 2, 5])
    for _ in range(2):
        for out, error in (
            (torch.empty(5, 2).double(), TypeError),
            (torch.empty(2, 5).T, TypeError),
            (torch.empty(5, 3), ValueError),
            (x, ValueError),
            (torch.empty(5, 2, device="meta"), TypeError),
        ):
            with pytest.raises(error):
                kernel(x, offsets, out=out)
        assert torch.equal(kernel(x, offsets, out=torch.empty(5, 2))[0], x * 2)
    assert kernel(x[:0], torch.zeros(1, dtype=torch.int64), out=x[:0])[0].shape == (0, 2)  # no memory, so none shared


def test_the_version_counts_what_is_written() -> None:
    kernel, x, offsets, place = doubled(), torch.ones(5, 2), torch.tensor([0, 2, 5]), torch.zeros(5, 2)
    versions = [place._version]
    for _ in range(3):
        kernel(x, offsets, out=place)
        versions.append(place._version)
    assert versions == sorted(set(versions))


def test_sizes_are_read_at_each_call() -> None:
    fusion = Fusion()
    a, b = fusion.input("a", ["n", symbol("m") + 1]), fusion.input("b", ["n"])
    y = fusion.output(a * fusion.broadcast(b, [False, True]), "y")
    kernel = lower(fusion, y)
    for n, m in ((3, 4), (0, 1), (5, 1), (1, 9)):
        left, right = torch.randn(n, m), torch.randn(n)
        assert torch.equal(kernel(left, right)[0], left * right[:, None])
    with pytest.raises(ValueError, match="extent n = 3, got 2"):
        kernel(torch.ones(3, 2), torch.ones(2))


def test_a_prepared_call() -> None:
    kernel, x, offsets = doubled(by_tile=True), torch.randn(5, 2), torch.tensor([0, 2, 5])
    call = kernel.prepared(["cpu", "cpu"])
    assert torch.equal(call(x, offsets)[0], x * 2)
    assert kernel.prepared([torch.device("cpu")] * 2) is call  # written once
    with pytest.raises(RaggednessError):  # shapes and offsets are looked at all the same
        call(x[:4], offsets)
    place = torch.empty(5, 2)
    (got,) = kernel.prepared(["cpu", "cpu"], given_outputs=True)(x, offsets, place)
    assert got is place
    assert torch.equal(place, x * 2)


def test_lists_of_extents_and_computed_offsets() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.view_as_nested(fusion.input("x", ["n"]), listed((3, symbol("n") - 3))) * 2.0, "y")
    kernel = lower(fusion, y.split(1, 2).combine(0))
    for n in (7, 4, 7, 3):
        assert kernel(torch.ones(n))[0].tolist() == [2] * n
    fusion = Fusion()
    data, extents = fusion.input("x", ["n"]), fusion.input("extents", ["k"], "int32")
    x = fusion.view_as_nested(data, RaggedIterDomain.from_extents(extents, size="n").raggedness)
    fusion.output(fusion.pad(x, 1, 1, 0, value=-1.0), "y")
    made = inject_offsets(fusion)
    kernel = lower(made, made.named("y"))
    for lengths in ([2, 0, 1], [0, 0, 3], [3]):
        values, offsets = kernel(torch.arange(3.0), torch.tensor(lengths, dtype=torch.int32))
        rows = torch.arange(3.0).split(lengths)
        assert torch.equal(values, torch.cat([torch.cat([torch.tensor([-1.0]), row]) for row in rows]))
        assert offsets.diff().tolist() == [length + 1 for length in lengths]


# How large outputs are


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_an_output_has_the_room_of_its_operand(dtype: str) -> None:
    kernel = doubled(exact=False, dtype=dtype)
    x, offsets = torch.randn(12, 2), torch.tensor([0, 4, 9], dtype=getattr(torch, dtype))
    (got,) = kernel(x, offsets)
    assert got.shape == (12, 2)
    assert torch.equal(got[:9], x[:9] * 2)
    assert kernel.fusion.evaluate(x, offsets)[0].shape == (12, 2)


def test_rows_behind_another_axis_lie_as_far_apart_as_there_is_room() -> None:
    fusion = Fusion()
    data, offsets = fusion.input("x", [3, "n"]), fusion.input("offsets", [symbol("k") + 1], "int64")
    y = fusion.output(fusion.view_as_nested(data, offsets, 1, exact=False) * 2.0, "y")
    values, cut = torch.randn(3, 6), torch.tensor([0, 1, 4])
    for got in (lower(fusion, y)(values, cut)[0], fusion.evaluate(values, cut)[0]):
        assert got.shape == (3, 6)
        torch.testing.assert_close(got[:, :4], values[:, :4] * 2)


def test_lengths_that_follow_from_others_are_added_up_on_the_host() -> None:
    fusion = Fusion()
    y = fusion.output(fusion.slice(nested(fusion), 1, 1, None), "y")
    x, offsets = torch.randn(6, 2), torch.tensor([0, 3, 4, 6])
    want = torch.cat([row[1:] for row in x.split([3, 1, 2])])
    for _ in range(2):
        assert torch.equal(lower(fusion, y)(x, offsets)[0], want)


# Several kernels at once


def test_kernels_of_one_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from serrate.runtime import compiler

    monkeypatch.setenv("SERRATE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiler, "_libraries", {})
    runs = []
    real = compiler.run_compiler
    monkeypatch.setattr(compiler, "run_compiler", lambda *a: (runs.append(a), real(*a))[1])
    kernels = []
    for factor in (2.0, 3.0, 5.0):
        fusion = Fusion()
        y = fusion.output(nested(fusion) * factor, "y").parallelize(0, P.Thread)
        kernels.append(lower(fusion, y, name="same"))
    compile_together(kernels)
    x, offsets = torch.randn(5, 2), torch.tensor([0, 2, 5])
    for factor, kernel in zip((2.0, 3.0, 5.0), kernels, strict=True):
        assert torch.equal(kernel(x, offsets)[0], x * factor)
    assert len(runs) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_narrow_indices_reach_all_outputs() -> None:
    """Two small inputs, and an output of more elements than 32 bits count."""
    fusion = Fusion()
    a, b = fusion.input("a", ["n"], "int8"), fusion.input("b", ["m"], "int8")
    y = fusion.output(fusion.broadcast(a, [False, True]) * fusion.broadcast(b, [True, False]), "y")
    kernel = lower(fusion, y, index="int32")
    ones = torch.ones(50_000, dtype=torch.int8)
    with pytest.raises(ScheduleError, match="do not reach 2500000000"):
        kernel(ones, ones)
    assert kernel(ones[:3], ones[:2])[0].tolist() == [[1, 1]] * 3


def test_offsets_made_in_inference_mode_are_used_outside() -> None:
    kernel, x, offsets = doubled(by_tile=True), torch.randn(5, 2), torch.tensor([0, 2, 5])
    with torch.inference_mode():
        kernel(x, offsets)
    assert not any(isinstance(made, torch.Tensor) and made.is_inference() for made in memory_of(offsets).values())
    assert torch.equal(kernel(x, offsets)[0], x * 2)
