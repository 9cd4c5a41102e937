"""One crawl as a contestant: CPU and pages per second of the whole product, guard and robots on.

    python benchmarks/crawl.py --seeds URL[,URL] --pages N --concurrency C [--ca PEM] [--store DIR]

Prints one JSON line: pages, seconds and CPU seconds of the crawl alone, without start-up. The delay is 0 and the limit of one request in
flight on a host is lifted; everything else is what a user gets.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from urllib.parse import urlsplit

import trio

from forage.crawler import CrawlManifest, CrawlPolicy, crawl, crawl_many
from forage.egress import EgressPolicy
from forage.snapshots import FilesystemSnapshotStore


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", required=True, help="comma separated URLs on loopback")
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--ca", type=Path, help="PEM file of the authority to trust")
    parser.add_argument("--store", type=Path, help="publish every page here")
    parser.add_argument("--drop-bodies", action="store_true", help="keep no body once its page is committed")
    return parser.parse_args()


async def run(args: argparse.Namespace) -> list[CrawlManifest]:
    seeds = args.seeds.split(",")
    ports = tuple({port for seed in seeds if (port := urlsplit(seed).port) is not None})
    policy = CrawlPolicy(
        max_pages=args.pages // len(seeds),
        max_depth=1000,
        delay=0.0,
        concurrency=args.concurrency,
        # One host alone may be this far ahead of its oldest open request; `concurrency` bounds what is in flight.
        per_host=min(64, 2 * args.concurrency) if len(seeds) == 1 else min(64, max(1, args.concurrency // len(seeds))),
        window=max(64, 2 * args.concurrency),
        keep_bodies=not args.drop_bodies,
        egress=EgressPolicy(allow_networks=("127.0.0.0/8",), ports=ports, ca_file=args.ca),
    )
    store = None if args.store is None else FilesystemSnapshotStore(args.store)
    if len(seeds) == 1:
        return [await crawl(seeds[0], policy, store=store)]
    async with crawl_many(seeds, policy, store=store) as crawls:
        return [manifest async for manifest in crawls]


def main() -> None:
    args = arguments()
    wall, cpu = time.perf_counter(), time.process_time()
    manifests = trio.run(run, args)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    pages = sum(len(m.pages) for m in manifests)
    print(
        json.dumps({"pages": pages, "seconds": round(wall, 4), "cpu": round(cpu, 4), "failures": sum(len(m.failures) for m in manifests)})
    )


if __name__ == "__main__":
    main()
