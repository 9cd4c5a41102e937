"""The logs of guard and browser, made one: what left is there, what never left is told apart, nothing that the guard saw is lost."""

from __future__ import annotations

from typing import Any

import pytest

from forage.browser.observer import Hop
from forage.browser.request_log import RequestEntry, RequestOutcome
from forage.browser.union import NamedRequest, unite
from forage.egress import ProxyEvent


def hop(url: str, method: str = "GET", number: str = "1", **members: Any) -> Hop:
    made = Hop(number, 0, url, method, "page", "S")
    for name, value in members.items():
        setattr(made, name, value)
    return made


def told(number: int, url: str, method: str = "GET", decision: Any = "allowed", **members: Any) -> ProxyEvent:
    return ProxyEvent(
        event="decision",
        number=number,
        at="2026-01-01T00:00:00.000Z",
        client="127.0.0.1:1",
        method=method,
        url=url,
        decision=decision,
        **members,
    )


def ended(number: int, **members: Any) -> ProxyEvent:
    return ProxyEvent(event="end", number=number, at="2026-01-01T00:00:01.000Z", client="127.0.0.1:1", decision="allowed", **members)


def rows(entries: tuple[RequestEntry, ...]) -> list[tuple[str, str, str, bool, bool]]:
    return [(entry.method, entry.url, entry.outcome.value, entry.in_browser, entry.at_guard) for entry in entries]


def test_a_request_in_both_logs_is_one_entry() -> None:
    entries = unite([hop("http://a.test/x", status=200)], [told(1, "http://a.test/x", address="93.184.215.14"), ended(1, status=200)])
    assert rows(entries) == [("GET", "http://a.test/x", "answered", True, True)]
    assert (entries[0].address, entries[0].left) == ("93.184.215.14", True)


def test_a_navigation_that_the_next_one_overtook_is_no_request_of_the_page() -> None:
    """Seen with pages that set their location twice: the first is given up before the interception hears of it."""
    document = hop("http://a.test/", number="D", frame="F", resource_type="Document", status=200)
    overtaken = hop("http://b.test/", number="N", frame="F", resource_type="Document", failure="net::ERR_ABORTED")
    frame = hop("http://c.test/", number="I", frame="G", resource_type="Document", failure="net::ERR_ABORTED")
    image = hop("http://d.test/", number="2", frame="F", resource_type="Image", failure="net::ERR_ABORTED")
    entries = unite([document, overtaken, frame, image], [told(1, "http://a.test/"), ended(1, status=200)], document="D")
    assert [entry.outcome.value for entry in entries] == ["answered", "navigation", "failed", "failed"]


def test_a_navigation_that_left_is_told_whatever_overtook_it() -> None:
    document = hop("http://a.test/", number="D", frame="F", resource_type="Document", status=200)
    overtaken = hop("http://b.test/", number="N", frame="F", resource_type="Document", failure="net::ERR_ABORTED")
    events = [told(1, "http://a.test/"), told(2, "http://b.test/"), ended(1, status=200)]
    entries = unite([document, overtaken], events, document="D")
    assert rows(entries)[2] == ("GET", "http://b.test/", "open", False, True)


def test_without_a_document_nothing_is_a_navigation_away_from_it() -> None:
    lone = hop("http://b.test/", number="N", resource_type="Document", failure="net::ERR_ABORTED")
    assert unite([lone], [])[0].outcome is RequestOutcome.FAILED


def test_what_only_the_guard_saw_is_an_entry() -> None:
    entries = unite(
        [hop("http://a.test/", status=200)], [told(1, "http://a.test/"), told(2, "http://b.test/beacon", "POST"), ended(2, status=204)]
    )
    assert rows(entries)[1] == ("POST", "http://b.test/beacon", "answered", False, True)
    assert entries[1].status == 204


def test_each_entry_of_the_guard_explains_one_request() -> None:
    entries = unite([hop("http://a.test/b", "POST", status=200)], [told(1, "http://a.test/b", "POST"), told(2, "http://a.test/b", "POST")])
    assert [(entry.in_browser, entry.at_guard) for entry in entries] == [(True, True), (False, True)]


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [("refused", RequestOutcome.REFUSED), ("aborted", RequestOutcome.ABORTED), ("unreachable", RequestOutcome.UNREACHABLE)],
)
def test_the_guards_refusal_is_the_outcome(decision: str, outcome: RequestOutcome) -> None:
    (entry,) = unite(
        [hop("http://a.test/", failure="net::ERR_EMPTY_RESPONSE")], [told(1, "http://a.test/", decision=decision, code="DENIED_HOST")]
    )
    assert (entry.outcome, entry.code, entry.left) == (outcome, "DENIED_HOST", False)


