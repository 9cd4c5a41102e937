"""``forage mirror status``: how many documents of a mirror are verified, and still are on disk, and why the others are not."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, TextIO

import trio

from forage._codec import dump_pretty
from forage.cli.interrupts import INTERRUPTED, interruptible
from forage.cli.mirror_options import add_base_option, add_root_option, documents_of, require_root
from forage.cli.options import counted, quoted

__all__ = ["add_parser", "run"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = commands.add_parser(
        "status",
        help="what is verified, and what is not",
        description=__doc__,
        epilog="exit codes: 0 every document is verified and nothing on disk is broken, 1 not, 2 wrong usage, 11 interrupted",
    )
    add_root_option(parser)
    add_base_option(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("keys", nargs="*", metavar="KEY", help="these documents alone: TIMESTAMP/ORIGINAL, or a replay URL")


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when there are documents, all are verified under the rule in force, and nothing on disk is broken; else 1."""
    keys = documents_of(args.keys, args.archive_base)
    require_root(args.root)
    status = await interruptible(lambda: _status(args, keys), err, "interrupted: nothing was looked at to its end")
    if status is None:
        return INTERRUPTED
    if args.json:
        out.write(dump_pretty(status) + "\n")
    else:
        out.write(f"{counted(status['documents'], 'document')}, {status['verified']} verified\n")
        out.writelines(f"{count:6d}  {quoted(reason)}\n" for reason, count in status["reasons"].items())
        out.writelines(f"{quoted(row['reason'])}\t{quoted(row['key'])}\n" for row in status["unverified"])
    if not status["documents"]:
        print("forage mirror status: no documents: nothing was crawled into this folder", file=err)
    found = sum(status["findings"].values())
    if found:
        which = shlex.join(["forage", "mirror", "verify", "--root", str(args.root)])
        print(f"forage mirror status: {counted(found, 'finding')} on disk; which:\n  {which}", file=err)
    return 0 if status["documents"] and not status["unverified"] and not found else 1


async def _status(args: argparse.Namespace, keys: list[str]) -> dict[str, Any]:
    """Everything, in a thread that an interrupt ends between two sidecars."""
    from forage.mirror.status import mirror_status

    def between(_: int) -> None:
        trio.from_thread.check_cancelled()

    return await trio.to_thread.run_sync(lambda: mirror_status(args.root, keys, on_sidecar=between))
