"""One sitemap document: what it lists, and what is left out of a broken one."""

from __future__ import annotations

import gzip
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.crawler.sitemaps import MAX_SITEMAP_URLS, SitemapDocument, SitemapKind, SitemapUrl, parse_sitemap
from forage.crawler.timestamps import rfc822_instant, w3c_instant

URL = "https://site.test/dir/sitemap.xml"
NS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def read(data: str | bytes, content_type: str | None = "application/xml", **options: int) -> SitemapDocument:
    return parse_sitemap(data.encode() if isinstance(data, str) else data, url=URL, content_type=content_type, **options)


def urlset(entries: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?><urlset {NS}>{entries}</urlset>'


def entry(path: str) -> str:
    return f"<url><loc>https://site.test/{path}</loc></url>"


def paths(document: SitemapDocument) -> list[str]:
    return [url.loc.removeprefix("https://site.test/") for url in document.urls]


@pytest.mark.parametrize(
    ("xml", "expected"),
    [
        (f"<urlset>{entry('a')}</urlset>", ["a"]),
        (f'<s:urlset xmlns:s="x"><s:url><s:loc>https://site.test/a</s:loc></s:url>{entry("no")}</s:urlset>', ["a"]),
        (urlset("<url><loc><![CDATA[https://site.test/a?b&c]]></loc></url>"), ["a?b&c"]),
        (urlset("<url><loc>https://site<!-- x -->.test/<?pi?>a</loc></url>"), ["a"]),
        (urlset("<url><loc>\n\thttps://site.test/a\n</loc></url>"), ["a"]),
        (urlset("<url><loc>https://site.test/&#97;&amp;&lt;&apos;</loc></url>"), ["a&%3C'"]),
        (urlset("<url><loc>https://site.test/a#frag</loc></url>"), ["a"]),
        (urlset("<url><loc>https://u:p@site.test/a</loc></url>"), ["a"]),
        (urlset("<x><y/></x><url><z/><loc>https://site.test/a</loc><priority>1</priority></url>"), ["a"]),
        (urlset("<url><image:image><image:loc>https://site.test/no</image:loc></image:image></url>"), []),
        (urlset("<url><news:news><loc>https://site.test/no</loc></news:news></url>"), []),
        (urlset("<url/><url></url><url><loc/></url>" + entry("a")), ["a"]),
        (urlset(entry("a") + entry("a")), ["a", "a"]),
        (urlset("<loc>https://site.test/a</loc><x><loc>https://site.test/no</loc></x>" + entry("b")), ["a", "b"]),
        (urlset("<loc>https://site.test/<b>no</b></loc><loc/><image:loc>https://site.test/no</image:loc>" + entry("b")), ["b"]),
        ("\ufeff" + urlset(entry("a")), ["a"]),
    ],
)
def test_entries_of_a_urlset(xml: str, expected: list[str]) -> None:
    assert paths(read(xml)) == expected


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ("<url><loc>https://site.test/a&b</loc></url>" + entry("c"), ["c"]),
        ("<url><loc>https://site.test/a&nbsp;b</loc></url>" + entry("c"), ["c"]),
        ("<url><loc>https://site.test/a\x0bb</loc></url>" + entry("c"), ["c"]),
        ("<url><loc>https://site.test/a<b>x</b></loc></url>" + entry("c"), ["c"]),
        ("<url><loc>https://site.test/a</url>" + entry("c"), ["c"]),
        ("<url><loc>https://site.test/a</loc>" + entry("c"), ["c"]),
        ("<url><loc>https://site.test/a</loc><x></url>" + entry("c"), ["c"]),
        ("<url a=b><loc>https://site.test/a</loc></url>" + entry("c"), ["c"]),
        ("<url><loc>https://site.test/a</loc><loc>https://site.test/b</loc></url>" + entry("c"), ["a", "c"]),
        (entry("a") + "<<" + entry("c"), ["a", "c"]),
        (entry("a") + "</nothing>" + entry("c"), ["a", "c"]),
        ("<x>" * 1000 + entry("c"), ["c"]),
        ("<!-- " + entry("no") + " -- -->" + entry("c"), ["c"]),
        ("<sitemap><loc>https://site.test/no.xml</loc></sitemap>" + entry("c"), ["c"]),
        ("<url><loc>https://site.test/\ufffd</loc></url>" + entry("c"), ["c"]),
    ],
)
def test_broken_entries_are_left_out_and_the_others_stay(entries: str, expected: list[str]) -> None:
    document = read(urlset(entries))
    assert paths(document) == expected
    assert "sitemap-malformed" in document.warnings


