"""Which judged addresses are dialled, when, and what a connection must prove before a byte of a request goes over it."""

from __future__ import annotations

import math
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
import trio.testing

from forage.egress import EgressAddress, EgressPolicy, JudgedUrl, PinnedConnector, SocketDialer, judge_url
from forage.egress.connector import ATTEMPT_DELAY, MAX_TRIES, dial_order
from forage.egress.trust import client_context
from forage.egress.wire import Connected
from forage.errors import EgressCode, EgressUnreachableError, InvalidPolicyError
from tests.support.authority import authority, server_context, trusted_by
from tests.support.dialer import MappingDialer, RecordingDialer
from tests.support.raw_server import open_raw_server, page

FOUR = "93.184.216.34"
SIX = "2606:4700:4700::1111"


def addresses(*texts: str) -> tuple[EgressAddress, ...]:
    return tuple(EgressAddress(address=text, family=6 if ":" in text else 4) for text in texts)


def target(url: str = "http://a.example/") -> JudgedUrl:
    return judge_url(url, EgressPolicy())


class _PlayedSocket(socket.socket):
    peer: tuple[str, int]

    @property
    def family(self) -> int:  # type: ignore[override]  # typeshed has an enumeration
        return socket.AF_INET6 if ":" in self.peer[0] else socket.AF_INET

    def getpeername(self) -> tuple[str, int]:
        return self.peer


class PlayedDialer:
    """Each address connects after so many seconds, fails after so many (negative), or never ends (None). No network is involved."""

    def __init__(self, plan: Mapping[str, float | None], *, peer: str | None = None) -> None:
        self.plan = plan
        self.peer = peer
        self.begun: list[tuple[str, float]] = []
        self.made: list[socket.socket] = []
        self.cancelled: list[str] = []

    async def dial(self, address: str, port: int) -> socket.socket:
        self.begun.append((address, trio.current_time()))
        seconds = self.plan[address]
        try:
            await trio.sleep(math.inf if seconds is None else abs(seconds))
        except trio.Cancelled:
            self.cancelled.append(address)
            raise
        if seconds is not None and seconds < 0:
            raise ConnectionRefusedError(address)
        ours, theirs = socket.socketpair()
        theirs.close()
        sock = _PlayedSocket(fileno=ours.detach())
        sock.peer = (self.peer or address, port)
        self.made.append(sock)
        return sock

    @property
    def open(self) -> list[str]:
        return [sock.getpeername()[0] for sock in self.made if sock.fileno() >= 0]


async def connect(dialer: PlayedDialer, *texts: str) -> Connected:
    return await PinnedConnector(EgressPolicy(), dialer).connect(target(), addresses(*texts))


def test_families_take_turns_and_at_most_eight_are_dialled() -> None:
    assert dial_order(addresses("1.1.1.1", "1.1.1.2", "1.1.1.3", "2606::1", "2606::2")) == [
        "2606::1",
        "1.1.1.1",
        "2606::2",
        "1.1.1.2",
        "1.1.1.3",
    ]
    assert dial_order(addresses("1.1.1.2", "1.1.1.1")) == ["1.1.1.2", "1.1.1.1"]
    assert len(dial_order(addresses(*(f"1.1.1.{n}" for n in range(50))))) == MAX_TRIES


async def test_an_address_that_answers_is_the_only_one_dialled(autojump_clock: trio.testing.MockClock) -> None:
    dialer = PlayedDialer({SIX: 0.1, FOUR: 0.1})
    made = await connect(dialer, FOUR, SIX)
    assert (made.address, made.tried) == (SIX, (SIX,))
    assert made.connect_seconds == pytest.approx(0.1)
    made.channel.close()


async def test_a_silent_address_is_joined_by_the_next_and_closed(autojump_clock: trio.testing.MockClock) -> None:
    dialer = PlayedDialer({SIX: None, FOUR: 0.1})
    made = await connect(dialer, SIX, FOUR)
    assert made.address == FOUR
    assert made.tried == (SIX, FOUR)
    assert [at for _, at in dialer.begun] == pytest.approx([0.0, ATTEMPT_DELAY])
    assert dialer.cancelled == [SIX]
    made.channel.close()
    assert dialer.open == []


async def test_a_refusing_address_is_followed_at_once(autojump_clock: trio.testing.MockClock) -> None:
    dialer = PlayedDialer({SIX: -0.05, FOUR: 0.1})
    made = await connect(dialer, SIX, FOUR)
    assert [at for _, at in dialer.begun] == pytest.approx([0.0, 0.05])
    made.channel.close()


async def test_the_first_to_connect_wins_and_the_others_are_closed(autojump_clock: trio.testing.MockClock) -> None:
    dialer = PlayedDialer({SIX: 0.40, FOUR: 0.15})
    made = await connect(dialer, SIX, FOUR)
    await trio.sleep(1)
    assert made.address == dialer.open[0]
    assert len(dialer.open) == 1
    made.channel.close()


