"""A small recommendation model written for TorchRec, run by Serrate: only the import line is another.

Run with: python examples/recommendation.py
"""

from __future__ import annotations

import torch
from torch import nn

from serrate.compat.torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, PoolingType

FEATURES = {"user": 50, "history": 200, "item": 200}
DIM = 8


class Ranker(nn.Module):
    """Pooled embeddings of sparse features meet each other and the dense features; a network scores them."""

    def __init__(self) -> None:
        super().__init__()
        users = EmbeddingBagConfig(num_embeddings=50, embedding_dim=DIM, name="user_table", feature_names=["user"])
        items = EmbeddingBagConfig(
            num_embeddings=200,
            embedding_dim=DIM,
            name="item_table",
            feature_names=["history", "item"],  # one table for both
            pooling=PoolingType.MEAN,
        )
        self.sparse = EmbeddingBagCollection(tables=[users, items])
        self.dense = nn.Sequential(nn.Linear(4, DIM), nn.ReLU())
        self.over = nn.Sequential(nn.Linear(6 + DIM, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        pooled = self.sparse(sparse)  # a KeyedTensor [batch, 3 · DIM]
        base = self.dense(dense)
        together = torch.stack([base, *pooled.to_dict().values()], dim=1)  # [batch, 4, DIM]
        meet = together @ together.transpose(1, 2)
        above = torch.triu_indices(4, 4, offset=1)
        return self.over(torch.cat([base, meet[:, above[0], above[1]]], dim=1)).squeeze(1)


def make_batch(size: int) -> tuple[torch.Tensor, KeyedJaggedTensor, torch.Tensor]:
    """Dense features, one user, up to nine items of history (or none), one item; clicked if its number is even."""
    lengths = torch.cat([torch.ones(size), torch.randint(0, 10, (size,)), torch.ones(size)]).to(torch.int32)
    counts = lengths.view(3, size).sum(1).tolist()
    ids = [torch.randint(0, FEATURES[name], (count,)) for name, count in zip(FEATURES, counts, strict=True)]
    sparse = KeyedJaggedTensor.from_lengths_sync(keys=list(FEATURES), values=torch.cat(ids), lengths=lengths)
    return torch.randn(size, 4), sparse, (ids[2] % 2 == 0).float()


def train(steps: int = 60) -> list[float]:
    """The loss of each step."""
    torch.manual_seed(0)
    model = Ranker()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        dense, sparse, clicked = make_batch(128)
        loss = nn.functional.binary_cross_entropy_with_logits(model(dense, sparse), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, value in enumerate(train()):
        if step % 10 == 9:
            print(f"step {step + 1}: loss {value:.3f}")
