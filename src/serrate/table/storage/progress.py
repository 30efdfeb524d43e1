"""Progress: a bar for work that takes over a second, on a terminal only."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

DELAY = 1.0
"""Seconds before a bar appears."""


class _Bar(tqdm):  # type: ignore[misc]
    """A bar with a lock of this process: tqdm's own is shared with forked ones, and stays held when one is killed."""


_Bar.set_lock(threading.RLock())


@contextmanager
def progress(what: str, total: int | None, unit: str = "rows") -> Iterator[Callable[[int], object]]:
    """A function to call with the number of units done since the last call; "bytes" are shown as kB, MB, ….

    Nothing is shown where stderr is not a terminal, or where the work takes less than a second.

    >>> with progress("saving", 300) as done:
    ...     _ = done(100), done(200)
    """
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield lambda count: None
        return
    size = "B" if unit == "bytes" else f" {unit}"
    with _Bar(total=total, desc=what, unit=size, unit_scale=True, delay=DELAY, leave=False, file=stream) as bar:
        yield bar.update
