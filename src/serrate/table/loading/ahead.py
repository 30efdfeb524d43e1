"""Ahead: threads make something of each item; the results come in the order of the items, some of them early."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class _Failed:
    error: BaseException


class _Work(Generic[Item, Made]):
    """What the threads share. They have no reference to the iterator, so that it can be dropped while they work."""

    def __init__(self, items: Iterator[Item], make: Callable[[Item], Made], ahead: int) -> None:
        self.items, self.make, self.ahead = items, make, ahead
        self.taking = threading.Lock()  # A thread holds this lock while it gets the next item, which may take long.
        # A finalizer may close this at any moment, in the same thread too.
        self.changed = threading.Condition(threading.RLock())
        self.taken = self.given = 0
        self.end: int | None = None  # This is the number of all items, once it is known.
        self.done: dict[int, Made | _Failed] = {}
        self.closed = False
        self.threads: list[threading.Thread] = []

    def run(self) -> None:
        """Work on items until there are no more, or until the results are not wanted any more."""
        while (found := self._take()) is not None:
            number, item = found
            try:
                made: Made | _Failed = self.make(item)
            except BaseException as error:  # It is raised again where this item is asked for.
                made = _Failed(error)
            del item, found
            self._put(number, made)
            del made

    def _take(self) -> tuple[int, Item] | None:
        """Return the next item and its number as soon as it is wanted; None if there is no more work."""
        with self.taking:
            with self.changed:
                self.changed.wait_for(lambda: self.closed or self.taken < self.given + self.ahead)
                if self.closed or self.end is not None:
                    return None
            try:
                item = next(self.items)
            except StopIteration:
                self._finish(self.taken)
                return None
            except BaseException as error:
                self._put(self.taken, _Failed(error))
                self._finish(self.taken + 1)
                return None
            self.taken += 1
            return self.taken - 1, item

    def _put(self, number: int, made: Made | _Failed) -> None:
        with self.changed:
            if not self.closed:
                self.done[number] = made
            self.changed.notify_all()

    def _finish(self, end: int) -> None:
        with self.changed:
            self.end = end
            self.changed.notify_all()

    def get(self) -> Made | _Failed:
        """Return what was made of the next item; after the last item return a failure with a StopIteration."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or self.given in self.done or self.given == self.end)
            if self.closed or self.given == self.end:
                return _Failed(StopIteration())
            made = self.done.pop(self.given)
            self.given += 1
            self.changed.notify_all()
            return made

    def close(self) -> None:
        """Tell the threads to end as soon as they have finished their current items."""
        with self.changed:
            self.closed = True
            self.done.clear()
            self.changed.notify_all()

    def join(self) -> None:
        """Close, and wait until all threads have ended."""
        self.close()
        for thread in self.threads:
            thread.join()


_alive: weakref.WeakSet[_Work[Any, Any]] = weakref.WeakSet()


@atexit.register
def _join_all() -> None:
    """Wait for all threads before the interpreter shuts down."""
    for work in list(_alive):
        work.join()


class Ahead(Iterator[Made]):
    """An iterator over the results of `make` for each item, in order; threads compute up to `ahead` of them early.

    An error of `make`, or of the items themselves, is raised at the position of its item, and ends the iteration. The
    threads end after the last item, with `close`, or when the iterator is dropped.

    >>> list(Ahead(iter(range(5)), lambda i: i * i, threads=2, ahead=3))
    [0, 1, 4, 9, 16]
    """

    def __init__(self, items: Iterator[Item], make: Callable[[Item], Made], threads: int, ahead: int) -> None:
        work = _Work(items, make, ahead)
        self._work: _Work[Any, Made] = work
        work.threads = [
            threading.Thread(target=work.run, name=f"serrate-loader-{i}", daemon=True) for i in range(threads)
        ]
        _alive.add(work)
        self._finalizer = weakref.finalize(self, work.close)
        self._finalizer.atexit = False  # At exit `_join_all` closes the work and waits.
        for thread in work.threads:
            thread.start()

    def __next__(self) -> Made:
        made = self._work.get()
        if isinstance(made, _Failed):
            self.close()
            raise made.error
        return made

    def close(self) -> None:
        """End the threads, and wait for them."""
        self._work.join()
