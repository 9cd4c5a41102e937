"""How the hosts of a crawl answer for a page that cannot exist: asked once for each origin, politely, and never kept.

Owns the probe and who waits for it; the verdict is `soft404`'s.
"""

from __future__ import annotations

import hashlib

import trio

from forage.crawler.manifest import SkipReason
from forage.crawler.soft404 import Answer, MissingPage
from forage.crawler.urls import origin_of
from forage.fetch import Fetcher, FetchResult, Source
from forage.snapshots import Snapshot, body_bytes

__all__ = ["MissingPages"]

_REDIRECTED = 302


class MissingPages:
    """Probes of one crawl, by origin. Any number of tasks may ask; an origin is probed by the first of them."""

    def __init__(self, fetcher: Fetcher, user_agent: str | None) -> None:
        self._fetcher = fetcher
        self._user_agent = user_agent
        self._known: dict[str, MissingPage | None] = {}
        self._refused: set[str] = set()
        self._locks: dict[str, trio.Lock] = {}

    async def matches(self, requested_url: str, snapshot: Snapshot) -> bool:
        """Whether a page is what its origin answers for a path that cannot exist. False where the probe gave no verdict."""
        missing = await self._probe(origin_of(requested_url))
        return missing is not None and missing.matches(_answer_of(snapshot, requested_url))

    def refused(self, requested_url: str) -> bool:
        """Whether the origin answered the probe with a wish for a longer pause than is waited for."""
        return bool(self._refused) and origin_of(requested_url) in self._refused

    async def _probe(self, origin: str) -> MissingPage | None:
        async with self._locks.setdefault(origin, trio.Lock()):
            if origin not in self._known:
                # A path of its own for each origin, the same in every crawl, and nothing that anybody would publish.
                url = f"{origin}/{hashlib.sha256(f'missing {origin}'.encode()).hexdigest()[:20]}"
                result = await self._fetcher.fetch(
                    Source(id=f"soft-404::{origin}"[:1024], url=url, user_agent=self._user_agent, revalidate=False), render="never"
                )
                if result.error is not None and result.error.reason == SkipReason.RETRY_AFTER_TOO_LONG:
                    self._refused.add(origin)
                probe = _answer(result, url)
                self._known[origin] = None if probe is None else MissingPage(probe)
            return self._known[origin]


def _answer(result: FetchResult, url: str) -> Answer | None:
    if result.snapshot is not None:
        return _answer_of(result.snapshot, url)
    error = result.error
    if error is not None and error.target is not None:
        return Answer(status=_REDIRECTED, location=error.target, url=url)
    return None if error is None or error.status is None else Answer(status=error.status, url=url)


def _answer_of(snapshot: Snapshot, url: str) -> Answer:
    if snapshot.redirects:
        return Answer(status=_REDIRECTED, location=snapshot.url, url=url)
    content_type = (snapshot.headers or {}).get("content-type")
    return Answer(status=snapshot.status, body=body_bytes(snapshot), url=url, content_type=content_type)
