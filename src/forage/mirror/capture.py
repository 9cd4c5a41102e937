"""The static bulk pass: a document, the raw assets it names, and the children that a browser found.

What is held in any terminal status is never fetched again, unless asked to. Owns what an answer of the archive becomes and which URL a
child is fetched by; pacing, retries and redirects are ``archive``'s, files are ``cache``'s. Each key is in flight once at a time, whoever
asks for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Final, Protocol

import attrs
import trio

from forage.errors import CaptureError
from forage.mirror.archive import Archive, ArchiveAnswer, RequestCapError
from forage.mirror.cache import CacheRoot, CacheRootError, Entry, utc_text
from forage.mirror.keys import RAW_FLAGS, archive_url, key_hash, parse_wayback_url, split_key
from forage.mirror.originals import is_mirrorable_key
from forage.mirror.requisites import Requisite, extract_requisites, is_page
from forage.mirror.sidecar import CaptureStatus, Sidecar, SidecarError
from forage.mirror.summary import CaptureReport, CaptureSummary, OnEntry

__all__ = [
    "Capture",
    "Capturer",
    "NotACaptureUrlError",
    "RetryTerminal",
]

_BOM: Final = b"\xef\xbb\xbf"
_MALFORMED: Final = "malformed requisite key (no timestamp separator)"


class NotACaptureUrlError(CaptureError, TypeError):
    """The URL of a document is not a replay URL of the archive."""


class Capture(Protocol):
    """The seam of the pass: capture the document at a replay URL, with its children."""

    def __call__(self, url: str, /, *, on_entry: OnEntry | None = None) -> Awaitable[CaptureSummary]: ...


@attrs.frozen(kw_only=True)
class RetryTerminal:
    """Which bodiless captures are asked for again: those of these statuses that are older than ``seconds``."""

    statuses: frozenset[str]
    seconds: float = 0.0

    def covers(self, sidecar: Sidecar, now: datetime) -> bool:
        if sidecar.status == CaptureStatus.BODY or sidecar.status not in self.statuses:
            return False
        try:
            fetched = datetime.fromisoformat(sidecar.fetched_at)
        except ValueError:
            return True
        fetched = fetched.replace(tzinfo=UTC) if fetched.tzinfo is None else fetched
        return (now - fetched).total_seconds() >= self.seconds


@attrs.define(eq=False)
class _Flight:
    """One key on its way. What it came to is shared with everybody who waits."""

    done: trio.Event = attrs.field(factory=trio.Event)
    sidecar: Sidecar | None = None
    error: str | None = None


class Capturer:
    """The pass over one root. Shared by the documents of a run; many tasks may call it side by side."""

    def __init__(
        self,
        root: CacheRoot,
        archive: Archive,
        *,
        utc_now: Callable[[], datetime],
        requisites: bool = True,
        retry_terminal: RetryTerminal | None = None,
    ) -> None:
        self._root = root
        self._archive = archive
        self._utc_now = utc_now
        self._children = requisites
        self._retry = retry_terminal
        self._flights: dict[str, _Flight] = {}

    async def __call__(self, url: str, /, *, on_entry: OnEntry | None = None) -> CaptureSummary:
        """Capture the document at ``url`` and what it needs.

        Raises NotACaptureUrlError; CaptureError when the document brings no capture or its sidecar, or a child's, is rotten;
        RequestCapError; CacheRootError. Children that bring nothing are failures of the summary.
        """
        capture = parse_wayback_url(url)
        if capture is None:
            raise NotACaptureUrlError("not a replay URL of the archive")
        report = CaptureReport(capture.key, on_entry)
        sidecar, flags = await self._document(url, capture.key, report)
        if self._children:
            await self._fan_out(sidecar, flags, report)
        return report.summary()

    async def refetch(self, sidecar: Sidecar) -> Sidecar:
        """Fetch a capture again, whatever is held, and commit it; recorded children stay.

        Raises CaptureError when the archive does not answer 200: what is held is then left as it is.
        """
        timestamp, original = split_key(sidecar.key) or ("", "")
        flag = sidecar.flag if sidecar.flag in RAW_FLAGS else ""
        answer = await self._archive.get(archive_url(timestamp, flag, original))
        if answer.reply.status != 200:
            raise CaptureError(_status_text(answer))
        committed, _ = await self._commit(sidecar.key, answer, flag=sidecar.flag, old=sidecar, child=not sidecar.requisites)
        return committed

    def due(self, documents: Iterable[str]) -> set[str]:
        """Those of these documents that are asked for again, or have a child that is. Blocking."""
        return set() if self._retry is None else {key for key in documents if self._has_due(key)}

    def _has_due(self, key: str) -> bool:
        try:
            document = self._root.read_sidecar(key)
            children = () if document is None else (*document.requisites, *(entry.key for entry in document.dynamic))
            held = [document, *self._read_all(filter(is_mirrorable_key, children)).values()]
        except SidecarError:
            return True
        return any(sidecar is not None and self._is_due(sidecar) for sidecar in held)

    async def _document(self, url: str, key: str, report: CaptureReport) -> tuple[Sidecar, dict[str, str] | None]:
        """The document's sidecar, and the flags of its requisites when it was fetched just now."""
        held = await trio.to_thread.run_sync(self._root.read_sidecar, key)
        if held is not None and not self._is_due(held):
            report.add(held.key, held.status, "skipped", held.flag)
            return held, None
        flags: dict[str, str] = {}

        async def fetch() -> Sidecar:
            answer = await self._archive.get(url)
            if answer.reply.status != 200:
                raise CaptureError(_status_text(answer))
            committed, found = await self._commit(key, answer, flag=None, old=held)
            flags.update({requisite.key: requisite.flag for requisite in found})
            return committed

        sidecar, ours = await self._once(key, fetch)
        report.add(key, sidecar.status, "fetched" if ours else "skipped", None)
        return sidecar, flags or None

    async def _fan_out(self, document: Sidecar, flags: dict[str, str] | None, report: CaptureReport) -> None:
        dynamic = {entry.key: entry.flag or "" for entry in document.dynamic}
        keys = [key for key in dict.fromkeys([*document.requisites, *dynamic]) if is_mirrorable_key(key)]
        held = await trio.to_thread.run_sync(self._read_all, keys)
        missing = [key for key in keys if (known := held[key]) is None or self._is_due(known)]
        if flags is None and any(key not in dynamic for key in missing):
            flags = await trio.to_thread.run_sync(self._flags_of, document)
        wanted = {**(flags or {}), **dynamic}
        for key in keys:
            known = held[key]
            if known is not None and not self._is_due(known):
                report.add(key, known.status, "skipped", known.flag)
            else:
                await self._child(key, wanted.get(key, ""), known, report)

    async def _child(self, key: str, flag: str, old: Sidecar | None, report: CaptureReport) -> None:
        parts = split_key(key)
        if parts is None:
            report.fail(key, None, _MALFORMED, digest=None)
            return

        async def fetch() -> Sidecar:
            answer = await self._archive.get(archive_url(parts[0], flag, parts[1]))
            if _child_status(answer.reply.status) is None:
                raise CaptureError(f"replay returned HTTP {answer.reply.status}")
            return (await self._commit(key, answer, flag=flag or None, old=old, child=True))[0]

        try:
            sidecar, ours = await self._once(key, fetch)
        except (RequestCapError, CacheRootError):
            raise
        except CaptureError as exc:
            report.fail(key, flag or None, str(exc), digest=key_hash(key))
        else:
            report.add(key, sidecar.status, "fetched" if ours else "skipped", flag or None)

    async def _once(self, key: str, fetch: Callable[[], Awaitable[Sidecar]]) -> tuple[Sidecar, bool]:
        """Fetch a key, or wait for whoever is fetching it and share what that came to. True when it was fetched here."""
        while (other := self._flights.get(key)) is not None:
            await other.done.wait()
            if other.sidecar is not None:
                return other.sidecar, False
            if other.error is not None:
                raise CaptureError(other.error)
            # It was cancelled or capped before it came to anything: whoever is next takes it over.
        flight = self._flights[key] = _Flight()
        try:
            # Looked at again: another flight may have come and gone since this pass read what is held.
            held = await trio.to_thread.run_sync(self._root.read_sidecar, key)
            if held is not None and not self._is_due(held):
                flight.sidecar = held
                return held, False
            flight.sidecar = await fetch()
            return flight.sidecar, True
        except (RequestCapError, CacheRootError):
            raise
        except CaptureError as exc:
            flight.error = str(exc)
            raise
        finally:
            del self._flights[key]
            flight.done.set()

    async def _commit(
        self, key: str, answer: ArchiveAnswer, *, flag: str | None, old: Sidecar | None, child: bool = False
    ) -> tuple[Sidecar, tuple[Requisite, ...]]:
        # Not abandoned on cancellation: a commit that began is finished, so that nothing is half there.
        return await trio.to_thread.run_sync(self._commit_now, key, answer, flag, old, child)

    def _commit_now(
        self, key: str, answer: ArchiveAnswer, flag: str | None, old: Sidecar | None, child: bool
    ) -> tuple[Sidecar, tuple[Requisite, ...]]:
        reply = answer.reply
        status = _child_status(reply.status) or CaptureStatus.ERROR
        found: tuple[Requisite, ...] = ()
        if not child and status is CaptureStatus.BODY and is_page(reply.content_type):
            found = extract_requisites(_text(reply.body))
        entry = Entry(
            key=key,
            status=status.value,
            content_type=reply.content_type,
            fetched_at=utc_text(self._utc_now()),
            flag=flag,
            requisites=tuple(requisite.key for requisite in found),
            dynamic=None if old is None or "dynamic" not in old.members else old.dynamic_rows,
            final_key=answer.final_key,
        )
        return self._root.commit(entry, reply.body if status is CaptureStatus.BODY else None), found

    def _is_due(self, sidecar: Sidecar) -> bool:
        return self._retry is not None and self._retry.covers(sidecar, self._utc_now())

    def _read_all(self, keys: Iterable[str]) -> dict[str, Sidecar | None]:
        return {key: None if split_key(key) is None else self._root.read_sidecar(key) for key in keys}

    def _flags_of(self, document: Sidecar) -> dict[str, str]:
        body = self._root.read_body(document.key) if document.status == CaptureStatus.BODY else None
        if body is None or not is_page(document.content_type):
            return {}
        return {requisite.key: requisite.flag for requisite in extract_requisites(_text(body))}


def _text(body: bytes) -> str:
    return body.removeprefix(_BOM).decode("utf-8", "replace")


def _child_status(status: int) -> CaptureStatus | None:
    """What a child's answer becomes; None for an answer that is no verdict."""
    match status:
        case 200:
            return CaptureStatus.BODY
        case 404 | 410:
            return CaptureStatus.ERROR
        case _ if 300 <= status < 400:
            return CaptureStatus.REDIRECT
    return None


def _status_text(answer: ArchiveAnswer) -> str:
    if answer.reply.status == 404:
        return "the archive has no such capture (HTTP 404)"
    return f"replay returned HTTP {answer.reply.status}"
