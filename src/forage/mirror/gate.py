"""Is a rendered document complete: the findings of one render against what the mirror holds (pure).

Owns the meaning of each finding, what blocks and in which order it is named. Only the last render counts; residuals are listed, never
chased and never mistaken for clean.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import attrs

from forage.mirror.answers import Outcome, Served
from forage.mirror.keys import find_held
from forage.mirror.leaks import Findings, RequestClass, Sighting, gather, is_csp_violation, quoted_url, url_target
from forage.mirror.originals import is_mirrorable_key
from forage.mirror.policy import EscapePolicy
from forage.mirror.probe import CspFinding, RenderReport
from forage.mirror.sidecar import DynamicEntry, Sidecar

__all__ = ["Assessment", "Holdings", "Reason", "assess", "csp_findings", "document_served", "judge_csp", "keys_in_question"]

_LONGEST_LINE: Final = 200
_UNEXPLAINING: Final = frozenset([RequestClass.LOCAL_HIT, RequestClass.LOCAL_NOISE, RequestClass.INERT])
_LOCAL_SCHEMES: Final = ("data", "blob")
_ROTTEN: Final = frozenset([Outcome.CORRUPT, Outcome.UNREADABLE])


class Reason(StrEnum):
    """Why a document is not verified; in the order in which reasons are named when several hold."""

    CORRUPT = "corrupt"
    PROBE_ERROR = "probe-error"
    CSP_RESIDUAL = "csp-residual"
    UNEXPECTED_ARCHIVE_REQUEST = "unexpected-archive-request"
    UNLOCALIZED = "unlocalized"
    NO_PROGRESS = "no-progress"
    INCOMPLETE_CLOSURE = "incomplete-closure"
    UNMATCHED_ESCAPES = "unmatched-escapes"
    UNCONVERGED = "unconverged"


@attrs.frozen(kw_only=True)
class Assessment:
    """One render, judged.

    ``served``: the document's own request was answered with its stored bytes. ``unproved`` says why the render proves less than it shows,
    or nothing. ``worklist`` is new work; ``unresolved`` are recorded
    children and ``incomplete`` static requisites without sidecar; ``stale`` are captures that arrived too late for this render;
    ``terminal`` are archive URLs of captures known to have no bytes, reported only.
    """

    served: bool
    unproved: str | None = None
    sightings: tuple[Sighting, ...]
    findings: Findings
    corrupt: tuple[str, ...] = ()
    worklist: tuple[DynamicEntry, ...] = ()
    unresolved: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    unlocalized: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    terminal: tuple[str, ...] = ()
    csp: tuple[str, ...] = ()
    sanctioned: tuple[str, ...] = ()
    navigations: tuple[str, ...] = ()

    @property
    def hard(self) -> tuple[str, ...]:
        """URLs that nothing can sanction: the archive's own, unreadable ones, held captures that were not localised."""
        return self.findings.chrome + self.findings.unparseable + self.unlocalized

    @property
    def missing(self) -> tuple[str, ...]:
        """Keys that are asked for or named and not held."""
        return tuple(dict.fromkeys([*(entry.key for entry in self.worklist), *self.unresolved, *self.incomplete]))

    @property
    def reason(self) -> Reason | None:
        """The first reason that holds, None for a clean render. New work is not a reason: it is to be done."""
        checks = [
            (Reason.CORRUPT, self.corrupt),
            (Reason.PROBE_ERROR, not self.served or self.unproved),
            (Reason.CSP_RESIDUAL, self.csp),
            (Reason.UNEXPECTED_ARCHIVE_REQUEST, self.findings.chrome + self.findings.unparseable),
            (Reason.UNLOCALIZED, self.unlocalized),
            (Reason.NO_PROGRESS, self.unresolved),
            (Reason.INCOMPLETE_CLOSURE, self.incomplete),
            (Reason.UNMATCHED_ESCAPES, self.findings.unmatched),
        ]
        return next((reason for reason, holds in checks if holds), None)


@attrs.frozen(kw_only=True)
class Holdings:
    """What is on disk while a render is judged.

    Sidecars by key (None: there is none), the corpus that the page was served from, and the keys that came after it.
    """

    sidecars: Mapping[str, Sidecar | None]
    snapshot: Container[str]
    late: Container[str] = frozenset()

    def has(self, key: str) -> bool:
        return self.sidecars.get(key) is not None


def keys_in_question(document: Sidecar, recorded: Iterable[str], findings: Findings) -> list[str]:
    """Keys whose sidecars `assess` needs."""
    asked = [entry.key for entry in findings.entries] + [key for key, _ in findings.foreign]
    return list(dict.fromkeys([*asked, *recorded, *document.requisites]))


