"""Folders for tests that write thousands of files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["quick_folder"]

_MEMORY = Path("/dev/shm")


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is a place for that, gone at the end of the block.

    For tests of processes that die or are cancelled, not of power that fails: what a process has written stays, wherever it wrote it.
    """
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder)
