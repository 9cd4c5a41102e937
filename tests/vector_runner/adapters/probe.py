"""The probe fixtures (`probe/manifest.json`): each page in each program that is installed, judged by what it must produce.

A page is probed as a mirror's gate probes it. Then the log must hold what the manifest says, everything that reached a server must be in
the log, and what is denied must have reached nothing. Pages that hang are rendered instead, with a short deadline.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from ada_url import URL

from forage.browser import (
    Browser,
    PageOutcome,
    ProbeOptions,
    RequestEntry,
    RequestOutcome,
    Viewport,
    Visit,
    open_browser,
    probe_document,
    visit_page,
)
from tests.support.browsers import Kind, browser_options, installed_kinds
from tests.support.probe_site import ProbeSite, open_probe_site, tls_flag
from tests.vector_runner.model import Case, adapter, differs

PROGRAM_NAMES = {"shell": "headless_shell", "full": "chromium"}
LOOPBACK_PEERS = "--allow-loopback-in-peer-connection"
ABORT_HOSTS = ("archive.org",)
AT_ONCE = 5  # pages in each program
SHORT_DEADLINE, LONG_DEADLINE = 8.0, 60.0
BLOCKED_BEFORE = frozenset([RequestOutcome.BLOCKED, RequestOutcome.NAVIGATION])
NEVER_REACHED = frozenset([RequestOutcome.REFUSED, RequestOutcome.ABORTED, RequestOutcome.FAILED, *BLOCKED_BEFORE, RequestOutcome.OPEN])
TYPES = {"webSocketCreated": "WebSocket"}


class Bench:
    """The browsers of one run, one for each program and set of flags; each is started when the first page wants it."""

    def __init__(self, pages: Path, nursery: trio.Nursery) -> None:
        self.pages = pages
        self._nursery = nursery
        self._lock = trio.Lock()
        self._browsers: dict[tuple[Kind, tuple[str, ...], bool], Browser] = {}
        self._room = {kind: trio.CapacityLimiter(AT_ONCE) for kind in PROGRAM_NAMES}

    @asynccontextmanager
    async def browser(self, kind: Kind, flags: tuple[str, ...], *, apart: bool) -> AsyncIterator[Browser]:
        """A browser for one page. ``apart`` from those of well-behaved pages."""
        key = kind, flags, apart
        async with self._room[kind]:
            async with self._lock:
                if key not in self._browsers:
                    self._browsers[key] = await self._nursery.start(self._run, kind, flags)
            yield self._browsers[key]

    async def _run(self, kind: Kind, flags: tuple[str, ...], *, task_status: trio.TaskStatus[Browser]) -> None:
        options = browser_options(kind, extra_flags=(tls_flag(), *flags), start_seconds=60.0, call_seconds=60.0, close_seconds=20.0)
        async with open_browser(options) as browser:
            task_status.started(browser)
            await trio.sleep_forever()


@asynccontextmanager
async def open_bench(manifest: Path) -> AsyncIterator[Bench]:
    async with trio.open_nursery() as nursery:
        yield Bench(manifest.parent / "pages", nursery)
        nursery.cancel_scope.cancel()


@adapter("probe/manifest.json", together=2 * AT_ONCE, session=open_bench)
async def check_page(case: Case, bench: Bench) -> str | None:
    page = case.plain("file"), case.whole()
    lines: dict[str, str | None] = {}

    async def one(kind: Kind) -> None:
        line = await _check(page[1], bench, kind)
        lines[kind] = None if line is None else f"{kind}: {line}"

    kinds = installed_kinds()
    if not kinds:
        return "no browser is installed"
    async with trio.open_nursery() as nursery:
        for kind in kinds:
            nursery.start_soon(one, kind)
    return next((line for kind in kinds if (line := lines[kind]) is not None), None)


async def _check(page: dict[str, Any], bench: Bench, kind: Kind) -> str | None:
    text = "".join((bench.pages.parent / name).read_text("utf-8") for name in (page["file"], *page.get("aux", ())))
    flags = (LOOPBACK_PEERS,) if "{stun}" in text else ()
    flags += tuple(dict.fromkeys(r["needs"] for r in page["requests"] if str(r.get("needs", "")).startswith("--")))
    async with (
        bench.browser(kind, flags, apart=page.get("hang", False)) as browser,
        open_probe_site(bench.pages, page, devtools_port=browser.devtools_port or 1) as site,
    ):
        seen = await _load(page, browser, site)
        verdict = _Verdict(page, site, seen, PROGRAM_NAMES[kind])
        return next((line for line in verdict.lines() if line is not None), None)


async def _load(page: dict[str, Any], browser: Browser, site: ProbeSite) -> Visit:
    restless = page.get("hang") or any(request.get("never_idle") for request in page["requests"])
    options = ProbeOptions(
        egress=site.policy,
        resolver=site.resolver,
        dialer=site.dialer,
        abort_hosts=ABORT_HOSTS,
        answer_seconds=2.0 if page.get("hang") else 15.0,
        deadline=SHORT_DEADLINE if restless else LONG_DEADLINE,
    )
    if page.get("hang"):
        program_fetches_icons = browser.facts.kind == "full"
        opened = attrs.evolve(options.page(Viewport(), program_fetches_icons=program_fetches_icons), read_html=True)
        return await visit_page(browser, site.url, opened)
    return (await probe_document(browser, site.url, options)).visits[0]


class _Verdict:
    """One page of the manifest against what one program did."""

    def __init__(self, page: dict[str, Any], site: ProbeSite, seen: Visit, program: str) -> None:
        self._page = page
        self._site = site
        self._seen = seen
        self._program = program
        self._arrived = site.arrived()
        self._checks: dict[str, Callable[[dict[str, Any]], str | None]] = {
            "seen": self._must_be_seen,
            "denied": self._must_be_denied,
            "abort": self._must_be_aborted,
            "browser-blocked": self._must_be_blocked,
            "optional": self._may_be_seen,
        }

    def lines(self) -> Iterator[str | None]:
        yield self._unlogged()
        for request in self._page["requests"]:
            check = self._checks.get(request["must"])
            yield f"unknown must: {request['must']}" if check is None else check(request)
        for url in self._page.get("never", ()):
            yield self._never(self._site.fill(url))
        yield self._expected(self._page.get("expect", {}))
        for name in ("internal", "stun", "udp"):
            sink = getattr(self._site, name)
            yield None if sink.empty else f"{name}: {sink.datagrams} datagrams and {sink.connections} connections arrived"
            yield None if sink.proves_itself() else f"the sink {name} sees nothing"
        known = {"id", "file", "aux", "requests", "routes", "headers", "never", "expect", "hang", "note", "_file"}
        yield None if set(self._page) <= known else f"members that nothing checks: {sorted(set(self._page) - known)}"

    def _unlogged(self) -> str | None:
        logged = [(entry.method, entry.url) for entry in self._seen.requests]
        for method, url in self._arrived:
            if (method, url) in logged:
                logged.remove((method, url))
            elif ("CONNECT", URL(url).host) not in logged:
                return f"{method} {url} reached a server and is not in the log"
        return None

    def _entries(self, request: dict[str, Any]) -> list[RequestEntry]:
        url = self._site.fill(request["url"])
        if request.get("wireonly"):
            place = url.partition("//")[2] or url.partition(":")[2]
            return [entry for entry in self._seen.requests if entry.url == place or _place(entry.url) == place]
        return [entry for entry in self._seen.requests if entry.url == url and entry.method in (request["method"], "CONNECT")]

    def _is_shown(self, request: dict[str, Any]) -> bool:
        """Whether this program was measured to show the request at all."""
        measured = request.get("measured", {}).get(self._program)
        return measured is None or measured["cdp"] != "none" or measured["guard"] is True

    def _must_be_seen(self, request: dict[str, Any]) -> str | None:
        entries = self._entries(request)
        url = self._site.fill(request["url"])
        if not entries:
            return f"{request['channel']}: {request['method']} {url} is not in the log" if self._is_shown(request) else None
        if request.get("repeats") and len(entries) < 2:
            return f"{request['channel']}: {url} was seen once only"
        if request.get("never_idle") and self._seen.outcome is not PageOutcome.NOT_IDLE:
            return differs("outcome", self._seen.outcome.value, "not-idle")
        if request.get("teardown") and not any(entry.at_guard for entry in entries):
            return f"{request['channel']}: {url} did not come to the guard"
        return self._types(request, entries)

    def _types(self, request: dict[str, Any], entries: list[RequestEntry]) -> str | None:
        wanted = {TYPES.get(name, name) for name in request["type"]}
        found = {entry.resource_type for entry in entries if entry.resource_type is not None and entry.request_id is not None}
        if wanted and found and not wanted & found:
            return differs(f"{request['channel']}: type", sorted(found), sorted(wanted))
        return None

    def _must_be_denied(self, request: dict[str, Any]) -> str | None:
        entries = self._entries(request)
        url = self._site.fill(request["url"])
        if not entries and self._is_shown(request):
            return f"{request['channel']}: {url} is not in the log"
        bad = next((entry for entry in entries if entry.outcome not in NEVER_REACHED or entry.left), None)
        return self._not_arrived(request, url) if bad is None else f"{request['channel']}: {url} was {bad.outcome}"

    def _must_be_aborted(self, request: dict[str, Any]) -> str | None:
        url = self._site.fill(request["url"])
        outcomes = {entry.outcome for entry in self._entries(request)}
        if outcomes != {RequestOutcome.ABORTED}:
            return differs(f"{request['channel']}: {url}", sorted(outcomes), ["aborted"])
        return self._not_arrived(request, url)

    def _must_be_blocked(self, request: dict[str, Any]) -> str | None:
        url = self._site.fill(request["url"])
        outcomes = {entry.outcome for entry in self._entries(request)}
        if outcomes != {RequestOutcome.BLOCKED}:
            return differs(f"{request['channel']}: {url}", sorted(outcomes), ["blocked"])
        return self._not_arrived(request, url)

    def _may_be_seen(self, request: dict[str, Any]) -> str | None:
        if not self._entries(request):  # what arrived unlogged was looked for before
            print(f"  optional, not seen: {self._page['id']} {request['channel']} ({self._program})", file=sys.stderr)
        return None

    def _not_arrived(self, request: dict[str, Any], url: str) -> str | None:
        return f"{request['channel']}: {url} reached its target" if any(url == there for _, there in self._arrived) else None

    def _never(self, url: str) -> str | None:
        if any(url == there for _, there in self._arrived):
            return f"{url} was requested"
        made = next((entry for entry in self._seen.requests if entry.url == url and entry.outcome not in BLOCKED_BEFORE), None)
        return None if made is None else f"{url} was requested ({made.outcome})"

    def _expected(self, expect: dict[str, Any]) -> str | None:
        seen = self._seen
        for name, wanted in expect.items():
            if name == "outcome":
                if not _is_outcome(seen, wanted):
                    return differs("outcome", seen.outcome.value, wanted)
            elif name == "dialogs":
                line = differs("dialogs", [dialog.kind for dialog in seen.dialogs], wanted)
                if line is not None:
                    return line
            elif name == "downloads":
                urls = [self._site.fill(url) for url in wanted]
                if [download.url for download in seen.downloads] != urls:
                    return differs("downloads", [download.url for download in seen.downloads], urls)
            elif name == "no_content_from":
                shown = [e.url for e in seen.requests if e.url.startswith(tuple(wanted)) and e.outcome is RequestOutcome.ANSWERED]
                if shown or seen.outcome is PageOutcome.SCHEME:
                    return f"content of {shown or seen.error}"
            else:
                return f"an expectation that nothing checks: {name}"
        hangs = self._page.get("hang")
        return (
            None
            if hangs or "outcome" in expect or seen.outcome in (PageOutcome.OK, PageOutcome.NOT_IDLE)
            else f"{seen.outcome}: {seen.error}"
        )


def _place(url: str) -> str:
    """Host and port of a URL, empty for what is none."""
    return URL(url).host if URL.can_parse(url) else ""


def _is_outcome(seen: Visit, wanted: str) -> bool:
    """The manifest's words: a timeout is a page that did not answer in time, whether or not it did once its script was ended."""
    late = seen.stopped or seen.outcome in (PageOutcome.HUNG, PageOutcome.NOT_IDLE)
    gone = seen.outcome in (PageOutcome.CRASHED, PageOutcome.BROWSER_LOST)
    return {"timeout": late, "crash-or-timeout": late or gone}.get(wanted, seen.outcome.value == wanted)
