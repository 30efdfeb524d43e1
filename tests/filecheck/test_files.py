"""Texts with checks: each file says by which command it is run, and what the command prints."""

from __future__ import annotations

import io
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser

from serrate.dialects.pipeline import PASSES
from serrate.opt import main

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.mlir"))


def commands(file: Path) -> list[tuple[bool, list[str], str]]:
    """The commands of a file, whether they fail, and what the checks of each begin with."""
    lines = [line.partition("RUN: ")[2] for line in file.read_text().splitlines() if line.startswith("// RUN: ")]
    made = []
    for line in lines:
        run, _, check = line.partition(" | ")
        checked, _, prefix = check.partition(" --check-prefix=")
        assert checked == "filecheck %s"
        words = shlex.split(run)
        fails = words[0] == "not"
        assert words[fails] == "serrate-opt"
        made.append((fails, [str(file) if word == "%s" else word for word in words[fails + 1 :]], prefix or "CHECK"))
    assert made
    return made


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    for fails, arguments, prefix in commands(file):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            assert main(arguments) == int(fails), err.getvalue()
        options = Options(match_filename=str(file), check_prefixes=[prefix])
        said = err.getvalue() if fails else out.getvalue()
        assert Matcher(options, FInput("stdout", said), Parser.from_opts(options)).run() == 0, said


def test_every_pass_has_a_file() -> None:
    run = {word for file in FILES for _, arguments, _ in commands(file) for word in arguments}
    assert run >= set(PASSES)
