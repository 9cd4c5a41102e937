"""What blocks, in which order it is named, and what is only reported."""

from __future__ import annotations

from typing import Any

import pytest

from forage.mirror.answers import Outcome, Served
from forage.mirror.gate import Assessment, Holdings, Reason, assess, csp_findings, document_served
from forage.mirror.leaks import classify_request
from forage.mirror.policy import EscapePolicy, compile_policy
from forage.mirror.probe import CspFinding, RenderReport, RequestRecord
from forage.mirror.sidecar import Sidecar

ORIGIN = "http://127.0.0.1:5000"
PAGE = "2012/http://x.org/"
ARCHIVE = "https://web.archive.org/web/2012im_/http://x.org"
POLICY = compile_policy({"escapes": [{"host": "ads.test"}], "csp": [{"directive": "script-src", "source": "eval", "reason": "old"}]})


def sidecar(key: str, status: str = "body", **members: Any) -> Sidecar:
    return Sidecar(members={"key": key, "status": status, **members})


def judge(
    *urls: str,
    held: dict[str, str] | None = None,
    late: tuple[str, ...] = (),
    recorded: tuple[str, ...] = (),
    requisites: tuple[str, ...] = (),
    served: tuple[Served, ...] = (),
    csp: tuple[CspFinding, ...] = (),
    document: bool = True,
    policy: EscapePolicy = POLICY,
) -> Assessment:
    """A render that asked for ``urls`` beside its document; ``held`` maps keys to statuses, ``late`` ones came after the snapshot."""
    held = held or {}
    target = f"/web/{PAGE}"
    records = [RequestRecord(url=ORIGIN + target, resource_type="document", status=200, document=document)]
    records += [RequestRecord(url=url, resource_type="image") for url in urls]
    corpus = {PAGE, *held}
    own = Served(target=target, status=200, outcome=Outcome.HIT, key=PAGE)
    return assess(
        key=PAGE,
        document=sidecar(PAGE, requisites=list(requisites)),
        recorded=recorded,
        report=RenderReport(requests=tuple(records), csp=csp),
        sightings=[classify_request(r.url, r.resource_type, origin=ORIGIN, held=corpus, policy=policy) for r in records],
        served=(own, *served),
        logged=True,
        holdings=Holdings(
            sidecars={key: sidecar(key, status) for key, status in held.items()}, snapshot=corpus - set(late), late=set(late)
        ),
        policy=policy,
        first_seen="2026-01-02T03:04:05.000Z",
    )


def test_a_page_that_asks_for_nothing_else_is_clean() -> None:
    found = judge()
    assert found.served
    assert found.reason is None


@pytest.mark.parametrize(("status", "served"), [(200, True), (None, True), (404, False)])
def test_a_scripted_document_counts_by_its_own_status(status: int | None, served: bool) -> None:
    report = RenderReport(requests=(RequestRecord(url=f"{ORIGIN}/web/{PAGE}", resource_type="Document", status=status),))
    own = Served(target=f"/web/{PAGE}", status=200, outcome=Outcome.HIT, key=PAGE)
    assert document_served(PAGE, report, (own,), logged=False) is served
    assert not document_served(PAGE, report, (own,), logged=True)


def test_a_navigation_that_was_not_seen_is_a_probe_error() -> None:
    assert judge(document=False).reason is Reason.PROBE_ERROR


@pytest.mark.parametrize("status", ["body", "empty"])
def test_a_held_capture_asked_of_the_archive_was_not_localised(status: str) -> None:
    found = judge(f"{ARCHIVE}/a.png", held={"2012/http://x.org/a.png": status})
    assert found.reason is Reason.UNLOCALIZED
    assert found.hard == (f"{ARCHIVE}/a.png",)
    assert not found.worklist


@pytest.mark.parametrize("status", ["error", "redirect", "interstitial"])
def test_a_terminal_capture_asked_of_the_archive_is_reported_and_does_not_block(status: str) -> None:
    found = judge(f"{ARCHIVE}/a.png", held={"2012/http://x.org/a.png": status})
    assert found.reason is None
    assert found.terminal == (f"{ARCHIVE}/a.png",)


def test_a_capture_that_came_after_the_snapshot_asks_for_another_render() -> None:
    key = "2012/http://x.org/a.png"
    found = judge(f"{ARCHIVE}/a.png", held={key: "body"}, late=(key,))
    assert (found.reason, found.stale, found.unlocalized) == (None, (key,), ())
    missed = Served(target=f"/web/{key}", status=404, outcome=Outcome.MISS, key=key)
    assert judge(f"{ORIGIN}/web/{key}", held={key: "body"}, late=(key,), served=(missed,)).stale == (key,)


