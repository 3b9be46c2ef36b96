"""Inspect is an optional part: without it these tests are skipped, and say so."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("INSPECT_DISPLAY", "none")


@pytest.fixture(autouse=True)
def inspect_here(tmp_path, monkeypatch):
    """Inspect's cache, traces and state go to the test's directory, and no key or proxy is looked up."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "INSPECT_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "inspect"))
    for name in ("INSPECT_EVAL_MODEL", "INSPECT_LOG_DIR", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
