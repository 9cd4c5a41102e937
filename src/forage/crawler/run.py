"""One crawl on tools that it may share: the fetcher, the store, the state file.

Owns who holds what and for how long, and what a resumed crawl owes its hosts. The doors in front of it (`stream`, `many`) decide how a
caller sees the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import ada_url
import attrs
import trio

from forage._codec import dump_compact
from forage._version import __version__
from forage.crawler.acquire import Acquirer, LiveAcquirer, ReplayAcquirer
from forage.crawler.engine import Crawl
from forage.crawler.events import CrawlEvent, CrawlWarning, HostPaused
from forage.crawler.journal import CrawlRecord, Journal, StateError
from forage.crawler.manifest import CrawlManifest
from forage.crawler.policy import CrawlPolicy, Seed, describe_policy, describe_seed
from forage.crawler.progress import Waits
from forage.crawler.tally import Tally
from forage.crawler.urls import canonical_url
from forage.egress import Dialer, Resolver, Wire
from forage.errors import InvalidPolicyError
from forage.fetch import DEFAULT_USER_AGENT, ClockState, Fetcher, Renderer, WaitReason
from forage.snapshots import SnapshotStore

__all__ = ["CrawlTools", "Seams", "check_seed", "open_tools", "run_crawl", "utc_now"]

Emit = Callable[[CrawlEvent], Awaitable[None]]

_PAUSES = frozenset({WaitReason.PAUSE, WaitReason.RETRY})
_AT_HAND = 4 * 1024 * 1024
_LONGEST_PAUSE = timedelta(days=3650)  # of those that the state file keeps: a server may ask for more than the calendar has


@attrs.frozen(kw_only=True)
class Seams:
    """What a caller may replace."""

    store: SnapshotStore | None
    renderer: Renderer | None
    resolver: Resolver | None
    dialer: Dialer | None
    wire: Wire | None
    utc_now: Callable[[], datetime]


def utc_now() -> datetime:
    """The wall clock, for recorded times only."""
    return datetime.now(UTC)


def check_seed(seed: Seed | str, policy: CrawlPolicy, store: SnapshotStore | None) -> Seed:
    """The seed as a value. Raises InvalidPolicyError for what cannot be started."""
    if isinstance(seed, str):
        seed = Seed(url=seed)
    if not isinstance(seed, Seed):
        raise InvalidPolicyError("seed", "a URL as text or a Seed", got=seed)
    if not isinstance(policy, CrawlPolicy):
        raise InvalidPolicyError("policy", "a CrawlPolicy", got=policy)
    if store is not None and not all(callable(getattr(store, name, None)) for name in ("put", "latest", "get", "list")):
        raise InvalidPolicyError("store", "a snapshot store, such as FilesystemSnapshotStore(path)", got=store)
    if policy.mode == "replay" and store is None:
        raise InvalidPolicyError("store", "the store to replay from, when mode is 'replay'")
    return seed


class CrawlTools:
    """What the crawls of one call share: connections, robots.txt and clocks through the fetcher, and the state file."""

    def __init__(self, policy: CrawlPolicy, seams: Seams, journal: Journal | None) -> None:
        self.policy = policy
        self.seams = seams
        self.journal = journal
        self.fetcher: Fetcher | None = None
        self.waits = Waits()
        self._listeners: dict[str, list[Crawl]] = {}

    def restore_pauses(self) -> None:
        """Keep the pauses that hosts asked an earlier process for."""
        if self.journal is None or self.fetcher is None:
            return
        now = self.seams.utc_now()
        for host, until in self.journal.pauses():
            if until > now:
                self.fetcher.restore_clocks({host: ClockState(paused_for=(until - now).total_seconds())})

    def listen(self, host: str, crawl: Crawl) -> None:
        """Tell ``crawl`` when ``host`` pauses."""
        self._listeners.setdefault(host, []).append(crawl)

    def forget(self, hosts: Iterable[str], crawl: Crawl) -> None:
        """Tell ``crawl`` nothing more of ``hosts``, and hold it no longer."""
        for host in hosts:
            crawls = self._listeners[host]
            crawls.remove(crawl)
            if not crawls:
                del self._listeners[host]

    def on_wait(self, host: str, until: float, why: WaitReason) -> None:
        """The fetcher's word that a request to a host waits."""
        now = trio.current_time()
        self.waits.note(host, until, why.value, now=now)
        seconds = until - now
        if why not in _PAUSES or seconds <= 0:
            return
        for crawl in self._listeners.get(host, ()):
            crawl.notice(HostPaused(host=host, seconds=seconds, why=why.value))

    def on_pause(self, host: str, seconds: float) -> None:
        """The fetcher's word that a host asked to be left alone."""
        if self.journal is None:
            return
        try:
            self.journal.pause(host, self.seams.utc_now() + timedelta(seconds=min(seconds, _LONGEST_PAUSE.total_seconds())))
        except StateError as exc:  # the pause itself holds; only a later process will not know of it
            for crawl in self._listeners.get(host, ()):
                crawl.notice(CrawlWarning(message=str(exc)))


