"""Visits as HTTP archives: every archive keeps to the format, and says what it must and nothing that it must not."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.browser import BrowserFacts, PageOutcome, RequestEntry, RequestOutcome, Visit, har_document, open_browser, visit_page
from tests.support.browser_site import html, open_browser_site
from tests.support.browsers import browser_options
from tests.support.har_rules import har_problems

STARTED = "2026-01-02T03:04:05.678Z"
FACTS = BrowserFacts(product="Chrome/156.0", program="chromium", kind="full", transport="pipe", sandbox=True)


def archive(*entries: RequestEntry, **members: Any) -> dict[str, Any]:
    visit = Visit(url="http://a.test/", outcome=PageOutcome.OK, requests=entries, browser=FACTS, started_at=STARTED, **members)
    return har_document([visit])


def entry(url: str = "http://a.test/", **members: Any) -> RequestEntry:
    return RequestEntry(number=1, url=url, **{"in_browser": True, **members})


TEXTS = st.text(max_size=20)
ENTRIES = st.builds(
    RequestEntry,
    number=st.integers(1),
    url=st.sampled_from(["http://a.test/?a=b&c=%zz&d", "https://a.test/#x", "a.test:443", "ws://a.test/?q=1", "http://[::1/", ""]) | TEXTS,
    method=st.sampled_from(["GET", "POST", "CONNECT"]),
    outcome=st.sampled_from(RequestOutcome),
    status=st.none() | st.integers(100, 599),
    status_text=TEXTS,
    mime_type=TEXTS,
    protocol=TEXTS,
    body_bytes=st.none() | st.integers(0, 1 << 40),
    failure=st.none() | TEXTS,
    code=st.none() | TEXTS,
    from_cache=st.booleans(),
    in_browser=st.booleans(),
    address=st.none() | TEXTS,
    resource_type=st.none() | TEXTS,
    initiator=st.none() | TEXTS,
    started_at=st.none() | st.just(STARTED),
    seconds=st.none() | st.floats(0, 1e6),
)


@given(st.lists(ENTRIES, max_size=4), st.sampled_from(PageOutcome), st.none() | TEXTS)
def test_every_archive_keeps_to_the_format(entries: list[RequestEntry], outcome: PageOutcome, error: str | None) -> None:
    visit = Visit(url="http://a.test/", outcome=outcome, error=error, requests=tuple(entries), browser=FACTS, started_at=STARTED)
    document = har_document([visit, attrs.evolve(visit, browser=None)])
    assert har_problems(document) == []
    json.dumps(document)


def test_the_rules_notice_what_is_wrong() -> None:
    document = archive(entry())
    assert har_problems(document) == []
    for path, value in (("time", -1), ("startedDateTime", "yesterday"), ("request", {}), ("more", 1), ("pageref", "page_9")):
        broken = json.loads(json.dumps(document))
        broken["log"]["entries"][0][path] = value
        assert har_problems(broken), path
    assert har_problems({}) == ["no log"]


@pytest.mark.parametrize(
    ("members", "status", "error"),
    [
        ({"outcome": RequestOutcome.ANSWERED, "status": 200}, 200, None),
        ({"outcome": RequestOutcome.REFUSED, "code": "DENIED_HOST", "status": 403}, 0, "refused: DENIED_HOST"),
        ({"outcome": RequestOutcome.ABORTED, "rule": "refuse-hosts"}, 0, "aborted: refuse-hosts"),
        ({"outcome": RequestOutcome.BLOCKED, "blocked": "csp"}, 0, "blocked: csp"),
        ({"outcome": RequestOutcome.NAVIGATION}, 0, "navigation"),
        ({"outcome": RequestOutcome.FAILED, "failure": "net::ERR_FAILED"}, 0, "failed: net::ERR_FAILED"),
    ],
)
def test_what_was_not_answered_has_status_0_and_says_why(members: dict[str, Any], status: int, error: str | None) -> None:
    response = archive(entry(**members))["log"]["entries"][0]["response"]
    assert (response["status"], response.get("_error")) == (status, error)


def test_what_only_the_guard_saw_has_a_comment() -> None:
    assert "guard only" in archive(entry("a.test:443", method="CONNECT", in_browser=False))["log"]["entries"][0]["comment"]


def test_the_query_is_taken_apart() -> None:
    assert archive(entry("http://a.test/?a=b%20c&a=&d"))["log"]["entries"][0]["request"]["queryString"] == [
        {"name": "a", "value": "b c"},
        {"name": "a", "value": ""},
        {"name": "d", "value": ""},
    ]


async def test_the_archive_of_a_real_page_keeps_to_the_format_and_to_itself() -> None:
    routes = {"/": html("<script>document.cookie='secret=1';fetch('/x',{headers:{authorization:'Bearer token'}})</script><img src=/i.png>")}
    async with open_browser_site(routes) as site, open_browser(browser_options()) as browser:
        visit = await visit_page(browser, f"{site.origin}/", site.options())
    document = har_document([visit])
    assert har_problems(document) == []
    urls = [row["request"]["url"].removeprefix(site.origin) for row in document["log"]["entries"]]
    assert (urls[0], sorted(urls)) == ("/", ["/", "/i.png", "/x"])
    assert all(row["startedDateTime"] >= visit.started_at for row in document["log"]["entries"])
    text = json.dumps(document)
    assert "secret" not in text
    assert "token" not in text
