"""The crawl of a mirror: which documents are worked on, in which mode, and what the run came to.

Verified documents cost nothing: no server, no browser, no network. Owns the order of a run, its lock and its modes; the rounds of a
document are ``document``'s. Every collaborator that touches the world is a seam (`Seams`).
"""

from __future__ import annotations

import contextlib
import random as _random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from forage.errors import BrowserError, ForageError, InvalidPolicyError
from forage.mirror.archive import Archive, ArchiveFetch, ArchiveReply, ArchiveRequestError, RequestCapError
from forage.mirror.cache import CacheRoot, CacheRootError, utc_text
from forage.mirror.capture import Capture, Capturer, RetryTerminal
from forage.mirror.document import DocumentCrawl, OnProgress, Shared
from forage.mirror.driver import ProbeDriver
from forage.mirror.keys import ARCHIVE, CrawlInput, parse_crawl_input
from forage.mirror.ledgers import Ledgers
from forage.mirror.localize import RULE_VERSION
from forage.mirror.lock import root_lock
from forage.mirror.originals import is_mirrorable_key
from forage.mirror.policy import EscapePolicy
from forage.mirror.probe import Probe
from forage.mirror.results import CrawlReport, DocumentResult, DocumentStatus
from forage.mirror.seams import Seams

__all__ = ["crawl"]

_SAFE_INTEGER: Final = 2**53 - 1
_UNRENDERED: Final = (DocumentStatus.ERROR, DocumentStatus.CAP_SKIPPED)
_UNPARSEABLE: Final = "unparseable-input"


def _count(name: str, value: object) -> None:
    if type(value) is not int or not 0 <= value <= _SAFE_INTEGER:
        raise InvalidPolicyError(name, "a whole number from 0", got=value)


def _silent(_: Mapping[str, Any]) -> None:
    """Progress that nobody asked for."""


def _now() -> datetime:
    return datetime.now(UTC)


async def crawl(
    urls: Iterable[str] | str,
    *,
    root: Path | str,
    fetch: ArchiveFetch | None = None,
    probe: Probe | None = None,
    policy: EscapePolicy | None = None,
    max_iterations: int = 4,
    max_requests: int | None = None,
    documents: int = 4,
    delay: float = 1.5,
    attempts: int = 3,
    archive_base: str = ARCHIVE,
    force: bool = False,
    static_only: bool = False,
    dry_run: bool = False,
    har: bool = False,
    reverify_browser: bool = False,
    retry_terminal: RetryTerminal | None = None,
    on_progress: OnProgress = _silent,
    utc_now: Callable[[], datetime] = _now,
    random: Callable[[], float] = _random.random,
    seams: Seams | None = None,
) -> CrawlReport:
    """Crawl documents, replay URLs (of the archive or of ``archive_base``) or bare keys, until each renders and asks for nothing missing.

    ``fetch`` reaches the archive (None: nothing can be fetched), ``probe`` renders (None: there is no browser). ``max_iterations``: fetch
    rounds a document at most; ``max_requests``: archive requests of the run; ``documents`` worked on at once, one with a request cap (with
    several, the first of two documents that asks for a late child is the one that records it); ``delay``: seconds between request starts;
    ``attempts`` a request. ``force`` ignores stamps, ``reverify_browser`` those of other browsers. ``static_only`` captures without
    rendering; ``dry_run`` only says what would be fetched.

    Raises InvalidPolicyError naming an option, BrowserError when work remains and there is no browser, RootBusyError when another process
    writes the root. What goes wrong with a document is its result, and others go on.
    """
    _count("max_iterations", max_iterations)
    if max_requests is not None:
        _count("max_requests", max_requests)
    if type(documents) is not int or documents < 1:
        raise InvalidPolicyError("documents", "a whole number from 1", got=documents)
    together = documents if max_requests is None else 1
    cache = CacheRoot(Path(root))
    archive = Archive(
        _no_archive if fetch is None else fetch,
        base=archive_base,
        delay=delay,
        attempts=attempts,
        max_requests=max_requests,
        together=together,
        random=random,
        utc_now=utc_now,
    )
    run = _Run(
        cache=cache,
        archive=archive,
        seams=Seams() if seams is None else seams,
        policy=EscapePolicy() if policy is None else policy,
        capturer=Capturer(cache, archive, utc_now=utc_now, retry_terminal=retry_terminal),
        together=together,
        max_iterations=max_iterations,
        har=har,
        on_progress=on_progress,
        utc_now=utc_now,
    )
    inputs = run.parse([urls] if isinstance(urls, str) else urls, archive_base)
    if dry_run:
        await run.dry_run()
    elif static_only:
        await run.static()
    else:
        await run.probed(probe, force=force, reverify_browser=reverify_browser)
    return CrawlReport(request_count=archive.requests, cap=max_requests, results=tuple(run.results[key] for key in inputs))


