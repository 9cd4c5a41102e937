"""crawl/urls, crawl/links and crawl/sitemaps: the pure readers of the crawl."""

from __future__ import annotations

import base64
import gzip
import time
import zlib
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from forage.crawler import (
    Answer,
    FetchedDocument,
    SitemapFinds,
    TrapBudget,
    canonical_url,
    dedupe_key,
    discover_sitemaps,
    extract_links,
    is_soft_404,
)
from forage.egress import EgressPolicy, judge_url
from forage.errors import EgressCode, EgressDeniedError, FetchError, FetchErrorKind
from forage.fetch import parse_robots
from tests.vector_runner.model import Case, adapter, differs

PATIENCE = 5  # max_ms guards against hangs


def _too_slow(case: Case, started: float) -> str | None:
    limit = case.plain("max_ms")
    took = (time.perf_counter() - started) * 1000
    return f"took {took:.0f} ms" if limit is not None and took > limit * PATIENCE else None


@adapter("crawl/urls/urls.json")
def urls(case: Case) -> str | None:
    url = canonical_url(case["url"], case["base"])
    key = None if url is None else dedupe_key(url)
    if key is not None and dedupe_key(key) != key:
        return f"key of the key {dedupe_key(key)!r} is not the key {key!r}"
    return differs("fetch URL", url, case["expect"]) or differs("key", key, case["key"])


@adapter("crawl/urls/traps.json")
def traps(case: Case) -> str | None:
    options: dict[str, Any] = {name: case.plain(name) for name in ("per_path_query_budget", "per_dir_budget") if name in case}
    if "now" in case:
        options["now"] = date.fromisoformat(case["now"])
    budget = TrapBudget(**options)
    seen: set[str] = set()
    refused = None
    for url in case.plain("urls"):
        key = dedupe_key(url)
        if key in seen or budget.admit(url) is not None:
            refused = url
            break
        seen.add(key)
    return differs("trap", refused, case["expect_trap_at"])


@adapter("crawl/links/links.json")
def links(case: Case) -> str | None:
    body = base64.b64decode(case["html_b64"]) if "html_b64" in case else case["html"].encode()
    started = time.perf_counter()
    found = extract_links(
        body,
        page_url=case["page_url"],
        content_type=case["content_type"],
        headers=tuple(case.plain("headers", {}).items()),
        user_agent=case.plain("user_agent"),
    )
    slow = _too_slow(case, started)
    expected = [{"nofollow": False, **link} for link in case.plain("expect_links")]
    got: list[dict[str, Any]] = [{"kind": link.kind, "url": link.url, "nofollow": link.nofollow} for link in found.links]
    if case.plain("unordered", False):
        line = differs("URLs", sorted(link["url"] for link in got), sorted(link["url"] for link in expected))
    else:
        line = differs("links", got, expected)
    warning = case.plain("expect_warning")
    if warning is not None and warning not in found.warnings:
        line = line or f"no warning {warning}, but {found.warnings}"
    return line or slow


@adapter("crawl/links/soft404.json")
def soft404(case: Case) -> str | None:
    page = Answer(**case.plain("page"))
    return differs("soft 404", is_soft_404(page, Answer(**case.plain("probe"))), case["expect_soft_404"])


class _Site:
    """Serves the documents of a case as the fetcher of a crawl would: guarded, decoded, redirects on the same host followed."""

    def __init__(self, documents: Sequence[Mapping[str, Any]]) -> None:
        self.documents = {document["url"]: document for document in documents}
        self.requested: list[str] = []

    async def fetch(self, url: str, _: object) -> FetchedDocument:
        for _ in range(6):
            judge_url(url, EgressPolicy())
            document = self.documents.get(url)
            self.requested.append(url)
            if document is None:
                raise AssertionError(f"requested {url}, which the case does not list")
            headers = document.get("headers", {})
            status = document["status"]
            if status in (301, 302, 303, 307, 308):
                target = canonical_url(headers["location"], url)
                if target is None or target.split("/")[2] != url.split("/")[2]:
                    raise EgressDeniedError(EgressCode.REDIRECT_CROSS_HOST)
                url = target
                continue
            if status != 200:
                raise FetchError(FetchErrorKind.HTTP_ERROR, "no success", status=status)
            return FetchedDocument(url=url, body=_body(document, headers), content_type=headers.get("content-type"))
        raise FetchError(FetchErrorKind.TOO_MANY_REDIRECTS, "too many")


