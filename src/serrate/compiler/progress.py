"""Progress: one line on a terminal while a function takes long to compile."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 1.0
"""Seconds after which somebody who waits wants to know what for."""


@contextmanager
def shown(name: str) -> Iterator[None]:
    """Say on the terminal that a function is compiled, if that takes over a second, and how long it took."""
    if not sys.stderr.isatty():
        yield
        return
    begun, said = time.monotonic(), threading.Event()

    def say() -> None:
        said.set()
        print(f"serrate: compiling {name} …", end="", file=sys.stderr, flush=True)

    timer = threading.Timer(PATIENCE, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if said.is_set():
            print(f" {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)
