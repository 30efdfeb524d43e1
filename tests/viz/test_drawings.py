"""Every drawing: its colours, that it is the same each time, its text, and where it goes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.viz.drawn import each_drawing
from tests.viz.reading import SVG, parse, texts

from serrate.fusion import Fusion, IterDomain, TensorDomain, const, symbol
from serrate.fusion.scalar import load
from serrate.kernel.ir import For, Kernel, Store
from serrate.viz import Drawing, draw_axes, draw_fusion, draw_layout, draw_loops, draw_tensor


@each_drawing
def test_drawings_take_the_colours_of_the_page(make: Callable[[], Drawing]) -> None:
    """No background, text and lines in the colour of the page or readable on white and on black; nothing leaks out."""
    root = parse(make())
    used = {e.attrib[name] for e in root.iter() for name in ("fill", "stroke") if name in e.attrib}
    used |= set(re.findall("#[0-9a-f]+", next(root.iter(f"{SVG}style")).text or ""))
    for color in used - {"none", "currentColor"}:
        assert contrast(color, "#fff") > 3
        assert contrast(color, "#111") > 3
    assert all(float(e.attrib["fill-opacity"]) <= 0.5 for e in root.iter(f"{SVG}rect") if e.attrib["fill"] != "none")
    assert not [e for e in root.iter() if {"id", "class", "transform"} & set(e.attrib)]


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, by the accessibility guidelines of the W3C."""

    def luminance(color: str) -> float:
        digits = "".join(d * 2 for d in color[1:]) if len(color) == 4 else color[1:]
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


@each_drawing
def test_the_same_is_drawn_again(make: Callable[[], Drawing]) -> None:
    assert make().svg == make().svg
    assert not re.search(r"\d\.\d{3}|nan|inf\b|[ \"]-0[ \"]", re.sub(r">[^<]*<", "><", make().svg))


def test_drawings_do_not_depend_on_hashes() -> None:
    code = (
        "from serrate.fusion import IterDomain; from serrate.viz import draw_axes;"
        "i = IterDomain(15, name='i'); o, j = IterDomain.split(i, 6);"
        "print(draw_axes([*IterDomain.split(o, 2), *IterDomain.split(j, 4)], predicated={i, j}).svg)"
    )
    made = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    ]
    assert made[0] == made[1] != b""


def test_names_are_escaped() -> None:
    name = 'a<b>&"c"\x00'
    for drawing in (
        draw_axes(IterDomain(3, name=name)),
        draw_fusion(with_input(name)),
        draw_tensor(with_input(name).inputs[0]),
        draw_loops(Kernel(name, (), (), (For(symbol(name), const(3), (), name),))),
    ):
        assert any('a<b>&"c"\ufffd' in text for text in texts(parse(drawing)))
        assert "a<b" not in drawing.svg


def with_input(name: str) -> Fusion:
    fusion = Fusion()
    fusion.input(name, [3])
    return fusion


def test_long_text_is_clipped_and_kept_as_a_tooltip() -> None:
    value = load("x", symbol("i"), "float32")
    for _ in range(60):
        value = value + load("x", symbol("i"), "float32")
    root = parse(draw_loops(Kernel("long", (), (), (Store("y", const(0), value),))))
    assert f"y[0] = {value}" in [title.text for title in root.iter(f"{SVG}title")]
    assert max(map(len, texts(root))) <= 100


def test_an_empty_fusion_and_a_tensor_of_no_axes() -> None:
    assert texts(parse(draw_fusion(Fusion()))) == ["a fusion without tensors"]
    fusion = Fusion()
    assert "no axes" in texts(parse(draw_tensor(fusion.input("x", TensorDomain([])))))
    assert "x" in texts(parse(draw_fusion(fusion)))


def test_notebooks_and_files_get_the_text(tmp_path: Path) -> None:
    drawing = draw_layout([0, 3, 8, 10])
    drawing.save(tmp_path / "layout.svg")
    assert (tmp_path / "layout.svg").read_text(encoding="utf-8") == drawing._repr_svg_() == drawing.svg
    assert len(repr(drawing)) < 60
    root = parse(drawing)
    assert (float(root.attrib["width"]), float(root.attrib["height"])) == (drawing.width, drawing.height)
