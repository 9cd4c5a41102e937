"""The protocol's state: every call is settled once, events go to their session, and nothing that is sent can break more than it should."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.browser.cdp import Call, CdpCore, encode
from forage.browser.errors import CommandRefusedError, NoAnswerError, PageGoneError
from forage.errors import BrowserLostError


def answer(call: Call, **members: Any) -> str:
    return json.dumps({"id": call.number, **members})


def event(method: str, params: Any = None, session: str | None = None) -> str:
    return json.dumps({"method": method, "params": params or {}, **({} if session is None else {"sessionId": session})})


class Heard:
    """A handler that keeps what it gets."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any, str | None]] = []

    def __call__(self, method: str, params: Any, session: str | None) -> None:
        self.events.append((method, params, session))


def test_a_command_is_numbered_and_names_its_session() -> None:
    core = CdpCore()
    first, text = core.begin("Page.enable", None, "S")
    second, other = core.begin("Target.getTargets", {"a": "ä"})
    assert json.loads(text or "") == {"id": first.number, "method": "Page.enable", "sessionId": "S"}
    assert json.loads(other or "") == {"id": second.number, "method": "Target.getTargets", "params": {"a": "ä"}}
    assert (other or "").isascii()
    assert first.number != second.number


@given(st.integers(1), st.text(), st.dictionaries(st.text(), st.text()), st.none() | st.text())
def test_an_encoded_command_reads_back(number: int, method: str, params: dict[str, str], session: str | None) -> None:
    back = json.loads(encode(number, method, params, session))
    assert back == {
        "id": number,
        "method": method,
        **({"params": params} if params else {}),
        **({} if session is None else {"sessionId": session}),
    }


def test_answers_settle_their_calls_in_any_order() -> None:
    core = CdpCore()
    first, second = (core.begin(method)[0] for method in ("A.a", "B.b"))
    core.receive(answer(second, result={"value": 2}))
    core.receive(answer(first, result={}))
    assert (first.result, second.result) == ({}, {"value": 2})
    assert core.waiting == 0


def test_an_error_of_the_browser_names_the_command() -> None:
    core = CdpCore()
    call, _ = core.begin("A.a")
    core.receive(answer(call, error={"code": -32000, "message": "no"}))
    assert isinstance(call.error, CommandRefusedError)
    assert (call.error.method, call.error.number, call.error.said) == ("A.a", -32000, "no")


def test_a_second_answer_changes_nothing() -> None:
    core = CdpCore()
    call, _ = core.begin("A.a")
    settled: list[Call] = []
    call.on_settled = settled.append
    core.receive(answer(call, result={"value": 1}))
    core.receive(answer(call, result={"value": 2}))
    assert (call.result, settled) == ({"value": 1}, [call])


def test_a_forgotten_call_is_let_go_unless_somebody_listens_for_its_late_answer() -> None:
    core = CdpCore()
    forgotten, kept = core.begin("A.a")[0], core.begin("B.b")[0]
    late: list[Call] = []
    kept.on_settled = late.append
    core.forget(forgotten)
    core.forget(kept)
    core.receive(answer(forgotten, result={}))
    core.receive(answer(kept, result={"id": "x"}))
    assert (forgotten.settled, late, kept.result) == (False, [kept], {"id": "x"})


def test_events_go_to_the_handler_of_their_session_only() -> None:
    core = CdpCore()
    browser, page = Heard(), Heard()
    core.route(None, browser)
    core.route("S", page)
    core.receive(event("A.a", {"n": 1}))
    core.receive(event("A.a", {"n": 2}, "S"))
    core.receive(event("A.a", {"n": 3}, "unknown"))
    assert browser.events == [("A.a", {"n": 1}, None)]
    assert page.events == [("A.a", {"n": 2}, "S")]


def test_a_crashed_page_answers_nobody_any_more() -> None:
    core = CdpCore()
    heard = Heard()
    core.route("S", heard)
    before, other = core.begin("A.a", None, "S")[0], core.begin("A.a", None, "T")[0]
    core.receive(event("Inspector.targetCrashed", {}, "S"))
    after, text = core.begin("B.b", None, "S")
    for call in (before, after):
        assert isinstance(call.error, PageGoneError)
        assert call.error.crashed
    assert text is None
    assert not other.settled
    assert [method for method, _, _ in heard.events] == ["Inspector.targetCrashed"]


def test_a_detached_session_ends_its_calls_as_closed() -> None:
    core = CdpCore()
    core.route("S", Heard())
    call, _ = core.begin("A.a", None, "S")
    core.receive(event("Target.detachedFromTarget", {"sessionId": "S"}))
    assert isinstance(call.error, PageGoneError)
    assert not call.error.crashed


def test_an_unrouted_session_is_forgotten_with_its_calls() -> None:
    core = CdpCore()
    core.route("S", Heard())
    call, _ = core.begin("A.a", None, "S")
    core.unroute("S")
    assert isinstance(call.error, PageGoneError)
    assert core.begin("A.a", None, "S")[1] is not None


def test_the_end_of_the_connection_settles_everything_and_all_that_comes() -> None:
    core = CdpCore()
    calls = [core.begin("A.a")[0], core.begin("A.a", None, "S")[0]]
    core.end(BrowserLostError("gone"))
    core.end(BrowserLostError("again"))
    calls.append(core.begin("A.a")[0])
    assert [str(call.error) for call in calls] == ["gone"] * 3


def test_an_answer_above_the_limit_ends_its_call_alone() -> None:
    core = CdpCore()
    call, other = core.begin("DOM.getOuterHTML", None, "S")[0], core.begin("A.a")[0]
    core.drop_oversized(call.number, "S", 70_000_000)
    assert isinstance(call.error, NoAnswerError)
    assert not other.settled


def test_an_event_above_the_limit_is_told_to_its_session() -> None:
    core = CdpCore()
    heard = Heard()
    core.route("S", heard)
    core.drop_oversized(None, "S", 70_000_000)
    core.drop_oversized(None, "unknown", 1)
    assert heard.events == [("Forage.oversized", {"size": 70_000_000}, "S")]


@pytest.mark.parametrize("text", ["", "x", "[]", "3", '"a"', "{", "[" * 100_000])
def test_what_is_no_message_ends_the_connection(text: str) -> None:
    with pytest.raises(BrowserLostError):
        CdpCore().receive(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.dictionaries(st.sampled_from(["id", "method", "params", "sessionId", "result", "error", "x"]), JSON))
def test_any_object_is_taken_without_harm(message: dict[str, Any]) -> None:
    core = CdpCore()
    core.route(None, Heard())
    core.begin("A.a")
    core.receive(json.dumps(message))
