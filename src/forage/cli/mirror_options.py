"""Flags that several mirror commands share, and the values they become."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from forage.cli.browser_flags import add_browser_options, browser_options, viewport
from forage.cli.options import folder, quoted
from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    from forage.egress import EgressPolicy
    from forage.mirror import BrowserProbe, EscapePolicy

__all__ = [
    "LONGEST_DELAY",
    "add_archive_options",
    "add_base_option",
    "add_probe_options",
    "add_root_option",
    "documents_of",
    "load_policy",
    "open_probe",
    "require_root",
]

LONGEST_DELAY = 86_400
"""Seconds between two requests, at most."""
_ARCHIVE = "https://web.archive.org"


def add_root_option(parser: argparse.ArgumentParser) -> None:
    """Which mirror a command looks into."""
    parser.add_argument("--root", "-r", type=folder, metavar="DIR", required=True, help="folder of the mirror (required)")


def require_root(path: Path) -> None:
    """A misspelt folder must not pass for a mirror in which nothing is wrong. Raises InvalidPolicyError."""
    if not path.is_dir():
        raise InvalidPolicyError("--root", "the folder of a mirror that is there", got=str(path))


def add_base_option(parser: argparse._ActionsContainer) -> None:
    """Whose replay URLs are understood beside those of web.archive.org."""
    parser.add_argument("--archive-base", default=_ARCHIVE, metavar="URL", help="KEY may be a replay URL of this service, too")


def documents_of(texts: Iterable[str], *bases: str) -> list[str]:
    """Keys of documents, each named by its key or by a replay URL of the archive or of one of ``bases``. Raises InvalidPolicyError."""
    from forage.mirror.keys import parse_crawl_input

    keys = []
    for text in texts:
        document = next(filter(None, (parse_crawl_input(text, base) for base in (_ARCHIVE, *bases))), None)
        if document is None:
            services = " or ".join(map(quoted, bases or (_ARCHIVE,)))
            raise InvalidPolicyError("KEY", f"TIMESTAMP/ORIGINAL, or a replay URL of {services}", got=text)
        keys.append(document.key)
    return keys


def add_archive_options(parser: argparse.ArgumentParser) -> None:
    """Which archive, and how it can reach the operator."""
    parser.add_argument(
        "--archive-base",
        default=_ARCHIVE,
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
