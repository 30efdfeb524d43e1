"""Words: vocabularies on their way to other processes, each of them whole only once.

A batch is sent to another process by multiprocessing, as a DataLoader sends those of its workers. A vocabulary is
large, and the same in every batch: it is sent whole with the first one, under a name that its words determine, and by
this name from then on. Who receives a name that it does not know, since it was not the one to get the first batch, asks
the process that sent it. What is pickled for any other purpose has all of its words.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
import time
from collections import OrderedDict
from multiprocessing import AuthenticationError, current_process, util
from multiprocessing.connection import Client, Listener
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, TypeVar

Vocabulary = tuple[str, ...]
Sent = dict[str, tuple[bytes, bytes | None]]
"""For each column the name of its vocabulary, and the words, pickled, if they are sent along."""
Key = TypeVar("Key")

MOST_WORDS, MOST_VOCABULARIES = 2**25, 256
"""What a process remembers of what it has sent, and of what it has received."""


class Vocabularies(dict[str, Vocabulary]):
    """The words of columns of strings, which other processes are sent once.

    >>> import copy
    >>> held = Vocabularies(word=("a", "b"))
    >>> copy.deepcopy(held)["word"] is held["word"]
    True
    >>> pickle.loads(pickle.dumps(held))
    {'word': ('a', 'b')}
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def __deepcopy__(self, memo: Any) -> Vocabularies:
        return Vocabularies(self)


class _Recent(Generic[Key]):
    """The vocabularies that were used last, and their names."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._held: OrderedDict[Key, tuple[Vocabulary, bytes]] = OrderedDict()

    def get(self, key: Key) -> tuple[Vocabulary, bytes] | None:
        """A vocabulary, if it is remembered."""
        with self.lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: Key, words: Vocabulary, name: bytes) -> Vocabulary:
        """The words, remembered; those that are already, if another thread was faster."""
        with self.lock:
            words, _ = self._held.setdefault(key, (words, name))
            while len(self._held) > 1 and self._are_too_many():
                self._held.popitem(last=False)
            return words

    def _are_too_many(self) -> bool:
        return len(self._held) > MOST_VOCABULARIES or sum(len(words) for words, _ in self._held.values()) > MOST_WORDS

    def named(self, name: bytes) -> Vocabulary | None:
        """The words of a name, if they are remembered."""
        with self.lock:
            return next((words for words, own in self._held.values() if own == name), None)


# ---------------------------------------------------------------------------------------------------------- sending


class _Outbox:
    """The vocabularies that this process has sent, and where others may ask for them."""

    def __init__(self) -> None:
        self._sent: _Recent[int] = _Recent()  # by identity: to look at all words of each batch would take too long
        self._listener: Listener | None = None

    def name(self, words: Vocabulary) -> tuple[bytes, bytes | None]:
        """The name of a vocabulary; with its words, pickled, if it was not sent before."""
        found = self._sent.get(id(words))
        if found is not None:
            return found[1], None
        text = pickle.dumps(words, pickle.HIGHEST_PROTOCOL)
        name = hashlib.blake2b(text, digest_size=16).digest()
        was_sent = self._sent.named(name) is not None  # as another tuple of the same words
        self._sent.put(id(words), words, name)
        return name, None if was_sent else text

    def address(self) -> Any:
        """Where words are given out by their names, from now on."""
        with self._sent.lock:
            if self._listener is None:
                self._listener = Listener(backlog=64, authkey=current_process().authkey)
                threading.Thread(target=self._serve, args=(self._listener,), name="serrate-words", daemon=True).start()
            return self._listener.address

    def _serve(self, listener: Listener) -> None:
        while not util.is_exiting():
            try:
                with listener.accept() as connection:
                    words = self._sent.named(connection.recv_bytes())
                    connection.send_bytes(b"" if words is None else pickle.dumps(words, pickle.HIGHEST_PROTOCOL))
            except (EOFError, AuthenticationError):
                continue  # who asked has gone, or was none of ours
            except OSError:
                time.sleep(0.01)  # the same, or no more files may be open at the moment

    def close(self) -> None:
        """Give out no more: a forked child has the listener, too, but nobody who answers."""
        if self._listener is not None:
            self._listener.close()


def _reduced(vocabularies: Vocabularies) -> tuple[Any, ...]:
    """What multiprocessing sends."""
    sent = {column: _outbox.name(words) for column, words in vocabularies.items()}
    is_whole = all(text is not None for _, text in sent.values())
    return _received, (sent, None if is_whole else _outbox.address())


ForkingPickler.register(Vocabularies, _reduced)


# -------------------------------------------------------------------------------------------------------- receiving


def _received(sent: Sent, address: Any) -> Vocabularies:
    """The vocabularies that another process has sent; those of equal words are one."""
    made = Vocabularies()
    for column, (name, text) in sent.items():
        found = _inbox.get(name)
        if found is None:
            words = pickle.loads(_asked(name, address) if text is None else text)
            made[column] = _inbox.put(name, words, name)
        else:
            made[column] = found[0]
    return made


def _asked(name: bytes, address: Any) -> bytes:
    """The words that the process at an address has sent before, pickled."""
    try:
        with Client(address, authkey=current_process().authkey) as connection:
            connection.send_bytes(name)
            text = connection.recv_bytes()
    except (OSError, EOFError, AuthenticationError) as error:
        raise ConnectionError(
            f"a column of strings came without its words, which were sent before, and the process that sent them does "
            f"not answer: {error!r}; it has to live until its batches are received"
        ) from error
    if not text:
        raise ConnectionError(
            "a column of strings came without its words, and the process that sent them has sent too many others since"
        )
    return text


_outbox = _Outbox()
_inbox: _Recent[bytes] = _Recent()


def _after_fork() -> None:
    """A child has sent nothing yet, and another thread may have held a lock, which nobody gives back here."""
    global _outbox
    _outbox.close()
    _outbox = _Outbox()
    _inbox.lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
