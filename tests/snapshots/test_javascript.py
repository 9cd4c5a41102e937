"""JavaScript's string and number rules."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.snapshots.javascript import WHITESPACE, js_integer, js_integer_text, js_key_order, js_trim, js_utf8, quote_json


def test_trim_takes_javascript_white_space_and_nothing_else() -> None:
    for point in (*range(0x3100), 0xFEFF, 0xFFFE, 0x180E, 0x200B):
        char = chr(point)
        assert (js_trim(f"{char}a{char}") == "a") == (char in WHITESPACE), hex(point)
    assert len(WHITESPACE) == len(set(WHITESPACE)) == 25
    assert js_trim("\x1c\x85a\x1f") == "\x1c\x85a\x1f"


@given(st.text(st.characters(exclude_categories=())))
def test_quoting_is_that_of_the_compact_writer_and_joins_from_slices(text: str) -> None:
    assert quote_json(text) == json.dumps(text, ensure_ascii=False)
    assert "".join(quote_json(char)[1:-1] for char in text) == quote_json(text)[1:-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("é", b"\xc3\xa9"), ("a\ud800b", b"a\xef\xbf\xbdb"), ("\udc00\ud800", b"\xef\xbf\xbd" * 2), ("😀", "😀".encode())],
)
def test_lone_surrogates_become_replacement_characters(text: str, expected: bytes) -> None:
    assert js_utf8(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (200, 200),
        (200.0, 200),
        (-0.0, 0),
        (2**53 + 1, 2**53),
        (True, None),
        (200.5, None),
        ("200", None),
        (None, None),
        (math.nan, None),
        (math.inf, None),
        (10**400, None),
    ],
)
def test_only_integral_doubles_are_integers(value: object, expected: int | None) -> None:
    assert js_integer(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (-7, "-7"),
        (2**53, "9007199254740992"),
        (123456789012345680000, "123456789012345680000"),
        (10**20, "100000000000000000000"),
        (10**21, "1e+21"),
        (-15 * 10**20, "-1.5e+21"),
        (int(1.2345678901234568e22), "1.2345678901234568e+22"),
        (int(1e300), "1e+300"),
    ],
)
def test_large_numbers_print_as_in_javascript(value: int, expected: str) -> None:
    assert js_integer_text(value) == expected


@given(st.floats(allow_nan=False, allow_infinity=False).map(round))
def test_number_text_reads_back_as_the_same_double(value: int) -> None:
    exact = js_integer(value)
    assert exact is not None
    assert float(js_integer_text(exact)) == float(value)


def test_array_indices_come_first_in_ascending_order() -> None:
    keys = ["b", "10", "2", "01", "-1", "1.5", "4294967295", "4294967294", "0", "a", "٣"]
    assert js_key_order(keys) == ["0", "2", "10", "4294967294", "b", "01", "-1", "1.5", "4294967295", "a", "٣"]
    assert js_key_order(["b", "a"]) == ["b", "a"]
