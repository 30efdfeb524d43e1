"""Layers of a transformer, compiled: forward and backward, against torch on padded rows and on packed values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import serrate as sr
from benchmarks.eager import Call, log_normal
from benchmarks.schedules import offsets_of
from benchmarks.tensor import lengths_of
from benchmarks.timing import interleaved

WIDTH, HEADS, BATCH, PARTS = 128, 4, 1024, 8
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "mkldnn::_linear_pointwise")
ATTENTION = ("aten::_scaled_dot_product_flash_attention_for_cpu",)
ATTENTION += tuple(f"{name}_backward" for name in ATTENTION)


class Layer(nn.Module):
    """Norm, attention, norm and MLP, each half with its residual; `attend` is given queries, keys and values."""

    def __init__(self, attend: Callable[..., Any]) -> None:
        super().__init__()
        self.attend = attend
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any, *where: Any) -> Any:
        normal = self.first(x)
        x = x + self.out(self.attend(self.query(normal), self.key(normal), self.value(normal), *where))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Layers(nn.Module):
    """Some layers, one after another."""

    def __init__(self, attend: Callable[..., Any], count: int) -> None:
        super().__init__()
        torch.manual_seed(0)  # the same weights for all that are compared
        self.layers = nn.ModuleList(Layer(attend) for _ in range(count))

    def forward(self, x: Any, *where: Any) -> Any:
        for layer in self.layers:
            x = layer(x, *where)
        return x


def by_heads(query: Any, key: Any, value: Any, mask: torch.Tensor | None = None) -> Any:
    """Attention within each row, of ragged tensors or of padded ones with a mask of their keys."""
    parts = (each.unflatten(-1, [HEADS, WIDTH // HEADS]).transpose(1, 2) for each in (query, key, value))
    return F.scaled_dot_product_attention(*parts, attn_mask=mask).transpose(1, 2).flatten(-2)


def by_cells(query: Any, key: Any, value: Any, cells: torch.Tensor, mask: torch.Tensor) -> Any:
    """Attention within each row of packed values, which are padded for it."""
    count, longest = mask.shape[0], mask.shape[-1]

    def padded(values: torch.Tensor) -> torch.Tensor:
        return values.new_zeros(count * longest, WIDTH).index_copy(0, cells, values).view(count, longest, WIDTH)

    made = by_heads(padded(query), padded(key), padded(value), mask)
    return made.flatten(0, 1).index_select(0, cells)


def measure_models(is_small: bool) -> None:
    """Print what a few layers take forward and backward, and which part of it products of matrices take."""
    count = 8 if is_small else BATCH
    for name, lengths in {"xnli": lengths_of("xnli", count), "log-normal": log_normal(count)}.items():
        _measure(name, lengths, layers=1)


def _measure(name: str, lengths: torch.Tensor, layers: int) -> None:
    rows = int(lengths.sum())
    values, seed = torch.randn(rows, WIDTH), torch.randn(rows, WIDTH)
    print(
        f"\n{layers} layers, {name}: {len(lengths)} rows, {rows} × {WIDTH} values, {HEADS} heads, forward and backward"
    )
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch._dynamo.reset()  # what torch.compile makes is made for a number of threads
        calls = {
            "compiled": _ours(lengths, values, seed, layers, is_compiled=True),
            "eager": _ours(lengths, values, seed, layers, is_compiled=False),
            "torch, sorted and padded": _sorted_and_padded(lengths, values, seed, layers),
            "torch.compile, packed": _packed(lengths, values, seed, layers),
        }
        expected = calls["eager"]()
        for who, call in calls.items():
            close = torch.allclose(call(), expected, rtol=1e-2, atol=1e-2)
            assert close, f"{who} finds another gradient of the first weight than eager code"
        times = interleaved(calls, rounds=15, seconds=15)
        print(f"  {f'{threads} thread' + 's' * (threads > 1):26} {'minimum':>12} {'median':>12}   products, attention")
        ours = times["compiled"]
        for who, (least, middle) in times.items():
            products, attention = _shares(calls[who])
            line = f"    {who:24} {least * 1e3:9.2f} ms {middle * 1e3:9.2f} ms   {products:7.0%}, {attention:7.0%}"
            faster = f"   compiled is {least / ours[0]:.2f} | {middle / ours[1]:.2f} × as fast{GOALS.get(who, '')}"
            print(line + faster * (who != "compiled"), flush=True)


GOALS = {
    "torch, sorted and padded": " (goal: at least 1.2)",
    "torch.compile, packed": " (goal: at least 1.1)",
}


def _stepped(model: nn.Module, run: Callable[[], None]) -> Call:
    """A forward and backward pass, from no gradients at all to those of a model; it returns the first of them."""

    def call() -> torch.Tensor:
        model.zero_grad()
        run()
        found = next(model.parameters()).grad
        assert found is not None
        return found.clone()

    return call


def _ours(lengths: torch.Tensor, values: torch.Tensor, seed: torch.Tensor, layers: int, is_compiled: bool) -> Call:
    model = Layers(by_heads, layers)
    function, x = sr.jit(model) if is_compiled else model, sr.from_lengths(values, lengths)
    return _stepped(model, lambda: function(x).values.backward(seed))


def _sorted_and_padded(lengths: torch.Tensor, values: torch.Tensor, seed: torch.Tensor, layers: int) -> Call:
    """Rows sorted by length, in micro-batches, each padded to its longest row; sorting and padding come before."""
    model = Layers(by_heads, layers)
    batches = []
    x, start = sr.from_lengths(values, lengths), sr.from_lengths(seed, lengths)
    for index in lengths.argsort().chunk(PARTS):
        some = x[index]
        batches.append(
            (some.to_dense().torch(), some.mask().torch()[:, None, None, :], start[index].to_dense().torch())
        )

    def run() -> None:
        for padded, mask, gradient in batches:
            model(padded, mask).backward(gradient)

    return _stepped(model, run)


def _packed(lengths: torch.Tensor, values: torch.Tensor, seed: torch.Tensor, layers: int) -> Call:
    """Packed values, padded for attention alone, with masks: all in one graph."""
    model = Layers(by_cells, layers)
    longest, places = int(lengths.max()), torch.arange(len(values))
    ids = torch.arange(len(lengths)).repeat_interleave(lengths)
    cells = ids * longest + places - offsets_of(lengths)[ids]
    mask = (torch.arange(longest) < lengths[:, None])[:, None, None, :]
    function = torch.compile(model, dynamic=False)
    return _stepped(model, lambda: function(values, cells, mask).backward(seed))


def _shares(call: Call) -> tuple[float, float]:
    """Which part of the time of a call products of matrices take, and which part torch's attention takes."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile, torch.profiler.record_function("whole"):
        call()
    events = {event.key: event for event in profile.key_averages()}
    whole = events["whole"].cpu_time_total
    found = [sum(events[key].self_cpu_time_total for key in keys if key in events) for keys in (PRODUCTS, ATTENTION)]
    return found[0] / whole, found[1] / whole
