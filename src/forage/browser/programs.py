"""Which program is the browser: the one that was named, or the first of those that are known to work.

Two programs of one engine are told apart, because they differ in what they do: the *shell* makes no traffic of its own and costs less,
*full* Chromium fetches icons and isolates sites by default.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final, Literal

import attrs

from forage.errors import BrowserMissingError

__all__ = ["ENVIRONMENT_VARIABLE", "BrowserProgram", "ProgramKind", "find_program"]

ProgramKind = Literal["shell", "full"]

ENVIRONMENT_VARIABLE: Final = "FORAGE_CHROMIUM"
_NAMES: Final[dict[ProgramKind, tuple[str, ...]]] = {
    "shell": ("chromium-headless-shell", "chrome-headless-shell"),
    "full": ("chromium", "chromium-browser", "google-chrome"),
}
# Debian's programs in /usr/bin are scripts that add flags of their own and export keys.
_BEHIND_WRAPPERS: Final = Path("/usr/lib/chromium")


@attrs.frozen(kw_only=True)
class BrowserProgram:
    """A program file. ``kind`` is taken from its name."""

    path: Path
    kind: ProgramKind


def find_program(named: str | Path | None = None, *, prefer: ProgramKind = "shell") -> BrowserProgram:
    """The program to start: ``named``, else what FORAGE_CHROMIUM names, else one that is installed, of the preferred kind if there is one.

    Raises BrowserMissingError.
    """
    chosen = named or os.environ.get(ENVIRONMENT_VARIABLE)
    if chosen:
        found = shutil.which(chosen)
        if found is None:
            source = "" if named else f" ({ENVIRONMENT_VARIABLE})"
            why = " cannot be executed" if Path(chosen).is_file() else " is a folder" if Path(chosen).is_dir() else " is not there"
            raise BrowserMissingError(f"the browser program {Path(chosen).name!r}{source}{why}")
        return _behind(Path(found))
    kinds: tuple[ProgramKind, ...] = ("shell", "full") if prefer == "shell" else ("full", "shell")
    for kind in kinds:
        for name in _NAMES[kind]:
            found = shutil.which(name, path=f"{_BEHIND_WRAPPERS}:{os.environ.get('PATH', os.defpath)}")
            if found is not None:
                return _behind(Path(found))
    raise BrowserMissingError(
        "no browser found: install Debian's chromium-headless-shell (or chromium), or name a program in " + ENVIRONMENT_VARIABLE
    )


def _behind(path: Path) -> BrowserProgram:
    """The program itself where ``path`` is Debian's wrapper."""
    path = path.resolve()
    real = _BEHIND_WRAPPERS / path.name
    if path.parent != _BEHIND_WRAPPERS and _is_script(path) and real.is_file():
        path = real
    return BrowserProgram(path=path, kind="shell" if "shell" in path.name else "full")


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False
