"""Compiled sources with one mistake in them, by which tests show that they would find it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path

from serrate.native import loading
from serrate.runtime.compiler import compile


def mutant(source: str, headers: Sequence[str], functions: Iterable[str], right: str, wrong: str) -> loading.Routines:
    """The functions of a source in which `wrong` stands in the place of `right`."""
    folder = Path(loading.__file__).parent
    text = "\n".join(folder.joinpath(part).read_text() for part in ("common.h", *headers, source))
    assert text.count(right) == 1, f"{right!r} stands {text.count(right)} times in {source}"
    library = ctypes.CDLL(str(compile(text.replace(right, wrong), flags=("-O1",)).path))
    return {function: loading._exported(library[f"serrate_{function}"]) for function in functions}
