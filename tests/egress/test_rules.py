"""The judgement of one URL, rule by rule and in their order; the answers to its look-up; the memory of what passed."""

from __future__ import annotations

import ipaddress
import itertools
import re
import ssl
import string
from collections.abc import Callable

import attrs
import pytest
from ada_url import URL
from hypothesis import example, given
from hypothesis import strategies as st

from forage.egress.answers import DnsAnswers
from forage.egress.policy import EgressPolicy, default_policy
from forage.egress.rules import Judge, JudgedUrl, judge_answers, judge_url
from forage.errors import EgressCode, EgressDeniedError, EgressError, EgressUnreachableError, InvalidPolicyError

DEFAULT = default_policy()
PUBLIC = "93.184.216.34"
LOOPBACK = EgressPolicy(test_loopback_origins=("http://127.0.0.1:4173", "http://[::1]:8080"))


def refusal(text: str, policy: EgressPolicy = DEFAULT) -> EgressDeniedError:
    with pytest.raises(EgressDeniedError) as caught:
        judge_url(text, policy)
    return caught.value


# U1 to U10


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("http://a.example/" + "x" * 16_368, "U1"),
        ("http://a.example/\ud800", "U1"),
        ("", "U2"),
        ("/path", "U2"),
        ("a.example/path", "U2"),
        ("http://", "U2"),
        ("http://?x", "U2"),
        ("http://a b.example/", "U2"),
        ("http://a.example:65536/", "U2"),
        ("http://a.example:+80/", "U2"),
        ("http://a.example:８０/", "U2"),
        ("http://[fe80::1%25eth0]/", "U2"),
        ("http://[::1", "U2"),
        ("http://[::127.1]/", "U2"),
        ("http:a.example", "U4"),
        ("http:/a.example", "U4"),
        ("http:///a.example", "U4"),
        ("http:\\\\a.example", "U4"),
        ("http:/\\a.example", "U4"),
        ("ht\ttp://a.example", "U4"),
        ("http:\n//a.example", "U4"),
        ("http://a.example\\b", "U6"),
        ("http://a.example\\", "U6"),
        ("http://a\t.example/", "U6"),
        ("http://a.example\r\n/", "U6"),
        ("http://a.example:8\t0/", "U6"),
        ("http://\t/a.example/", "U6"),
    ],
)
def test_url_whose_shape_readers_see_differently_is_invalid(text: str, rule: str) -> None:
    error = refusal(text)
    assert (error.code, error.rule) == (EgressCode.INVALID_URL, rule)


@pytest.mark.parametrize("value", [None, b"http://a.example/", 5, ["http://a.example/"]])
def test_input_that_is_no_text_is_invalid(value: object) -> None:
    assert refusal(value).code is EgressCode.INVALID_URL  # type: ignore[arg-type]  # what a careless caller passes


def test_longest_url_is_accepted() -> None:
    text = "http://a.example/" + "x" * (16_384 - 17)
    assert judge_url(text, DEFAULT).url == text


@pytest.mark.parametrize("edge", ["", " ", "\t\n", "\x00\x1f ", "\r\n  "])
def test_surrounding_controls_and_spaces_are_stripped(edge: str) -> None:
    assert judge_url(f"{edge}http://a.example/x{edge}", DEFAULT).url == "http://a.example/x"


@pytest.mark.parametrize(
    "text",
    [
        "file:///etc/passwd",
        "ftp://a.example/",
        "gopher://127.0.0.1:70/_x",
        "ws://a.example/",
        "wss://a.example/",
        "data:text/html,x",
        "javascript:alert(1)",
        "blob:http://a.example/x",
        "about:blank",
        "dict://127.0.0.1:11211/stat",
        "jar:http://a.example!/",
        "view-source:http://a.example/",
        "HTTPX://a.example/",
    ],
)
def test_other_schemes_are_refused(text: str) -> None:
    assert refusal(text).code is EgressCode.INVALID_SCHEME


