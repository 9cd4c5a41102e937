"""robots.txt line by line: what the rules of RFC 9309 make of bytes that sites really serve."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forage.fetch import parse_robots, product_token
from forage.fetch.robots_paths import robots_target
from forage.fetch.robots_rules import MAX_ROBOTS_BYTES, RobotsFile

SITE = "https://site.test"


def allowed(robots: str | bytes, path: str, agent: str = "forage") -> bool:
    data = robots if isinstance(robots, bytes) else robots.encode()
    return parse_robots(data).verdict(SITE + path, agent).allowed


@pytest.mark.parametrize(
    ("agent", "token"),
    [
        ("forage", "forage"),
        ("Forage/1.0 (+https://x.test)", "forage"),
        ("kestrel-news_2", "kestrel-news_"),
        ("Mozilla/5.0 (compatible; Forage/1.0; +https://x.test/bot)", "forage"),
        ("Mozilla/5.0 (X11; Linux x86_64)", "mozilla"),
        ("Forage Review Crawler", "forage"),
        ("*", "*"),
        ("", ""),
        ("/odd", ""),
        ("ботик/1.0", ""),
    ],
)
def test_product_token_is_the_crawlers_own_name(agent: str, token: str) -> None:
    assert product_token(agent) == token


@pytest.mark.parametrize(
    ("line", "agent", "applies"),
    [
        ("User-agent: kestrel", "kestrel", True),
        ("User-agent: KESTREL/2.0 (x)", "Kestrel/1", True),
        ("User-agent: kestrel*", "kestrel", True),
        ("User-agent: kestrel marten", "kestrel", True),
        ("User-agent: kestrel marten", "marten", False),
        ("User-agent: kes", "kestrel", False),
        ("User-agent: kestrel-news", "kestrel", False),
        ("User-agent: kestrel", "kestrel-news", False),
        ("User-agent: *", "kestrel", True),
        ("User-agent: * everybody", "kestrel", True),
        ("User-agent: *kestrel", "kestrel", False),
        ("User-agent:", "kestrel", False),
        ("User-agent: кестрел", "kestrel", False),
        ("user agent: kestrel", "kestrel", True),
        ("UserAgent : kestrel", "kestrel", True),
        ("User-agent kestrel", "kestrel", True),
        ("User-agent kestrel marten", "kestrel", False),
    ],
)
def test_agent_lines_are_cut_to_their_token_and_compared_whole(line: str, agent: str, applies: bool) -> None:
    assert allowed(f"{line}\nDisallow: /\n", "/x", agent) is not applies


@pytest.mark.parametrize(
    ("robots", "path", "expected"),
    [
        ("User-agent: a\nUser-agent: forage\nDisallow: /x\n", "/x", False),
        ("User-agent: forage\nSitemap: /s\nUser-agent: b\nDisallow: /x\n", "/x", False),
        ("User-agent: forage\nCrawl-delay: 1\nUser-agent: b\nDisallow: /x\n", "/x", False),
        ("User-agent: forage\nFoo: bar\nUser-agent: b\nDisallow: /x\n", "/x", False),
        ("User-agent: forage\nAllow: /y\nUser-agent: b\nDisallow: /x\n", "/x", True),
        ("User-agent: forage\nDisallow:\nUser-agent: b\nDisallow: /x\n", "/x", True),
        ("User-agent: forage\nDisallow: /x\n\n\n\nDisallow: /y\n", "/y", False),
        ("User-agent: forage\nDisallow: /x\nUser-agent: *\nDisallow: /y\n", "/y", True),
        ("User-agent: forage\nDisallow: /x\nUser-agent: FORAGE\nDisallow: /y\n", "/x", False),
        ("User-agent: forage\nDisallow: /x\nUser-agent: FORAGE\nDisallow: /y\n", "/y", False),
        ("User-agent: *\nDisallow: /\nUser-agent: forage\n", "/x", True),
        ("Disallow: /x\nUser-agent: forage\nDisallow: /y\n", "/x", True),
        ("User-agent: forage\nDisallow: /x\nUser-agent:\nDisallow: /y\n", "/y", True),
    ],
)
def test_groups(robots: str, path: str, expected: bool) -> None:
    assert allowed(robots, path) is expected


@pytest.mark.parametrize(
    ("rules", "path", "expected"),
    [
        ("Disallow: /p\nAllow: /p", "/p", True),
        ("Disallow: /\nAllow: /p", "/p/x", True),
        ("Allow: /p\nDisallow: /p/x", "/p/x/y", False),
        ("Disallow: /*.pdf$\nAllow: /docs/", "/docs/x.pdf", False),
        ("Disallow: /*.pdf\nAllow: /docs/", "/docs/x.pdf", True),
        ("Disallow: /docs1/\nAllow: /*.pdf$", "/docs1/x.pdf", True),  # 7 octets each: a tie goes to Allow
        ("Disallow: /docs11/\nAllow: /*.pdf$", "/docs11/x.pdf", False),
        ("Disallow: /a**b", "/axxb", False),
        ("Disallow: /a$b", "/a$b", False),
        ("Disallow: /a$b", "/a", True),
        ("Disallow: /a$", "/a", False),
        ("Disallow: /a$", "/a?", True),
        ("Disallow: /a%24", "/a$x", False),
        ("Disallow: /a%2A", "/a*", False),
        ("Disallow: /a%2A", "/axx", True),
        ("Disallow: /a%2Fb", "/a/b", True),
        ("Disallow: /a%2fb", "/a%2Fb", False),
        ("Disallow: /a/b", "/a%2Fb", True),
        ("Disallow: /a?b=%26", "/a?b=&", True),
        ("Disallow: /%62ar", "/bar", False),
        ("Disallow: /bar", "/%62%61r", False),
        ("Disallow: /café", "/caf%c3%a9", False),
        ("Disallow: /caf%C3%A9", "/café", False),
        ("Disallow: /a b", "/a%20b", False),
        ("Disallow: /a|b", "/a|b", False),
        ("Disallow: /a|b", "/a%7Cb", False),
        ("Disallow: /a'b", "/a?x", True),
        ("Disallow: /?q='", "/?q='x", False),
        ("Disallow: /100%", "/100%/x", False),
        ("Disallow: *secret", "/top/secret", False),
        ("Disallow: $", "/x", True),
        ("Disallow: x", "/x", True),
        ("Disallow: https://site.test/x", "/x", True),
        ("Disallow: /", "/robots.txt", True),
        ("Disallow: /", "/robots.txt?x=1", True),
        ("Disallow: /", "/robots.txt/x", False),
        ("Allow: /index.html\nDisallow: /", "/", False),
    ],
)
def test_paths_compare_by_octets(rules: str, path: str, expected: bool) -> None:
    assert allowed(f"User-agent: *\n{rules}\n", path) is expected


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("5", 5.0), ("0.5", 0.5), (".5", 0.5), ("5.", 5.0), ("0", 0.0), ("86400", 86400.0)]
    + [(text, None) for text in ("", "ten", "-4", "nan", "inf", "1e3", "1_0", "5 s", "2,5", "+5", "٣", "9" * 400)],
)
def test_crawl_delay_is_a_plain_number_or_nothing(value: str, seconds: float | None) -> None:
    assert parse_robots(f"User-agent: *\nCrawl-delay: {value}\n".encode()).group("x").crawl_delay == seconds


@pytest.mark.parametrize(
    ("robots", "agent", "seconds"),
    [
        ("User-agent: *\nCrawl-delay: 60\n\nUser-agent: forage\nCrawl-delay: 0\n", "forage", 0.0),
        ("User-agent: forage\nCrawl-delay: 0\n\nUser-agent: *\nCrawl-delay: 60\n", "forage", 0.0),
        ("User-agent: forage\nCrawl-delay: 0\n\nUser-agent: *\nCrawl-delay: 60\n", "other", 60.0),
        ("User-agent: forage\nCrawl-delay: 2\nCrawl-delay: 9\nDisallow: /x\nCrawl-delay: 3\n", "forage", 9.0),
        ("User-agent: a\nUser-agent: forage\nDisallow: /x\nCrawl-delay: 3\n", "forage", 3.0),
        ("User-agent: forage\nDisallow: /\nUser-agent: *\nCrawl-delay: 3\n", "forage", None),
        ("Crawl-delay: 3\nUser-agent: forage\n", "forage", None),
    ],
)
def test_crawl_delay_belongs_to_the_agents_it_follows(robots: str, agent: str, seconds: float | None) -> None:
    assert parse_robots(robots.encode()).group(agent).crawl_delay == seconds


def test_sitemaps_are_reported_in_file_order_each_once() -> None:
    file = parse_robots(
        b"Sitemap: /a.xml\nUser-agent: x\nSite-map: https://cdn.test/b.xml # two\nSitemap: /a.xml\nSitemap: ftp://x/\nSitemap:\n"
    )
    assert file.sitemaps == ("/a.xml", "https://cdn.test/b.xml", "ftp://x/")
    assert file.sitemap_urls("https://site.test/robots.txt") == ("https://site.test/a.xml", "https://cdn.test/b.xml")


@pytest.mark.parametrize(
    "data",
    [
        b"User-agent: *\rDisallow: /b\r",
        b"User-agent: *\n\rDisallow: /b\n\r",
        b"\xef\xbb\xbfUser-agent: *\nDisallow: /b\n",
        b"\xef\xbbUser-agent: *\nDisallow: /b\n",
        "User-agent: *\nDisallow: /b\n".encode("utf-16"),
        b"\xfe\xff" + "User-agent: *\nDisallow: /b\n".encode("utf-16-be"),
        b"User-agent: *\nDisallow: /\xff\xfe\nDisallow: /b\n",
        "User-agent: *\n\xa0Disallow:\xa0/b\xa0\n".encode(),
        b"User-agent: *\nDisallow: /b # why\n",
    ],
)
def test_line_ends_marks_and_bad_octets_spoil_at_most_their_own_line(data: bytes) -> None:
    assert not allowed(data, "/b/1")
    assert allowed(data, "/a")


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\f", "\v"])
def test_only_cr_and_lf_end_a_line(end: str) -> None:
    assert allowed(f"User-agent: *\nDisallow: /n{end}Disallow: /x\n", "/x")


def test_a_mark_inside_the_file_spoils_only_its_own_line() -> None:
    robots = "User-agent: *\n\ufeffDisallow: /b\nDisallow: /c\n"
    assert allowed(robots, "/b")
    assert not allowed(robots, "/c")


def test_the_line_that_the_limit_cuts_is_dropped() -> None:
    head = b"User-agent: *\nDisallow: /private/\n"
    filler = b"#" * (MAX_ROBOTS_BYTES - len(head) - len(b"\nAllow: /private/x")) + b"\n"
    file = parse_robots(head + filler + b"Allow: /private/x" + b"yz" * 1000)
    assert file.truncated
    assert not file.verdict("https://site.test/private/x", "forage").allowed
    whole = parse_robots(head + b"#" * (MAX_ROBOTS_BYTES - len(head)))
    assert not whole.truncated


def test_a_denial_names_the_longest_matching_line() -> None:
    robots = b"# rules\nUser-agent: *\nDisallow: /a\nDisallow: /a/b/c\nAllow: /x\nDisallow: /a/b\nDisallow: /a/b\n"
    verdict = parse_robots(robots).verdict("https://site.test/a/b/x", "forage")
    assert verdict.rule is not None
    assert (verdict.rule.line, verdict.rule.path) == (6, "/a/b")


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://h.test/a/b?c#d", "/a/b?c"),
        ("https://h.test", "/"),
        ("https://h.test?x", "/?x"),
        ("https://h.test/only?", "/only?"),
        ("https://h.test/#/a", "/"),
        ("https://[::1]:8/a", "/a"),
    ],
)
def test_the_target_is_path_and_query_as_sent(url: str, target: str) -> None:
    assert robots_target(url) == target


@given(st.binary(max_size=400), st.text(max_size=40))
def test_any_bytes_are_read(data: bytes, agent: str) -> None:
    file = parse_robots(data)
    group = file.group(agent)
    verdict = group.judge("/some/path?query")
    assert verdict.allowed or verdict.rule in group.rules
    assert isinstance(file.sitemap_urls("https://site.test/robots.txt"), tuple)


PIECES = st.sampled_from(["/", "a", "b", "*", "$", "%2F", "%61", "%2A", "%24", "?", "=", "é", "%C3%A9", "%", "~", "%7e", "'"])
PATTERNS = st.lists(PIECES, max_size=8).map("".join)
RULES = st.lists(st.tuples(st.booleans(), PATTERNS), max_size=5)
TARGETS = st.lists(PIECES, max_size=8).map(lambda pieces: "/" + "".join(pieces))


@given(RULES, TARGETS)
def test_verdicts_are_those_of_the_text_of_the_rfc(rules: list[tuple[bool, str]], target: str) -> None:
    lines = "".join(f"{'Allow' if allow else 'Disallow'}: {pattern}\n" for allow, pattern in rules)
    group = parse_robots(f"User-agent: *\n{lines}".encode()).group("x")
    assert group.judge(target).allowed is _reference(rules, target)


DECODED = re.compile(rb"%([0-9A-Fa-f]{2})")
KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~*$'!&()+,/:;=?@[]")


def _octets(text: str) -> list[str]:
    """RFC 9309 section 2.2.2, one item an octet or a kept escape, by another way than the code's own."""
    found, at, data = [], 0, text.encode()
    while at < len(data):
        escape = DECODED.match(data, at)
        octet = int(escape[1], 16) if escape else data[at]
        unreserved = chr(octet) in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~*$'"
        if escape and not unreserved:
            found += list(f"%{octet:02X}")
        elif octet in KEPT or (octet == 0x25 and not escape):
            found.append(chr(octet))
        else:
            found += list(f"%{octet:02X}")
        at += 3 if escape else 1
    return found


