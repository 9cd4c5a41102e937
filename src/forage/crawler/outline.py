"""A large HTML document reduced to the tags that matter for links, in linear time (pure).

Why: tree builders look through the stack of open elements, the attributes of a tag and the list of formatting elements again and
again, so a hostile page of a few hundred kilobytes costs lexbor seconds, one of 8 MiB hours. A document above `MAX_WHOLE` therefore
passes through here first, and lexbor parses what comes out: links, base, meta and frames only, never more than `MAX_ATTRIBUTES`
attributes in a tag and nothing left open. By construction that is cheap, whatever the input was.

Follows the tokenizer of the HTML Standard (13.2.5) with scripting off: comments, raw text, script with its escapes, CDATA in foreign
content. Of the tree builder it keeps what decides about links: templates, framesets, foreign content, and the start tags that end it.
Tests hold the outcome against the whole tree.
"""

from __future__ import annotations

import re

__all__ = ["MAX_ATTRIBUTES", "MAX_WHOLE", "outline"]

MAX_WHOLE = 16 * 1024
"""Documents up to this many characters are parsed whole: the worst of that size costs lexbor some 50 ms."""

MAX_ATTRIBUTES = 256
"""Attributes of one tag that are read in documents above `MAX_WHOLE`."""

_MAX_FOREIGN_DEPTH = 256

_VOID_LINKS = frozenset(["area", "base", "link", "meta"])
_RAW = frozenset(["title", "textarea", "style", "xmp", "iframe", "noembed", "noframes", "script"])
_FOREIGN = frozenset(["svg", "math"])
_INTEGRATION = {
    "svg": frozenset(["foreignobject", "desc", "title"]),
    "math": frozenset(["mi", "mo", "mn", "ms", "mtext", "annotation-xml"]),
}
# 13.2.6.5: start tags that foreign content cannot hold; they end it.
_BREAKOUT = frozenset(
    [
        *("b", "big", "blockquote", "body", "br", "center", "code", "dd", "div", "dl", "dt", "em", "embed", "h1", "h2", "h3", "h4", "h5"),
        *("h6", "head", "hr", "i", "img", "li", "listing", "menu", "meta", "nobr", "ol", "p", "pre", "ruby", "s", "small", "span"),
        *("strong", "strike", "sub", "sup", "table", "tt", "u", "ul", "var"),
    ]
)

_IN_HEAD = frozenset(["html", "head", "noscript", "script", "style", "title", "template", "noframes", "frameset"]) | _VOID_LINKS - {"area"}
# 13.2.6.4.7: these set the frameset-ok flag to "not ok".
_NO_FRAMESET = frozenset(
    [
        *("applet", "area", "body", "br", "button", "dd", "dt", "embed", "hr", "iframe", "image", "img", "input", "keygen", "li"),
        *("listing", "marquee", "object", "plaintext", "pre", "select", "table", "textarea", "wbr", "xmp"),
    ]
)
_SPACE = "\t\n\f\r \0"  # and what the tree builder ignores

_FONT_BREAKOUT = re.compile(r"(?:color|face|size)[\t\n\f\r />=]|(?:color|face|size)\Z", re.IGNORECASE | re.ASCII)

_S = r"[\t\n\f\r ]"
_NAME = r"[A-Za-z][^\t\n\f\r />]*"
_VALUE = r"""(?:"[^"]*"?|'[^']*'?|[^\t\n\f\r >"'][^\t\n\f\r >]*)"""
# Both match always, as far as they go: where nothing can fail, no input makes a pattern try again.
_TAIL = re.compile(
    rf"((?:[\t\n\f\r /]*[^\t\n\f\r />][^\t\n\f\r />=]*(?:{_S}*={_S}*{_VALUE}?)?){{0,{MAX_ATTRIBUTES}}})([\t\n\f\r /]*)",
)


