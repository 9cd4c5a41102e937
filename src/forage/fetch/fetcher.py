"""The fetcher: everything that acquisitions share, owned by the caller and gone with it.

Owns the connections, the robots.txt files and the clocks of all hosts it talks to. Nothing is process-wide: two fetchers know nothing
of each other, so a program that wants one clock for a host uses one fetcher.
"""

from __future__ import annotations

import math
import random as _random
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

import attrs
import trio

from forage.egress import EgressPolicy, EgressSession
from forage.errors import ForageError
from forage.fetch.acquisition import Acquisition, Choices, Tools, Turn
from forage.fetch.checks import check_parts, refused_call
from forage.fetch.politeness import ClockState, HostClock, HostClocks, OnPause, OnWait
from forage.fetch.rendering import Renderer
from forage.fetch.result import FetchResult, Source
from forage.fetch.robots import Robots, RobotsCopy
from forage.fetch.robots_client import RobotsClient
from forage.fetch.robots_outcome import DEFAULT_MAX_AGE, RobotsEntry, RobotsRules
from forage.fetch.sender import Sender
from forage.fetch.settings import DEFAULT_USER_AGENT, FetchSettings, GroupBy, OpenOrClosed, Render, utc_now
from forage.snapshots import Snapshot

if TYPE_CHECKING:
    from forage.egress import Dialer, Resolver, Wire
    from forage.snapshots import SnapshotStore

__all__ = ["Fetcher"]

_CLOSE_SECONDS = 1.0
_DECODING_THREADS = 2  # they share one interpreter with the event loop: more would take its turns, and finish no sooner


