"""Which pages, in which order: seeds, policies, the frontier and its lanes, and the manifest that accounts for every URL seen.

`crawl` answers with the manifest, `crawl_stream` hands out events while it runs. Names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forage._lazy import lazy_face

if TYPE_CHECKING:
    from forage.crawler.acquire import page_source_id as page_source_id
    from forage.crawler.comparison import Change as Change
    from forage.crawler.comparison import PageChange as PageChange
    from forage.crawler.comparison import compare_manifests as compare_manifests
    from forage.crawler.discovery import FetchedDocument as FetchedDocument
    from forage.crawler.discovery import SitemapFetch as SitemapFetch
    from forage.crawler.discovery import SitemapFinds as SitemapFinds
    from forage.crawler.discovery import SitemapWarning as SitemapWarning
    from forage.crawler.discovery import discover_sitemaps as discover_sitemaps
    from forage.crawler.events import CrawlDone as CrawlDone
    from forage.crawler.events import CrawlEvent as CrawlEvent
    from forage.crawler.events import CrawlWarning as CrawlWarning
    from forage.crawler.events import HostPaused as HostPaused
    from forage.crawler.events import PageCaptured as PageCaptured
    from forage.crawler.events import PageFailed as PageFailed
    from forage.crawler.events import UrlSkipped as UrlSkipped
    from forage.crawler.frontier import FollowContext as FollowContext
    from forage.crawler.links import Link as Link
    from forage.crawler.links import PageLinks as PageLinks
    from forage.crawler.links import extract_links as extract_links
    from forage.crawler.manifest import CrawlCounts as CrawlCounts
    from forage.crawler.manifest import CrawlManifest as CrawlManifest
    from forage.crawler.manifest import HostStatistics as HostStatistics
    from forage.crawler.manifest import ManifestError as ManifestError
    from forage.crawler.manifest import Page as Page
    from forage.crawler.manifest import PageFailure as PageFailure
    from forage.crawler.manifest import PageSkip as PageSkip
    from forage.crawler.manifest import SitemapCounters as SitemapCounters
    from forage.crawler.manifest import SkipReason as SkipReason
    from forage.crawler.manifest import row_to_json as row_to_json
    from forage.crawler.many import ManyCrawls as ManyCrawls
    from forage.crawler.many import crawl_many as crawl_many
    from forage.crawler.policy import CrawlPolicy as CrawlPolicy
    from forage.crawler.policy import Seed as Seed
    from forage.crawler.progress import CrawlProgress as CrawlProgress
    from forage.crawler.progress import HostWait as HostWait
    from forage.crawler.schema import manifest_schema as manifest_schema
    from forage.crawler.sitemaps import SitemapDocument as SitemapDocument
    from forage.crawler.sitemaps import SitemapKind as SitemapKind
    from forage.crawler.sitemaps import SitemapUrl as SitemapUrl
    from forage.crawler.sitemaps import parse_sitemap as parse_sitemap
    from forage.crawler.soft404 import Answer as Answer
    from forage.crawler.soft404 import MissingPage as MissingPage
    from forage.crawler.soft404 import is_soft_404 as is_soft_404
    from forage.crawler.stream import CrawlStream as CrawlStream
    from forage.crawler.stream import crawl as crawl
    from forage.crawler.stream import crawl_stream as crawl_stream
    from forage.crawler.traps import TrapBudget as TrapBudget
    from forage.crawler.traps import TrapReason as TrapReason
    from forage.crawler.urls import canonical_url as canonical_url
    from forage.crawler.urls import dedupe_key as dedupe_key
    from forage.crawler.urls import same_host as same_host

_FACES = {
    "acquire": "page_source_id",
    "comparison": "Change PageChange compare_manifests",
    "discovery": "FetchedDocument SitemapFetch SitemapFinds SitemapWarning discover_sitemaps",
    "events": "CrawlDone CrawlEvent CrawlWarning HostPaused PageCaptured PageFailed UrlSkipped",
    "frontier": "FollowContext",
    "links": "Link PageLinks extract_links",
    "manifest": ("CrawlCounts CrawlManifest HostStatistics ManifestError Page PageFailure PageSkip SitemapCounters SkipReason row_to_json"),
    "many": "ManyCrawls crawl_many",
    "policy": "CrawlPolicy Seed",
    "progress": "CrawlProgress HostWait",
    "schema": "manifest_schema",
    "sitemaps": "SitemapDocument SitemapKind SitemapUrl parse_sitemap",
    "soft404": "Answer MissingPage is_soft_404",
    "stream": "CrawlStream crawl crawl_stream",
    "traps": "TrapBudget TrapReason",
    "urls": "canonical_url dedupe_key same_host",
}

__getattr__, __dir__, __all__ = lazy_face(
    __name__, {name: f"{__name__}.{module}" for module, names in _FACES.items() for name in names.split()}
)
