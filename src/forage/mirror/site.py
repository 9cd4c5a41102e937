"""The serving core of a mirror: one request to one answer, from the files of a root (blocking; no socket).

Every body is checked against its sidecar before it leaves, so that a rotten one is never shown as the capture. Owns what is answered;
listening is ``server``'s business, rewriting ``localize``'s.
"""

from __future__ import annotations

import re
from collections.abc import Container
from enum import StrEnum
from html import escape
from typing import Final

from forage.mirror.answers import Outcome, SiteAnswer
from forage.mirror.cache import CacheRoot, CacheRootError, content_hash
from forage.mirror.keys import ReplayPath, decode_capture_path, document_path, parse_wayback_path
from forage.mirror.localize import Dialect, dialect_of, localize, strip_chrome
from forage.mirror.sidecar import CaptureStatus, Sidecar, SidecarError
from forage.snapshots.javascript import js_trim, js_utf8

__all__ = ["CONTENT_SECURITY_POLICY", "CspMode", "Site"]

CONTENT_SECURITY_POLICY: Final = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self'",
        "media-src 'self'",
        "connect-src 'self'",
        "frame-src 'self'",
        "form-action 'self'",
    ]
)
_IMMUTABLE: Final = ("Cache-Control", "public, max-age=31536000, immutable")
_NO_STORE: Final = ("Cache-Control", "no-store")
_HTML: Final = ("Content-Type", "text/html; charset=UTF-8")
_PLAIN: Final = ("Content-Type", "text/plain; charset=UTF-8")
_UNPRINTABLE: Final = re.compile(rb"[^\x20-\x7e]")
# A stored type that is no header value (a hand-made sidecar) must not split the response.
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]+")
_MOST_LISTED: Final = 1000


class CspMode(StrEnum):
    """How the content security policy of documents is sent."""

    ENFORCE = "enforce"
    REPORT_ONLY = "report-only"

    @property
    def header(self) -> str:
        suffix = "" if self is CspMode.ENFORCE else "-Report-Only"
        return f"Content-Security-Policy{suffix}"


