"""Models as users write them, compiled: attention, sparse features, experts, visits of patients, norms."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.compiler.harness import agree_with_gradients, same
from torch import nn
from torch.nn import functional as F

import serrate as sr


def rows(lengths: list[int], width: int = 8, seed: int = 0) -> sr.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return sr.from_lengths(torch.rand(sum(lengths), width, generator=generator), lengths)


class Layer(nn.Module):
    """A transformer layer over ragged sequences."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Dropout(dropout), nn.Linear(16, 8))

    def forward(self, x: Any) -> Any:
        batch, sequence = x.shape[:2]
        parts = torch.chunk(self.qkv(self.norm(x)), 3, -1)
        q, k, v = (sr.permute_dims(part.view(batch, sequence, 2, 4), (0, 2, 1, 3)) for part in parts)
        mixed = sr.permute_dims(sr.attention(q, k, v, causal=True), (0, 2, 1, 3)).view(batch, sequence, 8)
        x = x + self.out(mixed)
        return x + self.mlp(x)


class Recommender(nn.Module):
    """Dense features beside bags of sparse ones."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(20, 4, mode="sum"), nn.EmbeddingBag(10, 4, mode="mean")])
        self.bottom, self.top = nn.Linear(5, 4), nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, dense: Any, *ids: Any) -> Any:
        bags = [table(each) for table, each in zip(self.tables, ids, strict=True)]
        return self.top(torch.cat([F.relu(self.bottom(dense)), *bags], dim=1))


class Experts(nn.Module):
    """Each row goes to one expert, whose rows nobody counts on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.weights = nn.Linear(8, 3), nn.Parameter(torch.rand(3, 8, 8))

    def forward(self, x: Any) -> Any:
        chosen = torch.argmax(self.gate(x), dim=-1)
        groups = sr.group_by(x, chosen, 3)
        return groups.ungroup(F.gelu(sr.matmul(groups, self.weights)))


class Visits(nn.Module):
    """Codes of visits of patients."""

    def __init__(self) -> None:
        super().__init__()
        self.codes, self.mix = nn.Embedding(30, 8), nn.Linear(8, 4)

    def forward(self, codes: Any) -> Any:
        visits = F.relu(self.mix(sr.mean(self.codes(codes), axis=2)))
        return sr.max(visits, axis=1), sr.softmax(visits, axis=1)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.inner(x, x, x, need_weights=False)[0]


def ids(lengths: list[int], count: int, seed: int = 0) -> sr.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return sr.from_lengths(torch.randint(0, count, (sum(lengths),), generator=generator), lengths)


def codes(visits: list[int], seed: int = 0) -> sr.Tensor:
    lengths = [1 + number % 3 for number in range(sum(visits))]
    generator = torch.Generator().manual_seed(seed)
    return sr.from_lengths(torch.randint(0, 30, (sum(lengths),), generator=generator), [visits, lengths])


MODELS: dict[str, Any] = {
    "transformer": (Layer, lambda n: (rows([3, 0, 5][:n], seed=n),)),
    "transformer with dropout": (lambda: Layer(0.3), lambda n: (rows([3, 0, 5][:n], seed=n),)),
    "attention of torch": (Attending, lambda n: (rows([3, 1, 5][:n], seed=n),)),
    "encoder layer of torch": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda n: (rows([3, 1, 5][:n], seed=n),),
    ),
    "recommender": (
        Recommender,
        lambda n: (torch.rand(n, 5), ids([3, 0, 2][:n], 20), ids([1, 4, 1][:n], 10)),
    ),
    "experts": (Experts, lambda n: (rows([4, 0, 3][:n], seed=n),)),
    "experts of dense rows": (Experts, lambda n: (torch.rand(4 + n, 8),)),
    "visits": (Visits, lambda n: (codes([2, 1, 3][:n]),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_train_as_they_do_eagerly(name):
    make, batch = MODELS[name]
    torch.manual_seed(0)
    module = make()
    other = copy.deepcopy(module)
    made = sr.jit(module)
    for count in (3, 2):
        torch.manual_seed(count)
        given = batch(count)
        steps = []
        for run, trained in ((made, module), (other, other)):
            trained.zero_grad()
            torch.manual_seed(count)
            out = run(*given)
            first = out[0] if isinstance(out, tuple) else out
            values = first.values if isinstance(first, sr.Tensor) else first
            (values * torch.linspace(-1, 1, values.numel()).view(values.shape)).sum().backward()
            steps.append((out, {name: each.grad for name, each in trained.named_parameters()}))
        (got, mine), (want, theirs) = steps
        same(got, want, 20)
        for parameter, gradient in mine.items():
            torch.testing.assert_close(gradient, theirs[parameter], rtol=1e-3, atol=1e-5)
    assert made.stats.eager_calls == 0
    assert made.stats.traces <= 2


def test_statistics_of_a_norm_are_written_as_in_eager_code():
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x: Any) -> Any:
            return sr.from_lengths(self.norm(x.values), x.lengths[0])

    module = Normed()
    other = copy.deepcopy(module)
    made = sr.jit(module)
    for step in range(3):
        x = rows([3, 2], seed=step)
        same(made(x), other(x), 10)
        for (name, mine), (_, theirs) in zip(module.named_buffers(), other.named_buffers(), strict=True):
            torch.testing.assert_close(mine, theirs, msg=name)
    for each in (module, other):
        each.eval()
    same(made(rows([1, 4])), other(rows([1, 4])), 10)
    assert made.stats.eager_calls == 0


def test_what_goes_step_by_step_over_an_axis_of_any_size_is_not_traced_for_all_sizes():
    recurrent, x = nn.GRU(8, 4, batch_first=True), rows([3, 1, 5])
    made = sr.jit(lambda x: recurrent(x.to_dense(0.0).torch())[0])
    same(made(x), recurrent(x.to_dense(0.0).torch())[0])
    assert "step by step" in made.lower(x).reason
    for function in (lambda d: torch.unsafe_split(d, 2)[0] * 2, lambda d: sum(torch.unbind(d))):
        made = sr.jit(function)
        for count in (5, 4, 5):
            d = torch.rand(count, 2)
            same(made(d), function(d))
        assert made.stats.eager_calls == 0, "each size is a program of its own"


def test_losses_of_packed_rows():
    x, targets = rows([3, 0, 2]), ids([3, 0, 2], 8)
    agree_with_gradients(lambda x, t: F.cross_entropy(x.values, t.values), x, targets)
    agree_with_gradients(lambda x, t: F.mse_loss(x, t), x, x._with(x.values * 2))
