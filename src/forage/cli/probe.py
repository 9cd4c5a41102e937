"""``forage probe``: everything that one document asks for, from its first request to what it sends on its way out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from forage._codec import dump_compact
from forage.cli.browser_flags import add_browser_options, browser_options, check_output, request_line, viewport
from forage.cli.options import add_egress_options, counted, egress_policy, opening_hint, quoted

if TYPE_CHECKING:
    from forage.browser import RequestLog

__all__ = ["add_parser", "run"]

FAILED = 1
REFUSED = 5


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("probe", help="log everything that one document asks for", description=__doc__)
    parser.add_argument("url", help="an absolute http or https URL")
    parser.add_argument(
        "--abort-host", action="append", default=[], metavar="NAME", help="refuse this host and all below it, told as aborted"
    )
    parser.add_argument("--viewport", action="append", default=[], metavar="WxH", help="render at this size (repeatable; default 1280x800)")
    parser.add_argument("--har", type=Path, metavar="FILE", help="write the log to this file (HTTP Archive 1.2)")
    parser.add_argument("--json", action="store_true", help="one JSON object a request on standard output (also when it is not a terminal)")
    parser.add_argument("--deadline", type=float, default=30.0, metavar="S", help="seconds to load and come to rest (default 30)")
    parser.add_argument("--min-wait", type=float, default=4.0, metavar="S", help="seconds to wait at least, for late timers (default 4)")
    add_browser_options(parser, kind="full")
    add_egress_options(parser)


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when the document was loaded and came to rest, 5 when the guard refused it, 10 without a browser, else 1."""
    import trio

    from forage.browser import ProbeOptions, Viewport, har_document, open_browser, probe_document

    check_output("--har", args.har)
    if args.unguarded:
        print("egress guard: OFF (--unguarded): private and local addresses are reachable", file=err)
    options = ProbeOptions(
        egress=egress_policy(args),
        abort_hosts=args.abort_host,
        viewports=[viewport(text) for text in args.viewport] or [Viewport()],
        deadline=args.deadline,
        min_wait=args.min_wait,
    )
    async with open_browser(browser_options(args)) as browser:
        log = await probe_document(browser, args.url, options)
    if args.har is not None:
        await trio.Path(args.har).write_text(json.dumps(har_document(log.visits), indent=1) + "\n", "utf-8")
    as_json = args.json or not out.isatty()
    out.writelines((dump_compact(entry.to_json()) if as_json else request_line(entry)) + "\n" for entry in log.requests)
    _tell(log, err)
    if log.loaded and log.outcome.value == "ok":
        return 0
    return REFUSED if any(visit.code is not None for visit in log.visits) else FAILED


def _tell(log: RequestLog, err: TextIO) -> None:
    for issue in log.csp:
        kind = "would be blocked" if issue.report_only else "blocked"
        print(f"content security policy ({issue.directive}): {quoted(issue.url or issue.kind)} {kind}", file=err)
    for url in log.left_for:
        print(f"it tried to go to {quoted(url)}; refused", file=err)
    for entry in log.unexplained:
        print(f"unexplained: a tunnel to {quoted(entry.url)} that no request accounts for", file=err)
    for visit in log.visits:
        error = "" if visit.error is None else f" ({quoted(visit.error)})"
        print(f"{visit.viewport}: {visit.outcome.value}{error}, {counted(len(visit.requests), 'request')}, {visit.seconds:.2f} s", file=err)
    codes = {visit.code for visit in log.visits if visit.code is not None}
    for hint in filter(None, (opening_hint(code, log.visits[0].url) for code in sorted(codes))):
        print(hint, file=err)
    if log.browser is not None:
        off = "" if log.browser.sandbox else ", without its sandbox"
        print(f"{log.browser.product} ({log.browser.kind}){off}", file=err)
