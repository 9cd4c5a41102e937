"""Validators: what makes a request conditional on a snapshot that is kept already (RFC 9110 section 13; pure)."""

from __future__ import annotations

import re

import attrs

from forage.snapshots import Snapshot

__all__ = ["NO_VALIDATORS", "Validators", "sendable", "validators_of"]

# ASCII alone comes back as the bytes that it was; records hold other octets as latin-1 text, requests are written as UTF-8.
_SENDABLE = re.compile(r"[\t\x20-\x7e]{1,4096}")


@attrs.frozen(kw_only=True)
class Validators:
    """Headers that ask "only if it changed", and the entity tag among them. False when there are none."""

    headers: tuple[tuple[str, str], ...] = ()
    etag: str | None = None

    def __bool__(self) -> bool:
        return bool(self.headers)


NO_VALIDATORS = Validators()


def validators_of(prior: Snapshot | None, url: str) -> Validators:
    """What ``prior`` offers for a request of ``url``, the fragment aside.

    Nothing, when it is of another URL, when it may be partial (206), or when its response varied by everything: then its tag
    says nothing about the next one. The values go out exactly as they came.
    """
    if prior is None or prior.headers is None or prior.status == 206 or not 200 <= prior.status <= 299:
        return NO_VALIDATORS
    if prior.url.partition("#")[0] != url.partition("#")[0] or "*" in prior.headers.get("vary", ""):
        return NO_VALIDATORS
    etag = sendable(prior.headers.get("etag"))
    modified = sendable(prior.headers.get("last-modified"))
    found = (("If-None-Match", etag), ("If-Modified-Since", modified))
    return Validators(headers=tuple((name, value) for name, value in found if value is not None), etag=etag)


def sendable(value: str | None) -> str | None:
    """The value where it can go back as it came, else None. It is somebody's text: one with a line end must not become a header of
    its own, and one that no request may hold would keep the page from ever being asked for again."""
    return value if value is not None and _SENDABLE.fullmatch(value) else None
