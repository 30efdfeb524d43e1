"""The tensor itself: making and slicing ten million rows, and padding, against the bytes that must move."""

from __future__ import annotations

import csv
from pathlib import Path

import torch

import serrate as sr
from benchmarks.timing import report

ROWS = 10_000_000


def lengths_of(name: str, rows: int, seed: int = 0) -> torch.Tensor:
    """Row lengths drawn from a published histogram (benchmarks/lengths)."""
    with (Path(__file__).parent / "lengths" / f"{name}.csv").open() as file:
        table = [(int(row[0]), int(row[1])) for row in csv.reader(file) if row[0].isdigit()]
    lengths, counts = torch.tensor(table).T
    generator = torch.Generator().manual_seed(seed)
    return lengths[torch.multinomial(counts.double(), rows, replacement=True, generator=generator)]


def many_rows() -> None:
    offsets = torch.zeros(ROWS + 1, dtype=torch.int64)
    torch.cumsum(torch.randint(0, 3, (ROWS,)), 0, out=offsets[1:])
    values = torch.zeros(int(offsets[-1]))
    x = sr.from_offsets(values, offsets)
    report(
        f"a tensor of {ROWS:,} rows from offsets (at most 2.5 × offsets.clone())",
        {"offsets.clone()": offsets.clone, "sr.from_offsets": lambda: sr.from_offsets(values, offsets)},
        base="offsets.clone()",
    )
    report(
        "a thousand of those rows (under 100 µs), and their text (constant time)",
        {"x[1000:2000]": lambda: x[1000:2000], "x[5]": lambda: x[5], "repr(x)": lambda: repr(x)},
        base="x[1000:2000]",
        rounds=200,
    )


def padding() -> None:
    lengths = lengths_of("squad", 128)
    x = sr.from_lengths(torch.randn(int(lengths.sum()), 128), lengths)
    dense = x.to_dense().torch()
    nested = x.to_nested()
    report(
        f"padding {list(dense.shape)}, lengths as in squad, and back",
        {
            "copy of the padded tensor": dense.clone,
            "x.to_dense()": lambda: x.to_dense(),
            "torch.nested to_padded_tensor": lambda: torch.nested.to_padded_tensor(nested, 0.0),
            "sr.from_dense(d, like=x)": lambda: sr.from_dense(dense, like=x),
        },
        base="copy of the padded tensor",
    )


def indexing() -> None:
    lengths = lengths_of("mnli", 4096)
    x = sr.from_lengths(torch.randn(int(lengths.sum()), 64), lengths)
    some = torch.randperm(4096)[:1024]
    taken = x[some].values
    report(
        f"indexing {list(x.values.shape)}, lengths as in mnli",
        {
            "copy of what x[some] gives": taken.clone,
            "x[some] (1024 random rows)": lambda: x[some],
            "x[:, :32]": lambda: x[:, :32],
            "sr.flip(x, axis=1)": lambda: sr.flip(x, axis=1),
            "sr.concat([x, x], axis=1)": lambda: sr.concat([x, x], axis=1),
        },
        base="copy of what x[some] gives",
    )


def main() -> None:
    many_rows()
    padding()
    indexing()


if __name__ == "__main__":
    main()
