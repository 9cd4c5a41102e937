"""Files that a command writes because a flag names them: checked before the work begins, put in place at one stroke at its end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from forage._files import random_name, write_all
from forage.errors import ForageError, InvalidPolicyError

__all__ = ["check_output", "write_output"]


def check_output(flag: str, path: Path) -> None:
    """Raises InvalidPolicyError when `write_output` could not write ``path``: hours of work must not end in a misspelt folder."""
    accepted = "a file that can be written"
    if path.is_dir() or not path.name:
        raise InvalidPolicyError(flag, f"{accepted}; this is a folder", got=str(path))
    try:
        if _is_special(path):
            usable = os.access(path, os.W_OK)
        else:
            scratch, fd = _open_scratch(_target(path))
            os.close(fd)
            scratch.unlink()
            usable = not path.exists() or os.access(path, os.W_OK)
    except OSError as exc:
        raise InvalidPolicyError(flag, f"{accepted} ({exc.strerror})", got=str(path)) from exc
    if not usable:
        raise InvalidPolicyError(flag, f"{accepted} (it is read-only)", got=str(path))


def write_output(flag: str, path: Path, text: str) -> None:
    """Write ``text``; a reader sees the old content or the new, never a part. Raises ForageError when it cannot be written."""
    data = text.encode("utf-8")
    try:
        if _is_special(path):
            with path.open("wb") as file:
                file.write(data)
        else:
            _replace(_target(path), data)
    except OSError as exc:
        raise ForageError(f"{flag}: {path} cannot be written ({exc.strerror})") from exc


def _is_special(path: Path) -> bool:
    """A pipe or terminal has no content to put in place, and a rename would take the place of ``/dev/stdout`` itself."""
    if str(path).startswith(("/dev/", "/proc/")):
        return True
    return path.exists() and not path.is_file()


def _target(path: Path) -> Path:
    """The file behind a link: the link stays."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _open_scratch(path: Path) -> tuple[Path, int]:
    scratch = path.with_name(f".forage.{os.getpid()}.{random_name()}.tmp")
    return scratch, os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _replace(path: Path, data: bytes) -> None:
    scratch, fd = _open_scratch(path)
    try:
        try:
            write_all(fd, data)
            if path.exists():
                os.fchmod(fd, stat.S_IMODE(path.stat().st_mode))
            os.fsync(fd)
        finally:
            os.close(fd)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