def test_feed_references_that_did_not_decode_are_left_out() -> None:
    data = b'<?xml version="1.0" encoding="shift_jis"?><feed><entry><link href="/\x81"/></entry><entry><link href="/b"/></entry></feed>'
    document = read(data)
    assert (paths(document), document.warnings) == (["b"], ("sitemap-malformed",))


def test_invalid_bytes_cost_their_entry_only() -> None:
    data = urlset(entry("a") + entry("BAD") + entry("c")).encode().replace(b"BAD", b"\xff\xfe")
    assert (paths(read(data)), read(data).warnings) == (["a", "c"], ("sitemap-malformed",))


@pytest.mark.parametrize("cut", range(100, 240, 7))
def test_a_document_that_is_cut_gives_whole_entries_only(cut: int) -> None:
    data = urlset("".join(entry(f"page{n}") for n in range(9))).encode()
    document = read(data[:cut])
    assert paths(document) == [f"page{n}" for n in range(len(document.urls))]
    assert document.warnings == ("sitemap-malformed",)


@pytest.mark.parametrize("size", [1, 3, 511, 512, 513, 65_536])
def test_entries_are_found_wherever_the_pieces_end(size: int) -> None:
    pad = "<!--" + "x" * size + "-->"
    xml = urlset(pad + entry("a") + "<url><loc>&bad;</loc></url>" + pad + entry("b") + "<url><loc>&bad;</loc></url>" + entry("c"))
    assert paths(read(xml)) == ["a", "b", "c"]


def test_junk_behind_the_root_is_noted_and_not_read() -> None:
    document = read(urlset(entry("a")) + "<script>x</script>" + entry("no"))
    assert (paths(document), document.warnings) == (["a"], ("sitemap-malformed",))


def test_upper_case_names_are_read_and_noted() -> None:
    document = read("<URLSET><URL><LOC>https://site.test/a</LOC><LastMod>2024</LastMod></URL></URLSET>")
    assert document.urls == (SitemapUrl(loc="https://site.test/a", lastmod="2024"),)
    assert document.warnings == ("sitemap-malformed",)


@pytest.mark.parametrize(
    "subset",
    [
        '<!DOCTYPE urlset SYSTEM "http://evil.test/x.dtd">',
        '<!DOCTYPE urlset PUBLIC "x" "file:///etc/passwd" []>',
        '<!DOCTYPE u [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE u [<!ENTITY x "https://site.test/inside">]>',
        '<!DOCTYPE u [<!ENTITY % p SYSTEM "http://evil.test/p"> %p;]>',
        "<!DOCTYPE u [<!ATTLIST loc x CDATA 'y'><!-- ]> -->]>",
        '<!DOCTYPE u [<!ENTITY x "' + "A" * 100_000 + '">]>',
        "<!DOCTYPE u [" + "".join(f'<!ENTITY x{i} "{"&x;" * 10}">' for i in range(50)) + '<!ENTITY x "LOL">]>',
    ],
)
def test_what_a_document_type_declares_is_never_used(subset: str) -> None:
    bad = f"<url><loc>https://site.test/&x;</loc></url><url><loc>https://site.test/{'&x;' * 1000}</loc></url>"
    body = f"<urlset {NS}>{bad}{entry('a')}</urlset>"
    document = read('<?xml version="1.0"?>' + subset + body)
    assert paths(document) == ["a"]
    assert "sitemap-dtd" in document.warnings