@pytest.mark.parametrize(
    "text",
    [
        "http://user@a.example/",
        "http://user:secret@a.example/",
        "http://@a.example/",
        "http://:@a.example/",
        "http://a.example:80@10.0.0.1/",
        "http://us\ter@a.example/",
        "http://u%40x@a.example/",
        "http://ü@a.example/",
    ],
)
def test_userinfo_is_refused_before_the_host_is_judged(text: str) -> None:
    error = refusal(text)
    assert (error.code, error.rule) == (EgressCode.CREDENTIALS, "U5")
    assert "secret" not in str(error)
    assert "user" not in str(error)


@pytest.mark.parametrize("text", ["http://a.example/@b", "http://a.example/?q=a@b", "http://a.example#@b", "http://a.example/a:b@c"])
def test_at_sign_behind_the_authority_is_harmless(text: str) -> None:
    assert judge_url(text, DEFAULT).host == "a.example"


@pytest.mark.parametrize("text", ["http://a%2eexample/", "http://%61.example/", "http://127.0.0.%31/", "http://%E4%BE%8B.example/"])
def test_percent_sign_in_the_host_is_refused(text: str) -> None:
    error = refusal(text)
    assert (error.code, error.rule) == (EgressCode.INVALID_HOST, "U7")


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "1.2.3",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "00.0.0.0",
        "8.8.8.8.",
        "127。0。0。1",
        "１２７.0.0.1",
        "①②⑦.0.0.1",
        "0x08080808",
        "134744072",
        "8.8.2056",
        "127.0.0.1。",
    ],
)
def test_ipv4_address_in_any_other_spelling_is_refused(host: str) -> None:
    error = refusal(f"http://{host}/")
    assert (error.code, error.rule) == (EgressCode.INVALID_HOST, "U8")


@pytest.mark.parametrize(
    ("text", "dialled"),
    [
        ("http://8.8.8.8/", "8.8.8.8"),
        ("http://8.8.8.8:80/", "8.8.8.8"),
        ("https://[2606:4700:4700:0:0:0:0:1111]/", "2606:4700:4700::1111"),
        ("https://[2606:4700:4700::1111]:443/", "2606:4700:4700::1111"),
        ("http://[2606:4700:4700:0::0:8.8.8.8]/", "2606:4700:4700::808:808"),
        ("http://[::FFFF:8.8.8.8]/", "8.8.8.8"),
    ],
)
def test_literal_is_judged_at_once(text: str, dialled: str) -> None:
    judged = judge_url(text, DEFAULT)
    assert judged.literal is not None
    assert judged.literal.address == dialled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HTTP://A.Example", ("http://a.example/", "http", "a.example", 80, "/", "a.example")),
        ("http://a.example./x", ("http://a.example/x", "http", "a.example", 80, "/x", "a.example")),
        ("http://a.example:/x?y#z", ("http://a.example/x?y", "http", "a.example", 80, "/x?y", "a.example")),
        ("http://a.example:0080/", ("http://a.example/", "http", "a.example", 80, "/", "a.example")),
        ("https://a.example?q", ("https://a.example/?q", "https", "a.example", 443, "/?q", "a.example")),
        ("http://a.example/a b\r\nX: y", ("http://a.example/a%20bX:%20y", "http", "a.example", 80, "/a%20bX:%20y", "a.example")),
        ("http://a.example/x/../y?a#b#c", ("http://a.example/y?a", "http", "a.example", 80, "/y?a", "a.example")),
        (
            "http://ü.example/é",
            ("http://xn--tda.example/%C3%A9", "http", "xn--tda.example", 80, "/%C3%A9", "xn--tda.example"),
        ),
        ("http://[2606:4700::1]/", ("http://[2606:4700::1]/", "http", "2606:4700::1", 80, "/", "[2606:4700::1]")),
        ("http://a.example/a\\b", ("http://a.example/a/b", "http", "a.example", 80, "/a/b", "a.example")),
    ],
)
def test_one_serialised_url_goes_on_the_wire(text: str, expected: tuple[object, ...]) -> None:
    judged = judge_url(text, DEFAULT)
    assert (judged.url, judged.scheme, judged.host, judged.port, judged.target, judged.host_header) == expected


# Host names


