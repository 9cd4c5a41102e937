"""Which bodies are text, their charset, and warnings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.snapshots import charset_of, decode_text_body, decodes_quickly, is_textual
from forage.snapshots.text import CHARSET_TOKEN, decodes_to
from tests.snapshots.strategies import charsets


@pytest.mark.parametrize(
    ("content_type", "textual"),
    [
        (None, True),
        ("", True),
        ("text/html", True),
        ("TEXT/X-ANYTHING", True),
        ("application/ld+json", True),
        ("application/xhtml+xml; charset=utf-8", True),
        ("application/JavaScript", True),
        ("application/x-www-form-urlencoded", True),
        ("multipart/form-data; name=x.json", True),  # the words count anywhere
        ("image/png", False),
        (" text/html", False),
        ("application/octet-stream", False),
        ("xtext/html", False),
    ],
)
def test_textual_types(content_type: str | None, textual: bool) -> None:
    assert is_textual(content_type) is textual


@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        (None, None),
        ("text/html", None),
        ("charset=utf-8", None),  # the first piece is the type
        ("text/html; charset=UTF-8", "utf-8"),
        ("text/html;;; CHARSET = 'x' ; charset=utf-8", "'x'"),
        ("text/html; charset=gbk; charset=utf-8", "gbk"),
        ('text/html; charset=" Latin1 "', "latin1"),
        ("text/html; charset=\ufeffutf-8\u2028", "utf-8"),
        ("text/html; charset*=utf-8", None),
        ("text/html; charset", None),
        ("text/html; xcharset=utf-8", None),
        ("text/html; charset=a=b", None),
    ],
)
def test_charset_of_a_header(content_type: str | None, charset: str | None) -> None:
    found, warnings = charset_of(content_type)
    assert found == charset
    assert bool(warnings) == (content_type == "text/html; charset=a=b")


@pytest.mark.parametrize(
    ("content_type", "quick"),
    [
        (None, True),
        ("text/html; charset=utf-8", True),
        ("text/html; charset=latin1", True),
        ("text/html; charset=utf-16", True),
        ("text/html; charset=nobody", True),
        ("text/html; charset=GBK", False),
        ("text/html; charset=csISO2022JP", False),
        ("application/json; charset=x-sjis", False),
        ("image/png; charset=gbk", True),
    ],
)
def test_multi_byte_texts_are_known_to_take_long(content_type: str | None, quick: bool) -> None:
    assert decodes_quickly(content_type) is quick


@pytest.mark.parametrize("value", ["", '""', '"', 'utf-8"', "a b", "\x1cutf-8", "ü", "x" * 65, '"utf-8', "utf/8", "(x)"])
def test_a_malformed_charset_warns_and_counts_as_none(value: str) -> None:
    for following in ("", "; charset=utf-8"):  # the first parameter decides, good or bad
        found, warnings = charset_of(f"text/html; charset={value}{following}")
        assert found is None
        assert len(warnings) == 1


@given(st.text())
def test_what_a_header_declares_may_be_recorded(content_type: str) -> None:
    charset, _ = charset_of(f"text/html;{content_type}")
    assert charset is None or CHARSET_TOKEN.fullmatch(charset)


@pytest.mark.parametrize("label", ["iso-2022-kr", "hz-gb-2312", "replacement", "csiso2022kr", "iso-2022-cn", "iso-2022-cn-ext", "no-such"])
def test_replacement_and_unknown_labels_fall_back_to_utf8(label: str) -> None:
    decoded = decode_text_body("é".encode(), label)
    assert (decoded.text, decoded.encoding, decoded.invalid, decoded.unknown_label) == ("é", "utf-8", False, True)
    assert len(decoded.warnings) == 1
    assert len(decode_text_body(b"\xff", label).warnings) == 2


def test_a_mark_of_another_encoding_changes_nothing() -> None:
    assert decode_text_body(b"\xff\xfea\x00", "utf-8").text == "\ufffd\ufffda\x00"
    assert decode_text_body(b"\xfe\xff\x00a", "utf-16le").text == "\ufffe\u6100"
    assert decode_text_body(b"\xef\xbb\xbfa", None).text == "a"


@given(st.binary(), charsets)
def test_decoding_is_recognised_and_nothing_else_is(data: bytes, charset: str | None) -> None:
    text = decode_text_body(data, charset).text
    assert decodes_to(data, charset, text)
    assert not decodes_to(data, charset, text + "x")
    assert not text or not decodes_to(data, charset, text[:-1])
    text.encode()  # well-formed, whatever the bytes


def test_a_large_body_is_recognised_in_pieces() -> None:
    data = "é\n".encode() * 300_000
    text = data.decode()
    assert decodes_to(data, None, text)
    assert not decodes_to(data, None, text[:-1] + "x")
    assert not decodes_to(data, None, "x" + text[1:])


def test_a_decoded_text_shows_its_size_and_not_itself() -> None:
    assert "secret" not in repr(decode_text_body(b"secret", None))
