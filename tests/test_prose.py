"""Docstrings and comments are whole sentences, as far as their form shows it: how they begin, how they end, no riddles.

What a program cannot see, whether a sentence is plain and can be understood alone, stays with the reader.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "serrate"
PYTHON = sorted(ROOT.rglob("*.py"))
C = sorted(path for kind in ("*.cpp", "*.h", "*.cuh") for path in ROOT.rglob(kind))
LIMIT = 120
NAMES = {"torch", "numpy", "exp", "max"}
"""Names that are written small also where a sentence begins with them."""
RIDDLES = {
    "a sentence that ends with what it does not say": r"\b(do|does|is|are|it|them|loops?|run|runs|made) so[.;]",
    "an alternative without a name": r"(, or|unless) otherwise\.",
    "an abbreviation": r"\b(etc|resp|i\.e|e\.g|cf|incl|wrt|w\.r\.t)\b\.?",
    "a word that few know": r"\b(ditto|thereof|therein|hereby|henceforth|whence)\b",
    "what is not done": r"\b(TODO|FIXME|XXX)\b",
}
HEADING = 7
"""A comment of at most so many words may be the heading of what follows."""


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of each docstring; a string behind an attribute is one, too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            for each in node.body:
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    text = each.value.value
                    if isinstance(text, str):
                        yield each.lineno, text


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of each comment on lines of its own, the lines of which are joined."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        found = {t.start[0]: t.string[1:] for t in tokens if t.type == tokenize.COMMENT and t.line.strip() == t.string}
    else:
        lines = enumerate(text.split("\n"), 1)
        found = {number: line.strip()[2:] for number, line in lines if line.strip().startswith("//")}
    block: list[str] = []
    for number, line in found.items():
        if number - 1 not in found:
            block = []
        block.append(line.strip())
        if number + 1 not in found:
            yield number, " ".join(block)


def begins_well(text: str) -> bool:
    """A sentence begins with a capital letter, a figure or a sign, or with code, as names of one letter are."""
    first, _, rest = text.partition(" ")
    return not re.fullmatch(r"[a-zà-ÿ]{2,}[,:;.]?", first) or first in NAMES or re.match(r"[=*−·+<>]", rest) is not None


def ends_well(text: str) -> bool:
    return re.search(r"[.:?!…][\"'`)\]]*$", text) is not None


def faults_of_docstring(text: str) -> Iterator[str]:
    paragraphs = re.split(r"\n\s*\n", text.strip())
    if not begins_well(paragraphs[0]):
        yield "it does not begin as a sentence does"
    if any(len(line) > LIMIT for line in text.split("\n")):
        yield f"a line is longer than {LIMIT}"
    left = min((len(line) - len(line.lstrip()) for line in text.split("\n")[1:] if line.strip()), default=0)
    for paragraph, following in zip(paragraphs, [*paragraphs[1:], ""], strict=True):
        if ">>>" in paragraph:
            return
        if not is_set_off(paragraph, left) and not is_set_off(following, left) and not ends_well(paragraph.strip()):
            yield f"a paragraph ends with {paragraph.strip()[-40:]!r}"


def is_set_off(paragraph: str, left: int) -> bool:
    """Code, a list or a table."""
    indented = paragraph.startswith(" " * (left + 1))
    return indented or paragraph.strip().startswith(("- ", "|")) or re.search(r"\S  +\S", paragraph) is not None


def faults_of_comment(text: str) -> Iterator[str]:
    if (
        re.match(r"[-!]|fmt:|type:|noqa|ruff:|mypy:", text)
        or re.search(r"-{8,}|\S   +\S", text)
        or not re.search("[a-z]", text)
    ):
        return
    if not begins_well(text):
        yield "it does not begin as a sentence does"
    shape = re.match(r"(\w+: )?[\[(]", text) is not None
    if len(text.split()) > HEADING and not shape and not ends_well(text):
        yield "it ends without a full stop"


def riddles(text: str) -> Iterator[str]:
    for why, pattern in RIDDLES.items():
        found = re.search(pattern, " ".join(text.split()))
        if found:
            yield f"{why}: {found[0]!r}"


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_are_whole_sentences(path: Path) -> None:
    found = [(n, fault) for n, text in docstrings(path) for fault in (*faults_of_docstring(text), *riddles(text))]
    assert not found


@pytest.mark.parametrize("path", [*PYTHON, *C], ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_are_whole_sentences(path: Path) -> None:
    faults = [(n, f) for n, text in comments(path) for f in (*faults_of_comment(text), *riddles(text))]
    assert not faults


@pytest.mark.parametrize(
    "text",
    [
        "returns the sum.",
        "Return the sum",
        "Run a loop so.",
        "The sum, etc.",
        "The sum.\n\nRows of it",
        "x" * 121 + ".",
    ],
)
def test_what_is_not_a_whole_sentence_is_found(text: str) -> None:
    assert [*faults_of_docstring(text), *riddles(text)]


@pytest.mark.parametrize(
    "text", ["the sum of all rows of it.", "The sum of all the rows of it", "And then the loop does so."]
)
def test_a_comment_that_is_not_one_is_found(text: str) -> None:
    assert [*faults_of_comment(text), *riddles(text)]
