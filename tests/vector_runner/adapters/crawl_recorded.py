"""Recorded crawls of the original (`snapshots/crawl.json`): through `crawl_stream`, over virtual hosts in virtual time.

Rows, counters, requests in order and waits are compared. A warning of the original is an event here: of an acquisition that failed the
row with its kind, of a URL beyond ``maxPages`` one skipped row, of a sitemap the code. Kinds, codes, counts and order are compared, not
words.

Rows that the original did not have (links out of scope, too deep, seen before) have no warning there and are left out of that comparison.

A source reference is compared whole, built anew from the crawl's own snapshot at the recorded instant; of a rendered page the digests are
left out, because the recording does not say what its renderer gave.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import attrs
import trio

from forage.crawler import (
    CrawlEvent,
    CrawlManifest,
    CrawlPolicy,
    CrawlWarning,
    Page,
    PageFailed,
    Seed,
    SkipReason,
    UrlSkipped,
    crawl_stream,
)
from forage.egress import EgressPolicy, JudgedUrl
from forage.errors import InvalidPolicyError
from forage.fetch import RenderedPage
from forage.snapshots import MemorySnapshotStore, build_source_ref, parse_source_ref
from tests.support.virtual_hosts import Asked, Trouble, VirtualAnswer, VirtualHosts, VirtualResolver
from tests.support.virtual_time import in_virtual_time
from tests.vector_runner.adapters.fetch import first
from tests.vector_runner.model import Case, adapter, differs

RECORDED_AGENT = "kontourai-forage-bot/0.x (+https://github.com/kontourai/forage; contact: set-a-real-contact@example.com)"
BEGIN = datetime(2026, 9, 1, tzinfo=UTC)

_FAILED = re.compile(r"\[depth (\d+)\] (\S+): ([a-z-]+): ")
_LEFT = re.compile(r"maxPages cap \(\d+\) reached; (\d+) further URL\(s\) discovered but not fetched")
_CODES = (
    (re.compile(r"off-host .*sitemap"), "sitemap-off-scope"),
    (re.compile(r"sitemap robots\.txt: "), "sitemap-fetch-failed"),
    (re.compile(r"sitemap \S+ malformed or unrecognized XML"), "sitemap-not-xml"),
    (re.compile(r"sitemap \S+ could not gunzip"), "sitemap-gzip"),
    (re.compile(r"sitemap \S+ undefined"), "sitemap-empty"),
    (re.compile(r"sitemap \S+ [a-z-]+: "), "sitemap-fetch-failed"),
    (re.compile(r"sitemap URL cap "), "sitemap-url-limit"),
    (re.compile(r"sitemap document cap "), "sitemap-document-limit"),
)
_ATTEMPTED = frozenset(
    {
        SkipReason.ROBOTS_DENIED,
        SkipReason.ROBOTS_UNREACHABLE,
        SkipReason.CRAWL_DELAY_TOO_LONG,
        SkipReason.RETRY_AFTER_TOO_LONG,
        SkipReason.HOST_PAUSED,
    }
)
"""Skips that the original counts as failures."""


@attrs.frozen(kw_only=True)
class _Rendered:
    html: str = '<html><body><a href="/from-render">x</a></body></html>'
    warnings: tuple[str, ...] = ()
    left_for: tuple[str, ...] = ()


class _Renderer:
    def __init__(self, log: list[Any]) -> None:
        self._log = log

    async def render(self, url: str) -> RenderedPage:
        await trio.lowlevel.checkpoint()
        self._log.append(f"render {url}")
        return _Rendered()


class _Site:
    """Answers as the recording's servers did; unlisted URLs are 404. ``log`` is everything asked, in order."""

    def __init__(self, site: Mapping[str, Any]) -> None:
        self._site = site
        self._counts: dict[str, int] = {}
        self.log: list[Any] = []

    def answer(self, target: JudgedUrl, asked: Asked) -> VirtualAnswer | Trouble:
        self.log.append(asked)
        script = self._site.get(target.url, {"status": 404})
        script = script if isinstance(script, list) else [script]
        count = self._counts[target.url] = self._counts.get(target.url, 0) + 1
        response = script[min(count, len(script)) - 1]
        if "egress" in response:
            return Trouble(kind=response["egress"])
        if "throw" in response:
            return Trouble(kind="reset")
        if "hang" in response:
            return Trouble(kind="timeout")
        body = base64.b64decode(response["bodyBase64"]) if "bodyBase64" in response else response.get("bodyText", "").encode()
        return VirtualAnswer(status=response["status"], headers=tuple(response.get("headers", {}).items()), body=body)


