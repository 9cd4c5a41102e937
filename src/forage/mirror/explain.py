"""Why a document is not verified: what is broken on disk, what its last render left, and where that is asked for (blocking)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forage.mirror.cache import CacheRoot, CacheRootError
from forage.mirror.keys import parse_wayback_url, split_key
from forage.mirror.ledgers import Ledgers
from forage.mirror.localize import RULE_VERSION, dialect_of
from forage.mirror.results import DocumentStatus
from forage.mirror.sidecar import CaptureStatus, SidecarError
from forage.mirror.status import ABSENT, BODILESS, breakage, harmful, is_unfinished
from forage.mirror.verifier import Category, Finding, verify_document

__all__ = ["explain_document"]

# What blocks, by the list that names it in the record of a render.
_LISTS: Final = {
    "corrupt": "bytes that do not match their sidecar",
    "csp": "violation of the content security policy",
    "hardResidual": "request that nothing can sanction",
    "worklist": "missing capture",
    "unresolved": "recorded capture that could not be fetched",
    "incompleteClosure": "missing requisite",
    "unmatchedEscapes": "third party without policy",
}
_BROKEN: Final = {
    Category.MALFORMED: "broken sidecar",
    Category.HASH_MISMATCH: "body that does not match its sidecar",
    Category.KEY_MISMATCH: "sidecar of another capture",
    Category.MISSING_BODY: "body that is missing or cannot be read",
    Category.SCHEMA_VERSION: "sidecar of a version that this program does not know",
    Category.INCOMPLETE_CLOSURE: "missing capture",
    Category.INTERSTITIAL_AS_BODY: "page of the archive in the place of a capture",
}
_MOST_PLACES: Final = 5
_SHOWN: Final = 60


def explain_document(root: Path, key: str) -> dict[str, Any]:
    """Status, reason and what blocks, each with what asked for it and up to five places in the document and its children.

    Broken files come first: a document is verified when a stamp covers it and nothing is wrong with what it needs on disk.
    """
    ledgers, cache = Ledgers(root), CacheRoot(root)
    stamped, row, asked = key in ledgers.verified(RULE_VERSION), ledgers.flaky().get(key), ledgers.asked().get(key)
    findings = harmful(verify_document(root, key))
    broken = breakage(key, findings, stamped=stamped)
    if broken is not None:
        rendered = [] if stamped or row is None else _rendered(ledgers, cache, key)
        blocking = [*map(_damaged, findings), *rendered]
        if broken == DocumentStatus.CORRUPT:
            return _explained(key, broken, None, blocking)
        return _explained(key, DocumentStatus.FLAKY, broken, blocking)
    held = cache.read_sidecar(key)
    if stamped and held is not None:
        return _explained(key, DocumentStatus.VERIFIED if held.status == CaptureStatus.BODY else BODILESS, None)
    if not stamped and asked is not None and is_unfinished(row, asked):
        return _explained(key, str(asked["status"]), _text(asked, "error"))
    if stamped or row is None:
        return _explained(key, ABSENT if held is None else "captured", None)
    return _explained(key, DocumentStatus.FLAKY, str(row.get("reason")), _rendered(ledgers, cache, key))


def _explained(key: str, status: str, reason: str | None, blocking: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    return {"key": key, "status": str(status), "reason": reason, "blocking": list(blocking)}


def _rendered(ledgers: Ledgers, cache: CacheRoot, key: str) -> list[dict[str, Any]]:
    """What blocked the last render."""
    record = _members(_members(ledgers.read_findings(key)).get("log")).get("_forage")
    requests = [_members(row) for row in _rows(record, "requests")]
    sources = _sources(cache, key)
    subjects = [(what, subject) for name, what in _LISTS.items() for subject in _rows(record, name) if isinstance(subject, str)]
    return [_blocked(what, subject, requests, sources) for what, subject in subjects]


def _damaged(finding: Finding) -> dict[str, Any]:
    """A finding as what blocks: what is wrong, and with which capture or file."""
    members = finding.members
    subject = next(str(members[name]) for name in ("child", "key", "path", "hash") if name in members)
    what = _BROKEN[finding.category] + (f" ({members['error']})" if "error" in members else "")
    return {"what": what, "subject": subject, "initiator": None, "resourceType": None, "places": []}


def _members(value: object) -> Mapping[str, Any]:
    """A record is whatever a file holds: what is no object has no members."""
    return value if isinstance(value, Mapping) else {}


def _rows(record: object, name: str) -> list[Any]:
    rows = _members(record).get(name)
    return rows if isinstance(rows, list) else []


def _text(record: Mapping[str, Any], name: str) -> str | None:
    value = record.get(name)
    return value if isinstance(value, str) else None


def _blocked(what: str, subject: str, requests: Iterable[Mapping[str, Any]], sources: Mapping[str, str]) -> dict[str, Any]:
    request = next((row for row in requests if subject in (row.get("url"), row.get("key"))), {})
    return {
        "what": what,
        "subject": subject,
        "initiator": _text(request, "initiator"),
        "resourceType": _text(request, "resourceType"),
        "places": list(_places(subject, sources)),
    }


def _sources(cache: CacheRoot, key: str) -> dict[str, str]:
    """Texts that may hold the reason: the document and its held children that are pages, styles or scripts."""
    try:
        document = cache.read_sidecar(key)
    except SidecarError:
        return {}
    children = () if document is None else document.children
    return dict(_texts(cache, dict.fromkeys([key, *children])))


def _texts(cache: CacheRoot, keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    for key in keys:
        try:
            sidecar = cache.read_sidecar(key)
            held = sidecar is not None and sidecar.status == CaptureStatus.BODY and dialect_of(sidecar.content_type) is not None
            body = cache.read_body(key) if held else None
        except (SidecarError, CacheRootError):
            continue
        if body is not None:
            yield key, body.decode("utf-8", "replace")


def _places(subject: str, sources: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    left = _MOST_PLACES
    for spelling in _spellings(subject):
        for key, text in sources.items():
            at = text.find(spelling)
            if at >= 0 and left:
                left -= 1
                start = text.rfind("\n", 0, at) + 1
                shown = text[max(start, at - _SHOWN) : at + len(spelling) + _SHOWN].partition("\n")[0]
                yield {"key": key, "line": text.count("\n", 0, at) + 1, "column": at - start + 1, "text": shown}
        if left < _MOST_PLACES:
            return


def _spellings(subject: str) -> list[str]:
    """How a URL or key may stand in a source, the most exact first: whole, its original, without scheme, path, last part."""
    capture = parse_wayback_url(subject)
    parts = split_key(subject)
    original = capture.original if capture is not None else parts[1] if parts is not None and parts[0].isdecimal() else subject
    bare = original.partition("://")[2] or original
    path = bare.partition("/")[2]
    last = path.rstrip("/").rpartition("/")[2]
    return [spelling for spelling in dict.fromkeys([subject, original, bare, f"/{path}", last]) if len(spelling) > 2]
