"""The documents are true: their code runs, prints what they show, and their links and commands lead somewhere."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import serrate as sr

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = ("python", "pycon")
SHELL = ("sh", "bash")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# Commands other than make that a document may show; each is run from the root.
COMMANDS = {
    ".venv/bin/python examples/first.py": [sys.executable, "examples/first.py"],
}

# What needs no words: numbers, None, the version, dtypes.
CONSTANTS = (float, str, type(None), torch.dtype)

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


@dataclass(frozen=True)
class Block:
    """A fenced block of a document: its language, its text, and the line its text starts on."""

    language: str
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    found: list[Block] = []
    language, start, body = None, 0, []
    for number, line in enumerate(text.splitlines(), start=1):
        if language is None and line.startswith("```"):
            language, start, body = line[3:].strip(), number + 1, []
        elif language is not None and line.rstrip() == "```":
            found.append(Block(language, "".join(f"{entry}\n" for entry in body), start))
            language = None
        elif language is not None:
            body.append(line)
    assert language is None, f"the block that starts in line {start - 1} does not end"
    return found


# ------------------------------------------------------------------------------------------ Python blocks


def run_python(text: str, name: str) -> list[str]:
    """Run the Python blocks of a document in order, in one namespace; what went wrong, block by block."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    failures: list[str] = []
    for block in blocks(text):
        if block.language in PYTHON:
            failures += _run_block(block, namespace, name)
    return failures


def _run_block(block: Block, namespace: dict[str, Any], name: str) -> list[str]:
    where = f"{name}, line {block.line}"
    if block.text.lstrip().startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(block.text, namespace, name, name, block.line - 1)
        test.globs = namespace  # doctest copies it, but later blocks go on from here
        report = io.StringIO()
        failed = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.write, clear_globs=False).failed
        return [f"{where}:\n{report.getvalue()}"] if failed else []
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block.text, where, "exec"), namespace)
    except Exception as error:
        return [f"{where}: {type(error).__name__}: {error}"]
    return []


@each_document
def test_python_blocks_run_and_print_what_is_shown(document: Path) -> None:
    failures = run_python(document.read_text(), document.name)
    assert not failures, "\n".join(failures)


@each_document
def test_blocks_have_a_language(document: Path) -> None:
    for block in blocks(document.read_text()):
        assert block.language in (*PYTHON, *SHELL, "text"), f"line {block.line - 1}: {block.language!r}"


# ------------------------------------------------------------------------------------------ shell blocks


def makefile_names() -> tuple[set[str], set[str]]:
    """The targets of the Makefile, and the variables its callers may set."""
    text = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z][\w-]*):(?!=)", text, re.M)), set(re.findall(r"^(\w+) *\?=", text, re.M))


def bad_commands(text: str) -> list[str]:
    """Shell lines that are neither `make` with targets and variables that exist, nor a command we know and run."""
    targets, variables = makefile_names()
    bad: list[str] = []
    for block in blocks(text):
        if block.language not in SHELL:
            continue
        for line in block.text.splitlines():
            words = shlex.split(line, comments=True)
            if not words or shlex.join(words) in COMMANDS:
                continue
            known = (w.partition("=")[0] in variables if "=" in w else w in targets for w in words[1:])
            if words[0] != "make" or not words[1:] or not all(known):
                bad.append(line)
    return bad


