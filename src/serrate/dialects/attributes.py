"""The type of a tensor, and the attributes that the dialects share: terms, and the declarations of partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import i1, i64
from xdsl.ir import Attribute, Data, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from serrate.dialects.terms import Node, Term, Word, names_in, parse_term, print_term, text_of

ELEMENTS = {
    "bool": "i1", "uint8": "ui8", "uint16": "ui16", "uint32": "ui32", "uint64": "ui64",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "complex64": "complex<f32>", "complex128": "complex<f64>",
}  # fmt: skip
"""Types of elements as MLIR writes them, by torch's names; all others are written as torch writes them."""
_BY_ELEMENT = {written: name for name, written in ELEMENTS.items()}


@dataclass(frozen=True)
class Shaped:
    """What the text of a type says."""

    dimensions: tuple[Term, ...]
    """Sizes and partitions, as the tensor is stored; a partition is a name, with its parents where they are not all
    dimensions before it."""
    element: str
    """The type of its elements, by torch's name."""
    details: tuple[tuple[str, Term], ...] = ()
    """What is said besides: `device`, `team`, `rows`, `packed`, `order`, `origin`."""

    def detail(self, name: str) -> Term | None:
        """One of the details."""
        return dict(self.details).get(name)


DETAILS = ("device", "team", "rows", "packed", "order", "origin")


@irdl_attr_definition
class PTensor(Data[Shaped], TypeAttribute):
    """A tensor: `!ptensor.ptensor<n0 x @p0 x 8 x f32, device = "cuda:0">`."""

    name = "ptensor.ptensor"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Shaped:
        """Read what stands between the angles, and these."""
        with parser.in_angle_brackets():
            dimensions: list[Term] = []
            while True:
                if parser.parse_optional_punctuation("*"):
                    parser.raise_error("a tensor of unknown rank is no ptensor: its dimensions have to be there")
                term = parse_term(parser)
                if parser.parse_optional_keyword("x") is None:
                    break
                dimensions.append(_dimension(parser, term))
            element = _element(parser, term)
            details: dict[str, Term] = {}
            while parser.parse_optional_punctuation(","):
                name = parser.parse_identifier()
                if name not in DETAILS or name in details:
                    parser.raise_error(f"{name} is said twice or is no detail of a ptensor: {', '.join(DETAILS)}")
                parser.parse_punctuation("=")
                details[name] = parse_term(parser)
        return Shaped(tuple(dimensions), element, tuple(details.items()))

    def print_parameter(self, printer: Printer) -> None:
        """Write what stands between the angles, and these."""
        shaped = self.data
        parts = [*map(_dimension_text, shaped.dimensions), ELEMENTS.get(shaped.element, shaped.element)]
        details = "".join(f", {name} = {text_of(term)}" for name, term in shaped.details)
        printer.print_string(f"<{' x '.join(parts)}{details}>")

    @property
    def names(self) -> Iterator[str]:
        """The partitions that it names."""
        for term in (*self.data.dimensions, *(term for _, term in self.data.details)):
            yield from names_in(term)


def as_ptensor(kind: Attribute) -> PTensor | None:
    """A type as that of a tensor; None for a type of anything else.

    An i1 or an i64 is a tensor of one element, without axes, on the CPU. A program does not tell one from the other: it
    is written with tensors, except for results of `rank` and `size`.
    """
    if isinstance(kind, PTensor):
        return kind
    name = {i1: "bool", i64: "int64"}.get(kind)  # type: ignore[call-overload]
    return None if name is None else PTensor(Shaped((), name))


def _dimension(parser: AttrParser, term: Term) -> Term:
    if isinstance(term, (float, str)) or (isinstance(term, int) and term < 0):
        parser.raise_error(f"a dimension is a number, a size or a partition, not {text_of(term)}")
    return term


def _dimension_text(term: Term) -> str:
    return f"({text_of(term)})" if isinstance(term, Node) and term.head in ("+", "*") else text_of(term)


def _element(parser: AttrParser, term: Term) -> str:
    if not isinstance(term, Word) or term.is_name:
        parser.raise_error(f"the type of elements is expected, got {text_of(term)}")
    text = term.text
    if text == "complex":
        with parser.in_angle_brackets():
            text = f"complex<{parser.parse_identifier()}>"
    return _BY_ELEMENT.get(text, text)


@irdl_attr_definition
class TermAttr(Data[Term]):
    """A constant that MLIR has no attribute for: `#ptensor.term<slice(0, none, none)>`."""

    name = "ptensor.term"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Term:
        """Read a term between angles."""
        with parser.in_angle_brackets():
            return parse_term(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Write a term between angles."""
        with printer.in_angle_brackets():
            print_term(printer, self.data)


@irdl_attr_definition
class PartitionAttr(Data[tuple[tuple[str, Term], ...]]):
    """A partition with all that is known of it: `#ptensor.partition<name = @p0, of = input("p0"), ...>`."""

    name = "ptensor.partition"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[str, Term], ...]:
        """Read what is known, by names."""
        said: dict[str, Term] = {}
        with parser.in_angle_brackets():
            while True:
                name = parser.parse_identifier()
                parser.parse_punctuation("=")
                if name in said:
                    parser.raise_error(f"{name} is said twice of one partition")
                said[name] = parse_term(parser)
                if not parser.parse_optional_punctuation(","):
                    break
        return tuple(said.items())

    def print_parameter(self, printer: Printer) -> None:
        """Write what is known, by names."""
        inside = ", ".join(f"{name} = {text_of(term)}" for name, term in self.data)
        printer.print_string(f"<{inside}>")
