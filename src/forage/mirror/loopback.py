"""A web archive on loopback: replays a small web of captures the way a wayback service does.

For tests and for ``forage mirror demo``. Exact captures are served, other timestamps are redirected to the nearest, unknown originals are
404. Pages and style sheets are rewritten on the way out and pages get the service's own markup, by replay flag. Faults are scripted an
original at a time: statuses, Retry-After, silence, cut answers. Every request is logged with its time, so that pacing can be judged from
the other side.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from html import escape
from typing import Final

import attrs
import trio
from ada_url import URL

from forage.mirror.keys import ARCHIVE, ReplayPath, capture_key, parse_wayback_path
from forage.mirror.localize import Dialect, dialect_of
from forage.mirror.markup import Tag, View, walk
from forage.mirror.server import Request, Response, open_loopback_server
from forage.snapshots.javascript import js_utf8

__all__ = ["ArchiveHit", "Archived", "Fault", "LoopbackArchive", "open_loopback_archive"]

_HTML: Final = ("Content-Type", "text/html; charset=utf-8")
_CSS_URL: Final = re.compile(rb"""(@import\s+["']|url\(\s*["']?)([^"')]+)""")
_RAW_FLAG: Final = "id_"
# What a browser has a viewer of its own for is shown in a frame.
_FRAMED: Final = "application/pdf"
_WRAPPER: Final = b'<!DOCTYPE html><title>Wayback Machine</title><iframe id="playback" src="about:blank"></iframe>'

# Which replay flag a reference gets, by tag and attribute; None: a link, without flag.
_FLAGS: Final[dict[tuple[str, str], str]] = {
    ("img", "src"): "im_",
    ("input", "src"): "im_",
    ("body", "background"): "im_",
    ("td", "background"): "im_",
    ("script", "src"): "js_",
    ("iframe", "src"): "if_",
    ("frame", "src"): "fw_",
    ("video", "src"): "oe_",
    ("video", "poster"): "im_",
    ("audio", "src"): "oe_",
    ("source", "src"): "oe_",
    ("object", "data"): "oe_",
    ("embed", "src"): "oe_",
    ("a", "href"): "",
    ("area", "href"): "",
    ("form", "action"): "",
}
_LISTS: Final = (("img", "srcset"), ("source", "srcset"))
_LINK_FLAGS: Final = {"stylesheet": "cs_", "icon": "im_", "shortcut icon": "im_", "apple-touch-icon": "im_"}


@attrs.frozen(kw_only=True)
class Archived:
    """One capture. ``status`` and ``location`` are what the original server answered; a location leads to another original.

    Asked for without a flag, as a person does, a redirect is a notice that goes on by itself, and a PDF a page around a frame.
    """

    timestamp: str
    original: str
    content_type: str = "text/html; charset=utf-8"
    body: bytes = attrs.field(default=b"", repr=False)
    status: int = 200
    location: str | None = None

    @property
    def key(self) -> str:
        return capture_key(self.timestamp, self.original)


@attrs.frozen(kw_only=True)
class Fault:
    """What happens instead of an answer: a status (with Retry-After), a wait before the answer, or an answer that is cut."""

    status: int | None = None
    retry_after: str | None = None
    seconds: float = 0.0
    cut: bool = False
    body: bytes = b""
    content_type: str | None = None


@attrs.frozen(kw_only=True)
class ArchiveHit:
    """One request: ``at`` on trio's clock, the target as it came, the status that was sent, who asked."""

    at: float
    target: str
    status: int
    user_agent: str


