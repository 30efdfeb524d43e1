"""Tensors as text, as HTML and as Python lists. Text and HTML look at a few entries only, however large the tensor."""

from __future__ import annotations

import html
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from serrate.tensor import abstract, host
from serrate.tensor.convert.chain import cells_of, to_levels
from serrate.tensor.structure import Ragged

if TYPE_CHECKING:
    from serrate.tensor.tensor import Tensor

LAST_AXIS = 12  # So many entries of the last axis are all shown; of more, EDGE on each side.
EDGE = 3
MAX_LINES = 24
LINE = 120
MAX_BARS = 24


# --------------------------------------------------------------------------------------------------------- lists


def to_list(x: Tensor) -> Any:
    """Nested Python lists."""
    if not x.is_ragged:
        return host.read_if_device(x.values, "tolist()").tolist()
    if isinstance(x.shape[0], Ragged):
        raise TypeError(f"the first axis of shape {x.shape} is ragged; permute another to the front for lists")
    outermost, levels, leaf = to_levels(x)
    entries = host.read_if_device(leaf, "tolist()").tolist()
    cells = cells_of(outermost, levels)
    for depth in reversed(range(len(levels))):
        level = levels[depth]
        if isinstance(level, int):
            entries = [entries[i * level : (i + 1) * level] for i in range(cells[depth])]
        else:
            offsets = level.host_offsets("tolist()").tolist()
            entries = [entries[a:b] for a, b in pairwise(offsets)]
    return entries


# ---------------------------------------------------------------------------------------------------------- text


def to_text(x: Tensor) -> str:
    """`sr.Tensor(body, shape=…, dtype=…, device=…)`, and what autograd knows."""
    prefix = "sr.Tensor("
    if not isinstance(x.values, torch.Tensor):  # A tree function may put anything in their place.
        return f"{prefix}values={x.values!r}, structure={x.structure})"
    # A ragged first axis cannot be walked, so the packed values are shown.
    if x.ndim and isinstance(x.shape[0], Ragged):
        prefix += "packed "
    body = "\n".join(_body_lines(x, len(prefix)))
    notes = [f"shape={x.shape}", f"dtype={x.dtype}", f"device={str(x.device)!r}"]
    if x.values.grad_fn is not None:
        notes.append(f"grad_fn=<{x.values.grad_fn.name()}>")
    elif x.requires_grad:
        notes.append("requires_grad=True")
    end = len(body) - body.rfind("\n")
    gap = " " if end + len(", ".join(notes)) < LINE else "\n" + " " * len(prefix)
    return f"{prefix}{body},{gap}{', '.join(notes)})"


def _body_lines(x: Tensor, indent: int) -> list[str]:
    if x.device.type == "meta" or abstract.current() is not None:  # There are no elements to show.
        return ["..."]
    tree = _shown(x, _per_axis(x.ndim))
    cells = _format([leaf for leaf in _leaves(tree) if leaf is not _GAP])
    lines = _lines(tree, iter(cells), indent)
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 2], " " * indent + "…,", lines[-1]]
    return lines


_GAP = object()


def _per_axis(ndim: int) -> list[int]:
    """How many entries of each axis are shown, so that outer axes together stay within a screenful."""
    outer = {1: 0, 2: 12, 3: 4, 4: 2}.get(ndim, 2)
    return [*[outer] * (ndim - 1), LAST_AXIS]


