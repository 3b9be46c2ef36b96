"""Compiling costs about a second a time, so tests share what they can: `compiled` is one artifact of
an ordinary candidate for all of them."""

from __future__ import annotations

import pytest
from building import ORDINARY, compile_text

from cudahercules.build.artifact import Artifact


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    """An empty cache of this test's own; its path."""
    monkeypatch.setenv("HERCULES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def compiled() -> Artifact:
    """ORDINARY for sm_90a, from the session's cache."""
    artifact = compile_text(ORDINARY, architecture="90a")
    assert isinstance(artifact, Artifact), artifact
    return artifact
