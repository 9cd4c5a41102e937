"""``forage crawl``: crawl from a seed, keep every page, show what happens, and answer with rows that cite what was kept."""

from __future__ import annotations

import argparse
import re
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import trio

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
from forage.cli.output import check_output, write_output
from forage.cli.status import StatusLine, crawl_status
from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    from forage.crawler import CrawlEvent, CrawlManifest, CrawlPolicy, CrawlStream, FollowContext, Link, PageSkip, Seed
    from forage.egress import EgressPolicy

__all__ = ["add_parser", "run"]

NOTHING_CAPTURED = 1
NOT_STORED = 1
REFUSED = 5
INTERRUPTED = 11

_HELD_BACK = ("robots-denied", "robots-unreachable", "crawl-delay-too-long", "retry-after-too-long", "host-paused")
_SHOWN_PAUSE = 0.05
"""Seconds. A shorter pause would be told as one of 0.0 s."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("crawl", help="crawl a site and keep its pages", description=__doc__)
    parser.add_argument("url", help="where to start: an absolute http or https URL")
    parser.add_argument("--store", type=folder, metavar="DIR", help="keep every page here, so that its reference resolves later")
    parser.add_argument("--replay", action="store_true", help="take every page from --store; opens no connection")
    state = parser.add_mutually_exclusive_group()
    state.add_argument("--state", type=Path, metavar="FILE", help="remember in this file how far the crawl is; go on where it was")
    state.add_argument(
        "--resume", type=Path, metavar="FILE", help="go on with the crawl that this file remembers (--state that must be there)"
    )
    parser.add_argument("--manifest", type=Path, metavar="FILE", help="write the manifest (JSON) to this file")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on standard output (also when it is not a terminal)")
    parser.add_argument("--follow", metavar="REGEX", help="follow only links whose URL matches")
    parser.add_argument("--discovery", choices=("links", "sitemap", "both"), default="links", help="where pages are found (default links)")
    parser.add_argument("--concurrency", type=int, default=4, metavar="N", help="requests in flight over all hosts (default 4)")
    parser.add_argument("--max-pages", type=int, default=20, metavar="N", help="attempts, failures included (default 20)")
    parser.add_argument("--max-depth", type=int, default=2, metavar="N", help="links away from the seed (default 2)")
    parser.add_argument("--max-bytes", type=int, metavar="N", help="stop once this many body bytes were kept")
    parser.add_argument("--max-seconds", type=float, metavar="S", help="stop after this long")
    parser.add_argument("--max-failures", type=int, metavar="N", help="stop after more failures than this")
    add_request_options(parser)
    add_egress_options(parser)
    parser.set_defaults(next_command=partial(next_command, parser))


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when pages were captured (and stored), 5 when the guard refused the seed, 11 when interrupted, else 1."""
    from forage.crawler import crawl_stream

    seed, policy = _seed(args), _policy(args)
    if args.manifest is not None:
        check_output("--manifest", args.manifest)
    store = None
    if args.store is not None:
        store = open_store(args.store, write=not args.replay)
    elif args.replay:
        raise InvalidPolicyError("--store", "the store to replay from, together with --replay")
    state = _state(args)
    if args.unguarded:
        print("egress guard: OFF (--unguarded): private and local addresses are reachable", file=err)
    async with crawl_stream(seed, policy, store=store, state=state) as stream, trio.open_nursery() as nursery:
        status = StatusLine(err, crawl_status(stream.progress))
        printer = _Printer(out, err, status, as_json=args.json or not out.isatty())
        interrupted = await nursery.start(_until_interrupted, stream, status)
        await nursery.start(status.run)
        async for event in stream:
            printer.show(event)
        nursery.cancel_scope.cancel()
    manifest = stream.manifest
    assert manifest is not None
    printer.finish(manifest)
    if args.manifest is not None:
        await trio.to_thread.run_sync(write_output, "--manifest", args.manifest, manifest.to_json() + "\n")
    if interrupted.is_set() and state is not None:
        args.state, args.resume = None, state
        print(f"to go on:\n  {args.next_command(args, args.url)}", file=err)
    refused = _advise(manifest, policy.egress, args, err)
    if store is not None and not all(page.stored for page in manifest.pages):
        lost = sum(not page.stored for page in manifest.pages)
        print(f"{counted(lost, 'page')} could not be stored; what cites them does not resolve", file=err)
        return NOT_STORED
    return _exit_code(manifest, interrupted.is_set(), refused=refused)


def _seed(args: argparse.Namespace) -> Seed:
    from forage.crawler import Seed

    return Seed(url=args.url, headers=headers_of(args.header), user_agent=args.user_agent)


def _policy(args: argparse.Namespace) -> CrawlPolicy:
    from forage.crawler import CrawlPolicy

    return CrawlPolicy(
        max_pages=args.max_pages,
        max_depth=args.max_depth,
        max_bytes=args.max_bytes,
        max_seconds=args.max_seconds,
        max_failures=args.max_failures,
        max_response_bytes=args.max_response_bytes,
        discovery=args.discovery,
        mode="replay" if args.replay else "live",
        obey_robots=not args.ignore_robots,
        delay=args.delay,
        concurrency=args.concurrency,
        keep_bodies=False,
        should_follow=None if args.follow is None else _Follow(args.follow),
        egress=egress_policy(args),
    )


def _state(args: argparse.Namespace) -> Path | None:
    path: Path | None = args.state or args.resume
    if path is not None and args.replay:
        raise InvalidPolicyError("--state" if args.resume is None else "--resume", "a crawl that asks servers, which --replay does not")
    if args.resume is not None and not args.resume.is_file():
        raise InvalidPolicyError("--resume", "a file that an earlier crawl wrote with --state", got=str(args.resume))
    return path


