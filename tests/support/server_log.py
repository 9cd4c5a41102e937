"""What servers saw of a crawl, and whether it was polite: gaps between request starts, pauses, requests at a time, host by host.

All times are those at which a request arrived, so a gap can look smaller than it was by as long as the earlier request was on its way.
On a loaded machine that can be long: a server in this process sees nothing while the process stands still, which `watch_stalls` measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import attrs
import trio

from tests.support.raw_server import RawServer

__all__ = ["Pause", "Seen", "Stall", "assert_at_most", "assert_not_paused", "assert_spaced", "seen_by", "watch_stalls"]

_TURN = 0.01  # seconds
ON_ITS_WAY = 0.1
"""Seconds that a request may take to arrive on a busy machine, a TLS handshake included."""


@attrs.frozen(kw_only=True)
class Stall:
    """This process stood still for ``seconds`` before ``end``."""

    end: float
    seconds: float


@attrs.frozen(kw_only=True)
class Seen:
    """One request as a server saw it. ``answered`` is when its answer was about to be complete, None when that never was; ``late`` how long
    it may have waited to be seen.
    """

    host: str
    target: str
    at: float
    answered: float | None
    late: float = 0.0


@attrs.frozen(kw_only=True)
class Pause:
    """A server asked to be left alone from one instant to another."""

    host: str
    begin: float
    end: float


async def watch_stalls(stalls: list[Stall]) -> None:
    """Note when this process stands still for longer than a scheduler's turn, until cancelled."""
    while True:
        before = trio.current_time()
        await trio.sleep(_TURN)
        now = trio.current_time()
        if now - before > 2 * _TURN:
            stalls.append(Stall(end=now, seconds=now - before))


def seen_by(*servers: RawServer, stalls: Sequence[Stall] = ()) -> list[Seen]:
    """The requests of all servers in order of arrival, by the host that they named."""
    seen = [
        Seen(
            host=request.header("host") or "",
            target=request.target,
            at=request.at,
            answered=server.answered.get(place),
            late=max((one.seconds for one in stalls if one.end - one.seconds <= request.at <= one.end + one.seconds), default=0.0),
        )
        for server in servers
        for place, request in enumerate(server.requests)
    ]
    return sorted(seen, key=lambda one: one.at)


def _by_host(log: Iterable[Seen]) -> Mapping[str, list[Seen]]:
    hosts: dict[str, list[Seen]] = {}
    for one in log:
        hosts.setdefault(one.host, []).append(one)
    return hosts


def assert_spaced(log: Sequence[Seen], delay: float | Mapping[str, float]) -> float:
    """Requests of one host start no closer than the delay in force, nor do all of them together; the smallest gap, in seconds."""
    least = float("inf")
    for host, requests in _by_host(log).items():
        wanted = delay if isinstance(delay, float) else delay.get(host, 0.0)
        for earlier, later in pairwise(requests):
            gap = later.at - earlier.at
            least = min(least, gap)
            assert gap >= wanted - ON_ITS_WAY - earlier.late, (
                f"{host}: {later.target} {gap:.3f} s after {earlier.target}, the delay is {wanted} s"
            )
        span, due = requests[-1].at - requests[0].at, (len(requests) - 1) * wanted
        assert span >= due - ON_ITS_WAY - requests[0].late, f"{host}: {len(requests)} requests in {span:.3f} s, {due} s are due"
    return least


def assert_not_paused(log: Iterable[Seen], pauses: Iterable[Pause]) -> None:
    """No request of a host starts while that host asked to be left alone. Exact: what is on its way arrives later than it started."""
    for pause in pauses:
        for one in log:
            inside = one.host == pause.host and pause.begin < one.at < pause.end - 0.005
            assert not inside, f"{one.host}{one.target} was asked {pause.end - one.at:.3f} s before the pause was over"


def assert_at_most(log: Iterable[Seen], per_host: int) -> int:
    """At most ``per_host`` requests of one host are under way at a time; the most that were."""
    most = 0
    for host, requests in _by_host(log).items():
        open_until: list[float] = []
        for one in requests:
            open_until = [end for end in open_until if end > one.at]
            if one.answered is not None:
                open_until.append(one.answered)
            most = max(most, len(open_until))
            assert len(open_until) <= per_host, f"{host}: {len(open_until)} requests at a time, {one.target} is the last of them"
    return most