async def test_when_all_fail_the_error_names_the_host_and_nothing_else(autojump_clock: trio.testing.MockClock) -> None:
    many = [f"1.1.1.{n}" for n in range(20)]
    dialer = PlayedDialer(dict.fromkeys(many, -0.01))
    with pytest.raises(EgressUnreachableError) as caught:
        await connect(dialer, *many)
    assert caught.value.code is EgressCode.CONNECT_FAILED
    assert str(caught.value) == "could not be reached, CONNECT_FAILED for a.example"
    assert len(dialer.begun) == MAX_TRIES


@pytest.mark.parametrize("others", [(), (SIX,)])
async def test_a_peer_that_is_not_the_pin_is_refused(others: tuple[str, ...], autojump_clock: trio.testing.MockClock) -> None:
    dialer = PlayedDialer({FOUR: 0.0, SIX: 0.0}, peer="10.0.0.1")
    with pytest.raises(EgressUnreachableError) as caught:
        await connect(dialer, FOUR, *others)
    assert caught.value.code is EgressCode.CONNECT_FAILED
    assert dialer.open == []


async def test_a_dialer_that_fails_in_its_own_way_is_a_failed_connection(autojump_clock: trio.testing.MockClock) -> None:
    class Broken:
        async def dial(self, address: str, port: int) -> socket.socket:
            raise RuntimeError("secret detail")

    with pytest.raises(EgressUnreachableError) as caught:
        await PinnedConnector(EgressPolicy(), Broken()).connect(target(), addresses(FOUR, SIX))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("cancel_at", [0.0, 0.1, 0.26, 0.3])
async def test_a_cancelled_race_leaves_no_socket(cancel_at: float, autojump_clock: trio.testing.MockClock) -> None:
    dialer = PlayedDialer({SIX: 0.28, FOUR: 0.02})
    with trio.move_on_at(trio.current_time() + cancel_at) as scope:
        made = await connect(dialer, SIX, FOUR)
        made.channel.close()
    assert scope.cancelled_caught is (cancel_at < 0.27)
    assert dialer.open == []


@pytest.mark.parametrize("address", ["localhost", "example.com", "127.1", "0x7f.0.0.1", "fe80::1%lo", "", "127.0.0.1 "])
async def test_the_system_is_never_given_a_name_to_dial(address: str) -> None:
    with pytest.raises((OSError, ValueError)):
        await SocketDialer().dial(address, 80)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1"])
async def test_real_servers_on_loopback(host: str) -> None:
    async with open_raw_server({}, host=host) as server:
        policy = EgressPolicy(allow_networks=("127.0.0.0/8", "::1/128"), ports=(server.port,))
        made = await PinnedConnector(policy).connect(judge_url(f"{server.origin}/", policy), addresses(host))
        assert (made.address, made.tried, made.tls) == (host, (host,), None)
        made.channel.close()


async def test_a_closed_port_is_a_failed_connection() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        policy = EgressPolicy(test_loopback_origins=(f"http://127.0.0.1:{port}",))
        with pytest.raises(EgressUnreachableError):
            await PinnedConnector(policy).connect(judge_url(f"http://127.0.0.1:{port}/", policy), addresses("127.0.0.1"))


async def test_the_recording_dialer_of_the_tests_refuses_what_is_not_loopback() -> None:
    dialer = RecordingDialer()
    with pytest.raises(EgressUnreachableError):
        await PinnedConnector(EgressPolicy(), dialer).connect(target(), addresses(FOUR))
    assert dialer.dialled == [(FOUR, 80)]


async def secured(context: ssl.SSLContext, policy: EgressPolicy, url: str, address: str = FOUR) -> Connected:
    async with open_raw_server({"/": [page()]}, tls=context) as server:
        dialer = MappingDialer({address: server.place})
        return await PinnedConnector(policy, dialer).connect(judge_url(url, policy), addresses(address))


@pytest.mark.parametrize(
    ("url", "name", "address"),
    [
        ("https://a.example/", "a.example", FOUR),
        ("https://A.example./", "a.example", FOUR),
        (f"https://{FOUR}/", FOUR, FOUR),
        (f"https://[{SIX}]/", SIX, SIX),
        ("https://a.example/", "a.example", SIX),
    ],
)
async def test_tls_facts_of_a_good_peer(url: str, name: str, address: str, tmp_path: Path) -> None:
    made = await secured(server_context(name), EgressPolicy(ca_file=trusted_by(tmp_path)), url, address)
    made.channel.close()
    assert made.tls is not None
    assert made.tls.version == "TLSv1.3"
    assert made.tls.cipher.startswith("TLS_")
    assert ssl.DER_cert_to_PEM_cert(made.tls.certificate).startswith("-----BEGIN")
    assert len(made.tls.certificate_sha256) == 64
    assert made.handshake_seconds is not None
    assert made.handshake_seconds > 0


