"""``forage egress``: what the guard says of a URL, and which address it would dial."""

from __future__ import annotations

import argparse
import json
from typing import TextIO

from forage.cli.options import add_egress_options, egress_policy, quoted
from forage.errors import EgressError

__all__ = ["add_parser", "run"]

REFUSED = 5


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("egress", help="ask the egress guard", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="verdict, code, rule and address for each URL; connects to none")
    check.add_argument("url", nargs="+", help="URLs to judge")
    check.add_argument("--json", action="store_true", help="one JSON object a URL on standard output")
    add_egress_options(check)


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when at least one URL is allowed, 5 when all are refused."""
    from forage.egress import evaluate_url

    policy = egress_policy(args)
    allowed = 0
    for url in args.url:
        row: dict[str, object] = {"url": url}
        try:
            target = await evaluate_url(url, policy)
        except EgressError as exc:
            row |= {"verdict": "refused", "code": exc.code.value, "rule": exc.rule, "host": exc.host, "block": exc.block}
        else:
            allowed += 1
            row |= {"verdict": "allowed", "href": target.url, "addresses": [a.address for a in target.addresses]}
        out.write((json.dumps(row) if args.json else _line(row)) + "\n")
    return 0 if allowed else REFUSED


def _line(row: dict[str, object]) -> str:
    url = quoted(str(row["url"]))
    if row["verdict"] == "allowed":
        addresses = row["addresses"]
        assert isinstance(addresses, list)
        return f"allowed  {url}  dials {addresses[0]}" + (f"  (of {', '.join(addresses)})" if len(addresses) > 1 else "")
    reasons = [f"rule {row['rule']}" if row["rule"] else None, f"host {quoted(str(row['host']))}" if row["host"] else None]
    reasons.append(f"in {row['block']}" if row["block"] else None)
    return f"refused  {url}  {row['code']}" + "".join(f", {r}" for r in reasons if r)
