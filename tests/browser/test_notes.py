"""What a page did besides asking for things, read from events of any form and kept within bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.browser.notes import PageNotes
from forage.browser.request_log import ConsoleMessage, CspIssue, Dialog, Download, Speculation


def notes(*events: tuple[str, dict[str, Any]]) -> PageNotes:
    made = PageNotes()
    made.root = "ROOT"
    for method, params in events:
        made.observe(method, params)
    return made


def navigated(frame: str, loader: str, url: str) -> tuple[str, dict[str, Any]]:
    return "Page.frameNavigated", {"frame": {"id": frame, "loaderId": loader, "url": url}}


def test_where_the_root_frame_is() -> None:
    made = notes(
        navigated("ROOT", "A", "http://a.test/"),
        navigated("OTHER", "B", "http://b.test/"),
        ("Page.navigatedWithinDocument", {"frameId": "ROOT", "url": "http://a.test/app"}),
    )
    assert made.url == "http://a.test/app"


def test_a_load_counts_with_its_document() -> None:
    made = notes(
        ("Page.lifecycleEvent", {"name": "load", "frameId": "ROOT", "loaderId": "A"}),
        ("Page.lifecycleEvent", {"name": "load", "frameId": "OTHER", "loaderId": "B"}),
        ("Page.lifecycleEvent", {"name": "init", "frameId": "ROOT", "loaderId": "C"}),
    )
    assert made.loaded == {"A"}


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "chrome://version/", "chrome-extension://x/", "devtools://x", "view-source:http://a.test/"]
)
def test_a_scheme_that_no_page_may_show_is_noticed(url: str) -> None:
    assert notes(navigated("F", "A", url)).bad_scheme == url.partition(":")[0]


@pytest.mark.parametrize(
    "url", ["http://a.test/", "https://a.test/", "about:srcdoc", "data:text/html,x", "blob:http://a.test/1", "chrome-error://x/"]
)
def test_schemes_that_pages_show(url: str) -> None:
    assert notes(navigated("F", "A", url)).bad_scheme is None


def test_dialogs_windows_downloads_and_speculations() -> None:
    made = notes(
        ("Page.javascriptDialogOpening", {"type": "confirm", "message": "sure?"}),
        ("Page.windowOpen", {"url": "http://a.test/pop"}),
        ("Preload.prefetchStatusUpdated", {"prefetchUrl": "https://a.test/p", "status": "Failure"}),
        ("Preload.prerenderStatusUpdated", {"key": {"url": "http://a.test/q"}, "status": "Ready"}),
    )
    made.begin_download({"url": "http://a.test/f.bin", "suggestedFilename": "f.bin"})
    assert made.dialogs == [Dialog(kind="confirm", message="sure?")]
    assert made.windows == ["http://a.test/pop"]
    assert made.downloads == [Download(url="http://a.test/f.bin", name="f.bin")]
    assert made.speculations == [
        Speculation(kind="prefetch", url="https://a.test/p", status="Failure"),
        Speculation(kind="prerender", url="http://a.test/q", status="Ready"),
    ]


def test_violations_of_a_policy_come_from_the_browsers_own_issues() -> None:
    issue = {
        "blockedURL": "http://b.test/x.png",
        "violatedDirective": "img-src",
        "isReportOnly": True,
        "contentSecurityPolicyViolationType": "kURLViolation",
        "sourceCodeLocation": {"url": "http://a.test/"},
    }
    made = notes(
        ("Audits.issueAdded", {"issue": {"code": "ContentSecurityPolicyIssue", "details": {"contentSecurityPolicyIssueDetails": issue}}}),
        ("Audits.issueAdded", {"issue": {"code": "QuirksModeIssue", "details": {}}}),
    )
    assert made.csp == [
        CspIssue(directive="img-src", kind="kURLViolation", url="http://b.test/x.png", report_only=True, source="http://a.test/")
    ]


def test_errors_of_scripts_and_of_the_browser_are_kept_and_other_lines_are_not() -> None:
    made = notes(
        ("Log.entryAdded", {"entry": {"level": "error", "source": "network", "text": "404", "url": "http://a.test/x"}}),
        ("Runtime.consoleAPICalled", {"type": "error", "args": [{"type": "string", "value": "no"}, {"description": "Error: it"}]}),
        ("Runtime.consoleAPICalled", {"type": "log", "args": [{"type": "string", "value": "chatter"}]}),
        (
            "Runtime.exceptionThrown",
            {"exceptionDetails": {"text": "Uncaught", "exception": {"description": "TypeError: x"}, "url": "http://a.test/s"}},
        ),
    )
    assert made.console == [
        ConsoleMessage(level="error", source="network", text="404", url="http://a.test/x"),
        ConsoleMessage(level="error", source="console", text="no Error: it"),
        ConsoleMessage(level="error", source="javascript", text="TypeError: x", url="http://a.test/s"),
    ]


def test_every_list_is_bounded_and_so_is_every_text() -> None:
    made = notes(*[("Page.javascriptDialogOpening", {"type": "alert", "message": "x" * 100_000})] * 2_000)
    assert len(made.dialogs) == 500
    assert {len(dialog.message) for dialog in made.dialogs} == {1_000}


METHODS = st.sampled_from([
    "Page.frameAttached", "Page.frameNavigated", "Page.navigatedWithinDocument", "Page.lifecycleEvent", "Page.javascriptDialogOpening",
    "Page.windowOpen", "Audits.issueAdded", "Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown",
    "Preload.prefetchStatusUpdated", "Preload.prerenderStatusUpdated",
])  # fmt: skip
NAMES = st.sampled_from([
    "frame", "frameId", "url", "id", "name", "key", "issue", "details", "code", "entry", "args", "exceptionDetails", "exception", "type",
    "contentSecurityPolicyIssueDetails", "sourceCodeLocation", "value", "text",
])  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["ROOT", "load", "error", "ContentSecurityPolicyIssue"]),
    lambda inner: st.dictionaries(NAMES, inner) | st.lists(inner),
    max_leaves=8,
)


@given(st.lists(st.tuples(METHODS, st.dictionaries(NAMES, VALUES)), max_size=10))
def test_events_of_any_form_are_taken_without_harm(events: list[tuple[str, dict[str, Any]]]) -> None:
    notes(*events).begin_download(events[0][1] if events else {})
