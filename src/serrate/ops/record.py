"""The record of an operation: what it is called, means, takes, computes and is tested with, in one place.

`sr.*` functions, `Tensor` methods, `torch.*` on Tensors, the documents and the tests are made from these records or
checked against them. Adding an operation is adding a record.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

import torch

from serrate.errors import AxisError
from serrate.ops.call import call
from serrate.tensor.tracing import part, untraced

Kind = Literal["float", "complex", "int", "bool"]
Primitive = Literal["scalar", "monoid", "scan", "movement", "cast", "stop_gradient", "random_bits", "library"]
"""What a primitive is: a function of single elements, a reduction that combines states, a scan, a movement of elements
from place to place, a change of dtype, a value whose derivative is cut off, a source of random bits, or a call of a
library (contraction, attention, sort, decomposition)."""
BY_TORCH: Literal["torch"] = "torch"
"""The rule of a library call whose derivative is what torch's autograd makes of its implementation."""
FLOAT: tuple[Kind, ...] = ("float",)
FLOATS: tuple[Kind, ...] = ("float", "complex")
REAL: tuple[Kind, ...] = ("float", "int")
NUMERIC: tuple[Kind, ...] = ("float", "complex", "int")
INTEGER: tuple[Kind, ...] = ("int", "bool")
ORDERED: tuple[Kind, ...] = ("float", "int", "bool")
ALL: tuple[Kind, ...] = ("float", "complex", "int", "bool")
Error = tuple[str, type[Exception], str]
"""A call that is wrong (its arguments as text), the exception it raises, and a pattern in the message."""
BAD_AXIS: Error = ("x, axis=5", AxisError, "axis 5 is out of range")
NO_TENSOR: Error = ("None, axis=1", TypeError, "expected an sr.Tensor")

P = ParamSpec("P")
R = TypeVar("R")
TABLE: dict[str, Op] = {}
"""Every record by the name of its operation."""


class Implementation(NamedTuple):
    """One way to compute an operation."""

    name: Literal["native", "kernel", "torch"]
    """By code that is written by hand, by a compiled fusion, or by operations of torch on packed values."""
    function: Callable[..., Any]
    """What computes it, given the arguments of the public function."""
    applies: Callable[..., bool] | None = None
    """Whether it takes these arguments; without such a question it takes any."""


class Form(NamedTuple):
    """How the textual form of programs, the ptensor dialect, writes an operation."""

    of: str
    """The class that it belongs to there, which may have several operations."""
    kind: str
    """Which operation of the class it is; empty where the class has one alone."""
    names: dict[str, str]
    """What the class calls parameters that the record calls otherwise."""


def written(of: str, kind: str = "", **names: str) -> Form:
    """The textual form of an operation: its class, which of the class it is, and the class's names of parameters."""
    return Form(of, kind, names)


@dataclass(frozen=True, eq=False)
class Op:
    """One operation."""

    name: str
    """The array API's name, or torch's where the standard has none: `sr.<name>`. In an extension it is `linalg.<name>`,
    and for what is only a method of a tensor `Tensor.<name>`."""
    family: str
    """What it belongs to: the name of a file, and the heading in docs/operations.md, under which its kin stand."""
    summary: str
    """What the caller gets, in one line."""
    implementations: tuple[Implementation, ...]
    """What computes it; the first that applies to the arguments does."""
    operands: tuple[str, ...]
    """The parameters that are tensors, or lists of tensors; all others are attributes."""
    function: Callable[..., Any]
    """The public function, which calls the operation through the door."""
    spellings: dict[Callable[..., Any], Callable[..., Any]]
    """torch's functions for it, each with what answers it: the arguments become ours, and the public function is
    called. The first is also the reference that the per-row oracle applies."""
    kinds: tuple[Kind, ...]
    """The kinds of dtypes it takes."""
    example: tuple[str, str]
    """A call and what it gives, shown in the docstring and run by the tests."""
    samples: tuple[str, ...] = ("x",)
    """Arguments to test with, as text in which `x` is a tensor of each structure and dtype."""
    errors: tuple[Error, ...] = ()
    """Wrong calls, in which `x` is a ragged tensor [3, r, 2] of floats."""
    also: tuple[str, ...] = ()
    """Extensions of the array API that have the same function under the same name."""
    decides: tuple[str, ...] = ()
    """The operands whose elements, and not their structure alone, decide about the raggedness of the result."""
    primitive: Primitive | None = None
    """What kind of primitive it is; None if it has a body."""
    body: Callable[..., Any] | None = None
    """A program over other operations that gives the same, for the arguments of the public function. A record that has
    neither a body nor is a primitive is opaque."""
    vjp: Callable[..., Any] | Literal["torch"] | None = None
    """The rule of its derivative, a program over operations: the gradients of its operands, given the gradient of its
    result, its result, its operands by position and its attributes by name. The rule gives a tuple if there are several
    operands, with None for those that have no gradient. Without a rule the derivative is that of the body."""
    flat: str = ""
    """Why it has no derivative by nature; empty if it has one."""
    writes: bool = False
    """Whether it writes to its first operand. To a program, that operand as it is afterwards is the result: the rule is
    given it as the result with its gradient, and the operand as it was before."""
    dialect: Form | None = None
    """How programs are written that call it; without one, as a call by its name."""
    traced: bool = False
    """Whether torch.compile may trace it: it takes packed values as they are, or leaves structure to others."""
    signature: inspect.Signature = field(init=False)
    """The parameters of the public function."""
    is_placed: bool = field(init=False)
    """Whether it takes the device of its result, and so may make a tensor of nothing."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "signature", inspect.signature(self.function))
        object.__setattr__(self, "is_placed", "device" in self.signature.parameters)
        unknown = set(self.operands) - set(self.signature.parameters)
        if unknown:
            raise ValueError(f"{self.name} has no parameters {', '.join(sorted(unknown))}, which it names as operands")
        if not set(self.decides) <= set(self.operands):
            raise ValueError(f"{self.name} names {self.decides} as deciding, of which some are no operands")
        if self.body is not None and self.primitive is not None:
            raise ValueError(f"{self.name} has a body, and is a primitive too")
        if self.flat and self.vjp is not None:
            raise ValueError(f"{self.name} has a derivative, and a reason why it has none: {self.flat}")

    @property
    def torch(self) -> tuple[Callable[..., Any], ...]:
        """torch's functions for it, the reference first."""
        return tuple(self.spellings)

    @property
    def is_opaque(self) -> bool:
        """Whether only its implementations say what it computes."""
        return self.body is None and self.primitive is None

    @property
    def home(self) -> str:
        """Where its public function is found: "" for `sr` itself, else an extension, or `Tensor`."""
        return self.name.rpartition(".")[0]


