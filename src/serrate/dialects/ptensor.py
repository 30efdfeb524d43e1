"""The ptensor dialect: the array API's operations on tensors that may be ragged, a class for each group of operations.

The classes are those of the PTensor proposal, with its names of operands and attributes, and our own for ragged data.
Which class a record belongs to is said by the record (`Op.dialect`); what has none is a `call` by its name. Operands
are tensors; everything else is an attribute, in which `#ptensor.term<operand(1)>` stands for an operand by its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Dialect, Operation
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import (
    EffectInstance,
    MemoryEffect,
    MemoryEffectKind,
    MemoryReadEffect,
    MemoryWriteEffect,
    NoMemoryEffect,
    OpTrait,
)
from xdsl.utils.exceptions import VerifyException

from serrate.dialects.attributes import PartitionAttr, PTensor, TermAttr
from serrate.dialects.checks import check
from serrate.dialects.terms import Node, Term
from serrate.lowering.keys import DRAW, OF_TORCH
from serrate.ops.record import TABLE, Form, Op, written


@dataclass(frozen=True)
class OpClass:
    """A class of operations."""

    name: str
    operands: tuple[str, ...] = ()
    """What is given as tensors."""
    attributes: tuple[str, ...] = ()
    """What is given besides, by the proposal's names. Records may have further ones, by their own."""
    kind: str = ""
    """The attribute that says which operation of the class it is, where the class has several."""
    effect: str = "read"
    """What it does to memory besides making its results: "none", "read" its operands, or "write" to the first one."""
    is_creation: bool = False
    """Whether it makes a tensor of no tensor, and says where."""


def _classes() -> Iterator[OpClass]:
    where = ("dtype", "device", "team")
    # Creation.
    yield OpClass("arange", (), ("start", "stop", "step", *where), effect="none", is_creation=True)
    yield OpClass("create", (), ("shape", "value", *where), "kind", effect="none", is_creation=True)
    yield OpClass("create_like", ("rsh",), ("value", *where), "kind", effect="none", is_creation=True)
    yield OpClass("eye", (), ("n_rows", "n_cols", "k", *where), effect="none", is_creation=True)
    yield OpClass("linspace", (), ("start", "stop", "n", *where), effect="none", is_creation=True)
    yield OpClass("meshgrid", ("arrays",))
    yield OpClass("extract_triangle", ("rhs",), ("k",), "side")
    yield OpClass("delete", ("tensor",), effect="write")
    yield OpClass("from_dlpack", (), ("obj",))
    yield OpClass("from_ranked", ("ranked",))
    # Attributes of tensors, and types.
    yield OpClass("shape", ("rhs",), effect="none")
    yield OpClass("rank", ("rhs",), effect="none")
    yield OpClass("size", ("rhs",), effect="none")
    yield OpClass("cast", ("rhs",), ("dtype", "do_copy"))
    yield OpClass("broadcast", ("rhs",), ("shape",))
    yield OpClass("result_type", ("inpts",), ("dtype",), effect="none")
    # Indexing.
    yield OpClass("extract_slice", ("rhs",), ("slice",))
    yield OpClass("extract_mask", ("rhs", "mask"))
    yield OpClass("insert_slice", ("rhs", "lhs"), ("slice",), effect="write")
    yield OpClass("gather", ("rhs", "indices"), ("axis",))
    # Manipulation.
    yield OpClass("combine", ("tensors",), ("axis",), "cop")
    yield OpClass("expand_dims", ("rhs",), ("axis",))
    yield OpClass("flip", ("rhs",), ("axis",))
    yield OpClass("permute_dims", ("rhs",), ("axis",))
    yield OpClass("reshape", ("rhs",), ("shape", "copy"))
    yield OpClass("roll", ("rhs",), ("shift", "axis"))
    yield OpClass("squeeze", ("rhs",), ("axis",))
    # Functions of elements.
    yield OpClass("elementwise_unary_op", ("rhs",), (), "euop")
    yield OpClass("elementwise_unary_test", ("rhs",), (), "euop")
    yield OpClass("elementwise_binary_op", ("lhs", "rhs"), (), "ebop")
    yield OpClass("elementwise_binary_test", ("lhs", "rhs"), (), "ebop")
    # Linear algebra.
    yield OpClass("matmul", ("rhs", "lhs"))
    yield OpClass("matrix_transpose", ("rhs",))
    yield OpClass("vecdot", ("rhs", "lhs"), ("axis",))
    yield OpClass("tensor_dot", ("rhs", "lhs"), ("axis",))
    # Searching, sets and sorting.
    yield OpClass("find_index", ("rhs",), ("axis", "keepdims"), "fop")
    yield OpClass("nonzero", ("rhs",))
    yield OpClass("where", ("cond", "rhs", "lhs"))
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        yield OpClass(name, ("rhs",))
    yield OpClass("sort", ("rhs",), ("descending", "stable"))
    yield OpClass("argsort", ("rhs",), ("descending", "stable"))
    # Reductions.
    yield OpClass("reduce", ("rhs",), ("axis", "correction"), "rop")
    yield OpClass("test", ("rhs",), ("axis",), "top")
    # Ragged data.
    yield OpClass("as_nested", (), (), "kind")
    yield OpClass("flatten", ("rhs",))
    yield OpClass("to_dense", ("rhs",), ("padding_value", "max_lengths"))
    yield OpClass("from_dense", ("rhs",), ("padding_value",))
    yield OpClass("scan", ("rhs",), ("axis",), "sop")
    yield OpClass("attention", ("query", "key", "value"))
    yield OpClass("group_by", ("values", "keys"), ("num_groups",))
    yield OpClass("ungroup", ("g", "y"))
    yield OpClass("call", ("operands",), ("callee", "arguments", "named"))


