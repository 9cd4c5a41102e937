"""Private profile directories: made for one browser, gone with it, and swept when their owner was killed, with a browser that outlived it.

The name says who owns one (process number and start, and the namespace in which that number counts), so that there is no moment at which a
directory has no owner. Blocking.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

from forage.browser.processes import end_strays, is_same_process, own_identity

__all__ = ["Profile", "sweep_profiles"]

_NAME: Final = re.compile(r"forage-([0-9]+)-([0-9]+)-([0-9]+)-[a-z0-9_]{8}")
_LONGEST_PARENT: Final = 14  # Chromium makes a socket below it, whose path must stay under 108 bytes
_SWEEPS: Final = 40
_PAUSE_SECONDS: Final = 0.025


def _parent() -> Path:
    """The directory for temporary files, unless its path is too long for the sockets that a browser makes below it."""
    chosen = Path(tempfile.gettempdir())
    return chosen if len(str(chosen)) <= _LONGEST_PARENT else Path("/tmp")  # noqa: S108 - what is made there is private


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


class Profile:
    """A fresh directory that only its owner can look into, or, for ``user``, one inside of it that is theirs.

    ``browser`` is for the browser's profile, ``home`` for everything else that it writes, ``log`` for what it says on standard error.
    """

    def __init__(self, user: pwd.struct_passwd | None = None) -> None:
        pid, started = own_identity()
        self.path = Path(tempfile.mkdtemp(prefix=f"forage-{_namespace()}-{pid}-{started}-", dir=_parent()))
        try:
            self.browser, self.home = self.path / "p", self.path / "h"
            self.log = self.path / "log"
            for place in (self.browser, self.home):
                place.mkdir(0o700)
                if user is not None:
                    os.chown(place, user.pw_uid, user.pw_gid)
            if user is not None:
                self.path.chmod(0o711)  # they may pass through, and see nothing
        except BaseException:
            self.remove()
            raise

    def remove(self) -> bool:
        """Remove it; False while something of it is left (a process that is ending may still write)."""
        shutil.rmtree(self.path, ignore_errors=True)  # follows no symbolic link
        return not os.path.lexists(self.path)


def sweep_profiles() -> int:
    """Remove profiles of this user whose owner is gone, and end browsers that still use them; how many.

    Those of other process namespaces are left alone.
    """
    removed = 0
    namespace = _namespace()
    for parent in {_parent(), Path("/tmp")}:  # noqa: S108 - names are matched, owners checked
        for entry in _entries(parent):
            found = _NAME.fullmatch(entry.name)
            if found is None or int(found[1]) != namespace or is_same_process(int(found[2]), int(found[3])):
                continue
            if _is_ours(entry):
                _sweep(entry.path)
                removed += 1
    return removed


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Others may make such a name in a shared directory: only a real directory of our own is touched."""
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError:  # another start has just swept it
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()


def _sweep(path: str) -> None:
    """Remove one for good: without a lifeline, a browser on a socket outlives its owner, and writes while it ends."""
    for _ in range(_SWEEPS):
        strays = end_strays(path)
        shutil.rmtree(path, ignore_errors=True)
        if not strays:
            return
        time.sleep(_PAUSE_SECONDS)


def _entries(parent: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(parent) as entries:
            return [entry for entry in entries if entry.name.startswith("forage-")]
    except OSError:
        return []
