"""Flags that several commands share, and the values they become."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forage.errors import EgressCode, EgressDeniedError, InvalidPolicyError, SnapshotStoreError, StoreErrorCode, StoreErrorReason

if TYPE_CHECKING:
    from forage.egress import EgressPolicy
    from forage.snapshots import FilesystemSnapshotStore

__all__ = [
    "add_egress_options",
    "add_request_options",
    "counted",
    "egress_policy",
    "folder",
    "headers_of",
    "next_command",
    "open_store",
    "opening_hint",
    "quoted",
    "refusal_of",
]

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)  # RFC 9110 5.6.2


def folder(text: str) -> Path:
    """The path of a folder, as argparse calls it. An empty text, mostly an unset variable of a shell, would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("takes the path of a folder, not ''")
    return Path(text)


def add_egress_options(parser: argparse.ArgumentParser) -> None:
    """What the guard opens beyond its defaults; each is one explicit flag."""
    group = parser.add_argument_group("egress guard (on by default)")
    group.add_argument("--port", type=int, action="append", default=[], metavar="N", help="also allow this port, next to 80 and 443")
    group.add_argument("--allow-network", action="append", default=[], metavar="CIDR", help="also allow addresses of this network")
    group.add_argument("--allow-loopback-origin", action="append", default=[], metavar="URL", help="open exactly http://127.0.0.1:PORT")
    group.add_argument(
        "--redirect-hosts",
        choices=("same-host", "same-site", "any"),
        default="same-host",
        help="where redirects may lead (default same-host)",
    )
    group.add_argument("--ca-file", type=Path, metavar="PEM", help="trust these certificate authorities instead of the system's")
    group.add_argument("--unguarded", action="store_true", help="switch the guard off; shows in the manifest and in the logs")


def add_request_options(parser: argparse.ArgumentParser) -> None:
    """How requests look and how polite they are."""
    group = parser.add_argument_group("requests")
    group.add_argument("--delay", type=float, default=1.0, metavar="S", help="seconds between request starts on a host (default 1)")
    group.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="send this header to the seed's origin")
    group.add_argument("--user-agent", metavar="TEXT", help="User-Agent, and the token that robots.txt is read for (default forage/0.1)")
    group.add_argument("--ignore-robots", action="store_true", help="do not ask robots.txt; shows in the manifest")
    group.add_argument(
        "--max-response-bytes", type=int, default=64 * 1024 * 1024, metavar="N", help="largest body, decoded (default 64 MiB)"
    )


def egress_policy(args: argparse.Namespace) -> EgressPolicy:
    """The guard's policy of the flags above. Raises InvalidPolicyError."""
    from forage.egress import EgressPolicy

    if args.ca_file is not None:
        _check_authorities(args.ca_file)
    return EgressPolicy(
        guarded=not args.unguarded,
        ports=tuple(args.port),
        allow_networks=tuple(args.allow_network),
        redirect_hosts=args.redirect_hosts,
        # With the slash that a browser's address bar puts behind an origin.
        test_loopback_origins=tuple(origin.removesuffix("/") for origin in args.allow_loopback_origin),
        ca_file=args.ca_file,
    )


def _check_authorities(path: Path) -> None:
    """Certificates are loaded with the first https connection, which may be late in a crawl, or never come."""
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except OSError as exc:
        raise InvalidPolicyError("--ca-file", "a readable file of PEM certificates", got=str(path)) from exc


def headers_of(lines: Sequence[str]) -> dict[str, str]:
    """``NAME: VALUE`` lines as a mapping. Raises InvalidPolicyError, which shows no value: it may be a secret."""
    from forage.egress import is_reserved

    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.strip()
        if not colon or _TOKEN.fullmatch(name) is None or not value.replace("\t", " ").isprintable():
            raise InvalidPolicyError("--header", "'NAME: VALUE', one printable line")
        if is_reserved(name):
            raise InvalidPolicyError("--header", "a header that the guard does not set by itself", got=name)
        headers[name] = value.strip()
    return headers


def open_store(path: Path, *, write: bool, make: bool = True) -> FilesystemSnapshotStore:
    """The store at ``path``, after a look at whether it can be used at all; with ``write`` and ``make`` the folder is made when absent.

    Raises SnapshotStoreError, before anything is asked of anybody.
    """
    from forage.snapshots import FilesystemSnapshotStore

    try:
        if write and make:
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


# --- what to do next


def opening_hint(code: str | None, url: str) -> str | None:
    """The flag that opens what the guard refused with ``code``, where one flag does and a person may well want it."""
    from ada_url import URL

    try:
        parsed = URL(url)
    except ValueError:
        return None
    loopback = parsed.protocol == "http:" and parsed.hostname in ("127.0.0.1", "[::1]")
    if loopback and parsed.port and code in (EgressCode.INVALID_PORT, EgressCode.DENIED_ADDRESS):
        return f"to open this origin of your own machine: --allow-loopback-origin http://{parsed.host}"
    if loopback and code == EgressCode.DENIED_ADDRESS:
        return "a server of your own machine is opened by --allow-loopback-origin, with its port in the URL"
    if code == EgressCode.INVALID_PORT and parsed.port not in ("", "0"):
        return f"to open this port: --port {parsed.port}"
    return None


def refusal_of(url: str, policy: EgressPolicy) -> str | None:
    """Why the guard refuses a URL, as far as the URL alone tells: its code, or None."""
    from forage.egress import judge_url

    try:
        judge_url(url, policy)
    except EgressDeniedError as exc:
        return exc.code.value
    return None


def next_command(parser: argparse.ArgumentParser, args: argparse.Namespace, url: str) -> str:
    """The command line that does for ``url`` what was asked for ``args.url``: every flag that was given, quoted for a shell.

    But ``--header``: headers are for the origin they were given for, and what they hold (a token, a cookie) is not shown on a screen.
    """
    words = [*parser.prog.split(), url]
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of its options
        if not action.option_strings or action.dest in ("help", "header"):
            continue
        value = getattr(args, action.dest)
        if value == action.default:
            continue
        flag = action.option_strings[-1]
        for one in value if isinstance(value, list) else [value]:
            text = str(one)
            words += [flag] if value is True else [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return shlex.join(words)


def counted(number: int, name: str) -> str:
    """``1 page``, ``2 pages``."""
    return f"{number} {name}" if number == 1 else f"{number} {name}s"
