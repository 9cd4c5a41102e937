"""Sidecars: what is known about one capture, as canonical JSON (pure).

Owns the schema (versions 1 to 3 are read, 3 is written), the recorded children in ``dynamic`` and their merging. It opens no file. Unknown
members are carried over, so that other programs may keep theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import attrs

from forage._codec import JsonError, load_json, utf16_key
from forage.errors import CaptureError
from forage.mirror.canonical import canonical_json
from forage.mirror.interstitial import Interstitial
from forage.mirror.keys import RAW_FLAGS, split_key
from forage.snapshots.javascript import js_integer

__all__ = [
    "SIDECAR_VERSION",
    "VIAS",
    "CaptureStatus",
    "DynamicEntry",
    "DynamicEntryError",
    "Sidecar",
    "SidecarError",
    "SidecarFault",
    "check_content_type",
    "dynamic_entry_error",
    "merge_dynamic",
    "new_sidecar",
    "parse_sidecar",
]

SIDECAR_VERSION: Final = 3
_READABLE: Final = (1, 2, 3)
VIA_PROBE: Final = "remaster-verify"  # the name that stores already hold for what a browser found
VIAS: Final = (VIA_PROBE, "manual")
_LONGEST_METADATA: Final = 1000  # bytes of {"contentType":...}: what object stores take as metadata

_INSTANT: Final = re.compile(r"[0-9]{4}-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(?:Z|[+-]([0-9]{2}):([0-9]{2}))")


class CaptureStatus(StrEnum):
    """What became of a capture. All but ``body`` are terminal without a body."""

    BODY = "body"
    REDIRECT = "redirect"
    ERROR = "error"
    EMPTY = "empty"
    INTERSTITIAL = "interstitial"


class SidecarFault(StrEnum):
    """Why a sidecar that is there cannot be used. Rot must never look like absence."""

    READ = "read"
    PARSE = "parse"
    VERSION = "version"
    KEY = "key"


class SidecarError(CaptureError):
    """A sidecar is there and cannot be used; ``fault`` says why, ``key`` is the key that was asked for."""

    def __init__(self, fault: SidecarFault, key: str, message: str) -> None:
        self.fault = fault
        self.key = key
        super().__init__(message)


class DynamicEntryError(CaptureError, TypeError):
    """A recorded child, new or stored, is malformed or contradicts another; nothing was written."""


@attrs.frozen(kw_only=True)
class DynamicEntry:
    """A child that a browser asked for: the flag to fetch it with, who found it, when first."""

    key: str
    flag: str | None = None
    via: str = VIA_PROBE
    first_seen: str | None = None

    def members(self) -> dict[str, Any]:
        seen = {} if self.first_seen is None else {"firstSeen": self.first_seen}
        return {"key": self.key, "flag": self.flag, "via": self.via, **seen}


def dynamic_entry_error(value: object) -> str | None:
    """Why a stored or incoming entry is malformed, None when it is well-formed."""
    if not isinstance(value, Mapping):
        return "not an object"
    key, flag, via = value.get("key"), value.get("flag"), value.get("via")
    if not isinstance(key, str):
        return "key is not a string"
    if split_key(key) is None:
        return "key has no <ts>/<orig> separator"
    if flag is not None and flag not in RAW_FLAGS:
        return f"flag {_shown(flag)} not in {{{','.join(RAW_FLAGS)},null}}"
    if via not in VIAS:
        return f"via {_shown(via)} not in {{{','.join(VIAS)}}}"
    if "firstSeen" in value and not _is_instant(value["firstSeen"]):
        return f"firstSeen {_shown(value['firstSeen'])} is not an ISO-8601 timestamp"
    return None


def _shown(value: object) -> str:
    return canonical_json(value)[:80]


def _is_instant(value: object) -> bool:
    found = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return False
    month, day, hour, minute, second, offset_hour, offset_minute = (int(part or 0) for part in found.group(1, 2, 3, 4, 5, 7, 8))
    midnight = hour == 24 and minute == second == 0 and not (found[6] or "").strip(".0")
    in_day = (hour < 24 or midnight) and minute < 60 and second < 60
    return 1 <= month <= 12 and 1 <= day <= 31 and in_day and offset_hour < 24 and offset_minute < 60


@attrs.frozen(kw_only=True)
class Sidecar:
    """What is known about one capture. Reads leniently what a rotten member could be; ``members`` is the JSON object as stored."""

    members: Mapping[str, Any]

    @property
    def key(self) -> str:
        return _string(self.members, "key")

    @property
    def status(self) -> str:
        return _string(self.members, "status")

    @property
    def content_type(self) -> str:
        return _string(self.members, "contentType")

    @property
    def fetched_at(self) -> str:
        return _string(self.members, "fetchedAt")

    @property
    def content_hash(self) -> str:
        return _string(self.members, "contentHash")

    @property
    def flag(self) -> str | None:
        flag = self.members.get("flag")
        return flag if isinstance(flag, str) else None

    @property
    def requisites(self) -> tuple[str, ...]:
        listed = self.members.get("requisites")
        return tuple(key for key in listed if isinstance(key, str)) if isinstance(listed, list | tuple) else ()

    @property
    def dynamic(self) -> tuple[DynamicEntry, ...]:
        """The well-formed recorded children."""
        return tuple(_entry(row) for row in self.dynamic_rows if dynamic_entry_error(row) is None)

    @property
    def children(self) -> tuple[str, ...]:
        """Keys of what the capture names and of what a browser asked for, each once."""
        return tuple(dict.fromkeys([*self.requisites, *(entry.key for entry in self.dynamic)]))

    @property
    def dynamic_rows(self) -> tuple[Any, ...]:
        """The recorded children as stored, malformed ones included."""
        rows = self.members.get("dynamic")
        return tuple(rows) if isinstance(rows, list | tuple) else ()

    @property
    def has_bytes(self) -> bool:
        """True for a capture that is served: with a body, or known to be empty."""
        return self.status in {CaptureStatus.BODY, CaptureStatus.EMPTY}

    def text(self) -> str:
        """The file's text."""
        return canonical_json(self.members)


