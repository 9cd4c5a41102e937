"""Recorded acquisitions of the original (`snapshots/fetch-source.json`), over virtual hosts in virtual time.

Wording aside, the result, the requests in order and the waits are compared. Warnings are compared by their number; those that rule vectors
ask for and the original does not have are counted apart. Accept and Accept-Encoding are left out of requests, as the recording does.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import attrs
import trio

from forage.egress import JudgedUrl
from forage.errors import BrowserError
from forage.fetch import ClockState, Fetcher, FetchResult, Source, WaitReason, fetch_source
from forage.snapshots import Snapshot
from forage.snapshots.model import sha256_hex
from tests.support.prior_store import PriorStore
from tests.support.virtual_hosts import Asked, Trouble, VirtualAnswer, VirtualHosts, VirtualResolver
from tests.support.virtual_time import in_virtual_time
from tests.vector_runner.adapters.fetch import first
from tests.vector_runner.model import Case, adapter, differs

NOW = datetime(2026, 9, 1, tzinfo=UTC)
RECORDED_AGENT = "kontourai-forage-bot/0.x (+https://github.com/kontourai/forage; contact: set-a-real-contact@example.com)"
NEW_WARNINGS = ("etag-changed-on-304", "partial-content", "vary-star", "duplicate-content-type", "robots-", "clock-skew", "crawl-delay")
"""Codes of warnings that the rule vectors of `crawl/` demand and that the original never gave."""

UNASKED = {"accept", "accept-encoding"}


@attrs.frozen(kw_only=True)
class Page:
    html: str
    warnings: tuple[str, ...] = ()
    left_for: tuple[str, ...] = ()


class ScriptedRenderer:
    """A renderer that answers with the case's HTML, and notes what it was asked and how long it may take."""

    def __init__(self, script: dict[str, Any], log: list[Any]) -> None:
        self._script = script
        self._log = log

    async def render(self, url: str) -> Page:
        left = trio.current_effective_deadline() - trio.current_time()
        self._log.append({"render": url, "options": {"timeoutMs": round(left * 1000)}})
        await trio.lowlevel.checkpoint()
        if "throw" in self._script:
            raise BrowserError(self._script["throw"])
        return Page(html=self._script["html"])


class _Site:
    def __init__(self, site: dict[str, Any], log: list[Any]) -> None:
        self._site = site
        self._log = log
        self._counts: dict[str, int] = {}

    def answer(self, target: JudgedUrl, asked: Asked) -> VirtualAnswer | Trouble:
        self._log.append(asked)
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


@attrs.frozen(kw_only=True)
class Run:
    result: FetchResult
    log: list[Any]
    waits: list[int]


async def _run(case: dict[str, Any]) -> Run:
    config, log, waits = case["config"], list[Any](), list[int]()

    def on_wait(host: str, until: float, why: WaitReason) -> None:
        waits.append(round((until - trio.current_time()) * 1000))

    async with trio.open_nursery() as nursery:
        fetcher = Fetcher(
            wire=VirtualHosts(nursery, _Site(case["site"], log).answer),
            resolver=VirtualResolver(),
            user_agent=RECORDED_AGENT,
            delay=config.get("minDelayMs", 1000) / 1000,
            retries=config.get("retries", 2),
            obey_robots=config.get("respectRobots", True),
            render={True: "always", False: "never", None: "never"}.get(config.get("render"), config.get("render")),
            renderer=ScriptedRenderer(case["render"], log) if case["render"] else None,
            render_seconds=15,
            on_wait=on_wait,
            utc_now=lambda: NOW,
            random=lambda: 0.5,
        )
        async with fetcher:
            for origin, last in case["politeness"].items():
                fetcher.restore_clocks({origin.partition("://")[2]: ClockState(since_start=(1000 - last) / 1000)})
            source = Source(
                id=config["id"], url=config["url"], headers=config.get("headers", {}), revalidate=config.get("revalidate", True)
            )
            store = PriorStore(_snapshot_of(case["prior"]), fails=case["storeThrows"])
            result = await fetch_source(source, fetcher=fetcher, store=store, max_response_bytes=case["maxResponseBytes"])
        nursery.cancel_scope.cancel()
    return Run(result=result, log=log, waits=waits)


