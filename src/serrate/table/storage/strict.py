"""Strict JSON for untrusted files: no duplicate keys, no floats, no NaN, not too deep and not too long."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from serrate.errors import TableFormatError

LARGEST = 2**62
"""The greatest number that a file may contain, so that arithmetic with such numbers does not overflow."""


def parse(text: bytes | str, where: str, longest: int) -> Any:
    """Return what a JSON text holds: objects, lists, strings, integers, true, false and null.

    >>> parse(b'{"rows": 3}', "a.json", 100)
    {'rows': 3}
    >>> parse(b'{"rows": 3, "rows": 4}', "a.json", 100)
    Traceback (most recent call last):
        ...
    serrate.errors.TableFormatError: a.json: JSON has the key 'rows' twice in one object
    """
    if len(text) > longest:
        fail(where, f"JSON has at most {longest} bytes, got {len(text)}")

    def pairs(given: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(given)
        if len(made) != len(given):
            seen: set[str] = set()
            twice = next(key for key, _ in given if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            fail(where, f"JSON has the key {twice!r:.60} twice in one object")
        return made

    def whole(digits: str) -> int:
        if len(digits) > 20 or abs(number := int(digits)) > LARGEST:
            fail(where, f"numbers must be at most 2**62, got {digits:.60}")
        return number

    def refuse(word: str) -> NoReturn:
        fail(where, f"numbers must be integers, got {word:.60}")

    try:
        text = text.decode() if isinstance(text, bytes) else text
        found = json.loads(text, object_pairs_hook=pairs, parse_int=whole, parse_float=refuse, parse_constant=refuse)
        if "\\u" in text:  # JSON can contain half of a surrogate pair, which is not valid text.
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except UnicodeError as error:
        fail(where, f"the text is not UTF-8: {error}")
    except json.JSONDecodeError as error:
        fail(where, f"the text is not JSON: {error}")
    except RecursionError:
        fail(where, "JSON is nested too deeply")


def fail(where: str, fault: str) -> NoReturn:
    """Raise the error for a file that is not a table, or that is damaged."""
    raise TableFormatError(f"{where}: {fault}") from None


def size(given: Any, name: str, where: str) -> int:
    """Return a number of bytes or entries, which must be an integer from 0 to 2**62."""
    if type(given) is not int or not 0 <= given <= LARGEST:
        fail(where, f"{name} must be an integer from 0 to 2**62, got {given!r:.60}")
    return given


def fields(given: Any, names: set[str], name: str, where: str) -> dict[str, Any]:
    """Return an object that must have exactly these keys."""
    if not isinstance(given, dict) or set(given) != names:
        got = sorted(given) if isinstance(given, dict) else given
        fail(where, f"{name} must be an object of {sorted(names)}, got {got!r:.200}")
    return given