def _string(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _entry(row: Mapping[str, Any]) -> DynamicEntry:
    return DynamicEntry(key=row["key"], flag=row.get("flag"), via=row["via"], first_seen=row.get("firstSeen"))


def parse_sidecar(text: str, key: str) -> Sidecar:
    """Read a sidecar's text for ``key``. Raises SidecarError: not JSON, then the version, then the key."""
    try:
        members = load_json(text)
    except JsonError as exc:
        raise SidecarError(SidecarFault.PARSE, key, "sidecar is not JSON") from exc
    version = members.get("v") if isinstance(members, dict) else None
    if js_integer(version) not in _READABLE:
        raise SidecarError(SidecarFault.VERSION, key, "sidecar has a version that this program does not know")
    if members.get("key") != key:
        raise SidecarError(SidecarFault.KEY, key, "sidecar is for another key")
    return Sidecar(members=members)


def check_content_type(content_type: str) -> None:
    """Raises CaptureError for a content type that must not be stored: with a line end, or too long as metadata."""
    if "\r" in content_type or "\n" in content_type:
        raise CaptureError("content type holds a line end")
    if len(canonical_json({"contentType": content_type}).encode()) > _LONGEST_METADATA:
        raise CaptureError(f"content type is longer than {_LONGEST_METADATA} bytes of metadata")


def new_sidecar(
    *,
    key: str,
    status: str,
    content_type: str,
    fetched_at: str,
    flag: str | None = None,
    requisites: Iterable[str] = (),
    content: tuple[str, int] | None = None,
    interstitial: Interstitial | None = None,
    dynamic: Iterable[Any] | None = None,
    final_key: str | None = None,
) -> Sidecar:
    """A sidecar of the present version. ``content`` is hash and length of a kept body, ``final_key`` where redirects led."""
    members: dict[str, Any] = {
        "key": key,
        "status": status,
        "contentType": content_type,
        "fetchedAt": fetched_at,
        "flag": flag,
        "requisites": list(requisites),
        "v": SIDECAR_VERSION,
    }
    if content is not None:
        members["contentHash"], members["contentLength"] = content
    if interstitial is not None:
        members["signature"] = interstitial.signature.value
        if interstitial.target is not None:
            members["target"] = {"timestamp": interstitial.target.timestamp, "url": interstitial.target.original}
    if dynamic is not None:
        members["dynamic"] = list(dynamic)
    if final_key is not None and final_key != key:
        members["finalKey"] = final_key
    return Sidecar(members=members)


def merge_dynamic(sidecar: Sidecar, entries: Iterable[Mapping[str, Any] | DynamicEntry]) -> Sidecar:
    """The sidecar with ``entries`` recorded. What is known already keeps its flag and first sighting; other members are untouched.

    Raises DynamicEntryError for a malformed or contradictory entry, given or stored: nothing is ever repaired silently.
    """
    incoming: dict[str, DynamicEntry] = {}
    for given in entries:
        entry = _checked(given.members() if isinstance(given, DynamicEntry) else given, "entry")
        if incoming.setdefault(entry.key, entry) != entry:
            raise DynamicEntryError("two entries for one key differ")
    stored = sidecar.members.get("dynamic", [])
    if not isinstance(stored, list | tuple):
        raise DynamicEntryError("recorded children are not a list")
    merged = incoming | {entry.key: entry for entry in (_checked(row, "recorded child") for row in stored)}
    members = {name: value for name, value in sidecar.members.items() if name != "dynamic"}
    members["v"] = SIDECAR_VERSION
    if merged:
        members["dynamic"] = [merged[key].members() for key in sorted(merged, key=utf16_key)]
    return Sidecar(members=members)


def _checked(row: Mapping[str, Any], what: str) -> DynamicEntry:
    reason = dynamic_entry_error(row)
    if reason is not None:
        raise DynamicEntryError(f"malformed {what}: {reason}")
    return _entry(row)
