"""The folders of a mirror's root, opened one by one so that no link below the root is ever followed (blocking).

A root may come from somebody else: a link in it must lead no write, no deletion and no read out of it, and a pipe in a file's place must
hang nobody. The root itself may be a link. Owns reading, listing and publishing by a name below a root; what the files mean is for others.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from forage._files import FileFault, FileReadError, OpenDirectory, make_directory, read_regular, write_all

__all__ = ["list_folder", "open_file", "open_folder", "publish_file", "read_below", "replace_file"]

# Not every file system can sync a directory; what these say is "not here", never "not written".
_NO_DIRECTORY_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EISDIR, errno.EPERM, errno.EBADF})
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(root: Path, name: str, *, make: bool = False) -> OpenDirectory:
    """The folder ``name`` below ``root``, made with all above it when asked to. OSError for what is a link, no folder, or not there."""
    if make:
        root.mkdir(parents=True, exist_ok=True)
    folder = OpenDirectory(root, follow=True)
    for part in filter(None, name.split("/")):
        with folder:
            if make:
                make_directory(folder, part)
            folder = OpenDirectory(part, inside=folder)
    return folder


def list_folder(root: Path, name: str) -> list[str] | None:
    """Sorted names of what is in a folder; none where it is not there. None: it cannot be listed, so nothing may be concluded."""
    try:
        with open_folder(root, name) as folder:
            return sorted(folder.names())
    except FileNotFoundError:
        return []
    except OSError:
        return None


def read_below(root: Path, name: str, limit: int) -> bytes | None:
    """A regular file of at most ``limit`` bytes, None when it is not there. Raises FileReadError."""
    parent, _, own = name.rpartition("/")
    try:
        with open_folder(root, parent) as folder:
            return read_regular(folder, own, limit)
    except FileNotFoundError:
        return None
    except FileReadError as exc:
        if exc.fault is FileFault.MISSING:
            return None
        raise
    except OSError as exc:
        raise FileReadError(FileFault.FAILED) from exc


def open_file(folder: OpenDirectory, name: str, flags: int) -> int:
    """A descriptor of one regular file. OSError for what is a link or anything else; waits for no peer of a pipe."""
    fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=folder.fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return fd


def publish_file(root: Path, name: str, data: bytes, *, sync: bool) -> None:
    """Write into ``tmp/``, sync, rename into place; ``sync``: the entry of the folder is durable too. Raises OSError and leaves nothing."""
    parent, _, own = name.rpartition("/")
    stem, dot, suffix = own.partition(".")
    scratch = f"{stem}.{os.getpid()}-{secrets.token_hex(6)}{dot}{suffix}.part"
    with open_folder(root, "tmp", make=True) as tmp, open_folder(root, parent, make=True) as folder:
        try:
            _write(tmp, scratch, data, sync=True)
            os.rename(scratch, own, src_dir_fd=tmp.fd, dst_dir_fd=folder.fd)
        except BaseException:
            tmp.unlink(scratch)
            raise
        if sync:
            _sync(folder)


def replace_file(folder: OpenDirectory, name: str, data: bytes) -> None:
    """Write a file anew, in the place of whatever has its name. For what may be lost. Raises OSError."""
    folder.unlink(name)
    _write(folder, name, data, sync=False)


def _write(folder: OpenDirectory, name: str, data: bytes, *, sync: bool) -> None:
    fd = os.open(name, _NEW, 0o666, dir_fd=folder.fd)
    try:
        write_all(fd, data)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def _sync(folder: OpenDirectory) -> None:
    try:
        folder.sync()
    except OSError as exc:
        if exc.errno not in _NO_DIRECTORY_SYNC:
            raise