class _Operations:
    """The public functions of all operations by their names, for programs over operations: bodies and derivatives.

    `ops.exp` is that of `exp`, `ops["linalg.cross"]` that of `linalg.cross`. A name is looked up when the program runs,
    so that a body may use operations of files that are imported later.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self[name]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in TABLE:
            raise AttributeError(f"there is no operation {name}")
        return TABLE[name].function


ops = _Operations()


def operation(implementation: Callable[P, R]) -> Callable[P, R]:
    """The public function of an operation that `implementation` computes; `define` gives it its record."""
    name = ""  # torch.compile follows the name of a record, and not the record itself, into what it traces

    def function(*arguments: P.args, **named: P.kwargs) -> R:
        return call(TABLE[name], arguments, named)  # type: ignore[no-any-return]

    def enter(given: str) -> None:
        nonlocal name
        name = given

    function.__signature__ = inspect.signature(implementation)  # type: ignore[attr-defined]
    function.__doc__ = implementation.__doc__
    function.implementation = implementation  # type: ignore[attr-defined]
    function.enter = enter  # type: ignore[attr-defined]
    return function


def define(
    function: Callable[..., Any],
    name: str,
    *,
    spellings: dict[Callable[..., Any], Callable[..., Any]],
    example: tuple[str, str],
    summary: str,
    operands: tuple[str, ...] | None = None,
    native: tuple[Implementation, ...] = (),
    **fields: Any,
) -> Op:
    """Enter the operation that the public `function` calls into the table, and document that function.

    `operands` are the parameters that are given by position alone, unless they are named.
    """
    if name in TABLE:
        raise ValueError(f"operation {name} is defined twice")
    implementation: Callable[..., Any] = function.implementation  # type: ignore[attr-defined]
    parameters = inspect.signature(implementation).parameters.values()
    op = Op(
        name=name,
        summary=summary,
        implementations=(*native, Implementation("torch", implementation)),
        operands=tuple(p.name for p in parameters if p.kind is p.POSITIONAL_ONLY) if operands is None else operands,
        function=function,
        spellings=spellings,
        example=example,
        **fields,
    )
    TABLE[name] = op
    function.enter(name)  # type: ignore[attr-defined]
    own = name.rpartition(".")[2]
    for each in (function, implementation):
        each.__name__ = each.__qualname__ = own
    function.__module__ = f"serrate.{op.home}" if op.home else "serrate"
    if function.__doc__ is None:
        shown, gives = example
        function.__doc__ = f"{summary}\n\n>>> import torch, serrate as sr\n>>> {shown}\n{gives}\n"
    for each in (function, *spellings.values()):
        part([each]) if op.traced else untraced(each)
    if op.traced:
        part([implementation])
    return op


def record(
    family: str,
    name: str,
    function: Callable[..., Any],
    answer: Callable[..., Any] | None,
    *,
    torch: tuple[Callable[..., Any], ...] | None = None,
    spellings: dict[Callable[..., Any], Callable[..., Any]] | None = None,
    **fields: Any,
) -> Op:
    """Define an operation whose functions in torch, by default those of the same name, `answer` answers.

    `spellings` are functions of torch that take other arguments, each with what answers it.
    """
    found = {} if answer is None else dict.fromkeys(torch_names(name) if torch is None else torch, answer)
    return define(function, name, family=family, spellings=found | (spellings or {}), **fields)


def members(home: str = "") -> dict[str, Callable[..., Any]]:
    """The functions of `sr.<home>`, by name; without one, those of `sr` itself."""
    return {op.name.rpartition(".")[2]: op.function for op in TABLE.values() if home == op.home or home in op.also}


def torch_names(*names: str) -> tuple[Callable[..., Any], ...]:
    """The functions of these names in torch, torch.Tensor, torch.nn.functional and torch.special, where they exist."""
    homes = (torch, torch.Tensor, torch.nn.functional, torch.special)
    found = [getattr(home, name) for name in names for home in homes if callable(getattr(home, name, None))]
    return tuple(dict.fromkeys(found))
