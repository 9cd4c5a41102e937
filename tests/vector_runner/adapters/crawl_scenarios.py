"""Whole crawls of virtual hosts: real TLS servers on loopback stand in for them, behind the guard's resolver and dialer seams."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import trio

from forage.crawler import CrawlManifest, CrawlPolicy, Page, PageCaptured, crawl, crawl_many, crawl_stream
from forage.egress import DnsAnswers, EgressPolicy
from forage.errors import BrowserError
from forage.fetch import Fetcher, RenderedPage
from forage.snapshots import FilesystemSnapshotStore, resolve_source_ref
from tests.support.authority import server_context, trusted_by
from tests.support.dialer import MappingDialer
from tests.support.raw_server import Answer, RawRequest, RawServer, Repeat, open_raw_server
from tests.vector_runner.model import Case, adapter, differs

PUBLIC = "192.0.3.{}"
"""Addresses that the guard lets pass; the dialer leads them to loopback."""

MS_TOLERANCE = 5  # `ends_within_ms` and the like guard against hangs


@attrs.frozen(kw_only=True)
class Rendered:
    html: str
    warnings: tuple[str, ...] = ()
    left_for: tuple[str, ...] = ()


class ScriptedBrowser:
    """A renderer that does what the case's ``fake_browser`` says, and else shows the page and where it tried to go."""

    def __init__(self, script: str | None, pages: Mapping[str, str]) -> None:
        self._script = script
        self._pages = pages
        self._calls = 0

    async def render(self, url: str) -> RenderedPage:
        await trio.lowlevel.checkpoint()
        self._calls += 1
        if self._script == "close-midway" or (self._script == "crash-on-first" and self._calls == 1):
            raise BrowserError("the browser is gone")
        html = self._pages.get(url, "")
        start = html.find('location.href="')
        left_for = (html[start + 15 :].partition('"')[0],) if start != -1 else ()
        return Rendered(html=html, left_for=left_for)


@attrs.define
class Site:
    """What the hosts of one case answer, and what they were asked."""

    hosts: Mapping[str, Mapping[str, Any]]
    server: RawServer | None = None
    counts: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    finished: dict[str, float] = attrs.field(factory=dict)

    def respond(self, request: RawRequest) -> Answer:
        host, path = request.header("host") or "", request.target
        routes = self.hosts[host]
        key = path if path in routes else next((k for k in routes if k.endswith("*") and path.startswith(k[:-1])), None)
        if key is None:
            return _page({"status": 404})
        script = routes[key]
        if isinstance(script, list):
            script = script[min(self.counts[host, path], len(script) - 1)]
        self.counts[host, path] += 1
        if "generator" in script:
            body = _GENERATORS[script["generator"]](path)
            return _page({"status": 200, "headers": {"content-type": "text/html"}, "body": body})
        if "raw" in script:  # one body byte every 200 ms for an hour
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
            steps: list[bytes | float] = [head]
            for _ in range(200):
                steps += [b"x", 0.2]
            return Answer(steps=tuple(steps))
        return _page(script)

    @property
    def asked(self) -> list[tuple[str, str]]:
        assert self.server is not None
        return [(r.header("host") or "", r.target) for r in self.server.requests if r.target != "/robots.txt"]


def _page(script: Mapping[str, Any]) -> Answer:
    body = str(script.get("body", "")).encode()
    fields = "".join(f"{name}: {value}\r\n" for name, value in script.get("headers", {}).items())
    head = f"HTTP/1.1 {script.get('status', 200)} X\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode("latin-1")
    steps: tuple[bytes | float | Repeat | Callable[[RawServer], bytes], ...] = (head + body,)
    return Answer(steps=(script["delay_ms"] / 1000, *steps) if "delay_ms" in script else steps, end="keep")


