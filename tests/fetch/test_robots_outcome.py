"""What a reply for robots.txt means, row by row (RFC 9309 section 2.3)."""

from __future__ import annotations

from typing import Any

import pytest

from forage.errors import FetchErrorKind
from forage.fetch import RobotsEntry, RobotsState, robots_url_of
from forage.fetch.result import FetchFailure
from forage.fetch.robots_outcome import RobotsReply, RobotsRules, decide, settle

URL = "https://site.test/robots.txt"
BODY = b"User-agent: *\nDisallow: /private\n"
DAY = 86_400.0


def settled(held: RobotsEntry | None = None, *, now: float = 0.0, **reply: Any) -> RobotsEntry:
    return settle(URL, RobotsReply(**reply), held, now=now, max_age=DAY)


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        ({"status": 200, "body": BODY}, RobotsState.PARSED),
        ({"status": 204}, RobotsState.PARSED),
        ({"status": 206, "body": BODY}, RobotsState.PARSED),
        *[({"status": status, "body": BODY}, RobotsState.UNAVAILABLE) for status in (400, 401, 403, 404, 410, 418, 451, 499)],
        *[({"status": status, "body": BODY}, RobotsState.UNREACHABLE) for status in (408, 429, 500, 503, 520, 599, 600, 999)],
        ({"status": 304}, RobotsState.UNREACHABLE),  # nobody asked conditionally
        ({"status": 302, "unfollowable": True}, RobotsState.UNAVAILABLE),
        ({"problem": "x", "unfollowable": True}, RobotsState.UNAVAILABLE),
        ({"problem": "x"}, RobotsState.UNREACHABLE),
        ({"problem": "x", "refused": True}, RobotsState.UNREACHABLE),
    ],
)
def test_states(reply: dict[str, Any], state: RobotsState) -> None:
    entry = settled(**reply)
    assert entry.state is state
    decision = decide(entry, entry.file.group("x"), "/private", RobotsRules(), now=0)
    denied = {RobotsState.PARSED: FetchErrorKind.ROBOTS_DENIED, RobotsState.UNREACHABLE: FetchErrorKind.ROBOTS_UNREACHABLE}
    if entry.file.size or state is RobotsState.UNREACHABLE:
        assert decision.kind is denied[state]
        assert not decision.allowed
    else:
        assert decision.allowed


def test_a_denial_names_file_line_and_rule() -> None:
    entry = settled(status=200, body=b"\n\nUser-agent: *\nDisallow: /priv\x07ate?" + b"x" * 500 + b"\n")
    decision = decide(entry, entry.file.group("x"), "/priv%07ate?" + "x" * 600, RobotsRules(), now=0)
    assert decision.reason is not None
    assert decision.reason.startswith("https://site.test/robots.txt line 4: Disallow: /priv\ufffdate?xxx")
    assert len(decision.reason) < 300
    assert decision.reason in decision.message


def test_an_old_copy_holds_while_the_file_is_unreachable() -> None:
    first = settled(status=200, body=BODY, etag='"1"')
    stale = settled(first, now=2 * DAY, status=500)
    assert stale.state is RobotsState.STALE
    assert stale.etag == '"1"'
    assert any("robots-stale" in note for note in stale.warnings)
    assert (
        decide(stale, stale.file.group("x"), "/private", RobotsRules(open_on_error=True), now=2 * DAY).kind is FetchErrorKind.ROBOTS_DENIED
    )
    still = settled(stale, now=40 * DAY, problem="x")
    assert still.state is RobotsState.STALE
    fresh = settled(still, now=41 * DAY, status=304)
    assert (fresh.state, fresh.expires_at, fresh.unreachable_since) == (RobotsState.PARSED, 42 * DAY, None)
    gone = settled(still, now=41 * DAY, status=404)
    assert (gone.state, gone.file.size) == (RobotsState.UNAVAILABLE, 0)


def test_a_file_unreachable_for_thirty_days_counts_as_absent() -> None:
    first = settled(problem="x")
    later = settled(first, now=29 * DAY, problem="x")
    assert later.state is RobotsState.UNREACHABLE
    assert settled(later, now=31 * DAY, problem="x").state is RobotsState.UNAVAILABLE
    assert settled(later, now=31 * DAY, problem="x", refused=True).state is RobotsState.UNREACHABLE
    back = settled(later, now=31 * DAY, status=200)
    assert back.unreachable_since is None


def test_an_unreachable_file_is_asked_for_again_less_and_less_often() -> None:
    entry, waits = None, []
    for _ in range(9):
        entry = settled(entry, status=503)
        waits.append(entry.expires_at)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert settled(status=503, retry_after=600.0).expires_at == 600


def test_the_wait_that_is_left_is_reported() -> None:
    entry = settled(status=503, retry_after=600.0)
    decision = decide(entry, entry.file.group("x"), "/", RobotsRules(), now=100)
    assert decision.retry_after == 500


@pytest.mark.parametrize(
    ("rules", "reply", "allowed"),
    [
        (RobotsRules(open_on_error=True), {"status": 503}, True),
        (RobotsRules(open_on_error=True), {"problem": "x", "refused": True}, False),
        (RobotsRules(open_on_error=True), {"status": 200, "body": b"User-agent: *\nDisallow: /\n"}, False),
        (RobotsRules(strict=True), {"status": 401}, False),
        (RobotsRules(strict=True), {"status": 403}, False),
        (RobotsRules(strict=True), {"status": 404}, True),
        (RobotsRules(), {"status": 403}, True),
    ],
)
def test_options(rules: RobotsRules, reply: dict[str, Any], allowed: bool) -> None:
    entry = settled(**reply)
    decision = decide(entry, entry.file.group("x"), "/x", rules, now=0)
    assert decision.allowed is allowed
    if allowed and reply["status"] in (503, 403):
        assert any(note.startswith("robots-") for note in decision.warnings)


def test_a_host_that_the_guard_refuses_stays_that() -> None:
    denied = FetchFailure(kind=FetchErrorKind.EGRESS_DENIED, message="no", reason="DENIED_ADDRESS")
    entry = settled(problem="x", refused=True, denied=denied)
    decision = decide(entry, entry.file.group("x"), "/x", RobotsRules(open_on_error=True), now=0)
    assert (decision.allowed, decision.kind, decision.reason) == (False, FetchErrorKind.EGRESS_DENIED, "DENIED_ADDRESS")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://site.test/a/b?c#d", "https://site.test/robots.txt"),
        ("http://site.test:8080/a", "http://site.test:8080/robots.txt"),
        ("HTTPS://SITE.test:443", "https://site.test/robots.txt"),
        ("https://u:p@site.test./", "https://site.test/robots.txt"),
        ("http://[2001:db8::1]:81/x", "http://[2001:db8::1]:81/robots.txt"),
    ],
)
def test_the_file_is_at_the_root_of_the_authority(url: str, expected: str) -> None:
    assert robots_url_of(url) == expected
