"""Training from a table on disk: patients, their visits and codes, in batches of like length, stopped and resumed.

Run with: python examples/table_training.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn

import serrate as sr
from serrate.table import Packed

CODES, PATIENTS = 200, 2000


def write_patients(path: Path) -> None:
    """Patients with up to 12 visits of up to 9 codes each; ill if they ever had code 7."""
    torch.manual_seed(0)
    visits = torch.randint(1, 13, (PATIENTS,))
    lengths = torch.randint(0, 10, (int(visits.sum()),))
    code = sr.from_lengths(torch.randint(0, CODES, (int(lengths.sum()),)), [visits, lengths])
    time = sr.from_lengths(torch.rand(len(lengths)), visits)
    ill = (code == 7).combine(2).any(axis=1)
    table = sr.Table(
        {"ill": ill, "time": time, "code": code}, schema={"time": "visits", "code": "visits.codes"}, narrow=True
    )
    table.save(path, rows_per_shard=1000)


class Diagnosis(nn.Module):
    """Codes of all visits of a patient, embedded and added up, and the number of visits."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.EmbeddingBag(CODES, 8, mode="sum", include_last_offset=True)
        self.score = nn.Linear(9, 1)

    def forward(self, batch: Packed) -> torch.Tensor:
        # cu_seqlens say where the codes of each patient begin and end, whatever visits they are of
        codes = self.codes(batch.flat("code"), batch.cu_seqlens("visits.codes").long())
        visits = batch.lengths["visits"].float()[:, None] / 12
        return self.score(torch.cat([codes, visits], 1)).squeeze(1)


def step(model: Diagnosis, optimizer: torch.optim.Optimizer, batch: Packed) -> float:
    loss = nn.functional.binary_cross_entropy_with_logits(model(batch), batch["ill"].torch().float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_patients(Path(folder) / "patients")
        table = sr.open(Path(folder) / "patients")
        print(table)
        options = {"max_tokens": 4096, "bucket_by": "visits.codes", "shuffle": True, "num_workers": 2}

        loader = table.loader(**options)
        model = Diagnosis()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(6):
            losses = [step(model, optimizer, batch) for batch in loader]
            print(f"epoch {loader.epoch - 1}: {len(losses)} batches, loss {sum(losses) / len(losses):.3f}")

        batches = iter(loader)
        for _ in range(5):
            step(model, optimizer, next(batches))
        state = loader.state_dict()  # goes into the checkpoint, next to those of the model and of the optimizer
        expected = [batch["time"].tolist() for batch in batches]

        resumed = table.loader(**options | {"num_workers": 0})
        resumed.load_state_dict(state)
        assert [batch["time"].tolist() for batch in resumed] == expected
        print(f"resumed in epoch {state['epoch']} after 5 batches: the same {len(expected)} batches are left")


if __name__ == "__main__":
    main()
