"""Snapshots made of a response, and of what a browser made of one.

Owns which bodies become text and what is hashed; `model` says what is durable, `text` how bytes decode. Format: sections 7 and 8 of the
snapshot formats.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from forage._codec import is_well_formed
from forage.errors import InvalidSnapshotError
from forage.snapshots.model import MAX_BODY_BYTES, Snapshot, prove_made, sha256_hex, validate_snapshot
from forage.snapshots.text import charset_of, decode_text_body, is_textual

__all__ = ["build_snapshot", "rendered_snapshot"]


def build_snapshot(
    *,
    source_id: str,
    url: str,
    status: int,
    fetched_at: str,
    body: bytes,
    content_type: str | None,
    headers: Mapping[str, str] | None = None,
    redirects: tuple[str, ...] | None = None,
    body_sha256: str | None = None,
) -> tuple[Snapshot, tuple[str, ...]]:
    """The durable snapshot of a response, and warnings about its text.

    ``body`` is what was received after content codings. A textual ``content_type`` (None counts as one) makes a text body
    decoded by the charset of that header alone; the bytes stay beside it and are what is hashed; ``body_sha256`` is that
    hash where it was taken already, while the bytes arrived. Raises InvalidSnapshotError when a part is
    above a limit of the durable form.
    """
    warnings: tuple[str, ...] = ()
    text: str | None = None
    charset: str | None = None
    if len(body) > MAX_BODY_BYTES:
        raise InvalidSnapshotError(f"body: is above {MAX_BODY_BYTES} bytes")
    if is_textual(content_type):
        charset, malformed = charset_of(content_type)
        decoded = decode_text_body(body, charset)
        text, warnings = decoded.text, (*malformed, *decoded.warnings)
    snapshot = Snapshot(
        source_id=source_id,
        url=url,
        status=status,
        fetched_at=fetched_at,
        body=body if text is None else text,
        body_hash=body_sha256 or sha256_hex(body),
        raw_bytes=None if text is None else body,
        declared_charset=charset,
        headers=headers,
        redirects=redirects,
    )
    prove_made(snapshot)
    return snapshot, warnings


def rendered_snapshot(snapshot: Snapshot, html: str) -> Snapshot:
    """``snapshot`` with the text that a browser made of it: hashed as UTF-8, its bytes and charset dropped, all else kept.

    Raises InvalidSnapshotError when the text is above the body limit or holds a lone surrogate.
    """
    if not is_well_formed(html):
        raise InvalidSnapshotError("body: holds a lone surrogate")
    rendered = attrs.evolve(snapshot, body=html, body_hash=sha256_hex(html.encode()), raw_bytes=None, declared_charset=None, rendered=True)
    validate_snapshot(rendered)
    return rendered
