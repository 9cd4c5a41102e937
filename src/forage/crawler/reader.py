"""A snapshot to its row and its links: the part that live crawl and replay share.

Links are read from the snapshot's own bytes and recorded headers, so that a replay finds those that the live crawl found. Nothing is
asked for and nothing is stored here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import attrs
import trio

from forage.crawler.frontier import Entry
from forage.crawler.lanes import Outcome
from forage.crawler.links import Link, LinkMemo, PageLinks, extract_links
from forage.crawler.manifest import Page
from forage.crawler.policy import CrawlPolicy
from forage.crawler.urls import canonical_url, dedupe_key
from forage.snapshots import Snapshot, body_bytes, build_source_ref

__all__ = ["PageReader", "covered_keys"]

_INLINE_BYTES = 128 * 1024  # a page this large takes some milliseconds


@attrs.frozen(kw_only=True)
class PageReader:
    """Reads the snapshots of one crawl."""

    policy: CrawlPolicy
    user_agent: str
    memo: LinkMemo = attrs.field(factory=LinkMemo)

    async def page(
        self,
        entry: Entry,
        snapshot: Snapshot,
        *,
        stored: bool,
        warnings: Sequence[str],
        left_for: Sequence[Link] = (),
        soft_404: bool = False,
    ) -> Outcome:
        # Sitemaps alone decide what such a crawl visits: what its pages offer is not looked at.
        found = PageLinks() if self.policy.discovery == "sitemap" else await self._links(snapshot, left_for)
        body = snapshot.raw_bytes if snapshot.raw_bytes is not None else snapshot.body
        page = Page(
            number=entry.number,
            url=snapshot.url,
            requested_url=entry.url,
            status=snapshot.status,
            depth=entry.depth,
            source_id=snapshot.source_id,
            source_ref=build_source_ref(snapshot),
            body_hash=snapshot.body_hash,
            body_bytes=len(body) if isinstance(body, bytes) else len(body_bytes(snapshot)),
            fetched_at=snapshot.fetched_at,
            rendered=bool(snapshot.rendered),
            not_modified=snapshot.not_modified,
            stored=stored,
            soft_404=soft_404,
            redirects=snapshot.redirects or (),
            warnings=(*warnings, *found.warnings),
            snapshot=snapshot if self.policy.keep_bodies else None,
        )
        covered = () if page.url == entry.url and not page.redirects else covered_keys(entry, (*page.redirects, page.url))
        return Outcome(page=page, links=found.links, covered=covered)

    async def _links(self, snapshot: Snapshot, left_for: Sequence[Link]) -> PageLinks:
        headers = snapshot.headers or {}
        body = snapshot.body if snapshot.rendered else body_bytes(snapshot)
        is_utf8 = snapshot.raw_bytes is not None and snapshot.declared_charset in (None, "utf-8")
        inline = len(body) <= _INLINE_BYTES
        read = partial(
            extract_links,
            body,
            page_url=snapshot.url,
            content_type=headers.get("content-type"),
            headers=tuple(headers.items()),
            user_agent=self.user_agent,
            decoded=snapshot.body if is_utf8 and isinstance(snapshot.body, str) else None,
            memo=self.memo if inline else None,
        )
        # A large page can be made to take seconds; the answers of other hosts must not wait for it.
        found = read() if inline else await trio.to_thread.run_sync(read, abandon_on_cancel=False)
        return attrs.evolve(found, links=(*found.links, *left_for)) if left_for else found


def covered_keys(entry: Entry, chain: Iterable[str]) -> tuple[str, ...]:
    """Keys of the URLs that a chain of redirects went through: all of them count as seen, and none is another page."""
    urls = (canonical_url(url) for url in chain)
    keys = dict.fromkeys(dedupe_key(url) for url in urls if url is not None)
    return tuple(key for key in keys if key != entry.key)
