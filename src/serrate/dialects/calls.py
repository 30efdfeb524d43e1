"""Calls of functions of a module, as texts have them: `func.call @name(%x) : (...) -> ...`.

MLIR's own check wants the types of operands to be written as those of the function are. Here they are of different
programs, whose sizes and partitions have names of their own: that they fit is found when a program is made of the text.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, StringAttr, SymbolRefAttr
from xdsl.dialects.func import Func, FuncOp, ReturnOp
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, var_operand_def, var_result_def
from xdsl.traits import SymbolTable
from xdsl.utils.exceptions import VerifyException

ABOUT = "ptensor."
"""How attributes are called that are no MLIR's own: `ptensor.results`, `ptensor.names`."""


@irdl_op_definition
class CallOp(IRDLOperation):
    """`func.call`."""

    name = "func.call"
    given = var_operand_def()
    callee = prop_def(SymbolRefAttr)
    made = var_result_def()
    assembly_format = "$callee `(` $given `)` attr-dict `:` functional-type($given, $made)"

    @property
    def called(self) -> str:
        """The name of the function."""
        return self.callee.root_reference.data

    def verify_(self) -> None:
        """Refuse a call of what the module does not have, and one with more or fewer operands or results."""
        name = self.called
        found = SymbolTable.lookup_symbol(self, self.callee)
        if not isinstance(found, FuncOp):
            raise VerifyException(f"there is no function @{name} in the module")
        kind = found.function_type
        for what, count, wanted in (
            ("operands", len(self.operands), len(kind.inputs)),
            ("results", len(self.results), len(kind.outputs)),
        ):
            if count != wanted:
                raise VerifyException(f"the call of @{name} has {count} {what}, and the function {wanted}")

    @classmethod
    def of(cls, name: str, operands: list[SSAValue], results: list[Attribute]) -> CallOp:
        """The call of a function."""
        return cls.create(operands=operands, result_types=results, properties={"callee": SymbolRefAttr(name)})

    def about(self, name: str) -> Attribute | None:
        """An attribute of ours."""
        return self.attributes.get(ABOUT + name)


def names_of(attribute: Attribute | None) -> list[str]:
    """The texts in a list of them."""
    parts = attribute.data if isinstance(attribute, ArrayAttr) else ()
    return [each.data for each in parts if isinstance(each, StringAttr)]


FUNCTIONS = Dialect(Func.name, [FuncOp, CallOp, ReturnOp], [])
"""The dialect `func`, with our check of calls."""
