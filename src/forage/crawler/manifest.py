"""What a crawl found, as a value: pages with citations, failures, skips, and the figures that make them add up.

Pure. Owns the rows and their JSON form (``forage.crawl-manifest/1``, camelCase, unknown members refused); how they come about is the
engine's. Every URL that was seen has exactly one row: a page, a failure or a skip.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

from forage._codec import JsonError, dump_compact, dump_pretty, load_json, make_converter
from forage.errors import ForageError
from forage.snapshots import Snapshot

__all__ = [
    "CrawlCounts",
    "CrawlManifest",
    "HostStatistics",
    "ManifestError",
    "Page",
    "PageFailure",
    "PageSkip",
    "SitemapCounters",
    "SkipReason",
    "row_to_json",
]

FORMAT = "forage.crawl-manifest/1"
MAX_MANIFEST_BYTES = 1024 * 1024 * 1024


class ManifestError(ForageError, ValueError):
    """The text is not a manifest of this format."""


class SkipReason(StrEnum):
    """Why a URL that was seen was not captured, although nothing failed."""

    OFF_SCOPE = "off-scope"
    NOFOLLOW = "nofollow"
    MAX_DEPTH = "max-depth"
    MAX_PAGES = "max-pages"
    MAX_BYTES = "max-bytes"
    MAX_SECONDS = "max-seconds"
    MAX_FAILURES = "max-failures"
    TRAP = "trap"
    FILTERED = "filtered"
    DUPLICATE = "duplicate"
    ROBOTS_DENIED = "robots-denied"
    ROBOTS_UNREACHABLE = "robots-unreachable"
    CRAWL_DELAY_TOO_LONG = "crawl-delay-too-long"
    RETRY_AFTER_TOO_LONG = "retry-after-too-long"
    HOST_PAUSED = "host-paused"
    INTERRUPTED = "interrupted"


@attrs.frozen(kw_only=True)
class Page:
    """One captured page. ``url`` is where the body came from, ``requested_url`` what was asked; ``number`` its place in the order.

    ``source_ref`` cites the stored bytes; it resolves in the crawl's store when ``stored`` is true. ``snapshot`` is None when bodies are
    not kept, and in a manifest read back from JSON.
    """

    number: int
    url: str
    requested_url: str
    status: int
    depth: int
    source_id: str
    source_ref: str
    body_hash: str
    body_bytes: int
    fetched_at: str
    rendered: bool = False
    not_modified: bool = False
    stored: bool = False
    soft_404: bool = False
    redirects: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    snapshot: Snapshot | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class PageFailure:
    """One URL whose acquisition failed; ``code`` is the kind of failure, ``rule`` the guard's code where the guard refused.

    ``target`` is the redirect target that was refused, where that is what happened. ``redirects`` are the URLs that were left behind,
    ``last_url`` is the one that was asked for then, None where nothing redirected.
    """

    number: int
    url: str
    code: str
    message: str
    depth: int
    status: int | None = None
    rule: str | None = None
    target: str | None = None
    last_url: str | None = None
    redirects: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class PageSkip:
    """One URL that was seen and left alone; ``detail`` names the robots line, trap or limit that decided."""

    url: str
    reason: SkipReason
    depth: int
    detail: str | None = None


@attrs.frozen(kw_only=True)
class HostStatistics:
    """Figures of one host: entries by outcome and body bytes after decoding."""

    host: str
    pages: int = 0
    failures: int = 0
    skips: int = 0
    body_bytes: int = 0


@attrs.frozen(kw_only=True)
class SitemapCounters:
    """What sitemap discovery read and found; robots.txt is no sitemap."""

    documents_read: int = 0
    urls_discovered: int = 0


@attrs.frozen(kw_only=True)
class CrawlCounts:
    """``seen`` is always ``captured + failed + skipped``."""

    seen: int
    captured: int
    failed: int
    skipped: int


@attrs.frozen(kw_only=True)
class CrawlManifest:
    """The account of one crawl. Rows are in commit order, which depends on site and policy only.

    ``policy`` holds the settings in force, ``policy_digest`` the SHA-256 of their compact JSON. ``truncated`` is true when
    a budget or an interruption left URLs unvisited; ``budgets_hit`` names which.
    """

    seed: str
    mode: str
    policy: Mapping[str, Any]
    policy_digest: str
    started_at: str
    ended_at: str
    tool: str
    pages: tuple[Page, ...] = ()
    failures: tuple[PageFailure, ...] = ()
    skips: tuple[PageSkip, ...] = ()
    hosts: tuple[HostStatistics, ...] = ()
    sitemaps: SitemapCounters = attrs.field(factory=SitemapCounters)
    budgets_hit: tuple[str, ...] = ()
    truncated: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def counts(self) -> CrawlCounts:
        """How many URLs were seen, and what became of them."""
        rows = len(self.pages), len(self.failures), len(self.skips)
        return CrawlCounts(seen=sum(rows), captured=rows[0], failed=rows[1], skipped=rows[2])

    def to_json(self) -> str:
        """The manifest as pretty JSON text; bodies are not in it."""
        body = _converter().unstructure(self)
        return dump_pretty({"format": FORMAT, **body, "counts": attrs.asdict(self.counts)})

    @classmethod
    def from_json(cls, text: str | bytes) -> CrawlManifest:
        """Read a manifest back. Raises ManifestError: not JSON, another format, unknown members, or counts that do not add up."""
        given: object = text  # the type is looked at: callers do not always keep it
        if not isinstance(given, str | bytes):
            raise ManifestError("a manifest is text, or the bytes of it")
        if len(text) > MAX_MANIFEST_BYTES:
            raise ManifestError(f"a manifest has at most {MAX_MANIFEST_BYTES} bytes")
        try:
            data = load_json(text if isinstance(text, str) else text.decode("utf-8"))
        except (JsonError, UnicodeDecodeError) as exc:
            raise ManifestError("not JSON; give the text that CrawlManifest.to_json wrote") from exc
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ManifestError(f"not a manifest of format {FORMAT}")
        counts = data.pop("counts", None)
        try:
            manifest: CrawlManifest = _converter().structure(data, cls)
        except Exception as exc:  # cattrs raises groups of whatever the members raised
            raise ManifestError("members are missing, unknown or of the wrong type") from exc
        if counts != attrs.asdict(manifest.counts):
            raise ManifestError("counts do not match the rows")
        return manifest


def row_to_json(event: str, row: object) -> str:
    """One row or event as a compact JSON line: ``{"event": ..., members}``."""
    return dump_compact({"event": event, **_converter().unstructure(row)})


def _converter() -> Any:
    return make_converter(omit={Page: ("snapshot",)})
