"""What two manifests have in common, page by page."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.crawler import Change, CrawlManifest, Page, PageFailure, PageSkip, SkipReason, compare_manifests


def page(asked: str, **members: Any) -> Page:
    same: dict[str, Any] = {
        "number": 0,
        "status": 200,
        "depth": 0,
        "body_bytes": 3,
        "body_hash": "0" * 64,
        "fetched_at": "2026-01-01T00:00:00.000Z",
    }
    return Page(**{"url": asked, "requested_url": asked, "source_id": asked, "source_ref": f"forage-snapshot:{asked}", **same, **members})


def manifest(*pages: Page, failures: tuple[PageFailure, ...] = (), skips: tuple[PageSkip, ...] = ()) -> CrawlManifest:
    times: dict[str, Any] = {"started_at": "2026-01-01T00:00:00.000Z", "ended_at": "2026-01-01T00:00:09.000Z"}
    return CrawlManifest(
        seed="a", mode="live", policy={}, policy_digest="0" * 64, tool="forage/0", pages=pages, failures=failures, skips=skips, **times
    )


@pytest.mark.parametrize(
    ("after", "change"),
    [
        ({}, Change.SAME),
        ({"number": 7, "depth": 3, "fetched_at": "2027-01-01T00:00:00.000Z", "source_ref": "forage-snapshot:x"}, Change.SAME),
        ({"not_modified": True, "stored": True, "warnings": ("w",), "soft_404": True}, Change.SAME),
        ({"body_hash": "1" * 64}, Change.BODY),
        ({"body_hash": "1" * 64, "status": 203}, Change.BODY),
        ({"status": 203}, Change.METADATA),
        ({"url": "moved"}, Change.METADATA),
        ({"redirects": ("a",)}, Change.METADATA),
        ({"rendered": True}, Change.METADATA),
    ],
    ids=str,
)
def test_a_page_that_both_have(after: dict[str, Any], change: Change) -> None:
    before = page("a")
    (found,) = compare_manifests(manifest(before), manifest(attrs.evolve(before, **after)))
    assert (found.url, found.change, found.why) == ("a", change, None)
    assert found.before == before


def test_new_and_gone_pages_say_what_the_other_manifest_has_instead() -> None:
    failure = PageFailure(number=1, url="b", code="timeout", message="m", depth=1)
    skip = PageSkip(url="c", reason=SkipReason.ROBOTS_DENIED, depth=1)
    one = manifest(page("a"), failures=(failure,), skips=(skip,))
    other = manifest(page("b"), page("c"), page("d"))
    assert [(c.url, c.change, c.why) for c in compare_manifests(one, other)] == [
        ("b", Change.NEW, "timeout"),
        ("c", Change.NEW, "robots-denied"),
        ("d", Change.NEW, None),
        ("a", Change.GONE, None),
    ]
    assert [(c.url, c.change, c.why) for c in compare_manifests(other, one)] == [
        ("a", Change.NEW, None),
        ("b", Change.GONE, "timeout"),
        ("c", Change.GONE, "robots-denied"),
        ("d", Change.GONE, None),
    ]


def test_pages_are_matched_by_what_was_asked_for() -> None:
    before, after = page("a", url="x"), page("b", url="x")
    assert {c.change for c in compare_manifests(manifest(before), manifest(after))} == {Change.NEW, Change.GONE}


@st.composite
def manifests(draw: st.DrawFn) -> CrawlManifest:
    urls = draw(st.lists(st.sampled_from("abcdef"), unique=True))
    return manifest(*(page(url, body_hash=draw(st.sampled_from("01")) * 64, status=draw(st.sampled_from([200, 203]))) for url in urls))


@given(manifests(), manifests())
def test_every_page_of_either_is_told_once_and_both_ways_agree(one: CrawlManifest, other: CrawlManifest) -> None:
    there, back = compare_manifests(one, other), compare_manifests(other, one)
    assert sorted(c.url for c in there) == sorted({p.requested_url for p in (*one.pages, *other.pages)})
    turned = {Change.NEW: Change.GONE, Change.GONE: Change.NEW}
    assert {c.url: turned.get(c.change, c.change) for c in there} == {c.url: c.change for c in back}
    assert {c.change for c in compare_manifests(one, one)} <= {Change.SAME}
