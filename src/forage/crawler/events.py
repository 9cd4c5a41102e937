"""What a running crawl tells: one value for each thing that can happen, in commit order.

Pure. `CrawlStream` hands them out; `crawl` is the collector that keeps only the last one.
"""

from __future__ import annotations

import attrs

from forage.crawler.manifest import CrawlManifest, Page, PageFailure, PageSkip

__all__ = ["CrawlDone", "CrawlEvent", "CrawlWarning", "HostPaused", "PageCaptured", "PageFailed", "UrlSkipped"]


@attrs.frozen(kw_only=True)
class PageCaptured:
    """A page was captured, and stored where the crawl has a store."""

    page: Page


@attrs.frozen(kw_only=True)
class PageFailed:
    """An acquisition failed; the crawl goes on."""

    failure: PageFailure


@attrs.frozen(kw_only=True)
class UrlSkipped:
    """A URL was left alone."""

    skip: PageSkip


@attrs.frozen(kw_only=True)
class HostPaused:
    """The next request to ``host`` starts in ``seconds``; ``why`` is ``host-paused`` (it asked for that) or ``retry``.

    The usual spacing of requests is no event; `CrawlStream.progress` shows it.
    """

    host: str
    seconds: float
    why: str


@attrs.frozen(kw_only=True)
class CrawlWarning:
    """Something is worth a look, and nothing was lost."""

    message: str


@attrs.frozen(kw_only=True)
class CrawlDone:
    """The last event."""

    manifest: CrawlManifest


CrawlEvent = PageCaptured | PageFailed | UrlSkipped | HostPaused | CrawlWarning | CrawlDone
