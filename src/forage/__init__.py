"""forage: crawl URLs that nobody vouches for, through a pinned egress guard, and cite what was kept.

Four layers, each usable alone: `forage.egress` (the guard), `forage.snapshots` (what was received, and how to cite it), `forage.fetch`
(one polite acquisition) and `forage.crawler`. The names below load their layer when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forage._lazy import lazy_face

if TYPE_CHECKING:
    from forage import browser as browser
    from forage import crawler as crawler
    from forage import egress as egress
    from forage import errors as errors
    from forage import fetch as fetch
    from forage import mirror as mirror
    from forage import snapshots as snapshots
    from forage import testing as testing
    from forage._version import __version__ as __version__
    from forage.crawler import CrawlManifest as CrawlManifest
    from forage.crawler import CrawlPolicy as CrawlPolicy
    from forage.crawler import Page as Page
    from forage.crawler import PageFailure as PageFailure
    from forage.crawler import PageSkip as PageSkip
    from forage.crawler import Seed as Seed
    from forage.crawler import crawl as crawl
    from forage.crawler import crawl_many as crawl_many
    from forage.crawler import crawl_stream as crawl_stream
    from forage.egress import EgressPolicy as EgressPolicy
    from forage.egress import classify_address as classify_address
    from forage.egress import evaluate_url as evaluate_url
    from forage.egress import guarded_client as guarded_client
    from forage.errors import BrowserError as BrowserError
    from forage.errors import CaptureError as CaptureError
    from forage.errors import EgressDeniedError as EgressDeniedError
    from forage.errors import EgressError as EgressError
    from forage.errors import EgressUnreachableError as EgressUnreachableError
    from forage.errors import FetchError as FetchError
    from forage.errors import ForageError as ForageError
    from forage.errors import HistoryFullError as HistoryFullError
    from forage.errors import InvalidPolicyError as InvalidPolicyError
    from forage.errors import InvalidSnapshotError as InvalidSnapshotError
    from forage.errors import ResponseTooLargeError as ResponseTooLargeError
    from forage.errors import SnapshotCorruptError as SnapshotCorruptError
    from forage.errors import SnapshotStoreError as SnapshotStoreError
    from forage.errors import SourceRefError as SourceRefError
    from forage.errors import StoreBusyError as StoreBusyError
    from forage.fetch import Fetcher as Fetcher
    from forage.fetch import FetchResult as FetchResult
    from forage.fetch import Source as Source
    from forage.fetch import fetch_source as fetch_source
    from forage.snapshots import FilesystemSnapshotStore as FilesystemSnapshotStore
    from forage.snapshots import MemorySnapshotStore as MemorySnapshotStore
    from forage.snapshots import Snapshot as Snapshot
    from forage.snapshots import build_source_ref as build_source_ref
    from forage.snapshots import parse_source_ref as parse_source_ref
    from forage.snapshots import replay_source as replay_source
    from forage.snapshots import resolve_source_ref as resolve_source_ref

_FACES = {
    "forage._version": "__version__",
    "forage.crawler": "CrawlManifest CrawlPolicy Page PageFailure PageSkip Seed crawl crawl_many crawl_stream",
    "forage.egress": "EgressPolicy classify_address evaluate_url guarded_client",
    "forage.errors": (
        "BrowserError CaptureError EgressDeniedError EgressError EgressUnreachableError FetchError ForageError HistoryFullError "
        "InvalidPolicyError InvalidSnapshotError ResponseTooLargeError SnapshotCorruptError SnapshotStoreError SourceRefError "
        "StoreBusyError"
    ),
    "forage.fetch": "FetchResult Fetcher Source fetch_source",
    "forage.snapshots": (
        "FilesystemSnapshotStore MemorySnapshotStore Snapshot build_source_ref parse_source_ref replay_source resolve_source_ref"
    ),
}

_MODULES = ("browser", "crawler", "egress", "errors", "fetch", "mirror", "snapshots", "testing")

__getattr__, __dir__, __all__ = lazy_face(__name__, {name: face for face, names in _FACES.items() for name in names.split()}, _MODULES)
