"""What `benchmarks.jit` compiles: functions of ragged rows, with what other libraries offer for the same work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F

import serrate as sr
from benchmarks.eager import Call
from benchmarks.schedules import offsets_of

with contextlib.suppress(ImportError):
    import fbgemm_gpu  # noqa: F401 (registers torch.ops.fbgemm)

FEATURES = 128
OURS = ("eager", "compiled")
PEERS = ("torch, packed", "torch.compile, packed", "torch.nested", "padded torch", "fbgemm")
Function = Callable[..., Any]
jagged = torch.ops.fbgemm


class Rows:
    """Two ragged tensors of the same lengths, in the form of each library."""

    def __init__(self, lengths: torch.Tensor, features: int = FEATURES) -> None:
        self.lengths, self.features, self.offsets = lengths, features, offsets_of(lengths)
        self.longest = int(lengths.max())
        self.values = [torch.randn(int(lengths.sum()), features) for _ in range(2)]
        self.x = sr.from_lengths(self.values[0], lengths)
        self.weight, self.bias, self.shift = (torch.randn(features) for _ in range(3))
        self.place = torch.empty_like(self.values[0])

    @cached_property
    def ids(self) -> torch.Tensor:
        """The row that each value belongs to."""
        return torch.arange(len(self.lengths)).repeat_interleave(self.lengths)

    @cached_property
    def dense(self) -> torch.Tensor:
        """The first of the two tensors, padded."""
        return self.x.to_dense().torch()

    @cached_property
    def mask(self) -> torch.Tensor:
        """Which cells of the padded tensor are no padding, with an axis of size 1 for the features."""
        return self.x.mask().torch()[..., None]

    @cached_property
    def cells(self) -> torch.Tensor:
        """Where the packed values stand among the cells of the padded tensor."""
        return self.mask.flatten().nonzero().flatten()

    @property
    def fits(self) -> bool:
        """Whether the padded tensor is at most four times as large as the packed one."""
        return len(self.lengths) * self.longest <= 4 * len(self.values[0])

    def padded_part(self) -> Rows:
        """These rows, or as many of them as need no more memory when they are padded than all of them packed."""
        if self.fits:
            return self
        return Rows(self.lengths[: max(len(self.values[0]) // self.longest, 1)], self.features)

    def given_to(self, library: str, values: torch.Tensor) -> Any:
        """Packed values as a library takes them."""
        if library in OURS:
            return self.x._with(values)
        if library == "padded torch":
            return self.x._with(values).to_dense().torch()
        if library == "torch.nested":
            ends = {"max_seqlen": self.longest, "min_seqlen": int(self.lengths.min())}
            return torch.nested.nested_tensor_from_jagged(values, self.offsets, **ends)
        return values

    def packed(self, result: Any, is_packed: bool) -> torch.Tensor:
        """The values of a library's result, packed if the result of the work is."""
        if isinstance(result, sr.Tensor):
            result = result.values if result.offsets else result.torch()
        if isinstance(result, (list, tuple)):
            result = result[0]
        if result.is_nested:
            return result.values()
        return result.flatten(0, 1)[self.cells] if is_packed and result.ndim == 3 else result


@dataclass(frozen=True)
class Work:
    """A function of ragged tensors and dense ones."""

    name: str
    function: Function
    ragged: int = 1
    """How many of the ragged tensors it takes first."""
    dense: tuple[torch.Tensor, ...] = ()
    peers: dict[str, Function] = field(default_factory=dict)
    """What each other library calls, by names of PEERS; it takes the same tensors in the library's form."""
    measure: str = "copy"
    """What it is measured by: a copy, a read, torch.add, or a copy of the padded tensor."""
    goal: str = ""
    is_packed: bool = True
    """Whether the result is ragged."""

    def arguments(self, rows: Rows, library: str, gradients: bool = False) -> tuple[list[Any], list[torch.Tensor]]:
        """What a library is given, and the leaves that gradients are asked for."""
        leaves, given = [], []
        for values in rows.values[: self.ragged]:
            if library in OURS or library.endswith("packed"):
                leaves.append(values.detach().requires_grad_(gradients))
                given.append(rows.given_to(library, leaves[-1]))
            else:
                given.append(rows.given_to(library, values).detach().requires_grad_(gradients))
                leaves.append(given[-1])
        dense = [each.detach().requires_grad_(gradients) for each in self.dense]
        return given + dense, leaves + dense

    def call(self, rows: Rows, library: str, function: Function, seed: torch.Tensor | None) -> Call:
        """A call of a library; with a seed, that and the gradients of all its tensors."""
        given, leaves = self.arguments(rows, library, gradients=seed is not None)
        if seed is None:
            return lambda: function(*given)
        start = rows.given_to(library, seed)
        start = start.values if library in OURS else start

        def call() -> Any:
            made = function(*given)
            return torch.autograd.grad(made.values if library in OURS else made, leaves, start)

        return call

    def functions(self) -> dict[str, Function]:
        """What each library calls."""
        made = {"eager": self.function, "compiled": sr.jit(self.function)} | self.peers
        if "torch, packed" in self.peers:
            made["torch.compile, packed"] = torch.compile(self.peers["torch, packed"], dynamic=True)
        return {name: made[name] for name in (*OURS, *PEERS) if name in made}

    def measures(self, rows: Rows) -> dict[str, Call]:
        """What the work is measured by: into memory that is there, and into new memory where there is much to write."""
        (x, y), place = rows.values, rows.place
        if self.measure == "read":
            return {"a read": x.sum}
        if self.measure == "padded copy":
            padded = torch.empty_like(rows.dense)
            return {"a copy, old memory": lambda: padded.copy_(rows.dense), "a copy, new memory": rows.dense.clone}
        if self.measure == "torch.add":
            return {"torch.add, old memory": lambda: torch.add(x, y, out=place), "torch.add, new memory": lambda: x + y}
        return {"a copy, old memory": lambda: place.copy_(x), "a copy, new memory": x.clone}