class Fetcher:
    """Acquires sources politely. An async context manager; many tasks may fetch side by side, also of one host.

    Guard: ``egress``, ``resolver``, ``dialer``, ``wire``, and ``max_redirects`` (None for the policy's).

    Politeness: ``delay`` seconds between two request starts of one host, robots.txt included; the Crawl-delay of robots.txt and a delay
    that adapts to slow servers raise it (0 turns the adaptive one off). ``per_host`` requests in flight on one host;
    ``group_by="address"``: names that are at one address count as one host. A Crawl-delay above ``max_crawl_delay`` lets one page
    through, the next one fails with ``crawl-delay-too-long``. A Retry-After above ``max_retry_wait`` fails the fetch, and the host stays
    paused for others (``host-paused``). ``on_wait(host, until, why)`` is told of each wait, on trio's clock,
    ``on_pause(host, seconds)`` of what a host asked for. ``concurrency``: requests in flight over all hosts, None for any number.
    ``resumed``: an earlier process may have asked any host up to the moment this fetcher was made, so each host's delay counts from then.

    Attempts: ``retries`` further ones after a failure that may pass, clamped to 0 to 5. ``attempt_seconds`` from look-up to last body byte;
    ``idle_seconds`` without a byte from the server (infinity: no such bound). Making text of the bytes afterwards is no part of an
    attempt and holds no slot of the host: it asks nobody anything, and what bounds it is the number of bytes (in the charsets of East
    Asia up to a third of a second a MiB, in a thread). A deadline around it all is the caller's cancel scope.

    Robots: ``obey_robots``; ``robots_on_error="allow"`` opens a site whose robots.txt is unreachable, with a warning;
    ``robots_access_denied="deny"`` closes one whose robots.txt answers 401 or 403. ``robots_max_age`` seconds a copy is used.

    Bodies: ``max_response_bytes`` as declared, received, decoded, rendered and stored, None for 64 MiB. ``keep_error_bodies``: error pages
    ride on ``result.error.page``. ``cookies`` set by one hop go to the next of the same origin, within one acquisition.
    ``render``, ``renderer``, ``render_seconds``: when a browser makes the body, which one, and its deadline.

    ``utc_now`` gives recorded times, ``random`` the jitter. Raises InvalidPolicyError.
    """

    def __init__(
        self,
        *,
        egress: EgressPolicy | None = None,
        resolver: Resolver | None = None,
        dialer: Dialer | None = None,
        wire: Wire | None = None,
        user_agent: str = DEFAULT_USER_AGENT,
        delay: float = 1.0,
        per_host: int = 1,
        group_by: GroupBy = "host",
        max_crawl_delay: float = 60.0,
        max_retry_wait: float = 120.0,
        concurrency: int | None = None,
        on_wait: OnWait | None = None,
        on_pause: OnPause | None = None,
        resumed: bool = False,
        retries: int = 2,
        attempt_seconds: float = 15.0,
        idle_seconds: float = math.inf,
        max_redirects: int | None = None,
        max_response_bytes: int | None = None,
        keep_error_bodies: bool = False,
        cookies: bool = True,
        obey_robots: bool = True,
        robots_on_error: OpenOrClosed = "deny",
        robots_access_denied: OpenOrClosed = "allow",
        robots_max_age: float = DEFAULT_MAX_AGE,
        render: Render = "never",
        renderer: Renderer | None = None,
        render_seconds: float = 30.0,
        utc_now: Callable[[], datetime] = utc_now,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self.settings = settings = FetchSettings(
            user_agent=user_agent,
            delay=delay,
            per_host=per_host,
            group_by=group_by,
            max_crawl_delay=max_crawl_delay,
            max_retry_wait=max_retry_wait,
            concurrency=concurrency,
            on_wait=on_wait,
            on_pause=on_pause,
            resumed=resumed,
            retries=retries,
            attempt_seconds=attempt_seconds,
            idle_seconds=idle_seconds,
            max_response_bytes=max_response_bytes,
            keep_error_bodies=keep_error_bodies,
            cookies=cookies,
            obey_robots=obey_robots,
            robots_on_error=robots_on_error,
            robots_access_denied=robots_access_denied,
            robots_max_age=robots_max_age,
            render=render,
            render_seconds=render_seconds,
            utc_now=utc_now,
            random=random,
        )
        check_parts(egress, renderer)
        policy = EgressPolicy() if egress is None else egress
        if max_redirects is not None:
            policy = attrs.evolve(policy, max_redirects=max_redirects)
        self._renderer = renderer
        self._session = EgressSession(policy, resolver=resolver, dialer=dialer, wire=wire)
        self._made = trio.current_time() if resumed else 0.0
        self._everywhere = None if concurrency is None else trio.Semaphore(concurrency)
        self._clocks = HostClocks(self._make_clock)
        sender = Sender(self._session, self._clocks, settings)
        rules = RobotsRules(open_on_error=robots_on_error == "allow", strict=robots_access_denied == "deny", max_age=robots_max_age)
        self._robots = Robots(RobotsClient(sender, policy, settings).ask, rules)
        threads = trio.CapacityLimiter(_DECODING_THREADS)
        self._tools = Tools(
            policy=policy, judged=self._session.judged, settings=settings, sender=sender, robots=self._robots, threads=threads
        )

    def _make_clock(self, host: str) -> HostClock:
        s = self.settings
        clock = HostClock(
            host,
            delay=s.delay,
            max_crawl_delay=s.max_crawl_delay,
            max_pause=s.max_retry_wait,
            per_host=s.per_host,
            everywhere=self._everywhere,
            on_wait=s.on_wait,
            on_pause=s.on_pause,
        )
        if s.resumed:
            clock.restore(ClockState(since_start=trio.current_time() - self._made))
        return clock

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        with trio.move_on_after(_CLOSE_SECONDS, shield=True):  # closing sockets does not wait; the bound is a promise
            await self._session.__aexit__(kind, value, trace)

    async def fetch(
        self,
        source: Source | str,
        *,
        store: SnapshotStore | None = None,
        max_response_bytes: int | None = None,
        render: Render | None = None,
        obey_robots: bool | None = None,
        turn: Turn | None = None,
    ) -> FetchResult:
        """Acquire one source. Outcomes are returned, never raised; nothing is written.

        A text is a source whose id is its URL. ``store`` is asked for the latest snapshot, to make the request conditional. ``turn`` is
        waited for before the first request, when robots.txt is known. The other options replace the fetcher's for this call.
        """
        if isinstance(source, str):
            source = Source(id=source, url=source)
        refused = refused_call(source, store=store, max_response_bytes=max_response_bytes, render=render, obey_robots=obey_robots)
        if refused is not None:
            return refused
        settings = self.settings
        warnings: list[str] = []
        choices = Choices(
            max_response_bytes=settings.max_response_bytes if max_response_bytes is None else max_response_bytes,
            render=settings.render if render is None else render,
            renderer=self._renderer,
            obey_robots=settings.obey_robots if obey_robots is None else obey_robots,
            prior=await _prior(store, source, warnings),
            turn=turn,
        )
        return await Acquisition(self._tools, source, choices, warnings).run()

    async def robots(self, url: str) -> RobotsEntry:
        """What is known of the robots.txt that governs a URL, asked for first when it is not known or old.

        Raises EgressDeniedError when the guard refuses the URL itself.
        """
        return await self._robots.entry(self._session.judged(url).origin)

    def remember_robots(self, url: str, copy: RobotsCopy) -> None:
        """Begin with a copy of the robots.txt that governs a URL. Raises EgressDeniedError as `robots`."""
        self._robots.remember(self._session.judged(url).origin, copy)

    def clock(self, host: str) -> HostClock:
        """The clock of a host (``name``, or ``name:port`` when the port is not the default)."""
        return self._clocks.of(host)

    def clock_states(self) -> Mapping[str, ClockState]:
        """State of all clocks, for `restore_clocks` in a later process."""
        return self._clocks.states()

    def restore_clocks(self, states: Mapping[str, ClockState]) -> None:
        """Keep the politeness of an earlier process: its last starts and pauses still count."""
        for host, state in states.items():
            self._clocks.of(host).restore(state)


async def _prior(store: SnapshotStore | None, source: Source, warnings: list[str]) -> Snapshot | None:
    """The latest snapshot, where the source wants its request conditional. A store that fails costs a warning, and the page comes whole."""
    if store is None or not source.revalidate:
        return None
    try:
        latest: object = await store.latest(source.id)
        if latest is None or isinstance(latest, Snapshot):
            return latest
        said = f"it gave {type(latest).__name__}"
    except Exception as exc:  # noqa: BLE001 - the store may be anyone's; whatever it raises must not cost the page
        said = str(exc) if isinstance(exc, ForageError) else type(exc).__name__
    warnings.append(f"revalidate: the latest snapshot could not be read ({said}); asking unconditionally")
    return None
