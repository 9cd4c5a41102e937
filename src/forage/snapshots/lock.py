"""``source.lock``: one writer at a time for each source directory, on one machine or a shared disk.

Owns the lock file, when it is stale, and how a stale one is broken without breaking a live one. It does not wait:
`try_lock` answers at once, and the store asks again. Readers never look at the lock. Limits: staleness by age compares the file's time
with this machine's clock, so clocks of machines that share a disk must agree to well within a minute; a writer that stands still for
longer than `STALE_SECONDS` between two steps may lose its lock, and notices at its next step (`SourceLock.refresh`). Format:
"source.lock" in section 5 of the snapshot formats. Blocking; runs in the thread that does the writing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator

import attrs

from forage._files import FileReadError, OpenDirectory, random_name, read_regular, write_all
from forage.errors import StoreBusyError
from forage.snapshots.owners import LockOwner, Writer, is_running, process_start

__all__ = [
    "BREAK_NAME",
    "LOCK_NAME",
    "REFRESH_SECONDS",
    "STALE_SECONDS",
    "LockFile",
    "SourceLock",
    "break_stale",
    "clear_stale_marker",
    "is_stale",
    "look_at",
    "try_lock",
]

LOCK_NAME = "source.lock"
BREAK_NAME = "source.lock.break"
STALE_SECONDS = 60.0
REFRESH_SECONDS = 10.0
_MAX_LOCK_BYTES = 4096
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# How kernels and file systems say that they have no nameless files, or that /proc is not there to link them from.
_NO_NAMELESS_FILES = frozenset([errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.EPERM, errno.EXDEV, errno.ENOSYS])


# --- what is there, and is it stale


@attrs.frozen(kw_only=True)
class LockFile:
    """A lock or break marker as it was seen: its facts, and its text where it is a small regular file."""

    facts: os.stat_result
    text: str | None

    @property
    def is_directory(self) -> bool:
        """A directory is no lock that anyone here made; it is never broken."""
        return stat.S_ISDIR(self.facts.st_mode)

    @property
    def owner(self) -> LockOwner | None:
        """Who made it, as far as the text says so."""
        return None if self.text is None else LockOwner.parse(self.text)

    def same_as(self, other: LockFile) -> bool:
        """The same file with the same text or, where there is no text, of the same size and time."""
        mine, theirs = self.facts, other.facts
        if (mine.st_dev, mine.st_ino) != (theirs.st_dev, theirs.st_ino):
            return False
        if self.text is None and other.text is None:
            return (mine.st_size, mine.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)
        return self.text == other.text


def look_at(directory: OpenDirectory, name: str) -> LockFile | None:
    """The lock as it is now, None when there is none. Follows no link."""
    facts = directory.lstat(name)
    if facts is None:
        return None
    if not stat.S_ISREG(facts.st_mode):
        return LockFile(facts=facts, text=None)
    try:
        return LockFile(facts=facts, text=read_regular(directory, name, _MAX_LOCK_BYTES).decode("utf-8", "replace"))
    except FileReadError:
        return LockFile(facts=facts, text=None)


def is_stale(lock: LockFile, machine: str | None, *, now: float | None = None) -> bool:
    """True when no live writer can hold this lock any more. ``now`` is the wall clock in seconds."""
    if lock.is_directory:
        return False
    if (time.time() if now is None else now) - lock.facts.st_mtime > STALE_SECONDS:
        return True
    owner = lock.owner
    if owner is None or owner.machine is None or owner.machine != machine:
        return False
    if not is_running(owner.pid):
        return True
    if owner.start is None:
        return False
    start = process_start(owner.pid)
    return start is not None and start != owner.start


# --- breaking


def _create(directory: OpenDirectory, name: str, text: str) -> os.stat_result | None:
    """Make the file with this text; None when the name is taken. A failed write leaves no file.

    Where the system can, the file gets its name only when it is written: a writer that is killed in between leaves nothing, instead
    of an empty lock that nobody can judge before it is `STALE_SECONDS` old.
    """
    try:
        with _nameless(directory) as fd:
            write_all(fd, text.encode())
            os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=directory.fd, follow_symlinks=True)
            return os.fstat(fd)
    except FileExistsError:
        return None
    except (OSError, AttributeError) as exc:
        if isinstance(exc, OSError) and exc.errno not in _NO_NAMELESS_FILES:
            raise
    return _create_in_place(directory, name, text)


@contextlib.contextmanager
def _nameless(directory: OpenDirectory) -> Iterator[int]:
    fd = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory.fd)
    try:
        yield fd
    finally:
        os.close(fd)


def _create_in_place(directory: OpenDirectory, name: str, text: str) -> os.stat_result | None:
    try:
        fd = os.open(name, _CREATE, 0o600, dir_fd=directory.fd)
    except FileExistsError:
        return None
    try:
        write_all(fd, text.encode())
        return os.fstat(fd)
    except BaseException:
        directory.unlink(name)
        raise
    finally:
        os.close(fd)


def _remove_if_unchanged(directory: OpenDirectory, name: str, judged: LockFile) -> bool:
    """Remove exactly the file that was judged: it is moved aside first, and put back when it turns out to be another."""
    aside = f"{name}.{random_name()}.aside"
    try:
        os.rename(name, aside, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    except FileNotFoundError:
        return False
    moved = look_at(directory, aside)
    same = moved is not None and moved.same_as(judged)
    if not same:
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.link(aside, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd, follow_symlinks=False)
    directory.unlink(aside)
    return same


def clear_stale_marker(directory: OpenDirectory, machine: str | None) -> None:
    """Remove the marker of a breaker that died."""
    marker = look_at(directory, BREAK_NAME)
    if marker is not None and is_stale(marker, machine):
        _remove_if_unchanged(directory, BREAK_NAME, marker)


def break_stale(directory: OpenDirectory, writer: Writer) -> LockFile | None:
    """Remove a stale lock and return it; None when there was none to remove, or another process is at it.

    The marker keeps two breakers apart: without it the slower one would remove the lock that the faster one has just taken.
    """
    machine = writer.machine
    ours = writer.owner()
    facts = _create(directory, BREAK_NAME, ours.text())
    if facts is None:
        clear_stale_marker(directory, machine)
        return None
    try:
        lock = look_at(directory, LOCK_NAME)
        if lock is None or not is_stale(lock, machine):
            return None
        return lock if _remove_if_unchanged(directory, LOCK_NAME, lock) else None
    finally:
        _remove_if_unchanged(directory, BREAK_NAME, LockFile(facts=facts, text=ours.text()))


# --- holding


class SourceLock:
    """A held lock. ``broken`` is the stale lock that had to be removed first, if any: its writer may have left things behind."""

    __slots__ = ("_directory", "_facts", "_refreshed", "_text", "broken")

    def __init__(self, directory: OpenDirectory, facts: os.stat_result, text: str, broken: LockFile | None) -> None:
        self._directory = directory
        self._facts = facts
        self._text = text
        self._refreshed = time.monotonic()
        self.broken = broken

    def _is_ours(self) -> bool:
        try:
            fd = os.open(LOCK_NAME, _LOOK, dir_fd=self._directory.fd)
        except OSError:
            return False
        try:
            facts = os.fstat(fd)
            same = (facts.st_dev, facts.st_ino) == (self._facts.st_dev, self._facts.st_ino)
            return same and os.read(fd, _MAX_LOCK_BYTES) == self._text.encode()
        finally:
            os.close(fd)

    def refresh(self) -> None:
        """Between steps: every `REFRESH_SECONDS`, show that the writer lives. StoreBusyError when the lock is no longer ours."""
        now = time.monotonic()
        if now - self._refreshed < REFRESH_SECONDS:
            return
        if not self._is_ours():
            raise StoreBusyError("the source lock was taken over by another writer; nothing more was written")
        os.utime(LOCK_NAME, dir_fd=self._directory.fd, follow_symlinks=False)
        self._refreshed = now

    def release(self) -> None:
        """Remove the lock if it is still ours."""
        if time.monotonic() - self._refreshed > STALE_SECONDS / 2:
            # It may be broken at this very moment: remove the file that is ours, not the name.
            _remove_if_unchanged(self._directory, LOCK_NAME, LockFile(facts=self._facts, text=self._text))
        elif self._is_ours():
            self._directory.unlink(LOCK_NAME)


def try_lock(directory: OpenDirectory, writer: Writer) -> SourceLock | None:
    """Take the lock, breaking a stale one; None when another writer holds it. StoreBusyError when it is a directory."""
    owner = writer.owner()
    broken: LockFile | None = None
    for _ in range(2):
        facts = _create(directory, LOCK_NAME, owner.text())
        if facts is not None:
            return SourceLock(directory, facts, owner.text(), broken)
        held = look_at(directory, LOCK_NAME)
        if held is None:
            continue
        if held.is_directory:
            raise StoreBusyError("source.lock is a directory, which no writer makes; remove it by hand")
        if not is_stale(held, owner.machine):
            return None
        broken = break_stale(directory, writer) or broken
        if broken is None:
            return None
    return None
