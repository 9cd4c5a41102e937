"""What a browser of this process may leave behind: processes, profile directories, contexts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import trio

__all__ = ["browser_processes", "profile_directories", "wait_for", "wait_until_gone"]

_PAUSE = 0.01


def profile_directories(pid: int | None = None, parent: Path = Path("/tmp")) -> list[Path]:
    """Profiles that a process of this number made; this one by default."""
    pattern = re.compile(rf"forage-[0-9]+-{os.getpid() if pid is None else pid}-[0-9]+-\w+")
    return sorted(path for path in parent.iterdir() if pattern.fullmatch(path.name))


def browser_processes(pid: int | None = None) -> list[int]:
    """Living processes whose command line names a profile that a process of this number made."""
    pattern = re.compile(rf"/forage-[0-9]+-{os.getpid() if pid is None else pid}-[0-9]+-\w+".encode())
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and pattern.search((entry / "cmdline").read_bytes()):
                state = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
                found += [int(entry.name)] * (state not in "ZX")
        except OSError:
            continue
    return sorted(found)


async def wait_for(condition: Callable[[], object], *, seconds: float) -> bool:
    """Whether ``condition`` holds within so many seconds: for what no event tells of."""
    for _ in range(max(1, int(seconds / _PAUSE))):
        if condition():
            return True
        await trio.sleep(_PAUSE)
    return bool(condition())


async def wait_until_gone(pid: int | None = None, *, parent: Path = Path("/tmp"), seconds: float) -> tuple[list[int], list[Path]]:
    """What is still there after at most so many seconds: processes and directories."""
    await wait_for(lambda: not browser_processes(pid) and not profile_directories(pid, parent), seconds=seconds)
    return browser_processes(pid), profile_directories(pid, parent)
