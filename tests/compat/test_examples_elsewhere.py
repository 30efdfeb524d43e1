"""The examples for users of TorchRec and torch.nested also run with these libraries; only the import line differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def losses(source: str, name: str) -> list[float]:
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(source, name, "exec"), namespace)
    found: list[float] = namespace["train"]()
    return found


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
@pytest.mark.parametrize(
    ("example", "ours", "theirs"),
    [
        ("recommendation", "from serrate.compat.torchrec import ", "from torchrec import "),
        ("nested_transformer", "from serrate.compat import nested", "from torch import nested"),
    ],
)
def test_the_same_losses(example, ours, theirs):
    source = (EXAMPLES / f"{example}.py").read_text()
    assert source.count(ours) == 1
    assert "import serrate" not in source
    other = source.replace(ours, theirs)
    mine, expected = losses(source, f"{example} by Serrate"), losses(other, f"{example} as it was")
    torch.testing.assert_close(torch.tensor(mine), torch.tensor(expected), rtol=1e-5, atol=1e-5)
    assert mine[-1] < 0.7 * mine[0]