def _skipping(starts: frozenset[str], ends: frozenset[str]) -> re.Pattern[str]:
    """Text, and tags written the way nearly all are, whose names decide nothing."""
    return re.compile(
        r"(?:[^<]+|<(?![a-z/!?])"
        rf"|<(?!(?:{'|'.join(sorted(starts))})[\t\n\f\r />])[a-z][a-z0-9-]*(?:{_S}+[a-z:_-]+=\"[^\"]*\"){{0,32}}{_S}*/?>"
        rf"|</(?!(?:{'|'.join(sorted(ends))})[\t\n\f\r />])[a-z][a-z0-9-]*>"
        r"){0,512}",
        re.IGNORECASE | re.ASCII,
    )


_POINTS = frozenset().union(*_INTEGRATION.values())
_SKIP = _skipping(frozenset(["a", "frame", "template", "plaintext"]) | _VOID_LINKS | _RAW | _FOREIGN, frozenset(["template"]))
_SKIP_FOREIGN = _skipping(
    frozenset(["a", "font"]) | _BREAKOUT | _FOREIGN | _POINTS, frozenset(["p", "br", "template"]) | _FOREIGN | _POINTS
)
_TAG = re.compile(rf"<(/?)({_NAME})")
_ABRUPT = re.compile(r"-?>")
_COMMENT_END = re.compile(r"--!?>")
_RAW_END = {name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE | re.ASCII) for name in sorted(_RAW - {"script"})}
_SCRIPT = re.compile(r"<!--(-*>)?|-->|<(/?)script(?=[\t\n\f\r />])", re.IGNORECASE | re.ASCII)


def outline(text: str, limit: int) -> tuple[str, bool]:
    """A small document with the same links in the same order, at most ``limit`` of them, and whether these are all."""
    return _Outline(text, limit).run()


