"""``forage replay``: the newest kept snapshot of a URL, from a store, with no connection."""

from __future__ import annotations

import argparse
from typing import TextIO

from forage.cli.options import folder, open_store
from forage.cli.resolve import print_snapshot, say_failure

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("replay", help="serve a kept page from a store", description=__doc__)
    parser.add_argument("url", help="the page, or with --source-id the id under which it is kept")
    parser.add_argument("--store", type=folder, metavar="DIR", required=True, help="the store that holds it (required)")
    parser.add_argument(
        "--seed",
        metavar="URL",
        help="seed of the crawl that kept it (default: whatever is newest of a fetch of the page, a crawl from the page, and a crawl from "
        "the root of its site)",
    )
    parser.add_argument(
        "--source-id", action="store_true", help="the argument is a source id, as `forage fetch --id` and manifests name it"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--body", action="store_true", help="write the bytes that were hashed to standard output, and nothing else")


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Exit code 0 when the store has the page, else 1 with the reason."""
    from forage.errors import FetchErrorKind
    from forage.snapshots import replay_source

    store = open_store(args.store, write=False)
    source_ids = [args.url] if args.source_id else _candidates(args.url, args.seed)
    results = [await replay_source(store, source_id) for source_id in source_ids]
    # A history that cannot be read may hold the newest one: an older page must not pass for it.
    errors = [result.error for result in results if result.error is not None]
    error = next((error for error in errors if error.kind is not FetchErrorKind.NO_SNAPSHOT), None)
    snapshots = [result.snapshot for result in results if result.snapshot is not None]
    if error is None and snapshots:
        print_snapshot(max(snapshots, key=lambda snapshot: snapshot.fetched_at), args, out)
        return 0
    say_failure("forage replay", error or errors[0], {"url": args.url, "sourceIds": source_ids}, args, out, err)
    return 1


def _candidates(url: str, seed: str | None) -> list[str]:
    """Where a page may be kept: by a crawl from the seed, by a crawl from the page itself, or by a single fetch."""
    from forage._codec import units
    from forage.crawler import canonical_url, page_source_id
    from forage.snapshots import MAX_SOURCE_ID_UNITS

    page = canonical_url(url) or url
    if seed is not None:
        return [page_source_id(canonical_url(seed) or seed, page)]
    origin = canonical_url("/", page)
    seeds = [page] if origin is None or origin == page else [page, origin]
    found = dict.fromkeys([url, page, *(page_source_id(s, page) for s in seeds)])
    return [source_id for source_id in found if units(source_id) <= MAX_SOURCE_ID_UNITS] or [url]