class LoopbackArchive:
    """The archive itself; `open_loopback_archive` gives it a listener.

    ``faults`` maps an original to what its requests meet, one each, in order; after the last one it is served as ever. ``down`` answers
    everything with a cut connection. ``on_hit`` is told of every request once it is logged.
    """

    def __init__(self, captures: Iterable[Archived], *, faults: Mapping[str, Sequence[Fault]] | None = None) -> None:
        self._captures: dict[str, list[Archived]] = {}
        for capture in captures:
            self._captures.setdefault(capture.original, []).append(capture)
        self._faults = {original: list(rows) for original, rows in (faults or {}).items()}
        self.down = False
        self.on_hit: Callable[[ArchiveHit], None] | None = None
        self.log: list[ArchiveHit] = []

    async def handle(self, request: Request) -> Response:
        """Answer one request and log it."""
        at = trio.current_time()
        response = await self._answer(request)
        hit = ArchiveHit(at=at, target=request.target, status=response.status, user_agent=request.headers.get("user-agent", ""))
        self.log.append(hit)
        if self.on_hit is not None:
            self.on_hit(hit)
        return response

    async def _answer(self, request: Request) -> Response:
        replay = parse_wayback_path(request.target)
        if self.down or request.method != "GET":
            return Response(status=503, abort=0)
        if replay is None:
            return _page(404, "The Wayback Machine has not archived that URL.")
        rows = self._faults.get(replay.original)
        fault = rows.pop(0) if rows else Fault()
        await trio.sleep(fault.seconds)
        if fault.status is not None:
            headers = (_HTML if fault.content_type is None else ("Content-Type", fault.content_type),)
            later = () if fault.retry_after is None else (("Retry-After", fault.retry_after),)
            return Response(status=fault.status, headers=(*headers, *later), body=fault.body)
        response = self._replay(replay)
        return attrs.evolve(response, abort=max(1, len(response.body) // 2)) if fault.cut else response

    def _replay(self, replay: ReplayPath) -> Response:
        captures = self._captures.get(replay.original)
        if not captures:
            return _page(404, "The Wayback Machine has not archived that URL.")
        nearest = min(captures, key=lambda capture: abs(_moment(capture.timestamp) - _moment(replay.timestamp)))
        flag = replay.flag or ""
        if nearest.timestamp != replay.timestamp:
            return _redirect(302, f"/web/{nearest.timestamp}{flag}/{nearest.original}")
        if nearest.location is not None and not flag:
            return _notice(nearest, nearest.location)
        if nearest.content_type == _FRAMED and not flag:
            return Response(status=200, headers=(_HTML,), body=_WRAPPER)
        if nearest.location is not None:
            return _redirect(nearest.status, f"/web/{nearest.timestamp}{flag}/{nearest.location}")
        body = nearest.body if flag == _RAW_FLAG else _rewritten(nearest, flag)
        return Response(status=nearest.status, headers=(("Content-Type", nearest.content_type),), body=body)


def _moment(timestamp: str) -> int:
    return int(timestamp.ljust(14, "0"))


def _redirect(status: int, location: str) -> Response:
    return Response(status=status, headers=(("Location", "".join(map(_visible, js_utf8(location)))), _HTML))


def _notice(capture: Archived, location: str) -> Response:
    """What a person is shown of a redirect: a page that goes on by itself."""
    target = escape(f"/web/{capture.timestamp}/{location}")
    script = f'var webComponentLoaderConfig = {{}};\nfunction go() {{ document.location.href = "{target}" }}\nsetTimeout(go, 5000);'
    text = f"<p>Got an HTTP {capture.status} response at crawl time</p>"
    return Response(status=200, headers=(_HTML,), body=f"<!DOCTYPE html><title>Redirecting</title><script>{script}</script>{text}".encode())


def _visible(byte: int) -> str:
    return chr(byte) if 0x21 <= byte < 0x7F else f"%{byte:02X}"


def _page(status: int, text: str) -> Response:
    return Response(status=status, headers=(_HTML,), body=f"<!DOCTYPE html><title>Internet Archive</title><p>{escape(text)}".encode())


def _rewritten(capture: Archived, flag: str) -> bytes:
    match dialect_of(capture.content_type):
        case Dialect.HTML:
            body = _rewrite_page(capture)
            return _with_markup(body, capture, toolbar=not flag)
        case Dialect.CSS:
            return _rewrite_styles(capture.body, capture)
    return capture.body


def _absolute(capture: Archived, flag: str, reference: str) -> str | None:
    """The replay URL of a reference; None for one that stays."""
    try:
        url = URL(reference.strip(), base=capture.original)
    except ValueError:
        return None
    return f"/web/{capture.timestamp}{flag}/{url.href}" if url.protocol in {"http:", "https:"} and not reference.startswith("#") else None


def _rewrite_styles(body: bytes, capture: Archived) -> bytes:
    def replace(found: re.Match[bytes]) -> bytes:
        flag = "cs_" if found[1].startswith(b"@import") or found[2].endswith(b".css") else "im_"
        target = _absolute(capture, flag, found[2].decode("utf-8", "replace"))
        return found[0] if target is None else found[1] + js_utf8(f"{ARCHIVE}{target}")

    return _CSS_URL.sub(replace, body)


def _rewrite_page(capture: Archived) -> bytes:
    page = View(capture.body.decode("ascii", "surrogateescape"))
    edits: list[tuple[int, int, str]] = []
    for tag in walk(page.text):
        for name, attribute in tag.attributes.items():
            value = page.value(attribute).text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            target = _reference(capture, tag, name, value, page)
            if target is not None:
                edits.append((attribute.start, attribute.end, escape(target)))
        if tag.name == "style" and tag.content is not None:
            inside = page.text[slice(*tag.content)].encode("ascii", "surrogateescape")
            edits.append((*tag.content, _rewrite_styles(inside, capture).decode("ascii", "surrogateescape")))
    parts, at = [], 0
    for start, end, text in edits:
        parts += [page.text[at:start], text.encode("utf-8", "surrogateescape").decode("ascii", "surrogateescape")]
        at = end
    return "".join([*parts, page.text[at:]]).encode("ascii", "surrogateescape")


def _reference(capture: Archived, tag: Tag, name: str, value: str, page: View) -> str | None:
    if (tag.name, name) in _LISTS:
        candidates = (part.strip().partition(" ") for part in value.split(", "))
        return ", ".join(f"{_absolute(capture, 'im_', url) or url}{gap}{size}" for url, gap, size in candidates)
    if (tag.name, name) == ("link", "href"):
        relation = tag.attributes.get("rel")
        flag = _LINK_FLAGS.get("" if relation is None else page.value(relation).text.lower(), "")
        target = _absolute(capture, flag, value)
        return None if target is None else f"{ARCHIVE}{target}"
    known = _FLAGS.get((tag.name, name))
    target = None if known is None else _absolute(capture, known, value)
    # As the service does it: scripts and links by full URL, images from the root.
    return target if target is None or known == "im_" else f"{ARCHIVE}{target}"


def _with_markup(body: bytes, capture: Archived, *, toolbar: bool) -> bytes:
    head = (
        '<script type="text/javascript" src="https://web-static.archive.org/_static/js/bundle-playback.js?v=1" charset="utf-8"></script>\n'
        '<script type="text/javascript" src="/_static/js/wombat.js" charset="utf-8"></script>\n'
        "<script>window.RufflePlayer=window.RufflePlayer||{};window.RufflePlayer.config={};</script>\n"
        f'<script type="text/javascript">\n  __wm.init("{ARCHIVE}/web");\n  __wm.wombat("{escape(capture.original)}");\n</script>\n'
        '<link rel="stylesheet" type="text/css" href="https://web-static.archive.org/_static/css/banner-styles.css?v=1" />\n'
        "<!-- End Wayback Rewrite JS Include -->\n"
    )
    bar = (
        '<!-- BEGIN WAYBACK TOOLBAR INSERT -->\n<div id="wm-ipp-base"><img src="https://web-static.archive.org/_static/images/logo.png">'
        "</div>\n<!-- END WAYBACK TOOLBAR INSERT -->"
        if toolbar
        else ""
    )
    tail = f"\n<!--\n     FILE ARCHIVED ON {capture.timestamp} AND RETRIEVED FROM THE\n     INTERNET ARCHIVE.\n-->\n"
    body = _after(body, b"<head>", head)
    return _after(body, b"<body>", bar) + tail.encode()


def _after(body: bytes, tag: bytes, text: str) -> bytes:
    at = body.find(tag)
    return body if at < 0 else body[: at + len(tag)] + text.encode() + body[at + len(tag) :]


@asynccontextmanager
async def open_loopback_archive(archive: LoopbackArchive, *, port: int = 0) -> AsyncIterator[str]:
    """Serve the archive on loopback until the block ends; gives the base URL to capture from."""
    async with open_loopback_server(archive.handle, port=port) as server:
        yield server.url