async def _no_archive(_: str) -> ArchiveReply:
    raise ArchiveRequestError("no archive was given to fetch from", transient=False)


@attrs.define(kw_only=True, eq=False)
class _Run:
    """One run: its documents in input order, and their results."""

    cache: CacheRoot
    archive: Archive
    seams: Seams
    policy: EscapePolicy
    capturer: Capturer
    together: int
    max_iterations: int
    har: bool
    on_progress: OnProgress
    utc_now: Callable[[], datetime]
    documents: dict[str, CrawlInput] = attrs.field(factory=dict)
    browsers: set[str] = attrs.field(factory=set)
    results: dict[str, DocumentResult] = attrs.field(factory=dict)

    def parse(self, urls: Iterable[str], base: str) -> list[str]:
        """Inputs to documents, each key once; what cannot be parsed is a result at its place."""
        order: dict[str, None] = {}
        for text in urls:
            document = parse_crawl_input(text, base)
            if document is None:
                self.on_progress({"type": "skip", "reason": _UNPARSEABLE, "input": text})
                self.results[text] = DocumentResult(key=text, status=DocumentStatus.ERROR, members={"error": _UNPARSEABLE})
                order[text] = None
            else:
                self.documents.setdefault(document.key, document)
                order[document.key] = None
        return list(order)

    @property
    def _ledgers(self) -> Ledgers:
        return Ledgers(self.cache.path)

    @property
    def _capture(self) -> Capture:
        return self.capturer if self.seams.capture is None else self.seams.capture

    def _check_cap(self) -> None:
        if self.archive.capped:
            raise RequestCapError(self.archive.requests)

    async def _locked(self, keys: Sequence[str], work: Callable[[], Awaitable[None]]) -> None:
        """Do ``work`` as the one writer of the root. A root that cannot be written is the error of every document."""
        with contextlib.ExitStack() as held:
            try:
                await trio.to_thread.run_sync(lambda: self._ledgers.prepare(har=self.har))
                held.enter_context(root_lock(self.cache.path, started=utc_text(self.utc_now())))
                await trio.to_thread.run_sync(self.cache.reap_scratch)
            except CacheRootError as exc:
                for key in keys:
                    self._fail(key, exc)
            else:
                await trio.to_thread.run_sync(self._ledgers.note_asked, keys, utc_text(self.utc_now()))
                await work()
                lost = [self.results[key] for key in keys if self.results[key].status in _UNRENDERED]
                await trio.to_thread.run_sync(self._ledgers.note_unfinished, lost, utc_text(self.utc_now()))

    def _fail(self, key: str, exc: Exception) -> None:
        self.results[key] = DocumentResult(key=key, status=DocumentStatus.ERROR, members={"error": str(exc)})

    async def _each(self, keys: Sequence[str], work: Callable[[str], Awaitable[DocumentResult]], *, together: int) -> None:
        """Work on documents in order, ``together`` at once. What one raises is its result."""
        waiting = iter(keys)

        async def worker() -> None:
            for key in waiting:
                try:
                    self.results[key] = await work(key)
                except RequestCapError as exc:
                    self.results[key] = DocumentResult(key=key, status=DocumentStatus.CAP_SKIPPED, members={"error": str(exc)})
                except (ForageError, OSError) as exc:
                    self._fail(key, exc)

        async with trio.open_nursery() as nursery:
            for _ in range(min(together, len(keys))):
                nursery.start_soon(worker)

    def _note_browser(self, browser: str | None) -> None:
        """Say once when the browser at hand is not the one behind the stamps that were taken on trust."""
        others = self.browsers - {browser, ""}
        if browser is not None and others:
            self.browsers.clear()
            self.on_progress({"type": "browser-changed", "browser": browser, "stamps": sorted(others)})

    # Modes.

    async def dry_run(self) -> None:
        """What a run would fetch for what is recorded already."""
        await self._each(list(self.documents), self._dry, together=1)

    async def _dry(self, key: str) -> DocumentResult:
        document = await self.seams.read_sidecar(self.cache, key)
        named = () if document is None else (*document.requisites, *(entry.key for entry in document.dynamic))
        frontier = [child for child in dict.fromkeys(named) if is_mirrorable_key(child)]
        missing = [child for child in frontier if "/" not in child or await self.seams.read_sidecar(self.cache, child) is None]
        members = {"present": document is not None, "frontier": len(frontier), "wouldFetch": len(missing), "keys": missing}
        self.on_progress({"type": "dry-run", "key": key, **members})
        return DocumentResult(key=key, status=DocumentStatus.DRY_RUN, members=members)

    async def static(self) -> None:
        """Capture without rendering. Neither reads nor writes stamps."""
        keys = list(self.documents)
        await self._locked(keys, lambda: self._each(keys, self._static, together=self.together))

    async def _static(self, key: str) -> DocumentResult:
        summary = await self._capture(self.documents[key].url)
        members = {"fetched": summary.fetched, "failures": len(summary.failures)}
        if summary.fetched or summary.failures:
            done, requests = len(self.results), self.archive.requests
            self.on_progress({"type": "static", "done": done, "total": len(self.documents), "key": key, "requests": requests, **members})
        return DocumentResult(key=key, status=DocumentStatus.STATIC, members=members)

    async def probed(self, probe: Probe | None, *, force: bool, reverify_browser: bool) -> None:
        """Render every document that no stamp covers, or of which something is asked for again, to its fixpoint."""
        keys = list(self.documents)
        try:
            stamps = await trio.to_thread.run_sync(self._ledgers.verified, RULE_VERSION)
        except CacheRootError as exc:
            for key in keys:
                self._fail(key, exc)
            return
        browser = await probe.browser() if probe is not None and reverify_browser else None
        cached = set() if force else {key for key in keys if key in stamps and browser in {None, stamps[key].get("browser")}}
        cached -= await trio.to_thread.run_sync(self.capturer.due, cached)
        for key in cached:
            self.browsers.add(str(stamps[key].get("browser") or ""))
            self.results[key] = DocumentResult(key=key, status=DocumentStatus.VERIFIED_CACHED)
        work = [key for key in keys if key not in cached]
        if not work:
            return
        if probe is None or not await probe.available():
            raise BrowserError("no browser: whether a document is complete cannot be told. Install Chromium, or run with --static-only")
        given = probe
        await self._locked(work, lambda: self._probe_all(work, given, stamps, force=force))

    async def _probe_all(self, work: Sequence[str], probe: Probe, stamps: Mapping[str, Mapping[str, Any]], *, force: bool) -> None:
        shared = Shared(
            root=self.cache,
            corpus=await self.seams.load_corpus(self.cache),
            capture=self._capture,
            ledgers=self._ledgers,
            read=self.seams.read_sidecar,
            record=self.seams.record_dynamic,
            check_cap=self._check_cap,
            on_progress=self.on_progress,
            note_browser=self._note_browser,
            utc_now=self.utc_now,
            max_iterations=self.max_iterations,
            har=self.har,
        )
        async with probe.session() as session:
            driver = ProbeDriver(
                self.cache, session, policy=self.policy, utc_now=self.utc_now, serve=self.seams.serve, read=self.seams.read_sidecar
            )

            async def one(key: str) -> DocumentResult:
                if self.archive.capped:
                    return DocumentResult(key=key, status=DocumentStatus.CAP_SKIPPED)
                if key in stamps:
                    # Rendered again for whatever reason. First of all, so that a stamp never outlives a probe that went wrong.
                    row = {"key": key, "at": shared.now(), "verified": False, "reason": "force-reprobe"}
                    await trio.to_thread.run_sync(shared.ledgers.append, "verified.jsonl", row)
                return await DocumentCrawl(self.documents[key], driver, shared).run()

            await self._each(work, one, together=min(self.together, probe.together))
