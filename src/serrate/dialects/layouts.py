"""Types after lower-ptensor: what a ptensor becomes is a builtin tensor, which says in its encoding how it is laid out.

`!ptensor.ptensor<n0 x @p0 x 8 x f32>` lies in memory as `tensor<?x8xf32, #host.layout<n0 x @p0 x 8 x f32>>`: the values
of all rows, one behind the other, and what they are the rows of. A dense tensor of known sizes needs no layout.
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BFloat16Type,
    ComplexType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    Signedness,
)
from xdsl.dialects.builtin import TensorType as BuiltinTensor
from xdsl.ir import Attribute, Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from serrate.dialects.attributes import PTensor, Shaped
from serrate.dialects.objects import CannotRead, CannotWrite

ELEMENTS: dict[str, Attribute] = {
    "bool": IntegerType(1),
    **{f"int{bits}": IntegerType(bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": IntegerType(bits, Signedness.UNSIGNED) for bits in (8, 16, 32, 64)},
    "float16": Float16Type(), "bfloat16": BFloat16Type(), "float32": Float32Type(), "float64": Float64Type(),
    "complex64": ComplexType(Float32Type()), "complex128": ComplexType(Float64Type()),
}  # fmt: skip
"""The types of elements that builtin tensors have, by torch's names."""
NAMES = {element: name for name, element in ELEMENTS.items()}


@irdl_attr_definition
class Layout(Data[Shaped]):
    """How a tensor is laid out in memory: `#host.layout<n0 x @p0 x 8 x f32>`."""

    name = "host.layout"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Shaped:
        """Read what stands between the angles, and these."""
        return PTensor.parse_parameter(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Write what stands between the angles, and these."""
        PTensor(self.data).print_parameter(printer)


def lowered_type(kind: PTensor) -> BuiltinTensor[Any]:
    """The builtin tensor that a ptensor becomes, without its device and its team.

    >>> from serrate.dialects.layouts import lowered_type
    >>> from serrate.dialects.texts import parse_type
    >>> print(lowered_type(parse_type("!ptensor.ptensor<n0 x @p0 x 8 x f32, device = 'cuda:0'>".replace("'", '"'))))
    tensor<?x8xf32, #host.layout<n0 x @p0 x 8 x f32>>
    >>> print(lowered_type(parse_type("!ptensor.ptensor<4 x 8 x i1>")))
    tensor<4x8xi1>
    """
    shaped = kind.data
    if shaped.element not in ELEMENTS:
        raise CannotWrite(f"builtin tensors have no elements of the type {shaped.element}")
    details = tuple(pair for pair in shaped.details if pair[0] not in ("device", "team"))
    packed = _packed(shaped)
    features = shaped.dimensions[packed:]
    sizes = [DYNAMIC_INDEX] * bool(packed) + [size if type(size) is int else DYNAMIC_INDEX for size in features]
    layout = Layout(Shaped(shaped.dimensions, shaped.element, details))
    is_plain = not details and not packed and DYNAMIC_INDEX not in sizes
    return BuiltinTensor(ELEMENTS[shaped.element], sizes, *([] if is_plain else [layout]))


def _packed(shaped: Shaped) -> int:
    """How many dimensions lie in memory as one, that of the values of all rows."""
    said = shaped.detail("packed")
    if type(said) is int:
        return said
    ragged = [number for number, term in enumerate(shaped.dimensions) if names_a_partition(term)]
    return ragged[-1] + 1 if ragged else 0


def names_a_partition(term: Any) -> bool:
    """Whether a dimension is ragged."""
    return bool(getattr(term, "is_name", False)) or str(getattr(term, "head", "")).startswith("@")


def raised_type(kind: Attribute, device: str = "cpu") -> PTensor:
    """The ptensor that a builtin tensor was, on a device."""
    if not isinstance(kind, BuiltinTensor):
        raise CannotRead(f"a tensor is expected, got {kind}")
    if isinstance(kind.encoding, Layout):
        shaped = kind.encoding.data
    elif kind.element_type in NAMES and DYNAMIC_INDEX not in kind.get_shape():
        shaped = Shaped(tuple(kind.get_shape()), NAMES[kind.element_type])
    else:
        raise CannotRead(f"{kind} does not say how it is laid out: it has no #host.layout")
    where = () if device == "cpu" else (("device", device),)
    made = PTensor(Shaped(shaped.dimensions, shaped.element, (*where, *shaped.details)))
    if lowered_type(made) != kind:
        raise CannotRead(f"a tensor of this layout is {lowered_type(made)}, got {kind}")
    return made