@pytest.mark.parametrize(
    ("host", "rule"),
    [
        ("a..example", "H2"),
        (".a.example", "H2"),
        ("a.example..", "H2"),
        ("..", "H2"),
        (".", "H2"),
        ("a!b.example", "H2"),
        ("a*b.example", "H2"),
        ("a+b.example", "H2"),
        ("127.0.0.1;a.example", "H2"),
        ("a,b.example", "H2"),
        ("a$b.example", "H2"),
        ("a~b.example", "H2"),
        ("x" * 64 + ".example", "H2"),
        (".".join(["x" * 49] * 5) + ".example", "H2"),
        ("xn--a.example", "H3"),
        ("xn--.example", "H3"),
        ("xn--zzzzzzzzzzzz99999.example", "H3"),
        ("xn--abc-.example", "H3"),
    ],
)
def test_name_that_dns_or_its_readers_cannot_carry_is_an_invalid_host(host: str, rule: str) -> None:
    error = refusal(f"http://{host}/")
    assert (error.code, error.rule) == (EgressCode.INVALID_HOST, rule)


@pytest.mark.parametrize(
    ("host", "rule"),
    [
        ("localhost", "H4"),
        ("metadata", "H4"),
        ("wpad", "H4"),
        ("com", "H4"),
        ("ⓛocalhost", "H4"),
        ("local­host", "H4"),
        *((f"a.{suffix}", "H5") for suffix in ["localhost", "local", "localdomain", "internal", "intranet", "private", "corp"]),
        *((f"a.b.{suffix}", "H5") for suffix in ["home", "lan", "home.arpa", "in-addr.arpa", "ip6.arpa", "onion", "alt", "svc"]),
        ("home.arpa", "H5"),
        ("metadata.google.internal.", "H5"),
        ("METADATA.google.ⓘnternal", "H5"),
        ("metadata.goog", "H6"),
        ("metadata.platformequinix.com", "H6"),
        ("metadata.packet.net", "H6"),
        ("metadata.tencentyun.com", "H6"),
    ],
)
def test_name_of_the_inside_is_a_denied_host(host: str, rule: str) -> None:
    error = refusal(f"http://{host}/")
    assert (error.code, error.rule) == (EgressCode.DENIED_HOST, rule)


@pytest.mark.parametrize(
    "host",
    [
        "a.example",
        "a.test",
        "a.invalid",
        "mylocalhost.example",
        "localhost.example",
        "internal.example",
        "thelocal.example",
        "arpa.example",
        "xhome.arpa.example",
        "a.metadata.goog",
        "metadata.goog.example",
        "-lead.example",
        "trail-.example",
        "_dmarc.example",
        "1.example",
        "3com.example",
        "r3---sn-x.example",
        "xn--bcher-kva.example",
        "xn--ls8h.example",
        "x" * 63 + ".example",
        ".".join(["x" * 48] * 4) + "." + "y" * 49 + ".example",
    ],
)
def test_public_name_is_allowed(host: str) -> None:
    assert len(host) <= 253
    assert judge_url(f"https://{host}/", DEFAULT).host == host


# Ports and their order


@pytest.mark.parametrize("text", ["http://a.example:8080/", "https://a.example:80/", "http://a.example:443/", "http://a.example:0/"])
def test_port_that_is_not_the_default_is_refused(text: str) -> None:
    assert refusal(text).code is EgressCode.INVALID_PORT


def test_listed_port_opens_nothing_else() -> None:
    policy = EgressPolicy(ports=[8443])  # a list is taken as a tuple
    assert judge_url("https://a.example:8443/", policy).host_header == "a.example:8443"
    assert refusal("http://a.example:8080/", policy).code is EgressCode.INVALID_PORT
    assert refusal("http://127.0.0.1:8443/", policy).code is EgressCode.DENIED_ADDRESS
    assert refusal("http://localhost:8443/", policy).code is EgressCode.DENIED_HOST


def test_codes_follow_the_order_scheme_credentials_host_denied_host_port_address() -> None:
    assert refusal("ftp://user@a..b:99/").code is EgressCode.INVALID_SCHEME
    assert refusal("http://user@0x7f.1:99/").code is EgressCode.CREDENTIALS
    assert refusal("http://a..local:99/").code is EgressCode.INVALID_HOST
    assert refusal("http://a.local:99/").code is EgressCode.DENIED_HOST
    assert refusal("http://127.0.0.1:99/").code is EgressCode.INVALID_PORT
    assert refusal("http://127.0.0.1/").code is EgressCode.DENIED_ADDRESS


# What a policy opens


