"""``forage fetch``: one polite, guarded acquisition, and everything that is known about it."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from forage._codec import dump_compact
from forage.cli.options import add_egress_options, add_request_options, egress_policy, headers_of, open_store, quoted
from forage.cli.resolve import print_snapshot
from forage.errors import FetchErrorKind

if TYPE_CHECKING:
    from forage.fetch import FetchResult

__all__ = ["add_parser", "run"]

FAILED = 1
REFUSED = 5


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("fetch", help="fetch one URL through the guard", description=__doc__)
    parser.add_argument("url", help="an absolute http or https URL")
    parser.add_argument("--id", metavar="TEXT", help="source id to keep it under (default: the URL)")
    parser.add_argument("--store", type=Path, metavar="DIR", help="keep the snapshot here; an earlier one is revalidated")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--body", action="store_true", help="write the bytes that were hashed to standard output, and nothing else")
    add_request_options(parser)
    add_egress_options(parser)


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 with a snapshot, 5 when the guard refused, else 1."""
    from forage.fetch import Fetcher, Source

    store = None if args.store is None else open_store(args.store, write=True)
    source = Source(id=args.id or args.url, url=args.url, headers=headers_of(args.header), user_agent=args.user_agent)
    fetcher = Fetcher(
        egress=egress_policy(args), delay=args.delay, obey_robots=not args.ignore_robots, max_response_bytes=args.max_response_bytes
    )
    async with fetcher:
        result = await fetcher.fetch(source, store=store)
        for url in result.redirects:
            print(f"redirected from {quoted(url)}", file=err)
        for warning in result.warnings:
            print(f"warning: {quoted(warning)}", file=err)
        if result.snapshot is None:
            return _failed(result, args, out, err)
        if store is not None and not result.snapshot.not_modified:
            await store.put(result.snapshot)
    _print_facts(result, err)
    print_snapshot(result.snapshot, args, out)
    return 0


def _failed(result: FetchResult, args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    error = result.error
    assert error is not None
    if args.json:
        row = {"error": error.kind.value, "reason": error.reason, "message": error.message, "status": error.status, "target": error.target}
        out.write(dump_compact({"url": result.url, **{k: v for k, v in row.items() if v is not None}}) + "\n")
    reason = "" if error.reason is None else f" ({error.reason})"
    print(f"forage fetch: {error.kind}{quoted(reason)}: {quoted(error.message)}", file=err)
    if error.target is not None:
        print(f"the refused target; to fetch it:\n  {shlex.join(['forage', 'fetch', error.target])}", file=err)
    return REFUSED if error.kind is FetchErrorKind.EGRESS_DENIED else FAILED


def _print_facts(result: FetchResult, err: TextIO) -> None:
    facts = result.facts
    if facts is None:
        return
    print(f"connected to {facts.connected} of {', '.join(facts.answers)}", file=err)
    if facts.tls is not None:
        print(f"{facts.tls.version}, {facts.tls.cipher}, certificate {facts.tls.certificate_sha256}", file=err)
    phases = ", ".join(f"{phase} {seconds * 1000:.1f} ms" for phase, seconds in facts.timings.items())
    print(f"{result.requests} requests in {result.seconds:.3f} s: {phases}", file=err)
