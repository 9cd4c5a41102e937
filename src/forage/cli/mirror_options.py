"""Flags that several mirror commands share, and the values they become."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from forage.cli.options import folder
from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    from forage.browser import BrowserOptions, Viewport
    from forage.mirror import BrowserProbe, EscapePolicy

__all__ = [
    "BrowserFlags",
    "add_archive_options",
    "add_browser_options",
    "add_root_option",
    "browser_flags",
    "load_policy",
    "open_probe",
    "require_root",
]

_VIEWPORT = re.compile(r"([0-9]{1,5})x([0-9]{1,5})(?:@([0-9]{1,2}(?:\.[0-9]{1,2})?))?", re.ASCII)
_UNPRIVILEGED = "nobody"


def add_root_option(parser: argparse.ArgumentParser) -> None:
    """Which mirror a command looks into."""
    parser.add_argument("--root", "-r", type=folder, metavar="DIR", required=True, help="folder of the mirror (required)")


def require_root(path: Path) -> None:
    """A misspelt folder must not pass for a mirror in which nothing is wrong. Raises InvalidPolicyError."""
    if not path.is_dir():
        raise InvalidPolicyError("--root", "the folder of a mirror that is there", got=str(path))


def add_archive_options(parser: argparse.ArgumentParser) -> None:
    """Which archive, and how it can reach the operator."""
    parser.add_argument(
        "--archive-base",
        default="https://web.archive.org",
        metavar="URL",
        help="fetch captures from another service; the address in front of /web (default https://web.archive.org)",
    )
    parser.add_argument(
        "--contact",
        default="forage-crawl",
        metavar="TEXT",
        help="how the archive can reach you; part of the user agent (default forage-crawl)",
    )


def add_browser_options(parser: argparse.ArgumentParser) -> None:
    """Which browser renders, how it is contained, and how a page is watched."""
    group = parser.add_argument_group("browser")
    group.add_argument("--browser-cmd", metavar="PROGRAM", help="the browser to use (default: Chromium, full if it is installed)")
    group.add_argument("--browser-user", metavar="NAME", help="account under which root runs the browser (default nobody)")
    group.add_argument("--no-sandbox", action="store_true", help="give up the browser's own sandbox; shows in stamps")
    group.add_argument("--viewport", action="append", default=[], metavar="WxH[@SCALE]", help="render at this size; again for more sizes")
    group.add_argument("--min-wait", type=float, default=4.0, metavar="S", help="seconds a page is watched at least (default 4)")


@attrs.frozen(kw_only=True)
class BrowserFlags:
    """The browser flags of a command line. ``min_wait`` in seconds."""

    program: str | None = None
    user: str | None = None
    sandbox: bool = True
    viewports: tuple[str, ...] = ()
    min_wait: float = 4.0

    def options(self) -> BrowserOptions:
        """How the browser is started. Root cannot have its sandbox, so it is run under another account. Raises InvalidPolicyError."""
        from forage.browser import BrowserOptions

        user = self.user or (_UNPRIVILEGED if self.sandbox and os.geteuid() == 0 else None)
        return BrowserOptions(program=self.program, prefer="full", user=user, sandbox=self.sandbox)

    def sizes(self) -> tuple[Viewport, ...]:
        """The viewports, one by default. Raises InvalidPolicyError."""
        from forage.browser import Viewport

        return tuple(map(_viewport, self.viewports)) or (Viewport(),)


def _viewport(text: str) -> Viewport:
    from forage.browser import Viewport

    found = _VIEWPORT.fullmatch(text)
    if found is None:
        raise InvalidPolicyError("--viewport", "a size like 1280x800 or 390x844@2", got=text)
    return Viewport(width=int(found[1]), height=int(found[2]), scale=float(found[3] or 1))


def browser_flags(args: argparse.Namespace) -> BrowserFlags:
    """The flags of `add_browser_options`."""
    return BrowserFlags(
        program=args.browser_cmd,
        user=args.browser_user,
        sandbox=not args.no_sandbox,
        viewports=tuple(args.viewport),
        min_wait=args.min_wait,
    )


def open_probe(flags: BrowserFlags) -> BrowserProbe:
    """What renders documents; nothing is started, and whether the program is there is not looked at. Raises InvalidPolicyError."""
    from forage.mirror import BrowserProbe

    return BrowserProbe(flags.options(), viewports=flags.sizes(), min_wait=flags.min_wait)


def load_policy(path: Path | None) -> EscapePolicy:
    """The policy of a file, or the default, which sanctions nothing. Raises InvalidPolicyError."""
    from forage.mirror import EscapePolicy, parse_policy
    from forage.mirror.policy import MAX_POLICY_BYTES

    if path is None:
        return EscapePolicy()
    try:
        with path.open("rb") as file:
            data = file.read(MAX_POLICY_BYTES + 1)
    except OSError as exc:
        raise InvalidPolicyError("--allow-escapes", "a policy file that can be read") from exc
    if len(data) > MAX_POLICY_BYTES:
        raise InvalidPolicyError("--allow-escapes", f"a policy file of at most {MAX_POLICY_BYTES} bytes")
    return parse_policy(data.decode("utf-8", "replace"))
