"""Compiled sources with one mistake in them, by which tests show that they would find it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from pathlib import Path

from serrate.native import building, loading
from serrate.runtime.compiler import compile


def mutant(source: str, functions: Iterable[str], right: str, wrong: str) -> loading.Routines:
    """The functions of a source in which `wrong` stands in the place of `right`."""
    text = _whole(building.FOLDER / source, set())
    assert text.count(right) == 1, f"{right!r} stands {text.count(right)} times in {source}"
    library = ctypes.CDLL(str(compile(text.replace(right, wrong), flags=("-O1",)).path))
    return {function: loading._exported(library[f"serrate_{function}"]) for function in functions}


def _whole(path: Path, seen: set[Path]) -> str:
    """The text of a file, with the headers that it includes of ours in their places, each once."""
    if path in seen:
        return ""
    seen.add(path)
    lines = path.read_text().replace("#pragma once\n", "").split("\n")
    found = [re.fullmatch(r'#include "(.+)"', line) for line in lines]
    return "\n".join(
        line if match is None else _whole((path.parent / match[1]).resolve(), seen)
        for line, match in zip(lines, found, strict=True)
    )
