"""Progress: a bar on the terminal for work that takes more than a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

DELAY = 1.0
"""The seconds before a bar appears."""


class _Bar(tqdm):  # type: ignore[misc]
    """A bar with a lock of this process. Forked processes share tqdm's lock, and a killed one never releases it."""


_Bar.set_lock(threading.RLock())


@contextmanager
def progress(what: str, total: int | None, unit: str = "rows") -> Iterator[Callable[[int], object]]:
    """Yield a function that takes the number of units done since its last call; "bytes" are shown as kB, MB, ….

    Nothing is shown if stderr is not a terminal, or if the work takes less than a second.

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
