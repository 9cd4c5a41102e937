"""``forage mirror serve``: a mirror as a website on loopback, until interrupted."""

from __future__ import annotations

import argparse
import signal
from typing import TextIO

import trio

from forage.cli.mirror_options import add_root_option, require_root

__all__ = ["add_parser", "run"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = commands.add_parser("serve", help="serve a mirror on loopback", description=__doc__)
    add_root_option(parser)
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port to listen on (default: any that is free)")
    parser.add_argument("--plain", action="store_true", help="leave references to the archive as they are")
    parser.add_argument("--report-only", action="store_true", help="report what the content security policy would block, block nothing")
    parser.add_argument("--live-fallback", action="store_true", help="send what is missing to the archive")


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Prints the address, then serves until an interrupt; exit code 0."""
    from forage.mirror import CacheRoot, CspMode, Site, open_mirror_server

    require_root(args.root)
    root = CacheRoot(args.root)
    held = None if args.plain else frozenset(await trio.to_thread.run_sync(root.load_corpus))
    mode = CspMode.REPORT_ONLY if args.report_only else CspMode.ENFORCE
    site = Site(root, held=held, csp_mode=mode, live_fallback=args.live_fallback)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with open_mirror_server(site, port=args.port) as server:
            print(f"{server.url}/", file=out, flush=True)
            await anext(aiter(signals))
    return 0
