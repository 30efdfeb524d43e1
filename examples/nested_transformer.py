"""A transformer layer written for torch.nested, run by Serrate: only the import line is another.

Run with: python examples/nested_transformer.py
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from serrate.compat import nested

WIDTH, HEADS, CLASSES = 32, 4, 3


class Layer(nn.Module):
    """Attention and a feed-forward network, each with its residual and norm, over sentences of different length."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):  # [batch, sentence, WIDTH]
        parts = [part.contiguous().unflatten(-1, [HEADS, WIDTH // HEADS]) for part in self.project(x).chunk(3, dim=-1)]
        query, key, value = (part.transpose(1, 2) for part in parts)  # [batch, HEADS, sentence, WIDTH / HEADS]
        seen = F.scaled_dot_product_attention(query, key, value)
        x = self.first(x + self.out(seen.transpose(1, 2).flatten(-2)))
        return self.second(x + self.feed(x))


class Classifier(nn.Module):
    """Layers, the mean over each sentence, and a score for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Layer(), Layer())
        self.score = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, lengths):
        # With Serrate this is self.layers(x).mean(1); torch.nested has no gradient of a mean over the ragged axis.
        mean = nested.to_padded_tensor(self.layers(x), 0.0).sum(1) / lengths[:, None]
        return self.score(mean)


def train(steps: int = 15) -> list[float]:
    """The loss of each step: the class of a sentence is the shift of its words."""
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    losses = []
    for step in range(steps):
        labels = torch.randint(0, CLASSES, (16,))
        lengths = torch.randint(1, 20, (16,))
        sentences = [torch.randn(int(n), WIDTH) + label for n, label in zip(lengths, labels, strict=True)]
        if step % 2:
            batch = nested.nested_tensor(sentences, layout=torch.jagged)
        else:
            offsets = F.pad(lengths.cumsum(0), (1, 0))
            batch = nested.nested_tensor_from_jagged(torch.cat(sentences), offsets)
        loss = F.cross_entropy(model(batch, lengths), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, value in enumerate(train()):
        if step % 5 == 4:
            print(f"step {step + 1}: loss {value:.3f}")