class _Follow:
    """Links whose URL a regular expression finds."""

    def __init__(self, pattern: str) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as exc:
            raise InvalidPolicyError("--follow", f"a regular expression ({exc})", got=pattern) from exc
        self.description = f"URL matches {pattern}"

    def __call__(self, link: Link, context: FollowContext) -> bool:
        return self._pattern.search(link.url) is not None


async def _until_interrupted(
    stream: CrawlStream, status: StatusLine, *, task_status: trio.TaskStatus[trio.Event] = trio.TASK_STATUS_IGNORED
) -> None:
    """The first interrupt ends the crawl cleanly, the second one at once."""
    interrupted = trio.Event()
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started(interrupted)
        async for _ in signals:
            if interrupted.is_set():
                raise KeyboardInterrupt
            interrupted.set()
            status.say("interrupted: finishing what is kept; once more to stop at once")
            stream.stop()


class _Printer:
    """Rows as they are committed: data on ``out``, what people watch on ``err``."""

    def __init__(self, out: TextIO, err: TextIO, status: StatusLine, *, as_json: bool) -> None:
        self._out = out
        self._status = status
        self._as_json = as_json
        self._explained: set[str] = set()
        # On one terminal the row itself is what a person watches; beside a pipe or a file it is not seen.
        self._rows_are_seen = not as_json and out.isatty() and err.isatty()

    def show(self, event: CrawlEvent) -> None:
        """One event: its row as data, and one line for a person."""
        from forage.crawler import CrawlWarning, HostPaused, PageCaptured, PageFailed, UrlSkipped

        match event:
            case PageCaptured(page=page):
                self._row("page", page, f"{page.status}\t{quoted(page.url)}\t{page.source_ref}")
                if not self._rows_are_seen:
                    self._say(f"{page.number:5d}  {page.status}  {quoted(page.url)}")
                for warning in page.warnings:
                    self._say(f"              warning: {quoted(warning)}")
            case PageFailed(failure=failure):
                self._row("failed", failure, None)
                rule = "" if failure.rule is None else f" {failure.rule}"
                self._say(f"{failure.number:5d}  failed ({failure.code}{rule})  {quoted(failure.url)}: {quoted(failure.message)}")
            case UrlSkipped(skip=skip):
                self._row("skipped", skip, None)
                self._explain(skip)
            case HostPaused(host=host, seconds=seconds, why=why):
                self._row("host-paused", event, None)
                if seconds >= _SHOWN_PAUSE:
                    self._say(f"       {quoted(host)} pauses for {seconds:.1f} s ({why})")
            case CrawlWarning(message=message):
                self._row("warning", event, None)
                self._say(f"       warning: {quoted(message)}")

    def _explain(self, skip: PageSkip) -> None:
        """The first page that its host, not the crawl's scope, kept back; the others are counted at the end."""
        if skip.reason in _HELD_BACK and skip.detail is not None and skip.reason not in self._explained:
            self._explained.add(skip.reason)
            self._say(f"       skipped ({skip.reason})  {quoted(skip.url)}: {quoted(skip.detail)}")

    def finish(self, manifest: CrawlManifest) -> None:
        """The figures, and why pages are missing."""
        if self._as_json:
            self._out.write(f'{{"event":"done","manifest":{_compact(manifest.to_json())}}}\n')
            self._out.flush()
        counts = manifest.counts
        self._say(f"{counted(counts.seen, 'URL')} seen: {counts.captured} captured, {counts.failed} failed, {counts.skipped} skipped")
        reasons: dict[str, int] = {}
        for skip in manifest.skips:
            reasons[skip.reason] = reasons.get(skip.reason, 0) + 1
        for reason, number in sorted(reasons.items()):
            self._say(f"  skipped, {reason}: {number}")
        if manifest.truncated:
            self._say(f"  truncated by {', '.join(manifest.budgets_hit)}")

    def _row(self, name: str, row: object, text: str | None) -> None:
        from forage.crawler import row_to_json

        if self._out.isatty():
            self._status.clear()
        if self._as_json:
            self._out.write(row_to_json(name, row) + "\n")
        elif text is not None:
            self._out.write(text + "\n")
        self._out.flush()

    def _say(self, line: str) -> None:
        self._status.say(line)


def _compact(text: str) -> str:
    from forage._codec import dump_compact, load_json

    return dump_compact(load_json(text))


def _advise(manifest: CrawlManifest, egress: EgressPolicy, args: argparse.Namespace, err: TextIO) -> bool:
    """What a person can do where the seed itself was refused or leads away. True when the guard would refuse that, too."""
    seed = next((failure for failure in manifest.failures if failure.number == 0), None)
    if seed is None:
        return False
    if seed.target is None or seed.code != "off-scope":
        hint = opening_hint(seed.rule, args.url) if seed.target is None else None
        if hint is not None:
            print(hint, file=err)
        return seed.code == "egress-denied"
    refusal = refusal_of(seed.target, egress)
    if refusal is not None:
        print(f"the seed redirects to {quoted(seed.target)}, which the guard refuses ({refusal})", file=err)
        return True
    print(f"the seed redirects to another host; to crawl that one:\n  {args.next_command(args, seed.target)}", file=err)
    if args.header:
        print("(its own --header, if it needs one: those given are for the first host)", file=err)
    return False


def _exit_code(manifest: CrawlManifest, interrupted: bool, *, refused: bool) -> int:
    if interrupted:
        return INTERRUPTED
    if manifest.pages:
        return 0
    return REFUSED if refused else NOTHING_CAPTURED
