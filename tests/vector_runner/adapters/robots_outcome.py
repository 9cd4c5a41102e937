"""What becomes of a robots.txt (`crawl/robots/outcome.json`), through a fetcher over virtual hosts in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import trio

from forage.egress import JudgedUrl
from forage.fetch import Fetcher, FetchResult, RobotsCopy, RobotsEntry
from tests.support.virtual_hosts import Asked, Trouble, VirtualAnswer, VirtualHosts, VirtualResolver
from tests.support.virtual_time import in_virtual_time
from tests.vector_runner.adapters.fetch import first
from tests.vector_runner.model import Case, adapter, differs

PAGE = VirtualAnswer(headers=(("Content-Type", "text/html"),), body=b"<p>page</p>")


@attrs.frozen(kw_only=True)
class Seen:
    """What one fetch of the page under one set of options came to."""

    entry: RobotsEntry
    result: FetchResult
    asked: tuple[Asked, ...]
    robots_bytes: int


class _Script:
    """The responses of a case, each URL's in their order, the last one repeated; the page itself always answers."""

    def __init__(self, responses: list[dict[str, Any]], page: str) -> None:
        self._responses = responses
        self._page = page
        self._counts: dict[str, int] = {}
        self.unexpected: list[str] = []

    def answer(self, target: JudgedUrl, asked: Asked) -> VirtualAnswer | Trouble:
        if target.url == self._page:
            return PAGE
        mine = [r for r in self._responses if r["url"] == target.url]
        if not mine or mine[0].get("status", 0) is None:
            self.unexpected.append(target.url)
            return VirtualAnswer(status=500)
        count = self._counts[target.url] = self._counts.get(target.url, 0) + 1
        response = mine[min(count, len(mine)) - 1]
        if "error" in response:
            return _trouble(response["error"])
        return VirtualAnswer(
            status=response["status"],
            headers=tuple(response.get("headers", {}).items()),
            body=_body(response),
            interim=tuple(response.get("interim", ())),
        )


def _trouble(error: str) -> VirtualAnswer | Trouble:
    if error == "incomplete-body":
        return VirtualAnswer(body=b"User-agent: *\nDisallow: /private/\n", cut=True)
    return Trouble(kind="DENIED_ADDRESS" if error == "egress-denied" else error)


def _body(response: dict[str, Any]) -> bytes:
    if "body_parts" not in response:
        return str(response.get("body", "")).encode()
    return b"".join(part["text"].encode() * part.get("repeat", 1) for part in response["body_parts"])


async def _see(case: dict[str, Any], **options: Any) -> tuple[Seen, list[str]]:
    script = _Script(case["responses"], case["url"])
    async with trio.open_nursery() as nursery:
        hosts = VirtualHosts(nursery, script.answer)
        async with Fetcher(
            wire=hosts, resolver=VirtualResolver(), user_agent=case["user_agent"], delay=0, random=lambda: 0.5, **options
        ) as fetcher:
            for response in case["responses"]:
                _remember(fetcher, case["url"], response)
            result = await fetcher.fetch(case["url"])
            entry = await fetcher.robots(case["url"])
            asked = tuple(a for a in hosts.asked if a.url != case["url"])
            left = sum(len(channel._in.data) for channel in hosts.channels)
        nursery.cancel_scope.cancel()
    sent = sum(len(_body(r)) for r in case["responses"])
    return Seen(entry=entry, result=result, asked=asked, robots_bytes=sent - left), script.unexpected


def _remember(fetcher: Fetcher, url: str, response: dict[str, Any]) -> None:
    if "cached_body" in response or "unreachable_for_s" in response:
        body = response["cached_body"].encode() if "cached_body" in response else None
        age = response.get("cached_age_s", 0.0)
        fetcher.remember_robots(url, RobotsCopy(body=body, age=age, unreachable_for=response.get("unreachable_for_s")))


@adapter("crawl/robots/outcome.json")
async def check_outcome(case: Case) -> str | None:
    data = {name: case.plain(name) for name in ("responses", "user_agent", "url")}
    seen, unexpected = await in_virtual_time(lambda: _see(data))
    if unexpected:
        return f"asked for {unexpected}"
    lines = list(_differences(case, seen))
    if "option_open_allowed" in case:
        opened, _ = await in_virtual_time(lambda: _see(data, robots_on_error="allow"))
        lines.append(differs("option_open_allowed", opened.result.ok, case["option_open_allowed"]))
        if opened.result.ok and not any("robots" in warning for warning in opened.result.warnings):
            lines.append("opened without a warning")
    if "strict_allowed" in case:
        strict, _ = await in_virtual_time(lambda: _see(data, robots_access_denied="deny"))
        lines.append(differs("strict_allowed", strict.result.ok, case["strict_allowed"]))
    return first(lines)


def _differences(case: Case, seen: Seen) -> Iterator[str | None]:
    result = seen.result
    kind = None if result.error is None else result.error.kind.value
    yield differs("state", seen.entry.state.value, case["expect_state"])
    yield differs("allowed", result.ok, case["expect_allowed"])
    if kind is not None:
        first_error = case.plain("responses")[0].get("error")
        denied = "robots-unreachable" if case["expect_state"] == "unreachable" else "robots-denied"
        yield differs("kind", kind, "egress-denied" if first_error == "egress-denied" else denied)
    if "expect_warning" in case and not any(case["expect_warning"] in warning for warning in result.warnings):
        yield f"warnings: {result.warnings} lack {case['expect_warning']}"
    if "expect_requests" in case:
        yield differs("requests", len(seen.asked), case["expect_requests"])
    if "expect_max_bytes" in case and seen.robots_bytes > case["expect_max_bytes"]:
        yield f"read {seen.robots_bytes} bytes"
    if "retry_after_s" in case:
        yield differs("retry_after_s", seen.entry.retry_after, case["retry_after_s"])
        gaps = [later.at - sooner.at for sooner, later in zip(seen.asked, seen.asked[1:], strict=False)]
        yield None if all(gap >= case["retry_after_s"] for gap in gaps) else f"asked again after {gaps} s"
