"""Shared sources under processes that are killed at random. `make stress-store` does it for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snapshots.stress_store import stress


@pytest.mark.slow
def test_shared_sources_hold_what_was_acknowledged_while_writers_are_killed(tmp_path: Path) -> None:
    assert "all rules hold" in stress(tmp_path / "store", seconds=5, seed=11)