def _body(document: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
    if "body_b64" in document:
        body: bytes = base64.b64decode(document["body_b64"])
    elif "body_parts" in document:
        body = b"".join(map(_part, document["body_parts"]))
    else:
        body = str(document.get("body", "")).encode()
    if document.get("gzip"):
        body = gzip.compress(body, 6)
    if headers.get("content-encoding") in ("gzip", "x-gzip"):
        return zlib.decompressobj(wbits=31).decompress(body, 64 * 1024 * 1024)
    return body


def _part(part: Mapping[str, Any]) -> bytes:
    text: str = part["text"]
    repeat, first = int(part.get("repeat", 1)), int(part.get("counter_from", 0))
    if "{n}" not in text:
        return (text * repeat).encode()
    return "".join([text.replace("{n}", str(n)) for n in range(first, first + repeat)]).encode()


@adapter("crawl/sitemaps/sitemaps.json", together=1)
async def sitemaps(case: Case) -> str | None:
    site = _Site(case.plain("documents"))
    started = time.perf_counter()
    found = await discover_sitemaps(case["seed"], fetch=site.fetch, start=case.plain("start"), **case.plain("options", {}))
    slow = _too_slow(case, started)
    expect = case.plain("expect")
    codes = {warning.code for warning in found.warnings}
    missing = [code for code in expect.get("warnings", []) if code not in codes]
    unknown = sorted(set(expect) - {"urls", "documents_read", "warnings"})
    return (
        (_big_list(case, found) if "expect_count" in case else _list(case, found, expect["urls"]))
        or differs("documents read", found.documents_read, expect["documents_read"])
        or (f"no warnings {missing}, but {sorted(codes)}" if missing else None)
        or (differs("requests", len(site.requested), case["expect_requests"]) if "expect_requests" in case else None)
        or (_too_many_bytes(case, found) if "expect_max_bytes" in case else None)
        or (_alternates(case.plain("expect_alternates"), found) if "expect_alternates" in case else None)
        or (_blocked(case.plain("expect_blocked"), found, site) if "expect_blocked" in case else None)
        or (f"nothing checks {unknown}" if unknown else None)
        or slow
    )


def _big_list(case: Case, found: SitemapFinds) -> str | None:
    return differs("count", len(found.urls), case["expect_count"])


def _too_many_bytes(case: Case, found: SitemapFinds) -> str | None:
    limit = case["expect_max_bytes"]
    return f"unpacked {found.unpacked_bytes} bytes" if found.unpacked_bytes > limit else None


def _list(case: Case, found: SitemapFinds, expected: Sequence[Mapping[str, Any]]) -> str | None:
    got = [url.loc for url in found.urls]
    accepted = [[row["loc"] for row in expected], *case.plain("alt_urls", [])]
    if case.plain("expect_partial_ok", False):
        accepted += [accepted[0][:n] for n in range(len(accepted[0]))]
    if got not in accepted:
        return differs("URLs", got, accepted[0])
    stamps = {url.loc: url.lastmod for url in found.urls}
    for row in expected:
        if "lastmod" in row and row["loc"] in stamps and stamps[row["loc"]] != row["lastmod"]:
            return differs(f"lastmod of {row['loc']}", stamps[row["loc"]], row["lastmod"])
    return None


def _alternates(expected: Any, found: SitemapFinds) -> str | None:
    """Alternates of all URLs, in whichever of these forms: by location, as objects, or as plain URLs."""
    if isinstance(expected, Mapping):
        by_loc = {url.loc: dict(url.alternates) for url in found.urls}
        flat = {language: href for url in found.urls for language, href in url.alternates}
        if expected in (by_loc, flat, {loc: list(found.values()) for loc, found in by_loc.items()}):
            return None
        kept = {loc: found for loc, found in by_loc.items() if loc in expected}
        return differs("alternates", kept, expected)
    pairs = [pair for url in found.urls for pair in url.alternates]
    if expected and isinstance(expected[0], Mapping):
        got: list[Any] = [dict(zip(expected[0], pair, strict=True)) for pair in pairs]
        turned = [dict(zip(expected[0], reversed(pair), strict=True)) for pair in pairs]
        return None if expected in (got, turned) else differs("alternates", got, expected)
    return differs("alternates", [href for _, href in pairs], expected)


def _blocked(expected: Sequence[str], found: SitemapFinds, site: _Site) -> str | None:
    """What the rules of the same robots.txt then refuse, of the URLs found."""
    robots = next(document for url, document in site.documents.items() if url.endswith("/robots.txt"))
    rules = parse_robots(robots["body"].encode())
    refused = [url.loc for url in found.urls if not rules.verdict(url.loc, "forage").allowed]
    return differs("blocked", refused, list(expected))
