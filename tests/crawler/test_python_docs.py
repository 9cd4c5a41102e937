"""Two hundred pages of Debian's Python documentation, served by nginx, crawled through the guard into a store on disk.

Neither the pages nor the server were made for this: every byte is checked against the file, every link against another HTML parser, and the
manifest against the links that are really there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from forage import CrawlManifest
from forage.snapshots import FilesystemSnapshotStore, resolve_source_ref
from tests.support.nginx import find_nginx, find_python_docs, open_nginx
from tests.support.python_docs import crawl_docs, differences, file_of

PAGES = 200
DOCS = find_python_docs()

pytestmark = pytest.mark.skipif(find_nginx() is None or DOCS is None, reason="nginx or python3-doc is not installed (make system)")


def rows(manifest: CrawlManifest) -> list[str]:
    """Every URL that the manifest accounts for, as it was asked for."""
    return [
        *(page.requested_url for page in manifest.pages),
        *(failure.url for failure in manifest.failures),
        *(skip.url for skip in manifest.skips),
    ]


async def test_every_body_link_and_row_of_two_hundred_real_pages_is_right(tmp_path: Path) -> None:
    assert DOCS is not None
    store = FilesystemSnapshotStore(tmp_path / "store")
    with trio.fail_after(120):
        async with open_nginx(DOCS) as site:
            manifest = await crawl_docs(site.origin, PAGES, store)
            asked = site.access_log.read_text("utf-8").splitlines()

        # The whole budget was used; what failed is not on disk either.
        assert len(manifest.pages) + len(manifest.failures) == PAGES
        assert len(manifest.pages) > PAGES * 9 // 10
        assert [failure.url for failure in manifest.failures if file_of(DOCS, failure.url).exists()] == []
        wrong, links = differences(manifest, DOCS)
        assert wrong == []

        # Every URL is fetched once, and robots.txt is the one request more.
        assert len(asked) == PAGES + 1

        # Links seen and rows of the manifest are the same set, each once.
        seen = {manifest.seed}.union(*links.values())
        assert len(rows(manifest)) == len(set(rows(manifest))) == manifest.counts.seen
        assert set(rows(manifest)) == seen

        # With the server gone, every citation still gives the bytes of the file.
        for page in manifest.pages:
            resolution = await resolve_source_ref(store, page.source_ref)
            assert resolution.unwrap().body_hash == page.body_hash