def _reference(rules: list[tuple[bool, str]], target: str) -> bool:
    best = (0, True)
    path = "".join(_octets(target))
    for allow, pattern in rules:
        if not pattern.startswith(("/", "*")):
            continue
        anchored = pattern.endswith("$")
        pieces = ["".join(_octets(piece)) for piece in (pattern[:-1] if anchored else pattern).split("*")]
        expression = ".*".join(map(re.escape, pieces)) + (r"\Z" if anchored else "")
        if re.match(expression, path, re.DOTALL):
            length = sum(map(len, pieces)) + len(pieces) - 1 + anchored
            best = max(best, (length, allow))
    return best[1]


@pytest.mark.parametrize(
    ("robots", "path"),
    [
        (b"User-agent: a\n" * 40_000 + b"Disallow: /x\n", "/x"),
        (b"".join(b"User-agent: a%d\n" % n for n in range(15_000)) + b"Disallow: /x\n" * 15_000, "/x"),
        (b"User-agent: *\n" + b"".join(b"Disallow: /a%d*b\n" % n for n in range(25_000)), "/a24999xb"),
        (b"User-agent: *\nDisallow: /" + b"*a" * 200_000 + b"b\n", "/" + "a" * 8_000),
        (b"User-agent: *\nDisallow: /" + b"*" * 400_000 + b"x\n", "/" + "y" * 8_000),
        (b"User-agent: a\nCrawl-delay: 1\n" * 16_000, "/x"),
    ],
)
def test_files_made_to_cost_do_not(robots: bytes, path: str) -> None:
    began = time.process_time()
    file: RobotsFile = parse_robots(robots)
    file.verdict(SITE + path, "forage")
    assert time.process_time() - began < 5