@pytest.mark.parametrize(("text", "address"), [("http://127.0.0.1:4173/x", "127.0.0.1"), ("http://[0:0::1]:8080/", "::1")])
def test_loopback_origin_of_a_test_is_allowed(text: str, address: str) -> None:
    judged = judge_url(text, LOOPBACK)
    assert judged.loopback_origin
    assert judged.literal is not None
    assert judged.literal.address == address


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("https://127.0.0.1:4173/", EgressCode.INVALID_PORT),
        ("http://127.0.0.1:4174/", EgressCode.INVALID_PORT),
        ("http://127.0.0.2:4173/", EgressCode.INVALID_PORT),
        ("http://[::1]:4173/", EgressCode.INVALID_PORT),
        ("http://[::ffff:127.0.0.1]:4173/", EgressCode.INVALID_PORT),
        ("http://127.0.0.1/", EgressCode.DENIED_ADDRESS),
        ("http://localhost:4173/", EgressCode.DENIED_HOST),
        ("http://127.1:4173/", EgressCode.INVALID_HOST),
        ("http://user@127.0.0.1:4173/", EgressCode.CREDENTIALS),
        ("http://rebinding.example:4173/", EgressCode.INVALID_PORT),
    ],
)
def test_loopback_origin_is_exact(text: str, code: EgressCode) -> None:
    assert refusal(text, LOOPBACK).code is code


def test_unguarded_policy_lifts_names_ports_and_addresses_but_no_syntax() -> None:
    policy = EgressPolicy(guarded=False)
    for text in ("http://localhost:8080/", "http://169.254.169.254/", "http://[::1]:99/", "http://metadata/"):
        assert judge_url(text, policy).url == text
    for text in ("ftp://a.example/", "http://u@a.example/", "http://0x7f.1/", "http://a\\b/", "http://a..b/"):
        refusal(text, policy)
    assert judge_answers(DnsAnswers(addresses=("10.0.0.1",), aliases=("printer.local",)), policy, "a.example")[0].address == "10.0.0.1"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("guarded", 1),
        ("ports", (0,)),
        ("ports", (65536,)),
        ("ports", ("80",)),
        ("ports", (True,)),
        ("ports", 8080),
        ("ports", "8080"),
        ("allow_networks", "10.0.0.0/8"),
        ("allow_networks", ("10.0.0.1/8",)),
        ("nat64_prefixes", ("10.0.0.0/8",)),
        ("redirect_hosts", "everywhere"),
        ("redirect_hosts", ["any"]),
        ("max_redirects", -1),
        ("max_redirects", 101),
        ("max_redirects", 5.0),
        ("max_redirects", True),
        ("test_loopback_origins", ("http://127.0.0.1",)),
        ("test_loopback_origins", ("http://127.0.0.1:80",)),
        ("test_loopback_origins", ("http://127.0.0.1:4173/",)),
        ("test_loopback_origins", ("http://127.0.0.1:04173",)),
        ("test_loopback_origins", ("http://127.0.0.1:65536",)),
        ("test_loopback_origins", ("HTTP://127.0.0.1:4173",)),
        ("test_loopback_origins", ("https://127.0.0.1:4173",)),
        ("test_loopback_origins", ("http://localhost:4173",)),
        ("test_loopback_origins", ("http://10.0.0.1:4173",)),
        ("test_loopback_origins", ("http://[0:0::1]:8080",)),
        ("test_loopback_origins", ("http://127.0.0.1:4173\n",)),
        ("resolve_seconds", 0),
        ("resolve_seconds", float("nan")),
        ("resolve_seconds", "10"),
        ("max_answer_ttl", -1),
        ("max_answer_ttl", float("inf")),
        ("max_answer_ttl", True),
        ("ca_file", 5),
        ("ssl_context", "context"),
    ],
)
def test_policy_that_is_wrong_names_the_field(field: str, value: object) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        EgressPolicy(**{field: value})  # type: ignore[arg-type]  # the value is wrong on purpose
    assert caught.value.field == field


def test_authorities_come_from_a_file_or_a_context_not_both() -> None:
    assert EgressPolicy(ca_file="ca.pem").ssl_context is None
    with pytest.raises(InvalidPolicyError) as caught:
        EgressPolicy(ca_file="ca.pem", ssl_context=ssl.create_default_context())
    assert caught.value.field == "ssl_context"


