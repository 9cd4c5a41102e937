"""``forage demo``: the main job on a bundled site, on loopback only: crawl through the guard, cite, replay with the server gone."""

from __future__ import annotations

import argparse
from typing import TextIO

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    subparsers.add_parser("demo", help="crawl a bundled site on loopback and cite what was kept", description=__doc__)


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when every check of the demonstration holds."""
    from forage.demo import run_demo

    return await run_demo(out, err)
