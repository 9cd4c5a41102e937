"""A small site for tests of the browser, and what a page of it is opened with: good pages, and pages that mean harm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs

from forage.browser import PageOptions
from forage.egress import EgressPolicy
from tests.support.dialer import MappingDialer
from tests.support.probe_site import PUBLIC, PublicNames
from tests.support.raw_server import Answer, RawServer, open_raw_server, page

__all__ = ["GOOD", "HTML", "BrowserSite", "html", "open_browser_site"]

HTML = [("Content-Type", "text/html; charset=utf-8")]
GOOD = "<!doctype html><title>good</title><p id=p>good</p>"


def html(body: str, **options: Any) -> list[Answer]:
    """Routes take a list of answers."""
    return [page(body.encode(), headers=[*HTML, *options.pop("headers", ())], **options)]


@attrs.frozen(kw_only=True)
class BrowserSite:
    """A running site. Names of ``*.test`` lead to the same server."""

    server: RawServer
    dialer: MappingDialer

    @property
    def origin(self) -> str:
        return self.server.origin

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def policy(self) -> EgressPolicy:
        return EgressPolicy(test_loopback_origins=(self.origin,), ports=(self.port,))

    @property
    def targets(self) -> list[str]:
        """What was asked for, in order."""
        return [request.target for request in self.server.requests]

    def options(self, **changes: Any) -> PageOptions:
        """What a page is opened with; answers of a busy machine may take their time."""
        given = {"egress": self.policy, "resolver": PublicNames(), "dialer": self.dialer, "answer_seconds": 10.0, "deadline": 30.0}
        return PageOptions(**{**given, **changes})


@asynccontextmanager
async def open_browser_site(routes: Mapping[str, list[Answer]]) -> AsyncIterator[BrowserSite]:
    """Serve ``routes`` and a good page at ``/good`` until the block ends."""
    async with open_raw_server({"/good": html(GOOD), **routes}) as server:
        dialer = MappingDialer({(PUBLIC, server.port): server.place, ("127.0.0.1", server.port): server.place})
        yield BrowserSite(server=server, dialer=dialer)