def test_new_work_is_no_reason_and_recorded_children_are() -> None:
    found = judge(f"{ORIGIN}/web/2012/http://x.org/new.png")
    assert found.reason is None
    assert [entry.key for entry in found.worklist] == ["2012/http://x.org/new.png"]
    again = judge(f"{ORIGIN}/web/2012/http://x.org/new.png", recorded=("2012/http://x.org/new.png",))
    assert (again.reason, again.worklist) == (Reason.NO_PROGRESS, ())


def test_a_missing_requisite_blocks_unless_it_cannot_be_mirrored() -> None:
    beacon = "2012/http://www.google-analytics.com/__utm.gif?x"
    assert judge(requisites=("2012/http://x.org/a.png", beacon)).incomplete == ("2012/http://x.org/a.png",)
    assert judge(requisites=("2012/http://x.org/a.png",)).reason is Reason.INCOMPLETE_CLOSURE
    assert judge(requisites=("2012/http://x.org/a.png",), held={"2012/http://x.org/a.png": "error"}).reason is None
    assert judge(requisites=(beacon,)).reason is None


def test_rotten_bytes_come_first() -> None:
    for outcome in (Outcome.CORRUPT, Outcome.UNREADABLE):
        rotten = Served(target="/x", status=500, outcome=outcome, key="2012/http://x.org/a.css")
        found = judge("https://tracker.test/x", served=(rotten,), document=False)
        assert found.reason is Reason.CORRUPT
        assert found.corrupt == ("2012/http://x.org/a.css",)


def test_the_order_of_reasons() -> None:
    key = "2012/http://x.org/a.png"
    everything = {
        "csp": (CspFinding(message="m", directive="script-src", source="inline"),),
        "recorded": ("2012/http://x.org/r",),
        "requisites": ("2012/http://x.org/q",),
    }
    urls = ["https://archive.org/x", f"{ARCHIVE}/a.png", "https://tracker.test/x"]
    order = []
    for dropped in ("csp", "chrome", "unlocalized", "recorded", "requisites", "escape", None):
        order.append(judge(*urls, held={key: "body"}, **everything).reason)  # type: ignore[arg-type]
        everything.pop(dropped or "", None)
        if dropped in {"chrome", "unlocalized", "escape"}:
            urls.pop(0)
    assert order == [
        Reason.CSP_RESIDUAL,
        Reason.UNEXPECTED_ARCHIVE_REQUEST,
        Reason.UNLOCALIZED,
        Reason.NO_PROGRESS,
        Reason.INCOMPLETE_CLOSURE,
        Reason.UNMATCHED_ESCAPES,
        None,
    ]


@pytest.mark.parametrize(
    ("finding", "counts"),
    [
        (CspFinding(message="m", url="https://elsewhere.test/x"), True),
        (CspFinding(message="m", url="https://ads.test/x.js#f"), False),
        (CspFinding(message="m", url="https://ads.test"), False),
        (CspFinding(message="m", url=f"{ARCHIVE}/gone.png"), False),
        (CspFinding(message="m", url="data:font/woff;base64,AA", directive="font-src"), True),
        (CspFinding(message="m", url="blob:http://127.0.0.1:5000/1", directive="font-src"), True),
        (CspFinding(message="m", directive="script-src", source="eval"), False),
        (CspFinding(message="m", directive="script-src", source="inline"), True),
        (CspFinding(message="m"), True),
    ],
)
def test_which_violations_count(finding: CspFinding, counts: bool) -> None:
    found = judge("https://ads.test/x.js", f"{ARCHIVE}/gone.png", held={"2012/http://x.org/gone.png": "error"}, csp=(finding,))
    assert bool(found.csp) is counts
    assert (found.reason is Reason.CSP_RESIDUAL) is counts


def test_a_sanctioned_violation_is_reported() -> None:
    assert judge(csp=(CspFinding(message="eval", directive="script-src", source="eval"),)).sanctioned == ("eval",)


def test_scripted_lines_are_cut_and_compared_by_their_url() -> None:
    line = "Refused to load the image 'https://ads.test/i' because it violates the Content Security Policy" + "x" * 300
    report = RenderReport(console=(line, "a plain line"))
    (finding,) = csp_findings(report)
    assert len(finding.message) == 200
    assert finding.url == "https://ads.test/i"
