"""All tests that need a GPU, in several processes: `python -m tests.gpu.all_tests --report report.txt`.

Each file of tests that mentions a device is run by a pytest of its own, `-m gpu`. Nothing but pytest is needed; a file
that imports a package that is not there is named at the end. Words after `--` are passed to pytest.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ["-o", "addopts=--import-mode=importlib --strict-markers", "-p", "no:cacheprovider", "-q", "-m", "gpu"]
NO_TESTS = 5  # what pytest exits with where it finds none


@dataclass(frozen=True)
class Ran:
    """What pytest said about a file."""

    file: Path
    code: int
    output: str
    seconds: float

    @property
    def missing(self) -> str:
        """The package that is not there, if that is why there were no tests."""
        found = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", self.output)
        return found[1] if found and "error during collection" in self.output else ""

    @property
    def counts(self) -> Counter[str]:
        """How many tests passed, failed, …"""
        last = self.output.strip().splitlines()[-1:] or [""]
        return Counter({what: int(number) for number, what in re.findall(r"(\d+) (\w+)", last[0].split(" in ")[0])})


def files() -> list[Path]:
    """Files with tests that may need a GPU, those of the GPU first, which take longest."""
    found = [
        path for path in sorted(ROOT.glob("tests/**/test_*.py")) if re.search(r"\b(device|gpu)\b", path.read_text())
    ]
    return sorted(found, key=lambda path: path.parent.name != "gpu")


def run(file: Path, options: list[str], seconds: float) -> Ran:
    """The tests of a file, ended after some time."""
    paths = [str(ROOT / "src"), str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    command = [sys.executable, "-m", "pytest", *OPTIONS, *options, str(file.relative_to(ROOT))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
        code, output = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as expired:
        said = expired.stdout or b""
        code, output = 1, (said.decode() if isinstance(said, bytes) else said) + f"\n1 error: no end in {seconds} s"
    return Ran(file.relative_to(ROOT), code, output, time.monotonic() - started)


def main(arguments: list[str]) -> int:
    """0 if no test failed."""
    parser = argparse.ArgumentParser(prog="tests.gpu.all_tests")
    parser.add_argument("--workers", type=int, default=14, help="processes")
    parser.add_argument("--seconds", type=float, default=400, help="for each file")
    parser.add_argument("--report", type=Path, help="a file for what pytest says of failures, instead of the output")
    parser.add_argument("options", nargs="*", help="of pytest")
    given = parser.parse_args(arguments)
    work = partial(run, options=given.options, seconds=given.seconds)
    with ThreadPoolExecutor(given.workers) as pool:
        everything = list(pool.map(work, files()))
    failed = [ran for ran in everything if ran.code not in (0, NO_TESTS) and not ran.missing]
    report = "\n".join(f"{'=' * 100}\n{ran.file}\n{ran.output}" for ran in failed)
    if given.report:
        given.report.write_text(report)
    else:
        print(report)
    for ran in everything:
        if ran.code != NO_TESTS:
            why = f"there is no {ran.missing}" if ran.missing else ", ".join(f"{n} {w}" for w, n in ran.counts.items())
            print(f"{ran.file}: {why}; {ran.seconds:.0f} s")
    total = sum((ran.counts for ran in everything if not ran.missing), Counter[str]())
    failures = [line for ran in failed for line in ran.output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    print("\n".join(line[:300] for line in failures))
    print(f"{len(failed)} files failed;", ", ".join(f"{number} {what}" for what, number in total.items()))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
