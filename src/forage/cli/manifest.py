"""``forage manifest``: read manifests, and say what changed from one crawl to the next."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import trio

from forage._codec import dump_compact
from forage.cli.options import quoted
from forage.errors import InvalidPolicyError

if TYPE_CHECKING:
    from forage.crawler import CrawlManifest

__all__ = ["add_parser", "run"]

DIFFERENT = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("manifest", help="compare crawls by their manifests", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    diff = actions.add_parser("diff", help="new, gone, changed body, changed metadata, same; exit code 1 when anything differs")
    diff.add_argument("before", type=Path, help="manifest of the earlier crawl")
    diff.add_argument("after", type=Path, help="manifest of the later crawl")
    diff.add_argument("--json", action="store_true", help="one JSON object a URL on standard output")
    diff.add_argument("--all", action="store_true", help="list unchanged pages, too")


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when all pages are the same, 1 when any differs, 2 when a file is no manifest."""
    from forage.crawler import Change, compare_manifests

    changes = compare_manifests(await _read(args.before), await _read(args.after))
    counts = dict.fromkeys(Change, 0)
    for change in changes:
        counts[change.change] += 1
        if change.change is Change.SAME and not args.all:
            continue
        before = None if change.before is None else change.before.source_ref
        after = None if change.after is None else change.after.source_ref
        if args.json:
            row = {"url": change.url, "change": change.change.value, "why": change.why, "before": before, "after": after}
            out.write(dump_compact(row) + "\n")
        else:
            out.write(f"{change.change.value}\t{quoted(change.url)}" + (f"\t{change.why}" if change.why else "") + "\n")
    print(", ".join(f"{number} {change.value}" for change, number in counts.items()), file=err)
    return 0 if len(changes) == counts[Change.SAME] else DIFFERENT


async def _read(path: Path) -> CrawlManifest:
    from forage.crawler import CrawlManifest, ManifestError

    try:
        return CrawlManifest.from_json(await trio.Path(path).read_bytes())
    except OSError as exc:
        raise InvalidPolicyError("manifest", "a file that can be read", got=str(path)) from exc
    except ManifestError as exc:
        raise InvalidPolicyError("manifest", f"a manifest written by `forage crawl --manifest` ({exc})", got=str(path)) from exc
