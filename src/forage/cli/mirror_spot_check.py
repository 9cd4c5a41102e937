"""``forage mirror spot-check``: documents of a deployed mirror, rendered under its own content security policy, and what that blocks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from forage.cli.mirror_options import add_base_option, add_probe_options, documents_of, load_policy, open_probe
from forage.cli.options import quoted
from forage.errors import BrowserError, InvalidPolicyError

if TYPE_CHECKING:
    from forage.egress import EgressPolicy
    from forage.mirror import SpotCheck

__all__ = ["add_parser", "run"]

_BROWSER_MISSING = 10


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = commands.add_parser(
        "spot-check",
        help="render documents of a deployed mirror, say what its policy blocks",
        description=__doc__,
        epilog="exit codes: 0 nothing is blocked or asked of others, 1 something is, 2 wrong usage, 10 no browser",
    )
    parser.add_argument("--json", action="store_true", help="one JSON list on standard output")
    parser.add_argument("--allow-escapes", type=Path, metavar="FILE", help="policy of allowed third parties, instead of the default")
    parser.add_argument(
        "--allow-network", action="append", default=[], metavar="CIDR", help="the mirror may have an address of this network"
    )
    add_base_option(parser)
    add_probe_options(parser)
    parser.add_argument("base_url", metavar="BASE-URL", help="where the mirror is deployed")
    parser.add_argument("keys", nargs="+", metavar="KEY", help="TIMESTAMP/ORIGINAL, or a replay URL of an archive or of this mirror")


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Nothing but the mirror's own origin is reached, whatever its pages ask for."""
    from forage.mirror import spot_check

    documents = documents_of(args.keys, args.archive_base, args.base_url)
    _check_base(args.base_url)
    policy, probe = load_policy(args.allow_escapes), open_probe(args, egress=_egress(args.base_url, args.allow_network))

    def tell(check: SpotCheck) -> None:
        if not args.json:
            out.writelines(f"{line}\n" for line in _lines(check))
            out.flush()

    try:
        checks = await spot_check(args.base_url, documents, probe=probe, policy=policy, on_check=tell)
    except BrowserError as exc:
        print(f"forage mirror spot-check: {exc}", file=err)
        return _BROWSER_MISSING
    if args.json:
        from forage._codec import dump_pretty

        out.write(dump_pretty([check.to_json() for check in checks]) + "\n")
    return 0 if all(check.ok for check in checks) else 1


def _check_base(base_url: str) -> None:
    """Raises InvalidPolicyError for what no mirror can be deployed at: the path of a document is put behind it."""
    from forage.mirror.leaks import url_origin

    if not url_origin(base_url).startswith(("http://", "https://")) or not base_url.isprintable() or {"?", "#", " "} & set(base_url):
        raise InvalidPolicyError("BASE-URL", "the http or https URL of a mirror, without query", got=base_url)


def _egress(base_url: str, networks: Sequence[str]) -> EgressPolicy | None:
    """The policy to reach the mirror with: None for one on loopback over http. Raises InvalidPolicyError, EgressDeniedError."""
    from forage.egress import EgressPolicy, judge_url
    from forage.mirror.leaks import url_origin

    EgressPolicy(allow_networks=tuple(networks))
    origin = url_origin(base_url)
    if origin.startswith(("http://127.0.0.1:", "http://[::1]:")):
        return None
    from ada_url import URL

    port = URL(origin).port if origin else ""
    policy = EgressPolicy(ports=(int(port),) if port else (), allow_networks=tuple(networks))
    judge_url(base_url, policy)
    return policy


def _lines(check: SpotCheck) -> list[str]:
    lines = [f"{'ok' if check.ok else 'not ok'}  {quoted(check.key)}"]
    if check.status != 200:
        lines.append(f"  the document was answered with {check.status}" if check.status else "  the document did not come")
    lines += [] if check.error is None else [f"  {quoted(check.error)}"]
    for what, texts in (
        ("blocked by its policy", check.blocked),
        ("asked of others", check.asked),
        ("sanctioned", check.sanctioned),
        ("failed at its own origin", check.failed),
        ("tried to go to", check.navigations),
    ):
        lines += [f"  {what}: {quoted(text)}" for text in texts]
    return lines
