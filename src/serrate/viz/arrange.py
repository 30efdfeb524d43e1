"""Where the boxes of a layered graph stand: no two overlap, lines run between them, few lines cross.

The layer of each node is given; edges lead to later layers. A line that passes a layer gets a place of its own there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from serrate.viz.svg import Point

BETWEEN = 16.0  # nodes of a layer
LAYERS_BETWEEN = 22.0
_PASSES = 8


@dataclass(frozen=True)
class Arrangement:
    """The upper left corner of each node, the way of each edge, and the size of the whole."""

    corners: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def separated_centres(wanted: Sequence[float], widths: Sequence[float], between: float) -> list[float]:
    """Centres as near to the wanted ones as can be (least squares), in the same order, at least `between` apart.

    Less the distance that must lie before each, the centres may not decrease: a monotone regression, which is solved by
    taking together neighbours that stand in each other's way.
    """
    before = [0.0]
    for left, right in pairwise(widths):
        before.append(before[-1] + (left + right) / 2 + between)
    together: list[tuple[float, int]] = []  # (sum, count)
    for want, distance in zip(wanted, before[: len(wanted)], strict=True):
        total, count = want - distance, 1
        while together and together[-1][0] / together[-1][1] > total / count:
            total, count = total + together[-1][0], count + together.pop()[1]
        together.append((total, count))
    free = [total / count for total, count in together for _ in range(count)]
    return [at + distance for at, distance in zip(free, before[: len(free)], strict=True)]


def arrange(sizes: Sequence[Point], edges: Sequence[tuple[int, int]], layers: Sequence[int]) -> Arrangement:
    """Place nodes of these sizes; `edges` leave and enter a node side by side in the order they are listed."""
    graph = _Graph(sizes, edges, layers)
    graph.order()
    graph.place()
    return graph.arrangement(sizes, edges)


class _Graph:
    """The nodes, and after them a node of no width for each layer that an edge passes."""

    def __init__(self, sizes: Sequence[Point], edges: Sequence[tuple[int, int]], layers: Sequence[int]) -> None:
        self.widths = [width for width, _ in sizes]
        self.rows: list[list[int]] = [[] for _ in range(max(layers) + 1)]
        for node, layer in enumerate(layers):
            self.rows[layer].append(node)
        self.heights = [max((sizes[node][1] for node in row), default=0.0) for row in self.rows]
        self.layer = list(layers)
        self.chains = [self._chain(start, end) for start, end in edges]
        self.above: list[list[int]] = [[] for _ in self.widths]
        self.below: list[list[int]] = [[] for _ in self.widths]
        for chain in self.chains:
            for upper, lower in pairwise(chain):
                self.below[upper].append(lower)
                self.above[lower].append(upper)
        self.x = [0.0] * len(self.widths)

    def _chain(self, start: int, end: int) -> list[int]:
        chain = [start]
        for layer in range(self.layer[start] + 1, self.layer[end]):
            chain.append(len(self.widths))
            self.rows[layer].append(len(self.widths))
            self.widths.append(0.0)
            self.layer.append(layer)
        return [*chain, end]

    def order(self) -> None:
        """Put nodes near their neighbours, downwards and upwards in turn; keep the order with the fewest crossings."""
        best = [list(row) for row in self.rows]
        fewest = self._crossings()
        for number in range(_PASSES):
            down = number % 2 == 0
            for row in self.rows if down else reversed(self.rows):
                self._sort(row, self.above if down else self.below)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self.rows], crossings
        self.rows = best

    def _places(self) -> list[int]:
        places = [0] * len(self.widths)
        for row in self.rows:
            for place, node in enumerate(row):
                places[node] = place
        return places

    def _sort(self, row: list[int], neighbours: list[list[int]]) -> None:
        places = self._places()
        wanted = {node: _mean([places[other] for other in neighbours[node]], places[node]) for node in row}
        row.sort(key=lambda node: wanted[node])

    def _crossings(self) -> int:
        places, found = self._places(), 0
        for row in self.rows:
            lines = [(places[upper], places[lower]) for upper in row for lower in self.below[upper]]
            found += sum((a - c) * (b - d) < 0 for at, (a, b) in enumerate(lines) for c, d in lines[:at])
        return found

    def place(self) -> None:
        """Let each layer in turn stand as near under and over its neighbours as it can."""
        for row in self.rows:
            self._place_row(row, [0.0] * len(row))
        for number in range(_PASSES):
            for row in self.rows if number % 2 == 0 else reversed(self.rows):
                near = [[self.x[other] for other in self.above[node] + self.below[node]] for node in row]
                self._place_row(row, [_mean(xs, self.x[node]) for xs, node in zip(near, row, strict=True)])
        left = min(self.x[node] - self.widths[node] / 2 for row in self.rows for node in row)
        self.x = [x - left for x in self.x]

    def _place_row(self, row: list[int], wanted: list[float]) -> None:
        for node, x in zip(row, separated_centres(wanted, [self.widths[node] for node in row], BETWEEN), strict=True):
            self.x[node] = x

    def arrangement(self, sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> Arrangement:
        tops = [sum(self.heights[:layer]) + LAYERS_BETWEEN * layer for layer in range(len(self.rows))]
        corners = tuple((self.x[n] - width / 2, tops[self.layer[n]]) for n, (width, _) in enumerate(sizes))
        leaving, entering = _ports([start for start, _ in edges]), _ports([end for _, end in edges])
        routes: list[tuple[Point, ...]] = []
        for number, chain in enumerate(self.chains):
            start, end = chain[0], chain[-1]
            x = corners[start][0] + self.widths[start] * leaving[number]
            top = tops[self.layer[start]]
            route = [(x, top + sizes[start][1]), (x, top + self.heights[self.layer[start]])]
            for node in chain[1:-1]:
                layer = self.layer[node]
                route += [(self.x[node], tops[layer]), (self.x[node], tops[layer] + self.heights[layer])]
            route.append((corners[end][0] + self.widths[end] * entering[number], tops[self.layer[end]]))
            routes.append(tuple(route))
        width = max(self.x[node] + self.widths[node] / 2 for row in self.rows for node in row)
        return Arrangement(corners, tuple(routes), width, tops[-1] + self.heights[-1])


def _ports(nodes: Sequence[int]) -> list[float]:
    """For each edge of a node, how far along its side it leaves or enters, from 0 to 1."""
    seen: dict[int, int] = {}
    order: list[int] = []
    for node in nodes:
        seen[node] = seen.get(node, 0) + 1
        order.append(seen[node])
    return [place / (seen[node] + 1) for place, node in zip(order, nodes, strict=True)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