class _Outline:
    def __init__(self, text: str, limit: int) -> None:
        self._text = text
        self._limit = limit
        self._out: list[str] = []
        self._templates = 0
        self._frameset = False
        # Open foreign elements and the integration points within them: their names, and what their children belong to.
        self._stack: list[tuple[str, str]] = []

    def run(self) -> tuple[str, bool]:
        text, out = self._text, self._out
        at = self._opening()
        while at != -1 and len(out) < self._limit:
            skip = _SKIP if not self._stack else _SKIP_FOREIGN if self._space != "html" else None
            if skip is not None and (skipped := skip.match(text, at)) is not None:
                at = skipped.end()
            at = text.find("<", at)
            if at == -1:
                break
            tag = _TAG.match(text, at)
            at = self._no_tag(at) if tag is None else self._whole_tag(tag)
        return "".join(out), len(out) < self._limit

    @property
    def _space(self) -> str:
        """What the next element belongs to: ``html``, ``svg`` or ``math``."""
        return self._stack[-1][1] if self._stack else "html"

    def _opening(self) -> int:
        """Read for as long as a frameset could still begin, which takes the place of the body; answers where the text goes on."""
        text, at, body_links = self._text, 0, None
        while not self._frameset and at != -1 and len(self._out) < self._limit:
            opening = text.find("<", at)
            if opening == -1 or text[at:opening].strip(_SPACE):
                return at
            tag = _TAG.match(text, opening)
            if tag is None:
                if not text.startswith(("<!", "<?", "</"), opening):
                    return at
                at = self._no_tag(opening)
                continue
            name = tag[2].lower()
            if name in _NO_FRAMESET and (not tag[1] or name == "br"):
                return opening
            if body_links is None and not tag[1] and name not in _IN_HEAD:
                body_links = len(self._out)
            at = self._whole_tag(tag)
        if self._frameset and body_links is not None:
            del self._out[body_links:]
        return at

    def _no_tag(self, at: int) -> int:
        """The end of a comment, declaration or bogus comment at ``at``, or the next character of text; -1: the document ends in it."""
        text = self._text
        if text.startswith("<!--", at):
            end = _ABRUPT.match(text, at + 4) or _COMMENT_END.search(text, at + 4)
            return -1 if end is None else end.end()
        if text.startswith("<![CDATA[", at) and self._space != "html":
            closing = text.find("]]>", at)
            return -1 if closing == -1 else closing + 3
        if text.startswith(("<!", "<?", "</"), at):
            closing = text.find(">", at)
            return -1 if closing == -1 else closing + 1
        return at + 1

    def _whole_tag(self, tag: re.Match[str]) -> int:
        """Handle one tag; answers where the text goes on, -1 when the document ends in it."""
        text = self._text
        tail = _TAIL.match(text, tag.end())
        assert tail is not None
        last = tail
        while not text.startswith(">", last.end()):
            more = _TAIL.match(text, last.end())
            if more is None or more.end() == last.end():
                return -1
            last = more
        name = tag[2].lower() if tag[2].isascii() else ""
        at = last.end() + 1
        if tag[1]:
            self._end(name)
            return at
        return self._start(name, tail[1], self_closing=last[2].endswith("/"), at=at)

    def _push(self, name: str, space: str) -> None:
        if len(self._stack) < _MAX_FOREIGN_DEPTH:
            self._stack.append((name, space))

    def _end(self, name: str) -> None:
        space = self._space
        if name == "template" and self._templates:
            self._break_out()
            self._templates -= 1
        elif space != "html" and name in ("p", "br"):
            self._break_out()
        elif any(name == open_name for open_name, _ in self._stack):
            while self._stack.pop()[0] != name:
                pass

    def _break_out(self) -> None:
        while self._space != "html":
            self._stack.pop()

    def _start(self, name: str, attributes: str, *, self_closing: bool, at: int) -> int:
        if self._frameset:
            return self._in_frameset(name, attributes, at)
        if self._space != "html":
            if name in _BREAKOUT or (name == "font" and _FONT_BREAKOUT.search(attributes) is not None):
                self._break_out()
            else:
                self._start_foreign(name, attributes, self_closing=self_closing)
                return at
        if name in _FOREIGN:
            if not self_closing:
                self._push(name, name)
        elif name == "template":
            self._templates += 1
        elif name == "frameset":
            self._frameset |= not self._templates
        elif name == "plaintext":
            return -1
        else:
            self._link(name, attributes)
            if name in _RAW:
                return self._raw_end(name, at)
        return at

    def _in_frameset(self, name: str, attributes: str, at: int) -> int:
        """13.2.6.4.20: what is not a frame is ignored."""
        if name == "frame":
            self._out.append(f"<iframe{attributes}></iframe>")
        return self._raw_end(name, at) if name == "noframes" else at

    def _start_foreign(self, name: str, attributes: str, *, self_closing: bool) -> None:
        space = self._space
        if name == "a" and space == "svg" and not self._templates:
            self._out.append(f"<svg><a{attributes}></a></svg>")
        elif self_closing or (name == "annotation-xml" and "html" not in attributes.lower()):
            pass  # an annotation is markup only when it says so
        elif name in _INTEGRATION[space]:
            self._push(name, "html")
        elif name in _FOREIGN:
            self._push(name, space)

    def _link(self, name: str, attributes: str) -> None:
        if self._templates:
            return
        if name == "a":
            self._out.append(f"<a{attributes}></a>")
        elif name in _VOID_LINKS:
            self._out.append(f"<{name}{attributes}>")
        elif name == "iframe":
            self._out.append(f"<iframe{attributes}></iframe>")

    def _raw_end(self, name: str, at: int) -> int:
        """Where the end tag of a raw text element starts."""
        if name != "script":
            end = _RAW_END[name].search(self._text, at)
            return -1 if end is None else end.start()
        escapes = 0  # 1: within <!--, 2: within a script tag in there
        while (step := _SCRIPT.search(self._text, at)) is not None:
            at = step.end()
            if step[0].startswith("<!--"):
                escapes = 0 if step[1] else max(escapes, 1)
            elif step[0] == "-->":
                escapes = 0
            elif step[2]:
                if escapes < 2:
                    return step.start()
                escapes = 1
            elif escapes == 1:
                escapes = 2
        return -1
