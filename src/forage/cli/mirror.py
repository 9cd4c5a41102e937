"""``forage mirror``: crawl archived documents to a fixpoint, check a mirror, serve it, say why a document is not verified."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import attrs
import trio

from forage.cli.interrupts import INTERRUPTED, interruptible
from forage.cli.mirror_options import LONGEST_DELAY, add_archive_options, add_probe_options, load_policy, open_probe
from forage.cli.options import counted, folder, quoted
from forage.errors import BrowserError

if TYPE_CHECKING:
    from forage.mirror import CrawlReport, EscapePolicy, Probe, RetryTerminal

__all__ = ["Tools", "add_parser", "run"]

WRONG_USAGE = 2
BROWSER_MISSING = 10
_SAFE_INTEGER = 2**53 - 1
_MOST_TOLD = 20
_STATIC_ONLY = "static-only: nothing is rendered, so nothing is verified; what scripts ask for stays unknown"
_INSPECTIONS = ("verify", "status", "explain", "serve", "spot-check", "demo")


class UsageError(Exception):
    """The command line is wrong; the text says how."""


@attrs.frozen(kw_only=True)
class Tools:
    """What the command reaches the world by; tests put their own in place."""

    crawl: Callable[..., Awaitable[CrawlReport]]
    document_keys: Callable[[Path], Sequence[str]]
    load_policy: Callable[[Path | None], EscapePolicy]
    open_archive: Callable[..., Any]
    open_probe: Callable[[argparse.Namespace], Probe | None]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the commands and their flags."""
    parser = subparsers.add_parser("mirror", help="mirror archived documents, and prove them complete", description=__doc__)
    commands = parser.add_subparsers(dest="mirror_command", required=True, metavar="COMMAND")
    _add_crawl(commands)
    for name in _INSPECTIONS:
        _module(name).add_parser(commands)


