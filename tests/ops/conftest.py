"""What tests of operations share."""

from __future__ import annotations

import pytest

from serrate.native import row_sums as library


@pytest.fixture(params=["compiled", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the compiled sums, and without a compiler."""
    if request.param == "torch":
        monkeypatch.setattr(library, "_library", lambda: None)
    elif library._library() is None:
        pytest.skip("needs a C++ compiler")
    return str(request.param)
