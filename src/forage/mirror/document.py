"""One document of a crawl: rounds of render, record and fetch until nothing is missing, or it is given up.

Owns the rounds and what is written about them: recorded children, stamps, flaky rows, the record of each render. Recording comes before
fetching, so that a run that was killed goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import attrs
import trio

from forage.errors import CaptureError
from forage.mirror.cache import CacheRoot, utc_text
from forage.mirror.capture import Capture
from forage.mirror.driver import Examination, ProbeDriver, ReadSidecar
from forage.mirror.gate import Assessment, Reason
from forage.mirror.har import har_document
from forage.mirror.keys import CrawlInput, is_addressable
from forage.mirror.ledgers import Ledgers
from forage.mirror.localize import RULE_VERSION
from forage.mirror.originals import is_mirrorable_key
from forage.mirror.results import DocumentResult, DocumentStatus
from forage.mirror.sidecar import SIDECAR_VERSION, DynamicEntry, Sidecar
from forage.mirror.summary import CaptureEntry

__all__ = ["Corpus", "DocumentCrawl", "OnProgress", "RecordDynamic", "Shared"]

OnProgress: TypeAlias = Callable[[Mapping[str, Any]], None]
RecordDynamic: TypeAlias = Callable[[CacheRoot, str, Sequence[DynamicEntry]], Awaitable[Sidecar]]
Corpus: TypeAlias = set[str]

_UNADDRESSABLE = "no browser can ask for this key: its path holds dot segments"


@attrs.frozen(kw_only=True)
class Shared:
    """What all documents of a run share."""

    root: CacheRoot
    corpus: Corpus
    capture: Capture
    ledgers: Ledgers
    read: ReadSidecar
    record: RecordDynamic
    check_cap: Callable[[], None]
    on_progress: OnProgress
    note_browser: Callable[[str | None], None]
    utc_now: Callable[[], datetime]
    max_iterations: int
    har: bool

    def now(self) -> str:
        return utc_text(self.utc_now())

    def note_entry(self, entry: CaptureEntry) -> None:
        """Keep the corpus live: what a pass skipped or fetched is held."""
        if entry.action != "failed":
            self.corpus.add(entry.key)


class DocumentCrawl:
    """The rounds of one document."""

    def __init__(self, document: CrawlInput, driver: ProbeDriver, shared: Shared) -> None:
        self._url = document.url
        self._key = document.key
        self._driver = driver
        self._shared = shared
        self._iterations = 0
        self._added = 0
        self._recorded: list[str] = []

    async def run(self) -> DocumentResult:
        """Work until the document is verified or given up. Raises CaptureError, BrowserError: the document is then an error."""
        if not is_addressable(self._key):
            raise CaptureError(_UNADDRESSABLE)
        await self._capture()
        self._recorded = await self._recorded_children()
        while True:
            seen = await self._driver.examine(self._key, corpus=self._shared.corpus, recorded=self._recorded)
            found = seen.assessment
            self._shared.note_browser(seen.report.browser)
            self._tell_drops(found)
            if found.corrupt:
                return await self._give_up(DocumentStatus.CORRUPT, {"corrupt": list(found.corrupt)}, seen)
            if not found.served:
                return await self._probe_error(seen)
            await self._keep_har(seen)
            if not found.worklist and not found.stale:
                return await self._judged(found.reason, seen)
            if self._iterations >= self._shared.max_iterations:
                return await self._unconverged(seen)
            await self._next_round(found)

    async def _next_round(self, found: Assessment) -> None:
        if found.worklist:
            await self._shared.record(self._shared.root, self._key, found.worklist)
            self._recorded += [entry.key for entry in found.worklist]
            self._added += len(found.worklist)
            self._shared.check_cap()
            await self._capture(recorded=len(found.worklist))
        else:
            # Captures arrived after this page was served: rendering again is all that is needed.
            self._iterations += 1

    async def _capture(self, recorded: int | None = None) -> None:
        summary = await self._shared.capture(self._url, on_entry=self._shared.note_entry)
        event: dict[str, Any] = {"type": "capture", "key": self._key, "fetched": summary.fetched, "iter": 0}
        if recorded is not None:
            self._iterations += 1
            event |= {"iter": self._iterations, "recorded": recorded}
        self._shared.on_progress(event | ({"failures": len(summary.failures)} if summary.failures else {}))

    async def _recorded_children(self) -> list[str]:
        document = await self._shared.read(self._shared.root, self._key)
        rows = () if document is None else document.dynamic_rows
        keys = [row["key"] for row in rows if isinstance(row, Mapping) and isinstance(row.get("key"), str)]
        return [key for key in dict.fromkeys(keys) if is_mirrorable_key(key)]

    async def _judged(self, reason: Reason | None, seen: Examination) -> DocumentResult:
        if reason is None:
            return await self._verified(seen)
        return await (self._probe_error(seen) if reason is Reason.PROBE_ERROR else self._flaky(reason, seen))

    async def _probe_error(self, seen: Examination) -> DocumentResult:
        why = seen.assessment.unproved
        return await self._give_up(DocumentStatus.PROBE_ERROR, {} if why is None else {"error": why}, seen)

    async def _verified(self, seen: Examination) -> DocumentResult:
        found = seen.assessment
        facts = {"browser": seen.report.browser, "viewport": seen.report.viewport}
        stamp = {
            "key": self._key,
            "at": self._shared.now(),
            "iterations": self._iterations,
            "dynamicCount": self._added,
            "allowedEscapes": len(found.findings.allowed),
            "ruleVersion": RULE_VERSION,
            "sidecarV": SIDECAR_VERSION,
            **{name: value for name, value in facts.items() if value is not None},
        }
        await trio.to_thread.run_sync(self._shared.ledgers.append, "verified.jsonl", stamp)
        await trio.to_thread.run_sync(self._shared.ledgers.forget_findings, self._key)
        sanctioned = {"sanctionedCsp": len(found.sanctioned)} if found.sanctioned else {}
        return self._result(DocumentStatus.VERIFIED, {"allowedEscapes": len(found.findings.allowed), **sanctioned})

    async def _flaky(self, reason: Reason, seen: Examination) -> DocumentResult:
        found = seen.assessment
        residuals = {
            "residualMissing": list(found.missing),
            "residualEscapes": list(found.findings.unmatched),
            "residualHard": list(found.hard),
            "residualCsp": list(found.csp),
        }
        await self._write_flaky(reason, residuals, seen)
        return self._result(DocumentStatus.FLAKY, {name: len(rows) for name, rows in residuals.items()})

    async def _unconverged(self, seen: Examination) -> DocumentResult:
        found = seen.assessment
        missing = list(dict.fromkeys([*found.missing, *found.stale]))
        residuals = {"residualMissing": missing, "residualEscapes": list(found.findings.unmatched)}
        await self._write_flaky(Reason.UNCONVERGED, residuals, seen)
        return self._result(DocumentStatus.UNCONVERGED, {name: len(rows) for name, rows in residuals.items()})

    async def _give_up(self, status: DocumentStatus, members: Mapping[str, Any], seen: Examination) -> DocumentResult:
        """A render that proves nothing: bytes that rotted, or a document that was never shown."""
        await self._write_flaky(Reason(status.value), members, seen)
        return self._result(status, members)

    def _result(self, status: DocumentStatus, members: Mapping[str, Any]) -> DocumentResult:
        counts = {"iterations": self._iterations, "dynamicRecorded": self._added}
        return DocumentResult(key=self._key, status=status, members={**counts, **members})

    async def _write_flaky(self, reason: Reason, residuals: Mapping[str, Any], seen: Examination) -> None:
        row = {"key": self._key, "at": self._shared.now(), "reason": reason.value, "iterations": self._iterations, **residuals}
        await trio.to_thread.run_sync(self._shared.ledgers.append, "flaky.jsonl", row)
        document = har_document(self._key, self._iterations, seen.report, seen.assessment, now=row["at"])
        await trio.to_thread.run_sync(self._shared.ledgers.write_findings, self._key, {"reason": reason.value, **document})

    async def _keep_har(self, seen: Examination) -> None:
        if self._shared.har:
            document = har_document(self._key, self._iterations, seen.report, seen.assessment, now=self._shared.now())
            await trio.to_thread.run_sync(self._shared.ledgers.write_har, f"{self._key}#{self._iterations}", document)

    def _tell_drops(self, found: Assessment) -> None:
        lists = {
            "tracking beacon": found.findings.beacons,
            "unfetchable original": found.findings.unfetchable,
            "the archive's own URL": found.findings.chrome,
            "unreadable capture URL": found.findings.unparseable,
            "capture without bytes asked of the archive": found.terminal,
            "navigation refused": found.navigations,
        }
        for what, urls in lists.items():
            for url in urls:
                self._shared.on_progress({"type": "drop", "key": self._key, "line": f"{what}: {url}"})
