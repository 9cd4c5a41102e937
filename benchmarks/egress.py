"""What the guard costs, as ratios taken in one run over loopback: ``python -m benchmarks.egress [--rounds N] [--requests N]``.

Prints one line for each comparison, medians of interleaved rounds; CPU seconds of this process, so that the server's do not count:

- the guarded client against the client that it replaces, httpx.AsyncClient on trio, same URLs and as many connections, kept;
- the same with a name that is looked up for each request, against one whose answer is cached (a DNS server on loopback);
- `classify_address` against what `ipaddress` says of the same addresses;
- the forward proxy: milliseconds of CPU for a page with 30 assets, each over a connection of its own, as a browser asks for them.

Exit code 1 when the guarded client costs more than the client that it replaces, or a page more than 20 ms.
"""

from __future__ import annotations

import argparse
import ipaddress
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial

import httpx
import trio

from forage.egress import DnsResolver, EgressPolicy, classify_address, guarded_client, open_proxy
from forage.errors import EgressDeniedError
from tests.support.dns_server import open_dns_server, records
from tests.support.raw_server import open_raw_server, page

BODY = b"<p>hello</p>" * 1_280  # 15 KB
NAME = "site.test"
ALLOWED = 1.0
ALLOWED_PAGE = 0.020


async def serve() -> None:
    """Web and DNS server in a process of their own; says where they listen, and ends with its standard input."""
    answer = page(BODY, headers=[("Content-Type", "text/html; charset=utf-8"), ("Server", "x"), ("Date", "Mon, 01 Jan 2024 00:00:00 GMT")])
    async with open_raw_server(lambda _: answer) as web, open_dns_server() as dns:
        dns.zone[NAME] = records("127.0.0.1", ttl=60)
        print(web.port, dns.port, flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)


@contextmanager
def servers() -> Iterator[tuple[int, int]]:
    command = [sys.executable, "-m", "benchmarks.egress", "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        web, dns = map(int, child.stdout.readline().split())
        yield web, dns


Get = Callable[[str], Awaitable[httpx.Response]]
Client = Callable[[], AbstractAsyncContextManager[Get]]


@asynccontextmanager
async def plain_client(connections: int) -> AsyncIterator[Get]:
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    async with httpx.AsyncClient(trust_env=False, limits=limits) as client:
        yield client.get


@asynccontextmanager
async def guarded(web: int, dns: int, ttl: float) -> AsyncIterator[Get]:
    policy = EgressPolicy(allow_networks=("127.0.0.0/8",), ports=(web,), max_answer_ttl=ttl)
    async with guarded_client(policy, resolver=DnsResolver([("127.0.0.1", dns)])) as client:
        yield client.get


async def cost(client: Client, url: str, requests: int, connections: int) -> tuple[float, float]:
    """CPU and wall seconds of ``requests``, after one on each connection that does not count."""

    async def lane(get: Get, count: int) -> None:
        for _ in range(count):
            response = await get(url)
            assert len(response.content) == len(BODY)

    async def all_lanes(get: Get, count: int) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(connections):
                nursery.start_soon(lane, get, count)

    async with client() as get:
        await all_lanes(get, 2)
        cpu, wall = time.process_time(), time.perf_counter()
        await all_lanes(get, requests // connections)
        return time.process_time() - cpu, time.perf_counter() - wall


def compare(clients: Mapping[str, tuple[Client, str]], *, rounds: int, requests: int, connections: int) -> dict[str, tuple[float, float]]:
    """Median CPU and wall ratios of each client to the first one, paired within a round."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
    for turn in range(rounds):
        names = list(clients)[:: 1 if turn % 2 else -1]
        for name in names:
            client, url = clients[name]
            taken[name].append(trio.run(cost, client, url, requests, connections))
    first = taken[next(iter(clients))]
    return {
        name: tuple(statistics.median(ours[i] / theirs[i] for ours, theirs in zip(costs, first, strict=True)) for i in (0, 1))  # type: ignore[misc]
        for name, costs in taken.items()
    }


ADDRESSES = [
    *("93.184.216.34", "1.1.1.1", "10.0.0.1", "192.168.1.1", "127.0.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "198.51.100.7"),
    *("2606:4700:4700::1111", "::1", "fe80::1", "fc00::1", "2001:db8::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::1"),
]


def classified() -> None:
    for address in ADDRESSES:
        with suppress(EgressDeniedError):
            classify_address(address)


def standard() -> None:
    """The checks that guards make with the standard library; it knows less."""
    for address in ADDRESSES:
        found = ipaddress.ip_address(address)
        _ = found.is_global and not (found.is_multicast or found.is_reserved or found.is_unspecified)


def classification(rounds: int) -> float:
    """Median ratio of CPU seconds, the guard to the standard library."""
    ratios = []
    for _ in range(rounds):
        spent = []
        for work in (classified, standard):
            begun = time.process_time()
            for _ in range(500):
                work()
            spent.append(time.process_time() - begun)
        ratios.append(spent[0] / spent[1])
    return statistics.median(ratios)


ASSETS, PAGES = 30, 10


def ask(port: int, url: str) -> None:
    """A browser's side of some pages, in a process of its own: each asset over a new connection to the proxy."""
    request = f"GET {url} HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\nUser-Agent: {'x' * 100}\r\nAccept: */*\r\n\r\n".encode()
    for _ in range(ASSETS * PAGES):
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(request)
            size = 0
            while data := sock.recv(65_536):
                size += len(data)
            assert size > len(BODY)


async def proxied(web: int) -> float:
    """CPU seconds of the proxy for one page."""
    async with open_proxy(EgressPolicy(allow_networks=("127.0.0.0/8",), ports=(web,)), on_event=lambda _: None) as proxy:
        command = [sys.executable, "-m", "benchmarks.egress", "--ask", str(proxy.port), f"http://127.0.0.1:{web}/"]
        await trio.run_process(command)
        begun = time.process_time()
        await trio.run_process(command)
        return (time.process_time() - begun) / PAGES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ask:
        ask(int(args.ask[0]), args.ask[1])
        return 0
    if args.serve:
        trio.run(serve)
        return 0
    worst = 0.0
    with servers() as (web, dns):
        literal, name = f"http://127.0.0.1:{web}/", f"http://{NAME}:{web}/"
        for connections in (1, 8):
            pair = {"httpx": (partial(plain_client, connections), literal), "guarded": (partial(guarded, web, dns, 60.0), literal)}
            cpu, wall = compare(pair, rounds=args.rounds, requests=args.requests, connections=connections)["guarded"]
            worst = max(worst, cpu)
            print(f"guarded client / httpx on trio, {connections} connections: CPU {cpu:.2f}, wall {wall:.2f} (at most {ALLOWED:.2f})")
        pair = {"cached": (partial(guarded, web, dns, 60.0), name), "each": (partial(guarded, web, dns, 0.0), name)}
        cpu, wall = compare(pair, rounds=args.rounds, requests=args.requests // 4, connections=8)["each"]
        print(f"a look-up for each request / cached answers: CPU {cpu:.2f}, wall {wall:.2f}")
        spent = statistics.median(trio.run(proxied, web) for _ in range(args.rounds))
        print(f"forward proxy, a page of {ASSETS} assets: {spent * 1000:.1f} ms CPU (at most {ALLOWED_PAGE * 1000:.0f})")
    print(f"classify_address / ipaddress: CPU {classification(args.rounds):.2f}")
    return 0 if worst <= ALLOWED and spent <= ALLOWED_PAGE else 1


if __name__ == "__main__":
    raise SystemExit(main())