class _Clock:
    """One second for each call, as the recording's."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self) -> datetime:
        self._calls += 1
        return BEGIN + timedelta(seconds=self._calls)


_POLICY = {
    "maxPages": "max_pages",
    "maxDepth": "max_depth",
    "sameHost": "same_host",
    "discovery": "discovery",
    "mode": "mode",
    "render": "render",
    "robots": "obey_robots",
}
_POLITENESS = {"concurrency": "concurrency"}
_SEED = {"url": "url", "id": "id", "headers": "headers", "userAgent": "user_agent", "maxResponseBytes": "max_response_bytes"}
_EGRESS = {"guarded": "guarded", "testOnlyAllowedLoopbackOrigins": "test_loopback_origins"}


def _named(members: Mapping[str, Any], names: Mapping[str, str], *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    unknown = set(members) - set(names) - set(but)
    if unknown:
        raise ValueError(f"members that the adapter does not know: {sorted(unknown)}")
    return {names[name]: value for name, value in members.items() if name in names}


def _whole(value: Any) -> Any:
    """The original floors limits; here they are whole numbers by type."""
    return int(value) if isinstance(value, float) and value >= 1 else value


def _policy(members: Mapping[str, Any]) -> CrawlPolicy:
    wanted = _named(members, _POLICY, but=("politeness", "egress", "store", "shouldFollow"))
    politeness: dict[str, Any] = members.get("politeness", {})
    wanted |= _named(politeness, _POLITENESS, but=("delayMs",))
    if "delayMs" in politeness:
        wanted["delay"] = politeness["delayMs"] / 1000
    if members.get("shouldFollow"):
        wanted["should_follow"] = lambda link, context: True
    if "egress" in members:
        wanted["egress"] = EgressPolicy(**_named(members["egress"], _EGRESS))
    wanted = {name: _whole(value) if name in ("max_pages", "max_depth", "concurrency") else value for name, value in wanted.items()}
    return CrawlPolicy(user_agent=RECORDED_AGENT, **wanted)


def _seed(members: Mapping[str, Any]) -> Seed:
    wanted = _named(members, _SEED, but=("render",))
    if "render" in members:
        wanted["render"] = {True: "always", False: "never"}.get(members["render"], members["render"])
    return Seed(**{"url": None, **wanted})


@attrs.frozen(kw_only=True)
class _Run:
    manifest: CrawlManifest
    events: list[CrawlEvent]
    log: list[Any]


async def _run(seed: Mapping[str, Any], policies: list[Mapping[str, Any]], site: Mapping[str, Any]) -> _Run:
    """One crawl for each policy, all with one store; the last one is told."""
    answers = _Site(site)
    store, clock = MemorySnapshotStore(), _Clock()
    async with trio.open_nursery() as nursery:
        for members in policies:
            answers.log.clear()
            seams: dict[str, Any] = {"wire": VirtualHosts(nursery, answers.answer), "resolver": VirtualResolver()}
            seams["store"] = store if "store" in members else None
            async with crawl_stream(_seed(seed), _policy(members), renderer=_Renderer(answers.log), utc_now=clock, **seams) as stream:
                events = [event async for event in stream]
        nursery.cancel_scope.cancel()
    manifest = stream.manifest
    assert manifest is not None
    return _Run(manifest=manifest, events=events, log=list(answers.log))


@adapter("snapshots/crawl.json")
async def check_recorded_crawl(case: Case) -> str | None:
    expect = case.plain("expect")
    expect = expect.get("both") or expect["newest"]
    policies = [case.plain("policy")]
    if "secondRunPolicy" in case:
        policies.append(policies[0] | case.plain("secondRunPolicy"))
    seed, site = case.plain("seed"), case.plain("site")
    refused = False
    try:
        run = await in_virtual_time(lambda: _run(seed, policies, site))
    except* InvalidPolicyError:
        refused = True
    if refused:
        return differs("error", {"name": "InvalidCrawlConfigError"}, {"name": expect.get("error", {}).get("name")})
    if "error" in expect:
        return f"no error, expected {expect['error']}"
    return first(_differences(expect, run))


def _differences(expect: Mapping[str, Any], run: _Run) -> Iterator[str | None]:
    wanted = dict(expect["manifest"])
    manifest = run.manifest
    pages = wanted.pop("pages")
    yield differs("requests", [entry if isinstance(entry, str) else entry.url for entry in run.log], expect["requests"])
    yield differs("pages", [page.url for page in manifest.pages], [page["url"] for page in pages])
    for page, recorded in zip(manifest.pages, pages, strict=True):
        yield from _page_differences(page, dict(recorded))
    yield differs("seed", manifest.seed, wanted.pop("seed"))
    yield differs("truncated", manifest.truncated, wanted.pop("truncated"))
    counters = wanted.pop("sitemap", {"documentsRead": 0, "urlsDiscovered": 0})
    yield differs("urlsDiscovered", manifest.sitemaps.urls_discovered, counters["urlsDiscovered"])
    yield differs("documentsRead", manifest.sitemaps.documents_read, counters["documentsRead"])
    yield differs("warnings", list(_said(run.events)), list(_expected(wanted.pop("warnings"))))
    yield differs("sleeps", _waits(run.log), expect["sleeps"])
    counts = manifest.counts
    yield differs("URLs seen", counts.seen, len({*_urls(manifest)}))
    if wanted:
        yield f"members that nothing checks: {sorted(wanted)}"


def _urls(manifest: CrawlManifest) -> Iterator[str]:
    yield from (page.requested_url for page in manifest.pages)
    yield from (failure.url for failure in manifest.failures)
    yield from (skip.url for skip in manifest.skips)


def _page_differences(page: Page, recorded: dict[str, Any]) -> Iterator[str | None]:
    reference = recorded.pop("sourceRef")
    warnings = recorded.pop("warnings")
    got = {
        "url": page.url,
        "status": page.status,
        "depth": page.depth,
        "rendered": page.rendered,
        "sourceId": page.source_id,
        **({"notModified": True} if page.not_modified else {}),
    }
    yield differs(f"page {page.url}", got, recorded)
    yield differs(f"warnings of {page.url}", len(page.warnings), len(warnings))
    yield _reference_differs(page, reference)


def _reference_differs(page: Page, recorded: str) -> str | None:
    wanted = parse_source_ref(recorded)
    assert wanted is not None
    assert page.snapshot is not None
    ours = attrs.evolve(page.snapshot, fetched_at=wanted.fetched_at)
    if page.rendered:
        got = parse_source_ref(build_source_ref(ours))
        assert got is not None
        return differs(f"reference of {page.url}", (got.source_id, got.url), (wanted.source_id, wanted.url))
    return differs(f"reference of {page.url}", build_source_ref(ours), recorded)


def _said(events: list[CrawlEvent]) -> Iterator[tuple[object, ...]]:
    """What the original would have warned of, in the order of the events."""
    left = 0
    for event in events:
        match event:
            case CrawlWarning(message=message):
                yield "warning", message.partition(":")[0]
            case PageFailed(failure=failure):
                yield "failed", failure.depth, failure.url, failure.code
            case UrlSkipped(skip=skip) if skip.reason in _ATTEMPTED:
                yield "failed", skip.depth, skip.url, skip.reason.value
            case UrlSkipped(skip=skip) if skip.reason is SkipReason.MAX_PAGES:
                left += 1
    if left:
        yield "left", left


def _expected(warnings: list[str]) -> Iterator[tuple[object, ...]]:
    for text in warnings:
        if found := _FAILED.match(text):
            yield "failed", int(found[1]), found[2], found[3]
        elif found := _LEFT.match(text):
            yield "left", int(found[1])
        else:
            yield "warning", next((code for pattern, code in _CODES if pattern.match(text)), text)


def _waits(log: list[Any]) -> list[int]:
    """Pauses between requests, in milliseconds."""
    starts = [entry.at for entry in log if isinstance(entry, Asked)]
    return [wait for a, b in pairwise(starts) if (wait := round((b - a) * 1000))]
