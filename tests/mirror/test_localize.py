"""Rule 3 of localising: its examples, one by one, and the properties that make it safe."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.mirror.localize import Dialect, dialect_of, localize, strip_chrome

ARCHIVE = "https://web.archive.org"
HELD = frozenset(f"2012/http://x.org/{path}" for path in ["a.png", "b.png", "p", "é.png", "i?a=1&b=2", "s.svg", "a.png,b.png"])
SAME = None

EXAMPLES = [
    ("<td background=A/web/2012im_/http://x.org/a.png>", "<td background=/web/2012im_/http://x.org/a.png>"),
    ('<object data="A/web/2012oe_/http://x.org/a.png">', '<object data="/web/2012oe_/http://x.org/a.png">'),
    ('<use xlink:href="A/web/2012im_/http://x.org/s.svg#icon"/>', '<use xlink:href="/web/2012im_/http://x.org/s.svg#icon"/>'),
    ('<button formaction="A/web/2012/http://x.org/none">', '<button formaction="/web/2012/http://x.org/none">'),
    (
        '<link imagesrcset="A/web/2012im_/http://x.org/a.png 1x,A/web/2012im_/http://x.org/b.png 2x">',
        '<link imagesrcset="/web/2012im_/http://x.org/a.png 1x,/web/2012im_/http://x.org/b.png 2x">',
    ),
    (
        '<img srcset="A/web/2012im_/http://x.org/a.png, A/web/2012im_/http://x.org/b.png">',
        '<img srcset="/web/2012im_/http://x.org/a.png, /web/2012im_/http://x.org/b.png">',
    ),
    ('<img srcset="A/web/2012im_/http://x.org/a.png,b.png 2x">', '<img srcset="/web/2012im_/http://x.org/a.png,b.png 2x">'),
    ('<img srcset="A/web/2012im_/http://x.org/a.png,A/web/2012im_/http://x.org/b.png">', SAME),
    (
        '<iframe srcdoc="&lt;img src=&quot;A/web/2012im_/http://x.org/i?a=1&amp;amp;b=2&quot;&gt;">',
        '<iframe srcdoc="&lt;img src=&quot;/web/2012im_/http://x.org/i?a=1&amp;amp;b=2&quot;&gt;">',
    ),
    (
        "<meta http-equiv=Refresh content=\"5; url='A/web/2012/http://x.org/none'\">",
        "<meta http-equiv=Refresh content=\"5; url='/web/2012/http://x.org/none'\">",
    ),
    ('<meta property=og:image content="A/web/2012im_/http://x.org/a.png">', SAME),
    ('<base href="A/web/2012/http://x.org/dir/">', '<base href="/web/2012/http://x.org/dir/">'),
    ('<link rel=canonical href="A/web/2012/http://x.org/none">', SAME),
    ('<a href="A/web/2012/mailto:m@x.org">', SAME),
    ('<img alt="a>b" src="A/web/2012im_/http://x.org/a.png">', '<img alt="a>b" src="/web/2012im_/http://x.org/a.png">'),
    (
        '<img src="https&#58;//WEB.archive.org:443/web/2012im_/http://x.org/a.png">',
        '<img src="/web/2012im_/http://x.org/a.png">',
    ),
    ('<img src="A/web/2012im_/http://x.org/i?a=1&amp;b=2">', '<img src="/web/2012im_/http://x.org/i?a=1&amp;b=2">'),
    (
        '<p style="background:url(&quot;A/web/2012im_/http://x.org/a.png&quot;)">',
        '<p style="background:url(&quot;/web/2012im_/http://x.org/a.png&quot;)">',
    ),
    ("<style>p{background:url(A/web/2012im_/http://x.org/i?a=1&amp;b=2)}</style>", SAME),
    ('<img src="A/web/2012im_/http://x.org/é.png">', '<img src="/web/2012im_/http://x.org/é.png">'),
    ('<rect fill="url(A/web/2012im_/http://x.org/s.svg#g)"/>', '<rect fill="url(/web/2012im_/http://x.org/s.svg#g)"/>'),
    ('<img src="https://evil.example/?u=A/web/2012im_/http://x.org/a.png">', SAME),
    (
        '<img src="A/web/2012im_/x.org/a.png"><img src="A/web/2012im_/http://x.org/none">',
        '<img src="/web/2012im_/x.org/a.png"><img src="A/web/2012im_/http://x.org/none">',
    ),
    (
        '<!--[if IE]><img src="A/web/2012im_/http://x.org/a.png"><![endif]-->',
        '<!--[if IE]><img src="/web/2012im_/http://x.org/a.png"><![endif]-->',
    ),
    ('<textarea><img src="A/web/2012im_/http://x.org/a.png"></textarea>', SAME),
    ('<script>f("A/web/2012im_/http://x.org/a.png",t)</script>', '<script>f("/web/2012im_/http://x.org/a.png",t)</script>'),
    ("<img onerror=\"g('A/web/2012im_/http://x.org/a.png')\">", SAME),
    ('<script src="A/_static/js/bundle.js"></script>\n<p>', "<p>"),
    ('<script src="/static/app.js"></script><script>var x="__wm.";</script>', SAME),
    ('<script>__wm.init("A/web");</script> <p>', "<p>"),
]
CSS_EXAMPLES = [
    (
        '@import "A/web/2012cs_/http://x.org/p";a{b:url(//web.archive.org/web/2012im_/http://x.org/a.png)}',
        '@import "/web/2012cs_/http://x.org/p";a{b:url(/web/2012im_/http://x.org/a.png)}',
    ),
    (
        "a{b:url(A/web/2012im_/http://x.org/a.png)}c{d:url(A/web/2012im_/http://x.org/b.png)}",
        "a{b:url(/web/2012im_/http://x.org/a.png)}c{d:url(/web/2012im_/http://x.org/b.png)}",
    ),
]


def spelled(text: str) -> str:
    return text.replace("A/", f"{ARCHIVE}/")


def html(text: str, held: frozenset[str] = HELD) -> str:
    return localize(spelled(text).encode(), "text/html", held).body.decode()


@pytest.mark.parametrize(("given_text", "expected"), EXAMPLES)
def test_examples_in_html(given_text: str, expected: str | None) -> None:
    assert html(given_text) == spelled(given_text if expected is None else expected)


@pytest.mark.parametrize(("given_text", "expected"), CSS_EXAMPLES)
def test_examples_in_css(given_text: str, expected: str) -> None:
    assert localize(spelled(given_text).encode(), "text/css", HELD).body.decode() == spelled(expected)


def test_a_latin_1_page_is_matched_and_its_bytes_stay() -> None:
    page = spelled('<p>\xe9\xa0</p><img src="A/web/2012im_/http://x.org/\xe9.png">').encode("latin-1")
    assert localize(page, "text/html", HELD).body == '<p>\xe9\xa0</p><img src="/web/2012im_/http://x.org/\xe9.png">'.encode("latin-1")


def test_a_reference_to_a_character_is_read_beside_raw_bytes() -> None:
    page = spelled('<p>\xe9</p><img src="A/web/2012im_/http://x.org/\xe9&#8364;.png">').encode("latin-1")
    done = localize(page, "text/html", {"2012/http://x.org/é€.png"})
    assert (done.count, done.body) == (1, page.replace(ARCHIVE.encode(), b""))


def test_the_dialect_of_svg_reads_paint_attributes_and_strips_nothing() -> None:
    body = spelled(
        '<rect fill="url(A/web/2012im_/http://x.org/s.svg#g)"/><script src="/_static/a.js"/><use xlink:href="A/web/2012/http://x.org/p"/>'
    )
    done = localize(body.encode(), "image/svg+xml; charset=utf-8", HELD)
    assert done.dialect is Dialect.SVG
    assert (
        done.body.decode()
        == '<rect fill="url(/web/2012im_/http://x.org/s.svg#g)"/><script src="/_static/a.js"/><use xlink:href="/web/2012/http://x.org/p"/>'
    )


@pytest.mark.parametrize(
    ("content_type", "dialect"),
    [
        ("text/html", "html"),
        (" Text/HTML ;charset=x", "html"),
        ("application/xhtml+xml", "html"),
        ("xhtml", "html"),
        ("a/xhtml", "html"),
        ("a/xhtmlx", None),
        ("text/css", "css"),
        ("application/x-javascript", "js"),
        ("text/ecmascript", "js"),
        ("image/svg+xml", "svg"),
        ("text/xml", None),
        ("application/json", None),
        ("", None),
    ],
)
def test_dialects(content_type: str, dialect: str | None) -> None:
    assert dialect_of(content_type) == dialect


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff"])
def test_utf_16_bodies_are_passed_through(mark: bytes) -> None:
    body = mark + spelled('<img src="A/web/2012im_/http://x.org/a.png"><script src="/_static/x.js"></script>').encode()
    assert localize(body, "text/html", HELD).body == strip_chrome(body) == body


@pytest.mark.parametrize(
    "body",
    [
        '<img src="a>\n<img src="A/web/2012im_/http://x.org/a.png">',  # the first quote runs to the second src
        '<img title="never closed src=A/web/2012im_/http://x.org/a.png>',
        "<style>a{b:url(\\A/web/2012im_/http://x.org/a.png)}</style>",
        '<img src="xA/web/2012im_/http://x.org/a.png">',
        '<img src="A:8080/web/2012im_/http://x.org/a.png">',
        '<img src="A/WEB/2012im_/http://x.org/a.png">',
        '<img src="A/web/201im_/http://x.org/a.png">',
        '<img src="A/web/2012abcd_/http://x.org/a.png">',
        '<img src="A/web/2012im_/">',
        '<a-x href="A/web/2012/http://x.org/none">',
        '<img title="A/web/2012im_/http://x.org/a.png" alt="A/web/2012im_/http://x.org/a.png">',
        "<script>f('A/web/2012im_/http://x.org/a.png\")</script>",
        "<script>f(`A/web/2012im_/http://x.org/a.png`)</script>",
        '<script>f("//web.archive.org/web/2012im_/http://x.org/a.png")</script>',
        '<script src=x>f("A/web/2012im_/http://x.org/a.png")</script>',
        '<script type=x/json src=x></script><xmp><img src="A/web/2012im_/http://x.org/a.png"></xmp>',
        '<meta http-equiv=refresh content="url=A/web/2012/http://x.org/p">',
        '<meta name=refresh content="0;url=A/web/2012/http://x.org/p">',
        '<div srcdoc="<img src=A/web/2012im_/http://x.org/a.png>">',
    ],
)
def test_what_is_no_reference_stays(body: str) -> None:
    assert html(body).replace(ARCHIVE, "A") == spelled(body).replace(ARCHIVE, "A")


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("<IMG SRC = A/web/2012im_/http://x.org/a.png>", 1),
        ("<img/src='A/web/2012im_/http://x.org/a.png'>", 1),
        ('<img src="http://web.archive.org:80/web/2012im_/http://x.org/a.png">', 1),
        ('<img src=" \x0bA/web/2012im_/http://x.org/a.png">', 1),
        ('<img src="A/web/2012im_/http://x.org/none" src="A/web/2012im_/http://x.org/a.png">', 0),
        (
            "<noscript><img src=A/web/2012im_/http://x.org/a.png></noscript><template><img src=A/web/2012/http:/x.org/a.png></template>",
            2,
        ),
        ('<p data-x=\'{"u":"A/web/2012im_/http://x.org/a.png"}\' data-y="url(A/web/2012im_/http://x.org/a.png)">', 2),
        ('<img srcset=" , A/web/2012im_/http://x.org/a.png (x,y) 1x,,A/web/2012im_/http://x.org/b.png,">', 2),
        ('<img srcset="A/web/2012im_/http://x.org/a.png 1x (, A/web/2012im_/http://x.org/b.png 2x">', 1),
        ('<img data-srcset="xA/web/2012im_/http://x.org/a.png 1x, A/web/2012im_/http://x.org/b.png 2x">', 1),
        ('<meta content="0.5,url = A/web/2012/http://x.org/none" http-equiv=" refresh\n">', 1),
        ('<meta http-equiv="refresh" content="3 A/web/2012/http://x.org/none">', 1),
        ('<style>@import "A/web/2012cs_/http://x.org/p', 1),
        ("<p style='a:url(A/web/2012im_/http://x.org/a.png)b:url(A/web/2012im_/http://x.org/b.png)'>", 2),
        ('<img src="A/web/2012im_/http://x.org/a.png)">', 0),
        ('<a href="A/web/2012/http://x.org/a(b" style="x:url(A/web/2012/http://x.org/p)">', 2),
        ('<img src="A/web/2012im_/http://x.org/s.svg#a#b">', 1),
        ("<!-- a <!-- <img src=A/web/2012im_/http://x.org/a.png> --><img src=A/web/2012im_/http://x.org/b.png>", 2),
        ('<!-- <img src="open> --><img src=A/web/2012im_/http://x.org/b.png>', 1),
        ("<title><img src=A/web/2012im_/http://x.org/a.png></titlex></title ><img src=A/web/2012im_/http://x.org/a.png>", 1),
        ("<iframe src=A/web/2012/http://x.org/p><img src=A/web/2012im_/http://x.org/a.png></iframe>", 1),
    ],
)
def test_what_counts_as_a_reference(body: str, count: int) -> None:
    done = localize(spelled(body).encode(), "text/html", HELD)
    assert done.count == count
    assert done.changed is (count > 0)


def test_srcdoc_is_read_three_levels_deep() -> None:
    inner = spelled('<img src="A/web/2012im_/http://x.org/a.png">')
    counts = []
    for _ in range(5):
        counts.append(localize(inner.encode(), "text/html", HELD).count)
        escaped = inner.replace("&", "&amp;").replace('"', "&quot;")
        inner = f'<iframe srcdoc="{escaped}"></iframe>'
    assert counts == [1, 1, 1, 1, 0]


def test_deleting_a_prefix_takes_whole_character_references_and_nothing_more() -> None:
    assert (
        html('<img src="&#x68;ttps://web&#46;archive.org&#x2f;web/2012im_/http://x.org/a.png">')
        == '<img src="&#x2f;web/2012im_/http://x.org/a.png">'
    )


@pytest.mark.parametrize("reference", ["&amp", "&nbsp;", "&AMP;amp;", "&#;", "&#x;", "&#99999999999;", "&#0;", "&#xD800;"])
def test_other_character_references_are_no_match_and_no_error(reference: str) -> None:
    assert localize(spelled(f'<img src="A/web/2012im_/http://x.org/i?a=1{reference}b=2">').encode(), "text/html", HELD).count == 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<!--BEGIN WAYBACK TOOLBAR INSERT--><p><!-- end wayback toolbar insert -->x", "x"),
        (
            "<!-- BEGIN WAYBACK TOOLBAR INSERT -->a<!-- END WAYBACK TOOLBAR INSERT -->b<!-- BEGIN WAYBACK TOOLBAR INSERT -->c",
            "b<!-- BEGIN WAYBACK TOOLBAR INSERT -->c",
        ),
        ("<!-- End Wayback Rewrite JS Include -->\t \r\n\nx", "\nx"),
        ('<script src="//web-static.archive.org/includes/a.js">x</script>\n\ny', "\ny"),
        ('<script src=" &#47;_static/a.js"></script>y', "y"),
        ('<link href="https://www.archive.org/static/a.css">  y', "y"),
        ('<link href="https://web.archive.org.evil.example/static/a.css">', SAME),
        ('<script src="/_static/a.js">', SAME),
        ('<script src="">__wm.init(1)</script>', SAME),
        ("<script>__WM.init(1)</script>", SAME),
        ("<script>archive_analytics.values={}</script>", ""),
        ("<script>window.RufflePlayer=window.RufflePlayer||{};window.RufflePlayer.config={};</script>", ""),
        ('<iframe srcdoc="<script>__wm.init(1)</script>"></iframe>', SAME),
        ('<!-- <script src="/_static/a.js"></script> -->', "<!-- -->"),
        ("<textarea><script>__wm.init(1)</script></textarea>", SAME),
    ],
)
def test_chrome(body: str, expected: str | None) -> None:
    want = body if expected is None else expected
    assert strip_chrome(body.encode()).decode() == want
    assert localize(body.encode(), "text/html", frozenset()).body.decode() == want


def test_a_reference_inside_the_toolbar_goes_with_it_and_does_not_count() -> None:
    body = spelled(
        "<!-- BEGIN WAYBACK TOOLBAR INSERT --><img src=A/web/2012im_/http://x.org/a.png><textarea>"
        "<!-- END WAYBACK TOOLBAR INSERT --><img src=A/web/2012im_/http://x.org/b.png>"
    )
    done = localize(body.encode(), "text/html", HELD)
    assert (done.body, done.count) == (b"<img src=/web/2012im_/http://x.org/b.png>", 1)


FRAGMENTS = st.sampled_from(
    [
        *"<>\"'= /-!()&;,#\\\n",
        "<img src=",
        "<a href=",
        "<p style=",
        "srcset=",
        "<script>",
        "</script>",
        "<style>",
        "</style>",
        "<!--",
        "-->",
        "<iframe srcdoc='",
        "https:",
        "//web.archive.org",
        ":443",
        "/web/2012im_/",
        "/web/2012/",
        "http://x.org/a.png",
        "&quot;",
        "&#47;",
        "&amp;",
        "url(",
        "<!-- BEGIN WAYBACK TOOLBAR INSERT -->",
        "<!-- END WAYBACK TOOLBAR INSERT -->",
        "<script src=/_static/a.js>",
        "\x80",
        "\xe9",
    ]
)
SOUP = st.lists(FRAGMENTS, max_size=40).map(lambda parts: "".join(parts).encode("latin-1"))
TYPES = st.sampled_from(["text/html", "text/css", "text/javascript", "image/svg+xml", "text/plain"])


def is_subsequence(short: bytes, long: bytes) -> bool:
    rest = iter(long)
    return all(byte in rest for byte in short)


@given(SOUP | st.binary(max_size=200), TYPES)
def test_rewriting_only_deletes_and_says_what_it_did(body: bytes, content_type: str) -> None:
    done = localize(body, content_type, HELD)
    assert is_subsequence(done.body, body)
    assert done.changed is (done.body != body)
    assert done.changed or done.count == 0
    assert len(body) - len(done.body) >= done.count * len("//web.archive.org")


@given(SOUP, TYPES)
def test_a_mirror_that_holds_nothing_rewrites_no_subresource_of_css_and_scripts(body: bytes, content_type: str) -> None:
    if content_type not in {"text/html", "image/svg+xml"}:
        assert localize(body, content_type, frozenset()).body == body


@given(SOUP)
def test_what_is_left_of_a_stripped_page_is_the_page_without_whole_spans(body: bytes) -> None:
    assert is_subsequence(strip_chrome(body), body)


def test_root_relative_references_and_other_hosts_are_never_touched() -> None:
    body = '<img src="/web/2012im_/http://x.org/a.png"><img src="https://archive.org/web/2012im_/http://x.org/a.png">'
    assert html(body) == body


HOSTILE = [
    ("text/html", "<"),
    ("text/html", "<a "),
    ("text/html", "<a b='"),
    ("text/html", "<!--"),
    ("text/html", "<script>"),
    ("text/html", "<!-- BEGIN WAYBACK TOOLBAR INSERT -->"),
    ("text/html", "<title></titl"),
    ("text/css", "(//web.archive.org/web/2012/a)"),
    ("text/css", "//web.archive.org/web/2012/("),
    ("text/css", " //web.archive.org/web/2012/))"),
    ("text/javascript", "\"https://web.archive.org/web/2012/a'"),
    ("image/svg+xml", "<a style='&#38;"),
]


@pytest.mark.parametrize(("content_type", "unit"), HOSTILE)
def test_time_is_linear_in_the_body(content_type: str, unit: str) -> None:
    def seconds(copies: int) -> float:
        body = (unit * copies).encode()
        started = time.process_time()
        localize(body, content_type, HELD)
        return time.process_time() - started

    small, large = seconds(4_000), seconds(32_000)
    assert large < 0.1 or large < 30 * max(small, 0.005)


def test_hostile_attribute_values_are_read_in_linear_time() -> None:
    for value in ["&#38;" * 40_000, "," * 200_000, "(" * 200_000, "a " * 100_000, " //web.archive.org/web/2012/(" * 10_000]:
        page = f'<img srcset="{value}" style="{value}" data-x="{value}" src="{value}"><iframe srcdoc="{value}">'.encode()
        started = time.process_time()
        localize(page, "text/html", HELD)
        assert time.process_time() - started < 3
