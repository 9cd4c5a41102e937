"""Hrefs of a document: the shortcut equals the parser, and queries follow the encoding of the document."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forage.crawler.hrefs import HrefResolver, encode_query, resolve_base
from forage.crawler.urls import MAX_URL_LENGTH, canonical_url

BASES = ["https://site.test/dir/page.html?q=1#f", "http://u:p@site.test:8080", "https://[2001:db8::1]/", "ftp://f.test/d/", "mailto:a@b"]
BASES += [
    "http://site.test//a//b/",
    "https://site.test/a/../b/.;/c?x=/y/z",
    "https://xn--a.test/",
    "HTTP://1.2/a b/'",
    "http://site.test?a/b",
]
CLEAN = "abcXYZ0189-_.~!$&'()*+,;=:@/%?#"
STARTS = ["/", "//", "/.", "/..", "", "/a/", "/%2e", "\\", "./", "../", "../../", "../../../../../", "./../", "..", "?", "#", "a/", "a:"]
STARTS += ["//site.test", "//site.test/", "//site.test:8080/", "https://site.test/", "https://site.test:443/", "http://site.test:8080"]
STARTS += ["HTTP://site.test/", "http:/", "https:", "http://u@site.test/", "//Site.test/", "http://1.2/", "http://xn--a/", "https://[::1]/"]
STARTS += ["ftp://site.test/", "mailto:", "java\nscript:", " javascript:", "data:,", "//other.test/", "http://a..b/", "http://site.test./"]


@given(st.sampled_from(BASES), st.text(alphabet=CLEAN, max_size=30), st.sampled_from(STARTS))
@example(BASES[0], "./b", "/a/")
@example(BASES[0], "#\t\n x", "/a")
@example(BASES[0], "?x='", "/a")
@example(BASES[0], "?x", "../")
@example(BASES[0], "", "")
def test_joining_a_clean_href_equals_the_parser(base: str, text: str, start: str) -> None:
    href = start + text
    assert HrefResolver(base).resolve(href) == canonical_url(href, base)


@given(st.sampled_from(BASES), st.text(max_size=30))
def test_any_href_equals_the_parser(base: str, text: str) -> None:
    for href in (text, "/" + text, "/a?" + text, "/a#" + text):
        assert HrefResolver(base).resolve(href) == canonical_url(href, base)


@pytest.mark.parametrize(
    ("href", "too_long"),
    [
        ("/" + "a" * MAX_URL_LENGTH, True),
        ("https://other.test/" + "a" * MAX_URL_LENGTH, True),
        ("//other.test/" + "é" * 2000, True),
        ("/a#" + "f" * 100_000, False),
        (" " * 100_000 + "/a", False),
        ("data:text/html," + "x" * 100_000, False),
        ("javascript:" + "x" * 100_000, False),
    ],
)
def test_urls_above_the_limit_are_dropped_and_noted(href: str, too_long: bool) -> None:
    resolver = HrefResolver("https://site.test/")
    url = resolver.resolve(href)
    assert url is None or len(url) <= MAX_URL_LENGTH
    assert resolver.too_long is too_long
    assert (url == "https://site.test/a") is ("/a" in href[-2:] or href.startswith("/a#"))


@pytest.mark.parametrize(
    ("encoding", "query", "expected"),
    [
        ("windows-1251", "тест", "%F2%E5%F1%F2"),
        ("windows-1252", "€é日", "%80%E9%26%2326085%3B"),
        ("koi8-r", "поиск", "%D0%CF%C9%D3%CB"),
        ("iso-8859-8-i", "א", "%E0"),
        ("gbk", "北€", "%B1%B1%80"),
        ("gbk", "😀", "%26%23128512%3B"),
        ("gb18030", "😀", "%949%FC6"),
        ("big5", "東十", "%AAF%A4Q"),
        ("shift_jis", "能ｱ", "%94\\%B1"),
        ("shift_jis", "−¥‾", "%81|\\~"),
        ("euc-jp", "日−", "%C6%FC%A1%DD"),
        ("euc-kr", "서", "%BC%AD"),
        ("iso-2022-jp", "日a本", "%1B$BF|%1B(Ba%1B$BK\\%1B(B"),
        ("iso-2022-jp", "日é", "%1B$BF|%1B(B%26%23233%3B"),
        ("utf-16le", "é", "é"),
        ("x-user-defined", "\uf7ff", "%FF"),
        ("windows-1252", "\ud800", "%26%2365533%3B"),
    ],
)
def test_queries_are_written_in_the_encoding_of_the_document(encoding: str, query: str, expected: str) -> None:
    assert encode_query(f"/é?a={query}#é", encoding) == f"/é?a={expected}#é"


def test_only_the_query_is_recoded() -> None:
    assert encode_query("/é#?é", "windows-1252") == "/é#?é"
    assert encode_query("/é", "windows-1252") == "/é"
    assert encode_query("?x", "windows-1252") == "?x"


@pytest.mark.parametrize("encoding", ["windows-1252", "gbk", "big5", "shift_jis", "euc-jp", "euc-kr", "iso-2022-jp", "gb18030", "koi8-u"])
@given(text=st.text(max_size=20))
def test_every_query_can_be_written_in_every_encoding(encoding: str, text: str) -> None:
    written = encode_query("/?" + text.replace("#", ""), encoding)
    assert written.isascii()


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("/b/", "https://site.test/b/"),
        ("", "https://site.test/dir/page.html"),
        ("ftp://f.test/d/", "ftp://f.test/d/"),
        ("mailto:a@b", "mailto:a@b"),
        ("javascript:x", None),
        ("data:text/html,x", None),
        ("http://[bad", None),
        ("/" + "a" * 10_000, None),
        ("\ud800", None),
    ],
)
def test_base_element_sets_any_scheme_but_script_and_data(href: str, expected: str | None) -> None:
    assert resolve_base(href, "https://site.test/dir/page.html", "utf-8") == expected
