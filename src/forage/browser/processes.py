"""Which processes belong to a browser, and the end of them all, by what /proc says (Linux; blocking, a few milliseconds).

A browser is a process group and, beside it, handlers of crash reports that live in sessions of their own and are known only by the profile
directory on their command line. A zombie has ended; reaping it is its parent's business.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

__all__ = [
    "ProcessFacts",
    "end_processes",
    "end_strays",
    "is_same_process",
    "kill_group",
    "own_identity",
    "owners",
    "processes_of",
    "started_at",
]

_PROC: Final = Path("/proc")
_ENDED: Final = frozenset("ZX")
_NO_GROUP: Final = -1


@attrs.frozen(kw_only=True)
class ProcessFacts:
    """One living process. ``anonymous_bytes`` is memory of its own: resident, and not shared with files or other processes."""

    pid: int
    command: tuple[str, ...]
    anonymous_bytes: int

    @property
    def kind(self) -> str:
        """What Chromium calls it: ``renderer``, ``gpu-process``, ``utility``, ``zygote``; ``browser`` for the first one."""
        return next((word.partition("=")[2] for word in self.command if word.startswith("--type=")), "browser")


def _stat(pid: int | str) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on (field 3); the name before them may hold anything, spaces and brackets too."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except (OSError, ValueError):
        return None
    return text.rpartition(")")[2].split()


def started_at(pid: int) -> int | None:
    """When a living process was started, in ticks since the machine was; with its number that names it for good."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in _ENDED else int(fields[19])


def own_identity() -> tuple[int, int]:
    """Number and start of this process."""
    return os.getpid(), started_at(os.getpid()) or 0


def is_same_process(pid: int, started: int) -> bool:
    """Whether the process of this number and start still lives."""
    return started_at(pid) == started


def _command(pid: int) -> tuple[str, ...]:
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ()
    # Chromium rewrites the line of its children with blanks instead of NUL.
    text = raw.decode("utf-8", "replace").rstrip("\0")
    return tuple(text.split("\0") if "\0" in text else text.split(" "))


def _anonymous(pid: int) -> int:
    try:
        _, resident, shared, *_ = (_PROC / str(pid) / "statm").read_text("ascii").split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def processes_of(group: int, directory: str | None = None) -> Iterator[ProcessFacts]:
    """Living processes of a group, and those whose command line names ``directory``."""
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        fields = _stat(entry.name)
        if fields is None or fields[0] in _ENDED:
            continue
        pid = int(entry.name)
        inside = int(fields[2]) == group
        if not inside and directory is None:
            continue
        command = _command(pid)
        if inside or (directory is not None and any(directory in word for word in command) and pid != os.getpid()):
            yield ProcessFacts(pid=pid, command=command, anonymous_bytes=_anonymous(pid))


def owners() -> set[int]:
    """Numbers of the users that run processes now."""
    found = set()
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                found.add(entry.stat().st_uid)
    return found


def kill_group(group: int) -> None:
    """SIGKILL for every process of a group, if there is one left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def end_processes(group: int, directory: str) -> tuple[int, ...]:
    """Kill the group and whoever names the directory; the numbers of those that were still there."""
    kill_group(group)
    found = tuple(process.pid for process in processes_of(group, directory))
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return found


def end_strays(directory: str) -> int:
    """Kill whoever was started with an option that names ``directory``, as a browser is; how many. Its other processes end with it."""
    found = [p.pid for p in processes_of(_NO_GROUP, directory) if any(w.startswith("--") and directory in w for w in p.command)]
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(found)
