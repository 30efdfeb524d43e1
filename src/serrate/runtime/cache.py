"""What was compiled, on disk: files named by what they were compiled from, in a directory of the user's own."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

_DIGEST_BYTES = 32
_temporaries: dict[str, Path] = {}


def digest(*parts: str) -> str:
    """A name for something that depends on all of these and on nothing else."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def fingerprint() -> str:
    """A name for this version of Serrate: another file, or another time of a file, is another version."""
    root = Path(__file__).parents[1]
    files = sorted(path for folder in (root, *root.glob("*/"), *root.glob("*/*/")) for path in folder.glob("*.py"))
    statuses = ((path, path.stat()) for path in files)
    return digest(*(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}" for path, status in statuses))


def cache_directory() -> Path:
    """Where compiled kernels are kept: a directory that only this user can write to.

    It is `$SERRATE_CACHE_DIR`, else `~/.cache/serrate`, made if it is not there (or not there any more). If it cannot
    be used, a warning says why, and it is a temporary directory that goes when the process ends.
    """
    chosen = os.environ.get("SERRATE_CACHE_DIR")
    try:
        path = (Path(chosen) if chosen else Path.home() / ".cache" / "serrate").absolute()
    except (OSError, RuntimeError) as error:  # no working directory; no home
        return _temporary(str(error))
    trouble = _trouble(path)
    return path if trouble is None else _temporary(f"{path} cannot be used ({trouble})")


def _trouble(path: Path) -> str | None:
    """Why kernels cannot be kept in a directory."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        return str(error)
    if status.st_uid != os.getuid():
        return "it is not yours"
    if status.st_mode & 0o022:
        return "others can write to it"
    return None if os.access(path, os.W_OK | os.X_OK) else "it cannot be written to"


def _temporary(reason: str) -> Path:
    """A directory of this process, one for each reason not to use another."""
    made = _temporaries.get(reason)
    if made is None or _trouble(made) is not None:
        warnings.warn(f"compiled kernels are not kept: {reason}", stacklevel=2)
        made = _temporaries[reason] = Path(tempfile.mkdtemp(prefix="serrate-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def read_cached(path: Path) -> bytes | None:
    """What `keep` wrote under this name, or None if there is nothing, not all of it, or what belongs to another name.

    A name says what was compiled, so that a file that was copied or renamed to another name is not taken for it.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content, end = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    return content if _seal(path.name, content) == end else None


def _seal(name: str, content: bytes) -> bytes:
    """What stands at the end of a file of this name and content."""
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def keep(name: str, content: bytes) -> Path:
    """Write a file into the cache, or where that fails (the disk is full) into a temporary directory: where it is."""
    directory = cache_directory()
    try:
        return _write(directory / name, content)
    except OSError as error:
        return _write(_temporary(f"{directory} cannot be used ({error.strerror})") / name, content)


def _write(path: Path, content: bytes) -> Path:
    """Write a file with its seal at the end (which loaders of libraries ignore), all at once."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content + _seal(path.name, content))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
