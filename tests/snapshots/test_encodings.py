"""Labels, tables and decoders of the WHATWG Encoding Standard."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.snapshots import decode_text_body, find_encoding
from forage.snapshots.encodings import PIECE, UTF8, Encoding, load_index, load_text
from forage.snapshots.model import sha256_hex
from forage.snapshots.multibyte import _multi_byte
from tests.snapshots import standard_decoders
from tests.snapshots.standard_decoders import DECODERS

LABELS = [row.split() for row in load_text("labels.txt").splitlines()]
NAMES = [row[0] for row in LABELS]
MULTI_BYTE = ["shift_jis", "euc-jp", "euc-kr", "big5", "gb18030"]
SINGLE_BYTE = sorted(set(NAMES) - set(DECODERS) - {"replacement", "x-user-defined"})

# The codec of Python that shares most with the standard, and texts that both decode alike.
COMMON = {
    "shift_jis": ("cp932", "日本語のページ、ｶﾀｶﾅ №①纊 ~\\"),
    "euc-jp": ("euc_jp", "日本語のページ、ｶﾀｶﾅ 丂"),
    "euc-kr": ("cp949", "한국어 페이지, 漢字 ‥"),
    "big5": ("big5hkscs", "中文網頁，香港"),
    "gb18030": ("gb18030", "中文网页，€ ḾỲ 😀"),
    "gbk": ("gbk", "中文网页，繁體字"),
    "iso-2022-jp": ("iso2022_jp", "日本語 and ASCII"),
    "windows-1251": ("cp1251", "Русский текст — №"),
    "koi8-r": ("koi8_r", "Русский текст"),
    "iso-8859-7": ("iso8859_7", "Ελληνικά"),
    "macintosh": ("mac_roman", "café — ß"),
}


def encoding(name: str) -> Encoding:
    found = find_encoding(name)
    assert found is not None
    return found


def by_the_standard(name: str, data: bytes) -> tuple[str, bool]:
    return standard_decoders.run(DECODERS[name](), data)


def unmarked(text: str) -> str:
    """The text as it leaves a decoder."""
    return text.replace("\udfff", "\ufffd")


# --- labels


def test_all_labels_of_the_standard_are_known() -> None:
    assert len(NAMES) == 40
    assert sum(map(len, LABELS)) == 228
    for name, *others in LABELS:
        for label in (name, *others):
            assert encoding(label).name == name
            assert encoding(f"\t\n\f\r {label.upper()} ") is encoding(name)


@pytest.mark.parametrize(
    "label", ["", "utf", "utf-8\x00", "utf-8\xa0", "\x0butf-8", "utf 8", "ＵＴＦ-8", "\u212aoi8-r", "latin11", "utf-7"]
)
def test_other_labels_are_unknown(label: str) -> None:
    assert find_encoding(label) is None
    decoded = decode_text_body(b"caf\xc3\xa9", label)
    assert (decoded.text, decoded.encoding, decoded.unknown_label) == ("café", "utf-8", True)


@pytest.mark.parametrize(
    ("label", "name"), [("latin1", "windows-1252"), ("ascii", "windows-1252"), ("gb2312", "gbk"), ("utf-16", "utf-16le")]
)
def test_labels_that_surprise(label: str, name: str) -> None:
    assert encoding(label).name == name


# --- tables


def test_tables_are_those_that_were_generated() -> None:
    """Digests of the indexes as texts, so that neither a bad merge nor another zlib changes one unseen."""
    digests = {
        name: sha256_hex(load_index(name).encode())[:16] for name in ("single-byte", "jis0208", "jis0212", "euc-kr", "gb18030", "big5")
    }
    assert digests == EXPECTED_TABLES


EXPECTED_TABLES = {
    "single-byte": "71124440edd342e3",
    "jis0208": "3445aad17881b6e9",
    "jis0212": "bfa9732d3bb4ef11",
    "euc-kr": "d6c6bc82058432a4",
    "gb18030": "85373408efe24c65",
    "big5": "3e0db21cb0f95826",
}


@pytest.mark.parametrize("name", SINGLE_BYTE)
def test_single_byte_tables(name: str) -> None:
    data = bytes(range(256))
    text, invalid = encoding(name).decode(data)
    assert len(text) == 256
    assert text[:128] == data[:128].decode("ascii")
    assert invalid == ("\ufffd" in text)
    assert (text, invalid) == standard_decoders.run(standard_decoders.single_byte(text[128:]), data)
    defined = text.replace("\ufffd", "")
    assert len(set(defined)) == len(defined)  # no two bytes share a character


# Python leaves these undefined, or maps them otherwise, where the standard has C1 controls or other characters.
@pytest.mark.parametrize(
    ("name", "codec", "differing"),
    [
        ("ibm866", "cp866", ""),
        ("iso-8859-2", "iso8859_2", ""),
        ("iso-8859-5", "iso8859_5", ""),
        ("iso-8859-6", "iso8859_6", ""),
        ("iso-8859-7", "iso8859_7", ""),
        ("iso-8859-8", "iso8859_8", ""),
        ("iso-8859-15", "iso8859_15", ""),
        ("koi8-r", "koi8_r", ""),
        ("koi8-u", "koi8_u", "aebe"),
        ("macintosh", "mac_roman", ""),
        ("windows-1250", "cp1250", "8183889098"),
        ("windows-1251", "cp1251", "98"),
        ("windows-1252", "cp1252", "818d8f909d"),
        ("windows-1254", "cp1254", "818d8e8f909d9e"),
        ("windows-1256", "cp1256", ""),
        ("x-mac-cyrillic", "mac_cyrillic", ""),
    ],
)
def test_single_byte_tables_agree_with_python_but_for_known_bytes(name: str, codec: str, differing: str) -> None:
    ours = encoding(name).decode(bytes(range(256)))[0]
    theirs = [bytes((byte,)).decode(codec, "replace") for byte in range(256)]
    assert bytes(byte for byte in range(256) if ours[byte] != theirs[byte]).hex() == differing


def test_x_user_defined_keeps_every_byte() -> None:
    text, invalid = encoding("x-user-defined").decode(bytes(range(256)))
    assert not invalid
    assert [ord(char) & 0xFF for char in text] == list(range(256))
    assert text[128] == "\uf780"


@pytest.mark.parametrize("name", MULTI_BYTE)
def test_every_token_of_two_bytes_decodes_as_the_standard_says_on_both_paths(name: str) -> None:
    decoder = _multi_byte(name)
    for lead in range(0x80, 0x100):
        # A line feed ends every sequence.
        data = b"\n".join(bytes((lead, trail)) for trail in range(0x20, 0x100))
        expected = by_the_standard(name, data)
        assert decoder(data) == expected, hex(lead)
        assert unmarked(decoder.by_table(data)) == expected[0], hex(lead)
        alone = bytes((lead,))
        assert decoder(alone) == by_the_standard(name, alone)


def test_every_token_of_three_bytes_of_euc_jp() -> None:
    for second in range(0xA0, 0x100):
        data = b"\n".join(bytes((0x8F, second, third)) for third in range(0x20, 0x100))
        assert encoding("euc-jp").decode(data) == by_the_standard("euc-jp", data), hex(second)


@pytest.mark.parametrize("name", MULTI_BYTE)
@pytest.mark.parametrize("start", ["", "a", "3"])
def test_a_sequence_cut_short_by_the_end_is_one_error(name: str, start: str) -> None:
    for end in (b"\x81", b"\x810", b"\x810\x81", b"\x8100", b"\x810\x8100", b"\x8f\xa1", b"\x8e", b"\xfe\xff", b"\x81\xff", b"\x81\x20"):
        data = start.encode() + end
        expected = by_the_standard(name, data)
        assert encoding(name).decode(data) == expected, end
        assert unmarked(_multi_byte(name).by_table(data)) == expected[0], end


@pytest.mark.slow
def test_every_token_of_four_bytes_of_gb18030() -> None:
    decoder = _multi_byte("gb18030")
    digits = range(0x30, 0x3A)
    for first in range(0x81, 0xFF):
        tokens = [bytes((first, *rest)) for rest in product(digits, range(0x81, 0xFF), digits)]
        data = b"\n".join(tokens)
        text = decoder.marked(data)
        assert text == decoder.by_table(data)
        for token, got in zip(tokens[::997], text.split("\n")[::997], strict=True):
            assert unmarked(got) == by_the_standard("gb18030", token)[0]


def test_what_a_codec_of_python_does_otherwise_is_found_and_repaired() -> None:
    assert _multi_byte("euc-kr")._fixes == {}
    assert set(_multi_byte("shift_jis")._fixes) == {0xF8F0, 0xF8F1, 0xF8F2, 0xF8F3}
    for name, data, expected in [
        ("shift_jis", b"\x80\xa0\xfd", "\x80\ufffd\ufffd"),
        ("euc-jp", b"\xa1\xc1\xa1\xdd\x8f\xa2\xb7", "～－～"),
        ("big5", b"\xa2\x41\xa1\xfe\x88\x62", "∕／Ê̄"),
        ("gb18030", b"\xa8\xbc\x81\x35\xf4\x37\xa3\xa0\xfe\x59", "ḿ\ue7c7\u3000龴"),
        ("gb18030", b"\x84\x31\xa4\x37", "\ufffd"),
    ]:
        text, invalid = encoding(name).decode(data)
        assert text == expected
        assert invalid == (name == "shift_jis")  # four bytes of gb18030 spell U+FFFD, and that is no error


# --- decoders


def test_utf8_over_every_class_of_bytes() -> None:
    classes = [0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5]
    for size in (1, 2, 3, 4):
        for data in map(bytes, product(classes, repeat=size)):
            assert UTF8._decode(data) == by_the_standard("utf-8", data), data.hex()


hostile_bytes = st.lists(
    st.sampled_from([0x80, 0x81, 0x8E, 0x8F, 0x9F, 0xA0, 0xA1, 0xA2, 0xA8, 0xBC, 0xC6, 0xE0, 0xF9, 0xFC, 0xFD, 0xFE, 0xFF, 0xD8, 0xDC])
    | st.sampled_from(b"059:@A[\\~\x7f\n\x00")
    | st.integers(0, 255),
    max_size=24,
).map(bytes)
escaped_bytes = st.lists(
    st.sampled_from(
        [b"\x1b$B", b"\x1b$@", b"\x1b(B", b"\x1b(J", b"\x1b(I", b"\x1b$", b"\x1b(", b"\x1b", b"F|K\\", b"\x21", b"~\\", b"\x0e", b"\n"]
    )
    | st.binary(min_size=1, max_size=1),
    max_size=16,
).map(b"".join)


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_do_what_the_standard_says(name: str) -> None:
    @given(hostile_bytes | escaped_bytes | st.binary(max_size=40))
    def check(data: bytes) -> None:
        assert encoding(name)._decode(data) == by_the_standard(name, data)

    check()


@pytest.mark.parametrize("name", MULTI_BYTE)
def test_the_table_path_does_what_the_standard_says(name: str) -> None:
    @given(hostile_bytes | st.binary(max_size=40))
    def check(data: bytes) -> None:
        assert unmarked(_multi_byte(name).by_table(data)) == by_the_standard(name, data)[0]

    check()


@pytest.mark.parametrize("name", COMMON)
def test_decoders_agree_with_python_on_what_it_can_write(name: str) -> None:
    codec, alphabet = COMMON[name]

    @given(st.text(alphabet))
    def check(text: str) -> None:
        assert encoding(name).decode(text.encode(codec)) == (text, False)

    check()


@pytest.mark.parametrize(
    ("name", "codec"), [("utf-8", "utf-8"), ("utf-16le", "utf-16-le"), ("utf-16be", "utf-16-be"), ("gb18030", "gb18030")]
)
def test_unicode_encodings_carry_all_of_unicode(name: str, codec: str) -> None:
    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff")))
    def check(text: str) -> None:
        if name == "gb18030":  # its newer edition moved some characters of the private area
            text = "".join(
                char for char in text if not "\ue000" <= char <= "\uf8ff" and char not in "ḿ龴龵龶龷龸龹龺龻︐︑︒︓︔︕︖︗︘︙"
            )
        assert encoding(name).decode(text.encode(codec)) == (text, False)

    check()


# --- large bodies


@pytest.mark.parametrize("name", [*DECODERS, "windows-1252"])
def test_a_body_cut_into_pieces_decodes_as_a_whole(name: str) -> None:
    """Awkward bytes lie across every place where a body may be cut."""
    awkward = [
        b"\xf0\x9f\x98\x80",
        b"\x80" * 9,
        b"\xf0\x90\x80",
        b"\xd8\xd8\xdc",
        b"\xef\xbb\xbf",
        b"\x81\x30\x81\x30",
        b"\x8f\xb0\xa1",
        b"\x1b$BF|",
    ]
    piece = 256 * 1024
    for shift in range(6):
        for middle in awkward:
            data = b"a\n" + (b"\xc4\xe3" * (piece // 2 - 9)) + b"x" * shift + middle * 8 + b"\n" + b"b" * piece + middle
            pieces = list(encoding(name).pieces(data))
            whole = encoding(name)._decode(data)
            assert ("".join(text for text, _ in pieces), any(bad for _, bad in pieces)) == whole, (shift, middle)
            assert len(pieces) > 1 or name == "iso-2022-jp"


@pytest.mark.parametrize("name", MULTI_BYTE)
@pytest.mark.parametrize("octets", [range(0x100), range(0x30, 0xFF), range(0x81, 0xFF), b"0\x81\x8f\xfe"])
def test_a_body_of_any_octets_is_cut_into_pieces_of_bounded_size(name: str, octets: Sequence[int]) -> None:
    """No line ends, no ASCII at all: one piece of everything would hold up every other thread."""
    data = bytes(random.Random(0).choices(octets, k=3 * PIECE + 17))
    pieces = list(encoding(name).pieces(data))
    assert len(pieces) >= 3
    assert ("".join(text for text, _ in pieces), any(bad for _, bad in pieces)) == encoding(name)._decode(data)


@pytest.mark.parametrize("octets", [range(0x21, 0x7F), range(0x20, 0x80), b"0~ \n"])
@pytest.mark.parametrize("escapes", [1, 40])
def test_a_long_state_of_pairs_reads_as_the_standard_says(octets: Sequence[int], escapes: int) -> None:
    chosen = random.Random(0)
    data = b"".join(b"\x1b$B" + bytes(chosen.choices(octets, k=200_001 // escapes)) + b"\x1b(Bascii" for _ in range(escapes))
    assert encoding("iso-2022-jp").decode(data) == by_the_standard("iso-2022-jp", data)


def test_a_byte_order_mark_is_dropped_at_the_beginning_only() -> None:
    assert UTF8.decode(b"\xef\xbb\xbfa\xef\xbb\xbfb") == ("a\ufeffb", False)
    assert UTF8.decode(b"\xef\xbb\xbf\xef\xbb\xbf") == ("\ufeff", False)
    filler = b"x" * (256 * 1024)
    assert UTF8.decode(filler + b"\xef\xbb\xbf" + filler)[0].count("\ufeff") == 1
    assert encoding("windows-1252").decode(b"\xef\xbb\xbfa") == ("ï»¿a", False)
    assert encoding("gb18030").decode(b"\x84\x31\x95\x33a") == ("\ufeffa", False)  # the standard has no mark of gb18030


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("gbk", b"\xff"),
        ("gbk", b"\x81\x30"),
        ("gb18030", b"\x81\x30\x81"),
        ("euc-kr", b"\x81 "),
        ("big5", b"\xa2\x41"),
        ("shift_jis", b"\xfd"),
        ("euc-jp", b"\x8f\xa1"),
        ("iso-2022-jp", b"\x1b(B"),
        ("iso-2022-jp", b"\x1b$B\x7f! "),
        ("utf-8", b"\xf0\x9f"),
        ("utf-16le", b"\x00\xd8"),
    ],
)
def test_hostile_bodies_take_time_in_proportion_to_their_size(name: str, unit: bytes) -> None:
    def seconds(size: int) -> float:
        data = unit * (size // len(unit))
        start = time.process_time()
        encoding(name).decode(data)
        return time.process_time() - start

    seconds(1_000)
    small = min(seconds(50_000) for _ in range(3))
    assert min(seconds(400_000) for _ in range(2)) < 8 * small * 6 + 0.05  # quadratic would be 64 times


def test_tables_are_not_loaded_before_a_label_asks_for_them() -> None:
    code = (
        "import sys, forage.snapshots as s; s.decode_text_body(b'x', None); s.Snapshot;"
        "assert 'forage.snapshots.multibyte' not in sys.modules;"
        "s.decode_text_body(b'x', 'windows-1252'); assert 'forage.snapshots.multibyte' not in sys.modules;"
        "s.decode_text_body(b'x', 'gbk'); assert 'forage.snapshots.multibyte' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