@pytest.mark.parametrize("url", ["https://a.test/x", "wss://a.test/x", "https://a.test:443/", "https://user@a.test/y"])
def test_a_tunnel_is_explained_by_any_request_to_its_place(url: str) -> None:
    entries = unite([hop(url, status=200)], [told(1, "a.test:443", "CONNECT")])
    assert rows(entries) == [("GET", url, "answered", True, True)]


def test_plain_sockets_go_through_tunnels_too() -> None:
    entries = unite([hop("ws://a.test/x", resource_type="WebSocket")], [told(1, "a.test:80", "CONNECT")])
    assert len(entries) == 1


def test_a_tunnel_that_nothing_explains_is_a_request_past_everything_that_the_browser_tells() -> None:
    entries = unite([hop("https://a.test/", status=200)], [told(1, "a.test:443", "CONNECT"), told(2, "b.test:443", "CONNECT")])
    assert rows(entries)[1] == ("CONNECT", "b.test:443", "open", False, True)


@pytest.mark.parametrize("members", [{"from_cache": True, "status": 200}, {"blocked": "csp"}, {"refused": RequestOutcome.NAVIGATION}])
def test_a_request_that_never_left_explains_nothing(members: dict[str, Any]) -> None:
    for url, event in (("https://a.test/", told(1, "a.test:443", "CONNECT")), ("http://a.test/", told(1, "http://a.test/"))):
        entries = unite([hop(url, **members)], [event])
        assert [(entry.in_browser, entry.at_guard) for entry in entries] == [(True, False), (False, True)]
        assert not entries[0].left


def test_one_tunnel_that_was_let_through_counts_over_one_that_was_not() -> None:
    events = [told(1, "a.test:443", "CONNECT", decision="unreachable"), told(2, "a.test:443", "CONNECT")]
    (entry,) = unite([hop("https://a.test/", status=200)], events)
    assert entry.left


@pytest.mark.parametrize(
    ("members", "outcome"),
    [
        ({"blocked": "csp", "failure": "net::ERR_BLOCKED"}, RequestOutcome.BLOCKED),
        ({"failure": "net::ERR_FAILED"}, RequestOutcome.FAILED),
        ({}, RequestOutcome.OPEN),
        ({"refused": RequestOutcome.NAVIGATION, "failure": "net::ERR_ABORTED"}, RequestOutcome.NAVIGATION),
    ],
)
def test_what_never_came_to_the_guard_is_told_apart(members: dict[str, Any], outcome: RequestOutcome) -> None:
    (entry,) = unite([hop("http://a.test/", **members)], [])
    assert (entry.outcome, entry.at_guard, entry.left) == (outcome, False, False)


def test_named_requests_are_added_once_and_explain_tunnels() -> None:
    named = [
        NamedRequest(method="GET", url="https://a.test/seen", resource_type="Image", outcome=RequestOutcome.OPEN),
        NamedRequest(method="POST", url="https://b.test/unload", resource_type="Ping", outcome=RequestOutcome.ABORTED),
    ]
    events = [told(1, "a.test:443", "CONNECT"), told(2, "b.test:443", "CONNECT", decision="aborted")]
    entries = unite([hop("https://a.test/seen", status=200)], events, named)
    assert rows(entries) == [
        ("GET", "https://a.test/seen", "answered", True, True),
        ("POST", "https://b.test/unload", "aborted", True, True),
    ]


def test_a_request_that_the_interception_failed_is_what_the_guard_would_have_made_of_it() -> None:
    named = [NamedRequest(method="GET", url="https://a.test/x", resource_type="Image", outcome=RequestOutcome.ABORTED)]
    (entry,) = unite([hop("https://a.test/x", blocked="inspector", failure="net::ERR_BLOCKED_BY_CLIENT.Inspector")], [], named)
    assert (entry.outcome, entry.left) == (RequestOutcome.ABORTED, False)


def test_a_request_that_is_named_twice_is_one_entry() -> None:
    icon = NamedRequest(method="GET", url="http://a.test/i.png", resource_type="Image", outcome=RequestOutcome.NAMED)
    assert len(unite([], [], [icon, icon])) == 1


def test_the_navigation_itself_is_marked_on_its_first_hop_only() -> None:
    first, second = hop("http://a.test/", number="N"), hop("http://a.test/2", number="N")
    second.index = 1
    entries = unite([first, second, hop("http://a.test/3", number="M")], [], document="N")
    assert [entry.document for entry in entries] == [True, False, False]


def test_credentials_of_a_url_do_not_hide_its_request() -> None:
    entries = unite([hop("http://user:secret@a.test/x@y", status=200)], [told(1, "http://a.test/x@y")])
    assert len(entries) == 1


def test_a_connection_that_asked_for_nothing_is_no_entry() -> None:
    assert unite([], [told(1, "", "", decision="refused", code="LIMIT")]) == ()
