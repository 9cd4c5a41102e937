"""The ``forage`` command: flags to policy values, values to calls, results to text and an exit code. No logic of its own.

Data goes to standard output, what people read goes to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage, 5 refused by the egress
guard, 10 a browser is needed and missing, 11 interrupted with the work so far kept.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import trio

from forage.errors import EgressError, ForageError, InvalidPolicyError

__all__ = ["build_parser", "main"]

COMMANDS = ("crawl", "fetch", "resolve", "replay", "snapshots", "manifest", "egress", "mirror", "demo")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; each command is a module of this package with ``add_parser`` and ``run``."""
    parser = argparse.ArgumentParser(
        prog="forage",
        description="Crawl URLs that nobody vouches for through a pinned egress guard, and cite what was kept.",
        epilog="exit codes: 0 done, 1 failed, 2 wrong usage, 5 refused by the guard, 10 browser missing, 11 interrupted",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"forage.cli.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; never raises for what a user may cause."""
    args = build_parser().parse_args(argv)
    run = import_module(f"forage.cli.{args.command}").run
    try:
        return int(trio.run(functools.partial(run, args, sys.stdout, sys.stderr)))
    except _FORESEEN as exc:
        return _explain(args.command, exc)
    except BaseExceptionGroup as group:
        # What ends a nursery arrives in a group. It is told like a single one, unless something unforeseen is among its members.
        foreseen, others = group.split(_FORESEEN)
        if foreseen is None or others is not None:
            raise
        return _explain(args.command, _first(foreseen))


_FORESEEN = (ForageError, KeyboardInterrupt, BrokenPipeError)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    member = group.exceptions[0]
    return _first(member) if isinstance(member, BaseExceptionGroup) else member


def _explain(command: str, exc: BaseException) -> int:
    """One line for a person where there is something to say, and the exit code."""
    if isinstance(exc, KeyboardInterrupt):
        return 11
    if isinstance(exc, BrokenPipeError):
        # The reader of our output went away; what a later flush would say is of no use to anybody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    print(f"forage {command}: {exc}", file=sys.stderr)
    if isinstance(exc, InvalidPolicyError):
        return 2
    return 5 if isinstance(exc, EgressError) else 1
