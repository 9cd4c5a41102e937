"""Flags by which a command says which browser is used and how it is contained, and the value they become."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from forage.cli.options import quoted
from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    from forage.browser import BrowserOptions, RequestEntry, Viewport

__all__ = ["add_browser_options", "browser_options", "check_output", "request_line", "viewport"]

_UNPRIVILEGED = "nobody"
_VIEWPORT = re.compile(r"([0-9]{1,5})x([0-9]{1,5})(?:@([0-9]{1,2}(?:\.[0-9]{1,3})?))?")


def add_browser_options(parser: argparse.ArgumentParser, *, kind: str) -> None:
    """Which browser, and how it is contained; ``kind`` is the default of the command."""
    group = parser.add_argument_group("browser")
    group.add_argument("--browser", metavar="PROGRAM", help="name or path of the program (default: FORAGE_CHROMIUM, or what is installed)")
    group.add_argument("--browser-kind", choices=("shell", "full"), default=kind, help=f"which one is looked for first (default {kind})")
    group.add_argument("--browser-user", metavar="NAME", help="account under which root runs it (default nobody)")
    group.add_argument("--no-sandbox", action="store_true", help="give up its own sandbox; every result says so")
    group.add_argument(
        "--transport", choices=("websocket", "pipe"), default="websocket", help="pipe: no debugging port, for machines that others use too"
    )


def browser_options(args: argparse.Namespace) -> BrowserOptions:
    """The flags above as a value. Root cannot have the browser's sandbox, so it is run under another account. Raises InvalidPolicyError."""
    from forage.browser import BrowserOptions

    user = args.browser_user or (_UNPRIVILEGED if os.geteuid() == 0 and not args.no_sandbox else None)
    return BrowserOptions(program=args.browser, prefer=args.browser_kind, user=user, sandbox=not args.no_sandbox, transport=args.transport)


def check_output(flag: str, path: Path | None) -> None:
    """Raises InvalidPolicyError for a file that cannot be written, before anything is done whose outcome would be lost."""
    if path is not None and (path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK)):
        raise InvalidPolicyError(flag, "a file that can be written", got=str(path))


def viewport(text: str) -> Viewport:
    """``1280x800`` or ``360x640@3``. Raises InvalidPolicyError."""
    from forage.browser import Viewport

    found = _VIEWPORT.fullmatch(text)
    if found is None:
        raise InvalidPolicyError("--viewport", "WIDTHxHEIGHT, or WIDTHxHEIGHT@SCALE", got=text)
    return Viewport(width=int(found[1]), height=int(found[2]), scale=float(found[3] or 1))


def request_line(entry: RequestEntry) -> str:
    """One request for a person."""
    status = "" if entry.status is None else f" {entry.status}"
    reason = next((f" ({reason})" for reason in (entry.code, entry.blocked, entry.failure) if reason), "")
    kind = entry.resource_type or ("tunnel" if entry.method == "CONNECT" else entry.session)
    return f"{entry.outcome.value}{status}\t{entry.method}\t{kind}\t{quoted(entry.url)}{quoted(reason)}"
