"""What holds for every record: samples run in every cell, wrong calls raise what they say, examples run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
import torch
from tests.ops.matrix import arguments, cells
from tests.ops.samples import elements

import serrate as sr
from serrate.ops import document
from serrate.ops.table import TABLE, Op

OPS = list(TABLE.values())


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_structure_and_dtype_runs_and_keeps_the_rules(op):
    ran = 0
    for cell in cells(op):
        if not cell.absent:
            cell.run()
            ran += 1
    assert ran


@pytest.mark.parametrize(
    ("op", "error"), [(op, e) for op in OPS for e in op.errors], ids=lambda v: getattr(v, "name", "")
)
def test_wrong_calls_raise_what_the_record_says(op: Op, error):
    text, kind, pattern = error
    x = sr.from_lengths(elements(6, (2,), torch.float32), [3, 1, 2])
    args, options = arguments(text, x)
    with pytest.raises(kind, match=pattern):
        op.eager(*args, **options)


def test_every_operation_has_a_wrong_call():
    assert [op.name for op in OPS if not op.errors] == []


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_docstring_runs(op):
    found = doctest.DocTestParser().get_doctest(op.eager.__doc__, {}, op.name, None, 0)
    assert found.examples
    assert doctest.DocTestRunner(verbose=False).run(found).failed == 0


def test_the_page_of_operations_is_what_the_table_makes():
    page = Path(__file__).parents[2] / "docs" / "operations.md"
    assert page.read_text() == document.page(), "run: python -m serrate.ops.document > docs/operations.md"
