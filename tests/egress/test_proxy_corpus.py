"""The egress corpus through the proxy: the same verdicts as the client's, in absolute form and by CONNECT."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from forage.egress import EgressPolicy, ProxyEvent, open_proxy
from tests.support.corpus_network import STORY_SECOND, open_corpus_network

CORPUS = Path(__file__).resolve().parent.parent / "vectors" / "egress" / "cases.jsonl"
PARTS = 8
HTTPS = re.compile(r"https://(\[[0-9A-Fa-f:.]+\]|[^:/?#@%\\\[\]]+)(?::([1-9][0-9]*))?(?=[/?#]|$)")


def stories() -> list[dict[str, Any]]:
    """Those that a request line can carry, and whose first URL decides: a client behind a proxy follows redirects itself."""
    rows = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]
    return [row for row in rows if decides_at_once(row)]


def decides_at_once(row: Mapping[str, Any]) -> bool:
    url: str = row["url"]
    if row.get("redirects") or row.get("header_injection") or row.get("server") or not url.isascii() or not url.isprintable() or " " in url:
        return False
    if url.startswith("https://"):
        # A CONNECT says no scheme, so an origin that is opened for http is open to it.
        return HTTPS.match(url) is not None and "test_loopback_origins" not in row.get("policy", {})
    return url.startswith("http://")


def request_of(url: str) -> str:
    found = HTTPS.match(url)
    if found is None:
        return f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n"
    return f"CONNECT {found[1]}:{found[2] or '443'} HTTP/1.1\r\n\r\n"


async def verdict(story: Mapping[str, Any]) -> tuple[ProxyEvent, list[tuple[str, int]]]:
    options = {name: value for name, value in story.get("policy", {}).items() if name != "cross_host_redirects"}
    policy = EgressPolicy(**options, resolve_seconds=10 * STORY_SECOND, max_answer_ttl=0.0)
    events: list[ProxyEvent] = []
    async with open_corpus_network(story["dns"], [], unreachable=story.get("unreachable", ()), cert_names=()) as network:
        async with (
            open_proxy(policy, resolver=network.resolver, dialer=network.dialer, on_event=events.append) as proxy,
            await trio.open_tcp_stream(proxy.host, proxy.port) as stream,
        ):
            with trio.fail_after(5):
                await stream.send_all(request_of(story["url"]).encode())
                await stream.receive_some()
        return events[0], network.dialer.dialled


@pytest.mark.parametrize("part", range(PARTS))
async def test_verdicts_of_the_proxy_are_those_of_the_corpus(part: int) -> None:
    wrong = []
    for story in stories()[part::PARTS]:
        event, dialled = await verdict(story)
        allowed = story["expect"] == "allow" or (story["code"] == "CONNECT_FAILED" and story["class"] == "tls")  # the client's TLS
        codes = {story["code"], *story.get("alt_codes", ()), "MALFORMED_REQUEST" if story["url"].startswith("https") else None}
        if (event.decision == "allowed") != allowed or (
            not allowed and (event.code not in codes or (dialled and story["code"] != "CONNECT_FAILED"))
        ):
            wrong.append(f"{story['id']}: {event.decision} {event.code}, dialled {dialled}, expected {story['code']}")
    assert wrong == []


def test_most_of_the_corpus_is_told_through_the_proxy() -> None:
    chosen = stories()
    assert len(chosen) > 600
    assert sum(story["url"].startswith("https") for story in chosen) > 50
