"""Printing: what repr and HTML show, that they stay a screenful, and that they look at a few entries only."""

from __future__ import annotations

import html.parser

import pytest
import torch
from tests.oracle import operations

import serrate as sr


def test_a_small_tensor_shows_everything():
    x = sr.ragged([[1.0, -2.5], [], [3.0]])
    assert repr(x) == (
        "sr.Tensor([[ 1.0000, -2.5000],\n"
        "           [],\n"
        "           [ 3.0000]], shape=(3, Ragged([2, 0, 1])), dtype=torch.float32, device='cpu')"
    )
    assert repr(sr.ragged([[True], []])) == (
        "sr.Tensor([[True],\n           []], shape=(2, Ragged([1, 0])), dtype=torch.bool, device='cpu')"
    )
    assert repr(sr.ragged([])) == "sr.Tensor([], shape=(0, Ragged([])), dtype=torch.float32, device='cpu')"
    assert repr(sr.asarray(3)) == "sr.Tensor(3, shape=(), dtype=torch.int64, device='cpu')"


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([float("nan"), float("inf"), 1.0], ["nan", "inf", "1."]),
        ([1e-9, 1.0], ["1.0000e-09", "1.0000e+00"]),
        ([123456.5, 1.0], ["1.2346e+05", "1.0000e+00"]),
        ([-float("inf"), 0.5], ["-inf", "0.5000"]),
        ([0.0, -0.0], ["0.", "-0."]),
    ],
)
def test_numbers_keep_one_precision(numbers, shown):
    text = repr(sr.ragged([numbers]))
    for number in shown:
        assert number in text


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64, torch.uint8, torch.uint16])
def test_every_dtype_prints(dtype):
    x = sr.from_lengths(torch.ones(3).to(dtype), [1, 2])
    assert str(dtype) in repr(x)
    assert "1" in repr(x)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("features", [(), (50,), (9, 9)])
def test_never_more_than_a_screenful(depth, features):
    lengths = [torch.full((30,), 30)]
    for _ in range(depth - 1):
        lengths.append(torch.full((int(lengths[-1].sum()),), 2))
    x = sr.from_lengths(torch.zeros(int(lengths[-1].sum()), *features), lengths)
    lines = repr(x).splitlines()
    assert len(lines) <= 25
    assert len(repr(x)) < 25 * 80
    assert "…" in repr(x)


@pytest.mark.parametrize("show", [repr, sr.Tensor._repr_html_, lambda x: repr(x.shape), lambda x: repr(x.partitions)])
def test_as_many_operations_for_many_rows_as_for_few(show):
    assert operations(show, 40_000) == operations(show, 400)


def test_a_view_with_the_ragged_axis_in_front_says_what_it_shows():
    x = sr.from_lengths(torch.arange(5), [2, 3]).permute_dims((1, 0))
    assert repr(x).startswith("sr.Tensor(packed [0, 1, 2, 3, 4], shape=(Ragged([2, 3], parents=(1,)), 2)")


def test_meta_tensors_and_device_born_ones_print():
    assert "device='meta'" in repr(sr.from_lengths(torch.zeros(3, device="meta"), [1, 2]))
    x = sr.testing.device_born(sr.ragged([[1, 2], [3]]), spare=2)
    assert "97" not in repr(x)
    assert "97" not in x._repr_html_()


class Bars(html.parser.HTMLParser):
    """The titles and widths of the bars in a drawing, and whether every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.widths: list[float] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        given = dict(attrs)
        if "title" in given:
            self.titles.append(given["title"])
        if "background" in given.get("style", ""):
            self.widths.append(float(given["style"].split("width:")[1].split("%")[0]))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_draws_rows_to_scale_with_values_on_hover():
    bars = Bars()
    bars.feed(sr.ragged([[1, 2], [], [3, 4, 5, 6]])._repr_html_())
    assert bars.open == []
    assert bars.titles == ["[1, 2]", "[]", "[3, 4, 5, 6]"]
    assert bars.widths == [35.0, 0.0, 70.0]


def test_html_of_nested_and_many_rows_and_dense():
    bars = Bars()
    bars.feed(sr.ragged([[[1], [2, 3]], [[4]]])._repr_html_())
    assert [width / 70 for width in bars.widths] == pytest.approx([1, 1 / 3], abs=1e-3)
    many = Bars()
    text = sr.from_lengths(torch.zeros(3000), torch.full((1000,), 3))._repr_html_()
    many.feed(text)
    assert len(many.titles) == 24
    assert "976 more rows" in text
    assert "<pre>" in sr.asarray([[1, 2], [3, 4]])._repr_html_()
