"""Crawl pages of Debian's Python documentation from nginx on loopback: ``python -m benchmarks.python_docs [--pages N]``.

Prints one line. The crawl runs as a user would run it, guard and robots on, with no delay and several requests in flight; its CPU a page is
given as a ratio to what the standard library's html.parser needs, in the same process, to find the links of the same pages. Every body
and every link is checked afterwards, outside the measured time.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import trio

from forage.snapshots import MemorySnapshotStore
from tests.support.nginx import find_nginx, find_python_docs, open_nginx
from tests.support.python_docs import crawl_docs, differences, file_of, reference_links


async def measure(root: Path, pages: int, concurrency: int) -> int:
    """Crawl, check, print; exit code 1 when anything differs from the files."""
    async with open_nginx(root) as site:
        await crawl_docs(site.origin, 1, None)  # imports and first use are not part of the figure
        wall, cpu = time.perf_counter(), time.process_time()
        manifest = await crawl_docs(site.origin, pages, MemorySnapshotStore(), concurrency=concurrency)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    documents = [(file_of(root, page.url).read_bytes(), page.url) for page in manifest.pages if page.url.endswith(".html")]
    reading = time.process_time()
    for content, url in documents:
        reference_links(content, url)
    reading = time.process_time() - reading
    wrong, found = differences(manifest, root)
    links = sum(map(len, found.values()))
    size = sum(page.body_bytes for page in manifest.pages)
    print(
        f"python_docs: {len(manifest.pages)} pages, {size / 2**20:.1f} MiB, {links} links, {len(wrong)} differences;"
        f" crawl / html.parser CPU {cpu / reading:.2f}x; busy {100 * cpu / wall:.0f} % of wall"
    )
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=200, metavar="N")
    parser.add_argument("--concurrency", type=int, default=8, metavar="N")
    args = parser.parse_args()
    root = find_python_docs()
    if root is None or find_nginx() is None:
        print("needs nginx and Debian's python3-doc: make system", file=sys.stderr)
        return 2
    return trio.run(measure, root, args.pages, args.concurrency)


if __name__ == "__main__":
    raise SystemExit(main())
