"""A fetcher over virtual hosts: what fetch tests of this package share. Use under ``autojump_clock``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import trio

from forage.egress import JudgedUrl
from forage.fetch import Fetcher
from tests.support.virtual_hosts import Asked, Trouble, VirtualAnswer, VirtualHosts, VirtualResolver

__all__ = ["NOW", "Routes", "Site", "html", "open_site", "redirect"]

NOW = datetime(2026, 9, 1, tzinfo=UTC)
Routes = Mapping[str, "VirtualAnswer | Trouble | Sequence[VirtualAnswer | Trouble]"]


def html(body: bytes = b"<p>page</p>", *headers: tuple[str, str], status: int = 200) -> VirtualAnswer:
    """A page."""
    return VirtualAnswer(status=status, headers=(("Content-Type", "text/html; charset=utf-8"), *headers), body=body)


def redirect(location: str, *headers: tuple[str, str], status: int = 302) -> VirtualAnswer:
    """An answer that leads elsewhere."""
    return VirtualAnswer(status=status, headers=(("Location", location), *headers))


class Site:
    """URLs with the answers of their first, second, ... request, the last one repeated. What is not there answers 404."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._counts: dict[str, int] = {}
        self.hosts: VirtualHosts
        self.fetcher: Fetcher

    def answer(self, target: JudgedUrl, asked: Asked) -> VirtualAnswer | Trouble:
        script = self._routes.get(target.url, VirtualAnswer(status=404))
        if isinstance(script, VirtualAnswer | Trouble):
            return script
        count = self._counts[target.url] = self._counts.get(target.url, 0) + 1
        return script[min(count, len(script)) - 1]

    @property
    def asked(self) -> list[str]:
        """URLs in the order of their requests."""
        return [request.url for request in self.hosts.asked]

    @property
    def starts(self) -> list[float]:
        """Times of the request starts."""
        return [request.at for request in self.hosts.asked]

    def headers_of(self, url: str) -> dict[str, str]:
        """Header fields, names in lower case, of the last request for a URL."""
        (*_, last) = (request for request in self.hosts.asked if request.url == url)
        return {name.lower(): value for name, value in last.headers.items()}


@asynccontextmanager
async def open_site(
    routes: Routes,
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    random: Callable[[], float] = lambda: 0.5,
    **options: Any,
) -> AsyncIterator[Site]:
    """A fetcher (``site.fetcher``) for which these URLs are the web. Robots are off and the delay is 0 unless an option says otherwise."""
    options = {"delay": 0, "obey_robots": False, **options}
    site = Site(routes)
    async with trio.open_nursery() as nursery:
        site.hosts = VirtualHosts(nursery, site.answer)
        options = {"resolver": VirtualResolver(names), **options}
        fetcher = Fetcher(wire=site.hosts, utc_now=lambda: NOW, random=random, **options)
        async with fetcher:
            site.fetcher = fetcher
            yield site
        nursery.cancel_scope.cancel()
