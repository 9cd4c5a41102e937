"""One document, served from a root, rendered once and judged: the dynamic tier on its own.

The fixpoint runs it in a loop; a static checker may run it once. Each render gets a listener of its own and a frozen snapshot of what is
held, so that what a page was shown does not change under it and late requests of one render never reach the log of the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TypeAlias

import attrs
import trio

from forage.errors import BrowserError, CaptureError
from forage.mirror.answers import Outcome, Served
from forage.mirror.cache import CacheRoot, utc_text
from forage.mirror.gate import Assessment, Holdings, assess, keys_in_question
from forage.mirror.keys import document_path
from forage.mirror.leaks import classify_request, gather, url_origin, url_target
from forage.mirror.policy import EscapePolicy
from forage.mirror.probe import ProbeSession, RenderReport
from forage.mirror.server import MirrorServer, open_mirror_server
from forage.mirror.sidecar import Sidecar
from forage.mirror.site import CspMode, Site

__all__ = ["Examination", "ProbeDriver", "ReadSidecar", "Serve", "read_sidecar"]

Serve: TypeAlias = Callable[[Site], AbstractAsyncContextManager[MirrorServer]]
ReadSidecar: TypeAlias = Callable[[CacheRoot, str], Awaitable[Sidecar | None]]


async def read_sidecar(root: CacheRoot, key: str) -> Sidecar | None:
    """The sidecar of a key, read in a thread."""
    return await trio.to_thread.run_sync(root.read_sidecar, key)


@attrs.frozen(kw_only=True)
class Examination:
    """One render: what it reported and what that means."""

    report: RenderReport
    assessment: Assessment


class ProbeDriver:
    """Renders documents of ``root`` in a running browser."""

    def __init__(
        self,
        root: CacheRoot,
        session: ProbeSession,
        *,
        policy: EscapePolicy,
        utc_now: Callable[[], datetime],
        serve: Serve = open_mirror_server,
        read: ReadSidecar = read_sidecar,
    ) -> None:
        self._root = root
        self._session = session
        self._policy = policy
        self._utc_now = utc_now
        self._serve = serve
        self._read = read

    async def examine(self, key: str, *, corpus: AbstractSet[str], recorded: Sequence[str] = ()) -> Examination:
        """Render the document ``key`` and judge it.

        ``corpus`` are the keys held, live: others may add to it while the page renders. ``recorded`` are the document's recorded children.
        Raises BrowserError when the render failed, CaptureError when the document or a sidecar cannot be read.
        """
        snapshot = frozenset(corpus)
        site = Site(self._root, held=snapshot, csp_mode=CspMode.REPORT_ONLY)
        report, origin, log = await self._render(site, key)
        # Of what the page was not given by the server (a script's records, icons that a program does not fetch) the server is asked now.
        asked = set() if log is None else {row.target for row in log} | {document_path(key)}
        local = [url_target(record.url) for record in report.requests if url_origin(record.url) == origin]
        served = [*(log or ()), *await self._ask(site, [target for target in local if target not in asked])]
        late = corpus - snapshot
        # What the page did not get is not held, whatever a sidecar says (one that is filed under the name of another key, say).
        missed = {row.target for row in served if row.outcome is Outcome.MISS}
        sightings = [
            classify_request(
                record.url,
                record.resource_type,
                origin=origin,
                held=late if url_target(record.url) in missed else corpus,
                policy=self._policy,
            )
            for record in report.requests
        ]
        document = await self._read(self._root, key)
        if document is None:
            raise CaptureError("the document has no sidecar")
        first_seen = utc_text(self._utc_now())
        wanted = keys_in_question(document, recorded, gather(sightings, first_seen))
        held = {child: await self._read(self._root, child) for child in wanted if "/" in child}
        assessment = assess(
            key=key,
            document=document,
            recorded=recorded,
            report=report,
            sightings=sightings,
            served=served,
            logged=log is not None,
            holdings=Holdings(sidecars=held, snapshot=snapshot, late=late),
            policy=self._policy,
            first_seen=first_seen,
        )
        return Examination(report=report, assessment=assessment)

    async def _render(self, site: Site, key: str) -> tuple[RenderReport, str, list[Served] | None]:
        failed: BrowserError | None = None
        report = RenderReport()
        async with self._serve(site) as server:
            # Kept and raised behind the block: the server's nursery would wrap it in a group.
            try:
                report = await self._session.render(server.url + document_path(key))
            except BrowserError as exc:
                failed = exc
        if failed is not None:
            raise failed
        return report, url_origin(server.url), None if server.log is None else list(server.log)

    async def _ask(self, site: Site, targets: Iterable[str]) -> list[Served]:
        """What the mirror answers at this moment."""
        served = []
        for target in dict.fromkeys(targets):
            answer = await trio.to_thread.run_sync(site.answer, "GET", target)
            served.append(Served(target=target, status=answer.status, outcome=answer.outcome, key=answer.key))
        return served
