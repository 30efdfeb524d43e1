"""What terms stand for: sizes, partitions, types, constants and functions of a program, written and read again.

A `Scope` knows the names that one program gives to partitions, and the values that its terms refer to. What is written
and read in scopes of the same names is equal to what it was.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, NoReturn

import torch

from serrate.dialects.attributes import ELEMENTS, PTensor, Shaped
from serrate.dialects.terms import Node, Term, Word, text_of
from serrate.lowering.factories import FACTORIES, made_by
from serrate.program.devices import Device, NamedDevice, device_named
from serrate.program.partitions import Call, Expression
from serrate.program.sizes import Polynomial, Size, Slice, Symbol, product_of, size_of, sum_of
from serrate.program.types import RaggedAxis, TensorType, Value

NONE, TRUE, FALSE = Word("none"), Word("true"), Word("false")
_WORDS: dict[Word, Any] = {NONE: None, TRUE: True, FALSE: False, Word("ellipsis"): ...}
_DTYPES = {name: each for name, each in vars(torch).items() if isinstance(each, torch.dtype)}
_SIZE_KINDS = ("values", "longest", "total", "least", "most", "sliced", "start", "count", "unsaid")
_KNOWN_OF_PARTITIONS = ("components", "capacity", "uniform_length", "bound")
_HOMES = ("serrate.", "torch", "builtins")
"""Where functions and classes may come from that a text names: reading a text runs no other code."""


class CannotWrite(ValueError):
    """This error is raised for a program that has no text, and says which part of it has none."""


class CannotRead(ValueError):
    """This error is raised for a text that stands for no program, and says which part of it does not."""


def _unreadable(term: Term, wanted: str) -> NoReturn:
    raise CannotRead(f"{wanted} is expected, got {text_of(term)}")


@dataclass
class Scope:
    """The names of one program."""

    program: int | None = None
    """The `Inputs` that the types of a program that is read belong to."""
    partitions: dict[Expression, str] = field(default_factory=dict)
    declared: dict[str, Expression] = field(default_factory=dict)
    tokens: dict[int, object] = field(default_factory=dict)
    """Objects that are told from all others by their identity alone, by their numbers."""
    place: Callable[[Value], int] | None = None
    """What gives values places among the operands of the operation that is written; without it they have names."""
    operands: Sequence[Value] = ()
    """The operands of the operation that is read."""

    # ------------------------------------------------------------------------------------------------ partitions

    def name_of(self, expression: Expression) -> Word:
        """The name of a partition; those that it is made of have names before it."""
        if expression not in self.partitions:
            self.written(expression.operands)
            if expression.same_lengths is not None:
                self.name_of(expression.same_lengths)
            for name in _KNOWN_OF_PARTITIONS:
                self.written(getattr(expression, name))
            name = f"p{len(self.partitions)}"
            self.partitions[expression], self.declared[name] = name, expression
        return Word(f"@{self.partitions[expression]}")

    def declaration(self, expression: Expression) -> tuple[tuple[str, Term], ...]:
        """All that is known of a partition."""
        said: dict[str, Term] = {
            "name": self.name_of(expression),
            "of": Node(_headed(expression.kind), tuple(map(self.written, expression.operands))),
        }
        if said["of"].head == "made":  # type: ignore[union-attr]
            said["kind"] = expression.kind
        for name in _KNOWN_OF_PARTITIONS:
            if getattr(expression, name) is not None:
                said[name] = self.size_written(getattr(expression, name))
        if expression.same_lengths is not None:
            said["same_lengths"] = self.name_of(expression.same_lengths)
        for name, usual in (("host_born", True), ("exact", True)):
            if getattr(expression, name) is not usual:
                said[name] = Word("false" if usual else "true")
        if expression.dtype is not torch.int64:
            said["dtype"] = self.written(expression.dtype)
        if expression.device != torch.device("cpu"):
            said["device"] = str(expression.device)
        return tuple(said.items())

    def declare(self, said: dict[str, Term]) -> None:
        """Read what is known of a partition."""
        name, of = said.get("name"), said.get("of")
        if not isinstance(name, Word) or not name.is_name or not isinstance(of, Node):
            raise CannotRead('a partition has a name and says what it is made of: name = @p0, of = input("p0")')
        if name.text[1:] in self.declared:
            raise CannotRead(f"the partition {name.text} is declared twice")
        kind = said.get("kind", of.head)
        sizes = {key: self.size_read(said[key]) if key in said else None for key in _KNOWN_OF_PARTITIONS}
        if sizes["components"] is None or not isinstance(kind, str):
            raise CannotRead(f"the partition {name.text} does not say how many components it has")
        same, device = said.get("same_lengths"), said.get("device")
        expression = Expression(
            kind, tuple(map(self.read, of.parts)), sizes["components"], sizes["capacity"],
            said.get("host_born", TRUE) == TRUE, said.get("exact", TRUE) == TRUE,
            self.read(said["dtype"]) if "dtype" in said else torch.int64, self._device_read(device),
            sizes["uniform_length"], sizes["bound"], None if same is None else self.partition_read(same),
        )  # fmt: skip
        self.partitions[expression], self.declared[name.text[1:]] = name.text[1:], expression

    def partition_read(self, term: Term) -> Expression:
        """The partition of a name."""
        if not isinstance(term, Word) or not term.is_name:
            _unreadable(term, "the name of a partition")
        if term.text[1:] not in self.declared:
            raise CannotRead(f"the partition {term.text} is not declared; there are "
                             f"{', '.join(f'@{name}' for name in self.declared) or 'none'}")  # fmt: skip
        return self.declared[term.text[1:]]

    # ----------------------------------------------------------------------------------------------------- sizes

    def size_written(self, size: Size) -> Term:
        """A size."""
        if isinstance(size, int):
            return size
        terms: list[Term] = []
        for monomial, coefficient in size.terms:
            factors = [*([] if coefficient == 1 and monomial else [coefficient]), *map(self._symbol_written, monomial)]
            terms.append(factors[0] if len(factors) == 1 else Node("*", tuple(factors)))
        return terms[0] if len(terms) == 1 else Node("+", tuple(terms))

    def _symbol_written(self, symbol: Symbol) -> Term:
        if symbol.kind == "size":
            return Word(str(symbol.of[0]))
        return Node(symbol.kind, tuple(map(self.written, symbol.of)))

    def size_read(self, term: Term) -> Size:
        """A size."""
        if type(term) is int:
            return term
        if isinstance(term, Word) and not term.is_name:
            return Polynomial((((Symbol("size", (term.text,)),), 1),))
        if not isinstance(term, Node):
            _unreadable(term, "a size")
        if term.head in ("+", "*"):
            parts = [self.size_read(part) for part in term.parts]
            made = parts[0]
            for each in parts[1:]:
                made = sum_of(made, each) if term.head == "+" else product_of(made, each)
            return made
        if term.head not in _SIZE_KINDS:
            _unreadable(term, "a size")
        return size_of({(Symbol(term.head, tuple(map(self.read, term.parts))),): 1})

    # ----------------------------------------------------------------------------------------------------- types

    def type_written(self, kind: TensorType) -> PTensor:
        """The type of a tensor."""
        dimensions: list[Term] = []
        for number, axis in enumerate(kind.axes):
            if isinstance(axis, RaggedAxis):
                name = self.name_of(axis.partition)
                usual = axis.parents == tuple(range(number))
                dimensions.append(name if usual else Node(name.text, axis.parents))
            else:
                dimensions.append(self.size_written(axis))
        dimensions += map(self.size_written, kind.features)
        details: list[tuple[str, Term]] = []
        if kind.device != torch.device("cpu"):
            details.append(("device", str(kind.device)))
        if kind.team is not None:
            details.append(("team", kind.team))
        if kind.rows != _usual_rows(kind.axes):
            details.append(("rows", self.written(kind.rows) if kind.rows is None else self.size_written(kind.rows)))
        if len(kind.axes) != _usual_packed(kind.axes, kind.features):
            details.append(("packed", len(kind.axes)))
        if kind.order != tuple(range(len(dimensions))):
            details.append(("order", Node("[]", kind.order)))
        if kind.origin is not None:
            details.append(("origin", self.written(kind.origin)))
        return PTensor(Shaped(tuple(dimensions), str(kind.dtype).removeprefix("torch."), tuple(details)))

    def type_read(self, written: PTensor) -> TensorType:
        """The type of a tensor."""
        shaped = written.data
        axes = [self._axis_read(number, term) for number, term in enumerate(shaped.dimensions)]
        packed = shaped.detail("packed")
        ragged = [number for number, axis in enumerate(axes) if isinstance(axis, RaggedAxis)]
        count = packed if isinstance(packed, int) else ragged[-1] + 1 if ragged else 0
        features = axes[count:]
        if count > len(axes) or any(isinstance(axis, RaggedAxis) for axis in features):
            raise CannotRead(f"a ragged dimension stands behind the packed ones in {written}")
        if shaped.element not in _DTYPES:
            raise CannotRead(f"there is no type of elements {shaped.element!r}")
        rows, order, origin, team = (shaped.detail(name) for name in ("rows", "order", "origin", "team"))
        if team is not None and type(team) is not int:
            raise CannotRead(f"a team is a number, got {text_of(team)}")
        places = tuple(range(len(axes)))
        if isinstance(order, Node) and order.head == "[]":
            places = tuple(part for part in order.parts if type(part) is int)
        if sorted(places) != list(range(len(axes))):
            raise CannotRead(f"the order of {written} does not name each of its {len(axes)} dimensions once")
        return TensorType(
            _DTYPES[shaped.element], self._device_read(shaped.detail("device")), tuple(axes[:count]),
            _usual_rows(tuple(axes[:count])) if rows is None else None if rows == NONE else self.size_read(rows),
            tuple(features), places, team, None if origin is None else self.read(origin), program=self.program,
        )  # fmt: skip

    def _device_read(self, term: Term | None) -> Device:
        """A device, which torch need not know."""
        if term is None:
            return torch.device("cpu")
        if not isinstance(term, str) or not term.strip():
            _unreadable(term, 'a device such as "cuda:0"')
        return device_named(term)

    def _axis_read(self, number: int, term: Term) -> Any:
        if isinstance(term, Word) and term.is_name:
            return RaggedAxis(self.partition_read(term), tuple(range(number)))
        if isinstance(term, Node) and term.head.startswith("@"):
            if not all(type(part) is int and 0 <= part < number for part in term.parts):
                _unreadable(term, "a partition with the numbers of dimensions before it")
            return RaggedAxis(self.partition_read(Word(term.head)), term.parts)  # type: ignore[arg-type]
        return self.size_read(term)

    # ----------------------------------------------------------------------------------------------- all the rest

    def written(self, part: Any) -> Term:
        """Anything that stands among the arguments of an instruction, or in a partition."""
        if part is None:
            return NONE
        if isinstance(part, bool):
            return TRUE if part else FALSE
        if part is ...:
            return Word("ellipsis")
        if type(part) in (int, float, str):
            return part  # type: ignore[no-any-return]
        for kind, write in _WRITERS.items():
            if type(part) is kind:
                return write(self, part)
        return self._object_written(part)

    def _object_written(self, part: Any) -> Term:
        if type(part) is object:
            number = next((n for n, each in self.tokens.items() if each is part), len(self.tokens))
            self.tokens[number] = part
            return Node("unique", (number,))
        if isinstance(part, Enum):
            return Node("entry", (_import_path(type(part)), part.name))
        if isinstance(part, tuple) and hasattr(type(part), "n_sequence_fields"):
            return Node("sequence", (_import_path(type(part)), *map(self.written, part)))
        if isinstance(part, tuple) and hasattr(part, "_fields"):
            return Node("named", (_import_path(type(part)), *map(self.written, part)))
        if is_dataclass(part) and not isinstance(part, type):
            return Node(
                "record", (_import_path(type(part)), *(self.written(getattr(part, f.name)) for f in fields(part)))
            )
        if isinstance(part, type):
            return Node("class", (_import_path(part),))
        if callable(part):
            return self.function_written(part)
        raise CannotWrite(f"an object of the class {type(part).__name__} has no text: {part!r:.80}")

    def function_written(self, function: Callable[..., Any]) -> Node:
        """A function of torch or of Serrate."""
        path = _torch_paths().get(_Same(function))
        if path is not None:
            return Node("torch", (path,))
        found = made_by(function)
        if found is not None:
            factory, of = found
            return Node("made_by", (factory, *map(self.written, of)))
        return Node("function", (_import_path(function),))

    def read(self, term: Term) -> Any:
        """What a term stands for."""
        if isinstance(term, Word):
            if term in _WORDS:
                return _WORDS[term]
            return self.partition_read(term) if term.is_name else _unreadable(term, "a constant")
        if not isinstance(term, Node):
            return term
        if term.head not in _READERS:
            _unreadable(term, "a constant")
        try:
            return _READERS[term.head](self, term.parts)
        except (TypeError, ValueError, LookupError, AttributeError, ImportError) as error:
            if isinstance(error, CannotRead):
                raise
            raise CannotRead(f"{text_of(term)} stands for nothing: {error}") from error


def _usual_rows(axes: tuple[Any, ...]) -> Size | None:
    """The rows of a type that says nothing of them: those that the last partition has values for."""
    if not axes:
        return None
    last = axes[-1]
    if isinstance(last, RaggedAxis) and last.parents == tuple(range(len(axes) - 1)):
        return last.partition.values
    return None


def _usual_packed(axes: tuple[Any, ...], features: tuple[Any, ...]) -> int:
    """The packed axes of a type that does not say how many: all up to the last ragged one."""
    ragged = [number for number, axis in enumerate((*axes, *features)) if isinstance(axis, RaggedAxis)]
    return ragged[-1] + 1 if ragged else 0


def _headed(kind: str) -> str:
    """The head of the node that says what a partition is made of."""
    return kind if kind.replace("_", "a").isalnum() and not kind[0].isdigit() else "made"


class _Same:
    """A function, told from others by its identity."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.function is self.function

    def __hash__(self) -> int:
        return id(self.function)