class Site:
    """A root as a website.

    ``held``: keys to localise by, None to serve references as they are; it must not change while a page is rendered. ``live_fallback``
    sends misses and bodiless captures to the archive.
    """

    def __init__(
        self,
        root: CacheRoot,
        *,
        held: Container[str] | None = None,
        csp_mode: CspMode = CspMode.ENFORCE,
        live_fallback: bool = False,
    ) -> None:
        self._root = root
        self._held = held
        self._csp = (csp_mode.header, CONTENT_SECURITY_POLICY)
        self._live_fallback = live_fallback

    def answer(self, method: str, target: str) -> SiteAnswer:
        """Answer a request for ``target``, path and query as they came. What cannot be read is a 500, never an exception."""
        if method not in {"GET", "HEAD"}:
            return SiteAnswer(status=405, outcome=Outcome.REFUSED, headers=(("Allow", "GET, HEAD"), _NO_STORE))
        capture = parse_wayback_path(target)
        try:
            if target == "/":
                return SiteAnswer(status=200, outcome=Outcome.INDEX, headers=(_HTML,), body=self._index())
            found, sidecar = self._find(capture, target)
            if found is None:
                return self._not_found(Outcome.NO_CAPTURE, None)
            if sidecar is None:
                return self._redirect(found) if self._live_fallback else self._not_found(Outcome.MISS, found)
            return self._held_answer(found, sidecar)
        except SidecarError as exc:
            return SiteAnswer(status=500, outcome=Outcome.UNREADABLE, headers=(_PLAIN,), body=b"unreadable sidecar\n", key=exc.key)
        except OSError:
            return SiteAnswer(status=500, outcome=Outcome.UNREADABLE, headers=(_PLAIN,), body=b"unreadable mirror\n")

    def _find(self, capture: ReplayPath | None, target: str) -> tuple[ReplayPath | None, Sidecar | None]:
        """The raw spelling's sidecar first, the decoded one's on a miss."""
        sidecar = None if capture is None else self._root.read_sidecar(capture.key)
        if sidecar is not None or "%" not in target:
            return capture, sidecar
        decoded = parse_wayback_path(decode_capture_path(target))
        other = None if decoded is None else self._root.read_sidecar(decoded.key)
        return (decoded, other) if other is not None else (capture, None)

    def _held_answer(self, capture: ReplayPath, sidecar: Sidecar) -> SiteAnswer:
        match sidecar.status:
            case CaptureStatus.BODY:
                return self._body(capture, sidecar)
            case CaptureStatus.EMPTY:
                return SiteAnswer(status=200, outcome=Outcome.EMPTY, headers=self._hit_headers(capture, sidecar), key=capture.key)
            case CaptureStatus.REDIRECT | CaptureStatus.INTERSTITIAL if self._live_fallback:
                return self._redirect(capture)
        return self._not_found(Outcome.TERMINAL, capture)

    def _body(self, capture: ReplayPath, sidecar: Sidecar) -> SiteAnswer:
        try:
            body = self._root.read_body(capture.key)
        except CacheRootError:
            body = None
        if body is None or content_hash(body) != sidecar.content_hash:
            what = b"missing body\n" if body is None else b"body does not match its sidecar\n"
            return SiteAnswer(status=500, outcome=Outcome.CORRUPT, headers=(_PLAIN, _NO_STORE), body=what, key=capture.key)
        if self._held is not None:
            body = localize(body, sidecar.content_type, self._held).body
        elif dialect_of(sidecar.content_type) is Dialect.HTML:
            body = strip_chrome(body)
        return SiteAnswer(status=200, outcome=Outcome.HIT, headers=self._hit_headers(capture, sidecar), body=body, key=capture.key)

    def _hit_headers(self, capture: ReplayPath, sidecar: Sidecar) -> tuple[tuple[str, str], ...]:
        content_type = js_trim(sidecar.content_type)
        if _HEADER_VALUE.fullmatch(content_type) is None:
            content_type = "application/octet-stream"
        headers = (("Content-Type", content_type), _IMMUTABLE, ("X-Wayback-Source", _header_url(capture.canonical_archive_url)))
        page = content_type.lower().startswith("text/html") or dialect_of(content_type) is Dialect.HTML
        return (*headers, self._csp) if page else headers

    def _redirect(self, capture: ReplayPath) -> SiteAnswer:
        headers = (_NO_STORE, ("Location", _header_url(capture.archive_url)))
        return SiteAnswer(status=302, outcome=Outcome.MISS, headers=headers, key=capture.key)

    def _not_found(self, outcome: Outcome, capture: ReplayPath | None) -> SiteAnswer:
        link = ""
        if capture is not None:
            url = escape(capture.canonical_archive_url)
            link = f'<p>The archive may have it: <a href="{url}" rel="noreferrer">{url}</a></p>'
        page = f"<!DOCTYPE html><title>Not in this mirror</title><h1>Not in this mirror</h1>{link}\n"
        headers = (_HTML, _NO_STORE, self._csp)
        return SiteAnswer(status=404, outcome=outcome, headers=headers, body=js_utf8(page), key=None if capture is None else capture.key)

    def _index(self) -> bytes:
        keys = self._root.document_keys()
        rows = "".join(f'<li><a href="{escape(document_path(key))}">{escape(key)}</a></li>' for key in keys[:_MOST_LISTED])
        more = f"<p>and {len(keys) - _MOST_LISTED} more</p>" if len(keys) > _MOST_LISTED else ""
        heading = "1 document" if len(keys) == 1 else f"{len(keys)} documents"
        return js_utf8(f"<!DOCTYPE html><title>Mirror</title><h1>{heading}</h1><ul>{rows}</ul>{more}\n")


def _header_url(url: str) -> str:
    return _UNPRINTABLE.sub(lambda found: b"%%%02X" % found[0][0], js_utf8(url)).decode("ascii")
