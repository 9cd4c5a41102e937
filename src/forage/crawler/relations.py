"""What pages say about their links: rel values, robots directives, Link headers and refreshes (pure).

Grammars of RFC 8288 (Link), the HTML Standard ("shared declarative refresh steps", link types) and, for robots directives, what the
large search engines document. Works on text only; nothing is resolved here. All readers are linear in their input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["header_links", "link_kind", "parse_refresh", "says_nofollow", "says_nofollow_header"]

_SPACE = " \t\n\f\r"
_FEED_TYPES = frozenset(["application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/feed+json"])


def link_kind(rel: str, media_type: str | None) -> str | None:
    """The kind of a link by its rel tokens and type; None for what leads to no page (style sheets, icons, hints)."""
    tokens = rel.lower().split()
    if "canonical" in tokens:
        return "canonical"
    if "next" in tokens:
        return "next"
    if "prev" in tokens or "previous" in tokens:
        return "prev"
    if "amphtml" in tokens:
        return "alternate"
    if "alternate" in tokens and "stylesheet" not in tokens:
        essence = (media_type or "").partition(";")[0].strip(_SPACE).lower()
        return "feed" if essence in _FEED_TYPES else "alternate"
    return None


def says_nofollow(content: str) -> bool:
    """Whether a list of robots directives has ``nofollow``, or ``none``, which includes it."""
    return any(word.strip(_SPACE) in ("nofollow", "none") for word in content.lower().split(","))


_VALUED = frozenset(["unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"])


def says_nofollow_header(value: str, agent: str | None) -> bool:
    """`says_nofollow` for one X-Robots-Tag line; directives behind ``name:`` are for that robot only.

    ``agent`` is our product token in lower case.
    """
    ours = True
    for word in value.lower().split(","):
        name, colon, rest = word.partition(":")
        name = name.strip(_SPACE)
        if colon and name not in _VALUED:
            ours = name in ("robots", "*") or (agent is not None and name == agent)
            word = rest
        if ours and word.strip(_SPACE) in ("nofollow", "none"):
            return True
    return False


# HTML Standard, "shared declarative refresh steps". The text that follows "url" and "=" in an unquoted or quoted form.
_REFRESH = re.compile(r"[ \t\n\f\r]*([0-9]+|(?=\.))[0-9.]*(?:[ \t\n\f\r]*[;,][ \t\n\f\r]*|[ \t\n\f\r]+(?![ \t\n\f\r]))", re.ASCII)
_URL_WORD = re.compile(r"url[ \t\n\f\r]*=[ \t\n\f\r]*", re.IGNORECASE)


def parse_refresh(content: str) -> tuple[float, str] | None:
    """Delay in seconds and target of a refresh; None when it only reloads the page itself or is malformed."""
    match = _REFRESH.match(content)
    if match is None:
        return None
    rest = content[match.end() :]
    word = _URL_WORD.match(rest)
    if word is not None:
        rest = rest[word.end() :]
    quote = rest[:1]
    if quote in ("'", '"') and quote:
        rest = rest[1:].partition(quote)[0]
    delay = float(match[1][:12]) if match[1] else 0.0
    return (delay, rest) if rest else None


# RFC 8288 section 3: quotes are honoured, so a comma in a title ends nothing.
_TARGET = re.compile(r"[\s,]*<([^>]*)>")
_PARAMETER = re.compile(r"""\s*;\s*(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",;]*)))?)?""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def header_links(value: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Targets and parameters of one Link header line, until it stops being well-formed. The first of two equal parameters counts."""
    at = 0
    while (target := _TARGET.match(value, at)) is not None:
        at = target.end()
        parameters: dict[str, str] = {}
        while (match := _PARAMETER.match(value, at)) is not None:
            at = match.end()
            if match[1] is not None:
                text = _ESCAPED.sub(r"\1", match[2]) if match[2] is not None else match[3] or ""
                parameters.setdefault(match[1].lower(), text)
        yield target[1], parameters
