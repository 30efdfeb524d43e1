"""A small kernel, compiled and checked, and programs that run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import torch

from serrate.fusion.scalar import const, load, symbol
from serrate.kernel import cpp
from serrate.kernel.ir import Buffer, For, Kernel, Store
from serrate.kernel.signatures import signature
from serrate.runtime import compiler

ROOT = Path(__file__).parents[2]
n, i = symbol("n"), symbol("i")


def add_one(index: str = "int64") -> Kernel:
    body = Store("y", i, load("x", i, "float32") + const(1.0, "float32"))
    x, y = Buffer("x", "float32", n), Buffer("y", "float32", n, written=True)
    return Kernel("add_one", (x, y), (n,), (For(i, n, (body,), "position"),), index=index)


SOURCE = cpp.source([add_one()])


def check_add_one(library: compiler.Library, kernel: Kernel | None = None) -> None:
    x, y = torch.arange(5.0), torch.zeros(6)
    library.function(signature(kernel or add_one()))(x, y, 5)
    assert y.tolist() == [1, 2, 3, 4, 5, 0]


def forget() -> None:
    compiler._libraries.clear()


def run_program(program: str, **environment: str | None) -> str:
    """What a Python program writes to its error stream; it must not fail. A variable that is None is not set."""
    given = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    variables = {name: value for name, value in given.items() if value is not None}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr
