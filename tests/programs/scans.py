"""Steps along one axis: scans, running extremes, differences."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tests.programs.broadcast import kind_of
from tests.programs.elementwise import modulo
from tests.programs.leaves import UNSIGNED
from tests.programs.lines import groups, kept, positions, resized
from tests.programs.mapped import Mapped, is_chain
from tests.programs.operands import check_kinds
from tests.programs.program import Draw, Environment, Step, generator
from tests.programs.reductions import is_free, precise, random_axes

from serrate.ops.record import TABLE

Function = Callable[[torch.Tensor], torch.Tensor]


def chosen_axis(draw: Draw, x: Mapped) -> tuple[str, int] | None:
    found = random_axes(draw, x, several=False, none=False)
    return None if found is None else (found[0], found[1][0])


def ordinary(x: Mapped) -> bool:
    """A dtype that torch scans and sorts."""
    return x.dtype not in UNSIGNED


def scanned(name: str, initial: bool, dtype: torch.dtype | None) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        if dtype is not None:
            x = x.to(dtype)
        elif not x.is_floating_point() and not x.is_complex():
            unsigned = x.dtype in (*UNSIGNED, torch.uint8)
            x = x.to(torch.int64)
            return with_first(x).to(torch.uint64) if unsigned else with_first(x)
        return precise(with_first, x.dtype)(x)

    def with_first(x: torch.Tensor) -> torch.Tensor:
        made = torch.cumsum(x, 0) if name == "cumulative_sum" else torch.cumprod(x, 0)
        first = x.new_zeros(1) if name == "cumulative_sum" else x.new_ones(1)
        return torch.cat([first, made]) if initial else made

    return run


@generator(3)
def scan(draw: Draw) -> Step | None:
    name = draw.tensor()
    if name is None:
        return None
    x = draw[name]
    found = chosen_axis(draw, x)
    if found is None:
        return None
    text, axis = found
    function = draw.choice(("cumulative_sum", "cumulative_prod"))
    initial = draw.chance(0.4)
    reference = scanned(function, initial, None)

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        check_kinds(TABLE[function].kinds, x)
        return resized(x, axis, reference) if initial else kept(x, [axis], reference)

    words = f"sr.{function}({name}{text}{', include_initial=True' if initial else ''})"
    quiet = is_chain(x) and is_free(x, [axis])
    return Step(function, words, oracle, (name,), (draw.name(),), waits=not quiet)


@generator(1.5)
def running_extreme(draw: Draw) -> Step | None:
    name = draw.tensor(lambda x: ordinary(x) and kind_of(x.dtype) < 3)
    if name is None:
        return None
    x = draw[name]
    found = chosen_axis(draw, x)
    if found is None:
        return None
    text, axis = found
    function = draw.choice(("cummax", "cummin"))

    def oracle(env: Environment) -> tuple[Mapped, Mapped]:
        x = env[name]
        where = positions(x, axis)
        values = kept(x, [axis], lambda row: getattr(torch, function)(row, 0).values if row.numel() else row)
        ranks = {}
        for members in groups(x, [axis]).values():
            row = x.flat[torch.tensor(members)]
            for k, i in zip(members, getattr(torch, function)(row, 0).indices.tolist(), strict=True):
                ranks[k] = members[i]
        found = torch.tensor([ranks[k] for k in range(len(x.indices))], dtype=torch.int64)
        return values, x.computed(where.flat[found])

    quiet = is_chain(x) and is_free(x, [axis])
    names = (draw.name(), draw.name())
    return Step(function, f"sr.{function}({name}{text})", oracle, (name,), names, waits=not quiet, same_shape=True)


@generator(2)
def difference(draw: Draw) -> Step | None:
    name = draw.tensor()
    if name is None:
        return None
    x = draw[name]
    found = chosen_axis(draw, x)
    if found is None:
        return None
    text, axis = found
    times = draw.choice((0, 1, 1, 1, 2, 3))

    def once(row: torch.Tensor) -> torch.Tensor:
        if row.dtype == torch.bool:
            return row[1:] ^ row[:-1]
        if row.dtype in UNSIGNED:
            return modulo(torch.diff(row.to(torch.int64)), row.dtype)
        return torch.diff(row)

    def oracle(env: Environment) -> Mapped:
        x = env[name]
        if times == 0:
            return x.copied()

        def run(row: torch.Tensor) -> torch.Tensor:
            for _ in range(times):
                row = once(row)
            return row

        return resized(x, axis, run)

    words = f"sr.diff({name}{text}, n={times})" + (".clone()" if times == 0 else "")
    quiet = is_chain(x) and is_free(x, [axis])
    return Step("diff", words, oracle, (name,), (draw.name(),), waits=not quiet)