@cache
def _torch_paths() -> dict[_Same, str]:
    """Functions of torch, with the names by which a program finds them below `torch`."""
    found: dict[_Same, str] = {}
    homes = {"": torch, "nn.functional.": torch.nn.functional, "special.": torch.special, "linalg.": torch.linalg,
             "fft.": torch.fft, "Tensor.": torch.Tensor}  # fmt: skip
    for prefix, home in homes.items():
        for name in dir(home):
            each = getattr(home, name, None)
            if callable(each) and not isinstance(each, (type, types.ModuleType)):
                found.setdefault(_Same(each), prefix + name)
    return found


def _import_path(thing: Any) -> str:
    """Where a function or a class of torch or of Serrate is found: "module:name"."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    path = f"{module}:{name}"
    if module is None or name is None or not str(module).startswith(_HOMES):
        raise CannotWrite(f"{thing!r:.80} has no name by which another process finds it")
    try:
        same = _imported(path) is thing
    except (AttributeError, ImportError):
        same = False
    if not same:
        raise CannotWrite(f"{path} is another thing in another process")
    return path


def _imported(path: Any) -> Any:
    """The function or class of a path."""
    module, _, name = str(path).partition(":")
    if not module.startswith(_HOMES):
        raise CannotRead(f"{path} is not of torch or of Serrate")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _torch_function(path: Any) -> Any:
    found: Any = torch
    for part in str(path).split("."):
        found = getattr(found, part)
    if _Same(found) not in _torch_paths():
        raise CannotRead(f"torch.{path} is no function that a program calls")
    return found


def _class(path: Any) -> Any:
    found = _imported(path)
    if not isinstance(found, type):
        raise CannotRead(f"{path} is no class")
    return found


def _value_written(scope: Scope, part: Value) -> Term:
    if scope.place is None:
        raise CannotWrite(f"the value {part.name} stands where only what is known before a run can stand")
    return Node("operand", (scope.place(part),))


def _call_written(scope: Scope, part: Call) -> Term:
    return Node("call", (part.operation, *map(scope.written, part.arguments)))


_WRITERS: dict[type, Callable[[Scope, Any], Term]] = {
    complex: lambda scope, part: Node("complex", (part.real, part.imag)),
    bytes: lambda scope, part: Node("bytes", (part.hex(),)),
    tuple: lambda scope, part: Node("tuple", tuple(map(scope.written, part))),
    list: lambda scope, part: Node("[]", tuple(map(scope.written, part))),
    torch.Size: lambda scope, part: Node("shape", tuple(part)),
    dict: lambda scope, part: Node("dict", tuple(scope.written(each) for pair in part.items() for each in pair)),
    slice: lambda scope, part: Node("slice", tuple(map(scope.written, (part.start, part.stop, part.step)))),
    range: lambda scope, part: Node("range", (part.start, part.stop, part.step)),
    torch.dtype: lambda scope, part: Node("dtype", (str(part).removeprefix("torch."),)),
    torch.device: lambda scope, part: Node("device", (str(part),)),
    NamedDevice: lambda scope, part: Node("device", (str(part),)),
    Polynomial: lambda scope, part: Node("size", (scope.size_written(part),)),
    Slice: lambda scope, part: Node("bounds", tuple(map(scope.written, (part.start, part.stop, part.step)))),
    Expression: lambda scope, part: scope.name_of(part),
    RaggedAxis: lambda scope, part: Node("ragged", (scope.name_of(part.partition), *part.parents)),
    TensorType: lambda scope, part: Node("type", (str(scope.type_written(part)),)),
    Value: _value_written,
    Call: _call_written,
}


def _read_type(scope: Scope, parts: tuple[Term, ...]) -> TensorType:
    from serrate.dialects.texts import parse_type

    return scope.type_read(parse_type(str(parts[0])))


def _pairs(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


_READERS: dict[str, Callable[[Scope, tuple[Any, ...]], Any]] = {
    "complex": lambda scope, parts: complex(*parts),
    "bytes": lambda scope, parts: bytes.fromhex(*parts),
    "tuple": lambda scope, parts: tuple(map(scope.read, parts)),
    "shape": lambda scope, parts: torch.Size(parts),
    "[]": lambda scope, parts: list(map(scope.read, parts)),
    "dict": lambda scope, parts: _pairs(list(map(scope.read, parts))),
    "slice": lambda scope, parts: slice(*map(scope.read, parts)),
    "range": lambda scope, parts: range(*parts),
    "dtype": lambda scope, parts: _DTYPES[parts[0]],
    "device": lambda scope, parts: scope._device_read(*parts),
    "size": lambda scope, parts: scope.size_read(*parts),
    "bounds": lambda scope, parts: Slice(*map(scope.read, parts)),
    "ragged": lambda scope, parts: RaggedAxis(scope.partition_read(parts[0]), tuple(parts[1:])),
    "type": _read_type,
    "operand": lambda scope, parts: scope.operands[parts[0]],
    "call": lambda scope, parts: Call(parts[0], tuple(map(scope.read, parts[1:]))),
    "unique": lambda scope, parts: scope.tokens.setdefault(parts[0], object()),
    "entry": lambda scope, parts: _class(parts[0])[parts[1]],
    "named": lambda scope, parts: _class(parts[0])(*map(scope.read, parts[1:])),
    "sequence": lambda scope, parts: _class(parts[0])(list(map(scope.read, parts[1:]))),
    "record": lambda scope, parts: _class(parts[0])(*map(scope.read, parts[1:])),
    "class": lambda scope, parts: _class(*parts),
    "torch": lambda scope, parts: _torch_function(*parts),
    "made_by": lambda scope, parts: FACTORIES[parts[0]](*map(scope.read, parts[1:])),
    "function": lambda scope, parts: _imported(*parts),
}
assert set(ELEMENTS) <= set(_DTYPES)
