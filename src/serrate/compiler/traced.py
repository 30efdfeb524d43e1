"""Traced: what a function sees in place of its tensors while `sr.jit` traces it.

A `Traced` has a type and no elements. Operations on it go through the door, where the trace notes them down; all that
would look at elements is a `TracerError` that names the line of the user's program and says what to use instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from serrate.compiler.refusing import refuse
from serrate.compiler.traced_sizes import TracedPartition, traced_size
from serrate.program.devices import stand_in
from serrate.program.sizes import Size
from serrate.program.sizes import product_of as times
from serrate.program.types import RaggedAxis, Value
from serrate.tensor.partition import Partition
from serrate.tensor.structure import Ragged
from serrate.tensor.tensor import Tensor

if TYPE_CHECKING:
    from serrate.compiler.tracing import Trace

_ELEMENTS = {
    "tolist": "return the tensor, and call tolist() outside",
    "item": "return the tensor, and call item() outside",
    "numpy": "use operations of sr or torch, or leave this part outside",
    "__bool__": "use sr.where, sr.logical_and and their like, or an argument that is named in static=",
    "__int__": "keep it as a tensor; sizes are x.shape",
    "__float__": "keep it as a 0-d tensor, which operations take in place of a number",
    "__complex__": "keep it as a 0-d tensor, which operations take in place of a number",
    "__index__": "keep it as a tensor, and use sr.take or x[index]",
    "__iter__": "use operations along the axis, or x[i] for rows that a type knows",
    "equal": "use sr.all(x == y), which gives a tensor",
    "__contains__": "use sr.any(x == item)",
    "__array__": "use operations of sr or torch, or leave this part outside",
    "max_lengths": "to_dense() pads to the longest row by itself",
    "to_nested": "leave the conversion outside",
    "to_awkward": "leave the conversion outside",
    "to_arrow": "leave the conversion outside",
    "to_packed_sequence": "leave the conversion outside",
    "__dlpack__": "leave the conversion outside",
    "backward": "call the compiled function, and backward() on what it returns",
    "grad_fn": "gradients come from backward() outside, or torch.autograd.grad",
    "grad": "gradients come from backward() outside, or torch.autograd.grad",
    "record_stream": "leave it outside",
    "pin_memory": "leave it outside",
}


class Traced(Tensor):
    """A tensor of a traced function."""

    def __init__(self) -> None:
        raise TypeError("a Traced is made by a trace")

    _trace: Trace
    first: Value
    """The value that it stood for before anything was written to it."""
    is_given: bool
    """Whether it is an argument, or a tensor that the function found."""
    is_plain = False
    """Whether a torch tensor stands here in the user's function, so that a torch tensor leaves it."""

    @classmethod
    def of(cls, value: Value, trace: Trace, is_plain: bool = False, *, is_given: bool = False) -> Traced:
        """What stands for a value, which `is_given` to the program if the user's function did not make it."""
        kind = TracedTorch if is_plain else TracedGrouped if value.type.origin is not None else Traced
        made = object.__new__(kind)
        made.__dict__.update(held=value, first=value, _trace=trace, writes=0, link=None, stood=[], is_given=is_given)
        return made

    @property
    def value(self) -> Value:
        """The value that it stands for now."""
        if self._trace.is_over:
            refuse("a traced tensor is used after its trace has ended", "return it from the function instead")
        link = self.__dict__["link"]
        if link is not None and link.seen != link.base.version:
            self.__dict__["held"] = link.derived(link.base.value)
            link.seen = link.base.version
        return self.__dict__["held"]  # type: ignore[no-any-return]

    @property
    def version(self) -> int:
        """How often it was written to, its base included."""
        link = self.__dict__["link"]
        return int(self.__dict__["writes"]) + (0 if link is None else link.base.version)

    @property
    def family(self) -> list[Value]:
        """The values that it and its bases have stood for."""
        link = self.__dict__["link"]
        return [*self.__dict__["stood"], self.value, *([] if link is None else link.base.family)]

    def follow(self, base: Traced, derived: Callable[[Value], Value], written: Callable[[Value, Value], Value]) -> None:
        """Be a view of another tensor: what is written to one of them reaches the other."""
        self.__dict__["link"] = _Link(base, derived, written, base.version)

    def rebind(self, value: Value) -> None:
        """Stand for another value from now on: it was written to."""
        self.__dict__["stood"].append(self.__dict__["held"])
        self.__dict__["held"] = value
        self.__dict__["writes"] += 1
        link = self.__dict__["link"]
        if link is not None:
            link.base.rebind(link.written(link.base.value, value))
            link.seen = link.base.version

    # ------------------------------------------------------------------------------------------------------- look

    @property
    def is_ragged(self) -> bool:
        """Whether some axis is ragged."""
        return bool(self.value.type.axes)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes of uniform axes, ragged axes as `sr.Ragged`."""
        kind = self.value.type
        places = {stored: seen for seen, stored in enumerate(kind.order)}

        def seen(axis: Any) -> Any:
            if isinstance(axis, RaggedAxis):
                return Ragged(TracedPartition.of(axis.partition), tuple(places[p] for p in axis.parents))
            return traced_size(axis)

        return tuple(map(seen, kind.shape))

    @property
    def ndim(self) -> int:
        """How many axes the shape has."""
        return len(self.value.type.order)

    @property
    def order(self) -> tuple[int, ...]:  # type: ignore[override]
        """For each axis that is seen the stored axis."""
        return self.value.type.order

    @property
    def dtype(self) -> torch.dtype:
        """The element type."""
        return self.value.type.dtype

    @property
    def device(self) -> torch.device:
        """Where the elements live."""
        return stand_in(self.value.type.device)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """The tensor on another device, as an operation of the program."""
        if stream is not None:
            raise NotImplementedError("to_device is given a CUDA stream, and a program knows no streams")
        return super().to_device(device)

    @property
    def is_cuda(self) -> bool:
        """Whether the elements live on a CUDA device."""
        return self.device.type == "cuda"

    @property
    def is_meta(self) -> bool:
        """Whether the elements have no memory."""
        return False

    @property
    def team(self) -> int | None:  # type: ignore[override]
        """The team it is spread over."""
        return self.value.type.team

    def is_floating_point(self) -> bool:
        """Whether elements are real floating-point numbers."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether elements are complex."""
        return self.dtype.is_complex

    def numel(self) -> Any:
        """The number of elements."""
        kind = self.value.type
        total: Size = 1 if kind.rows is None else kind.rows
        for size in kind.features:
            total = times(total, size)
        return traced_size(total)

    @property
    def size(self) -> Any:
        """The shape, when called as torch has it."""
        return lambda dim=None: self.shape if dim is None else self.shape[dim]

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into it, as far as the trace knows."""
        return self._trace.needs_gradient(self.value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Refused: which arguments need gradients is decided outside."""
        refuse("requires_grad_ is called", "ask for gradients of the arguments outside; detach() works")

    @property
    def is_leaf(self) -> bool:
        """Whether it has no history: it is an argument."""
        return self._trace.is_input(self.value)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions of the ragged axes, outermost first."""
        return tuple(TracedPartition.of(each) for each in self.value.type.partitions)

    # ------------------------------------------------------------------------------------------- parts, as tensors

    @property
    def values(self) -> Any:  # type: ignore[override]
        """The packed values, as a dense tensor that can be computed with."""
        return self._trace.part(self, "values")

    @property
    def offsets(self) -> Any:
        """The offsets of each ragged level, as tensors that can be computed with."""
        return tuple(self._trace.part(self, "offsets", level) for level in range(len(self.value.type.partitions)))

    @property
    def lengths(self) -> Any:
        """The lengths of each ragged level, as tensors that can be computed with."""
        return tuple(self._trace.part(self, "lengths", level) for level in range(len(self.value.type.partitions)))

    @property
    def structure(self) -> Any:  # type: ignore[override]
        """Refused: it is no concern of users."""
        refuse("the structure of a tensor is asked for", "use x.shape, x.lengths and x.offsets")

    def cu_seqlens(self) -> Any:
        """int32 offsets of the rows along the first axis."""
        return self._trace.part(self, "cu_seqlens")

    def torch(self) -> Any:
        """The torch tensor inside a dense tensor."""
        if self.is_ragged:
            return Tensor.torch(self)
        return self.alias()

    def alias(self) -> Traced:
        """The torch tensor inside of a dense tensor: what is written to one of them reaches the other."""
        made = Traced.of(self.value, self._trace, is_plain=True)
        made.follow(self, lambda value: value, lambda _, value: value)
        return made

    def _with(self, values: Any) -> Tensor:
        refuse("a tensor is put around other values", "use operations of sr")

    def __len__(self) -> int:
        if not self.order:
            raise TypeError("a 0-d tensor has no len()")
        first = self.shape[0]
        if not isinstance(first, int):
            refuse("len() of a tensor is asked for", "use x.shape[0], which can be computed with")
        return first

    def __iter__(self) -> Iterator[Any]:
        first = self.shape[0] if self.order else None
        if not isinstance(first, int):
            refuse("a tensor is iterated over", _ELEMENTS["__iter__"])
        return iter([self[at] for at in range(first)])

    def __repr__(self) -> str:
        held = self.__dict__["held"]
        return f"<traced {held.name}: {held.type}>"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> NoReturn:
        refuse("a tensor is pickled", "leave it outside")

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        from serrate.compiler.tracing import current

        return current().torch_function(function, args, kwargs or {})


@dataclass
class _Link:
    """How a view follows its base."""

    base: Traced
    derived: Callable[[Value], Value]
    """From the base's value to the view's."""
    written: Callable[[Value, Value], Value]
    """From the base's value and a new one of the view to a new one of the base."""
    seen: int
    """The version of the base that the view was derived from."""


