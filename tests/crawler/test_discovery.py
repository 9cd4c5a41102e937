"""Which sitemaps are read, within which bounds, and what is in scope."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from forage.crawler.discovery import FetchedDocument, Role, SitemapFinds, discover_sitemaps
from forage.errors import EgressCode, EgressDeniedError, EgressUnreachableError, FetchError, FetchErrorKind

SEED = "https://site.test/"


class Site:
    """Documents by URL: text, bytes, an exception, or ``-> url`` for a redirect. Keeps what was asked for."""

    def __init__(self, documents: Mapping[str, str | bytes | Exception]) -> None:
        self.documents = {self._absolute(url): document for url, document in documents.items()}
        self.requested: list[tuple[str, str]] = []

    @staticmethod
    def _absolute(url: str) -> str:
        return url if "://" in url else SEED + url

    async def fetch(self, url: str, role: Role, /) -> FetchedDocument:
        await trio.lowlevel.checkpoint()
        self.requested.append((url, role))
        found = self.documents.get(url, FetchError(FetchErrorKind.HTTP_ERROR, "gone", status=404))
        if isinstance(found, str) and found.startswith("-> "):
            return await self.fetch(self._absolute(found[3:]), role)
        if isinstance(found, Exception):
            raise found
        return FetchedDocument(url=url, body=found if isinstance(found, bytes) else found.encode())


def urlset(*locations: str) -> str:
    return "<urlset>" + "".join(f"<url><loc>{Site._absolute(loc)}</loc></url>" for loc in locations) + "</urlset>"


def index(*locations: str) -> str:
    return "<sitemapindex>" + "".join(f"<sitemap><loc>{Site._absolute(loc)}</loc></sitemap>" for loc in locations) + "</sitemapindex>"


async def discover(documents: Mapping[str, str | bytes | Exception], *start: str, **options: Any) -> tuple[SitemapFinds, Site]:
    site = Site(documents)
    start = start or ("sitemap.xml",)
    return await discover_sitemaps(SEED, fetch=site.fetch, start=[Site._absolute(url) for url in start], **options), site


def paths(found: SitemapFinds) -> list[str]:
    return [url.loc.removeprefix(SEED) for url in found.urls]


def codes(found: SitemapFinds) -> list[str]:
    return [warning.code for warning in found.warnings]


async def test_robots_txt_of_the_seed_names_the_sitemaps() -> None:
    robots = "User-agent: *\nDisallow: /\nSitemap: https://site.test/a.xml\nsitemap: https://cdn.test/b.xml\n"
    site = Site({"robots.txt": robots, "a.xml": urlset("1"), "https://cdn.test/b.xml": urlset("2", "https://cdn.test/no")})
    found = await discover_sitemaps("https://site.test/deep/page?x#y", fetch=site.fetch)
    assert paths(found) == ["1", "2"]
    assert codes(found) == ["sitemap-off-scope"]
    assert found.documents_read == 3
    assert [role for _, role in site.requested] == ["robots", "sitemap", "sitemap"]
    assert [(link.kind, link.url) for link in found.links] == [("sitemap", SEED + "1"), ("sitemap", SEED + "2")]


@pytest.mark.parametrize(
    "robots",
    ["User-agent: *\n", "", FetchError(FetchErrorKind.HTTP_ERROR, "x", status=404), EgressUnreachableError(EgressCode.DNS_FAILURE)],
)
async def test_without_sitemap_lines_the_well_known_place_is_tried(robots: str | Exception) -> None:
    found, _ = await discover({"robots.txt": robots, "sitemap.xml": urlset("1")}, "robots.txt")
    assert (paths(found), codes(found)) == (["1"], [] if isinstance(robots, str) else ["sitemap-fetch-failed"])
    assert (found.documents_read, found.sitemaps_read) == (2 if isinstance(robots, str) else 1, 1)


async def test_listed_pages_of_other_hosts_are_told_apart_and_bounded() -> None:
    listed = urlset("1", *(f"https://other.test/{n}" for n in range(9)), "https://other.test/0")
    found, _ = await discover({"sitemap.xml": listed}, max_urls=5)
    assert (paths(found), codes(found)) == (["1"], ["sitemap-off-scope"])
    assert found.off_scope == tuple(f"https://other.test/{n}" for n in range(5))


async def test_indexes_nest_and_are_read_breadth_first() -> None:
    found, site = await discover(
        {
            "sitemap.xml": index("i.xml", "a.xml"),
            "i.xml": index("b.xml"),
            "a.xml": urlset("1"),
            "b.xml": gzip.compress(urlset("2").encode()),
        }
    )
    assert paths(found) == ["1", "2"]
    assert [url.removeprefix(SEED) for url, _ in site.requested] == ["sitemap.xml", "i.xml", "a.xml", "b.xml"]
    assert (found.documents_read, found.requests, codes(found)) == (4, 4, [])


@pytest.mark.parametrize(
    ("documents", "requests", "read"),
    [
        ({"sitemap.xml": index("sitemap.xml")}, 1, 1),
        ({"sitemap.xml": index("a.xml"), "a.xml": index("sitemap.xml")}, 2, 2),
        ({"sitemap.xml": index("r.xml"), "r.xml": "-> sitemap.xml"}, 3, 1),
        ({"sitemap.xml": "-> real.xml", "real.xml": index("sitemap.xml", "real.xml")}, 2, 1),
    ],
)
async def test_cycles_are_found_on_final_urls(documents: Mapping[str, str], requests: int, read: int) -> None:
    found, site = await discover(documents)
    assert codes(found) == ["sitemap-cycle"]
    assert (len(site.requested), found.documents_read) == (requests, read)


async def test_a_document_listed_twice_is_read_once() -> None:
    documents = {"sitemap.xml": index("a.xml", "a.xml", "a.xml#x", "r.xml"), "a.xml": urlset("1", "1"), "r.xml": "-> a.xml"}
    found, _ = await discover(documents)
    assert (paths(found), found.documents_read, codes(found)) == (["1"], 2, [])


async def test_depth_documents_and_urls_are_bounded() -> None:
    nested = {f"{n}.xml": index(f"{n + 1}.xml") for n in range(9)}
    found, _ = await discover(nested, "0.xml", max_depth=3)
    assert (found.documents_read, codes(found)) == (4, ["sitemap-depth-limit"])
    wide = {"sitemap.xml": index(*(f"{n}.xml" for n in range(9))), **{f"{n}.xml": urlset(f"{n}a", f"{n}b") for n in range(9)}}
    found, _ = await discover(wide, max_documents=3)
    assert (paths(found), codes(found)) == (["0a", "0b", "1a", "1b"], ["sitemap-document-limit"])
    found, _ = await discover(wide, max_urls=3)
    assert (paths(found), codes(found)) == (["0a", "0b", "1a"], ["sitemap-url-limit"])
    found, _ = await discover(wide, max_urls=4)
    assert (paths(found), found.documents_read, codes(found)) == (["0a", "0b", "1a", "1b"], 3, ["sitemap-url-limit"])


async def test_an_index_of_nothing_but_failures_ends() -> None:
    found, site = await discover({"sitemap.xml": index(*(f"{n}.xml" for n in range(5000)))}, max_documents=10)
    assert len(site.requested) == 20
    assert found.documents_read == 1
    assert {"sitemap-fetch-failed", "sitemap-document-limit"} == set(codes(found))


async def test_off_scope_children_are_never_requested() -> None:
    children = index(
        "http://169.254.169.254/latest/", "http://localhost/x.xml", "https://other.test/x.xml", "https://site.test:8443/", "a.xml"
    )
    found, site = await discover({"sitemap.xml": children, "a.xml": urlset("1", "http://site.test/2", "https://www.site.test/no")})
    assert [url.loc for url in found.urls] == [SEED + "1", "http://site.test/2"]
    assert len(site.requested) == 2
    assert [(w.code, w.url) for w in found.warnings] == [
        ("sitemap-egress-denied", SEED + "sitemap.xml"),
        ("sitemap-off-scope", SEED + "sitemap.xml"),
        ("sitemap-off-scope", SEED + "a.xml"),
    ]


async def test_off_host_map_vouches_for_no_further_maps() -> None:
    cdn = "https://cdn.test/index.xml"
    found, site = await discover({cdn: index("https://cdn.test/no.xml", "a.xml"), "a.xml": urlset("1")}, cdn)
    assert (paths(found), codes(found), len(site.requested)) == (["1"], ["sitemap-off-scope"], 2)


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (FetchError(FetchErrorKind.TIMEOUT, "x"), "sitemap-fetch-failed"),
        (FetchError(FetchErrorKind.EGRESS_DENIED, "x"), "sitemap-egress-denied"),
        (FetchError(FetchErrorKind.OFF_SCOPE, "x"), "sitemap-off-scope"),
        (EgressDeniedError(EgressCode.DENIED_ADDRESS), "sitemap-egress-denied"),
        (EgressUnreachableError(EgressCode.CONNECT_FAILED), "sitemap-fetch-failed"),
        ("<html>", "sitemap-not-xml"),
    ],
)
async def test_trouble_with_one_document_does_not_stop_the_others(trouble: str | Exception, code: str) -> None:
    found, _ = await discover({"sitemap.xml": index("bad.xml", "good.xml"), "bad.xml": trouble, "good.xml": urlset("1")})
    assert (paths(found), codes(found)) == (["1"], [code])
    assert str(found.warnings[0]) == f"{code}: https://site.test/bad.xml"


async def test_robots_txt_that_the_guard_refuses_is_noted() -> None:
    found, _ = await discover({"robots.txt": EgressDeniedError(EgressCode.DENIED_ADDRESS)}, "robots.txt")
    assert codes(found) == ["sitemap-egress-denied", "sitemap-fetch-failed"]


async def test_start_that_is_no_url_is_noted() -> None:
    site = Site({})
    found = await discover_sitemaps(SEED, fetch=site.fetch, start=["mailto:a@b", "http://[bad"])
    assert (codes(found), site.requested) == (["sitemap-url-skipped"] * 2, [])


async def test_errors_outside_of_the_contract_pass() -> None:
    with pytest.raises(ZeroDivisionError):
        await discover({"sitemap.xml": ZeroDivisionError()})


async def test_large_documents_are_parsed_in_a_thread_and_cancelling_leaves_nothing() -> None:
    large = urlset(*(f"page/{n}" for n in range(20_000)))
    found, _ = await discover({"sitemap.xml": large})
    assert len(found.urls) == 20_000
    for deadline in (0.0, 0.001, 0.02):
        with trio.move_on_after(deadline):
            await discover({"sitemap.xml": large})
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