CLASSES = {each.name: each for each in _classes()}
"""All classes by their names."""
FURTHER = {"extract_mask": ("Tensor.getitem", written("extract_mask", x="rhs", key="mask"))}
"""Classes that some calls of a record belong to which has another class: x[mask] for a mask alone."""
ABOUT_CALLS = ("form", "function", "results", "names", "region", "autocast")
"""Attributes that any operation may have: how its arguments were given, the function of torch that the user called,
how its results stand together, their names, the operation that it is a part of, and where autocast is on."""
_EFFECTS: dict[str, OpTrait] = {"none": NoMemoryEffect(), "read": MemoryReadEffect(), "write": MemoryWriteEffect()}


class _EffectOfCall(MemoryEffect):
    """What a call by name does: a write of a record changes its first operand, and a draw of random numbers changes the
    state of their generator."""

    @classmethod
    def get_effects(cls, op: Operation) -> frozenset[EffectInstance]:
        """The effects of one call."""
        named = op.attributes.get("callee")
        callee = str(named.data) if isinstance(named, (StringAttr, TermAttr)) else ""
        record = TABLE.get(callee)
        draws = callee == DRAW or callee in OF_TORCH or (record is not None and "key" in record.signature.parameters)
        changes = draws or (record is not None and record.writes and "function" not in op.attributes)
        return frozenset({EffectInstance(MemoryEffectKind.WRITE if changes else MemoryEffectKind.READ)})


class PTensorOperation(IRDLOperation):
    """An operation of the dialect."""

    @property
    def op_class(self) -> OpClass:
        """The class that it belongs to."""
        return CLASSES[self.name.removeprefix("ptensor.")]

    def verify_(self) -> None:
        """Refuse operands and results that do not fit, and terms that refer to operands that there are not."""
        check(self)
        for name in ("device", "team"):
            if name in self.attributes and not self.op_class.is_creation and self.op_class.name != "call":
                raise VerifyException(f"{self.name} has a {name}, which only operations have that create tensors: "
                                      f"all others run where their operands are")  # fmt: skip
        if self.op_class.kind:
            self._verify_kind()
        for name, attribute in self.attributes.items():
            of_results = name == "results"
            self._verify_places(name, attribute, len(self.results) if of_results else len(self.operands))

    def _verify_kind(self) -> None:
        kind, known = self.attributes.get(self.op_class.kind), kinds_of(self.op_class.name)
        if not isinstance(kind, StringAttr) or kind.data not in known:
            shown = kind.data if isinstance(kind, StringAttr) else kind
            near = get_close_matches(str(shown), known, n=5, cutoff=0.0) if len(known) > 10 else known
            others = f" and {len(known) - len(near)} others" if len(near) < len(known) else ""
            raise VerifyException(
                f"{self.name} has no {self.op_class.kind} {shown}; there are {', '.join(near)}{others}"
            )

    def _verify_places(self, name: str, attribute: Attribute, count: int) -> None:
        for place in _places(attribute):
            if not 0 <= place < count:
                raise VerifyException(f"{name} of {self.name} refers to number {place} of {count}, which there is not")


def _places(attribute: Attribute | Term) -> Iterator[int]:
    """The places of operands that an attribute refers to."""
    if isinstance(attribute, ArrayAttr):
        for part in attribute.data:
            yield from _places(part)
    elif isinstance(attribute, TermAttr):
        yield from _places(attribute.data)
    elif isinstance(attribute, Node):
        if attribute.head == "operand":
            yield attribute.parts[0] if len(attribute.parts) == 1 and type(attribute.parts[0]) is int else -1
        for part in attribute.parts:
            yield from _places(part)


def kinds_of(name: str) -> tuple[str, ...]:
    """The operations of a class that has several."""
    return tuple(op.dialect.kind for op in TABLE.values() if op.dialect is not None and op.dialect.of == name)


def record_of(name: str, kind: str) -> Op | None:
    """The record of an operation of a class; None for classes that no record belongs to."""
    if name in FURTHER:
        return TABLE[FURTHER[name][0]]
    found = [op for op in TABLE.values() if op.dialect is not None and op.dialect.of == name]
    return next((op for op in found if op.dialect is not None and op.dialect.kind == kind), None)


def form_in(name: str, op: Op) -> Form:
    """How a class writes an operation."""
    form = FURTHER[name][1] if name in FURTHER else op.dialect
    assert form is not None
    return form


def _defined(each: OpClass) -> type[PTensorOperation]:
    """The class of operations, as xDSL has it."""
    body = {
        "__doc__": f"`{each.name}({', '.join((*each.operands, *each.attributes))})`.",
        "__module__": __name__,
        "name": f"ptensor.{each.name}",
        "given": var_operand_def(),
        "made": var_result_def(),
        "traits": traits_def(_EffectOfCall() if each.name == "call" else _EFFECTS[each.effect]),
    }
    return irdl_op_definition(type(f"{each.name.title().replace('_', '')}Op", (PTensorOperation,), body))


OPERATIONS = {each.name: _defined(each) for each in CLASSES.values()}
"""The classes of operations by their names."""


PTENSOR = Dialect("ptensor", [*OPERATIONS.values()], [PTensor, TermAttr, PartitionAttr])
