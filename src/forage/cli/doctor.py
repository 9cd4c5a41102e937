"""``forage doctor``: says whether a browser can be used on this machine, and why not."""

from __future__ import annotations

import argparse
from typing import TextIO

import attrs

from forage._codec import dump_compact
from forage.cli.browser_flags import add_browser_options, browser_options
from forage.cli.options import quoted

__all__ = ["add_parser", "run"]

UNUSABLE = 1
MISSING = 10


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("doctor", help="say whether a browser can be used, and why not", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output (also when it is not a terminal)")
    add_browser_options(parser, kind="shell")


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when a browser is usable, 10 when there is none, else 1."""
    from forage.browser import examine

    found = await examine(browser_options(args))
    if args.json or not out.isatty():
        facts = None if found.facts is None else attrs.asdict(found.facts)
        row = {"usable": found.usable, "browser": facts, "findings": [attrs.asdict(finding) for finding in found.findings]}
        out.write(dump_compact(row) + "\n")
    else:
        out.write("".join(f"{finding.level}: {quoted(finding.text)}\n" for finding in found.findings))
    print(f"a browser is {'usable' if found.usable else 'not usable'}", file=err)
    return 0 if found.usable else MISSING if found.missing else UNUSABLE
