"""Flags that several commands share, and the values they become."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forage.errors import InvalidPolicyError, SnapshotStoreError, StoreErrorCode, StoreErrorReason

if TYPE_CHECKING:
    from forage.egress import EgressPolicy
    from forage.snapshots import FilesystemSnapshotStore

__all__ = ["add_egress_options", "add_request_options", "egress_policy", "headers_of", "open_store", "quoted"]


def add_egress_options(parser: argparse.ArgumentParser) -> None:
    """What the guard opens beyond its defaults; each is one explicit flag."""
    group = parser.add_argument_group("egress guard (on by default)")
    group.add_argument("--port", type=int, action="append", default=[], metavar="N", help="also allow this port, next to 80 and 443")
    group.add_argument("--allow-network", action="append", default=[], metavar="CIDR", help="also allow addresses of this network")
    group.add_argument("--allow-loopback-origin", action="append", default=[], metavar="URL", help="open exactly http://127.0.0.1:PORT")
    group.add_argument("--redirect-hosts", choices=("same-host", "same-site", "any"), default="same-host", help="where redirects may lead")
    group.add_argument("--ca-file", type=Path, metavar="PEM", help="trust these certificate authorities instead of the system's")
    group.add_argument("--unguarded", action="store_true", help="switch the guard off; shows in the manifest and in the logs")


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """How requests look and how polite they are."""
    group = parser.add_argument_group("requests")
    group.add_argument("--delay", type=float, default=1.0, metavar="S", help="seconds between request starts on a host (default 1)")
    group.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="send this header to the seed's origin")
    group.add_argument("--user-agent", metavar="TEXT", help="User-Agent, and the token that robots.txt is read for")
    group.add_argument("--ignore-robots", action="store_true", help="do not ask robots.txt; shows in the manifest")
    group.add_argument(
        "--max-response-bytes", type=int, default=64 * 1024 * 1024, metavar="N", help="largest body, decoded (default 64 MiB)"
    )


def egress_policy(args: argparse.Namespace) -> EgressPolicy:
    """The guard's policy of the flags above. Raises InvalidPolicyError."""
    from forage.egress import EgressPolicy

    return EgressPolicy(
        guarded=not args.unguarded,
        ports=tuple(args.port),
        allow_networks=tuple(args.allow_network),
        redirect_hosts=args.redirect_hosts,
        test_loopback_origins=tuple(args.allow_loopback_origin),
        ca_file=args.ca_file,
    )


def headers_of(lines: Sequence[str]) -> dict[str, str]:
    """``NAME: VALUE`` lines as a mapping. Raises InvalidPolicyError."""
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise InvalidPolicyError("--header", "'NAME: VALUE'", got=line)
        headers[name.strip()] = value.strip()
    return headers


def open_store(path: Path, *, write: bool) -> FilesystemSnapshotStore:
    """The store at ``path``, after a look at whether it can be used at all; with ``write`` the folder is made when absent.

    Raises SnapshotStoreError, before anything is asked of anybody.
    """
    from forage.snapshots import FilesystemSnapshotStore

    try:
        if write:
            path.mkdir(parents=True, exist_ok=True)
        usable = path.is_dir() and os.access(path, os.R_OK | os.X_OK | (os.W_OK if write else 0))
    except OSError:
        usable = False
    if not usable:
        reason = StoreErrorReason.WRITE_FAILED if write else StoreErrorReason.READ_FAILED
        what = "a folder that can be written" if write else "a folder that can be read"
        raise SnapshotStoreError(StoreErrorCode.SNAPSHOT_STORE_ERROR, reason, f"--store: {path} is not {what}")
    return FilesystemSnapshotStore(path)


def quoted(text: str) -> str:
    """Untrusted text for a terminal: control and formatting characters, which could rewrite what a person sees, are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
