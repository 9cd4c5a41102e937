"""Certificates of a private authority, good and bad, and server contexts that present them."""

from __future__ import annotations

import datetime
import ssl
from functools import cache
from pathlib import Path

import trustme

__all__ = ["authority", "server_context", "trusted_by"]


@cache
def authority(name: str = "good") -> trustme.CA:
    """An authority, one for each name; keys take a while to make."""
    return trustme.CA(organization_name=f"tests: {name}")


def server_context(*names: str, ca: trustme.CA | None = None, expired: bool = False, self_signed: bool = False) -> ssl.SSLContext:
    """What a server presents for the host names and addresses in ``names``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issuer = trustme.CA(organization_name="nobody") if self_signed else ca or authority()
    if expired:
        yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        issuer.issue_cert(*names, not_before=yesterday - datetime.timedelta(days=30), not_after=yesterday).configure_cert(context)
    else:
        issuer.issue_cert(*names).configure_cert(context)
    return context


def trusted_by(folder: Path, ca: trustme.CA | None = None) -> str:
    """Path of a file in ``folder`` with the authority's certificate, for ``ca_file``."""
    path = folder / "authority.pem"
    (ca or authority()).cert_pem.write_to_path(str(path))
    return str(path)
