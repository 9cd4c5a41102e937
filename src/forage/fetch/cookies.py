"""Cookies for the hops of one acquisition at one origin, then forgotten (pure; RFC 6265 as far as that needs).

Some sites set a cookie on a redirect and loop without it. Nothing is kept between acquisitions, nothing crosses to another origin, and
the guard itself has no jar: a crawl cannot be recognised from page to page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["HopCookies"]

_MAX_COOKIES = 50
_MAX_PAIR_BYTES = 4096
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x3a\x3c-\x7e]*")
_EXPIRED = re.compile(r"max-age\s*=\s*(?:-|0+\s*\Z)", re.IGNORECASE)


class HopCookies:
    """What one acquisition was told to send back, false when nothing. ``origin`` is scheme, host and port as one text."""

    def __init__(self) -> None:
        self._held: dict[str, dict[tuple[str, str], str]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def receive(self, origin: str, host: str, path: str, values: Iterable[str]) -> None:
        """Take the Set-Cookie values of one response; malformed, foreign and oversized ones are ignored."""
        for value in values:
            pair, *attributes = value.split(";")
            name, equals, text = (part.strip(" \t") for part in pair.partition("="))
            if not equals or len(pair) > _MAX_PAIR_BYTES or not _NAME.fullmatch(name) or not _VALUE.fullmatch(text):
                continue
            self._keep(origin, host, path, name, text, [a.strip(" \t") for a in attributes])

    def _keep(self, origin: str, host: str, path: str, name: str, text: str, attributes: list[str]) -> None:
        scope = _default_path(path)
        for attribute in attributes:
            key, _, value = (part.strip(" \t") for part in attribute.partition("="))
            if key.lower() == "path" and value.startswith("/"):
                scope = value
            if key.lower() == "domain" and value and not _covers(value.lower().lstrip("."), host):
                return
        held = self._held.setdefault(origin, {})
        if any(_EXPIRED.match(attribute) for attribute in attributes):
            held.pop((name, scope), None)
        elif len(held) < _MAX_COOKIES or (name, scope) in held:
            held[name, scope] = text

    def header(self, origin: str, path: str) -> str | None:
        """The Cookie value for a request of this origin and path, longer paths first, or None."""
        held = self._held.get(origin)
        if not held:
            return None
        fitting = [(scope, name, text) for (name, scope), text in held.items() if _inside(path, scope)]
        fitting.sort(key=lambda row: -len(row[0]))
        return "; ".join(f"{name}={text}" for _, name, text in fitting) or None


def _covers(domain: str, host: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


def _default_path(path: str) -> str:
    """RFC 6265 section 5.1.4."""
    return path[: path.rfind("/")] or "/"


def _inside(path: str, scope: str) -> bool:
    return path == scope or (path.startswith(scope) and (scope.endswith("/") or path[len(scope) :].startswith("/")))