@each_document
def test_commands_exist(document: Path) -> None:
    assert bad_commands(document.read_text()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_listed_commands_run(command: str) -> None:
    subprocess.run(COMMANDS[command], cwd=ROOT, check=True, capture_output=True, timeout=300)


# ------------------------------------------------------------------------------------------ links and words


def prose(text: str) -> str:
    """The document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def links(text: str) -> Iterator[str]:
    """Targets of the relative links, without their fragments."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        path = target.partition("#")[0]
        if path and not re.match(r"[a-z]+:", path):
            yield path


@each_document
def test_links_lead_to_files(document: Path) -> None:
    missing = [target for target in links(document.read_text()) if not (document.parent / target).exists()]
    assert missing == []


@each_document
def test_nothing_outside_the_repository_is_mentioned(document: Path) -> None:
    assert not re.search(r"/work\b|\.\./shared", document.read_text())


def test_readme_links_to_every_page() -> None:
    linked = set(links((ROOT / "README.md").read_text()))
    assert {page.relative_to(ROOT).as_posix() for page in DOCUMENTS[1:]} <= linked


def test_contributing_shows_every_module() -> None:
    tree = next(block.text for block in blocks((ROOT / "CONTRIBUTING.md").read_text()) if "src/serrate/" in block.text)
    shown = re.findall(r"[\w/]+\.py\b", tree)
    there = [path.name for path in (ROOT / "src/serrate").rglob("*.py") if path.name != "__init__.py"]
    assert sorted(name for name in shown if "/" not in name and name != "__init__.py") == sorted(there)


# ------------------------------------------------------------------------------------------ the first example


def test_first_example_is_examples_first() -> None:
    found = blocks((ROOT / "README.md").read_text())
    position = next(i for i, block in enumerate(found) if block.language == "python")
    code, output = found[position], found[position + 1]
    source = (ROOT / "examples/first.py").read_text()
    assert re.sub(r'\A""".*?"""\n+', "", source, flags=re.S) == code.text
    run = subprocess.run([sys.executable, "examples/first.py"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout == output.text


# ------------------------------------------------------------------------------------------ public names


def runnable_examples(thing: object) -> list[doctest.Example]:
    """The examples in a docstring (in a module: in its docstring and its public members') that are not skipped."""
    documented = [thing]
    if isinstance(thing, types.ModuleType):
        documented += [getattr(thing, name) for name in thing.__all__]
    found = [e for t in documented for e in doctest.DocTestParser().get_examples(t.__doc__ or "")]
    return [e for e in found if not e.options.get(doctest.SKIP)]


@pytest.mark.parametrize("name", [name for name in sr.__all__ if not isinstance(getattr(sr, name), CONSTANTS)])
def test_public_name_has_an_example(name: str) -> None:
    thing = getattr(sr, name)
    assert thing.__doc__
    assert runnable_examples(thing), f"the docstring of sr.{name} has no example that runs"


@pytest.mark.parametrize("name", sr.__all__)
def test_public_name_is_in_the_documents(name: str) -> None:
    text = "".join(document.read_text() for document in DOCUMENTS if document.name != "CONTRIBUTING.md")
    assert re.search(rf"\bsr\.{name}\b", text), f"neither the README nor docs/ mentions sr.{name}"


# ------------------------------------------------------------------------------------------ these checks can fail


def fenced(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```", ""])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (fenced("pycon", ">>> 1 + 1", "3"), "Expected:\n    3\nGot:\n    2"),
        (fenced("python", ">>> 1 + 1", "3"), "Got:\n    2"),
        (fenced("python", "x = 1", "assert x == 2"), "line 2: AssertionError"),
        (fenced("python", "x ="), "SyntaxError"),
        (fenced("python", "x = 1") + fenced("pycon", ">>> x", "2"), "Got:\n    1"),
        (fenced("pycon", ">>> x = 1") + fenced("python", "assert x == 2"), "line 5: AssertionError"),
    ],
)
def test_a_wrong_block_is_found(document: str, message: str) -> None:
    (failure,) = run_python(document, "some.md")
    assert message in failure


def test_right_blocks_pass() -> None:
    document = (
        fenced("python", "x = 1") + fenced("pycon", ">>> x, 2.50", "(1,   2...)", ">>> y = 3") + fenced("text", "!")
    )
    assert run_python(document + fenced("python", "assert y == 3"), "some.md") == []


@pytest.mark.parametrize("line", ["make", "make nothing", "make test NOTHING=1", "rm -rf build", "python -c pass"])
def test_a_wrong_command_is_found(line: str) -> None:
    assert bad_commands(fenced("sh", "make test  # all of it", 'make test PYTEST_ARGS="-k index"', line)) == [line]


def test_links_are_found() -> None:
    text = "[a](docs/a.md) [b](b.md#part) [c](https://example.org/c.md) [d](#here)\n" + fenced("python", "x[0](y)")
    assert list(links(text)) == ["docs/a.md", "b.md"]


def test_a_block_without_an_end_is_found() -> None:
    with pytest.raises(AssertionError, match="line 1 does not end"):
        blocks("```python\nx = 1\n")
