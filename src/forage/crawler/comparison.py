"""What changed between two crawls, page by page.

Pure. Pages are matched by the URL that was asked for; the order of either manifest plays no part in what is equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from forage.crawler.manifest import CrawlManifest, Page, PageFailure, PageSkip

__all__ = ["Change", "PageChange", "compare_manifests"]


class Change(StrEnum):
    """How a URL differs from one manifest to the next."""

    NEW = "new"
    """A page now, none before."""
    GONE = "gone"
    """A page before, none now."""
    BODY = "changed-body"
    METADATA = "changed-metadata"
    """The same bytes, but another status, final URL, redirects or rendering."""
    SAME = "same"


@attrs.frozen(kw_only=True)
class PageChange:
    """One URL; ``before`` and ``after`` are its pages. ``why`` says for new and gone what the other manifest has instead of a page."""

    url: str
    change: Change
    before: Page | None = None
    after: Page | None = None
    why: str | None = None


def compare_manifests(before: CrawlManifest, after: CrawlManifest) -> tuple[PageChange, ...]:
    """Every URL that is a page in either: those of ``after`` in its order, then those that are gone."""
    old, new = _pages(before), _pages(after)
    was, now = _others(before), _others(after)
    changes = [_changed(url, old.get(url), page, was.get(url)) for url, page in new.items()]
    changes += [PageChange(url=url, change=Change.GONE, before=page, why=now.get(url)) for url, page in old.items() if url not in new]
    return tuple(changes)


def _pages(manifest: CrawlManifest) -> Mapping[str, Page]:
    return {page.requested_url: page for page in manifest.pages}


def _others(manifest: CrawlManifest) -> Mapping[str, str]:
    rows: list[PageFailure | PageSkip] = [*manifest.skips, *manifest.failures]
    return {row.url: row.code if isinstance(row, PageFailure) else row.reason.value for row in rows}


def _changed(url: str, old: Page | None, page: Page, was: str | None) -> PageChange:
    if old is None:
        return PageChange(url=url, change=Change.NEW, after=page, why=was)
    if old.body_hash != page.body_hash:
        change = Change.BODY
    elif _metadata(old) != _metadata(page):
        change = Change.METADATA
    else:
        change = Change.SAME
    return PageChange(url=url, change=change, before=old, after=page)


def _metadata(page: Page) -> tuple[object, ...]:
    return page.status, page.url, page.redirects, page.rendered
