"""What holds for every record: samples run in every cell, wrong calls raise what they say, examples run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
import torch
from tests.ops.expected import DTYPES_OF_RESULTS, SHAPES
from tests.ops.matrix import arguments, cells, result_of
from tests.ops.samples import DTYPES, elements, sample
from torch.autograd import gradcheck, gradgradcheck

import serrate as sr
from serrate.ops import document
from serrate.ops.record import TABLE, Op

OPS = list(TABLE.values())


@pytest.mark.parametrize("rules", [SHAPES, DTYPES_OF_RESULTS], ids=["shapes", "dtypes"])
def test_every_operation_has_one_rule_for_its_result(rules):
    assert sorted(name for names in rules.values() for name in names) == sorted(TABLE)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_structure_and_dtype_runs_and_keeps_the_rules(op):
    ran = 0
    for cell in cells(op):
        if not cell.absent:
            cell.run()
            ran += 1
    assert ran


@pytest.mark.parametrize(
    "op", [op for op in OPS if op.family != "creation" and "freq" not in op.name], ids=lambda op: op.name
)
@pytest.mark.parametrize("context", [torch.device, sr.device_region])
def test_where_new_tensors_are_made_plays_no_part(op, context):
    """With "meta" as the default, whatever is made without naming a device has no elements, and fails."""
    for structure in ("features", "empty rows", "two levels", "permuted"):
        for text in op.samples:
            args, options = arguments(text, sample(structure, DTYPES[op.kinds[0]][0]))
            torch.manual_seed(0)
            want = result_of(op, args, options)
            torch.manual_seed(0)
            with context("meta"):
                got = result_of(op, args, options)
            for mine, theirs in zip(parts(got), parts(want), strict=True):
                assert mine.shape == theirs.shape
                torch.testing.assert_close(mine.values, theirs.values, rtol=0, atol=0, equal_nan=True)


def parts(result):
    listed = result if isinstance(result, tuple | list) else [result]
    return [part for part in listed if isinstance(part, sr.Tensor)]


@pytest.mark.parametrize(
    ("op", "error"), [(op, e) for op in OPS for e in op.errors], ids=lambda v: getattr(v, "name", "")
)
def test_wrong_calls_raise_what_the_record_says(op: Op, error):
    text, kind, pattern = error
    x = sr.from_lengths(elements(6, (2,), torch.float32), [3, 1, 2])
    args, options = arguments(text, x)
    with pytest.raises(kind, match=pattern):
        op.function(*args, **options)


def test_every_operation_has_a_wrong_call():
    assert [op.name for op in OPS if not op.errors] == []


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_docstring_runs(op):
    found = doctest.DocTestParser().get_doctest(op.function.__doc__, {}, op.name, None, 0)
    assert found.examples
    assert doctest.DocTestRunner(verbose=False).run(found).failed == 0


def test_the_page_of_operations_is_what_the_table_makes():
    page = Path(__file__).parents[2] / "docs" / "operations.md"
    assert page.read_text() == document.page(), "run: python -m serrate.ops.document > docs/operations.md"


# Operations whose result does not change when an element changes a little, that draw it, or that cut off its history.
FLAT = {
    *("isfinite", "isinf", "isnan", "logical_not", "signbit", "equal", "not_equal", "greater", "greater_equal"),
    *("less", "less_equal", "logical_and", "logical_or", "logical_xor", "nextafter", "floor_divide", "any", "all"),
    *("count_nonzero", "argmax", "argmin", "argsort", "searchsorted", "nonzero", "zeros_like", "ones_like"),
    *("full_like", "empty_like", "zeros", "ones", "full", "empty", "eye", "arange", "linspace", "meshgrid"),
    *("linalg.matrix_rank", "fft.fftfreq", "fft.rfftfreq", "Tensor.mask", "Tensor.detach", "positions", "numbered"),
    *("random.uniform", "random.normal", "random.exponential", "random.bernoulli", "random.bits"),
}
# The derivative exists, but not where the samples are; each has a test of its own.
BORDER = {
    "std": "rows of one entry",
    "acosh": "the samples lie below 1",
    "scatter": "the samples name a place twice, and any may win",
}


@pytest.mark.parametrize("along", ["random directions", pytest.param("every direction", marks=pytest.mark.slow)])
@pytest.mark.parametrize("structure", ["empty rows", "two levels"])
@pytest.mark.parametrize(
    "op", [op for op in OPS if "float" in op.kinds and op.name not in FLAT | set(BORDER)], ids=lambda op: op.name
)
def test_first_and_second_derivatives(op, structure, along):
    """Of every sample of the record, by finite differences."""
    fast = along == "random directions"
    base = sample(structure, torch.float64)
    derived = 0
    for text in op.samples:

        def run(values, text=text):
            args, options = arguments(text, base._with(values))
            torch.manual_seed(0)
            made = [part.values for part in parts(result_of(op, args, options))]
            exact = [v for v in made if v.requires_grad and v.dtype in (torch.float64, torch.complex128)]
            return tuple(torch.where(v.isfinite(), v, torch.zeros_like(v)) for v in exact)

        values = base.values.clone().requires_grad_()
        if run(values):
            derived += 1
            assert gradcheck(run, [values], fast_mode=fast)
            assert gradgradcheck(run, [values], fast_mode=fast)
    assert derived, "no result depends on the elements: it belongs to FLAT"
