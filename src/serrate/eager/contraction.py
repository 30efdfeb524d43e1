"""Contraction of two packed operands, component by component, differentiable any number of times.

Each component of an operand is a dense block: its packed axes inside the component (the *tail*), then its features.
Blocks of like lengths are multiplied together, one library call per length class. Lengths that only the device knows
are never waited for where one ragged axis is enough: rows are cut into tiles, of which the host knows the most there
can be. The gradient of a contraction is a contraction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from serrate.eager.blocks import Lengths, Side
from serrate.eager.classes import LengthClass
from serrate.eager.precision import WAITING, for_products
from serrate.native import row_products as library
from serrate.native.loading import reads
from serrate.tensor import abstract
from serrate.tensor.differentiable import Differentiable
from serrate.tensor.partition import Partition

_TILE = 64  # So many rows are in a tile, or fewer where components have fewer.
_COPIES = 2**26  # At most so many elements are copied at once.
_FEW = 4  # Up to so many length classes are faster than tiles.


@dataclass(frozen=True, eq=False)
class Contraction:
    """What is multiplied and summed: a label missing from `out` is summed over."""

    left: Side
    right: Side
    out: Side
    lengths: Lengths

    @cached_property
    def equation(self) -> str:
        """The equation for torch.einsum of two batches of blocks."""
        letters: dict[str, str] = {}
        for label in (*self.left.labels, *self.right.labels):
            letters.setdefault(label, "abcdefghijklmopqrstuvwxyz"[len(letters)])
        sides = ["n" + "".join(letters[label] for label in s.labels) for s in (self.left, self.right, self.out)]
        return f"{sides[0]},{sides[1]}->{sides[2]}"

    def __call__(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """The packed values of the product, in the type that autocast wants of products."""
        left, right = for_products(left, right)
        return _Contract.call(left, right, self)

    def by_left(self) -> Contraction:
        """The gradient for the left operand: out · right."""
        return Contraction(self.out, self.right, self.left, self.lengths)

    def by_right(self) -> Contraction:
        """The gradient for the right operand: left · out."""
        return Contraction(self.left, self.out, self.right, self.lengths)


class _Contract(Differentiable):
    @staticmethod
    def forward(left: torch.Tensor, right: torch.Tensor, plan: Contraction) -> torch.Tensor:
        return _compute(plan, left, right)

    @staticmethod
    def composed(left: torch.Tensor, right: torch.Tensor, plan: Contraction) -> torch.Tensor:
        return _compose(plan, left, right)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        left, right, ctx.plan = inputs
        ctx.save_for_backward(left, right)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        left, right = ctx.saved_tensors
        plan: Contraction = ctx.plan
        for_left = plan.by_left()(gradient, right.conj()) if ctx.needs_input_grad[0] else None
        for_right = plan.by_right()(left.conj(), gradient) if ctx.needs_input_grad[1] else None
        return for_left, for_right, None


def _features(plan: Contraction, left: torch.Tensor, right: torch.Tensor) -> list[int]:
    """The sizes of the features of the product."""
    sizes = dict(zip(plan.left.features, left.shape[1:], strict=True))
    sizes |= dict(zip(plan.right.features, right.shape[1:], strict=True))
    return [sizes[label] for label in plan.out.features]


def _compose(plan: Contraction, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The product without a write in place: blocks of all classes are joined, then each row is taken from its block."""
    features, rows, device = _features(plan, left, right), plan.out.rows.num_values, left.device
    if not plan.lengths.partitions:
        return _whole(plan, left, right, features)
    made, places = [], []
    for group in plan.lengths.classes:
        blocks = [_block(plan, side, values, group) for side, values in ((plan.left, left), (plan.right, right))]
        made.append(torch.einsum(plan.equation, *blocks).flatten(0, len(plan.out.tail)))
        places.append(plan.lengths.cells(plan.out, group, device).places(rows))
    if not made:
        return left.new_zeros((rows, *features))
    joined = torch.cat(made)
    found = torch.full((rows + 1,), joined.shape[0], device=device)  # A row in no class is 0.
    found = found.scatter(0, torch.cat(places), torch.arange(joined.shape[0], device=device))[:rows]
    return torch.cat([joined, joined.new_zeros((1, *features))]).index_select(0, found)