def _month(path: str) -> str:
    fields = dict(pair.split("=") for pair in path.partition("?")[2].split("&"))
    year, month = int(fields["y"]), int(fields["m"])
    later = (year + month // 12, month % 12 + 1)
    return f'<a href="/cal?y={later[0]}&m={later[1]}">next</a><a href="/about">about</a>'


def _large_page(path: str) -> str:
    """A tree of 20 MB: nested a little, wide for the most part."""
    return "<!doctype html><title>t</title>" + "<div><p>some text of the page</p></div>" * (20_000_000 // 39)


def _many_links(path: str) -> str:
    return "<!doctype html><title>t</title>" + "".join(f'<a href="/{n}">x</a>' for n in range(200_000))


_GENERATORS = {"calendar_months": _month, "dom_20mb": _large_page, "links_200k": _many_links}


@attrs.frozen
class Resolver:
    addresses: Mapping[str, Sequence[str]]

    async def resolve(self, host: str) -> DnsAnswers:
        await trio.lowlevel.checkpoint()
        return DnsAnswers(addresses=tuple(self.addresses.get(host, ())))


@attrs.frozen(kw_only=True)
class Bench:
    """One case set up: its site, the seams that lead to it, and the policy that its options ask for."""

    site: Site
    seeds: tuple[str, ...]
    resolver: Resolver
    dialer: MappingDialer
    policy: CrawlPolicy
    browser: ScriptedBrowser
    folder: Path
    ca: str

    async def run(self, **more: Any) -> list[CrawlManifest]:
        seams: dict[str, Any] = {"resolver": self.resolver, "dialer": self.dialer, "renderer": self.browser, **more}
        if len(self.seeds) == 1:
            return [await crawl(self.seeds[0], self.policy, **seams)]
        async with crawl_many(self.seeds, self.policy, **seams) as crawls:
            return [manifest async for manifest in crawls]


@asynccontextmanager
async def open_bench(case: Case) -> AsyncIterator[Bench]:
    hosts: dict[str, Any] = case.plain("hosts")
    options: dict[str, Any] = case.plain("options")
    site = Site(hosts)
    names = sorted({host.partition(":")[0] for host in hosts})
    addresses = {name: [PUBLIC.format(10 + n)] for n, name in enumerate(names)} | dict(options.get("dns", {}))
    pages = {f"https://{host}{path}": r["body"] for host, routes in hosts.items() for path, r in routes.items() if "body" in r}
    with tempfile.TemporaryDirectory() as folder:
        ca = trusted_by(Path(folder))
        async with open_raw_server(site.respond, tls=server_context(*names)) as server:
            site.server = server
            every = {address for found in addresses.values() for address in found}
            yield Bench(
                site=site,
                seeds=tuple(case.plain("seeds")),
                resolver=Resolver(addresses),
                dialer=MappingDialer(dict.fromkeys(every, server.place)),
                policy=_policy(options, ca),
                browser=ScriptedBrowser(options.get("fake_browser"), pages),
                folder=Path(folder),
                ca=ca,
            )


_KNOWN_OPTIONS = frozenset(
    {
        *("total_ms", "concurrency", "render", "group_by", "max_depth", "max_pages", "cancel_after_ms", "kill_during_put"),
        *("render_timeout_ms", "delay_ms", "fake_browser", "max_retry_wait_s", "retries", "dns", "max_crawl_delay_s", "state"),
        "soft_404_probe",
    }
)


def _policy(options: Mapping[str, Any], ca: str) -> CrawlPolicy:
    unknown = set(options) - _KNOWN_OPTIONS
    if unknown:
        raise ValueError(f"options that the adapter does not know: {sorted(unknown)}")
    wanted: dict[str, Any] = {
        "delay": options.get("delay_ms", 0) / 1000,
        "max_pages": options.get("max_pages", 100),
        "max_depth": options.get("max_depth", 10),
        "concurrency": options.get("concurrency", 4),
        "retries": options.get("retries", 2),
        "render": options.get("render", "never"),
        "group_by": options.get("group_by", "host"),
        "soft_404_probe": options.get("soft_404_probe", False),
        "max_crawl_delay": options.get("max_crawl_delay_s", 60),
        "max_retry_wait": options.get("max_retry_wait_s", 120),
        "attempt_seconds": options.get("total_ms", 15_000) / 1000,
        # The addresses of the cases are documentation addresses, which the guard refuses by default.
        "egress": EgressPolicy(ca_file=Path(ca), allow_networks=("198.51.100.0/24",)),
    }
    return CrawlPolicy(**wanted)


@adapter("crawl/fetch/crawl_scenarios.json", together=4)
async def check_scenario(case: Case) -> str | None:
    expect = case["expect"]
    async with open_bench(case) as bench:
        if "after_cancel" in expect:
            return await _after_cancel(bench, expect["after_cancel"], case.plain("options"))
        if "after_resume" in expect:
            return await _after_resume(bench, expect["after_resume"])
        if "first_result_within_ms" in expect:
            return await _first_result(bench, expect["first_result_within_ms"])
        began = trio.current_time()
        manifests = await bench.run()
        seconds = trio.current_time() - began
        return next((line for check in _CHECKS if (line := check(bench, manifests, expect, seconds)) is not None), None)


def _absolute(bench: Bench, text: str) -> str:
    """Paths of a case are those of its first host."""
    return text if text.startswith("http") else f"https://{next(iter(bench.site.hosts))}{text}"


def _requests(bench: Bench, manifests: list[CrawlManifest], expect: Case, seconds: float) -> str | None:
    asked = {f"https://{host}{path}" for host, path in bench.site.asked}
    answered = sorted(asked - set(expect.get("failed", ())))
    if "fetched" in expect and (line := differs("fetched", answered, sorted(_absolute(bench, text) for text in expect["fetched"]))):
        return line
    if not asked.issuperset(_absolute(bench, text) for text in expect.get("fetched_includes", ())):
        return f"fetched: {sorted(asked)} lacks some of {expect['fetched_includes']}"
    if "fetched_count" in expect and (line := differs("fetched_count", len(bench.site.asked), expect["fetched_count"])):
        return line
    if "fetched_max" in expect and len(bench.site.asked) > expect["fetched_max"]:
        return f"fetched_max: {len(bench.site.asked)} requests"
    if "requests_max" in expect and len(bench.site.asked) > expect["requests_max"]:
        return f"requests_max: {len(bench.site.asked)} requests"
    if expect.get("other_pages_still_fetched") and _absolute(bench, "/about") not in asked:
        return "other pages starve"
    for text in expect.get("never_requested", ()):
        if _absolute(bench, text) in asked:
            return f"never_requested: {text} was"
    return None


def _per_path(bench: Bench, manifests: list[CrawlManifest], expect: Case, seconds: float) -> str | None:
    assert bench.site.server is not None
    counts = Counter(r.target for r in bench.site.server.requests)
    for path, bound in expect.plain("requests_per_path", {}).items():
        if "exact" in bound and counts[path] != bound["exact"]:
            return f"requests_per_path: {path} {counts[path]} times, expected {bound['exact']}"
        if "max" in bound and counts[path] > bound["max"]:
            return f"requests_per_path: {path} {counts[path]} times, at most {bound['max']}"
    for name in expect.get("no_request_header", ()):
        if any(r.header(name) is not None for r in bench.site.server.requests):
            return f"no_request_header: {name} was sent"
    return None


def _timing(bench: Bench, manifests: list[CrawlManifest], expect: Case, seconds: float) -> str | None:
    assert bench.site.server is not None
    starts = sorted(r.at for r in bench.site.server.requests)
    gap = expect.get("min_gap_ms_per_address")
    if gap is not None and any((b - a) * 1000 < gap for a, b in pairwise(starts)):
        return f"min_gap_ms_per_address: {[round((b - a) * 1000) for a, b in pairwise(starts)]}"
    if "max_parallel_per_address" in expect and expect["max_parallel_per_address"] != 1:
        return "max_parallel_per_address: the adapter checks 1 only, by the gaps"
    if "ends_within_ms" in expect and seconds * 1000 > expect["ends_within_ms"] * MS_TOLERANCE:
        return f"ends_within_ms: took {seconds * 1000:.0f}"
    return None


def _rows(bench: Bench, manifests: list[CrawlManifest], expect: Case, seconds: float) -> str | None:
    skips = {s.url: s.reason.value for m in manifests for s in m.skips}
    failures = {f.url: f.code for m in manifests for f in m.failures}
    for url, reason in expect.plain("skipped", {}).items():
        if skips.get(url) != reason:
            return f"skipped: {url} is {skips.get(url) or failures.get(url)}, expected {reason}"
    for url, kind in expect.plain("errors", {}).items():
        if failures.get(url) != kind:
            return f"errors: {url} is {failures.get(url) or skips.get(url)}, expected {kind}"
    if "failed" in expect and (line := differs("failed", sorted(failures), sorted(expect["failed"]))):
        return line
    if "truncated" in expect and (line := differs("truncated", any(m.truncated for m in manifests), expect["truncated"])):
        return line
    if "truncated_reason" in expect and all(expect["truncated_reason"] not in m.budgets_hit for m in manifests):
        return f"truncated_reason: {[m.budgets_hit for m in manifests]}"
    said = [*(w for m in manifests for w in m.warnings), *(w for m in manifests for p in m.pages for w in p.warnings)]
    for code in expect.get("warnings_contain", ()):
        if not any(code in warning for warning in said):
            return f"warnings_contain: {code} is not in {said}"
    return None


def _pages(bench: Bench, manifests: list[CrawlManifest], expect: Case, seconds: float) -> str | None:
    pages: dict[str, Page] = {p.requested_url.partition("//")[2].partition("/")[2]: p for m in manifests for p in m.pages}
    for path, depth in expect.plain("depth", {}).items():
        if line := differs(f"depth of {path}", pages[path[1:]].depth, depth):
            return line
    for path, flags in expect.plain("page_flags", {}).items():
        if line := differs(f"flags of {path}", pages[path[1:]].soft_404, "soft-404" in flags):
            return line
    for path, flags in expect.plain("page_flags_absent", {}).items():
        if line := differs(f"flags of {path}", pages[path[1:]].soft_404, "soft-404" not in flags):
            return line
    for group in expect.get("same_body_hash", ()):
        if len({pages[path[1:]].body_hash for path in group}) != 1:
            return f"same_body_hash: {group} differ"
    if expect.get("distinct_source_refs") and len({p.source_ref for p in pages.values()}) != len(pages):
        return "distinct_source_refs: two pages share a reference"
    return None


_CHECKS = (_requests, _per_path, _timing, _rows, _pages)


async def _after_cancel(bench: Bench, expect: Case, options: Mapping[str, Any]) -> str | None:
    origin = bench.seeds[0].rstrip("/")
    count = options["concurrency"]
    async with Fetcher(
        egress=bench.policy.egress, resolver=bench.resolver, dialer=bench.dialer, delay=0.0, per_host=count, concurrency=count
    ) as fetcher:
        with trio.move_on_after(options["cancel_after_ms"] / 1000):
            async with trio.open_nursery() as nursery:
                for n in range(count):
                    nursery.start_soon(fetcher.fetch, f"{origin}/slow{n}")
        with trio.move_on_after(expect["succeeds_within_ms"] / 1000 * MS_TOLERANCE):
            result = await fetcher.fetch(origin + expect["fetch"])
            return differs("fetch after the cancellation", result.ok, True)
    return "fetch after the cancellation: hung"


async def _after_resume(bench: Bench, expect: Case) -> str | None:
    """Kill the crawl during its puts, early and late, then go on in this process."""
    assert bench.site.server is not None
    store, state, spec = bench.folder / "store", bench.folder / "state", bench.folder / "spec.json"
    address = bench.resolver.addresses["site.test"][0]
    for nth, seconds in ((1, 0.0), (1, 0.002), (2, 0.0), (2, 0.004)):
        members = {"seed": bench.seeds[0], "address": address, "port": bench.site.server.port, "ca": bench.ca}
        spec.write_text(json.dumps({**members, "store": str(store), "state": str(state), "nth": nth, "seconds": seconds}))
        command = [sys.executable, "-m", "tests.support.killed_crawl", str(spec)]
        done = await trio.run_process(command, check=False, capture_stderr=True, cwd=Path(__file__).parents[3])
        if done.returncode not in (-signal.SIGKILL, 0):
            return f"the killed crawl ended with {done.returncode}: {done.stderr.decode()[-200:]}"
    kept = FilesystemSnapshotStore(store)
    policy = CrawlPolicy(delay=0.0, egress=EgressPolicy(ca_file=Path(bench.ca)))
    manifest = await crawl(bench.seeds[0], policy, store=kept, state=state, resolver=bench.resolver, dialer=bench.dialer)
    resolved = [(await resolve_source_ref(kept, page.source_ref)).ok for page in manifest.pages]
    if line := differs("store_verifies", all(resolved) and len(resolved) == 2, expect["store_verifies"]):
        return line
    partial = [path for path in store.rglob("*.json") if not path.read_bytes().endswith(b"}")]
    return differs("partial_records", len(partial), expect["partial_records"])


async def _first_result(bench: Bench, within_ms: float) -> str | None:
    began = trio.current_time()
    async with crawl_stream(bench.seeds[0], bench.policy, resolver=bench.resolver, dialer=bench.dialer) as stream:
        async for event in stream:
            if isinstance(event, PageCaptured):
                milliseconds = (trio.current_time() - began) * 1000
                return None if milliseconds <= within_ms else f"first_result_within_ms: {milliseconds:.0f}"
    return "first_result_within_ms: no page"