@pytest.mark.parametrize(
    ("loc", "expected", "warning"),
    [
        ("/rel", "https://site.test/rel", "sitemap-relative-url"),
        ("rel", "https://site.test/dir/rel", "sitemap-relative-url"),
        ("//other.test/x", "https://other.test/x", "sitemap-relative-url"),
        ("http://[bad", None, "sitemap-url-skipped"),
        ("https:// space.test/", None, "sitemap-url-skipped"),
        ("javascript:alert(1)", None, "sitemap-url-skipped"),
        ("ftp://site.test/x", None, "sitemap-url-skipped"),
        ("https://site.test/" + "a" * 2031, None, "sitemap-url-skipped"),
        ("HTTPS://Site.TEST:443/Case", "https://site.test/Case", None),
    ],
)
def test_locations_are_fetch_urls(loc: str, expected: str | None, warning: str | None) -> None:
    document = read(urlset(f"<url><loc>{loc}</loc></url>"))
    assert [url.loc for url in document.urls] == ([] if expected is None else [expected])
    assert document.warnings == (() if warning is None else (warning,))


def test_language_alternates_are_kept_beside_their_url() -> None:
    document = read(
        urlset(
            '<url><loc>https://site.test/en</loc><xhtml:link rel="alternate" hreflang="de" href="https://site.test/de"/>'
            '<xhtml:link rel="alternate" hreflang="x-default" href="/"/><xhtml:link rel="next" hreflang="fr" href="/fr"/>'
            '<link xmlns="http://www.w3.org/1999/xhtml" rel="alternate" hreflang="es" href="/es"/>'
            '<xhtml:link rel="alternate" hreflang="it"/><xhtml:link rel="alternate" hreflang="pt" href="javascript:x"/></url>'
        )
    )
    assert document.urls == (
        SitemapUrl(
            loc="https://site.test/en",
            alternates=(("de", "https://site.test/de"), ("x-default", "https://site.test/"), ("es", "https://site.test/es")),
        ),
    )


def test_index_lists_sitemaps() -> None:
    document = read(
        f"<sitemapindex {NS}><sitemap><loc>https://site.test/a.xml</loc><lastmod>2024-05-01</lastmod></sitemap>"
        f"<url><loc>https://site.test/no</loc></url><sitemap><loc>b.xml</loc></sitemap></sitemapindex>"
    )
    assert document.kind is SitemapKind.INDEX
    assert document.urls == ()
    assert [child.loc for child in document.sitemaps] == ["https://site.test/a.xml", "https://site.test/dir/b.xml"]
    assert document.sitemaps[0].lastmod == "2024-05-01"
    assert document.warnings == ("sitemap-malformed", "sitemap-relative-url")


@pytest.mark.parametrize(
    ("xml", "kind", "expected"),
    [
        (
            (
                '<rss version="2.0"><channel><link>https://site.test/no</link><item><title>x</title><link>https://site.test/1</link>'
                "<pubDate>Wed, 01 May 2024 10:00:00 +0200</pubDate></item><item><guid>https://site.test/2</guid></item>"
                '<item><guid isPermaLink="false">https://site.test/no</guid></item><item><guid>tag:1</guid></item>'
                '<item><atom:link href="/no"/><link> /3 </link><dc:date>2024-05-01</dc:date></item></channel></rss>'
            ),
            SitemapKind.RSS,
            [("1", "2024-05-01T08:00:00Z"), ("2", None), ("3", "2024-05-01")],
        ),
        (
            (
                '<rdf:RDF xmlns:rdf="r" xmlns="http://purl.org/rss/1.0/"><channel><link>https://site.test/no</link></channel>'
                '<item rdf:about="x"><link>https://site.test/1</link></item></rdf:RDF>'
            ),
            SitemapKind.RSS,
            [("1", None)],
        ),
        (
            (
                '<feed xmlns="http://www.w3.org/2005/Atom" xml:base="/b/"><link href="/no"/><entry><link rel="enclosure" href="/no"/>'
                '<link rel="alternate" href="1"/><link href="/no"/><updated>2024-05-01T10:00:00+02:00</updated></entry>'
                '<entry xml:base="/c/"><link href="2"/><published>2024</published></entry><entry><id>x</id></entry></feed>'
            ),
            SitemapKind.ATOM,
            [("b/1", "2024-05-01T08:00:00Z"), ("c/2", "2024")],
        ),
        (
            "<rss><channel><item><link>https://site.test/a&b</link></item><item><link>https://site.test/1</link></item></channel></rss>",
            SitemapKind.RSS,
            [("1", None)],
        ),
    ],
)
def test_feeds_list_their_entries(xml: str, kind: SitemapKind, expected: list[tuple[str, str | None]]) -> None:
    document = read(xml)
    assert document.kind is kind
    assert [(url.loc.removeprefix("https://site.test/"), url.lastmod) for url in document.urls] == expected


