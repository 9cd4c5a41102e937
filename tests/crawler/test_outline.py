"""Large pages are reduced to their tags first: same links, bounded cost."""

from __future__ import annotations

import random

import pytest

from forage.crawler.links import extract_links
from forage.crawler.outline import MAX_ATTRIBUTES, MAX_WHOLE, outline

FILLER = "<!--" + "x" * (MAX_WHOLE + 1) + "-->"


def links_of(html: str) -> list[tuple[str, str, bool]]:
    page = extract_links(html.encode(), page_url="https://site.test/dir/page.html", content_type="text/html; charset=utf-8")
    return [(link.kind, link.url, link.nofollow) for link in page.links]


CASES = [
    "<a href=/1>x</a><area href=/2><iframe src=/3></iframe><link rel=next href=/4><base href=/b/>",
    "<base href=/b/><meta http-equiv=refresh content='0;url=5'>",
    "<A HREF=/1 REL='x NOFOLLOW'>x",
    "<a href=/x\"y>z</a><a href='/q>text</a><a href=\"/two\">x</a><a href='/3'>",
    "<a/href=/1><a href=/2/><a =x href=/3><a href = /4 ><a href=/5 href=/6><a\nhref\n=\n'/7'\n>",
    "<a href=/eof",
    "<a href='/eof",
    "<a title='>' href=/1><a title=> href=/2>",
    "<!-- <a href=/no> --><a href=/1><!--><a href=/2><!---><a href=/3><!-- --!><a href=/4><!-- -- ><a href=/no> -->",
    "<!doctype html><?pi <a href=/no>><a href=/1><!x <a href=/no>></a <a href=/no>><a href=/2></ <a href=/no>><a href=/3>",
    "<title><a href=/no></title><textarea><a href=/no></TEXTAREA ><style><a href=/no></style><xmp><a href=/no></xmp><a href=/1>",
    "<noembed><a href=/no></noembed><noframes><a href=/no></noframes><iframe src=/1><a href=/no></iframe><noscript><a href=/2></noscript>",
    "<title></titles><a href=/no></title/><a href=/1>",
    "<script><a href=/no></script><a href=/1>",
    '<script>"<!--<script>"</script><a href=/no>--></script><a href=/1>',
    "<script><!-- <script> </script> --> </script><a href=/1>",
    "<script><!--></script><a href=/1>--></script>",
    "<script><!-- <script --></script><a href=/1>",
    "<script><!-- </script><a href=/1>",
    "<script>never closed <a href=/no>",
    "<plaintext><a href=/no>",
    "<template><a href=/no><template><a href=/no></template></template><a href=/1></template><a href=/2>",
    "<svg><a href=/1>x</a><a xlink:href=/2>y</a><base href=/no/><iframe src=/no></iframe><title><a href=/3></title></svg><a href=4>",
    "<svg><g/><foreignObject><a href=/1></a><base href=/b/></foreignObject><link rel=next href=/no></svg><a href=2>",
    "<svg><desc><iframe src=/1></iframe></desc></svg><svg/><iframe src=/2></iframe>",
    "<svg><path d='x'><p><iframe src=/1></iframe>",
    "<svg><font color=red><iframe src=/1></iframe></font><svg><font><iframe src=/no></iframe>",
    "<math><a href=/no></a><mi><a href=/1></mi></math><a href=/2>",
    "<svg><![CDATA[<a href=/no>]]><a href=/1></svg><![CDATA[<a href=/2>]]>",
    "<svg><style><a href=/1></style></svg>",
    "<frameset><frame src=/1><frame src=/2><a href=/no><noframes><a href=/no></noframes></frameset><a href=/no>",
    "<iframe src=/1></iframe><frameset><frame src=/no></frameset>",
    "<p><a href=/no><frameset><frame src=/1>",
    "<frame src=/no><a href=/1>",
    "<a href=/1>text<frameset><frame src=/no>",
    "<a href=/n\0ul><a\0 href=/no><lin\u212a rel=next href=/no><\u017fcript><a href=/2>",
    "&lt;a href=/no> < a href=/no> <<a href=/1>",
    "<a href='/s?a=1&amp;b=2&copy=3&#x26;'>",
    '<p class="a" id=\'b\'><a class="x" href="/1">x</a></p><img alt="<a href=\'/no\'>">',
]


@pytest.mark.parametrize("html", CASES)
def test_links_of_a_large_page_are_those_of_the_whole_tree(html: str) -> None:
    assert links_of(html + FILLER) == links_of(html)
    assert not any("/no" in url for _, url, _ in links_of(html))


TAGS = [
    *("<a href=/{i}>", "</a>", "<A HREF='/{i}' rel=nofollow>", '<a title=">" href=/{i}>', "<area href=/{i}>", "<base href=/b{i}/>"),
    *("<iframe src=/{i}>", "</iframe>", "<link rel=next href=/{i}>", "<meta http-equiv=refresh content='0;url=/{i}'>"),
    *("<div>", "</div>", '<span class="x">', "</span>", "<p>", "</p>", "<b>", "</b>", "<img src=x/>", "<br/>", "text", "<", "&lt;"),
    *("<!-- x -->", "<!--", "-->", "<!-->", "--!>", "<script>", "</script>", "<!--<script>", "<style>", "</style>", "<title>", "</title>"),
    *("<svg>", "</svg>", "<svg/>", "<g>", "<foreignObject>", "</foreignObject>", "<template>", "</template>", "<noscript>", "</noscript>"),
    *("<table>", "<tr>", "<td>", "</table>", "<ul>", "<li>", "</ul>", "<h1>", "</br>", "<?pi", ">", '"', "'", "\0", "\n", '<a href="/{i}'),
]


def soup(seed: int) -> str:
    rng = random.Random(seed)
    return "".join(rng.choice(TAGS).replace("{i}", str(rng.randrange(30))) for _ in range(rng.randrange(1, 14)))


def test_tag_soup_has_the_same_links_in_large_pages() -> None:
    differing = [html for html in map(soup, range(3000)) if sorted(links_of(html + FILLER)) != sorted(links_of(html + "<!-- -->"))]
    # What is left needs the tree: an end tag outside of foreign content that closes what is open in it.
    assert len(differing) <= 6, differing


def test_outline_stays_small_whatever_the_page_holds() -> None:
    heavy = "<a " + " ".join(f"a{i}=1" for i in range(10_000)) + " href=/no>"
    small, complete = outline(heavy + "<div>" * 10_000 + "<a href=/1>", 100)
    assert complete
    assert small.count("=") == MAX_ATTRIBUTES + 1
    assert small.count("<") == 4
    assert outline("<a href=/1>" * 200, 100)[1] is False
