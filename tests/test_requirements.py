"""The pages of what was asked for: each row of their tables names tests that exist, or says why there are none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"loop_requirements": 50, "ptensor": 40}
"""The pages, each with how many requirements it has at least."""
HEAD = "| requirement | shown by |\n"
NAME = re.compile(r"`([\w/]+\.py::[^`]+)`")
REASON = re.compile(r"^(not yet: |no test: |not asked for; )\w")


def rows(page: str) -> list[tuple[str, str]]:
    """(requirement, what is said to show it) of each row of the tables."""
    found, is_inside = [], False
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        is_inside = line.startswith("|") and (is_inside or cells == ["requirement", "shown by"])
        if is_inside:
            assert len(cells) == 2, line
            found.append((cells[0], cells[1]))
    return [row for row in found if row != ("requirement", "shown by") and set("".join(row)) != {"-"}]


def text_of(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text()


def unfounded(page: str) -> list[str]:
    """Requirements that have neither a test nor a reason."""
    return [left for left, right in rows(page) if not NAME.fullmatch(right.split(", `")[0]) and not REASON.match(right)]


def missing(page: str) -> list[str]:
    """Tests that are named, but that pytest does not find."""
    named = sorted(set(NAME.findall(page)))
    files = sorted({f"tests/{name.partition('::')[0]}" for name in named})
    absent = [file for file in files if not (ROOT / file).exists()]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n=0", "-p", "no:cacheprovider"]
    command += ["-m=slow or not slow", "--no-header", *(file for file in files if file not in absent)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    there = {line.removeprefix("tests/") for line in done.stdout.splitlines()}
    there |= {name.partition("[")[0] for name in there}
    return [name for name in named if name not in there]


@pytest.mark.parametrize("page", PAGES)
def test_every_requirement_has_a_test_or_a_reason(page: str) -> None:
    assert len(rows(text_of(page))) > PAGES[page]
    assert unfounded(text_of(page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_requirement_is_a_sentence_of_its_own(page: str) -> None:
    requirements = [left for left, _ in rows(text_of(page))]
    assert len(set(requirements)) == len(requirements)
    assert all(left.endswith(".") for left in requirements)


def test_every_named_test_is_collected() -> None:
    wrong = "| A. | `fusion/test_seeds.py::test_nothing` |\n| B. | `fusion/test_nothing.py::test_split` |\n"
    pages = "\n".join(map(text_of, PAGES))
    assert missing(f"{pages}\n{HEAD}{wrong}") == [
        "fusion/test_nothing.py::test_split",
        "fusion/test_seeds.py::test_nothing",
    ]


@pytest.mark.parametrize("text", ["", "not yet", "`fusion/test_seeds.py`", "see test_split"])
def test_a_row_without_a_test_or_a_reason_is_found(text: str) -> None:
    assert unfounded(f"{HEAD}| A. | {text} |\n| B. | not yet: nobody asked |\n| C. | `a.py::test_b` |") == ["A."]
