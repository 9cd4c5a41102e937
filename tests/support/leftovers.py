"""What a browser of this process may leave behind: processes, profile directories, contexts."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trio

__all__ = ["adopted_orphans", "browser_processes", "descendants", "profile_directories", "wait_for", "wait_until_gone"]

_PAUSE = 0.01
_ADOPT = 36  # PR_SET_CHILD_SUBREAPER
_ENDED = frozenset("ZX")


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


def _parents() -> dict[int, tuple[int, str]]:
    """Of every process: its parent and its state."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                state, parent, *_ = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                found[int(entry.name)] = int(parent), state
    return found


def descendants(pid: int | None = None) -> list[int]:
    """Living processes that descend from this one (from ``pid``); all that ever did, among `adopted_orphans`."""
    parents = _parents()
    known = {os.getpid() if pid is None else pid}
    while more := {child for child, (parent, _) in parents.items() if parent in known and child not in known}:
        known |= more
    return sorted(child for child in known & parents.keys() if child != pid and child != os.getpid() and parents[child][1] not in _ENDED)


@contextmanager
def adopted_orphans() -> Iterator[None]:
    """Processes whose parent ends become children of this one until the block ends, so that none can hide by leaving its family."""
    system = ctypes.CDLL(None, use_errno=True)
    if system.prctl(_ADOPT, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    before = {pid for pid, (parent, _) in _parents().items() if parent == os.getpid()}
    try:
        yield
    finally:
        system.prctl(_ADOPT, 0, 0, 0, 0)
        for pid, (parent, state) in _parents().items():
            if parent == os.getpid() and pid not in before and state in _ENDED:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
