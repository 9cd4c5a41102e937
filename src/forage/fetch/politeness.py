"""The clock of a host: spacing between request starts, pauses that the server asked for, and a delay that adapts to slow servers.

Owns when a request may start and how many may be in flight. It does not know what is requested, nor why a server pauses a
host: the fetcher says so. All times are trio's clock; what is kept across processes is durations (`ClockState`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from types import TracebackType

import attrs
import trio

from forage.errors import FetchErrorKind, ForageError

__all__ = ["ClockState", "HostClock", "HostClocks", "OnPause", "OnWait", "WaitReason", "WaitTooLongError"]

MAX_ADAPTIVE_SECONDS = 30.0
_MAX_IDLE_CLOCKS = 10_000
_ROUNDING = 1e-6  # a pause of exactly the longest may look longer than that


class WaitReason(StrEnum):
    """What a request waits for."""

    DELAY = "delay"
    CRAWL_DELAY = "crawl-delay"
    ADAPTIVE_DELAY = "adaptive-delay"
    PAUSE = "host-paused"
    RETRY = "retry"


OnWait = Callable[[str, float, WaitReason], None]
"""Called with host, the time on trio's clock until which a request waits, and why. Must not wait and must not raise."""


OnPause = Callable[[str, float], None]
"""Called with host and seconds when a host is to be left alone for that long. Must not wait and must not raise."""


class WaitTooLongError(ForageError):
    """The host wants to be left alone for longer than the caller is willing to wait; nothing was sent."""

    def __init__(self, kind: FetchErrorKind, host: str, seconds: float, *, limit: float) -> None:
        self.kind = kind
        self.host = host
        self.seconds = seconds
        super().__init__(f"{host} asks for a longer wait than {limit:g} s")  # not how long: that depends on the moment


@attrs.frozen(kw_only=True)
class ClockState:
    """What politeness must remember across a restart: seconds since the last request start, and seconds that a pause still lasts."""

    since_start: float | None = None
    paused_for: float = 0.0


