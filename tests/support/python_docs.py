"""A crawl of pages that nobody here wrote, and an account of them that shares no code with forage.

Owns the second opinion: bodies are the files on disk, links are what the standard library's html.parser finds in those files, resolved by
ada-url. Used by the test of that crawl and by its benchmark.
"""

from __future__ import annotations

import hashlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import ada_url

from forage import CrawlManifest, CrawlPolicy, EgressPolicy, Page, crawl
from forage.crawler import extract_links
from forage.snapshots import SnapshotStore, body_bytes

__all__ = ["crawl_docs", "differences", "file_of", "page_links", "reference_links"]

LINKED_BY = {"a": "href", "area": "href", "iframe": "src", "frame": "src"}
RELATIONS = {"alternate", "canonical", "next", "prev"}


async def crawl_docs(origin: str, pages: int, store: SnapshotStore | None, *, concurrency: int = 8) -> CrawlManifest:
    """Crawl ``pages`` pages from the tree's index, as fast as the server answers, through the guard with that one origin open."""
    policy = CrawlPolicy(
        max_pages=pages,
        max_depth=10,
        delay=0.0,
        concurrency=concurrency,
        per_host=concurrency,
        egress=EgressPolicy(test_loopback_origins=(origin,)),
    )
    return await crawl(f"{origin}/index.html", policy, store=store)


def file_of(root: Path, url: str) -> Path:
    """The file behind a URL of the tree."""
    return root / unquote(ada_url.URL(url).pathname).lstrip("/")


class _Links(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.base = base
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # The first of two attributes of one name counts.
        values = dict(reversed(attrs))
        target = values.get(LINKED_BY.get(tag, ""))
        if tag == "link" and RELATIONS & set((values.get("rel") or "").lower().split()):
            target = values.get("href")
        if target is None:
            return
        try:
            url = ada_url.URL(target, base=self.base)
        except ValueError:
            return
        if url.protocol in ("http:", "https:"):
            url.hash = ""
            self.found.append(url.href)


def reference_links(document: bytes, url: str) -> list[str]:
    """Links of a page in document order, once each, without fragment and without the page itself."""
    reader = _Links(url)
    reader.feed(document.decode("utf-8"))
    reader.close()
    return [link for link in dict.fromkeys(reader.found) if link != url]


def page_links(page: Page) -> list[str]:
    """The same by forage, from the snapshot that was captured."""
    assert page.snapshot is not None
    headers = page.snapshot.headers or {}
    links = extract_links(page.snapshot.body, page_url=page.url, content_type=headers.get("content-type"))
    return [link.url for link in links.links]


def differences(manifest: CrawlManifest, root: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Every way in which the captured pages differ from the files (none when all is right), and the links that are really in them."""
    found, links = [], {}
    for page in manifest.pages:
        content = file_of(root, page.url).read_bytes()
        assert page.snapshot is not None
        if page.body_hash != hashlib.sha256(content).hexdigest() or body_bytes(page.snapshot) != content:
            found.append(f"{page.url}: the body is not the file")
        if page.url.endswith(".html"):
            links[page.url] = reference_links(content, page.url)
            if page_links(page) != links[page.url]:
                found.append(f"{page.url}: other links than html.parser finds")
    return found, links
