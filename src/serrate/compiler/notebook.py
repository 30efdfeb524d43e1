"""The notebook of a function: what its compilation asked about types, with the answers, on disk.

A later process begins with it. Then nothing runs on tensors without elements, for which torch imports its own compiler.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from serrate.ops.remembering import noted
from serrate.runtime.cache import cache_directory, digest, fingerprint, keep, read_cached


@contextmanager
def opened(function: Callable[..., Any]) -> Iterator[None]:
    """Compile a function with its notebook, which is written again if something was asked that is not in it."""
    name = _file(function)
    known = _read(name)
    with noted(known) as notes:
        yield
    if not notes.keys() <= known.keys():
        content = _written(known | notes)
        if content is not None:
            keep(name, content)


def _file(function: Callable[..., Any]) -> str:
    """The name of the notebook of a function, or of the `forward` of a module, as its code is now."""
    target = type(function).forward if isinstance(function, torch.nn.Module) else function
    code = getattr(target, "__code__", None)
    said = b"" if code is None else code.co_code
    names = getattr(target, "__module__", ""), getattr(target, "__qualname__", type(target).__qualname__)
    return f"{digest('notebook', *map(str, names), said.hex(), torch.__version__, fingerprint())}.types"


def _read(name: str) -> dict[bytes, Any]:
    content = read_cached(cache_directory() / name)
    return {} if content is None else pickle.loads(zlib.decompress(content))


def _written(notes: dict[bytes, Any]) -> bytes | None:
    """The notes as bytes, without those that hold something which has no name in another process."""
    try:
        content = pickle.dumps(notes, 5)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        kept = {asked: found for asked, found in notes.items() if _is_written(found)}
        if not kept:
            return None
        content = pickle.dumps(kept, 5)
    return zlib.compress(content, 1)


def _is_written(found: Any) -> bool:
    try:
        pickle.dumps(found, 5)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return False
    return True
