"""Words: vocabularies are sent to another process as a whole only once.

Batches go to other processes by multiprocessing, for example from the workers of a DataLoader. A vocabulary is large
and the same in every batch. With the first batch it is sent as a whole, under a name that is a hash of its words; after
that only the name is sent. A process that does not know the name, because another process got the first batch, asks the
sender for the words. Pickling for any other purpose includes all words.
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
SentWords = dict[str, tuple[bytes, bytes | None]]
"""For each column the name of its vocabulary, and its pickled words, or None if they were sent before."""
Key = TypeVar("Key")

MOST_WORDS, MOST_VOCABULARIES = 2**25, 256
"""How many words and vocabularies a process remembers of those it has sent, and of those it has received."""


class Vocabularies(dict[str, Vocabulary]):
    """The words of columns of strings, which are sent to other processes only once.

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
    """The vocabularies that were used last, with their names."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._held: OrderedDict[Key, tuple[Vocabulary, bytes]] = OrderedDict()

    def get(self, key: Key) -> tuple[Vocabulary, bytes] | None:
        """Return a vocabulary and its name; None if it is not remembered."""
        with self.lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: Key, words: Vocabulary, name: bytes) -> Vocabulary:
        """Remember some words and return them; if another thread has remembered them first, return its tuple."""
        with self.lock:
            words, _ = self._held.setdefault(key, (words, name))
            while len(self._held) > 1 and self._are_too_many():
                self._held.popitem(last=False)
            return words

    def _are_too_many(self) -> bool:
        return len(self._held) > MOST_VOCABULARIES or sum(len(words) for words, _ in self._held.values()) > MOST_WORDS

    def named(self, name: bytes) -> Vocabulary | None:
        """Return the words of this name; None if they are not remembered."""
        with self.lock:
            return next((words for words, own in self._held.values() if own == name), None)


# ---------------------------------------------------------------------------------------------------------- sending


class _Outbox:
    """The vocabularies that this process has sent, and the address at which other processes ask for them."""

    def __init__(self) -> None:
        # The key is the identity of a vocabulary, because comparing all words for each batch would take too long.
        self._sent: _Recent[int] = _Recent()
        self._listener: Listener | None = None

    def name(self, words: Vocabulary) -> tuple[bytes, bytes | None]:
        """Return the name of a vocabulary, and its pickled words, or None if they were sent before."""
        found = self._sent.get(id(words))
        if found is not None:
            return found[1], None
        text = pickle.dumps(words, pickle.HIGHEST_PROTOCOL)
        name = hashlib.blake2b(text, digest_size=16).digest()
        was_sent = self._sent.named(name) is not None  # The words may have been sent as another tuple.
        self._sent.put(id(words), words, name)
        return name, None if was_sent else text

    def address(self) -> Any:
        """Return the address at which this process gives out words by name; start that service if necessary."""
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
                continue  # The process that asked has ended, or it does not belong to this program.
            except OSError:
                # The process that asked has ended, or this process cannot open more files at the moment.
                time.sleep(0.01)

    def close(self) -> None:
        """Close the address. A forked child inherits the listener, but not the thread that answers."""
        if self._listener is not None:
            self._listener.close()


def _reduced(vocabularies: Vocabularies) -> tuple[Any, ...]:
    """Return what multiprocessing pickles."""
    sent = {column: _outbox.name(words) for column, words in vocabularies.items()}
    is_whole = all(text is not None for _, text in sent.values())
    return _received, (sent, None if is_whole else _outbox.address())


ForkingPickler.register(Vocabularies, _reduced)


# -------------------------------------------------------------------------------------------------------- receiving


def _received(sent: SentWords, address: Any) -> Vocabularies:
    """Return the vocabularies that another process has sent; equal vocabularies become one object."""
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
    """Ask the process at an address for words that it sent before; return them pickled."""
    try:
        with Client(address, authkey=current_process().authkey) as connection:
            connection.send_bytes(name)
            text = connection.recv_bytes()
    except (OSError, EOFError, AuthenticationError) as error:
        raise ConnectionError(
            f"a column of strings came without its words, which were sent before, and the process that sent them does "
            f"not answer: {error!r}; it must run until its batches are received"
        ) from error
    if not text:
        raise ConnectionError(
            "a column of strings came without its words, and the process that sent them has sent too many "
            "other vocabularies since"
        )
    return text


_outbox = _Outbox()
_inbox: _Recent[bytes] = _Recent()


def _after_fork() -> None:
    """Start anew in a forked child, which has sent nothing; another thread may have held the lock during the fork."""
    global _outbox
    _outbox.close()
    _outbox = _Outbox()
    _inbox.lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
