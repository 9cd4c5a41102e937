"""Links of one page: what a crawl may follow, in document order (pure).

Reads anchors, areas, frames, refreshes, rel links and their HTTP header forms. HTML is parsed by lexbor once, with scripting off; tags are
walked, not queried. Every step is linear and bounded: `MAX_MARKUP_BYTES` of the body, `MAX_LINKS` links, `MAX_URL_LENGTH` characters
of a URL. Owns what counts as a link and which kind it has; encodings are `sniff`'s, URLs `hrefs`', the grammars `relations`'. Forms,
scripts, pings and data attributes are never links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import attrs
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from forage.crawler.hrefs import HrefMemo, HrefResolver, resolve_base
from forage.crawler.outline import MAX_WHOLE, outline
from forage.crawler.relations import header_links, link_kind, parse_refresh, says_nofollow, says_nofollow_header
from forage.crawler.sniff import Kind, Markup, read_markup
from forage.crawler.xhtml import NotWellFormedError, read_elements
from forage.fetch import product_token

__all__ = ["MAX_LINKS", "MAX_LINK_CHARACTERS", "Link", "LinkMemo", "PageLinks", "extract_links", "parse_html"]

MAX_LINKS = 50_000
"""Links of one page; the rest is dropped with the warning ``too-many-links``."""

MAX_LINK_CHARACTERS = 4 * 1024 * 1024
"""Characters of all links of a page together: a long base and short hrefs must not turn a small page into gigabytes."""

_MAX_ELEMENTS = 4 * MAX_LINKS  # among them duplicates and what is no link
_TAGS = frozenset(["a", "area", "base", "frame", "iframe", "link", "meta"])
_FOREIGN = frozenset(["svg", "math"])
_WALKED = _TAGS | _FOREIGN
_MEMO_LINKS, _MEMO_LENGTH = 16_384, 256

Element = tuple[str, Mapping[str, "str | None"]]
"""Name and attributes; the link of SVG is called ``svg:a``."""


class Link(NamedTuple):
    """A fetch URL that a page names, and how: ``a area frame refresh canonical next prev alternate feed`` (``sitemap`` for those of
    sitemaps, ``navigation`` for where a rendered page tried to go). ``nofollow`` only when every mention says so. ``delay`` is the wait of
    a refresh in seconds. A tuple, because a crawl makes more of them than of anything else.
    """

    kind: str
    url: str
    nofollow: bool = False
    delay: float | None = None


_new_link = tuple.__new__  # what Link() comes to, without its wrapper


class LinkMemo(HrefMemo):
    """Hrefs, and the links of anchors that say no more than their URL: one object for all pages that have it, which is easier on the
    collector of garbage than one each. Bounded. For one thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self._plain: dict[str, Link] = {}

    def plain(self, url: str) -> Link:
        """The link of kind ``a``, without nofollow."""
        link = self._plain.get(url)
        if link is None:
            link = _new_link(Link, ("a", url, False, None))
            if len(url) <= _MEMO_LENGTH:
                if len(self._plain) >= _MEMO_LINKS:
                    self._plain.clear()
                self._plain[url] = link
        return link


@attrs.frozen(kw_only=True)
class PageLinks:
    """``links`` in document order, header lines first, one per fetch URL and never the page itself; ``warnings`` are codes."""

    links: tuple[Link, ...] = ()
    warnings: tuple[str, ...] = ()


def extract_links(
    body: bytes | str,
    *,
    page_url: str,
    content_type: str | None,
    headers: Sequence[tuple[str, str]] = (),
    user_agent: str | None = None,
    decoded: str | None = None,
    memo: LinkMemo | None = None,
) -> PageLinks:
    """The links of a page. Never raises; trouble is a warning and the links that were readable.

    ``page_url`` is the URL that answered; ``headers`` those of the answer (Link, Refresh and X-Robots-Tag are read); ``user_agent`` names
    the robot whose directives count beside those for all. A ``str`` body is taken as decoded. ``decoded`` is what UTF-8 makes of
    ``bytes``, errors replaced, where the caller has it; ``memo`` is shared by pages that are read one after another.
    """
    collector = _Collector(page_url, user_agent, memo)
    collector.read_headers(headers)
    markup = read_markup(body, content_type, decoded)
    if isinstance(markup, Markup):
        warnings = list(markup.warnings)
        collector.read_elements(_elements(markup, warnings), markup.encoding)
    else:
        warnings = list(markup)
    return collector.finish(warnings)


