"""What the tests of FBGEMM's functions share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from serrate.native import padded, products, rows


@pytest.fixture(params=["compiled", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs with the compiled functions and without."""
    if request.param == "torch":
        for library in (padded, rows, products):
            monkeypatch.setattr(library, "_library", lambda: None)
    return str(request.param)


@pytest.fixture(scope="module")
def fbgemm() -> Any:
    """The real functions."""
    pytest.importorskip("fbgemm_gpu")
    return torch.ops.fbgemm
