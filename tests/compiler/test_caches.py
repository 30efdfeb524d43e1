"""Caches: kernels on disk serve other processes, broken files are found and rebuilt, and no compiler is no error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, sys, warnings
import torch
import serrate as sr

def block(x, w):
    return sr.sum(x * w, axis=1)

x = sr.from_lengths(torch.linspace(-1, 1, 24).view(6, 4), [3, 0, 2, 1])
w = torch.linspace(0.5, 1, 4)
made = sr.jit(block)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    got = [made(x, w) for _ in range(3)][-1]
right = torch.allclose(got.values, block(x, w).values, atol=1e-5)
stats = made.stats
print(json.dumps({
    "right": right, "compiles": stats.compiles, "hits": stats.disk_hits, "kernels": stats.kernels,
    "eager": stats.eager_calls, "ran": "torch._dynamo" in sys.modules,
    "warnings": [str(each.message) for each in caught],
}))
"""


def environment(cache: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "SERRATE_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1", **more}


def started(cache: Path, program: str = PROGRAM, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(cache, **more),
    )  # fmt: skip


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return json.loads(out.strip().splitlines()[-1])  # type: ignore[no-any-return]


def run(cache: Path, **more: str) -> dict[str, Any]:
    return finished(started(cache, **more))


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


def test_two_processes_that_compile_the_same_kernels_at_once_both_succeed(tmp_path):
    for made in [finished(process) for process in [started(tmp_path) for _ in range(2)]]:
        assert made["right"]
        assert made["warnings"] == []
    assert run(tmp_path)["compiles"] == 0
    assert not [path for path in files(tmp_path) if path.suffix in (".tmp", ".part", ".lock")]


def test_a_second_process_runs_no_compiler_and_corrupted_files_are_detected_and_rebuilt(tmp_path):
    first, second = run(tmp_path), run(tmp_path)
    assert first["right"]
    assert second["right"]
    assert first["compiles"] >= 1
    assert (second["compiles"], second["kernels"]) == (0, first["kernels"])
    assert second["hits"] >= 1
    assert first["ran"]
    assert not second["ran"], "types are known, so that nothing runs on tensors without elements"
    assert {path.suffix for path in files(tmp_path)} == {".so", ".types", ".plan"}
    for path in files(tmp_path):
        content = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(content[: len(content) // 2] + b"\0 broken \0" + content[len(content) // 2 + 10 :])
    made = run(tmp_path)
    assert made["right"]
    assert made["eager"] == 0
    assert made["compiles"] >= 1
    assert run(tmp_path)["compiles"] == 0


def test_a_notebook_is_of_one_version_of_the_function(tmp_path):
    """A process whose function does something else under the same name finds other questions, and right answers."""
    run(tmp_path)
    made = finished(started(tmp_path, program=PROGRAM.replace("x * w, axis=1", "sr.exp(x) * w, axis=1")))
    assert made["right"]
    assert made["ran"]


@pytest.mark.slow
def test_files_that_are_cut_short_or_empty_are_rebuilt(tmp_path):
    for length in (0, 10, 5000):
        run(tmp_path)
        for path in files(tmp_path):
            path.chmod(0o600)
            path.write_bytes(path.read_bytes()[:length])
        made = run(tmp_path)
        assert made["right"]
        assert made["eager"] == 0


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_to_is_a_warning(tmp_path):
    place = tmp_path / "file"
    place.write_text("no directory")
    made = run(place)
    assert made["right"]
    assert any("not kept" in text for text in made["warnings"])


@pytest.mark.slow
def test_an_interrupt_while_compiling_leaves_no_broken_cache(tmp_path):
    for wait in (1.5, 2.5, 3.5):
        process = started(tmp_path)
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    made = run(tmp_path)
    assert made["right"]
    assert made["warnings"] == []
    assert run(tmp_path)["compiles"] == 0


def test_without_a_compiler_one_clear_warning_and_eager_results(tmp_path):
    made = run(tmp_path, SERRATE_CXX="/nowhere/no-such-compiler")
    assert made["right"]
    assert made["eager"] == 3
    said = [text for text in made["warnings"] if "sr.jit" in text]
    assert len(said) == 1
    assert "eager" in said[0]


def test_kernels_are_shared_between_functions_of_one_process():
    import torch

    import serrate as sr

    x = sr.from_lengths(torch.rand(5, 7), [2, 0, 3])
    one, two = (sr.jit(lambda x: sr.gelu(x) * 1.2345 + x) for _ in range(2))
    torch.testing.assert_close(one(x).values, two(x).values)
    assert two.stats.compiles == 0