def parse_html(text: str | bytes) -> LexborHTMLParser:
    """The one way that pages are parsed here, from text or its UTF-8: scripting off, and without the events that only style a select."""
    return LexborHTMLParser(text, options=LexborDocumentOptions.WO_EVENTS)


def _elements(markup: Markup, warnings: list[str]) -> Iterable[Element]:
    if markup.kind is not Kind.HTML:
        try:
            return read_elements(markup.text, _TAGS.__contains__, _MAX_ELEMENTS, lenient=markup.kind is Kind.XHTML)
        except NotWellFormedError as exc:
            warnings.append("xml-malformed")
            if markup.kind is Kind.XML:
                return exc.elements
    text = markup.text
    if len(text) > MAX_WHOLE:
        text, complete = outline(text, _MAX_ELEMENTS)
        if not complete:
            warnings.append("too-many-links")
    elif markup.utf8 is not None:
        return _walk(parse_html(markup.utf8))
    return _walk(parse_html(text))


@cache
def _numbers() -> Mapping[int, str]:
    """The parser's numbers of the tags that are looked at: a number costs a third of a name, and most elements are of other tags."""
    parser = parse_html("")
    nodes = [parser.create_node(tag) for tag in sorted(_WALKED)]
    return {node.tag_id: tag for node in nodes if (tag := node.tag) is not None}


def _walk(parser: LexborHTMLParser) -> Iterator[Element]:
    root = parser.root
    if root is None:
        return
    tags = _numbers()
    foreign: _ForeignContent | None = None  # from the first element on that may hold any
    for node in [node for node in root.traverse() if node.tag_id in tags]:
        tag = tags[node.tag_id]
        if foreign is None:
            if tag in _FOREIGN:
                foreign = _ForeignContent()
            else:
                yield tag, node.attributes
        elif tag in _TAGS:
            space = foreign.inside(node.parent)
            if space == "html":
                yield tag, node.attributes
            elif space == "svg" and tag == "a":
                yield "svg:a", node.attributes


_INTEGRATION_POINTS = {
    "svg": frozenset(["foreignObject", "desc", "title"]),
    "math": frozenset(["mi", "mo", "mn", "ms", "mtext", "annotation-xml"]),
}


