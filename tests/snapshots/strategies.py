"""What hypothesis builds for the snapshot tests: texts of every kind of character, and durable snapshots."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from forage.snapshots import Snapshot, build_snapshot, decode_text_body
from forage.snapshots.model import sha256_hex

FETCHED_AT = "2026-09-01T12:34:56.789Z"

# Characters that some rule of the formats treats apart, among all others.
special = st.sampled_from(
    [*"ab09-_.!~*'()%+&=?#;: /\\\"<>\n\t\r\x00\x1f\x7f\x85\xa0é\u2028\ufeff\ufffd\ue000\uffff😀", "%41", "%2f", "%C3%A9", "%ZZ"]
)
anything = st.characters(exclude_categories=["Cs"])
texts = st.lists(special | anything, max_size=20).map("".join)
some_text = st.lists(special | anything, min_size=1, max_size=20).map("".join)
iso_times = st.datetimes().map(lambda t: t.strftime("%Y-%m-%dT%H:%M:%S.") + f"{t.microsecond // 1000:03d}Z")
times = iso_times | some_text.filter(lambda text: not text[0].isdigit())
headers = st.none() | st.dictionaries(some_text | st.integers(0, 2**33).map(str), texts, max_size=5)
redirects = st.none() | st.lists(texts, max_size=3).map(tuple)
charsets = st.sampled_from(
    [None, "utf-8", "utf8", "windows-1252", "shift_jis", "gbk", "big5", "utf-16le", "iso-2022-jp", "no-such-charset"]
)


@st.composite
def snapshots(draw: st.DrawFn, source_ids: st.SearchStrategy[str] = some_text) -> Snapshot:
    """Durable snapshots of all three forms: text, bytes, and text with its bytes."""
    form = draw(st.sampled_from(["text", "bytes", "decoded"]))
    data = draw(texts).encode() if form == "text" else draw(st.binary(max_size=60))
    charset = draw(charsets) if form == "decoded" else None
    body = data.decode() if form == "text" else data if form == "bytes" else decode_text_body(data, charset).text
    return Snapshot(
        source_id=draw(source_ids),
        url=draw(some_text),
        status=draw(st.integers(-5, 999) | st.integers()),
        fetched_at=draw(times),
        body=body,
        body_hash=sha256_hex(data),
        raw_bytes=data if form == "decoded" else None,
        declared_charset=charset,
        headers=draw(headers),
        redirects=draw(redirects),
        rendered=draw(st.none() | st.booleans()),
    )


def page(data: bytes = b"hello", /, **changes: Any) -> Snapshot:
    """A plain page with its bytes; ``changes`` are fields of the snapshot, of any type: callers make mistakes too."""
    built, _ = build_snapshot(
        source_id="src", url="https://example.test/a", status=200, fetched_at=FETCHED_AT, body=data, content_type="text/html"
    )
    return change(built, **changes)


def text_page(text: str = "hello", /, **changes: Any) -> Snapshot:
    """The same in the older form, hashed as the UTF-8 of its text."""
    return page(**{"body": text, "body_hash": sha256_hex(text.encode()), "raw_bytes": None, **changes})


def binary(data: bytes, /, **changes: Any) -> Snapshot:
    """A body that is no text."""
    return page(**{"body": data, "body_hash": sha256_hex(data), "raw_bytes": None, **changes})


def change(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """A copy with other fields, about which nothing is proved yet."""
    return Snapshot(**{**{name: getattr(snapshot, name) for name in FIELDS}, **changes})


FIELDS = (
    "source_id",
    "url",
    "status",
    "fetched_at",
    "body",
    "body_hash",
    "raw_bytes",
    "declared_charset",
    "headers",
    "redirects",
    "rendered",
    "not_modified",
)
