"""``forage render``: one page in a contained browser, behind the guard: its document, a picture, what it asked for."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from forage._codec import dump_compact
from forage.cli.browser_flags import add_browser_options, browser_options, check_output, request_line, viewport
from forage.cli.options import add_egress_options, counted, egress_policy, opening_hint, quoted
from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    from forage.browser import RenderResult

__all__ = ["add_parser", "run"]

FAILED = 1
REFUSED = 5


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("render", help="render one page in a contained browser", description=__doc__)
    parser.add_argument("url", help="an absolute http or https URL")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--html", action="store_true", help="write the rendered document to standard output, and nothing else")
    shown.add_argument("--text", action="store_true", help="write the text that can be seen to standard output, and nothing else")
    shown.add_argument("--json", action="store_true", help="one JSON object on standard output (also when it is not a terminal)")
    parser.add_argument("--screenshot", type=Path, metavar="FILE", help="write a picture (PNG) to this file")
    parser.add_argument("--full-page", action="store_true", help="the picture shows the whole page, up to 16384 pixels a side")
    parser.add_argument("--har", type=Path, metavar="FILE", help="write what was asked for to this file (HTTP Archive 1.2)")
    parser.add_argument("--viewport", default="1280x800", metavar="WxH", help="size of the window, with @SCALE where wanted")
    parser.add_argument("--deadline", type=float, default=20.0, metavar="S", help="seconds to load and come to rest (default 20)")
    parser.add_argument("--min-wait", type=float, default=0.0, metavar="S", help="seconds to wait at least (default 0)")
    add_browser_options(parser, kind="shell")
    add_egress_options(parser)


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 with a document, 5 when the guard refused it, 10 without a browser, else 1."""
    import trio

    from forage.browser import ChromiumRenderer, har_document

    check_output("--screenshot", args.screenshot)
    check_output("--har", args.har)
    if args.full_page and args.screenshot is None:
        raise InvalidPolicyError("--full-page", "effect only beside --screenshot FILE")
    if args.unguarded:
        print("egress guard: OFF (--unguarded): private and local addresses are reachable", file=err)
    renderer = ChromiumRenderer(
        egress=egress_policy(args),
        browser=browser_options(args),
        pages=1,
        viewport=viewport(args.viewport),
        deadline=args.deadline,
        min_wait=args.min_wait,
        read_text=args.text,
        screenshot="no" if args.screenshot is None else "full" if args.full_page else "viewport",
    )
    async with renderer:
        result = await renderer.render(args.url)
    if args.har is not None:
        await trio.Path(args.har).write_text(json.dumps(har_document([result.visit]), indent=1) + "\n", "utf-8")
    if args.screenshot is not None and result.visit.screenshot is not None:
        await trio.Path(args.screenshot).write_bytes(result.visit.screenshot)
    _tell(result, err)
    _tell_files(args, result, err)
    document = result.visit.text if args.text else result.visit.html
    if args.html or args.text:
        if document is not None:
            out.write(document if args.html and not out.isatty() else f"{document.rstrip()}\n")
    elif args.json or not out.isatty():
        out.write(dump_compact(_row(result)) + "\n")
    else:
        out.write("".join(request_line(entry) + "\n" for entry in result.requests))
    if document is not None:
        return 0
    return REFUSED if result.visit.code is not None else FAILED


def _tell(result: RenderResult, err: TextIO) -> None:
    visit = result.visit
    for warning in result.warnings:
        print(f"warning: {quoted(warning)}", file=err)
    for url in visit.left_for:
        print(f"it tried to go to {quoted(url)}; refused", file=err)
    for message in visit.console:
        if message.level == "error":
            print(f"console: {quoted(message.text)}", file=err)
    size = "no document" if visit.html is None else counted(len(visit.html), "character")
    where = "" if visit.final_url is None else f" of {quoted(visit.final_url)}"
    product = "" if visit.browser is None else f", {visit.browser.product}"
    print(f"{visit.outcome.value}: {size}{where}, {counted(len(visit.requests), 'request')}, {visit.seconds:.2f} s{product}", file=err)
    hint = None if visit.code is None else opening_hint(visit.code, visit.url)
    if hint is not None:
        print(hint, file=err)


def _tell_files(args: argparse.Namespace, result: RenderResult, err: TextIO) -> None:
    picture = result.visit.screenshot
    if args.screenshot is not None:
        print("no picture was taken" if picture is None else f"{quoted(str(args.screenshot))}: {len(picture)} bytes", file=err)
    if args.har is not None:
        print(f"{quoted(str(args.har))}: {counted(len(result.requests), 'request')}", file=err)


def _row(result: RenderResult) -> dict[str, object]:
    visit = result.visit
    row: dict[str, object] = {
        "url": visit.url,
        "outcome": visit.outcome.value,
        "error": visit.error,
        "finalUrl": visit.final_url,
        "status": visit.status,
        "seconds": visit.seconds,
        "warnings": list(result.warnings),
        "leftFor": list(visit.left_for),
        "requests": [entry.to_json() for entry in visit.requests],
        "html": visit.html,
    }
    return {name: value for name, value in row.items() if value is not None}