def test_policies_are_values() -> None:
    assert EgressPolicy(ports=(81,)) == EgressPolicy(ports=[81])  # a list is taken as a tuple
    assert hash(EgressPolicy()) == hash(EgressPolicy())
    changed = attrs.evolve(EgressPolicy(), allow_networks=("10.0.0.0/8",))
    assert judge_url("http://10.0.0.1/", changed).host == "10.0.0.1"
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        EgressPolicy().ports = (1,)  # type: ignore[misc]  # frozen


# Answers


def answers(*addresses: str, aliases: tuple[str, ...] = ()) -> DnsAnswers:
    return DnsAnswers(addresses=addresses, aliases=aliases)


def test_one_bad_answer_refuses_all_also_the_thousandth() -> None:
    good = [f"93.184.{n >> 8}.{n & 255}" for n in range(999)]
    assert len(judge_answers(answers(*good), DEFAULT, "a.example")) == 999
    with pytest.raises(EgressDeniedError) as caught:
        judge_answers(answers(*good, "10.0.0.1"), DEFAULT, "a.example")
    assert (caught.value.code, caught.value.host) == (EgressCode.DENIED_ADDRESS, "a.example")


@pytest.mark.parametrize("bad", ["", "a.example", "fe80::1%eth0", "10.0.0.1:80", "[::1]", "0x7f.1", 1, None, b"1.1.1.1"])
def test_answer_that_is_no_plain_address_refuses_all(bad: str) -> None:
    with pytest.raises(EgressDeniedError) as caught:
        judge_answers(answers("93.184.216.34", bad), DEFAULT, "a.example")
    assert caught.value.code is EgressCode.INVALID_HOST


def test_no_answer_is_a_dns_failure() -> None:
    with pytest.raises(EgressUnreachableError) as caught:
        judge_answers(answers(), DEFAULT, "a.example")
    assert caught.value.code is EgressCode.DNS_FAILURE


def test_answers_keep_their_order_and_repeat_none() -> None:
    judged = judge_answers(answers("2606:4700::1", "93.184.216.34", "2606:4700:0::1", "::ffff:93.184.216.35"), DEFAULT, "a.example")
    assert [address.address for address in judged] == ["2606:4700::1", "93.184.216.34", "93.184.216.35"]


@pytest.mark.parametrize("alias", ["printer.local", "PRINTER.LOCAL.", "metadata", "metadata.google.internal", "a..b.example"])
def test_alias_that_is_refused_by_name_refuses_the_name_that_leads_there(alias: str) -> None:
    with pytest.raises(EgressDeniedError) as caught:
        judge_answers(answers("93.184.216.34", aliases=("cdn.example", alias)), DEFAULT, "a.example")
    assert (caught.value.host, caught.value.rule) == ("a.example", "D9")


def test_public_aliases_are_harmless() -> None:
    assert judge_answers(answers("93.184.216.34", aliases=("b.example", "c.example.")), DEFAULT, "a.example")


@pytest.mark.parametrize("broken", [None, 5, object(), attrs.make_class("Answers", [])()])
def test_answers_of_another_type_are_a_denial(broken: DnsAnswers) -> None:
    with pytest.raises(EgressDeniedError):
        judge_answers(broken, DEFAULT, "a.example")


def test_unexpected_failure_inside_the_guard_is_a_denial() -> None:
    class Broken:
        guarded = True

    with pytest.raises(EgressDeniedError):
        judge_url("http://8.8.8.8/", Broken())  # type: ignore[arg-type]  # stands for any defect inside


# Errors


def test_errors_show_no_userinfo_path_or_query() -> None:
    for text in ("http://user:secret@a.local/secret?secret#secret", "http://a.local/secret?secret", "http://a.local:99/?secret"):
        error = refusal(text)
        assert "secret" not in str(error) + repr(error) + str(error.host) + str(error.target)


def test_host_in_errors_is_bounded() -> None:
    error = refusal("ftp://" + "a" * 10_000 + "/")
    assert error.host is not None
    assert len(error.host) <= 253


# Properties

