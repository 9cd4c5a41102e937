"""Pages that say "not found" with a status that says "fine" (pure).

A site is asked once for a path that cannot exist. A page that answers as that did is a soft 404: it redirects to the same place, or shows
the same text, title and headings once clocks, tokens and the asked path are left out. Where the site answers honestly (4xx), or the probe
itself failed, there is no verdict, and pages count as real. A flag, never a reason to drop a page.
"""

from __future__ import annotations

import re
from collections import Counter

import attrs

from forage.crawler.links import parse_html
from forage.crawler.outline import MAX_WHOLE
from forage.crawler.sniff import Markup, read_markup
from forage.crawler.urls import canonical_url

__all__ = ["Answer", "MissingPage", "is_soft_404"]

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_CHUNK = re.compile(r"\S+")
_CHANGING = re.compile(r"[0-9A-Fa-f]{6,}|[0-9]+")
_HIDDEN = ["script", "style", "noscript", "template", "svg", "head"]
_TOLERANCE = 0.1
_FREE_WORDS = 2
_SHELL_WORDS = 3


@attrs.frozen(kw_only=True)
class Answer:
    """What a server said: a redirect with its ``location``, or a body. ``url`` is the one that was asked for, None when unknown."""

    status: int
    body: bytes | str = attrs.field(default=b"", repr=False)
    location: str | None = None
    url: str | None = None
    content_type: str | None = None


@attrs.frozen
class _Face:
    """What a reader sees of a page, without what changes from one request to the next."""

    words: Counter[str]
    title: tuple[str, ...]
    headings: tuple[str, ...]
    bare: str


class MissingPage:
    """How a site answers for what it does not have, from its ``probe``; reads at most the first 16 KiB of text of either side."""

    def __init__(self, probe: Answer) -> None:
        self._probe = probe
        self._face = _face(probe) if _succeeded(probe) else None
        if self._face is not None and _is_shell(self._face):
            self._face = None

    def matches(self, page: Answer) -> bool:
        """Whether ``page`` is that answer again. Linear in the bodies; never raises."""
        if _redirects(self._probe):
            return _redirects(page) and self._same_target(page)
        if self._face is None or not _succeeded(page):
            return False
        return _alike(self._face, _face(page))

    def _same_target(self, page: Answer) -> bool:
        page_url = page.url or self._probe.url
        target = canonical_url(page.location or "", page_url)
        missing = canonical_url(self._probe.location or "", self._probe.url or page_url)
        return target is not None and target == missing


def is_soft_404(page: Answer, probe: Answer) -> bool:
    """Whether ``page`` is what the site answers for a path that cannot exist."""
    return MissingPage(probe).matches(page)


def _redirects(answer: Answer) -> bool:
    return answer.status in (301, 302, 303, 307, 308) and answer.location is not None


def _succeeded(answer: Answer) -> bool:
    return 200 <= answer.status < 300


def _face(answer: Answer) -> _Face:
    markup = read_markup(answer.body, answer.content_type or "text/html")
    text = markup.text[:MAX_WHOLE] if isinstance(markup, Markup) else ""
    parser = parse_html(text)
    asked = set(_plain_words(answer.url.partition("://")[2].partition("/")[2])) if answer.url else set()
    title = parser.css_first("title")
    headings = [node.text(separator=" ") for node in parser.css("h1, h2")]
    title_words = _visible(title.text() if title is not None else "", asked)
    heading_words = _visible(" ".join(headings), asked)
    parser.strip_tags(_HIDDEN)
    body = parser.body
    words = _visible(body.text(separator=" ") if body is not None else "", asked)
    return _Face(Counter(words), title_words, heading_words, _CHANGING.sub("", text).strip())


def _is_shell(face: _Face) -> bool:
    """An application that a script builds: it looks the same for every path until it was rendered, so it proves nothing."""
    return face.words.total() <= _SHELL_WORDS and "<script" in face.bare.lower()


def _plain_words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _visible(text: str, asked: set[str]) -> tuple[str, ...]:
    """Words, but none of a path, a clock or a token, nor of the path that was asked for."""
    kept: list[str] = []
    for chunk in _CHUNK.findall(text):
        if "/" not in chunk and not any(map(str.isdigit, chunk)):
            kept += [word for word in _plain_words(chunk) if word not in asked]
    return tuple(kept)


def _alike(missing: _Face, page: _Face) -> bool:
    if missing.title != page.title or missing.headings != page.headings:
        return False
    if not missing.words and not page.words:
        return missing.bare == page.bare
    differing = sum(((missing.words - page.words) + (page.words - missing.words)).values())
    return differing <= max(_FREE_WORDS, _TOLERANCE * max(missing.words.total(), page.words.total()))
