"""Files that must be right: bounded reads that follow no link, and publication that survives a crash.

Owns the system calls: opening real directories, reading one regular file within a limit, writing a temporary beside its final name,
syncing it, hard-linking it into place. It knows no record, index or lock, and maps nothing to a public error: callers get a
`FileFault` from reads and OSError from writes. Everything is relative to an open directory, so that a directory that is swapped
for a link in between changes nothing. POSIX only; blocking, so call it in a worker thread.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from types import TracebackType

__all__ = [
    "TEMPORARY",
    "FileFault",
    "FileReadError",
    "OpenDirectory",
    "Temporary",
    "make_directory",
    "open_or_make",
    "publish",
    "random_name",
    "read_regular",
    "temporary_owner",
]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO put in a file's place between lstat and open must not hang the reader.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

TEMPORARY = re.compile(r"\.([1-9][0-9]*)\.[0-9a-f-]{36}\.tmp\Z")
"""How the name of a temporary ends: the writer's process id and a random part."""


class FileFault(StrEnum):
    """Why a file was not read."""

    MISSING = "missing"
    DISAPPEARED = "disappeared"
    NOT_REGULAR = "not-regular"
    TOO_LARGE = "too-large"
    RACED = "raced"
    FAILED = "failed"


class FileReadError(Exception):
    """A read failed; ``fault`` says how. Holds no path."""

    def __init__(self, fault: FileFault) -> None:
        self.fault = fault
        super().__init__(fault.value)


class OpenDirectory:
    """A real directory, held open; the names of all calls are entries of it. Use it as a context manager."""

    __slots__ = ("fd",)

    def __init__(self, path: str | Path, *, inside: OpenDirectory | None = None, follow: bool = False) -> None:
        """Open ``path`` (an entry of ``inside`` when given). OSError when it is absent or, unless ``follow``, a link or no directory."""
        flags = _DIRECTORY & ~os.O_NOFOLLOW if follow else _DIRECTORY
        self.fd: int = os.open(path, flags, dir_fd=None if inside is None else inside.fd)

    def __enter__(self) -> OpenDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the directory; closing twice does nothing."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def lstat(self, name: str) -> os.stat_result | None:
        """The entry's own facts, None when it is absent."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def facts(self) -> os.stat_result:
        """The directory's own facts."""
        return os.fstat(self.fd)

    def exists(self, name: str) -> bool:
        """True when there is an entry of this name, of whatever kind."""
        return self.lstat(name) is not None

    def names(self) -> Iterator[str]:
        """Names of the entries, in no order."""
        with os.scandir(self.fd) as entries:
            for entry in entries:
                yield entry.name

    def unlink(self, name: str) -> bool:
        """Remove an entry; False when it was not there."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Make the entries durable."""
        os.fsync(self.fd)


def make_directory(parent: OpenDirectory, name: str) -> bool:
    """Make a directory with default mode; False when the name is taken (the caller's open says by what)."""
    try:
        os.mkdir(name, dir_fd=parent.fd)
    except FileExistsError:
        return False
    return True


def open_or_make(path: Path) -> OpenDirectory:
    """Open a directory by its path, made with its parents when absent; what was made is durable. A link to a directory will do."""
    try:
        return OpenDirectory(path, follow=True)
    except FileNotFoundError:
        pass
    missing = [path, *(parent for parent in path.parents if not parent.exists())]
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        with OpenDirectory(made.parent, follow=True) as parent:
            parent.sync()
    return OpenDirectory(path, follow=True)


def _lstat(directory: OpenDirectory, name: str) -> os.stat_result:
    try:
        facts = directory.lstat(name)
    except (OSError, ValueError) as exc:
        raise FileReadError(FileFault.FAILED) from exc
    if facts is None:
        raise FileReadError(FileFault.MISSING)
    return facts


def _open_judged(directory: OpenDirectory, name: str, judged: os.stat_result) -> int:
    try:
        fd = os.open(name, _READ, dir_fd=directory.fd)
    except FileNotFoundError as exc:
        raise FileReadError(FileFault.DISAPPEARED) from exc
    except OSError as exc:
        # ELOOP: a link took the place of the file that was judged.
        raise FileReadError(FileFault.RACED if exc.errno == errno.ELOOP else FileFault.FAILED) from exc
    opened = os.fstat(fd)
    if (opened.st_dev, opened.st_ino) != (judged.st_dev, judged.st_ino):
        os.close(fd)
        raise FileReadError(FileFault.RACED)
    return fd