@pytest.mark.parametrize(
    ("name", "fault", "url"),
    [
        ("b.example", "", "https://a.example/"),
        ("*.example", "", "https://a.b.example/"),
        ("a.example", "expired", "https://a.example/"),
        ("a.example", "self-signed", "https://a.example/"),
        ("a.example", "", f"https://{FOUR}/"),
        ("93.184.216.35", "", f"https://{FOUR}/"),
    ],
)
async def test_a_peer_that_does_not_prove_its_name_is_a_failed_connection(name: str, fault: str, url: str, tmp_path: Path) -> None:
    context = server_context(name, expired=fault == "expired", self_signed=fault == "self-signed")
    with pytest.raises(EgressUnreachableError) as caught:
        await secured(context, EgressPolicy(ca_file=trusted_by(tmp_path)), url)
    assert caught.value.code is EgressCode.CONNECT_FAILED
    assert "certificate" not in str(caught.value)


async def test_a_peer_that_speaks_no_tls_is_a_failed_connection(tmp_path: Path) -> None:
    policy = EgressPolicy(ca_file=trusted_by(tmp_path))
    dialer = MappingDialer({FOUR: ("127.0.0.1", 1)})
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, _greet, [listener])
        dialer.servers[FOUR] = listener.socket.getsockname()
        with pytest.raises(EgressUnreachableError):
            await PinnedConnector(policy, dialer).connect(judge_url("https://a.example/", policy), addresses(FOUR))
        nursery.cancel_scope.cancel()


async def _greet(stream: trio.SocketStream) -> None:
    await stream.send_all(b"220 mail.example ESMTP\r\n")
    await trio.sleep_forever()


async def test_the_server_sees_the_name_without_root_dot_and_no_name_for_a_literal(tmp_path: Path) -> None:
    policy = EgressPolicy(ca_file=trusted_by(tmp_path))
    asked: list[str | None] = []
    for url, name in (("https://A.example./", "a.example"), (f"https://{FOUR}/", FOUR)):
        context = server_context(name)
        async with open_raw_server({"/": [page()]}, tls=context) as server:
            context.sni_callback = lambda _, name, __: asked.append(name)
            made = await PinnedConnector(policy, MappingDialer({FOUR: server.place})).connect(judge_url(url, policy), addresses(FOUR))
            made.channel.close()
    assert asked == ["a.example", None]


async def test_neither_authorities_nor_key_logs_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "keys.log"
    monkeypatch.setenv("SSL_CERT_FILE", trusted_by(tmp_path))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    with pytest.raises(EgressUnreachableError):
        await secured(server_context("a.example"), EgressPolicy(), "https://a.example/")
    made = await secured(server_context("a.example"), EgressPolicy(ca_file=trusted_by(tmp_path)), "https://a.example/")
    made.channel.close()
    assert not log.exists()
    assert "SSL_CERT_FILE" in os.environ


async def test_a_context_of_the_caller_is_used_as_it_is() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    made = await secured(server_context("a.example"), EgressPolicy(ssl_context=context), "https://a.example/")
    made.channel.close()


async def test_a_protocol_that_this_wire_does_not_speak_is_a_failed_connection() -> None:
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), server_context("a.example")
    authority().configure_trust(client)
    client.set_alpn_protocols(["h2"])
    server.set_alpn_protocols(["h2"])
    with pytest.raises(EgressUnreachableError):
        await secured(server, EgressPolicy(ssl_context=client), "https://a.example/")


async def test_an_unreadable_file_of_authorities_is_a_wrong_policy(tmp_path: Path) -> None:
    (tmp_path / "junk.pem").write_text("junk")
    for path in (tmp_path / "absent.pem", tmp_path / "junk.pem"):
        with pytest.raises(InvalidPolicyError) as caught:
            client_context(EgressPolicy(ca_file=path))
        assert caught.value.field == "ca_file"


def test_the_context_checks_chain_and_name_and_offers_http_1_1_only(tmp_path: Path) -> None:
    context = client_context(EgressPolicy(ca_file=trusted_by(tmp_path)))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert not context.keylog_filename
    assert context.cert_store_stats()["x509_ca"] == 1
    assert client_context(EgressPolicy()).verify_mode == ssl.CERT_REQUIRED


async def test_a_lane_that_reconnects_resumes_its_session_and_no_other_does(tmp_path: Path) -> None:
    policy = EgressPolicy(ca_file=trusted_by(tmp_path))
    resumed: list[bool] = []
    async with open_raw_server({"/": [page()]}, tls=server_context("a.example", "b.example")) as server:
        connector = PinnedConnector(policy, MappingDialer({FOUR: server.place, SIX: server.place}))
        for url, address in (
            ("https://a.example/", FOUR),
            ("https://a.example/", FOUR),
            ("https://b.example/", FOUR),
            ("https://a.example/", SIX),
        ):
            made = await connector.connect(judge_url(url, policy), addresses(address))
            made.channel.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            while made.channel.receive(65_536) is None:  # tickets come with the first answer
                await made.channel.readable()
            made.channel.close()
            assert made.tls is not None
            resumed.append(made.tls.resumed)
            assert made.tls.certificate
    assert resumed == [False, True, False, False]