@pytest.mark.parametrize(
    ("text", "expected", "warnings"),
    [
        ("https://site.test/a\r\n\r\n  https://site.test/b \rhttps://site.test/c", ["a", "b", "c"], ()),
        ("\ufeffhttps://site.test/a", ["a"], ()),
        ("# x\nhttps://site.test/a\nnot a url\n/rel\n//site.test/x", ["a"], ("sitemap-url-skipped",)),
        ("https://site.test/a\nhttps://site.test/" + "b" * 200_000 + "\nhttps://site.test/c", ["a", "c"], ("sitemap-url-skipped",)),
        ("gone", [], ("sitemap-not-xml",)),
        ("{}", [], ("sitemap-not-xml",)),
        ("x\n" * 100_000 + "https://site.test/a", [], ("sitemap-not-xml",)),
    ],
)
def test_text_lists(text: str, expected: list[str], warnings: tuple[str, ...]) -> None:
    document = read(text)
    assert (paths(document), document.warnings) == (expected, warnings)
    assert document.kind is (SitemapKind.TEXT if expected else SitemapKind.UNKNOWN)


@pytest.mark.parametrize(
    ("data", "warnings"),
    [
        (b"", ("sitemap-empty",)),
        (b" \r\n\t", ("sitemap-empty",)),
        (b"\xef\xbb\xbf", ("sitemap-empty",)),
        (urlset("").encode(), ("sitemap-empty",)),
        (b"<!DOCTYPE html><html><body><br></html>", ("sitemap-not-xml",)),
        (b"<html><meta charset=utf-8>", ("sitemap-not-xml",)),
        (b"<root><url><loc>https://site.test/x</loc></url></root>", ("sitemap-not-xml",)),
        (b"<<<", ("sitemap-not-xml",)),
        (b"\x00\x01\x02", ("sitemap-not-xml",)),
    ],
)
def test_what_is_no_sitemap_says_so(data: bytes, warnings: tuple[str, ...]) -> None:
    assert read(data) == SitemapDocument(kind=read(data).kind, warnings=warnings, unpacked_bytes=len(data))


@pytest.mark.parametrize(
    ("declared", "codec", "content_type"),
    [
        ("windows-1251", "windows-1251", "text/xml"),
        ("utf-8", "windows-1251", "text/xml; charset=windows-1251"),
        ("koi8-r", "koi8-r", None),
        ("gb18030", "gb18030", None),
        ("shift_jis", "shift_jis", None),
        ("euc-jp", "euc_jp", None),
        ("iso-2022-jp", "iso2022_jp", None),
        ("UTF-16", "utf-16", None),
        ("UTF-16", "utf-16-be", None),
        ("UTF-16", "utf-16-le", "text/xml; charset=utf-8"),
    ],
)
def test_encodings_by_mark_header_or_declaration(declared: str, codec: str, content_type: str | None) -> None:
    xml = f'<?xml version="1.0" encoding="{declared}"?><urlset {NS}>' + "<url><loc>https://site.test/я</loc></url>" * 3000 + "</urlset>"
    document = read(xml.encode(codec), content_type)
    assert (paths(document), document.warnings) == (["%D1%8F"] * 3000, ())


