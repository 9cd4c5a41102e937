"""Connections between two exchanges: a bounded store, one list for each lane.

A kept connection serves another request only if it is for the same scheme, host, port and address; if that address is among the answers
judged for this very request, so that a rebinding name cannot ride on an old answer; and if nothing arrived on it meanwhile, so that an
answer nobody asked for is never taken for the next page. All of this is synchronous: a connection is in the store or in somebody's hands.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import trio

from forage.egress.addresses import EgressAddress
from forage.egress.received import Connection
from forage.egress.rules import JudgedUrl
from forage.errors import FetchError

__all__ = ["IDLE_SECONDS", "MAX_IDLE_CONNECTIONS", "IdleConnections"]

MAX_IDLE_CONNECTIONS = 256
IDLE_SECONDS = 30.0


class IdleConnections:
    """The idle connections of a session. Once closed, it closes what is put into it."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str, int, str], list[Connection]] = {}  # idle ones of a lane, last in, first out
        self._all: OrderedDict[Connection, None] = OrderedDict()  # longest idle first
        self._closed = False

    def take(self, judged: JudgedUrl, addresses: Sequence[EgressAddress]) -> Connection | None:
        """The kept connection used last for this lane that is still quiet."""
        for address in addresses:
            lane = (judged.scheme, judged.host, judged.port, address.address)
            while waiting := self._lanes.get(lane):
                connection = waiting.pop()
                if not waiting:
                    del self._lanes[lane]
                del self._all[connection]
                if trio.current_time() - connection.idle_since <= IDLE_SECONDS and _is_quiet(connection):
                    return connection
                connection.channel.close()
        return None

    def put(self, connection: Connection) -> None:
        if self._closed:
            connection.channel.close()
            return
        now = connection.idle_since = trio.current_time()
        self._lanes.setdefault(connection.lane, []).append(connection)
        self._all[connection] = None
        self._close_old(MAX_IDLE_CONNECTIONS, now - IDLE_SECONDS)

    def _close_old(self, most: int, since: float | None) -> None:
        """Close the longest idle connections: those above ``most``, and those idle since before ``since``."""
        while self._all:
            connection = next(iter(self._all))
            if len(self._all) <= most and (since is None or connection.idle_since >= since):
                return
            del self._all[connection]
            waiting = self._lanes[connection.lane]
            waiting.remove(connection)
            if not waiting:
                del self._lanes[connection.lane]
            connection.channel.close()

    def close(self) -> None:
        """Close all, and from now on whatever comes."""
        self._closed = True
        self._close_old(0, None)


def _is_quiet(connection: Connection) -> bool:
    """False when the peer closed, or sent something that no request asked for."""
    try:
        return connection.channel.receive(1) is None
    except FetchError:
        return False
