"""Terms: sizes, partitions and constants as text, inside of the attributes and types of the dialects.

A term is a number, a text, a word such as `n0` or `none`, a name such as `@p0`, or a node: `slice(@p0, 0, 3)`,
`[1, 2]`, `2 * n0 + 3`. Terms only say how things are written; what they stand for is said by `objects`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from xdsl.parser import AttrParser
from xdsl.printer import Printer

UNKNOWN = " loc(unknown)"
"""What xDSL prints of a place that nobody knows, and texts leave out: none of them has this as a part of a constant."""
DEEPEST = 60
"""How many terms may stand inside of each other."""


@dataclass(frozen=True)
class Word:
    """A word, or a name that begins with `@`."""

    text: str

    @property
    def is_name(self) -> bool:
        """Whether it names something that is declared elsewhere."""
        return self.text.startswith("@")


@dataclass(frozen=True)
class Node:
    """A head with parts: a word, a name, `[]` for a list, `+` or `*`."""

    head: str
    parts: tuple[Term, ...]


Term = int | float | str | Word | Node


def text_of(term: Term) -> str:
    """A term as it is written.

    >>> text_of(Node("slice", (Word("@p0"), 0, Node("+", (Node("*", (2, Word("n0"))), 3)))))
    'slice(@p0, 0, 2 * n0 + 3)'
    """
    if isinstance(term, Word):
        return term.text
    if isinstance(term, Node):
        if term.head in ("+", "*"):
            return f" {term.head} ".join(map(_factor, term.parts))
        inside = ", ".join(map(text_of, term.parts))
        return f"[{inside}]" if term.head == "[]" else f"{term.head}({inside})"
    if isinstance(term, str):
        return quoted(term)
    return _number(term) if isinstance(term, float) else str(term)


def _factor(term: Term) -> str:
    """A part of a sum or a product, in brackets where it would be read otherwise."""
    inside = isinstance(term, Node) and term.head == "+"
    return f"({text_of(term)})" if inside else text_of(term)


def _number(number: float) -> str:
    """A number with a point, as MLIR reads it."""
    if not math.isfinite(number):
        return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
    text = repr(number)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return text


def quoted(text: str) -> str:
    """A text in quotes, as MLIR reads it: every byte that is no letter, digit or plain sign is written as a number."""
    made = []
    for byte in text.encode():
        plain = 32 <= byte < 127 and chr(byte) not in '"\\'
        made.append(chr(byte) if plain else f"\\{byte:02X}")
    inside = "".join(made).replace(UNKNOWN, UNKNOWN.replace("(", r"\28"))
    return f'"{inside}"'


def print_term(printer: Printer, term: Term) -> None:
    """Write a term."""
    printer.print_string(text_of(term))


def parse_term(parser: AttrParser, depth: int = 0) -> Term:
    """Read a term."""
    if depth > DEEPEST:
        parser.raise_error(f"more than {DEEPEST} terms stand inside of each other")
    parts = [_product(parser, depth)]
    while parser.parse_optional_punctuation("+"):
        parts.append(_product(parser, depth))
    return parts[0] if len(parts) == 1 else Node("+", tuple(parts))


def _product(parser: AttrParser, depth: int) -> Term:
    parts = [_atom(parser, depth)]
    while parser.parse_optional_punctuation("*"):
        parts.append(_atom(parser, depth))
    return parts[0] if len(parts) == 1 else Node("*", tuple(parts))


def _atom(parser: AttrParser, depth: int) -> Term:
    if parser.parse_optional_punctuation("["):
        return Node("[]", _parts(parser, "]", depth))
    if parser.parse_optional_punctuation("("):
        inside = parse_term(parser, depth + 1)
        parser.parse_punctuation(")")
        return inside
    text = _text(parser)
    if text is not None:
        return text
    if parser.parse_optional_punctuation("-"):
        if parser.parse_optional_keyword("inf"):
            return -math.inf
        number = parser.parse_optional_number()
        if number is None:
            parser.raise_error("a number is expected behind a minus")
        return -number
    number = parser.parse_optional_number()
    if number is not None:
        return number
    name = parser.parse_optional_symbol_name()
    word = f"@{name.data}" if name is not None else parser.parse_optional_identifier()
    if word is None:
        parser.raise_error("a number, a text, a word, a name or a list is expected")
    if word == "nan":
        return math.nan
    if word == "inf":
        return math.inf
    if parser.parse_optional_punctuation("("):
        return Node(word, _parts(parser, ")", depth))
    return Word(word)


def _text(parser: AttrParser) -> str | None:
    """A text in quotes. One with bytes beyond ASCII, or with zeros, is another token to xDSL."""
    text = parser.parse_optional_str_literal()
    given = parser.parse_optional_bytes_literal() if text is None else None
    if given is not None:
        try:
            text = given.decode()
        except UnicodeDecodeError:
            parser.raise_error("a text is written in UTF-8")
    return text


def _parts(parser: AttrParser, end: str, depth: int) -> tuple[Term, ...]:
    """The parts of a node, up to its end."""
    parts: list[Term] = []
    if parser.parse_optional_punctuation(end):  # type: ignore[arg-type]
        return ()
    while True:
        parts.append(parse_term(parser, depth + 1))
        if not parser.parse_optional_punctuation(","):
            break
    parser.parse_punctuation(end)  # type: ignore[arg-type]
    return tuple(parts)


def names_in(term: Term) -> tuple[str, ...]:
    """The names in a term, from left to right."""
    if isinstance(term, Word):
        return (term.text,) if term.is_name else ()
    if not isinstance(term, Node):
        return ()
    own = (term.head,) if term.head.startswith("@") else ()
    return (*own, *(name for part in term.parts for name in names_in(part)))
