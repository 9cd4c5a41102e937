"""One writer a root: an advisory lock in ``.crawl/lock`` that names its owner.

The kernel frees it with the process, however that ends, so there is nothing to break and no clock to trust. POSIX only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from forage._codec import JsonError, dump_compact, load_json
from forage.errors import CaptureError
from forage.mirror.cache import writing
from forage.mirror.folders import open_file, open_folder

__all__ = ["RootBusyError", "root_lock"]

_MOST_OWNER: Final = 4096


class RootBusyError(CaptureError):
    """Another process writes this root. ``owner`` names it as far as it said who it is."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(f"another process writes this mirror ({owner})")


@contextlib.contextmanager
def root_lock(root: Path, *, started: str) -> Iterator[None]:
    """Hold the write lock of a root; its folder ``.crawl`` must be there. Never waits.

    Raises RootBusyError when it is taken, CacheRootError when the file cannot be written.
    """
    owner = dump_compact({"pid": os.getpid(), "host": socket.gethostname(), "started": started}) + "\n"
    with contextlib.ExitStack() as held:
        with writing():
            with open_folder(root, ".crawl") as folder:
                fd = open_file(folder, "lock", os.O_RDWR | os.O_CREAT)
            held.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise RootBusyError(_owner(fd)) from exc
            os.ftruncate(fd, 0)
            os.pwrite(fd, owner.encode(), 0)
        yield


def _owner(fd: int) -> str:
    with contextlib.suppress(JsonError, OSError):
        owner = load_json(os.pread(fd, _MOST_OWNER, 0).decode("utf-8", "replace"))
        if isinstance(owner, dict):
            return f"process {owner.get('pid')} on {owner.get('host')}, since {owner.get('started')}"
    return "unnamed"
