"""Originals that no mirror can hold: what is not fetchable, and tracking beacons (pure).

Both are skipped by the capture pass, the gate, dry runs and the verifier's closure check; the edge in ``requisites`` stays.
"""

from __future__ import annotations

import re
from typing import Final

from ada_url import URL

from forage.mirror.keys import split_key

__all__ = ["host_and_path", "is_beacon", "is_fetchable", "is_mirrorable_key", "is_unmirrorable"]

_ASCII: Final = re.ASCII | re.IGNORECASE
_INERT: Final = re.compile(r"(?:data|javascript|mailto|blob|about|tel|vbscript):", _ASCII)
_EMBEDDED_DATA: Final = re.compile(r"data:[a-z]+/[\w.+-]", _ASCII)
_NO_HOST: Final = re.compile(r"https?://javascript(?:[:/]|\Z)", _ASCII)

_ANY: Final = re.compile(r".*", re.DOTALL)
_ANALYTICS: Final = re.compile(r"/__utm\.gif|/collect")
_PIXEL: Final = re.compile(r"/tr")
_CLEAR: Final = re.compile(r"/+c\.gif")

# Counting pixels carry a fresh URL each time, so that no mirror of them is ever complete. Exact host -> whole path.
_BEACONS: Final = {
    "google-analytics.com": _ANALYTICS,
    "www.google-analytics.com": _ANALYTICS,
    "ssl.google-analytics.com": _ANALYTICS,
    "csi.gstatic.com": _ANY,
    "pixel.wp.com": _ANY,
    "stats.wp.com": _ANY,
    "pixel.advertising.com": _ANY,
    "facebook.com": _PIXEL,
    "www.facebook.com": _PIXEL,
    "c1.microsoft.com": _CLEAR,
}
# The host and everything below it.
_BEACON_DOMAINS: Final = ("2o7.net", "omtrdc.net", "doubleclick.net", "adnxs.com", "clarity.ms", "getbackstory.com")
_BELOW: Final = tuple(f".{domain}" for domain in _BEACON_DOMAINS)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def is_fetchable(original: str) -> bool:
    """False for what no request can bring: inert schemes, data URLs glued to a base, scripts taken for hosts, nothing at all."""
    if not original or _INERT.match(original) or _NO_HOST.match(original):
        return False
    return _EMBEDDED_DATA.search(original) is None


def host_and_path(url: str) -> tuple[str, str] | None:
    """Host and path as the URL standard reads them, None when it reads no URL."""
    try:
        parsed = URL(_SURROGATE.sub("\ufffd", url))
    except ValueError:
        return None
    return parsed.hostname.lower(), parsed.pathname


def is_beacon(original: str) -> bool:
    """True for the request of a known tracking pixel."""
    found = host_and_path(original)
    if found is None:
        return False
    host, path = found
    if host in _BEACON_DOMAINS or host.endswith(_BELOW):
        return True
    rule = _BEACONS.get(host)
    return rule is not None and rule.fullmatch(path) is not None


def is_unmirrorable(original: str) -> bool:
    """True when the capture pass never asks for this original."""
    return not is_fetchable(original) or is_beacon(original)


def is_mirrorable_key(key: str) -> bool:
    """False for a key whose original is never fetched. A key without separator stays in, to be reported."""
    parts = split_key(key)
    return parts is None or not is_unmirrorable(parts[1])
