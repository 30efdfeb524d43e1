"""Tensor: packed values, the structure of their ragged axes, and how a user sees them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor as TorchTensor
from torch.nn.utils.rnn import PackedSequence

from serrate.errors import AxisError
from serrate.tensor import broadcast, combine, persist, printing, promotion
from serrate.tensor import host as host_door
from serrate.tensor.convert import arrow, awkward, nested, packed_sequence
from serrate.tensor.layout import shape_of
from serrate.tensor.offsets import INT32_MAX
from serrate.tensor.operations import Operations
from serrate.tensor.partition import Partition
from serrate.tensor.structure import DENSE, Axis, Ragged, Structure
from serrate.tensor.tracing import untraced


class Size(int):
    """The number of elements, as the array API has it; called, it answers as torch's `size()`."""

    _shape: tuple[Axis, ...]

    def __new__(cls, count: int, shape: tuple[Axis, ...]) -> Size:
        """`count` elements in a tensor of this shape."""
        self = super().__new__(cls, count)
        self._shape = shape
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)  # The number can outlive the tensor that it came from.

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or its entry `dim`."""
        return self._shape if dim is None else self._shape[dim]


@dataclass(eq=False, repr=False)
class Tensor(Operations):
    """A dense or ragged tensor: `values` packed without padding, cut by the partitions of its ragged axes.

    Make one with `sr.ragged`, `sr.from_rows`, `sr.from_offsets` and their like; the constructor trusts its caller.

    >>> import serrate as sr
    >>> x = sr.ragged([[1., 2.], [], [3., 4., 5.]])
    >>> x.shape
    (3, Ragged([2, 0, 3]))
    >>> x.values
    tensor([1., 2., 3., 4., 5.])
    >>> x.to_dense()
    sr.Tensor([[1., 2., 0.],
               [0., 0., 0.],
               [3., 4., 5.]], shape=(3, 3), dtype=torch.float32, device='cpu')
    """

    values: TorchTensor
    """Canonical storage: the packed axis first, then the features. For a dense tensor, the tensor itself."""
    structure: Structure = None  # type: ignore[assignment]  # torch.compile has no source for an object that is a default
    """The packed axes; shared by identity between tensors computed from each other. DENSE if there are none."""
    order: tuple[int, ...] = ()
    """For each axis the user sees, the canonical axis: packed ones first, then the features."""
    team: int | None = None
    """The team the tensor is spread over; None on one process."""

    __array_ufunc__ = None  # numpy leaves `array + x` to this class, and does not loop over x.
    is_nested = False

    def __post_init__(self) -> None:
        if not isinstance(self.values, TorchTensor):
            raise TypeError(
                f"sr.Tensor wraps a torch tensor; make one from {type(self.values).__name__} with sr.ragged, …"
            )
        host_door.raise_deferred()
        if self.structure is None:
            self.structure = DENSE
        if not self.order:
            self.order = tuple(
                range(self.values.ndim - 1 + len(self.structure.axes) if self.is_ragged else self.values.ndim)
            )

    # ------------------------------------------------------------------------------------------------------ look

    @property
    def is_ragged(self) -> bool:
        """Whether some axis is ragged."""
        return self.structure is not DENSE

    @property
    def shape(self) -> tuple[Axis, ...]:
        """Sizes of uniform axes as ints, ragged axes as `sr.Ragged`."""
        return shape_of(self.values, self.structure, self.order)

    @property
    def ndim(self) -> int:
        """How many axes the shape has."""
        return len(self.order)

    def dim(self) -> int:
        """`ndim`, by torch's name."""
        return self.ndim

    @property
    def size(self) -> Size:
        """The number of elements; `x.size()` is the shape and `x.size(dim)` one entry of it."""
        return Size(self.numel(), self.shape)

    def numel(self) -> int:
        """The number of elements (the capacity, where lengths were born on a device)."""
        return self.values.numel()

    @property
    @untraced
    def nbytes(self) -> int:
        """Bytes of values and offsets together."""
        offsets = sum(p.offsets.numel() * p.offsets.element_size() for p in self.partitions)
        return self.values.numel() * self.values.element_size() + offsets

    @property
    def dtype(self) -> torch.dtype:
        """The element type, one of torch's."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Where the values live."""
        return self.values.device

    @property
    def is_cuda(self) -> bool:
        """Whether the values live on a CUDA device."""
        return self.values.is_cuda

    @property
    def is_meta(self) -> bool:
        """Whether the values have no memory."""
        return self.values.is_meta

    def is_floating_point(self) -> bool:
        """Whether elements are real floating-point numbers."""
        return self.values.is_floating_point()

    def is_complex(self) -> bool:
        """Whether elements are complex."""
        return self.values.is_complex()

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions of the ragged axes in storage order, outermost first; () if dense."""
        return self.structure.partitions

    @property
    def offsets(self) -> tuple[TorchTensor, ...]:
        """Offsets of each ragged level on the tensor's device, outermost first.

        >>> import serrate as sr
        >>> sr.ragged([[1., 2.], [], [3.]]).offsets
        (tensor([0, 2, 2, 3]),)
        """
        return tuple(p.offsets_on(self.device) for p in self.partitions)

    @property
    def lengths(self) -> tuple[TorchTensor, ...]:
        """Lengths of each ragged level on the tensor's device, outermost first."""
        return tuple(p.lengths_on(self.device) for p in self.partitions)

    @property
    @untraced
    def max_lengths(self) -> tuple[int, ...]:
        """The longest length of each ragged level (waits if lengths were born on a device)."""
        return tuple(p.max_length for p in self.partitions)

    @untraced
    def cu_seqlens(self) -> TorchTensor:
        """int32 offsets of the rows of the packed axis along the first axis, as attention kernels take them.

        >>> import serrate as sr
        >>> sr.ragged([[1., 2.], [], [3.]]).cu_seqlens()
        tensor([0, 2, 2, 3], dtype=torch.int32)
        """
        rows = combine.row_offsets(self)
        if rows.num_values > INT32_MAX:
            raise OverflowError(f"{rows.num_values} rows are more than int32 offsets can count")
        return rows.offsets_on(self.device).to(torch.int32, copy=True)

    @untraced
    def tolist(self) -> Any:
        """Nested Python lists of Python numbers.

        >>> import serrate as sr
        >>> sr.ragged([[[1], []], [[2, 3]]]).tolist()
        [[[1], []], [[2, 3]]]
        """
        return printing.to_list(self)

    @untraced
    def item(self) -> Any:
        """The only element, as a Python number."""
        values = combine.exact(self).values
        if values.numel() != 1:
            raise ValueError(f"only a tensor of one element converts to a Python number, got shape {self.shape}")
        return values.item()

    # ----------------------------------------------------------------------------------------------------- leave

    def torch(self) -> TorchTensor:
        """The torch tensor inside a dense tensor."""
        if self.is_ragged:
            raise TypeError(
                f"only a dense tensor is a torch tensor, got shape {self.shape}; use to_dense(), flat() or values"
            )
        return self.values

    @untraced
    def to_nested(self) -> TorchTensor:
        """As `torch.nested` (jagged layout); one ragged axis, on the batch axis."""
        return nested.to_nested(self)

    @untraced
    def to_awkward(self) -> Any:
        """As an Awkward array; ragged axes as lists, uniform ones as regular."""
        return awkward.to_awkward(self)

    @untraced
    def to_arrow(self) -> Any:
        """As a pyarrow array; ragged axes as lists, uniform ones as fixed-size lists; no copy on the CPU."""
        return arrow.to_arrow(self)

    @untraced
    def to_packed_sequence(self) -> PackedSequence:
        """As torch's `PackedSequence`, for recurrent networks."""
        return packed_sequence.to_packed_sequence(self)

    # ----------------------------------------------------------------------------------------------------- views

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged; a view."""
        if self.ndim < 2:
            raise AxisError(f"mT needs at least two axes, got shape {self.shape}")
        return self.permute_dims((*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))

    @property
    def T(self) -> Tensor:
        """A matrix with its two axes exchanged; a view."""
        if self.ndim != 2:
            raise AxisError(f"T needs two axes, got shape {self.shape}; mT exchanges the last two")
        return self.mT

    # ----------------------------------------------------------------------------------------------------- index

    def __len__(self) -> int:
        if not self.order:
            raise TypeError("a 0-d tensor has no len()")
        first = self.shape[0]
        if isinstance(first, Ragged):
            raise TypeError("the first axis is ragged, so it has no one length; see x.lengths")
        return first

    @untraced
    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.rows())

    @untraced
    def __contains__(self, item: Any) -> bool:
        if not isinstance(item, (Tensor, TorchTensor, *broadcast.NUMBERS)):
            raise TypeError(f"`in` looks for a number or a tensor that broadcasts, got {type(item).__name__}")
        found = (self == item).values
        if not self.structure.is_exact:
            found = found & self.structure.defined_rows(found)
        return bool(host_door.read_if_device(found.any(), "`in`"))

    # ------------------------------------------------------------------------------------------ compare, convert

    __hash__ = object.__hash__

    @untraced
    def __bool__(self) -> bool:
        values = combine.exact(self).values
        if values.numel() != 1:
            raise ValueError(f"the truth value of a tensor of shape {self.shape} is ambiguous; it needs one element")
        return bool(values)

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.ndim or self.dtype not in promotion.INTEGERS:
            raise TypeError(f"only a 0-d integer tensor is an index, got {self.dtype} of shape {self.shape}")
        return int(self.values)

    @untraced
    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.ndim else str(self)

    def numpy(self) -> Any:
        """The memory of a dense tensor as a numpy array; a copy, if torch has put off conjugating its elements."""
        return self.torch().resolve_conj().resolve_neg().numpy()

    def __getattr__(self, name: str) -> Any:
        # Python asks this only for names that are not there; for a name of torch, the error says why.
        if not name.startswith("_") and hasattr(TorchTensor, name):
            way = "x.values is a torch tensor" if self.is_ragged else "x.torch() is a torch tensor"
            raise AttributeError(f"sr.Tensor has no {name}, which torch.Tensor has; {way}")
        raise AttributeError(f"sr.Tensor has no attribute {name!r}")

    @property
    def _is_param(self) -> bool:
        return False  # torch.nn.Parameter sets this on what it is given.

    @_is_param.setter
    def _is_param(self, value: bool) -> None:
        raise TypeError("a Parameter is a torch tensor: keep Parameter(x.values), and sr.from_lengths(p, …) around it")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if self.is_ragged:
            raise TypeError("numpy has no ragged arrays; use to_dense(), values or to_awkward()")
        if copy is False and (self.values.is_conj() or self.values.is_neg()):
            raise ValueError("torch has put off conjugating these elements, so they become no array without a copy")
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        import serrate
        from serrate.inspection import VERSIONS

        if api_version is not None and api_version not in VERSIONS:
            raise ValueError(f"api_version must be one of {', '.join(VERSIONS)}, got {api_version!r}")
        return serrate

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if self.is_ragged:
            raise BufferError("DLPack carries dense tensors; export x.values and x.offsets")
        # None means that streams need no order, which holds on the host only.
        given = -1 if stream is None and self.is_cuda else stream
        values = self.values.resolve_conj().resolve_neg()
        return values.__dlpack__(stream=given, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()

    # --------------------------------------------------------------------------------------- memory and autograd

    def _with(self, values: TorchTensor) -> Tensor:
        """The same structure and order around other values of the same packed size."""
        if not self.is_ragged:
            return Tensor(values, team=self.team)
        return Tensor(values, self.structure, self.order, self.team)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """The tensor on `device` (array API); on a CUDA `stream` if one is given, a torch stream or its number."""
        if stream is None:
            return self.to(device)
        if not torch.device(device).type == self.device.type == "cuda":
            raise ValueError(f"stream orders copies between CUDA devices, got {self.device} and {device}")
        given = stream if isinstance(stream, torch.cuda.Stream) else torch.cuda.ExternalStream(stream)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(given):
            return self.to(device)

    def cpu(self) -> Tensor:
        """The tensor on the host."""
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Tensor:
        """The tensor on a CUDA device."""
        return self.to("cuda" if device is None else device, non_blocking=non_blocking)

    @untraced
    def pin_memory(self) -> Tensor:
        """Values and host offsets in page-locked memory, so that `.to("cuda", non_blocking=True)` does not wait."""
        axes = (Ragged(a.partition.pinned(), a.parents) if isinstance(a, Ragged) else a for a in self.structure.axes)
        structure = Structure(axes, self.structure.capacity) if self.is_ragged else DENSE
        return Tensor(self.values.pin_memory(), structure, self.order, self.team)

    def is_pinned(self) -> bool:
        """Whether the values are in page-locked memory."""
        return self.values.is_pinned()

    @untraced
    def record_stream(self, stream: Any) -> None:
        """Tell the allocator that `stream` uses the tensor."""
        self.values.record_stream(stream)
        for p in self.partitions:
            p.offsets_on(self.device).record_stream(stream)

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into the values."""
        return self.values.requires_grad

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for gradients of the values."""
        self.values.requires_grad_(requires_grad)
        return self

    def retain_grad(self) -> None:
        """Keep the gradient of values that are not a leaf."""
        self.values.retain_grad()

    @property
    def is_leaf(self) -> bool:
        """Whether the values have no history."""
        return self.values.is_leaf

    @property
    def grad_fn(self) -> Any:
        """The autograd node that made the values."""
        return self.values.grad_fn

    @property
    def grad(self) -> Tensor | None:
        """The gradient of the values, with the same structure."""
        return None if self.values.grad is None else self._with(self.values.grad)

    @grad.setter
    def grad(self, gradient: Tensor | TorchTensor | None) -> None:
        if isinstance(gradient, Tensor):
            if not gradient.structure.same_as(self.structure) or gradient.order != self.order:
                raise ValueError(f"the gradient must have shape {self.shape}, got {gradient.shape}")
            gradient = gradient.values
        self.values.grad = gradient

    @untraced
    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False) -> None:
        """Run autograd from here; `gradient` has this tensor's shape and may be left out for one element."""
        if gradient is not None:
            gradient = broadcast.align(gradient, self)
            gradient = torch.as_tensor(gradient, dtype=self.dtype, device=self.device).expand(self.values.shape)
        self.values.backward(gradient, retain_graph=retain_graph, create_graph=create_graph)  # type: ignore[no-untyped-call]

    # --------------------------------------------------------------------------------------- print, copy, pickle

    @untraced
    def __repr__(self) -> str:
        return printing.to_text(self)

    @untraced
    def _repr_html_(self) -> str:
        return printing.to_html(self)

    def __copy__(self) -> Tensor:
        return Tensor(self.values, self.structure, self.order, self.team)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        import copy

        made = memo[id(self)] = self._with(copy.deepcopy(self.values, memo))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return persist.reduce(self)

    def _axis(self, axis: SupportsIndex) -> int:
        """The number of an axis, which counts from the end if negative; an error if there is no such axis."""
        try:
            number = operator.index(axis)
        except TypeError:
            raise TypeError(f"an axis is an integer, got {axis!r:.40}") from None
        ndim = len(self.order)
        if not -ndim <= number < ndim:
            raise AxisError(f"axis {number} is out of range for a tensor of {ndim} axes, shape {self.shape}")
        return number % ndim


def as_tensor(given: Any) -> Tensor:
    """`given`, a Tensor or a torch tensor, as a Tensor."""
    if isinstance(given, Tensor):
        return given
    if isinstance(given, torch.Tensor):
        return Tensor(given)
    raise TypeError(f"expected an sr.Tensor or a torch.Tensor, got {type(given).__name__}")
