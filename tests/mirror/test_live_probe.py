"""From the browser's log to the gate's records: what counts, what is only told, and which visits prove nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from forage.browser import BrowserFacts, BrowserOptions, CspIssue, PageOutcome, RequestEntry, RequestLog, RequestOutcome, Viewport, Visit
from forage.errors import InvalidPolicyError
from forage.mirror import BrowserProbe
from forage.mirror.deployed import judge_deployed
from forage.mirror.live_probe import browser_name, csp_finding, render_report
from forage.mirror.policy import compile_policy

URL = "http://127.0.0.1:8000/web/2012/http://x.org/"
FACTS = BrowserFacts(product="Chrome/156.0", program="chromium", kind="full", transport="pipe", sandbox=True)
DOCUMENT = RequestEntry(
    number=1, url=URL, resource_type="Document", document=True, status=200, outcome=RequestOutcome.ANSWERED, in_browser=True, at_guard=True
)


def entry(url: str, outcome: RequestOutcome = RequestOutcome.REFUSED, **members: Any) -> RequestEntry:
    return attrs.evolve(RequestEntry(number=2, url=url, outcome=outcome, in_browser=True), **members)


def log(*entries: RequestEntry, **members: Any) -> RequestLog:
    visit = Visit(url=URL, outcome=PageOutcome.OK, requests=(DOCUMENT, *entries), browser=FACTS)
    return RequestLog(url=URL, visits=(attrs.evolve(visit, **members),))


def test_an_attempt_to_leave_is_no_request_of_the_document() -> None:
    report = render_report(log(entry("https://else.example/", RequestOutcome.NAVIGATION), left_for=("https://third.example/",)))
    assert [record.url for record in report.requests] == [URL]
    assert report.navigations == ("https://third.example/", "https://else.example/")


def test_a_tunnel_that_nothing_explains_is_a_request_to_its_host() -> None:
    report = render_report(log(entry("stats.example:443", method="CONNECT", in_browser=False, session="guard")))
    assert report.requests[1].url == "https://stats.example:443/"
    assert "past the browser's own log" in (report.requests[1].comment or "")


def test_a_connection_ahead_of_a_refused_navigation_is_no_request_of_its_own() -> None:
    """The full browser makes them, for frames, too; one each, so that what a page sends to the same host while it is left still counts."""
    frame = entry("https://web.archive.org/web/2012/http://x.org/gone", RequestOutcome.ABORTED, resource_type="Document")
    tunnels = [entry(f"{host}:443", method="CONNECT", in_browser=False, session="guard") for host in ("web.archive.org", "else.example")]
    report = render_report(log(frame, *tunnels, entry("https://else.example/x", RequestOutcome.NAVIGATION)))
    assert [record.url for record in report.requests] == [URL, frame.url]
    report = render_report(log(frame, *tunnels, *tunnels, left_for=("https://else.example/x",)))
    assert [record.url for record in report.requests] == [URL, frame.url, "https://web.archive.org:443/", "https://else.example:443/"]
    image = attrs.evolve(frame, resource_type="Image")
    assert "https://web.archive.org:443/" in [record.url for record in render_report(log(image, *tunnels)).requests]


def test_every_viewport_counts() -> None:
    sizes = [Viewport(width=390), Viewport(width=1280)]
    visits = [log(entry(f"https://s{size.width}.example/", viewport=size), viewport=size).visits[0] for size in sizes]
    report = render_report(RequestLog(url=URL, visits=tuple(visits)))
    assert [record.url for record in report.requests if not record.document] == ["https://s390.example/", "https://s1280.example/"]
    assert report.viewport == "390x800@1,1280x800@1"
    assert report.requests[1].comment == "viewport 390x800@1"


@pytest.mark.parametrize("outcome", [outcome for outcome in PageOutcome if outcome not in {PageOutcome.OK, PageOutcome.NOT_IDLE}])
def test_a_visit_that_ended_badly_proves_nothing(outcome: PageOutcome) -> None:
    report = render_report(log(outcome=outcome, error="why"))
    assert report.failure == f"{outcome.value}: why"


@pytest.mark.parametrize(
    "members", [{"outcome": PageOutcome.NOT_IDLE}, {"stopped": True}, {"warnings": ("frame-crashed: a frame of the page crashed",)}]
)
def test_a_visit_that_may_have_missed_something_is_never_clean(members: dict[str, Any]) -> None:
    report = render_report(log(**members))
    assert report.failure is None
    assert report.unsettled


def test_a_visit_without_its_document_proves_nothing() -> None:
    assert render_report(log(requests=())).failure == "its document was not asked for"


@pytest.mark.parametrize(
    ("kind", "url", "source"),
    [("kEvalViolation", None, "eval"), ("kInlineViolation", None, "inline"), ("kURLViolation", "https://a.example/x", "")],
)
def test_violations_are_named_as_policies_name_them(kind: str, url: str | None, source: str) -> None:
    finding = csp_finding(CspIssue(directive="script-src", kind=kind, url=url, source=URL))
    assert (finding.url, finding.directive, finding.source) == (url, "script-src", source)
    assert finding.message == f"script-src does not allow {url or source} in {URL}"


def test_a_browser_without_its_sandbox_says_so_in_its_name() -> None:
    assert browser_name(FACTS) == "Chrome/156.0"
    assert browser_name(attrs.evolve(FACTS, sandbox=False)) == "Chrome/156.0 (no sandbox)"


async def test_whether_there_is_a_browser_starts_none() -> None:
    assert not await BrowserProbe(BrowserOptions(program="no-such-browser")).available()


def test_sizes_are_checked_before_anything_is_rendered() -> None:
    with pytest.raises(InvalidPolicyError, match="viewport"):
        BrowserProbe(viewports=[Viewport(width=0)])


def test_what_a_deployed_page_asks_of_others_fails_unless_it_is_sanctioned() -> None:
    asked = log(
        entry("https://stats.example/p.gif", RequestOutcome.BLOCKED, blocked="csp"),
        entry("http://127.0.0.1:8000/web/2012im_/http://x.org/a.png", RequestOutcome.ANSWERED, status=404),
        csp=(CspIssue(directive="img-src", kind="kURLViolation", url="https://stats.example/p.gif"),),
    )
    policy = compile_policy({"escapes": [{"host": "stats.example", "reason": "counts visits"}]})
    refused = judge_deployed("2012/http://x.org/", URL, render_report(asked), compile_policy({}))
    allowed = judge_deployed("2012/http://x.org/", URL, render_report(asked), policy)
    assert (refused.ok, refused.asked, len(refused.blocked)) == (False, ("https://stats.example/p.gif",), 1)
    assert (allowed.ok, allowed.blocked, allowed.sanctioned) == (True, (), ("https://stats.example/p.gif",))
    assert allowed.failed == ("http://127.0.0.1:8000/web/2012im_/http://x.org/a.png",)


def test_no_name_of_the_package_is_hidden_by_a_module() -> None:
    import forage.mirror
    import forage.mirror.deployed

    assert callable(forage.mirror.spot_check)
    modules = {path.stem for path in Path(forage.mirror.__file__).parent.glob("*.py")}
    assert not modules & set(forage.mirror.__all__)
