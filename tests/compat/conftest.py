"""The tests of FBGEMM's functions share these fixtures."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from serrate.native import buckets, padded, row_products, rows


@pytest.fixture(params=["compiled", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run every test with the compiled functions and without them."""
    if request.param == "torch":
        for library in (buckets, padded, rows, row_products):
            monkeypatch.setattr(library, "_library", lambda: None)
    return str(request.param)


@pytest.fixture(scope="module")
def fbgemm() -> Any:
    """Return the functions of FBGEMM itself."""
    pytest.importorskip("fbgemm_gpu")
    return torch.ops.fbgemm
