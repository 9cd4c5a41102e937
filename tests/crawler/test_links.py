"""Links of a page: which, of which kind, in which order, and bounded."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.crawler import links as module
from forage.crawler.links import MAX_LINKS, Link, LinkMemo, PageLinks, extract_links
from forage.crawler.urls import MAX_URL_LENGTH

PAGE = "https://site.test/dir/page.html"


def read(
    body: str | bytes,
    content_type: str | None = "text/html; charset=utf-8",
    headers: Sequence[tuple[str, str]] = (),
    user_agent: str | None = None,
) -> PageLinks:
    data = body.encode() if isinstance(body, str) else body
    return extract_links(data, page_url=PAGE, content_type=content_type, headers=headers, user_agent=user_agent)


def urls(page: PageLinks) -> list[str]:
    return [link.url.removeprefix("https://site.test") for link in page.links]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<base href=/one/><base href=/two/><a href=x>", ["/one/x"]),
        ("<base href='http://[bad'><base href=/two/><a href=x>", ["/dir/x"]),
        ("<base href='data:text/html,x'><a href=x>", ["/dir/x"]),
        ("<base href=' /b/ '><a href=x>", ["/b/x"]),
        ("<base href='/b/#f'><a href='#g'><a href=x>", ["/b/", "/b/x"]),
        (
            "<base href='https://other.test/d/'><a href=x><a href=/y><a href=//z.test/>",
            ["https://other.test/d/x", "https://other.test/y", "https://z.test/"],
        ),
        ("<base href='mailto:a@b'><a href=x><a href=https://ok.test/>", ["https://ok.test/"]),
        ("<template><base href=/no/></template><a href=x>", ["/dir/x"]),
        ("<math><base href=/no/></math><a href=x>", ["/dir/x"]),
        ("<svg><foreignObject><base href=/yes/></foreignObject></svg><a href=x>", ["/yes/x"]),
        ("<base><base href=/b/><link rel=next href=n>", ["/b/n"]),
    ],
)
def test_first_base_with_an_href_counts_unless_it_is_unusable(html: str, expected: list[str]) -> None:
    assert urls(read(html)) == expected


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<a href>x</a><a href=''>x</a><a href='#f'>x</a><a href=page.html>x</a>", []),
        ("<a href=/x/>y</a>", ["/x/"]),
        ("<a href=/1 href=/2>", ["/1"]),
        ("<area href=/1><a>no</a><a name=x>no</a>", ["/1"]),
        ("<noscript><a href=/1></a></noscript>", ["/1"]),
        ("<select><option><a href=/1>x</a></select>", ["/1"]),
        ("<table><a href=/1>x</a><tr><td><a href=/2>", ["/1", "/2"]),
        ("<a xlink:href=/no>x</a><svg><a xlink:href=/no href=/1 /></svg>", ["/1"]),
        ("<math><a href=/no>x</a></math>", []),
        ("<svg><area href=/no /><iframe src=/no></iframe><link rel=next href=/no /></svg>", []),
        ("<object data=/no></object><embed src=/no><img src=/no longdesc=/no><q cite=/no><body background=/no>", []),
        ("<iframe></iframe><iframe src=''></iframe><iframe src='about:blank'></iframe><iframe src=/f></iframe>", ["/f"]),
        ("<iframe src=/replaced srcdoc='x'></iframe>", []),
        ("<link href=/no><link rel=next><link rel=next href=''><link rel=stylesheet href=/no>", []),
        ("<link rel='alternate stylesheet' href=/no><link rel=previous href=/1>", ["/1"]),
    ],
)
def test_what_is_a_link(html: str, expected: list[str]) -> None:
    assert urls(read(html)) == expected


def test_one_link_per_url_keeps_the_first_kind_and_the_best_mention() -> None:
    page = read("<link rel=canonical href=/x><a rel=nofollow href=/y>1</a><a href=/x#a>2</a><area href=/y#b><a rel=nofollow href=/z>")
    assert page.links == (
        Link(kind="canonical", url="https://site.test/x"),
        Link(kind="a", url="https://site.test/y"),
        Link(kind="a", url="https://site.test/z", nofollow=True),
    )


@pytest.mark.parametrize(
    ("html", "headers", "nofollow"),
    [
        ("<meta name=robots content=none>", (), True),
        ("<meta name=ROBOTS content='noindex,NOFOLLOW'>", (), True),
        ("<meta name=robots content=index><meta name=robots content=nofollow>", (), True),
        ("<meta name=forage content=nofollow>", (), True),
        ("<meta name=otherbot content=nofollow>", (), False),
        ("<meta name=robots content=nofollower>", (), False),
        ("<meta property=robots content=nofollow>", (), False),
        ("", [("X-Robots-Tag", "noindex"), ("x-robots-tag", "nofollow")], True),
        ("", [("x-robots-tag", "otherbot: nofollow")], False),
        ("", [("x-robots-tag", "Forage: none")], True),
    ],
)
def test_page_wide_nofollow_marks_every_link(html: str, headers: Sequence[tuple[str, str]], nofollow: bool) -> None:
    page = read(f"<a href=/1>x</a>{html}<area href=/2>", headers=headers, user_agent="forage/1.0 (+https://site.test/bot)")
    assert [link.nofollow for link in page.links] == [nofollow, nofollow]


def test_header_links_come_first_and_resolve_against_the_page() -> None:
    headers = [
        ("Refresh", "3; url=r"),
        ("Link", '<?p=2>; rel="next"'),
        ("link", "</c>; rel=canonical, </s.css>; rel=stylesheet, </f>; rel=alternate; type=application/atom+xml"),
        ("link", '</other>; rel=next; anchor="/elsewhere", </mine>; rel=prev; anchor="#part"'),
    ]
    page = read("<base href=/b/><a href=x>", headers=headers)
    assert [(link.kind, link.url, link.delay) for link in page.links] == [
        ("next", "https://site.test/dir/page.html?p=2", None),
        ("canonical", "https://site.test/c", None),
        ("feed", "https://site.test/f", None),
        ("prev", "https://site.test/mine", None),
        ("refresh", "https://site.test/dir/r", 3.0),
        ("a", "https://site.test/b/x", None),
    ]


def test_header_links_count_for_what_is_no_markup() -> None:
    page = read(b"%PDF-1.7", "application/pdf", headers=[("link", "</page>; rel=canonical")])
    assert page == PageLinks(links=(Link(kind="canonical", url="https://site.test/page"),))


def test_refresh_carries_its_delay() -> None:
    page = read("<meta http-equiv=Refresh content='30; url=/later'><meta http-equiv=refresh content='0;url=javascript:x'>")
    assert page.links == (Link(kind="refresh", url="https://site.test/later", delay=30.0),)


@pytest.mark.parametrize(
    ("body", "content_type", "expected", "warnings"),
    [
        (
            '<html xmlns="http://www.w3.org/1999/xhtml"><script src="x"/><a href="/1"/><a href="/2">x</a></html>',
            "application/xhtml+xml",
            ["/1", "/2"],
            (),
        ),
        ('<html xmlns="http://www.w3.org/1999/xhtml"><![CDATA[<a href="/no"/>]]><A href="/no"/></html>', "application/xhtml+xml", [], ()),
        (
            (
                '<h:html xmlns:h="http://www.w3.org/1999/xhtml" xmlns:s="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xlink">'
                '<h:a href="/1"/><a href="/no"/><s:a x:href="/2"/><s:iframe src="/no"/><h:template><h:a href="/no"/></h:template></h:html>'
            ),
            "application/xhtml+xml",
            ["/1", "/2"],
            (),
        ),
        ("<html><a href='/1'/><template><a href='/no'/></template></html>", "application/xhtml+xml", ["/1"], ()),
        ("<html><a href='/no'/></html>", "application/xml", [], ()),
        ("<p>not closed<a href=/1>", "application/xhtml+xml", ["/1"], ("xml-malformed",)),
        (
            '<!DOCTYPE html PUBLIC "x" "http://evil.test/x.dtd"><html xmlns="http://www.w3.org/1999/xhtml">&nbsp;<a href="/1"/></html>',
            "application/xhtml+xml",
            ["/1"],
            (),
        ),
        (
            '<!DOCTYPE html [<!ENTITY e "/no">]><html xmlns="http://www.w3.org/1999/xhtml"><a href="&e;"/><a href="/1"/></html>',
            "text/xml",
            [],
            ("xml-malformed",),
        ),
        ('<feed xmlns="http://www.w3.org/2005/Atom"><link href="/no"/></feed>', "application/atom+xml", [], ()),
        ('<d xmlns:h="http://www.w3.org/1999/xhtml"><h:a href="/1"/><b></d>', "application/xml", ["/1"], ("xml-malformed",)),
        ("<a href=/no>", "text/plain", [], ()),
        ("%PDF-1.7 <a href=/no>", "text/html", [], ("content-type-mismatch",)),
    ],
)
def test_xml_is_read_as_xml(body: str, content_type: str, expected: list[str], warnings: tuple[str, ...]) -> None:
    page = read(body, content_type)
    assert (urls(page), page.warnings) == (expected, warnings)


def test_entities_of_a_page_never_expand() -> None:
    entities = '<!ENTITY a0 "x">' + "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 20))
    body = f'<!DOCTYPE html [{entities}]><html xmlns="http://www.w3.org/1999/xhtml"><a href="/&a19;"/></html>'
    started = time.process_time()
    assert all(len(url) < 1000 for url in urls(read(body, "application/xhtml+xml")))
    assert time.process_time() - started < 1


@pytest.mark.parametrize("content_type", [None, "html", "*/*"])
def test_missing_type_is_sniffed(content_type: str | None) -> None:
    assert urls(read("<a href=/x>1</a>", content_type)) == ["/x"]
    assert urls(read("text first <a href=/x>1</a>", content_type)) == []


def test_links_above_the_length_limit_are_dropped_with_a_warning() -> None:
    page = read(f"<a href='/{'a' * MAX_URL_LENGTH}'>x</a><a href=/ok>k</a>")
    assert (urls(page), page.warnings) == (["/ok"], ("url-too-long",))
    assert read(f"<base href='/b/'><a href='data:,{'a' * MAX_URL_LENGTH}'>x</a>").warnings == ()


def test_number_of_links_is_bounded() -> None:
    page = read("".join(f"<a href=/{i}>" for i in range(MAX_LINKS + 10)))
    assert len(page.links) == MAX_LINKS
    assert page.warnings == ("too-many-links",)
    repeated = read("<a href=/x>" * (5 * MAX_LINKS) + "<a href=/lost>")
    assert (urls(repeated), repeated.warnings) == (["/x"], ("too-many-links",))


def test_bodies_above_the_size_limit_are_read_up_to_it() -> None:
    page = read("<a href=/first>" + " " * (9 * 1024 * 1024) + "<a href=/last>")
    assert (urls(page), page.warnings) == (["/first"], ("html-truncated",))


def test_deep_foreign_nesting_is_looked_at_once() -> None:
    depth = 2000
    page = read("<svg>" + "<g>" * depth + "<a href=/1>" * 50 + "<base href=/no/>" * 50)
    assert urls(page) == ["/1"]


def test_rendered_text_needs_no_encoding() -> None:
    page = extract_links("<meta charset=gbk><a href='/é?ü'>", page_url=PAGE, content_type="text/html; charset=gbk")
    assert urls(page) == ["/%C3%A9?%C3%BC"]


@pytest.mark.parametrize(
    "unit",
    [
        *("<div>", "<div><p>", "<b>", "<a href=/x><div>", "<ul><li>", "<font color=red><p>", "<table><tr><td>", "<svg>", "<svg><a href=x>"),
        *("<!--", "<a href='", "<", "</", "<title>", "<script><!--<script>", "<svg><![CDATA[", "<base href=/b>", "<a" + " " * 99),
    ],
)
def test_doubling_a_hostile_page_at_most_doubles_the_time(unit: str) -> None:
    def seconds(size: int) -> float:
        body = unit * (size // len(unit))
        best = 9.0
        for _ in range(2):
            started = time.process_time()
            read(body)
            best = min(best, time.process_time() - started)
        return best

    small, large = seconds(50_000), seconds(200_000)
    assert large < 0.2 or large / small < 12  # 4 is linear, 16 quadratic


@given(
    st.text(alphabet="<>/=\"'& ahrefbscriptvmdlnk!-;#0\n\t\0é", max_size=80),
    st.sampled_from(["text/html", "application/xhtml+xml", "text/xml", None]),
)
def test_any_page_has_links_or_none(text: str, content_type: str | None) -> None:
    for prefix in ("", "<a href='", "<meta http-equiv=refresh content=", "<base href=", "<svg><a xlink:href="):
        page = read(prefix + text, content_type)
        assert all(link.url.startswith(("http://", "https://")) and "#" not in link.url for link in page.links)
        assert len({link.url for link in page.links}) == len(page.links)


@given(st.binary(max_size=120), st.sampled_from(["shift_jis", "gbk", "iso-2022-jp", "utf-16", "x-user-defined", "no-such"]))
def test_any_bytes_in_any_encoding_have_links_or_none(data: bytes, charset: str) -> None:
    read(b"<a href='/?" + data + b"'>", f"text/html; charset={charset}")


def test_pages_are_parsed_without_scripting() -> None:
    assert module.parse_html("<body><noscript><p>x</p></noscript>").css_first("noscript p") is not None


HREFS = ["/a", "/a#b", "//site.test/a", "//other.test/a", "https://site.test/b", "http://site.test/b", "b", "../b", "/a?c", "", "#", "/./a"]
PAGES = ["https://site.test/dir/page.html", "http://site.test/", "https://site.test:8443/a/b", "https://other.test/x", "ftp://site.test/"]
ENDS = [b"", b"\xff", "é".encode(), "\ufffd".encode(), b"<meta charset=gbk>", b"<base href=/base/>"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(PAGES),
            st.lists(st.sampled_from(HREFS), max_size=6),
            st.sampled_from([b"", b"\xef\xbb\xbf"]),
            st.sampled_from(ENDS),
            st.sampled_from(["text/html", "text/html; charset=utf-8", "text/html; charset=gbk", None]),
        ),
        max_size=6,
    )
)
def test_what_is_shared_between_pages_changes_no_link(pages: list[tuple[str, list[str], bytes, bytes, str | None]]) -> None:
    memo = LinkMemo()
    for url, hrefs, mark, end, content_type in pages:
        body = mark + b"<a href='/q?\xc3\xa9'>" + "".join(f"<a href='{href}'>" for href in hrefs).encode() + end
        decoded = body.decode("utf-8", "replace").removeprefix("\ufeff")
        alone = extract_links(body, page_url=url, content_type=content_type)
        assert extract_links(body, page_url=url, content_type=content_type, decoded=decoded, memo=memo) == alone


def test_the_memo_of_hrefs_is_bounded() -> None:
    memo = LinkMemo()
    for page in range(100):
        for host in range(20):
            origin = f"https://site{host}.test"
            html = "".join(f"<a href='/{page}/{n}'>" for n in range(100)) + f"<a href='/{'x' * 1000}'>"
            extract_links(html.encode(), page_url=f"{origin}/", content_type="text/html", memo=memo)
    held = [memo.of(f"https://site{host}.test") for host in range(12, 20)]
    assert all(0 < len(known) <= 4096 for known in held)
    assert all(len(href) <= 256 for known in held for href in known)
    assert not memo.of("https://site0.test")
