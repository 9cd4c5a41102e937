"""Flags that several mirror commands share, and the values they become."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from forage.cli.browser_flags import add_browser_options, browser_options, viewport
from forage.cli.options import folder
from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    from forage.egress import EgressPolicy
    from forage.mirror import BrowserProbe, EscapePolicy

__all__ = ["add_archive_options", "add_probe_options", "add_root_option", "load_policy", "open_probe", "require_root"]


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


def add_probe_options(parser: argparse.ArgumentParser) -> None:
    """Which browser renders, how it is contained, and how a page is watched."""
    add_browser_options(parser, kind="full")
    group = parser.add_argument_group("rendering")
    group.add_argument("--browser-cmd", dest="browser", metavar="PROGRAM", help=argparse.SUPPRESS)
    group.add_argument("--viewport", action="append", default=[], metavar="WxH[@S]", help="size to render at; may be given several times")
    group.add_argument("--min-wait", type=float, default=4.0, metavar="S", help="seconds a page is watched at least (default 4)")


def open_probe(args: argparse.Namespace, *, egress: EgressPolicy | None = None) -> BrowserProbe:
    """What renders documents, by the flags of `add_probe_options`; nothing is started and the program is not looked for.

    Raises InvalidPolicyError.
    """
    from forage.browser import Viewport
    from forage.mirror import BrowserProbe

    sizes = tuple(map(viewport, args.viewport)) or (Viewport(),)
    return BrowserProbe(browser_options(args), egress=egress, viewports=sizes, min_wait=args.min_wait)


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