class HostClock:
    """When requests of one host may start.

    Starts are at least the delay apart: the largest of the policy's, the Crawl-delay and the adaptive one, whose floor is the policy's
    (a policy of 0 turns it off). At most ``per_host`` requests are in flight. ``with clock.request():`` is one request.
    ``everywhere`` bounds requests in flight over all hosts: a place there is taken for a request, never for a wait.
    """

    def __init__(
        self,
        host: str,
        *,
        delay: float,
        max_crawl_delay: float,
        max_pause: float,
        per_host: int = 1,
        everywhere: trio.Semaphore | None = None,
        on_wait: OnWait | None = None,
        on_pause: OnPause | None = None,
    ) -> None:
        self.host = host
        self._everywhere = everywhere
        self._on_pause = on_pause
        self.refusals = 0  # answers 429 and 503 in a row; the back-off doubles with them
        self._delay = delay
        self._adaptive = 0.0
        self._crawl_delays: dict[str, float] = {}
        self._max_crawl_delay = max_crawl_delay
        self._max_pause = max_pause
        self._on_wait = on_wait
        self._slots = trio.Semaphore(per_host)
        self._turn = trio.Lock()
        self._started: float | None = None
        self._page_started: float | None = None
        self._paused_until = -1.0
        self._users = 0  # requests that wait or are in flight

    def request(self, *, page: bool = True) -> HostRequest:
        """A turn to make one request: an async context manager, entered when the request may start.

        ``page`` is False for robots.txt. Entering raises `WaitTooLongError` rather than wait for a pause above ``max_pause`` or a
        Crawl-delay above ``max_crawl_delay``: such a wish is neither ignored nor a reason to hang.
        """
        return HostRequest(self, page=page)

    def pause(self, seconds: float) -> None:
        """No request of this host starts for so long, whoever asks; a shorter pause never shortens a longer one."""
        until = trio.current_time() + seconds
        if until > self._paused_until:
            self._paused_until = until
            if self._on_pause is not None:
                self._on_pause(self.host, seconds)

    def set_crawl_delay(self, authority: str, seconds: float | None) -> None:
        """What the robots.txt of one authority of this host wishes. The largest wish counts for the host."""
        if seconds is None:
            self._crawl_delays.pop(authority, None)
        else:
            self._crawl_delays[authority] = seconds

    def crawl_delay_of(self, authority: str) -> float | None:
        """What the robots.txt of one authority wished."""
        return self._crawl_delays.get(authority)

    def take_crawl_delay(self, authority: str) -> float | None:
        """What one authority wished, forgotten here."""
        return self._crawl_delays.pop(authority, None)

    def observe(self, seconds: float) -> None:
        """Take the time that an answer took: the adaptive delay goes half-way to it."""
        if self._delay > 0:
            self._adaptive = min((self._adaptive + seconds) / 2, MAX_ADAPTIVE_SECONDS)

    @property
    def crawl_delay(self) -> float | None:
        """Seconds that robots.txt wishes between starts, or None."""
        return max(self._crawl_delays.values(), default=None)

    @property
    def delay(self) -> float:
        """Seconds between starts that are in force."""
        return max(self._delay, self._adaptive, self.crawl_delay or 0.0)

    @property
    def idle(self) -> bool:
        """Whether forgetting this clock would change nothing."""
        now = trio.current_time()
        quiet = self._started is None or self._started + self.delay <= now
        return quiet and self._paused_until <= now and not self._users

    def state(self) -> ClockState:
        """What to keep when the process ends."""
        now = trio.current_time()
        since = None if self._started is None else now - self._started
        return ClockState(since_start=since, paused_for=max(0.0, self._paused_until - now))

    def restore(self, state: ClockState) -> None:
        """Go on where another process stopped. Meant for a clock that was not used yet."""
        now = trio.current_time()
        if state.since_start is not None:
            self._started = self._page_started = now - state.since_start
        if state.paused_for > 0:
            self._paused_until = max(self._paused_until, now + state.paused_for)

    def ready(self, *, page: bool = True) -> tuple[float, WaitReason]:
        """From which time on a request may start, and what it would wait for."""
        at, why = self._paused_until, WaitReason.PAUSE
        if self._started is not None and (self._delay or self._adaptive or self._crawl_delays):
            wish = self.crawl_delay or 0.0
            candidates = [(self._started + self._delay, WaitReason.DELAY), (self._started + self._adaptive, WaitReason.ADAPTIVE_DELAY)]
            if wish <= self._max_crawl_delay:
                candidates.append((self._started + wish, WaitReason.CRAWL_DELAY))
            for candidate in candidates:
                if candidate[0] > at:
                    at, why = candidate
            # Above the ceiling the request for robots.txt itself does not count: the first page may be asked for, the next one fails.
            if page and wish > self._max_crawl_delay and self._page_started is not None and self._page_started + wish > at:
                at, why = self._page_started + wish, WaitReason.CRAWL_DELAY
        return at, why

    async def _enter(self, *, page: bool) -> None:
        self._users += 1
        try:
            # No checkpoint where nothing is waited for: the request that follows has one.
            try:
                self._slots.acquire_nowait()
            except trio.WouldBlock:
                await self._slots.acquire()
            try:
                await self._start(page=page)
            except BaseException:
                self._slots.release()
                raise
        except BaseException:
            self._users -= 1
            raise

    def _leave(self) -> None:
        self._users -= 1
        if self._everywhere is not None:
            self._everywhere.release()
        self._slots.release()

    async def _start(self, *, page: bool) -> None:
        try:
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()
        try:
            while True:
                await self._until_ready(page=page)
                if self._everywhere is None or await self._place(self._everywhere, page=page):
                    break
            # No checkpoint between the decision and this mark: nobody else can start in between.
            self._started = trio.current_time()
            if page:
                self._page_started = self._started
        finally:
            self._turn.release()

    async def _until_ready(self, *, page: bool) -> None:
        while True:
            now = trio.current_time()
            at, why = self.ready(page=page)
            if at <= now:
                return
            self._refuse_long(at - now, why)
            if self._on_wait is not None:
                self._on_wait(self.host, at, why)
            await trio.sleep_until(at)

    async def _place(self, everywhere: trio.Semaphore, *, page: bool) -> bool:
        """Take a place among all requests; False when the host began to pause while there was none."""
        try:
            everywhere.acquire_nowait()
        except trio.WouldBlock:
            await everywhere.acquire()
        if self.ready(page=page)[0] <= trio.current_time():
            return True
        everywhere.release()
        return False

    def _refuse_long(self, seconds: float, why: WaitReason) -> None:
        if why is WaitReason.PAUSE and seconds > self._max_pause + _ROUNDING:
            raise WaitTooLongError(FetchErrorKind.HOST_PAUSED, self.host, seconds, limit=self._max_pause)
        if why is WaitReason.CRAWL_DELAY and seconds > self._max_crawl_delay + _ROUNDING:
            raise WaitTooLongError(FetchErrorKind.CRAWL_DELAY_TOO_LONG, self.host, seconds, limit=self._max_crawl_delay)


class HostRequest:
    """One request of a host, from the moment it may start until its slot is given back."""

    def __init__(self, clock: HostClock, *, page: bool) -> None:
        self._clock = clock
        self._page = page
        self.started = 0.0

    async def __aenter__(self) -> HostRequest:
        await self._clock._enter(page=self._page)  # noqa: SLF001 - the two classes are one mechanism
        self.started = trio.current_time()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._clock._leave()  # noqa: SLF001


class HostClocks:
    """The clocks of one fetcher, by host name (and port when it is not the default). Forgets clocks that no longer matter."""

    def __init__(self, make: Callable[[str], HostClock]) -> None:
        self._make = make
        self._clocks: dict[str, HostClock] = {}
        self._sweep_at = _MAX_IDLE_CLOCKS

    def of(self, host: str) -> HostClock:
        """The clock of a host, made on first use."""
        clock = self._clocks.get(host)
        if clock is None:
            if len(self._clocks) >= self._sweep_at:
                self._clocks = {name: kept for name, kept in self._clocks.items() if not kept.idle}
                self._sweep_at = max(_MAX_IDLE_CLOCKS, 2 * len(self._clocks))
            clock = self._clocks[host] = self._make(host)
        return clock

    def states(self) -> dict[str, ClockState]:
        """State of every clock, to be restored by a later process."""
        return {host: clock.state() for host, clock in self._clocks.items()}
