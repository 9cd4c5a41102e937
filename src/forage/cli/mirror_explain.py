"""``forage mirror explain``: why a document is not verified: which request, what asked for it, where that stands in the source."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, TextIO

import trio

from forage._codec import dump_pretty
from forage.cli.mirror_options import add_base_option, add_root_option, documents_of, require_root
from forage.cli.options import quoted

__all__ = ["add_parser", "run", "tell"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = commands.add_parser(
        "explain", help="why a document is not verified", description=__doc__, epilog="exit codes: 0 it is verified, 1 not, 2 wrong usage"
    )
    add_root_option(parser)
    add_base_option(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("key", metavar="KEY", help="TIMESTAMP/ORIGINAL, or a replay URL")


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when the document is verified and its files are sound, 1 when not."""
    from forage.mirror.explain import explain_document

    (key,) = documents_of([args.key], args.archive_base)
    require_root(args.root)
    found = await trio.to_thread.run_sync(explain_document, args.root, key)
    if args.json:
        out.write(dump_pretty(found) + "\n")
    else:
        tell(found, out)
    return 0 if found["status"] == "verified" else 1


def tell(found: Mapping[str, Any], out: TextIO) -> None:
    """What was found, as text for people."""
    out.write(f"{quoted(found['key'])}: {quoted(found['status'])}" + (f", {quoted(found['reason'])}" if found["reason"] else "") + "\n")
    for row in found["blocking"]:
        out.write(f"  {row['what']}: {quoted(row['subject'])}\n")
        if row.get("initiator"):
            out.write(f"    asked for by {quoted(row['initiator'])}\n")
        out.writelines(
            f"    in {quoted(place['key'])}, line {place['line']}, column {place['column']}: {quoted(place['text'])}\n"
            for place in row["places"]
        )
