"""Fetch and robots.txt: scripts of raw servers, files and outcomes (`crawl/fetch/fetch.json`, `crawl/robots/*.json`)."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import trio

from forage.egress import EgressPolicy
from forage.fetch import Fetcher, FetchResult, Source, parse_robots, product_token, robots_url_of
from forage.snapshots import body_bytes, build_snapshot
from tests.support.dialer import RecordingDialer
from tests.support.prior_store import PriorStore
from tests.support.raw_server import RawServer, answers_from_json, open_raw_server
from tests.vector_runner.model import Case, adapter, differs

HANG_FACTOR = 5  # bounds that guard against hangs allow for a busy machine


def first(lines: Iterable[str | None]) -> str | None:
    """The first difference, or None."""
    return next((line for line in lines if line is not None), None)


@adapter("crawl/robots/authority.json")
def check_authority(case: Case) -> str | None:
    return differs("robots_url", robots_url_of(case["url"]), case["expect_robots_url"])


@adapter("crawl/robots/match.json")
def check_match(case: Case) -> str | None:
    data = base64.b64decode(case["robots_b64"]) if "robots_b64" in case else case["robots"].encode()
    began = time.perf_counter()
    file = parse_robots(data)
    verdict = file.verdict(case["url"], case["user_agent"])
    took = time.perf_counter() - began
    return first(
        [
            differs("allowed", verdict.allowed, case["expect_allowed"]),
            None if verdict.allowed or verdict.rule is not None else "a denial without the line that denies",
            differs("crawl_delay", file.group(case["user_agent"]).crawl_delay, case["crawl_delay"]) if "crawl_delay" in case else None,
            differs("sitemaps", list(file.sitemap_urls(robots_url_of(case["url"]))), case["sitemaps"]) if "sitemaps" in case else None,
            None if took * 1000 <= HANG_FACTOR * case.plain("max_ms", 10_000) else f"took {took:.2f} s",
        ]
    )


@adapter("crawl/fetch/fetch.json", together=8)
async def check_fetch(case: Case) -> str | None:
    routes = {path: answers_from_json(script) for path, script in case.plain("routes").items()}
    request = case.plain("request", {})
    async with open_raw_server(routes) as server:
        dialer = RecordingDialer()
        async with _fetcher(case.plain("options", {}), server, dialer) as fetcher:
            for path in request.get("warm_up", ()):
                await fetcher.fetch(server.origin + path)
            await trio.sleep(request.get("gap_ms", 0) / 1000)
            warmed = len(server.requests)
            source = Source(id="case", url=server.origin + case["path"])
            began = trio.current_time()
            result = await fetcher.fetch(source, store=_store(source, request.get("prior")))
            took = trio.current_time() - began
        strangers = [place for place in dialer.dialled if place != server.place]
        if strangers:
            return f"dialled {strangers}"
        return first(_differences(case["expect"], result, server, warmed, took))


def _fetcher(options: dict[str, Any], server: RawServer, dialer: RecordingDialer) -> Fetcher:
    """The options of a script. ``read_ms`` bounds silence, ``total_ms`` an attempt."""
    chosen: dict[str, Any] = {}
    if "total_ms" in options:
        chosen["attempt_seconds"] = options["total_ms"] / 1000
    if "read_ms" in options:
        chosen["idle_seconds"] = options["read_ms"] / 1000
    if "max_retry_wait_s" in options:
        chosen["max_retry_wait"] = options["max_retry_wait_s"]
    known = {"max_response_bytes", "max_redirects", "retries", "cookies", "keep_error_bodies"}
    chosen |= {name: value for name, value in options.items() if name in known}
    if unknown := set(options) - known - {"total_ms", "read_ms", "max_retry_wait_s"}:
        raise ValueError(f"unknown options {sorted(unknown)}")
    chosen.setdefault("retries", 0)
    policy = EgressPolicy(test_loopback_origins=[server.origin])
    return Fetcher(egress=policy, dialer=dialer, delay=0, obey_robots=False, **chosen)


def _store(source: Source, prior: dict[str, str] | None) -> PriorStore | None:
    """A store that holds a snapshot with the validators of a script."""
    if prior is None:
        return None
    snapshot, _ = build_snapshot(
        source_id=source.id,
        url=source.url,
        status=200,
        fetched_at="2024-05-01T10:00:00.000Z",
        body=b"kept",
        content_type="text/html",
        headers={name.replace("_", "-"): value for name, value in prior.items()},
    )
    return PriorStore(snapshot)


def _differences(expect: Case, result: FetchResult, server: RawServer, warmed: int, took: float) -> Iterator[str | None]:
    snapshot, error = result.snapshot, result.error
    status = error.status if error is not None else 304 if snapshot is not None and snapshot.not_modified else snapshot and snapshot.status
    yield differs("error_kind", error and error.kind.value, expect["error_kind"])
    yield differs("status", status, expect["status"])
    for code in expect["warnings_contain"]:
        yield None if any(code in warning for warning in result.warnings) else f"warnings: {result.warnings} lack {code}"
    if "redirects" in expect:
        yield differs("redirects", len(result.redirects), expect["redirects"])
    if "requests" in expect:
        yield differs("requests", len(server.requests) - warmed, expect["requests"])
    if "retry_after_s" in expect:
        yield differs("retry_after_s", error and error.retry_after, expect["retry_after_s"])
    if "error_body_sha256" in expect:
        page = error.page if error is not None else None
        yield differs("error_body_sha256", page and page.body_hash, expect["error_body_sha256"])
    yield from _body_differences(expect, result)
    yield from _header_differences(expect, result)
    yield from _request_differences(expect, server, warmed)
    if took * 1000 < expect.plain("min_ms", 0):
        yield f"took {took:.3f} s, less than {expect['min_ms']} ms"
    if took * 1000 > HANG_FACTOR * expect.plain("max_ms", 120_000):
        yield f"took {took:.3f} s"


def _body_differences(expect: Case, result: FetchResult) -> Iterator[str | None]:
    snapshot, error = result.snapshot, result.error
    body = b"" if snapshot is None else body_bytes(snapshot)
    if "body_sha256" in expect:
        yield differs("body_sha256", hashlib.sha256(body).hexdigest(), expect["body_sha256"])
    if "body_len" in expect:
        yield differs("body_len", len(body), expect["body_len"])
    if "encoded_sha256" in expect:
        yield differs("encoded_sha256", result.facts and result.facts.encoded_sha256, expect["encoded_sha256"])
    if "text" in expect:
        yield differs("text", snapshot and snapshot.body, expect["text"])
    if "text_kind" in expect:
        kind = _text_kind(snapshot.body, (snapshot.headers or {}).get("content-type", "")) if snapshot is not None else None
        yield differs("text_kind", kind, expect["text_kind"])
    if "not_modified" in expect:
        yield differs("not_modified", snapshot and snapshot.not_modified, expect["not_modified"])
    if "final_path" in expect:
        origin = result.url.partition("://")[2].partition("/")[0]
        path = snapshot and snapshot.url.partition(origin)[2].partition("#")[0]  # what was asked for; records keep a fragment
        yield differs("final_path", path, expect["final_path"])
    if "max_decoded_bytes" in expect and not (error and error.limit and error.limit <= expect["max_decoded_bytes"]):
        yield f"decoding was not bounded by {expect['max_decoded_bytes']} bytes"


def _text_kind(body: str | bytes, content_type: str) -> str:
    if isinstance(body, bytes):
        return "binary"
    return "html" if "html" in content_type.lower() else "text"


def _header_differences(expect: Case, result: FetchResult) -> Iterator[str | None]:
    headers = result.snapshot.headers if result.snapshot is not None and result.snapshot.headers is not None else {}
    raw = result.raw_headers or ()
    for name, value in expect.plain("header_equals", {}).items():
        yield differs(name, headers.get(name), value)
    for name, values in expect.plain("header_list", {}).items():
        yield differs(name, [v.decode("latin-1") for k, v in raw if k.lower() == name.encode()], values)
    for name, value in expect.plain("raw_header_b64", {}).items():
        yield differs(name, [base64.b64encode(v).decode() for k, v in raw if k.lower() == name.encode()], [value])
    for name in expect.plain("headers_absent", []):
        yield None if name not in headers else f"{name} is among the headers"


def _request_differences(expect: Case, server: RawServer, warmed: int) -> Iterator[str | None]:
    for path, fields in expect.plain("expect_request_headers", {}).items():
        asked = [request for request in server.requests[warmed:] if request.target == path]
        for name, value in fields.items():
            yield differs(f"{name} of {path}", [request.header(name) for request in asked], [value] * max(1, len(asked)))
    for path, names in expect.plain("request_headers_absent", {}).items():
        for request in server.requests[warmed:]:
            sent = [name for name in names if request.target == path and request.header(name) is not None]
            yield f"sent {sent}" if sent else None


@adapter("snapshots/robots.json")
def check_recorded_robots(case: Case) -> str | None:
    """The original's reading of files. ``rules`` are those of the chosen group that say something."""
    file = parse_robots(case["text"].encode())
    group = file.group(case["userAgent"])
    rules = [{"path": rule.path, "allow": rule.allow} for rule in group.rules]
    checks = [[path, group.judge(path).allowed] for path, _ in case.plain("checks")]
    return first(
        [
            differs("productToken", product_token(case["userAgent"]), case["productToken"]),
            differs("rules", rules, case.plain("rules")),
            differs("sitemaps", list(file.sitemaps), case.plain("sitemaps")),
            differs("checks", [c for c in checks if c not in case.plain("checks")], []),
        ]
    )