class _ForeignContent:
    """Tells elements of HTML from namesakes within SVG and MathML. Each ancestor is looked at once, so deep nesting costs no more."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def inside(self, node: LexborNode | None) -> str:
        """The namespace of the children of a node: ``html``, ``svg`` or ``math``."""
        trail: list[LexborNode] = []
        space = "html"
        while node is not None:
            known = self._known.get(node.mem_id)
            if known is not None:
                space = known
                break
            trail.append(node)
            node = node.parent
        for above in reversed(trail):
            tag = above.tag
            if space == "html":
                space = tag if tag in _INTEGRATION_POINTS else "html"
            elif tag in _INTEGRATION_POINTS[space]:
                space = "html"
            self._known[above.mem_id] = space
        return space


@lru_cache(maxsize=16)
def _product_token(user_agent: str) -> str:
    return product_token(user_agent)


def _says_no(rel: str | None) -> bool:
    return rel is not None and "nofollow" in rel.lower().split()


class _Collector:
    """Gathers links under one key each, and what the page says about all of them."""

    def __init__(self, page_url: str, user_agent: str | None, memo: LinkMemo | None) -> None:
        self._page_url = page_url
        self._memo = LinkMemo() if memo is None else memo
        self._plain = self._memo.plain
        self._resolver = HrefResolver(page_url, memo=self._memo)
        self._self = self._resolver.here
        self._agent = None if user_agent is None else _product_token(user_agent)
        self._nofollow = False
        self._found: dict[str, Link] = {}
        self._hrefs: dict[str, str | None] = {}
        self._too_long = False
        self._full = False
        self._characters = 0

    def read_headers(self, headers: Sequence[tuple[str, str]]) -> None:
        refreshes: list[str] = []
        for field, value in headers:
            name = field.lower()
            if name == "link":
                self._header_links(value)
            elif name == "refresh":
                refreshes.append(value)
            elif name == "x-robots-tag" and says_nofollow_header(value, self._agent):
                self._nofollow = True
        for value in refreshes:
            self._refresh(value)

    def _header_links(self, value: str) -> None:
        for href, parameters in header_links(value):
            kind = link_kind(parameters.get("rel", ""), parameters.get("type"))
            anchor = parameters.get("anchor")
            # RFC 8288 section 3.2: with an anchor elsewhere, the link is not one of this page.
            if kind is not None and (anchor is None or self._resolver.resolve(anchor) == self._self):
                self._add(kind, href, nofollow=_says_no(parameters.get("rel")))

    def read_elements(self, elements: Iterable[Element], encoding: str) -> None:
        elements = list(elements)
        bases = [a["href"] or "" for tag, a in elements if tag == "base" and "href" in a]
        self._use_base(bases[0] if bases else None, encoding)
        for tag, attributes in elements:
            if tag in ("a", "area"):
                href = attributes.get("href")
                if href is not None or "href" in attributes:
                    self._add(tag, href or "", "rel" in attributes and _says_no(attributes["rel"]))
            elif tag == "svg:a":
                name = "href" if "href" in attributes else "xlink:href"
                if name in attributes:
                    self._add("a", attributes[name] or "", nofollow=_says_no(attributes.get("rel")))
            elif tag == "link":
                self._link(attributes)
            elif tag == "meta":
                self._meta(attributes)
            elif tag != "base" and "srcdoc" not in attributes and (src := attributes.get("src")):
                self._add("frame", src)

    def _use_base(self, base: str | None, encoding: str) -> None:
        """HTML Standard, "set the frozen base URL": the first base with an href counts, unless it is unusable."""
        if base is None and encoding == "utf-8":
            return
        url = None if base is None else resolve_base(base, self._page_url, encoding)
        self._too_long |= self._resolver.too_long
        self._resolver = HrefResolver(url or self._page_url, encoding, self._memo)
        self._hrefs.clear()

    def _link(self, attributes: Mapping[str, str | None]) -> None:
        href, rel = attributes.get("href"), attributes.get("rel")
        if href and rel and (kind := link_kind(rel, attributes.get("type"))) is not None:
            self._add(kind, href, nofollow=_says_no(rel))

    def _meta(self, attributes: Mapping[str, str | None]) -> None:
        content = attributes.get("content")
        if not content:
            return
        if (attributes.get("http-equiv") or "").lower() == "refresh":
            self._refresh(content)
        name = (attributes.get("name") or "").strip(" \t\n\f\r").lower()
        if name and name in ("robots", self._agent) and says_nofollow(content):
            self._nofollow = True

    def _refresh(self, content: str) -> None:
        refresh = parse_refresh(content)
        if refresh is not None:
            self._add("refresh", refresh[1], delay=refresh[0])

    def _add(self, kind: str, href: str, nofollow: bool = False, delay: float | None = None) -> None:
        if self._full:
            return
        url = self._resolver.memorised(href)
        if url is None:
            url = self._hrefs.get(href, "")
            if url == "":
                url = self._resolve(href)
            if url is None:
                return
        known = self._found.get(url)
        if known is None:
            if url == self._self:
                return
            if len(self._found) >= MAX_LINKS:
                self._full = True
                return
            self._found[url] = self._plain(url) if kind == "a" and not nofollow else _new_link(Link, (kind, url, nofollow, delay))
            self._characters += len(url)
            self._full = self._characters > MAX_LINK_CHARACTERS
        elif known.nofollow and not nofollow:
            self._found[url] = known._replace(nofollow=False)

    def _resolve(self, href: str) -> str | None:
        """The fetch URL of an href that the page had not named before; for a known link its own text, so that many hrefs keep one copy."""
        url = self._resolver.resolve(href)
        if url is not None:
            known = self._found.get(url)
            url = known.url if known is not None else self._self if url == self._self else url
        self._hrefs[href] = url
        return url

    def finish(self, warnings: list[str]) -> PageLinks:
        if self._too_long or self._resolver.too_long:
            warnings.append("url-too-long")
        if self._full and "too-many-links" not in warnings:
            warnings.append("too-many-links")
        links = tuple(self._found.values())
        if self._nofollow:
            links = tuple([link._replace(nofollow=True) for link in links])
        return PageLinks(links=links, warnings=tuple(warnings))
