"""A large HTML document reduced to the tags that matter for links, in linear time (pure).

Why: tree builders look through the stack of open elements, the attributes of a tag and the list of formatting elements again and
again, so a hostile page of a few hundred kilobytes costs lexbor seconds, one of 8 MiB hours. A document above `MAX_WHOLE` therefore
passes through here first, and lexbor parses what comes out: links, base, meta and frames only, never more than `MAX_ATTRIBUTES`
attributes in a tag and nothing left open. By construction that is cheap, whatever the input was.

Follows the tokenizer of the HTML Standard (13.2.5) with scripting off: comments, raw text, script with its escapes, CDATA in foreign
content. Of the tree builder it keeps what decides about links: templates, foreign content, and the start tags that end it. Frames are
taken wherever they stand. Tests hold the outcome against the whole tree.
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

_S = r"[\t\n\f\r ]"
_NAME = r"[A-Za-z][^\t\n\f\r />]*"
_VALUE = r"""(?:"[^"]*"?|'[^']*'?|[^\t\n\f\r >"'][^\t\n\f\r >]*)"""
# Both match always, as far as they go: where nothing can fail, no input makes a pattern try again.
_TAIL = re.compile(
    rf"((?:[\t\n\f\r /]*[^\t\n\f\r />][^\t\n\f\r />=]*(?:{_S}*={_S}*{_VALUE}?)?){{0,{MAX_ATTRIBUTES}}})([\t\n\f\r /]*)",
)
_START_NAMES = "|".join(sorted({"a", "frame", "template", "plaintext"} | _VOID_LINKS | _RAW | _FOREIGN))
# Text, and tags written the way nearly all are, of names that decide nothing.
_SKIP = re.compile(
    r"(?:[^<]+"
    rf"|<(?!(?:{_START_NAMES})[\t\n\f\r />])[a-z][a-z0-9-]*(?:{_S}+[a-z:_-]+=\"[^\"]*\"){{0,32}}{_S}*/?>"
    rf"|</(?!template[\t\n\f\r />])[a-z][a-z0-9-]*>"
    r"){0,512}",
    re.IGNORECASE | re.ASCII,
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
        # Open foreign elements and the integration points within them, by name.
        self._stack: list[str] = []

    def run(self) -> tuple[str, bool]:
        text, out, at = self._text, self._out, 0
        while len(out) < self._limit:
            if not self._stack:
                skipped = _SKIP.match(text, at)
                assert skipped is not None  # it matches the empty text, too
                at = skipped.end()
            at = text.find("<", at)
            if at == -1:
                break
            tag = _TAG.match(text, at)
            at = self._no_tag(at) if tag is None else self._whole_tag(tag)
            if at == -1:
                break
        return "".join(out), len(out) < self._limit

    def _no_tag(self, at: int) -> int:
        """The end of a comment, declaration or bogus comment at ``at``, or the next character of text; -1: the document ends in it."""
        text = self._text
        if text.startswith("<!--", at):
            end = _ABRUPT.match(text, at + 4) or _COMMENT_END.search(text, at + 4)
            return -1 if end is None else end.end()
        if text.startswith("<![CDATA[", at) and self._foreign() is not None:
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

    def _foreign(self) -> str | None:
        """``svg`` or ``math`` when what comes next belongs to one."""
        return self._stack[-1] if self._stack and self._stack[-1] in _FOREIGN else None

    def _push(self, name: str) -> None:
        if len(self._stack) < _MAX_FOREIGN_DEPTH:
            self._stack.append(name)

    def _end(self, name: str) -> None:
        foreign = self._foreign()
        if name == "template" and foreign is None:
            self._templates = max(0, self._templates - 1)
        elif foreign is not None and name in ("p", "br"):
            self._break_out()
        elif name in self._stack:
            while self._stack.pop() != name:
                pass

    def _break_out(self) -> None:
        while self._foreign() is not None:
            self._stack.pop()

    def _start(self, name: str, attributes: str, *, self_closing: bool, at: int) -> int:
        foreign = self._foreign()
        if foreign is not None and name in _BREAKOUT:
            self._break_out()
            foreign = None
        if foreign is not None:
            self._start_foreign(foreign, name, attributes, self_closing=self_closing)
            return at
        if name in _FOREIGN:
            if not self_closing:
                self._push(name)
        elif name == "template":
            self._templates += 1
        elif name == "plaintext":
            return -1
        else:
            self._link(name, attributes)
            if name in _RAW:
                return self._raw_end(name, at)
        return at

    def _start_foreign(self, foreign: str, name: str, attributes: str, *, self_closing: bool) -> None:
        if name == "a" and foreign == "svg" and not self._templates:
            self._out.append(f"<svg><a{attributes}></a></svg>")
        elif self_closing or (name == "annotation-xml" and "html" not in attributes.lower()):
            pass  # an annotation is markup only when it says so
        elif name in _FOREIGN or name in _INTEGRATION[foreign]:
            self._push(name)

    def _link(self, name: str, attributes: str) -> None:
        if self._templates:
            return
        if name == "a":
            self._out.append(f"<a{attributes}></a>")
        elif name in _VOID_LINKS:
            self._out.append(f"<{name}{attributes}>")
        elif name in ("iframe", "frame"):
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
