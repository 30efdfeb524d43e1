"""Types: `meta` gives exactly the type of what eager code gives, host-born or device-born, and says what it assumes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import pytest
import torch
from tests.ops.bindings import Bindings, check_sample, typed
from tests.ops.matrix import absent, arguments
from tests.ops.samples import DTYPES, NAMES, sample

import serrate as sr
from serrate.ops.call import call
from serrate.ops.meta import Typed, meta
from serrate.ops.record import TABLE, Op
from serrate.program.abstract import mapped
from serrate.program.inputs import Inputs
from serrate.program.partitions import Expression
from serrate.program.types import RaggedAxis, TensorType

OPS = list(TABLE.values())
BIRTHS: dict[str, Callable[[sr.Tensor], sr.Tensor]] = {
    "host-born": lambda x: x,
    "device-born": sr.testing.device_born,
    "device-born with room": lambda x: sr.testing.device_born(x, spare=2),
}
REFUSED = {"Tensor.rows", "unstack", "split"}
"""Operations that give as many results as an axis has entries, which a type does not know."""
FEW = ("features", "no rows", "two levels", "permuted", "product")
"""Structures for the quick suite."""


def check(op: Op, dtype: torch.dtype, births: Iterable[str], names: Iterable[str]) -> int:
    """Every sample on these structures: one type for all that differ in lengths and elements alone."""
    checked = 0
    for birth in births:
        kinds: dict[TensorType, list[sr.Tensor]] = {}
        for name in names:
            if not absent(op, name, dtype):
                x = BIRTHS[birth](sample(name, dtype))
                kinds.setdefault(Inputs().type_of(x), []).append(x)
        for kind, tensors in kinds.items():
            for text in op.samples:
                checked += check_text(op, text, kind, tensors)
    return checked


def check_text(op: Op, text: str, kind: TensorType, tensors: list[sr.Tensor]) -> int:
    try:
        found = typed(op, text, kind)
    except (TypeError, ValueError) as error:
        if "does not say how many" in str(error):
            assert op.name in REFUSED
            return 0
        for x in tensors:  # what eager code refuses, too
            with pytest.raises(type(error)):
                check_sample(op, text, kind, Typed(None, ()), x)
        return 0
    for x in tensors:
        check_sample(op, text, kind, found, x)
    return len(tensors)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_type_is_that_of_the_eager_result(op: Op) -> None:
    births = ("host-born", "device-born with room")
    assert check(op, DTYPES[op.kinds[0]][0], births, FEW) or op.name in REFUSED


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_type_is_that_of_the_eager_result_for_every_structure_and_dtype(op: Op) -> None:
    for kind in op.kinds:
        for dtype in DTYPES[kind]:
            check(op, dtype, BIRTHS, NAMES)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_elements_decide_only_about_what_the_record_says(op: Op) -> None:
    """A partition that no element decides about is the same for other elements; then `decides` lacks no operand."""
    dtype = DTYPES[op.kinds[-1]][0]
    kind = Inputs().type_of(sample("two levels", dtype))
    for text in op.samples:
        try:
            found = typed(op, text, kind)
        except (TypeError, ValueError):
            continue  # what is refused is tested above
        known: dict[Expression, sr.Partition] = {}
        for seed in range(3):
            bindings = Bindings()
            x = sample("two levels", dtype, seed)
            bindings.check(kind, x)
            args, options = arguments(text, x)
            bindings.check(found.result, op.function(*args, **options))
            for expression, partition in bindings.partitions.items():
                if not op.decides:
                    assert known.setdefault(expression, partition).offsets.equal(partition.offsets), str(expression)


def test_elements_that_decide_unsaid_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = dataclasses.replace(TABLE["unique_values"], decides=())
    with pytest.raises(AssertionError):
        test_elements_decide_only_about_what_the_record_says(forgetful)


@pytest.mark.parametrize("name", ["add", "sum", "softmax", "concat", "reshape", "sort", "Tensor.to"])
def test_torchs_spellings_have_types_of_their_own(name: str) -> None:
    """Torch's defaults and dtypes, where they differ from those of the array API."""
    x = sample("features", torch.float32)
    half = sr.Tensor(x.values.half(), x.structure)
    inputs = Inputs()
    calls = {
        "add": (torch.add, (x, torch.ones((), dtype=torch.float64)), {}),
        "sum": (torch.sum, (half, 1, True), {}),
        "softmax": (torch.softmax, (x, 1), {"dtype": torch.float64}),
        "concat": (torch.cat, ([x, half], 1), {}),
        "reshape": (torch.Tensor.unflatten, (x, 2, (2, 1)), {}),
        "sort": (torch.sort, (x, 1), {}),
        "Tensor.to": (None, (x, torch.int64), {}),
    }
    spelling, given, named = calls[name]
    kinds = mapped(given, lambda part: inputs.type_of(part) if isinstance(part, sr.Tensor | torch.Tensor) else part)
    found = meta(TABLE[name], kinds, named, spelling)
    bindings = Bindings()
    bindings.check(kinds, given)
    bindings.check(found.result, call(TABLE[name], given, named, spelling))


@pytest.mark.parametrize("mutation", ["order", "dtype", "rows", "exact", "born", "parents"])
def test_the_check_finds_a_wrong_type(mutation: str) -> None:
    x = sr.testing.device_born(sample("permuted", torch.float32), spare=1)
    kind = Inputs().type_of(x)
    (_, ragged), (partition,) = kind.axes, kind.partitions
    assert isinstance(ragged, RaggedAxis)
    other = {
        "order": lambda: dataclasses.replace(kind, order=(0, 1, 2)),
        "dtype": lambda: dataclasses.replace(kind, dtype=torch.float64),
        "rows": lambda: dataclasses.replace(kind, rows=partition.values + 1),
        "exact": lambda: _with(kind, dataclasses.replace(ragged, partition=dataclasses.replace(partition, exact=True))),
        "born": lambda: _with(
            kind, dataclasses.replace(ragged, partition=dataclasses.replace(partition, host_born=True))
        ),
        "parents": lambda: _with(kind, dataclasses.replace(ragged, parents=())),
    }[mutation]()
    Bindings().check(kind, x)
    with pytest.raises(AssertionError):
        Bindings().check(other, x)


def _with(kind: TensorType, ragged: RaggedAxis) -> TensorType:
    return dataclasses.replace(kind, axes=(kind.axes[0], ragged))


@pytest.mark.parametrize("op", [op for op in OPS if op.family == "random"], ids=lambda op: op.name)
def test_finding_a_type_draws_no_number(op: Op) -> None:
    torch.manual_seed(0)
    want = torch.rand(3)
    torch.manual_seed(0)
    kind = Inputs().type_of(
        sample("features", torch.int64 if op.name in ("random.randint", "random.bits") else torch.float32)
    )
    further = {"random.randint": (2, 3), "random.shuffle": (1,)}.get(op.name, ())
    assert meta(op, (kind, *further), {}).result == kind
    assert torch.equal(torch.rand(3), want)
