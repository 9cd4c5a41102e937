"""Flags that several mirror commands share, and the values they become."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    from forage.mirror import EscapePolicy, Probe

__all__ = ["add_archive_options", "load_policy", "open_probe"]


def add_archive_options(parser: argparse.ArgumentParser) -> None:
    """Which archive, and how it can reach the operator."""
    parser.add_argument("--archive-base", default="https://web.archive.org", metavar="URL", help="fetch captures from another service")
    parser.add_argument("--contact", default="forage-crawl", metavar="TEXT", help="how the archive can reach you; part of the user agent")


def open_probe(_: str | None) -> Probe | None:
    """The browser that renders documents; None where there is none."""
    return None


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