def _add_crawl(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    crawl = commands.add_parser(
        "crawl",
        help="capture documents and render them until nothing is missing",
        description="Capture archived documents and render them until nothing is missing. Flags come before the URLs.",
        epilog="exit codes: 0 every document verified, 1 not, 2 wrong usage, 10 a browser is needed and missing, 11 interrupted",
    )
    crawl.add_argument("--root", "-r", metavar="DIR", help="folder of the mirror (required)")
    crawl.add_argument("--output", "-o", metavar="DIR", help=argparse.SUPPRESS)
    crawl.add_argument("--ledger", type=folder, metavar="DIR", help="also every HTML document that the mirror DIR holds")
    crawl.add_argument("--max-iterations", default="4", metavar="N", help="rounds of fetching a document (default 4)")
    crawl.add_argument("--max", metavar="N", help="archive requests of this run at most")
    crawl.add_argument("--delay", metavar="S", help="seconds between starts of archive requests (default 1.5)")
    crawl.add_argument("--delay-ms", metavar="MS", help=argparse.SUPPRESS)
    crawl.add_argument("--timeout", default="20000", metavar="MS", help="milliseconds of one archive request (default 20000)")
    crawl.add_argument("--documents", default="4", metavar="N", help="documents worked on at once (default 4, 1 with --max)")
    crawl.add_argument("--force", action="store_true", help="render verified documents again")
    crawl.add_argument("--reverify-browser", action="store_true", help="render documents again that another browser verified")
    crawl.add_argument("--static-only", action="store_true", help="capture without rendering; verifies nothing")
    crawl.add_argument("--dry-run", action="store_true", help="say what would be fetched; fetch nothing")
    crawl.add_argument("--allow-escapes", type=Path, metavar="FILE", help="policy of allowed third parties, instead of the default")
    crawl.add_argument("--har", action="store_true", help="keep every render below .crawl/har")
    crawl.add_argument("--retry-terminal", metavar="STATUS[,STATUS][:SECONDS]", help="ask again for bodiless captures of that age")
    add_archive_options(crawl)
    add_probe_options(crawl)
    crawl.add_argument(
        "urls", nargs=argparse.REMAINDER, metavar="URL", help="TIMESTAMP/ORIGINAL, or replay URL of the archive or of --archive-base"
    )


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Run one mirror command; see each one's help for its exit codes."""
    if args.mirror_command == "crawl":
        return await run_crawl(args, out, err, default_tools())
    code = await _module(args.mirror_command).run(args, out, err)
    return int(code)


def _module(command: str) -> Any:
    return import_module(f"forage.cli.mirror_{command.replace('-', '_')}")


def default_tools() -> Tools:
    """The real ones."""
    from forage.mirror import crawl
    from forage.mirror.archive import open_guarded_archive

    return Tools(
        crawl=crawl,
        document_keys=_ledger_documents,
        load_policy=load_policy,
        open_archive=open_guarded_archive,
        open_probe=open_probe,
    )


async def run_crawl(args: argparse.Namespace, out: TextIO, err: TextIO, tools: Tools) -> int:
    """Exit code 0 when every document is verified, 1 otherwise; the JSON summary is printed in both cases."""
    try:
        plan = _plan(args, tools)
        urls = await _documents(args, tools)
    except UsageError as exc:
        print(f"forage mirror crawl: {exc}", file=err)
        return WRONG_USAGE
    if args.static_only:
        print(f"forage mirror crawl: {_STATIC_ONLY}", file=err)
    try:
        report = await interruptible(lambda: _crawl(plan, urls, tools, err), err, "interrupted: what was captured and verified is kept")
    except BrowserError as exc:
        print(f"forage mirror crawl: {exc}", file=err)
        return BROWSER_MISSING
    if report is None:
        return INTERRUPTED
    from forage._codec import dump_pretty

    summary: dict[str, Any] = {"root": plan.root, "requestCount": report.request_count, "cap": report.cap, "docs": len(report.results)}
    summary |= {"tally": report.tally, "results": [result.to_json() for result in report.results]}
    out.write(dump_pretty(summary) + "\n")
    if report.ok:
        return 0
    _tell_failed(plan, report, err)
    return 1


def _tell_failed(plan: _Plan, report: CrawlReport, err: TextIO) -> None:
    failed = [result for result in report.results if not result.ok]
    for result in failed[:_MOST_TOLD]:
        why = result.members.get("error")
        print(f"{quoted(result.key)}: {result.status.value}" + (f": {quoted(str(why))}" if why else ""), file=err)
    more = f"; the first {_MOST_TOLD} are named" if len(failed) > _MOST_TOLD else ""
    print(f"forage mirror crawl: {len(failed)} of {counted(len(report.results), 'document')} did not verify{more}", file=err)
    explained = [result.key for result in failed if result.status.value not in {"error", "cap-skipped"} and result.key.isprintable()]
    if plan.renders and explained:
        print(f"why:\n  {shlex.join(['forage', 'mirror', 'explain', '--root', plan.root, explained[0]])}", file=err)


@attrs.frozen(kw_only=True)
class _Plan:
    """The flags, checked. ``timeout``: seconds of one archive request; ``options`` are those of the crawl itself."""

    root: str
    archive_base: str
    contact: str
    timeout: float
    browser: argparse.Namespace
    renders: bool
    options: Mapping[str, Any]


async def _crawl(plan: _Plan, urls: Sequence[str], tools: Tools, err: TextIO) -> CrawlReport:
    probe = tools.open_probe(plan.browser) if plan.renders else None
    async with tools.open_archive(base=plan.archive_base, contact=plan.contact, timeout=plan.timeout) as fetch:
        return await tools.crawl(urls, fetch=fetch, probe=probe, archive_base=plan.archive_base, on_progress=_Progress(err), **plan.options)


def _plan(args: argparse.Namespace, tools: Tools) -> _Plan:
    from forage.mirror.archive import check_archive

    root = args.root or args.output
    if not root:
        raise UsageError("--root DIR is required")
    numbers = {name: _whole(args, name) for name in ("max_iterations", "max", "delay_ms", "timeout", "documents")}
    delay = _delay(args.delay, numbers["delay_ms"])
    misplaced = next((text for text in args.urls[1:] if text.startswith("-")), None)
    if misplaced is not None:
        raise UsageError(f"unexpected {quoted(misplaced)} after a URL: flags come before the URLs")
    if os.path.lexists(root) and not Path(root).is_dir():
        raise UsageError(f"--root takes a folder, or the path of one to make, not {quoted(root)}")
    check_archive(args.archive_base, args.contact)
    options = {
        "root": Path(root),
        "max_iterations": numbers["max_iterations"],
        "max_requests": numbers["max"],
        "documents": numbers["documents"],
        "delay": delay,
        "force": args.force,
        "static_only": args.static_only,
        "dry_run": args.dry_run,
        "reverify_browser": args.reverify_browser,
        "har": args.har,
        "retry_terminal": _retry_terminal(args.retry_terminal),
        # Without rendering nothing can escape, so a policy would only suggest that something was checked.
        "policy": tools.load_policy(None if args.static_only else args.allow_escapes),
    }
    return _Plan(
        root=root,
        archive_base=args.archive_base,
        contact=args.contact,
        timeout=(numbers["timeout"] or 0) / 1000,
        browser=args,
        renders=not (args.static_only or args.dry_run),
        options=options,
    )


def _whole(args: argparse.Namespace, name: str) -> int | None:
    from forage.mirror.numbers import javascript_number

    text = getattr(args, name)
    if text is None:
        return None
    value = javascript_number(text)
    if value is None or not value.is_integer() or not 0 <= value <= _SAFE_INTEGER:
        raise UsageError(f"--{name.replace('_', '-')} must be a non-negative integer")
    return int(value)


def _delay(text: str | None, milliseconds: int | None) -> float:
    if text is None:
        return 1.5 if milliseconds is None else milliseconds / 1000
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < LONGEST_DELAY:
        raise UsageError(f"--delay takes seconds from 0, below {LONGEST_DELAY}, not {quoted(text)}")
    return value


def _retry_terminal(text: str | None) -> RetryTerminal | None:
    from forage.mirror import RetryTerminal

    if text is None:
        return None
    names, _, age = text.partition(":")
    statuses = frozenset(names.split(","))
    if not statuses <= {"error", "redirect", "empty", "interstitial"} or not (not age or age.isdecimal()):
        raise UsageError("--retry-terminal takes error, redirect, empty, interstitial, separated by commas, then :SECONDS")
    return RetryTerminal(statuses=statuses, seconds=float(age or 0))


async def _documents(args: argparse.Namespace, tools: Tools) -> list[str]:
    urls = list(args.urls)
    if args.ledger is not None:
        urls += await trio.to_thread.run_sync(tools.document_keys, args.ledger)
    if not urls:
        raise UsageError("no documents: give replay URLs, or --ledger DIR of a mirror that holds some")
    return urls


def _ledger_documents(path: Path) -> Sequence[str]:
    from forage.mirror import CacheRoot

    if not path.is_dir():
        raise UsageError(f"--ledger takes the folder of a mirror that is there, not {quoted(str(path))}")
    found = CacheRoot(path).document_keys()
    if not found:
        which = shlex.join(["forage", "mirror", "verify", "--root", str(path)])
        raise UsageError(f"--ledger: no HTML document is held in {quoted(str(path))}; whether something is wrong with it:\n  {which}")
    return found


class _Progress:
    """Events of a run as lines for people."""

    def __init__(self, err: TextIO) -> None:
        self._err = err

    def __call__(self, event: Mapping[str, Any]) -> None:
        key = quoted(str(event.get("key", event.get("input", ""))))
        match event["type"]:
            case "capture" | "static":
                text = f"{event['fetched']} fetched" + (f", {event['failures']} failed" if event.get("failures") else "")
                text += f" in round {event['iter']}" if event.get("iter") else ""
            case "drop":
                text = quoted(str(event["line"]))
            case "skip":
                text = str(event["reason"])
            case "dry-run":
                text = f"{event['wouldFetch']} of {event['frontier']} would be fetched"
            case "browser-changed":
                key, text = "stamps", f"made by {', '.join(event['stamps'])}, this is {event['browser']}; --reverify-browser renders again"
            case other:
                text = str(other)
        print(f"{key}: {text}", file=self._err)