class TracedTorch(Traced):
    """A torch tensor of a traced function. Operators on it give such tensors again."""

    is_plain = True

    @property
    def T(self) -> Any:
        """A matrix with its two axes exchanged."""
        return self._trace.plain_result(Tensor.T.fget(self))  # type: ignore[attr-defined]

    @property
    def mT(self) -> Any:
        """The last two axes exchanged."""
        return self._trace.plain_result(Tensor.mT.fget(self))  # type: ignore[attr-defined]

    def to(self, *arguments: Any, **named: Any) -> Any:
        """A copy of another dtype or on another device, or the tensor itself; another tensor may say of which."""
        if arguments and isinstance(arguments[0], (Tensor, torch.Tensor)):
            arguments = (arguments[0].device, arguments[0].dtype, *arguments[1:])
        return Tensor.to(self, *arguments, **named)

    def matmul(self, other: Any) -> Any:
        """The product of two matrices, as torch has it."""
        return self @ other

    def __getattr__(self, name: str) -> Any:
        # Methods that torch's tensors alone have are functions of torch.
        function = _PROPERTIES.get(name, None if name.startswith("_") else getattr(torch.Tensor, name, None))
        if not callable(function):
            return super().__getattr__(name)
        if name in _PROPERTIES:
            return self._trace.torch_function(function, (self,), {})
        return lambda *arguments, **named: self._trace.torch_function(function, (self, *arguments), named)


