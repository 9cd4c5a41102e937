"""Browsers for tests: which programs are installed, and how they are started on the machine at hand."""

from __future__ import annotations

import os
from typing import Any, Final, Literal

from forage.browser import BrowserOptions, find_program
from forage.errors import BrowserMissingError

__all__ = ["KINDS", "Kind", "browser_options", "installed_kinds"]

Kind = Literal["shell", "full"]
KINDS: Final[tuple[Kind, ...]] = ("shell", "full")


def installed_kinds() -> list[Kind]:
    """Programs that are there; the set-up of this project installs both."""
    found = []
    for kind in KINDS:
        try:
            if find_program(prefer=kind).kind == kind:
                found.append(kind)
        except BrowserMissingError:
            continue
    return found


def browser_options(kind: Kind = "shell", **changes: Any) -> BrowserOptions:
    """A contained browser: root starts it under an unprivileged account, as it cannot have the sandbox itself."""
    if os.geteuid() == 0 and "sandbox" not in changes:
        changes.setdefault("user", "nobody")
    return BrowserOptions(prefer=kind, **changes)
