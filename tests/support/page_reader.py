"""A browser that reads instead of rendering: real requests to a mirror's server, and the references of what it is served.

What it knows is enough for a mirror: subresources by tag, ``url()`` and ``@import``, ``fetch("...")`` and the like in scripts and workers.
Every request is reported; only those to the document's own origin are made.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import attrs
import trio
from ada_url import URL

from forage.egress import EgressPolicy, EgressSession
from forage.mirror.markup import View, walk
from forage.mirror.probe import CspFinding, RenderReport, RequestRecord

__all__ = ["PageReader"]

LOADS = {
    ("img", "src"): "image",
    ("script", "src"): "script",
    ("iframe", "src"): "document",
    ("video", "src"): "media",
    ("object", "data"): "other",
    ("body", "background"): "image",
}
RELATIONS = {"stylesheet": "stylesheet", "icon": "image"}
STYLE_URL = re.compile(r"""(@import\s+["']|url\(\s*["']?)([^"')]+)""")
SCRIPT_URL = re.compile(r"""(fetch|Worker|importScripts|Image)\(\s*["']([^"']+)["']""")
SCRIPT_TYPES = {"fetch": "fetch", "Worker": "script", "importScripts": "script", "Image": "image"}


@attrs.define(kw_only=True, eq=False)
class PageReader:
    """A probe over real sockets. ``edit`` may change a report, as a page that behaves differently would."""

    together: int = 4
    seconds: float = 0.0
    edit: Callable[[str, RenderReport], RenderReport] = lambda _, report: report
    name: str | None = "reader/1"
    rendered: list[str] = attrs.field(factory=list)
    running: int = 0
    most_at_once: int = 0

    async def available(self) -> bool:
        return True

    async def browser(self) -> str | None:
        return self.name

    @asynccontextmanager
    async def session(self) -> AsyncIterator[PageReader]:
        yield self

    async def render(self, url: str) -> RenderReport:
        self.rendered.append(url)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            origin = URL(url).origin
            async with EgressSession(EgressPolicy(test_loopback_origins=(origin,))) as session:
                reading = Reading(session, origin)
                await reading.load(url, "document", document=True)
            await trio.sleep(self.seconds)
        finally:
            self.running -= 1
        report = RenderReport(requests=tuple(reading.records), csp=tuple(reading.violations), browser=self.name, viewport="1280x800")
        return self.edit(url, report)


class Reading:
    """One render."""

    def __init__(self, session: EgressSession, origin: str) -> None:
        self._session = session
        self._origin = origin
        self._seen: set[str] = set()
        self.records: list[RequestRecord] = []
        self.violations: list[CspFinding] = []

    async def load(self, url: str, kind: str, *, document: bool = False) -> None:
        href = URL(url).href.partition("#")[0]
        if href in self._seen:
            return
        self._seen.add(href)
        if URL(href).origin != self._origin:
            self.records.append(RequestRecord(url=href, resource_type=kind, failure="refused"))
            self.violations.append(CspFinding(message=f"refused to load {href}", url=href, directive="default-src"))
            return
        received = await self._session.exchange(href)
        self.records.append(RequestRecord(url=href, resource_type=kind, status=received.status, document=document))
        if received.status != 200:
            return
        text = received.body.decode("utf-8", "replace")
        for reference, what in references(text, (received.header("content-type") or "").lower()):
            try:
                target = URL(reference, base=href).href
            except ValueError:
                continue
            await self.load(target, what)


def references(text: str, content_type: str) -> Iterator[tuple[str, str]]:
    if "html" in content_type:
        yield from page_references(text)
    elif "css" in content_type:
        yield from style_references(text)
    elif "javascript" in content_type:
        yield from script_references(text)


def page_references(text: str) -> Iterator[tuple[str, str]]:
    page = View(text)
    for tag in walk(text):
        values = {name: page.value(attribute).text.strip() for name, attribute in tag.attributes.items()}
        for name, value in values.items():
            if (tag.name, name) in LOADS:
                yield value, LOADS[tag.name, name]
            elif name == "srcset":
                yield value.split()[0].rstrip(","), "imageset"
            elif name == "style":
                yield from style_references(value)
        if tag.name == "link" and values.get("rel", "").lower() in RELATIONS:
            yield values.get("href", ""), RELATIONS[values["rel"].lower()]
        if tag.content is not None and tag.name == "style":
            yield from style_references(text[slice(*tag.content)])
        if tag.content is not None and tag.name == "script" and "src" not in values:
            yield from script_references(text[slice(*tag.content)])


def style_references(text: str) -> Iterator[tuple[str, str]]:
    for found in STYLE_URL.finditer(text):
        import_rule = found[1].startswith("@import") or found[2].partition("?")[0].endswith(".css")
        yield found[2].strip(), "stylesheet" if import_rule else "font" if ".woff" in found[2] else "image"


def script_references(text: str) -> Iterator[tuple[str, str]]:
    for found in SCRIPT_URL.finditer(text):
        yield found[2], SCRIPT_TYPES[found[1]]