def _snapshot_of(prior: dict[str, Any] | None) -> Snapshot | None:
    if prior is None:
        return None
    body = prior["body"]
    return Snapshot(
        source_id=prior["sourceId"],
        url=prior["url"],
        status=prior["status"],
        fetched_at=prior["fetchedAt"],
        body=body,
        body_hash=sha256_hex(body.encode()),
        headers=prior.get("headers"),
        redirects=prior.get("redirects"),
        rendered=prior.get("rendered"),
    )


@adapter("snapshots/fetch-source.json")
async def check_fetch_source(case: Case) -> str | None:
    expect = case.plain("expect")
    expect = expect.get("both") or expect["newest"]
    names: dict[str, Any] = {
        "config": None,
        "site": {},
        "prior": None,
        "storeThrows": False,
        "politeness": {},
        "maxResponseBytes": None,
        "render": None,
    }
    data = {name: case.plain(name, default) for name, default in names.items()}
    run = await in_virtual_time(lambda: _run(data))
    return first(_differences(expect, run))


def _differences(expect: dict[str, Any], run: Run) -> Iterator[str | None]:
    result, wanted = run.result, expect["result"]
    error = None if result.error is None else {"kind": result.error.kind.value, "status": result.error.status}
    wanted_error = wanted.get("error")
    if wanted_error is not None:
        wanted_error = {"kind": wanted_error["kind"], "status": wanted_error.get("status")}
        if error is not None and wanted_error["status"] is None:
            error["status"] = None  # the original gives a status to http-error only
    yield differs("error", error, wanted_error)
    yield differs("snapshot", _members(result.snapshot), _comparable(wanted.get("snapshot")))
    recorded = [w for w in result.warnings if not w.startswith(NEW_WARNINGS)]
    yield differs("warnings", len(recorded), len(wanted.get("warnings", [])))
    yield differs("requests", list(map(_request, run.log)), [_wanted_request(r, a) for r, a in _paired(expect["requests"], run.log)])
    yield differs("sleeps", run.waits, expect["sleeps"])


def _paired(requests: list[Any], log: list[Any]) -> Iterator[tuple[Any, Any]]:
    for number, request in enumerate(requests):
        yield request, log[number] if number < len(log) else None


def _request(entry: Any) -> Any:
    if isinstance(entry, Asked):
        return entry.url, {name.lower(): value for name, value in entry.headers.items() if name.lower() not in (*UNASKED, "host")}
    return entry["render"], entry["options"]


def _wanted_request(request: dict[str, Any], seen: Any) -> Any:
    if "render" in request:
        return request["render"], request["options"]
    if isinstance(seen, Asked) and not seen.headers:  # refused before a request was written
        return request["url"], {}
    return request["url"], {name.lower(): value for name, value in request["headers"].items() if name.lower() not in UNASKED}


def _comparable(snapshot: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if snapshot is None else {**snapshot, "headers": sorted(map(tuple, snapshot.get("headers", [])))}


def _members(snapshot: Snapshot | None) -> dict[str, Any] | None:
    if snapshot is None:
        return None
    found: dict[str, Any] = {"sourceId": snapshot.source_id, "url": snapshot.url, "status": snapshot.status}
    found |= {"fetchedAt": snapshot.fetched_at, "bodyHash": snapshot.body_hash, "headers": sorted((snapshot.headers or {}).items())}
    if isinstance(snapshot.body, str):
        found["body"] = snapshot.body
    else:
        found["bodyBase64"] = base64.b64encode(snapshot.body).decode()
    if snapshot.raw_bytes is not None:
        found |= {"bytesBase64": base64.b64encode(snapshot.raw_bytes).decode(), "declaredCharset": snapshot.declared_charset}
    if snapshot.redirects is not None:
        found["redirects"] = list(snapshot.redirects)
    if snapshot.rendered is not None:
        found["rendered"] = snapshot.rendered
    if snapshot.not_modified:
        found["notModified"] = True
    return found