HOSTS = st.sampled_from(
    [
        "a.example",
        "A.EXAMPLE.",
        "127.0.0.1",
        "8.8.8.8",
        "[::1]",
        "[2606:4700::1]",
        "localhost",
        "0x7f.1",
        "é.example",
        "a%2e.example",
    ]
)
PIECES = st.sampled_from([*"/\\?#:@%.\t\r\n \x00é\ud800[]\u3000", "//", "..", "80", "99", "http:", "ftp:"])
NOISE = st.lists(PIECES | HOSTS | st.text(string.printable, max_size=3), max_size=8).map("".join)
URLS = st.builds("".join, st.tuples(st.sampled_from(["http://", "https://", "http:", "HtTp:/", "ftp://", ""]), NOISE, HOSTS | NOISE, NOISE))


@given(URLS)
@example("http://a.example\\@127.0.0.1/")
@example("http://127.0.0.1\u3000/")
@example("http://a.example?\\")
def test_any_text_is_judged_or_refused_and_what_passes_has_one_reading(text: str) -> None:
    try:
        judged = judge_url(text, DEFAULT)
    except EgressError:
        return
    assert judge_url(judged.url, DEFAULT) == judged
    assert URL(judged.url).href == judged.url
    assert judged.url == f"{judged.origin}{judged.target}"
    assert judged.url.isascii()
    assert not set(judged.url) & set(string.whitespace + "#")
    assert "\\" not in judged.url.partition("?")[0]
    assert judged.target.startswith("/")
    assert judged.scheme in ("http", "https")
    # A reader of RFC 3986 finds the same host and port in what goes on the wire.
    authority = judged.url.partition("://")[2].partition("/")[0]
    assert authority == judged.host_header
    assert "@" not in authority


