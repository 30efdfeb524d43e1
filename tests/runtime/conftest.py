from __future__ import annotations

from pathlib import Path

import pytest

from serrate.runtime import cache, compiler


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, on disk and in memory."""
    monkeypatch.setenv("SERRATE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "_libraries", {})
    monkeypatch.setattr(cache, "_temporaries", {})
    return tmp_path / "cache"
