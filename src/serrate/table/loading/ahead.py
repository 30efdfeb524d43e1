"""Reading ahead: what threads make of items, given out in the order of the items, a bounded number of them early."""

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
    """What the threads share. They do not know the iterator, so that it can be dropped while they work."""

    def __init__(self, items: Iterator[Item], make: Callable[[Item], Made], ahead: int) -> None:
        self.items, self.make, self.ahead = items, make, ahead
        self.taking = threading.Lock()  # held while the next item is found, which may take long
        self.changed = threading.Condition(threading.RLock())  # may be closed by a finalizer that runs anywhere
        self.taken = self.given = 0
        self.end: int | None = None  # how many items there were
        self.done: dict[int, Made | _Failed] = {}
        self.closed = False
        self.threads: list[threading.Thread] = []

    def run(self) -> None:
        """Make items until there are no more, or nobody wants them."""
        while (found := self._take()) is not None:
            number, item = found
            try:
                made: Made | _Failed = self.make(item)
            except BaseException as error:  # raised by whoever asks for this item
                made = _Failed(error)
            del item, found
            self._put(number, made)
            del made

    def _take(self) -> tuple[int, Item] | None:
        """The next item and its number, once it is wanted."""
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
        """What was made of the next item; a StopIteration after the last."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or self.given in self.done or self.given == self.end)
            if self.closed or self.given == self.end:
                return _Failed(StopIteration())
            made = self.done.pop(self.given)
            self.given += 1
            self.changed.notify_all()
            return made

    def close(self) -> None:
        """Let the threads end as soon as they have made what they are at."""
        with self.changed:
            self.closed = True
            self.done.clear()
            self.changed.notify_all()

    def join(self) -> None:
        """Wait until they have."""
        self.close()
        for thread in self.threads:
            thread.join()


_alive: weakref.WeakSet[_Work[Any, Any]] = weakref.WeakSet()


@atexit.register
def _join_all() -> None:
    """No thread may still be at work while the interpreter goes down."""
    for work in list(_alive):
        work.join()


class Ahead(Iterator[Made]):
    """What `make` makes of each item, in their order, by threads, at most `ahead` items before they are asked for.

    An error, of `make` or of the items themselves, is raised where its item stands; that ends it. The threads end with
    the last item, with `close`, and when the iterator is dropped.

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
        self._finalizer.atexit = False  # then `_join_all` closes, and waits
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