@pytest.mark.parametrize("declared", ["UTF-16", "no-such", "replacement"])
def test_impossible_declarations_are_noted_and_read_as_utf_8(declared: str) -> None:
    document = read(f'<?xml version="1.0" encoding="{declared}"?><urlset><url><loc>https://site.test/é</loc></url></urlset>')
    assert (paths(document), document.warnings) == (["%C3%A9"], ("sitemap-malformed",))


def test_white_space_before_the_declaration_is_noted() -> None:
    document = read("\n " + urlset(entry("a")))
    assert (paths(document), document.warnings) == (["a"], ("sitemap-malformed",))


PLAIN = urlset(entry("a") + entry("b")).encode()


def packed(data: bytes) -> bytes:
    """Without the time of day, which would become part of a test's name."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("data", "expected", "warnings"),
    [
        (packed(PLAIN), ["a", "b"], ()),
        (packed(packed(PLAIN)), ["a", "b"], ()),
        (packed(PLAIN[:150]) + packed(PLAIN[150:]), ["a", "b"], ()),
        (packed(PLAIN) + b"\0" * 512, ["a", "b"], ()),
        (packed(PLAIN) + b"junk", ["a", "b"], ()),
        (packed(b"https://site.test/a"), ["a"], ()),
        (packed(PLAIN)[:-4], ["a", "b"], ("sitemap-gzip-truncated",)),
        (packed(PLAIN)[:-8] + b"\0" * 8, [], ("sitemap-gzip-truncated",)),
        (b"\x1f\x8bcorrupt", [], ("sitemap-gzip-truncated",)),
        (b"\x1f\x8b", [], ("sitemap-gzip-truncated",)),
        (packed(packed(packed(PLAIN))), [], ("sitemap-not-xml",)),
        (packed(b""), [], ("sitemap-empty",)),
    ],
)
def test_gzip_is_recognised_by_content(data: bytes, expected: list[str], warnings: tuple[str, ...]) -> None:
    document = read(data, "text/html")
    assert (paths(document), document.warnings) == (expected, warnings)


def test_truncated_gzip_gives_whole_entries_only() -> None:
    data = gzip.compress(urlset("".join(entry(f"{n * 7919 % 10007}") for n in range(5000))).encode())
    document = read(data[: len(data) // 2])
    assert 100 < len(document.urls) < 5000
    assert paths(document) == [f"{n * 7919 % 10007}" for n in range(len(document.urls))]
    assert "sitemap-gzip-truncated" in document.warnings


def test_number_of_entries_is_bounded_by_the_protocol() -> None:
    listed = "".join(entry(str(n)) for n in range(MAX_SITEMAP_URLS))
    assert read(urlset(listed)).warnings == ()
    document = read(urlset(listed + entry("more") + entry("more")))
    assert (len(document.urls), document.warnings) == (MAX_SITEMAP_URLS, ("sitemap-url-limit",))
    assert len(read(urlset(listed), max_urls=100).urls) == 100


@pytest.mark.parametrize("layers", [1, 2])
def test_a_gzip_bomb_costs_its_limit_and_no_memory(layers: int) -> None:
    data = gzip.compress(urlset(entry("a")).encode()[:-9] + b" " * 60_000_000)
    for _ in range(layers - 1):
        data = gzip.compress(data)
    tracemalloc.start()
    try:
        document = read(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert paths(document) == ["a"]
    assert "sitemap-size-limit" in document.warnings
    assert document.unpacked_bytes == 52_428_800
    assert peak < 4 * 1024 * 1024


@pytest.mark.parametrize(
    "unit",
    ["<x>", "<url>", "<url>&", "&", "<!--", "<url a='", "<![CDATA[", "<?", "<url><loc>", "<!DOCTYPE a><url>", "]]>", "\n", "</", "<url/>"],
)
def test_hostile_documents_take_linear_time_and_little_memory(unit: str) -> None:
    def measure(size: int) -> tuple[float, int]:
        data = f"<urlset>{entry('a')}{unit * (size // len(unit))}".encode()
        started = time.process_time()
        read(data)
        seconds = time.process_time() - started
        tracemalloc.start()
        read(data[:100_000])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return seconds, peak

    small, _ = measure(50_000)
    large, peak = measure(200_000)
    assert large < 0.2 or large / small < 12  # 4 is linear, 16 quadratic
    assert peak < 3 * 1024 * 1024


@pytest.mark.parametrize(
    ("unit", "warning"), [("<url/>", "sitemap-url-limit"), ("<x/>", "sitemap-size-limit"), ("\nx", "sitemap-size-limit")]
)
def test_what_lists_nothing_is_bounded_in_number_too(unit: str, warning: str) -> None:
    start = "https://site.test/a" if unit.startswith("\n") else "<urlset>" + entry("a")
    document = read(start + unit * (2_100_000 if unit == "<x/>" else 210_000))
    assert (paths(document), warning in document.warnings) == (["a"], True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024", "2024"),
        ("2024-05", "2024-05"),
        (" 2024-05-01 ", "2024-05-01"),
        ("2024-05-01T10:20Z", "2024-05-01T10:20:00Z"),
        ("2024-05-01T10:20:30Z", "2024-05-01T10:20:30Z"),
        ("2024-05-01T10:20:30.123456789+02:00", "2024-05-01T08:20:30Z"),
        ("2024-05-01T10:20:30-11:30", "2024-05-01T21:50:30Z"),
        ("2024-02-29", "2024-02-29"),
        ("2023-02-29", None),
        ("2024-13", None),
        ("2024-05-01T24:00Z", None),
        ("2024-05-01T10:20:30", None),
        ("2024-05-01T10:20", None),
        ("2024-05-01 10:20:30Z", None),
        ("2024-05-01T10:20:30+0200", None),
        ("2024-05-01T10:20:30+24:00", None),
        ("2024-05-01T10Z", None),
        ("0001-01-01T00:00+01:00", None),
        ("0000", None),
        ("٢٠٢٤", None),
        ("24", None),
        ("yesterday", None),
        ("2024-05-01T10:20:30." + "1" * 100 + "Z", None),
        ("", None),
    ],
)
def test_w3c_times_in_utc_at_their_own_precision(text: str, expected: str | None) -> None:
    assert w3c_instant(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Wed, 01 May 2024 10:00:00 +0200", "2024-05-01T08:00:00Z"),
        ("01 May 2024 10:00:00 GMT", "2024-05-01T10:00:00Z"),
        ("Wed, 01 May 2024 10:00:00", None),
        ("Wed, 01 May 2024 10:00:00 -0000", None),
        ("Wed, 31 Feb 2024 10:00:00 GMT", None),
        ("soon", None),
        ("", None),
        ("x" * 1000, None),
    ],
)
def test_rfc_822_dates_need_a_zone(text: str, expected: str | None) -> None:
    assert rfc822_instant(text) == expected


@given(st.text(max_size=70))
def test_dates_are_total(text: str) -> None:
    w3c_instant(text)
    rfc822_instant(text)


@given(
    st.text(alphabet="<>/&;url locsitemapndx![]-?'\"=#x0A\n", max_size=120),
    st.sampled_from(["", "<urlset>", "<rss><item>", "<!DOCTYPE a [", "\x1f\x8b"]),
)
def test_any_document_is_read(text: str, prefix: str) -> None:
    for data in ((prefix + text).encode(), gzip.compress((prefix + text).encode()), (prefix + text).encode("utf-16")):
        document = read(data)
        assert document.urls or document.sitemaps or document.warnings