def document_served(key: str, report: RenderReport, served: Sequence[Served], *, logged: bool) -> bool:
    """True when the navigation itself was seen and answered with the checked bytes of ``key``.

    ``logged``: ``served`` is the log of the render. Without one, records come from a script: any document request will do.
    """
    records = [record for record in report.requests if record.status in {None, 200}]
    navigation = [url_target(record.url) for record in records if record.document]
    if not navigation and not logged:
        navigation = [url_target(record.url) for record in records if (record.resource_type or "document").lower() == "document"]
    return any(row.key == key and row.outcome is Outcome.HIT and row.target in navigation for row in served)


def assess(
    *,
    key: str,
    document: Sidecar,
    recorded: Sequence[str],
    report: RenderReport,
    sightings: Sequence[Sighting],
    served: Sequence[Served],
    logged: bool,
    holdings: Holdings,
    policy: EscapePolicy,
    first_seen: str,
) -> Assessment:
    """Judge one render of the document ``key``. ``served`` is what the mirror answered for it; ``recorded`` its recorded children."""
    findings = gather(sightings, first_seen)
    unlocalized, stale, terminal = _held_abroad(findings, holdings)
    known = set(recorded)
    csp, sanctioned = judge_csp(csp_findings(report), sightings, report.navigations, policy)
    return Assessment(
        served=report.failure is None and document_served(key, report, served, logged=logged),
        unproved=report.failure or report.unsettled,
        sightings=tuple(sightings),
        findings=findings,
        corrupt=tuple(dict.fromkeys(row.key for row in served if row.outcome in _ROTTEN and row.key is not None)),
        worklist=tuple(entry for entry in findings.entries if entry.key not in known and not holdings.has(entry.key)),
        unresolved=tuple(child for child in recorded if not holdings.has(child)),
        incomplete=tuple(k for k in dict.fromkeys(document.requisites) if k not in known and is_mirrorable_key(k) and not holdings.has(k)),
        unlocalized=unlocalized,
        stale=stale + _late(served, holdings),
        terminal=terminal,
        csp=csp,
        sanctioned=sanctioned,
        navigations=report.navigations,
    )


def _held_abroad(findings: Findings, holdings: Holdings) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Archive requests for captures that are held: unlocalised URLs, keys that came after the snapshot, URLs of terminal captures."""
    unlocalized, stale, terminal = [], [], []
    for key, url in findings.foreign:
        sidecar = holdings.sidecars.get(key)
        if sidecar is None:
            continue
        if not sidecar.has_bytes:
            terminal.append(url)
        elif key in holdings.snapshot:
            unlocalized.append(url)
        else:
            stale.append(key)
    return tuple(unlocalized), tuple(stale), tuple(terminal)


def _late(served: Sequence[Served], holdings: Holdings) -> tuple[str, ...]:
    """Keys that the mirror did not have when the page asked, and has now: another document brought them meanwhile."""
    missed = (find_held(row.target, holdings.late) for row in served if row.outcome is Outcome.MISS)
    return tuple(dict.fromkeys(found[0].key for found in missed if found is not None and found[1]))


def csp_findings(report: RenderReport) -> tuple[CspFinding, ...]:
    """The browser's own events, and scripted console lines that report a violation."""
    lines = (line[:_LONGEST_LINE] for line in report.console if is_csp_violation(line))
    return report.csp + tuple(CspFinding(message=line, url=quoted_url(line)) for line in lines)


def judge_csp(
    found: Iterable[CspFinding], sightings: Sequence[Sighting], navigations: Iterable[str], policy: EscapePolicy
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Violations that count, and those that the policy sanctions. One whose URL is told of already is the same finding."""
    told = [*(sighting.url for sighting in sightings if sighting.kind not in _UNEXPLAINING), *navigations]
    explained = {url.partition("#")[0] for url in told}
    origins = {"/".join(url.split("/", 3)[:3]) for url in explained}
    counted: list[str] = []
    sanctioned: list[str] = []
    for finding in found:
        scheme = "" if finding.url is None else finding.url.partition(":")[0].lower()
        if finding.url is None or scheme in _LOCAL_SCHEMES or finding.url in _LOCAL_SCHEMES:
            source = finding.source or scheme
            entry = policy.sanction(finding.directive, source) if finding.directive else None
            (counted if entry is None else sanctioned).append(finding.message)
        # A browser may report the origin alone of what it blocked after a redirect.
        elif finding.url.partition("#")[0] not in explained and finding.url.rstrip("/") not in origins:
            counted.append(finding.message)
    return tuple(counted), tuple(sanctioned)
