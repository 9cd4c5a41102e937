"""``forage mirror status``: how many documents of a mirror are verified, and why the others are not."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

import trio

from forage._codec import dump_pretty
from forage.cli.mirror_options import add_root_option, require_root
from forage.cli.options import counted, quoted

__all__ = ["add_parser", "mirror_status", "run"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = commands.add_parser("status", help="what is verified, and what is not", description=__doc__)
    add_root_option(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when every document is verified under the rule in force, else 1."""
    require_root(args.root)
    status = await trio.to_thread.run_sync(mirror_status, args.root)
    if args.json:
        out.write(dump_pretty(status) + "\n")
    else:
        out.write(f"{counted(status['documents'], 'document')}, {status['verified']} verified\n")
        out.writelines(f"{count:6d}  {reason}\n" for reason, count in status["reasons"].items())
        out.writelines(f"{row['reason']}\t{quoted(row['key'])}\n" for row in status["unverified"])
    return 0 if status["verified"] == status["documents"] else 1


def mirror_status(root: Path) -> dict[str, Any]:
    """Documents of a root by what the ledgers say of them."""
    from forage.mirror import RULE_VERSION, CacheRoot
    from forage.mirror.ledgers import Ledgers

    ledgers = Ledgers(root)
    verified, flaky = ledgers.verified(RULE_VERSION), ledgers.flaky()
    documents = CacheRoot(root).document_keys()
    unverified = [{"key": key, "reason": str(flaky.get(key, {}).get("reason", "not-rendered"))} for key in documents if key not in verified]
    return {
        "documents": len(documents),
        "verified": len(documents) - len(unverified),
        "ruleVersion": RULE_VERSION,
        "reasons": dict(Counter(row["reason"] for row in unverified).most_common()),
        "unverified": unverified,
    }