def read_regular(directory: OpenDirectory, name: str, limit: int) -> bytes:
    """The whole of one regular file of at most ``limit`` bytes; FileReadError otherwise. Follows no link.

    MISSING: there was no entry; DISAPPEARED: it went away between the look and the open.
    """
    judged = _lstat(directory, name)
    if not stat.S_ISREG(judged.st_mode):
        raise FileReadError(FileFault.NOT_REGULAR)
    if judged.st_size > limit:
        raise FileReadError(FileFault.TOO_LARGE)
    fd = _open_judged(directory, name, judged)
    try:
        # One byte more than was there, so that a file that grows is noticed.
        data = _read_up_to(fd, limit + 1, judged.st_size + 1)
    except OSError as exc:
        raise FileReadError(FileFault.FAILED) from exc
    finally:
        os.close(fd)
    if len(data) > limit:
        raise FileReadError(FileFault.TOO_LARGE)
    return data


def _read_up_to(fd: int, limit: int, expected: int) -> bytes:
    first = os.read(fd, min(limit, expected))
    if len(first) < expected:
        second = os.read(fd, 1) if first else b""
        if not second:
            return first
        first += second
    parts = [first]
    got = len(first)
    while got < limit:
        more = os.read(fd, min(limit - got, 1 << 20))
        if not more:
            break
        parts.append(more)
        got += len(more)
    return b"".join(parts) if len(parts) > 1 else first


def random_name() -> str:
    """A random (version 4) UUID; a quarter of what the library's takes, and every publication needs half a dozen."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def temporary_owner(name: str) -> int | None:
    """The process that wrote this temporary, None when the name is not one of a temporary."""
    found = TEMPORARY.search(name)
    return None if found is None else int(found[1])


class Temporary:
    """A file that is written beside its final name and not yet there.

    Life: made and written by the constructor, `sync`, `link` (as often as a free name is looked for), `discard`. A constructor that
    fails leaves nothing behind. Use `discard` in a ``finally``: it closes, and removes what is left.
    """

    __slots__ = ("_directory", "_fd", "_name")

    def __init__(self, directory: OpenDirectory, name: str, parts: Iterable[bytes], *, start_writing: bool = False) -> None:
        """Write ``parts``. With ``start_writing`` the kernel begins at once, so that later syncs of several files share a commit."""
        self._directory = directory
        self._name = f"{name}.{os.getpid()}.{random_name()}.tmp"
        self._fd = os.open(self._name, _CREATE, 0o600, dir_fd=directory.fd)
        try:
            for part in parts:
                write_all(self._fd, part)
            if start_writing and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        except BaseException:
            self.discard()
            raise

    def sync(self) -> None:
        """Make the content durable and close the file."""
        os.fsync(self._fd)
        fd, self._fd = self._fd, -1
        os.close(fd)

    def link(self, name: str) -> bool:
        """Give the content its final name; False when that name is taken. Nothing is overwritten."""
        try:
            os.link(self._name, name, src_dir_fd=self._directory.fd, dst_dir_fd=self._directory.fd, follow_symlinks=False)
        except FileExistsError:
            return False
        return True

    def replace(self, name: str) -> None:
        """Put the content in the place of an existing entry, at one stroke."""
        os.rename(self._name, name, src_dir_fd=self._directory.fd, dst_dir_fd=self._directory.fd)
        self._name = ""

    def discard(self) -> None:
        """Close and remove the temporary; its final name, if it got one, stays."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
        if self._name:
            name, self._name = self._name, ""
            self._directory.unlink(name)


def write_all(fd: int, data: bytes) -> None:
    """Write every byte of ``data``."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def publish(directory: OpenDirectory, name: str, parts: Iterable[bytes]) -> bool:
    """Publish one file durably: written, synced, linked, directory synced. False when the name was there already."""
    temporary = Temporary(directory, name, parts)
    try:
        temporary.sync()
        published = temporary.link(name)
        directory.sync()
    finally:
        temporary.discard()
    return published
