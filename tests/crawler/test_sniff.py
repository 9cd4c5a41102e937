"""Kind and encoding of a body, for link discovery."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.crawler.sniff import MAX_MARKUP_BYTES, Kind, Markup, media_type, read_markup


def encoding_of(body: bytes, content_type: str | None = "text/html") -> str:
    markup = read_markup(body, content_type)
    assert isinstance(markup, Markup)
    return markup.encoding


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("text/html", "text/html"),
        ("Text/HTML; charset=utf-8", "text/html"),
        (" text/html ;x", "text/html"),
        ("text/html, application/json", "application/json"),
        ("text/html, nonsense", "text/html"),
        ("html", None),
        ("/html", None),
        ("text/", None),
        ("te xt/html", None),
        ("", None),
        (None, None),
    ],
)
def test_media_type_is_the_last_well_formed_one(content_type: str | None, expected: str | None) -> None:
    assert media_type(content_type) == expected


@pytest.mark.parametrize(
    ("body", "content_type", "kind"),
    [
        (b"x", "text/html", Kind.HTML),
        (b"x", "application/xhtml+xml", Kind.XHTML),
        (b"x", "application/xml", Kind.XML),
        (b"x", "image/svg+xml", Kind.XML),
        (b"<a href=/x>", None, Kind.HTML),
        (b" \n<!doctype html>", "html", Kind.HTML),
        (b"<p>", "*/*", Kind.HTML),
        (b"<?xml version='1.0'?><html/>", None, Kind.XHTML),
        (b"\xef\xbb\xbf<p>", None, Kind.HTML),
        (b"text <a href=/x>", None, None),
        (b"{}", None, None),
        (b"", None, None),
        (b"<a href=/x>", "text/plain", None),
        (b"<a href=/x>", "application/json", None),
        (b"<a href=/x>", "application/octet-stream", None),
        (b"<a href=/x>", "image/png", None),
    ],
)
def test_kind_follows_the_type_and_the_body_where_there_is_none(body: bytes, content_type: str | None, kind: Kind | None) -> None:
    markup = read_markup(body, content_type)
    assert (markup.kind if isinstance(markup, Markup) else None) == kind


@pytest.mark.parametrize(
    "body",
    [b"%PDF-1.7 <a href=/x>", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff\xe0", b"PK\x03\x04", b"\x1f\x8b\x08", b"RIFF1234WEBPVP"],
)
def test_bytes_of_another_format_are_not_parsed_whatever_the_label(body: bytes) -> None:
    assert read_markup(body, "text/html") == ("content-type-mismatch",)
    assert read_markup(body, None) == ()


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"\xef\xbb\xbf<meta charset=gbk>", "text/html; charset=koi8-r", "utf-8"),
        (b"\xfe\xff\0<", "text/html; charset=koi8-r", "utf-16be"),
        (b"\xff\xfe<\0", "text/html; charset=koi8-r", "utf-16le"),
        (b"<meta charset=gbk>", "text/html; charset=koi8-r", "koi8-r"),
        (b"<meta charset=gbk>", 'text/html; charset=" KOI8-R "', "koi8-r"),
        (b"<meta charset=gbk>", "text/html; charset=no-such", "gbk"),
        (b"<meta charset=gbk>", "text/html; charset=koi8-r, text/html", "koi8-r"),
        (b"<meta charset=gbk>", "text/html", "gbk"),
        (b"<META CharSet = 'GB2312' >", "text/html", "gbk"),
        (b"<meta/charset=gbk>", "text/html", "gbk"),
        (b"<meta x=y charset=no-such><meta charset=gbk>", "text/html", "gbk"),
        (b"<meta content='text/html; charset=gbk' http-equiv=Content-Type>", "text/html", "gbk"),
        (b"<meta http-equiv=Content-Type content='text/html; charset=\"gbk\"'>", "text/html", "gbk"),
        (b"<meta http-equiv=refresh content='text/html; charset=gbk'>\xe9", "text/html", "windows-1252"),
        (b"<meta content='text/html; charset=gbk'>\xe9", "text/html", "windows-1252"),
        (b"<meta charset=utf-16be>", "text/html", "utf-8"),
        (b"<meta charset=x-user-defined>", "text/html", "windows-1252"),
        (b"<!-- <meta charset=gbk> --><meta charset=koi8-r>", "text/html", "koi8-r"),
        (b"<!--><meta charset=koi8-r>", "text/html", "koi8-r"),
        (b"<!x <meta charset=gbk><meta charset=koi8-r>", "text/html", "koi8-r"),
        (b"<p title='<meta charset=gbk>'><meta charset=koi8-r>", "text/html", "koi8-r"),
        (b"</meta charset=gbk><meta charset=koi8-r>", "text/html", "koi8-r"),
        (b"<metal charset=gbk><meta charset=koi8-r>", "text/html", "koi8-r"),
        (b"<meta charset='gbk", "text/html", "gbk"),
        (b"<?xml version='1.0' encoding='koi8-r'?><html>", "text/html", "koi8-r"),
        (b"<?xml version='1.0' encoding='koi8-r'?><meta charset=gbk>", "text/html", "gbk"),
        ("é".encode(), "text/html", "utf-8"),
        (b"\xe9", "text/html", "windows-1252"),
        (b" " * 1024 + b"<meta charset=gbk>\xe9\xe9", "text/html", "gbk"),
        (b" " * 1024 + b"<meta charset=gbk>" + "é".encode(), "text/html", "utf-8"),
        (b"plain", "text/html", "utf-8"),
    ],
)
def test_encoding_by_the_first_evidence(body: bytes, content_type: str, expected: str) -> None:
    assert encoding_of(body, content_type) == expected


def test_invalid_bytes_of_a_declared_encoding_are_replaced() -> None:
    markup = read_markup(b"<a href=/\xff>", "text/html; charset=utf-8")
    assert isinstance(markup, Markup)
    assert markup.text == "<a href=/\ufffd>"


def test_decoded_text_is_taken_as_it_is() -> None:
    markup = read_markup("\ufeff<a href=/é>", "text/html; charset=gbk")
    assert isinstance(markup, Markup)
    assert (markup.text, markup.encoding) == ("<a href=/é>", "utf-8")


def test_only_the_first_part_of_a_huge_body_is_searched() -> None:
    body = b"<p>" + "é".encode() * (MAX_MARKUP_BYTES // 2)
    markup = read_markup(body, "text/html")
    assert isinstance(markup, Markup)
    assert markup.warnings == ("html-truncated",)
    assert markup.encoding == "utf-8"  # the cut goes through a character
    assert len(markup.text.encode()) <= MAX_MARKUP_BYTES


@given(
    st.binary(max_size=200),
    st.sampled_from([None, "text/html", "text/xml", "x", "text/html; charset=shift_jis", 'a/b, text/html;charset="']),
)
def test_any_body_is_markup_or_not(body: bytes, content_type: str | None) -> None:
    for prefix in (b"", b"<meta charset=", b"<!--<meta charset=gbk", b"\xff\xfe", b"<?xml version='1.0' encoding='"):
        assert isinstance(read_markup(prefix + body, content_type), Markup | tuple)