@asynccontextmanager
async def open_tools(
    policy: CrawlPolicy, seams: Seams, *, state: Path | None = None, user_agent: str | None = None
) -> AsyncIterator[CrawlTools]:
    """Open what crawls under ``policy`` share. Raises InvalidPolicyError for a state file that cannot be used."""
    _keep_memory_at_hand()
    journal = None if state is None else await trio.to_thread.run_sync(Journal, state, abandon_on_cancel=False)
    try:
        tools = CrawlTools(policy, seams, journal)
        if policy.mode == "replay":
            yield tools
            return
        async with _fetcher(tools, user_agent) as fetcher:
            tools.fetcher = fetcher
            tools.restore_pauses()
            yield tools
    finally:
        if journal is not None:
            journal.close()


def _keep_memory_at_hand() -> None:
    """Spare the kernel a page's memory for each page: made and let go, a document's tree would be returned and asked for again.

    glibc returns what lies free at the top of the heap, but once a block of some size was let go it keeps twice as much. Without this
    every tenth second of CPU is spent in page faults.
    """
    block = bytes(_AT_HAND)  # not a bytearray, which would be written to
    del block


def _fetcher(tools: CrawlTools, user_agent: str | None) -> Fetcher:
    policy, seams = tools.policy, tools.seams
    return Fetcher(
        egress=policy.egress,
        resolver=seams.resolver,
        dialer=seams.dialer,
        wire=seams.wire,
        user_agent=user_agent or policy.user_agent or DEFAULT_USER_AGENT,
        delay=policy.delay,
        per_host=policy.per_host,
        concurrency=policy.concurrency,
        group_by=policy.group_by,
        max_crawl_delay=policy.max_crawl_delay,
        max_retry_wait=policy.max_retry_wait,
        on_wait=tools.on_wait,
        on_pause=tools.on_pause,
        resumed=tools.journal is not None and tools.journal.resumed,
        retries=policy.retries,
        attempt_seconds=policy.attempt_seconds,
        max_response_bytes=policy.max_response_bytes,
        obey_robots=policy.obey_robots,
        robots_on_error=policy.robots_on_error,
        render=policy.render,
        renderer=seams.renderer,
        utc_now=seams.utc_now,
    )


async def run_crawl(tools: CrawlTools, seed: Seed, emit: Emit | None, *, started: Callable[[Crawl], None]) -> CrawlManifest:
    """Crawl from one seed and answer with the account. Raises InvalidPolicyError (state of another policy) and what ``emit`` raises."""
    policy, seams = tools.policy, tools.seams
    seed_url = canonical_url(seed.url) or _without_secrets(seed.url)
    settings = describe_policy(policy)
    digest = _digest(settings)
    begin = _instant(seams.utc_now())
    record: CrawlRecord | None = None
    if tools.journal is not None:
        # A crawl may go on with more time than it began with: time decides when it ends, not what is next.
        record = tools.journal.begin(seed.id or seed_url, _digest({**settings, "maxSeconds": None}), describe_seed(seed), begin)
        begin = record.started
    tally = Tally()
    today = date.fromisoformat(begin[:10])  # a resumed crawl judges calendars by the day on which it began

    heard: set[str] = set()

    def on_host(host: str) -> None:
        if host not in heard:
            heard.add(host)
            tools.listen(host, running)

    acquirer = _acquirer(tools, seed, seed_url, on_host)
    running = Crawl(seed_url=seed_url, policy=policy, acquirer=acquirer, tally=tally, emit=emit, record=record, today=today)
    started(running)
    try:
        await running.run()
    finally:
        tools.forget(heard, running)
    return tally.manifest(
        seed=seed_url,
        mode=policy.mode,
        policy=settings,
        policy_digest=digest,
        started_at=begin,
        ended_at=_instant(seams.utc_now()),
        tool=f"forage/{__version__}",
        sitemaps=running.sitemaps,
    )


def _digest(settings: Mapping[str, object]) -> str:
    return hashlib.sha256(dump_compact(settings).encode()).hexdigest()


def _acquirer(tools: CrawlTools, seed: Seed, seed_url: str, on_host: Callable[[str], None]) -> Acquirer:
    store = tools.seams.store
    if tools.fetcher is not None:
        return LiveAcquirer(seed=seed, seed_url=seed_url, policy=tools.policy, fetcher=tools.fetcher, store=store, on_host=on_host)
    assert store is not None
    return ReplayAcquirer(seed=seed, seed_url=seed_url, policy=tools.policy, store=store)


def _without_secrets(url: str) -> str:
    """A URL that the guard will refuse, as it may stand in a manifest."""
    parsed = ada_url.URL(url)
    return f"{parsed.protocol}//{parsed.host}{parsed.pathname}"


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
