"""``forage fetch``: one polite, guarded acquisition, and everything that is known about it."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, TextIO

from forage._codec import dump_compact
from forage.cli.options import (
    add_egress_options,
    add_request_options,
    counted,
    egress_policy,
    folder,
    headers_of,
    next_command,
    open_store,
    opening_hint,
    quoted,
    refusal_of,
)
from forage.cli.resolve import print_snapshot
from forage.errors import EgressCode, FetchErrorKind, InvalidPolicyError

if TYPE_CHECKING:
    from forage.egress import EgressPolicy
    from forage.fetch import FetchFailure, FetchResult, Source

__all__ = ["add_parser", "run"]

FAILED = 1
REFUSED = 5


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("fetch", help="fetch one URL through the guard", description=__doc__)
    parser.add_argument("url", help="an absolute http or https URL")
    parser.add_argument("--id", metavar="TEXT", help="source id to keep it under (default: the URL)")
    parser.add_argument("--store", type=folder, metavar="DIR", help="keep the snapshot here; an earlier one is revalidated")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--body", action="store_true", help="write the bytes that were hashed to standard output, and nothing else")
    add_request_options(parser)
    add_egress_options(parser)
    parser.set_defaults(next_command=partial(next_command, parser))


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 with a snapshot, 5 when the guard refused, else 1."""
    from forage.fetch import Fetcher

    source, policy = _source(args), egress_policy(args)
    fetcher = Fetcher(egress=policy, delay=args.delay, obey_robots=not args.ignore_robots, max_response_bytes=args.max_response_bytes)
    store = None if args.store is None else open_store(args.store, write=True)
    async with fetcher:
        result = await fetcher.fetch(source, store=store)
        if result.snapshot is not None and store is not None and not result.snapshot.not_modified:
            await store.put(result.snapshot)
    for url in result.redirects:
        print(f"redirected from {quoted(url)}", file=err)
    for warning in result.warnings:
        print(f"warning: {quoted(warning)}", file=err)
    if result.snapshot is None:
        return _failed(result, args, policy, out, err)
    if result.snapshot.not_modified:
        print("not modified since it was kept (304)", file=err)
    _print_facts(result, err)
    print_snapshot(result.snapshot, args, out, more=_facts(result))
    return 0


def _source(args: argparse.Namespace) -> Source:
    """What is wrong with a URL, header or agent by itself is wrong usage here as it is for a crawl. Raises InvalidPolicyError."""
    from forage.crawler import Seed
    from forage.fetch import Source

    seed = Seed(url=args.url, headers=headers_of(args.header), user_agent=args.user_agent)
    source_id = args.url if args.id is None else args.id
    return Source(id=source_id, url=seed.url, headers=seed.headers, user_agent=seed.user_agent)


def _facts(result: FetchResult) -> dict[str, object]:
    """What is known of an acquisition beside its snapshot, or its error."""
    row: dict[str, object] = {"redirects": list(result.redirects), "warnings": list(result.warnings)}
    if result.snapshot is not None:
        row["notModified"] = bool(result.snapshot.not_modified)
    row |= {"requests": result.requests, "seconds": round(result.seconds, 6)}
    facts = result.facts
    if facts is None:
        return row
    row |= {"answers": list(facts.answers), "connected": facts.connected, "timings": dict(facts.timings)}
    if facts.tls is not None:
        tls = {"version": facts.tls.version, "cipher": facts.tls.cipher, "certificateSha256": facts.tls.certificate_sha256}
        row |= {"tls": tls}
    return row


def _failed(result: FetchResult, args: argparse.Namespace, policy: EgressPolicy, out: TextIO, err: TextIO) -> int:
    error = result.error
    assert error is not None
    if error.kind is FetchErrorKind.INVALID_CONFIG:
        field, colon, accepted = error.message.partition(": takes ")
        raise InvalidPolicyError(field if colon else "headers", accepted or f"what a request can carry ({error.message})")
    if args.json:
        row = {"error": error.kind.value, "reason": error.reason, "message": error.message, "status": error.status, "target": error.target}
        out.write(dump_compact({"url": result.url, **{k: v for k, v in row.items() if v is not None}, **_facts(result)}) + "\n")
    reason = "" if error.reason is None else f" ({error.reason})"
    print(f"forage fetch: {error.kind}{quoted(reason)}: {quoted(error.message)}", file=err)
    _advise(error, args, policy, err)
    return REFUSED if error.kind is FetchErrorKind.EGRESS_DENIED else FAILED


def _advise(error: FetchFailure, args: argparse.Namespace, policy: EgressPolicy, err: TextIO) -> None:
    """What a person can do about a refusal."""
    hint = None if error.kind is not FetchErrorKind.EGRESS_DENIED or error.target else opening_hint(error.reason, args.url)
    if hint is not None:
        print(hint, file=err)
    if error.target is None or error.reason != EgressCode.REDIRECT_CROSS_HOST:
        return
    refusal = refusal_of(error.target, policy)
    if refusal is not None:
        print(f"it redirects to {quoted(error.target)}, which the guard refuses, too ({refusal})", file=err)
    else:
        print(f"it redirects to another host; to fetch that one:\n  {args.next_command(args, error.target)}", file=err)


def _print_facts(result: FetchResult, err: TextIO) -> None:
    facts = result.facts
    if facts is None:
        return
    if facts.connected:
        print(f"connected to {facts.connected}" + (f" of {', '.join(facts.answers)}" if facts.answers else ""), file=err)
    if facts.tls is not None:
        print(f"{facts.tls.version}, {facts.tls.cipher}, certificate {facts.tls.certificate_sha256}", file=err)
    phases = ", ".join(f"{phase} {seconds * 1000:.1f} ms" for phase, seconds in facts.timings.items())
    print(f"{counted(result.requests, 'request')} in {result.seconds:.3f} s: {phases}", file=err)