def normalized(x: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(x, (weight.shape[0],), weight, bias)


def activated(x: Any) -> Any:
    return F.gelu(x) * x + 1


def added(x: Any, y: Any) -> Any:
    return x + y


def block(x: Any, residual: Any, shift: Any, weight: Any, bias: Any) -> Any:
    return F.gelu(F.layer_norm(x + residual + shift, (weight.shape[0],), weight, bias))


def alike(function: Function) -> dict[str, Function]:
    """A function that torch's libraries call by the same name."""
    return dict.fromkeys(("torch, packed", "torch.nested", "padded torch"), function)


def works(rows: Rows) -> list[Work]:
    """The work that needs no padding, unless a library pads."""
    count, features, offsets, longest = len(rows.lengths), rows.features, rows.offsets, rows.longest
    norm = (rows.weight, rows.bias)

    def softmax(values: torch.Tensor) -> torch.Tensor:
        largest = torch.segment_reduce(values.detach(), "max", offsets=offsets, axis=0)
        made = (values - largest[rows.ids]).exp()
        return made / torch.zeros(count, features).index_add(0, rows.ids, made)[rows.ids]

    def padded_softmax(padded: torch.Tensor) -> torch.Tensor:
        return torch.softmax(padded.masked_fill(~rows.mask, -1e30), 1).masked_fill(~rows.mask, 0)

    softmaxes: dict[str, Function] = {
        "torch, packed": softmax,
        "torch.nested": partial(torch.softmax, dim=1),
        "padded torch": padded_softmax,
        "fbgemm": lambda v: jagged.jagged_softmax(v, offsets, longest)[0],
    }
    sums: dict[str, Function] = {
        "torch, packed": lambda v: torch.zeros(count, features).index_add(0, rows.ids, v),
        "torch.nested": partial(torch.sum, dim=1),
        "padded torch": lambda p: (p * rows.mask).sum(1),
    }
    running: dict[str, Function] = {name: partial(torch.cumsum, dim=1) for name in ("torch.nested", "padded torch")}
    faster = "at least 1.0 × as fast as torch.compile and 1.7 × as torch, on packed values"
    return [
        Work("softmax", partial(sr.softmax, axis=1), peers=softmaxes, goal="at most 1.8 copies"),
        Work(
            "sum", partial(sr.sum, axis=1), peers=sums, measure="read", goal="at most 1.3 reads", is_packed=False
        ),
        Work("layer_norm", normalized, dense=norm, peers=alike(normalized), goal="at most 1.3 copies"),
        Work("gelu(x) * x + 1", activated, peers=alike(activated), goal=faster),
        Work("x + y", added, 2, peers=alike(added), measure="torch.add"),
        Work("cumulative_sum", partial(sr.cumulative_sum, axis=1), peers=running, goal="at most 1.6 copies"),
        Work("block", block, 2, (rows.shift, *norm), alike(block), "torch.add"),
    ]  # fmt: skip


def padding(rows: Rows) -> list[Work]:
    """The work that pads rows, or takes padded ones."""
    count, longest, ends = len(rows.lengths), rows.longest, [rows.offsets]
    faster = "at least 1.3 × as fast as fbgemm"

    def pad(values: torch.Tensor) -> torch.Tensor:
        cells = values.new_zeros(count * longest, values.shape[1])
        return cells.index_copy(0, rows.cells, values).view(count, longest, -1)

    def packed(padded: torch.Tensor) -> torch.Tensor:
        return padded.flatten(0, 1).index_select(0, rows.cells)

    pads: dict[str, Function] = {
        "torch, packed": pad,
        "torch.nested": lambda n: torch.nested.to_padded_tensor(n, 0.0),
        "fbgemm": lambda v: jagged.jagged_to_padded_dense(v, ends, [longest], 0.0),
    }
    packs: dict[str, Function] = {
        "torch, packed": lambda _, d: packed(d),
        "fbgemm": lambda v, d: jagged.dense_to_jagged(d, ends, len(v))[0],
    }
    adds: dict[str, Function] = {
        "torch, packed": lambda v, d: v + packed(d),
        "padded torch": added,
        "fbgemm": lambda v, d: jagged.jagged_dense_elementwise_add_jagged_output(v, ends, d)[0],
    }
    dense = (rows.dense,)
    return [
        Work("to_dense", lambda x: x.to_dense(), 1, (), pads, "padded copy", faster, is_packed=False),
        Work("from_dense", lambda x, d: sr.from_dense(d, like=x), 1, dense, packs, "copy", faster),
        Work("x + from_dense(d)", lambda x, d: x + sr.from_dense(d, like=x), 1, dense, adds, "torch.add", faster),
    ]