def _shown(x: Tensor, limits: list[int]) -> Any:
    """Nested lists of the few entries shown, gaps marked."""
    if x.ndim == 0:
        return host.read_if_device(x.values, "printing").item()
    if isinstance(x.shape[0], Ragged):
        return _shown(x.flat(), _per_axis(x.flat().ndim))
    size, limit = len(x), limits[0]
    edge = EDGE if len(limits) == 1 else max(limit // 2, 1)
    limit += len(limits) > 1  # A gap that stands for one row would save nothing.
    picks = list(range(size)) if size <= limit else [*range(edge), *range(size - edge, size)]
    if len(limits) == 1:
        entries = host.read_if_device(_ends(x.values.detach(), edge, size <= limit), "printing").tolist()
    else:
        entries = [_shown(x[i], limits[1:]) for i in picks]
    if size > limit:
        entries.insert(edge, _GAP)
    return entries


def _ends(values: torch.Tensor, edge: int, whole: bool) -> torch.Tensor:
    return values if whole else torch.cat([values[:edge], values[-edge:]])


def _leaves(tree: Any) -> list[Any]:
    return [leaf for branch in tree for leaf in _leaves(branch)] if isinstance(tree, list) else [tree]


def _lines(tree: Any, cells: Any, indent: int) -> list[str]:
    if tree is _GAP:
        return ["…"]
    if not isinstance(tree, list):
        return [next(cells)]
    if not any(isinstance(branch, list) for branch in tree):
        return ["[" + ", ".join("…" if leaf is _GAP else next(cells) for leaf in tree) + "]"]
    blocks = [_lines(branch, cells, indent + 1) for branch in tree]
    lines: list[str] = []
    for i, block in enumerate(blocks):
        pad = " " * (indent + 1) if i else "["
        end = "]" if i == len(blocks) - 1 else ","
        lines += [pad + block[0], *block[1:]]
        lines[-1] += end
    return lines


def _format(numbers: list[Any]) -> list[str]:
    """Numbers as texts of one width and precision."""
    if not numbers or not isinstance(numbers[0], float):
        texts = [str(n) for n in numbers]
    else:
        sizes = [abs(n) for n in numbers if math.isfinite(n) and n]
        if all(n == int(n) for n in numbers if math.isfinite(n)) and max(sizes, default=0) < 1e8:
            texts = [f"{n:.0f}." if math.isfinite(n) else str(n) for n in numbers]
        elif max(sizes) >= 1e5 or min(sizes) < 1e-4:
            texts = [f"{n:.4e}" for n in numbers]
        else:
            texts = [f"{n:.4f}" for n in numbers]
    width = max(map(len, texts), default=0)
    return [text.rjust(width) for text in texts]


# ---------------------------------------------------------------------------------------------------------- HTML


def to_html(x: Tensor) -> str:
    """A header, and a bar for each row, as long as the row. A bar shows its first values under the pointer."""
    head = f"<code>{html.escape(f'sr.Tensor, shape={x.shape}, dtype={x.dtype}, device={x.device}')}</code>"
    if not x.is_ragged or x.device.type == "meta" or isinstance(x.shape[0], Ragged):
        return f"<div>{head}<pre>{html.escape(to_text(x))}</pre></div>"
    size = len(x)
    picks = list(range(size)) if size <= MAX_BARS else [*range(MAX_BARS // 2), *range(size - MAX_BARS // 2, size)]
    shown = [x[i] for i in picks]
    counts = [_entries(row) for row in shown]
    longest = max([*counts, 1])
    bars = []
    for pick, row, count in zip(picks, shown, counts, strict=True):
        if size > MAX_BARS and pick == size - MAX_BARS // 2:
            bars.append(f"<div style='color:gray'>… {size - MAX_BARS} more rows …</div>")
        body = "\n".join(_body_lines(row, 0))
        bars.append(
            f"<div title='{html.escape(body, quote=True)}' style='display:flex;align-items:center;gap:.5em'>"
            f"<span style='width:4em;text-align:right;color:gray'>{pick}</span>"
            f"<span style='background:#4c78a8;height:.8em;width:{70 * count / longest:.2f}%;min-width:1px'></span>"
            f"<span style='color:gray'>{count}</span></div>"
        )
    return f"<div>{head}{''.join(bars)}</div>"


def _entries(row: Tensor) -> int:
    """How many packed entries a row has: its own ragged length, or the total below it."""
    if row.is_ragged:
        return row.values.shape[0]
    return int(row.values.shape[0]) if row.values.ndim else 1
