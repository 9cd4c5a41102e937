"""The manifest's JSON form: round trip, strictness, and counts that add up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forage.crawler import CrawlManifest, ManifestError, Page, PageFailure, PageSkip, SkipReason
from forage.crawler.manifest import row_to_json

PAGE = Page(
    number=0,
    url="https://site.test/",
    requested_url="https://site.test/",
    status=200,
    depth=0,
    source_id="s::https://site.test/",
    source_ref="forage-snapshot:s?url=u",
    body_hash="0" * 64,
    body_bytes=3,
    fetched_at="2026-01-01T00:00:00.000Z",
    redirects=("https://site.test/old",),
    warnings=("one",),
)
MANIFEST = CrawlManifest(
    seed="https://site.test/",
    mode="live",
    policy={"maxPages": 8, "egress": {"guarded": True, "ports": []}, "delay": 0.5, "userAgent": None},
    policy_digest="1" * 64,
    started_at="2026-01-01T00:00:00.000Z",
    ended_at="2026-01-01T00:00:09.000Z",
    tool="forage/0",
    pages=(PAGE,),
    failures=(PageFailure(number=1, url="https://site.test/x", code="timeout", message="m", depth=1),),
    skips=(PageSkip(url="https://out.test/", reason=SkipReason.OFF_SCOPE, depth=1),),
)


def test_manifest_survives_its_json_form() -> None:
    assert CrawlManifest.from_json(MANIFEST.to_json()) == MANIFEST
    assert CrawlManifest.from_json(MANIFEST.to_json().encode()) == MANIFEST


def test_json_is_camel_case_and_has_counts_and_no_body() -> None:
    data = json.loads(MANIFEST.to_json())
    assert data["format"] == "forage.crawl-manifest/1"
    assert data["counts"] == {"seen": 3, "captured": 1, "failed": 1, "skipped": 1}
    assert data["pages"][0]["requestedUrl"] == "https://site.test/"
    assert "snapshot" not in data["pages"][0]


def _changed(**members: Any) -> str:
    return json.dumps({**json.loads(MANIFEST.to_json()), **members})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        b"\xff\xfe",
        "[" * 100_000,
        _changed(format="forage.crawl-manifest/2"),
        _changed(extra=1),
        _changed(seed=5),
        _changed(pages=[{"url": "https://site.test/"}]),
        _changed(counts={"seen": 1, "captured": 1, "failed": 0, "skipped": 0}),
        _changed(truncated="yes"),
        _changed(skips=[{"url": "u", "reason": "because", "depth": 1, "detail": None}]),
    ],
)
def test_text_that_is_no_manifest_is_refused(text: str | bytes) -> None:
    with pytest.raises(ManifestError):
        CrawlManifest.from_json(text)


def test_rows_are_one_json_line() -> None:
    line = row_to_json("page", PAGE)
    assert "\n" not in line
    assert json.loads(line)["event"] == "page"
    assert json.loads(line)["sourceRef"] == PAGE.source_ref


@pytest.mark.parametrize("wrong", [5, None, [], {}, object()])
def test_what_is_no_text_is_no_manifest(wrong: Any) -> None:
    with pytest.raises(ManifestError, match="text"):
        CrawlManifest.from_json(wrong)
