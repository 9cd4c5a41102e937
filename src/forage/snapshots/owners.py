"""Who holds a lock: this machine, its processes, and the text by which a lock file names its owner.

Owns the owner's identity and whether its process still runs. It opens no lock. Format: "source.lock" in section 5 of the snapshot formats.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import attrs

from forage._codec import JsonError, dump_compact, load_json
from forage._files import random_name
from forage.snapshots.javascript import js_integer

__all__ = ["LockOwner", "Writer", "is_running", "process_start", "this_machine"]


def this_machine() -> str | None:
    """Host, boot and process-id namespace (Linux), or host alone; None when it cannot be read.

    A process id means something only within these three, so an owner elsewhere is never judged by its process.
    """
    try:
        host = os.uname().nodename
        if not sys.platform.startswith("linux"):
            return f"host:{host}"
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"host:{host}|boot:{boot}|{Path('/proc/self/ns/pid').readlink()}"
    except (OSError, ValueError):
        return None


def process_start(pid: int) -> str | None:
    """When the process started, in the form of the lock file; None when unknown. Tells a reused process id from its former owner."""
    try:
        if not sys.platform.startswith("linux"):
            return _start_by_ps(pid)
        # The second field is the command in brackets, which may itself hold blanks and brackets.
        line = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return f"linux-starttime:{line[line.rindex(')') + 1 :].split()[19]}"
    except (OSError, ValueError, IndexError):
        return None


def _start_by_ps(pid: int) -> str | None:
    import subprocess

    environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    text = " ".join(done.stdout.split())
    return f"ps-lstart:{text}" if done.returncode == 0 and text else None


def is_running(pid: int) -> bool:
    """False when there is surely no such process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # a process of another user, or no process id of this system: not proof of death
        return True
    return True


@attrs.frozen(kw_only=True)
class LockOwner:
    """What a lock file says of the writer that made it."""

    machine: str | None
    pid: int
    start: str | None
    token: str

    @classmethod
    def parse(cls, text: str) -> LockOwner | None:
        """The owner in a lock file's text, None when it is none."""
        try:
            value = load_json(text)
        except JsonError:
            return None
        if not isinstance(value, dict) or "machine" not in value or "start" not in value:
            return None
        machine, start, token, pid = value["machine"], value["start"], value.get("token"), js_integer(value.get("pid"))
        if not isinstance(machine, str | None) or not isinstance(start, str | None) or not isinstance(token, str) or pid is None:
            return None
        return cls(machine=machine, pid=pid, start=start, token=token)

    def text(self) -> str:
        """The content of the lock file."""
        return dump_compact({"machine": self.machine, "pid": self.pid, "start": self.start, "token": self.token})


class Writer:
    """This process as a lock owner; what does not change is read once (and again after a fork)."""

    def __init__(self) -> None:
        self._known: LockOwner | None = None

    @property
    def machine(self) -> str | None:
        """Where this process runs, None when that cannot be read."""
        return self.owner().machine

    def owner(self) -> LockOwner:
        """This process, with a token that no other lock has."""
        pid = os.getpid()
        if self._known is None or self._known.pid != pid:
            self._known = LockOwner(machine=this_machine(), pid=pid, start=process_start(pid), token="")
        return attrs.evolve(self._known, token=random_name())
