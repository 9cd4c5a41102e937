"""Manifests with their times taken out: what two crawls of one site must have in common to the byte."""

from __future__ import annotations

import attrs

from forage.crawler import CrawlManifest, Page
from forage.snapshots import parse_source_ref

__all__ = ["without_times"]


def _page(page: Page) -> Page:
    """A reference says when, and its digest is over that, too; what is left of it is what was cited."""
    cited = parse_source_ref(page.source_ref)
    assert cited is not None, page.source_ref
    return attrs.evolve(page, fetched_at="", source_ref=f"{cited.source_id} {cited.url} {cited.body_hash}")


def without_times(manifest: CrawlManifest) -> str:
    """The JSON text without ``startedAt``, ``endedAt``, ``fetchedAt`` and what follows from the last one."""
    return attrs.evolve(manifest, started_at="", ended_at="", pages=tuple(map(_page, manifest.pages))).to_json()