# RFC 3986, appendix B.
RFC_3986 = re.compile(r"^(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)


@given(URLS.filter(str.isascii))
@example("http://a.example\\.b.example/")
@example("http://a.example\t/x")
@example("http:\\\\a.example/")
def test_raw_text_that_passes_names_the_same_host_to_a_reader_of_rfc_3986(text: str) -> None:
    try:
        judged = judge_url(text, DEFAULT)
    except EgressError:
        return
    found = RFC_3986.match(text.strip("".join(map(chr, range(33)))))
    assert found is not None
    scheme, authority = found[1], found[2]
    assert scheme.lower() == judged.scheme
    host, _, port = authority.rpartition(":") if re.search(r":[0-9]*$", authority) else (authority, "", "")
    assert int(port or {"http": 80, "https": 443}[judged.scheme]) == judged.port
    if judged.literal is None or judged.literal.family == 4:
        assert host.lower().removesuffix(".") == judged.host
    else:
        assert ipaddress.ip_address(host.strip("[]")) == ipaddress.ip_address(judged.host)


@given(st.text(max_size=60))
def test_arbitrary_text_never_raises_anything_else(text: str) -> None:
    for prefix in ("", "http://", "http://a.example", "http://a.example/"):
        try:
            judge_url(prefix + text, DEFAULT)
        except EgressDeniedError:
            continue


# The memory of a session


def test_judge_gives_the_same_verdicts_and_remembers_those_that_pass() -> None:
    judge = Judge(DEFAULT)
    first = judge.url("http://a.example./x#y")
    assert first == judge_url("http://a.example./x#y", DEFAULT)
    assert judge.url(first.url) is first
    for _ in range(2):
        with pytest.raises(EgressDeniedError):
            judge.url("http://10.0.0.1/")
        with pytest.raises(EgressDeniedError):
            judge.answers(answers("10.0.0.1"), "a.example")
    passed = judge.answers(answers("93.184.216.34"), "a.example")
    assert judge.answers(answers("93.184.216.34"), "b.example") is passed


OPENED = EgressPolicy(allow_networks=("10.0.0.0/8",), ports=(8080,), test_loopback_origins=("http://127.0.0.1:4173", "http://[::1]:8080"))
ORIGINS = ["http://a.example", "https://a.example", "http://a.example:8080", "http://a.example:80", "HTTP://a.example", "http://a.example."]
ORIGINS += [
    "http://10.0.0.1",
    "http://127.0.0.1:4173",
    "http://127.0.0.1",
    "http://[::1]:8080",
    "http://[2001:4860:4860::8888]",
    "http://0x7f.1",
]
ORIGINS += [
    "http://u@a.example",
    "http://A.example",
    "//a.example",
    "http:/a.example",
    "http://xn--a.example",
    "http://localhost",
    "http://a.b:0",
]
CLEAN = "abZ09-_.~!$&'()*+,;=:@/%?#"


def verdict(judge: Callable[[str], JudgedUrl], text: str) -> object:
    try:
        return judge(text)
    except EgressDeniedError as exc:
        return exc.code, exc.host, exc.rule


@given(st.lists(st.tuples(st.sampled_from(ORIGINS), st.text(alphabet=CLEAN, max_size=12) | st.text(max_size=6)), max_size=6))
@example([("http://a.example", "/"), ("http://a.example", "//b/c?d=/.."), ("http://a.example", "/a?'")])
@example([("http://a.example", "/"), ("http://a.example", "/a/./b"), ("http://a.example", "/%2e/b"), ("http://a.example", "@b.example/")])
def test_a_judge_with_a_memory_says_what_one_without_would(urls: list[tuple[str, str]]) -> None:
    judge = Judge(OPENED)
    for origin, rest in urls:
        for text in (f"{origin}/", f"{origin}{rest}", f"{origin}/{rest}"):
            judged = verdict(judge.url, text)
            assert judged == verdict(lambda text: judge_url(text, OPENED), text)
            assert not isinstance(judged, JudgedUrl) or judge.has(judged)


def test_a_long_url_of_a_known_origin_is_refused_all_the_same() -> None:
    judge = Judge(DEFAULT)
    judge.url("http://a.example/")
    with pytest.raises(EgressDeniedError):
        judge.url("http://a.example/" + "x" * 16_368)


def test_a_judgement_made_elsewhere_is_not_ours() -> None:
    judge = Judge(DEFAULT)
    judge.url("http://a.example/")
    assert not judge.has(judge_url("http://a.example/", DEFAULT))


def test_judge_forgets_the_least_recently_used() -> None:
    judge = Judge(DEFAULT, urls=2)
    first, second = judge.url("http://a.example/1"), judge.url("http://a.example/2")
    assert judge.url("http://a.example/1") is first
    judge.url("http://a.example/3")
    assert judge.url("http://a.example/1") is first
    again = judge.url("http://a.example/2")
    assert again == second
    assert again is not second


def test_long_urls_and_answers_are_judged_each_time() -> None:
    judge = Judge(DEFAULT)
    long = "http://a.example/" + "x" * 2048
    assert judge.url(long) == judge.url(long)
    assert judge.url(long) is not judge.url(long)
    many = answers(*(f"93.184.216.{n}" for n in range(65)))
    assert judge.answers(many, "a.example") == judge.answers(many, "a.example")
    assert judge.answers(many, "a.example") is not judge.answers(many, "a.example")


@pytest.mark.parametrize("broken", [None, 5, DnsAnswers(addresses=([],)), DnsAnswers(addresses=(PUBLIC,), aliases=(5,))])  # type: ignore[arg-type]
def test_judge_refuses_what_is_no_answer(broken: DnsAnswers) -> None:
    with pytest.raises(EgressDeniedError):
        Judge(DEFAULT).answers(broken, "a.example")


def test_judges_of_two_policies_share_nothing() -> None:
    opened, closed = Judge(EgressPolicy(allow_networks=("10.0.0.0/8",))), Judge(DEFAULT)
    for _ in range(2):
        assert isinstance(opened.url("http://10.0.0.1/"), JudgedUrl)
        with pytest.raises(EgressDeniedError):
            closed.url("http://10.0.0.1/")


@pytest.mark.parametrize("value", [None, b"x", 5, [], {}])
def test_judge_refuses_other_types_as_well(value: str) -> None:
    with pytest.raises(EgressDeniedError):
        Judge(DEFAULT).url(value)


def test_every_code_of_the_first_sections_is_reached() -> None:
    reached = {
        refusal(text).code
        for text in ("x", "ftp://a.example", "http://u@a.example", "http://a..b", "http://x.local", "http://a.example:1", "http://[::1]")
    }
    assert reached == set(itertools.islice(EgressCode, 6)) | {EgressCode.DENIED_ADDRESS}