_PROPERTIES: dict[str, Callable[..., Any]] = {
    "real": torch.real,
    "imag": torch.imag,
    "H": torch.adjoint,
    "mH": torch.adjoint,
    "data": torch.Tensor.detach,
}
"""Attributes of torch's tensors that are tensors."""


class TracedGrouped(Traced):
    """What `sr.group_by` gives inside of a traced function."""

    def ungroup(self, y: Any, /) -> Any:
        """The entries of y in the rows they came from."""
        return self._trace.part(self, "ungroup", y)


def _written(name: str) -> Callable[..., Any]:
    """An operator in place: what it computes is written to the tensor, whose shape and dtype stay."""

    def operator(self: Traced, other: Any) -> Any:
        made = getattr(type(self), f"__{name}__")(self, other)
        if made is NotImplemented:
            return made
        if made.ndim != self.ndim:
            raise ValueError(f"shape {other.shape} does not broadcast to shape {self.shape}")
        if not torch.can_cast(made.dtype, self.dtype):
            raise TypeError(f"{name} gives {made.dtype}, which does not go back into {self.dtype} in place")
        return self.copy_(made)

    return operator


_OF_TORCH: dict[str, Callable[..., Any]] = {"floordiv": torch.floor_divide, "mod": torch.remainder}
"""Operators of torch tensors that the array API computes differently at zeros and infinite numbers."""


def _operator(name: str) -> Callable[..., Any]:
    """An operator of torch tensors: the left operand decides whether it gives such a tensor."""
    is_reflected = name.startswith("__r")
    of_torch = _OF_TORCH.get(name.strip("_").removeprefix("r"))

    def operator(self: TracedTorch, *others: Any) -> Any:
        is_plain = all(isinstance(each, (TracedTorch, torch.Tensor)) for each in others)
        if of_torch is not None and (is_plain or not isinstance(others[0], Tensor)):
            pair = (others[0], self) if is_reflected else (self, others[0])
            return self._trace.torch_function(of_torch, pair, {})
        if is_plain:
            from serrate.compiler.promoting import as_torch_promotes, require_one_dtype

            require_one_dtype(name.strip("_").removeprefix("r"), (self, *others))
            promoted = as_torch_promotes(self._trace, (self, *others))
            self, others = promoted[0], promoted[1:]
        made = getattr(Traced, name)(self, *others)
        if is_reflected and isinstance(others[0], Tensor) and not isinstance(others[0], TracedTorch):
            return made
        return made if made is NotImplemented else self._trace.plain_result(made)

    operator.__name__ = name
    return operator


OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul")
"""Python's operators of two operands."""


def give_operators() -> None:
    """Give `TracedTorch` the operators that Tensor has; these are attached after its class was made."""
    for name in OPERATORS:
        setattr(Traced, f"__i{name}__", _written(name))
    names = [*OPERATORS, *(f"{kind}{name}" for kind in "ri" for name in OPERATORS)]
    names += ["neg", "pos", "abs", "invert", "eq", "ne", "lt", "le", "gt", "ge"]
    for name in names:
        setattr(TracedTorch, f"__{name}__", _operator(f"__{name}__"))


def _asks_for_elements(name: str, instead: str) -> Any:
    shown = name.strip("_")

    def asked(self: Traced, *_: Any, **__: Any) -> NoReturn:
        refuse(f"{shown} of a tensor is asked for", instead)

    asked.__name__ = name
    asked.__doc__ = "Refused: only elements tell."
    return property(asked) if name in ("max_lengths", "grad", "grad_fn") else asked


for _name, _instead in _ELEMENTS.items():
    if _name not in ("__iter__",):
        setattr(Traced, _name, _asks_for_elements(_name, _instead))