def _compute(plan: Contraction, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    lengths = plan.lengths
    features = _features(plan, left, right)
    if not lengths.partitions:
        return _whole(plan, left, right, features)
    if abstract.current() is not None:  # The type of a product does not depend on how it is computed.
        return left.new_empty((plan.out.rows.num_values, *features))
    for made in (_compiled(plan, left, right), _grouped(plan, left, right)):
        if made is not None:
            return made
    if len(lengths.partitions) == 1 and (left.is_cuda or not lengths.partitions[0].is_host_born):
        tiles = _Tiles(plan, left, right, features)
        # On CUDA tiles take a few launches, and length classes several each.
        waits = not lengths.partitions[0].is_host_born
        if tiles.fits and (waits or (len(lengths.classes) > _FEW and tiles.at_once)):
            return tiles.compute()
    rows = plan.out.rows.num_values
    out = left.new_zeros((rows + 1, *features))  # What stands for no entry is written to a spare row past the last.
    for group in lengths.classes:
        first = _block(plan, plan.left, left, group)
        same = left is right and plan.left.tail == plan.right.tail
        second = first if same else _block(plan, plan.right, right, group)
        _store(plan, out, torch.einsum(plan.equation, first, second), group)
    return out[:rows]


def _whole(plan: Contraction, left: torch.Tensor, right: torch.Tensor, features: list[int]) -> torch.Tensor:
    """The product of components that have no ragged axis inside: all of them form one batch."""
    count = plan.out.rows.num_components
    pairs = ((plan.left, left), (plan.right, right))
    blocks = [values.reshape(count, *plan.lengths.sizes(side), *values.shape[1:]) for side, values in pairs]
    return torch.einsum(plan.equation, *blocks).reshape(plan.out.rows.num_values, *features)


def _block(plan: Contraction, side: Side, values: torch.Tensor, group: LengthClass) -> torch.Tensor:
    """The class's blocks as [members, *tail, *features], 0 where a summed axis has no entry."""
    sizes = plan.lengths.sizes(side, group)
    shape = (group.members.numel(), *sizes, *values.shape[1:])
    run = plan.lengths.run(side, group)
    if run is not None:
        return values.narrow(0, *run).reshape(shape)
    summed = any(label not in plan.out.tail for label in side.tail)
    return plan.lengths.cells(side, group, values.device).read(values, blank=summed).view(shape)


def _store(plan: Contraction, out: torch.Tensor, blocks: torch.Tensor, group: LengthClass) -> None:
    run, flat = plan.lengths.run(plan.out, group), blocks.flatten(0, len(plan.out.tail))
    if run is not None:
        out.narrow(0, *run).copy_(flat)
        return
    out.index_copy_(0, plan.lengths.cells(plan.out, group, out.device).places(out.shape[0] - 1), flat)


class _Matrices(NamedTuple):
    """A product along one ragged axis as one of matrices."""

    sums: bool
    """Whether it sums over the ragged axis: [a, rows] @ [rows, b] in each component. Else it is [rows, a] @ [a, b]."""
    swapped: bool
    """Whether the right operand is what stands on the left of that."""
    turned: bool
    """Whether the blocks [a, b] are stored as [b, a]."""


def _matrices(plan: Contraction) -> _Matrices | None:
    """The product as one of matrices; None where it is none."""
    label = tuple(plan.lengths.number)
    sides = (plan.left, plan.right, plan.out)
    if len(label) != 1 or any(side.tail not in ((), label) for side in sides):
        return None
    a, b, out = (side.features for side in sides)
    match [bool(side.tail) for side in sides]:
        case [True, False, True] if len(a) == len(out) == 1 and sorted(b) == sorted((*a, *out)):
            return _Matrices(False, False, b != (*a, *out))
        case [False, True, True] if len(b) == len(out) == 1 and sorted(a) == sorted((*b, *out)):
            return _Matrices(False, True, a != (*b, *out))
        case [True, True, False] if len(a) == len(b) == 1 and out in ((*a, *b), (*b, *a)):
            return _Matrices(True, out != (*a, *b), False)
    return None


def _compiled(plan: Contraction, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor | None:
    """Products of the rows of each component by compiled code, where the product is one: floats on the CPU."""
    if len(plan.lengths.partitions) != 1 or not library.serves(left, right) or not reads(left, right):
        return None
    form = _matrices(plan)
    if form is None:
        return None
    first, second = (right, left) if form.swapped else (left, right)
    ends, rows = plan.lengths.partitions[0].offsets_on(left.device), plan.out.rows.num_values
    if form.sums:
        return library.product(1, first, second, ends) if first.shape[0] == second.shape[0] else None
    if first.shape[0] != rows:
        return None
    return library.product(0, second, first, ends) if form.turned else library.product(2, first, second, ends)


def _grouped(plan: Contraction, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor | None:
    """torch's grouped matmul, where the product is one: bfloat16 on CUDA, one ragged axis, matrices."""
    if not (left.is_cuda and left.dtype == right.dtype == torch.bfloat16):
        return None
    form = _matrices(plan)
    if form is None:
        return None
    ends = plan.lengths.partitions[0].offsets_on(left.device)[1:].to(torch.int32)
    first, second = (right, left) if form.swapped else (left, right)
    if form.sums:
        return _grouped_mm(first.T, second, ends)
    return _grouped_mm(first, second.mT if form.turned else second, ends)


def _grouped_mm(left: torch.Tensor, right: torch.Tensor, ends: torch.Tensor) -> torch.Tensor | None:
    """torch's grouped matmul; None if it would refuse: lines must be contiguous and multiples of 16 bytes long."""
    lines = [next((n for n, step in zip(x.shape, x.stride(), strict=True) if step == 1), 0) for x in (left, right)]
    if 0 in (*left.shape, *right.shape, ends.numel()) or any(n % 8 or not n for n in lines):
        return None
    return F.grouped_mm(left, right, offs=ends)


class _Tiles:
    """Tiles, each of rows of one component. The host needs no length to know how many there can be."""

    def __init__(self, plan: Contraction, left: torch.Tensor, right: torch.Tensor, features: list[int]) -> None:
        self.plan, self.left, self.right, self.features = plan, left, right, features
        tails = (plan.left.tail, plan.right.tail, plan.out.tail)
        ragged = tuple(plan.lengths.number)
        self.fits = len(ragged) == 1 and all(tail in ((), ragged) for tail in tails)
        sizes = (math.prod(left.shape[1:]), math.prod(right.shape[1:]), math.prod(features))
        # Each tile gets a copy of what it needs of its component, so only some tiles are computed at once.
        copied = [size for size, tail in zip(sizes, tails, strict=True) if not tail]
        self.chunk = max(_COPIES // max(1, *copied), 1) if copied else _COPIES

    @cached_property
    def cells(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The rows of each tile, which of these exist, and the component of each tile."""
        (partition,) = self.plan.lengths.partitions
        device = self.left.device
        return partition.derived(("tiles", device), lambda: _make_tiles(partition, device))

    @property
    def at_once(self) -> bool:
        """Whether one chunk is enough."""
        return len(self.cells[0]) <= self.chunk

    @property
    def is_empty(self) -> bool:
        """Whether an operand has no rows. The other may then have room for rows, all of which are undefined."""
        sides = ((self.plan.left, self.left), (self.plan.right, self.right))
        return any(side.tail and not values.shape[0] for side, values in sides)

    def compute(self) -> torch.Tensor:
        """The product. Rows past the last offset are in no tile."""
        plan, rows = self.plan, self.plan.out.rows.num_values
        wide = WAITING.get(self.left.dtype, self.left.dtype)
        summed = not plan.out.tail
        shape = (rows + (not summed), *self.features)
        out = torch.zeros(shape, dtype=wide if summed else self.left.dtype, device=self.left.device)
        tiles = 0 if self.is_empty else self.cells[0].shape[0]
        for first in range(0, tiles, self.chunk):
            cells, valid, component = (part[first : first + self.chunk] for part in self.cells)
            blocks = [
                self._block(side.tail, values, cells, valid, component)
                for side, values in ((plan.left, self.left), (plan.right, self.right))
            ]
            made = torch.einsum(plan.equation, *blocks)
            if summed:
                out.index_add_(0, component, made.to(wide))
            else:
                out.index_copy_(0, torch.where(valid, cells, rows).flatten(), made.flatten(0, 1))
        return out.to(self.left.dtype) if summed else out[:rows]

    def _block(
        self, tail: tuple[str, ...], values: torch.Tensor, cells: torch.Tensor, valid: torch.Tensor, of: torch.Tensor
    ) -> torch.Tensor:
        if not tail:
            return values.index_select(0, of)
        made = values.index_select(0, cells.flatten()).view(*cells.shape, *values.shape[1:])
        if self.plan.out.tail:  # What stands for no row is stored nowhere.
            return made
        return made.masked_fill_(~valid.view(*cells.shape, *[1] * (values.ndim - 1)), 0)


def _make_tiles(partition: Partition, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The rows of each tile, [tiles, rows], which of these exist, and the component of each tile."""
    entries, components = partition.num_values, partition.num_components
    tile = next((t for t in (_TILE, _TILE // 2) if entries >= t * components), _TILE // 4)
    count = (entries + components * (tile - 1)) // tile if entries and components else 0
    offsets = partition.offsets_on(device).to(torch.int64)
    ends = torch.cumsum((torch.diff(offsets) + tile - 1) // tile, 0)
    tiles = torch.arange(count, device=device)
    component = torch.searchsorted(ends, tiles, right=True).clamp(max=max(components - 1, 0))
    if not count:
        empty = torch.zeros(0, tile, dtype=torch.int64, device=device)
        return empty, empty.to(torch.bool), component
    before = torch.where(component > 0, ends[(component - 1).clamp(min=0)], 0)
    cells = (offsets[component] + (tiles - before) * tile)[:, None] + torch.arange(tile, device=device)
    valid = cells < offsets[component + 1][:, None]
    return torch.where(valid, cells, 0), valid, component
