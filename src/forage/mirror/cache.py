"""A mirror's root on disk: bodies under ``cap/``, sidecars under ``meta/``, scratch under ``tmp/``.

A sidecar is the only authority and its presence the only sign of completion: it is published last, by renaming. A body without sidecar
counts as absent. There is no index; what is held is found by walking ``meta/``. Owns the files and the commit protocol, not what is fetched
(``capture``), checked (``verifier``) or served (``site``). Format: the cache root of wayback mirrors, readable and writable by its other
implementations. Blocking: call it in a worker thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs

from forage._codec import JsonError, load_json, utf16_key
from forage._files import FileReadError
from forage.errors import CaptureError
from forage.mirror.folders import list_folder, open_folder, publish_file, read_below
from forage.mirror.interstitial import Interstitial, detect_interstitial
from forage.mirror.keys import body_path, key_hash, sidecar_path
from forage.mirror.localize import Dialect, dialect_of
from forage.mirror.requisites import is_page
from forage.mirror.sidecar import (
    CaptureStatus,
    DynamicEntry,
    Sidecar,
    SidecarError,
    SidecarFault,
    check_content_type,
    merge_dynamic,
    new_sidecar,
    parse_sidecar,
)

__all__ = ["MAX_BODY_BYTES", "MAX_SIDECAR_BYTES", "CacheRoot", "CacheRootError", "Entry", "content_hash", "utc_text", "writing"]

MAX_SIDECAR_BYTES: Final = 16 << 20
MAX_BODY_BYTES: Final = 1 << 30
# As `publish_file` names them; other writers of this format name theirs otherwise, and are not asked for our lock.
_SCRATCH: Final = re.compile(r"[0-9a-f]{64}\.[0-9]+-[0-9a-f]{12}(?:\.json)?\.part", re.ASCII)


class CacheRootError(CaptureError):
    """The root could not be read or written: full, read-only, not permitted. Nothing was half published."""


@attrs.frozen(kw_only=True)
class Entry:
    """What is to be committed.

    ``dynamic`` are recorded children to carry over, as stored; ``index_status`` is what an index says of the capture; ``interstitial``
    what is known already of one that has no body.
    """

    key: str
    status: str
    content_type: str = ""
    fetched_at: str
    flag: str | None = None
    requisites: tuple[str, ...] = ()
    dynamic: tuple[Any, ...] | None = None
    index_status: object = None
    interstitial: Interstitial | None = None
    final_key: str | None = None


def utc_text(moment: datetime) -> str:
    """ISO-8601 UTC with milliseconds and Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def content_hash(body: bytes) -> str:
    """How a sidecar names the bytes of its body."""
    return f"sha256-{b64encode(hashlib.sha256(body).digest()).decode('ascii')}"


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Operating system errors of the block become CacheRootError, without any path."""
    try:
        yield
    except OSError as exc:
        raise CacheRootError(f"the mirror cannot be written ({os.strerror(exc.errno or errno.EIO)})") from exc


class CacheRoot:
    """The root at ``path``. Holds no state and no open file, so any number of threads may use it; writers of one key never mix."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # Reading.

    def read_sidecar(self, key: str) -> Sidecar | None:
        """The sidecar of a key, None when there is none. Raises SidecarError for one that is there and cannot be used."""
        try:
            data = read_below(self.path, sidecar_path(key_hash(key)), MAX_SIDECAR_BYTES)
        except FileReadError as exc:
            raise SidecarError(SidecarFault.READ, key, "sidecar cannot be read") from exc
        return None if data is None else parse_sidecar(data.decode("utf-8", "replace"), key)

    def read_body(self, key: str) -> bytes | None:
        """The stored bytes of a key, None when there are none. Raises CacheRootError when they cannot be read."""
        try:
            return read_below(self.path, body_path(key_hash(key)), MAX_BODY_BYTES)
        except FileReadError as exc:
            raise CacheRootError("a body cannot be read") from exc

    def has_sidecar(self, key: str) -> bool:
        """True when there is a sidecar file, whatever it says."""
        shard, _, name = sidecar_path(key_hash(key)).rpartition("/")
        return name in (list_folder(self.path, shard) or ())

    def sidecar_members(self) -> Iterator[Mapping[str, Any]]:
        """The JSON object of every sidecar that can be read, of any version, in the order of the hashes."""
        for shard in list_folder(self.path, "meta") or ():
            for name in list_folder(self.path, f"meta/{shard}") or ():
                with contextlib.suppress(FileReadError, JsonError):
                    data = read_below(self.path, f"meta/{shard}/{name}", MAX_SIDECAR_BYTES) if name.endswith(".json") else None
                    members = load_json((data or b"").decode("utf-8", "replace"))
                    if isinstance(members, dict):
                        yield members

    def load_corpus(self) -> set[str]:
        """Keys of all sidecars, of any status and version; unreadable ones are skipped."""
        return {members["key"] for members in self.sidecar_members() if isinstance(members.get("key"), str)}

    def document_keys(self) -> list[str]:
        """Keys of captured HTML documents, in the order of UTF-16 units."""
        sidecars = map(_as_sidecar, self.sidecar_members())
        pages = {s.key for s in sidecars if s.key and s.status == CaptureStatus.BODY and dialect_of(s.content_type) is Dialect.HTML}
        return sorted(pages, key=utf16_key)

    # Writing.

    def commit(self, entry: Entry, body: bytes | None = None) -> Sidecar:
        """Publish one capture: body first, sidecar last. An interstitial or an empty body becomes a sidecar without bytes.

        Raises CaptureError for what must not be stored, CacheRootError when it cannot be written; nothing is left behind then.
        """
        check_content_type(entry.content_type)
        if entry.status == CaptureStatus.BODY and body is None:
            raise TypeError("a body commit needs bytes")
        found = entry.interstitial if body is None or entry.status != CaptureStatus.BODY else _interstitial(entry, body)
        status = entry.status if found is None else CaptureStatus.INTERSTITIAL.value
        kept = body if status == CaptureStatus.BODY else None
        if kept == b"":
            status, kept = CaptureStatus.EMPTY.value, None
        sidecar = new_sidecar(
            key=entry.key,
            status=status,
            content_type=entry.content_type,
            fetched_at=entry.fetched_at,
            flag=entry.flag,
            requisites=entry.requisites,
            content=None if kept is None else (content_hash(kept), len(kept)),
            interstitial=found,
            dynamic=entry.dynamic,
            final_key=entry.final_key,
        )
        text = _sidecar_bytes(sidecar)
        digest = key_hash(entry.key)
        if kept is not None:
            self._publish(body_path(digest), kept, sync=True)
        self._publish(sidecar_path(digest), text, sync=False)
        return sidecar

    def record_dynamic(self, key: str, entries: Iterable[Mapping[str, Any] | DynamicEntry]) -> Sidecar:
        """Record children that a browser asked for in a document's sidecar. Recording the same twice gives the same bytes.

        Raises DynamicEntryError for a malformed entry, CaptureError when there is no sidecar: nothing is invented.
        """
        sidecar = self.read_sidecar(key)
        if sidecar is None:
            raise CaptureError("no sidecar to record children in")
        merged = merge_dynamic(sidecar, entries)
        self._publish(sidecar_path(key_hash(key)), _sidecar_bytes(merged), sync=False)
        return merged

    def reap_scratch(self) -> None:
        """Delete what a writer of this program that was killed left half written. Only for the one that holds the root's lock."""
        with contextlib.suppress(OSError), open_folder(self.path, "tmp") as scratch:
            for name in list(scratch.names()):
                if _SCRATCH.fullmatch(name):
                    scratch.unlink(name)

    def _publish(self, name: str, data: bytes, *, sync: bool) -> None:
        with writing():
            publish_file(self.path, name, data, sync=sync)


def _sidecar_bytes(sidecar: Sidecar) -> bytes:
    """The file of a sidecar. Raises CaptureError for one that no reader would take."""
    try:
        data = sidecar.text().encode()
    except JsonError as exc:
        raise CaptureError("sidecar is nested too deep to be written") from exc
    if len(data) > MAX_SIDECAR_BYTES:
        raise CaptureError(f"sidecar is larger than {MAX_SIDECAR_BYTES} bytes: the page names too many captures")
    return data


def _as_sidecar(members: Mapping[str, Any]) -> Sidecar:
    return Sidecar(members=members)


def _interstitial(entry: Entry, body: bytes) -> Interstitial | None:
    text = body.decode("utf-8", "replace") if is_page(entry.content_type) else None
    return detect_interstitial(entry.key, entry.content_type, text, index_status=entry.index_status)
