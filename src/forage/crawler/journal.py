"""What a crawl must remember to go on after being killed: the outcome of every entry, and how long each host wants to be left alone.

One SQLite file in WAL mode. The numbering of a crawl depends on its outcomes only, so nothing else is kept: a resumed crawl numbers its
entries anew and takes the outcome of each from here instead of from the network, until it reaches what was under way. A page's row is
written after the store has acknowledged the page. kill -9 loses nothing that was written; a power cut may lose the last rows, whose pages
are then fetched again.

Calls block for the length of a small disk write; the engine makes them in a thread, a batch at a time.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import trio

from forage._codec import dump_compact, load_json, make_converter
from forage.crawler.discovery import SitemapFinds
from forage.crawler.frontier import Entry
from forage.crawler.lanes import Outcome
from forage.crawler.links import Link
from forage.crawler.manifest import Page
from forage.crawler.urls import canonical_url
from forage.errors import InvalidPolicyError

__all__ = ["CrawlRecord", "Journal", "StateError"]

FORMAT = "forage.crawl-state/2"
_BUSY_SECONDS = 5.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outcomes (crawl TEXT NOT NULL, number INTEGER NOT NULL, url TEXT NOT NULL, outcome TEXT NOT NULL,
                                     PRIMARY KEY (crawl, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pauses (host TEXT PRIMARY KEY, until TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS crawls (crawl TEXT PRIMARY KEY, policy TEXT NOT NULL, seed TEXT NOT NULL, started TEXT NOT NULL,
                                   sitemaps TEXT) WITHOUT ROWID;
"""


_OPENING = {
    sqlite3.SQLITE_BUSY: "is in use by another crawl",
    sqlite3.SQLITE_LOCKED: "is in use by another crawl",
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; give a path in a folder that can be written",
}
_STARTED = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z", re.ASCII)


class StateError(InvalidPolicyError):
    """The state file cannot be used; it was left as it is."""

    def __init__(self, message: str) -> None:
        super().__init__("state", f"a state file of one crawl, used by one process ({message})")


class Journal:
    """An open state file; ``close`` when done. One process may have it open at a time. ``resumed`` when an earlier process made it.

    Raises StateError: not a state file of this format, damaged, or in use by another crawl.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        given: object = path
        if not isinstance(given, str | Path) or "\0" in str(given):
            raise StateError("the path is text or a path")
        try:
            self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as exc:
            raise StateError("the file cannot be opened; give a path in a folder that can be written") from exc
        try:
            self._prepare()
        except sqlite3.Error as exc:
            self._db.close()
            said = _OPENING.get(getattr(exc, "sqlite_errorcode", 0) & 0xFF, "is not a crawl state, or is damaged")
            raise StateError(f"the file {said}") from exc
        except BaseException:
            self._db.close()
            raise
        self._converter = make_converter(omit={Page: ("snapshot",), Outcome: ("links",)})

    def _prepare(self) -> None:
        db = self._db
        db.execute("PRAGMA locking_mode=EXCLUSIVE")  # two crawls on one state would each undo the other's politeness
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("BEGIN IMMEDIATE")
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "about" not in tables:
            db.execute("ROLLBACK")
            raise StateError("the file is a database of something else")
        self.resumed = bool(tables)
        if self.resumed:
            found = self._about("format")
            if found != FORMAT:  # nothing of another layout is read, nor changed
                db.execute("ROLLBACK")
                raise StateError(f"the file has format {found[:40]!r}, not {FORMAT}; the version that wrote it can go on with it")
        for statement in _SCHEMA.split(";"):
            db.execute(statement)
        db.execute("INSERT OR IGNORE INTO about VALUES ('format', ?), ('salt', ?)", (FORMAT, secrets.token_hex(16)))
        self._salt = bytes.fromhex(self._about("salt"))
        db.execute("COMMIT")

    def _about(self, name: str) -> str:
        row = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return "" if row is None else str(row[0])

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock, closing(self._db):
            pass

    def begin(self, seed: str, policy_digest: str, seed_options: str, started: str) -> CrawlRecord:
        """The part of this file that is about the crawl of ``seed``, new or known.

        ``seed_options`` is a text that is the same as long as they are; it may hold secrets, and goes into a salted digest. Raises
        InvalidPolicyError when the file knows the seed under another policy or with other options: its outcomes would not fit.
        """
        options = hashlib.blake2b(seed_options.encode(), key=self._salt, digest_size=32).hexdigest()
        with self._lock, _as_state_error():
            row = self._db.execute("SELECT policy, seed, started FROM crawls WHERE crawl = ?", (seed,)).fetchone()
            if row is None:
                self._db.execute("INSERT INTO crawls VALUES (?, ?, ?, ?, NULL)", (seed, policy_digest, options, started))
                return CrawlRecord(self, seed, started=started, resumed=False)
        if row[0] != policy_digest:
            raise InvalidPolicyError("state", "a state file that was begun with the same policy; use a new file for a new policy")
        if row[1] != options:
            raise InvalidPolicyError(
                "state",
                "a state file that was begun with the same url, headers, user_agent, render and max_response_bytes of the seed;"
                " use a new file for another seed",
            )
        if _STARTED.fullmatch(str(row[2])) is None:
            raise StateError("a record is damaged")
        return CrawlRecord(self, seed, started=str(row[2]), resumed=True)

    def sitemaps(self, crawl: str) -> SitemapFinds | None:
        """What sitemaps listed when they were read. Raises StateError."""
        with self._lock, _as_state_error():
            row = self._db.execute("SELECT sitemaps FROM crawls WHERE crawl = ?", (crawl,)).fetchone()
        if row is None or row[0] is None:
            return None
        try:
            finds: SitemapFinds = self._converter.structure(load_json(row[0]), SitemapFinds)
        except Exception as exc:  # cattrs raises groups of whatever the members raised
            raise StateError("a record is damaged") from exc
        return finds

    def keep_sitemaps(self, crawl: str, found: SitemapFinds) -> None:
        """Keep what sitemaps listed. Raises StateError."""
        text = dump_compact(self._converter.unstructure(found))
        with self._lock, _as_state_error():
            self._db.execute("UPDATE crawls SET sitemaps = ? WHERE crawl = ?", (text, crawl))

    def write(self, crawl: str, rows: Iterable[tuple[Entry, Outcome]]) -> None:
        """Keep outcomes, all or none. Raises StateError."""
        data = [(crawl, entry.number, entry.url, self._encode(outcome)) for entry, outcome in rows]
        with self._lock, _as_state_error():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?)", data)
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def find(self, crawl: str, entry: Entry) -> Outcome | None:
        """The outcome that an earlier run kept for this entry. Raises StateError when the record is not of this crawl or damaged."""
        with self._lock, _as_state_error():
            row = self._db.execute("SELECT url, outcome FROM outcomes WHERE crawl = ? AND number = ?", (crawl, entry.number)).fetchone()
        if row is None:
            return None
        url, text = row
        if url != entry.url:
            raise StateError("the file holds another order of entries; was it written by another version or clock?")
        return self._decode(text)

    def pause(self, host: str, until: datetime) -> None:
        """Keep that a host wants no request before an instant. Raises StateError."""
        with self._lock, _as_state_error():
            self._db.execute("INSERT OR REPLACE INTO pauses VALUES (?, ?)", (host, until.astimezone(UTC).isoformat()))

    def pauses(self) -> Sequence[tuple[str, datetime]]:
        """Hosts and the instants before which they want no request. Raises StateError."""
        with self._lock, _as_state_error():
            rows = self._db.execute("SELECT host, until FROM pauses").fetchall()
        try:
            return [(str(host), datetime.fromisoformat(until).astimezone(UTC)) for host, until in rows]
        except (TypeError, ValueError) as exc:
            raise StateError("a record is damaged") from exc

    def _encode(self, outcome: Outcome) -> str:
        members = self._converter.unstructure(outcome)
        links = [[link.kind, link.url, int(link.nofollow), *(() if link.delay is None else (link.delay,))] for link in outcome.links]
        return dump_compact({**members, "links": links})

    def _decode(self, text: str) -> Outcome:
        try:
            members: dict[str, Any] = load_json(text)
            links = tuple(_link(*row) for row in members.pop("links"))
            outcome: Outcome = self._converter.structure(members, Outcome)
        except Exception as exc:  # cattrs raises groups of whatever the members raised
            raise StateError("a record is damaged") from exc
        if sum(row is not None for row in (outcome.page, outcome.failure, outcome.skip)) != 1:
            raise StateError("a record is damaged")
        return attrs.evolve(outcome, links=links)


def _link(kind: str, url: str, nofollow: int, delay: float | None = None) -> Link:
    if canonical_url(url) != url:
        raise ValueError("not a fetch URL")
    return Link(kind=str(kind), url=url, nofollow=bool(nofollow), delay=None if delay is None else float(delay))


@contextmanager
def _as_state_error() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as exc:
        raise StateError(f"the file cannot be read or written ({type(exc).__name__}); what it held before is whole") from exc


class CrawlRecord:
    """One crawl's part of a journal, for its engine. ``resumed`` when an earlier run left something."""

    def __init__(self, journal: Journal, crawl: str, *, started: str, resumed: bool) -> None:
        self._journal = journal
        self._crawl = crawl
        self.started = started
        self.resumed = resumed

    def find(self, entry: Entry) -> Outcome | None:
        """The outcome of an earlier run; None when there is none or it cannot be read, so that the entry is fetched (again)."""
        if not self.resumed:
            return None
        try:
            return self._journal.find(self._crawl, entry)
        except StateError:
            return None

    async def keep(self, rows: Sequence[tuple[Entry, Outcome]]) -> str | None:
        """Write outcomes; a text that says why when it was not possible."""
        try:
            # Not abandoned: a cancelled crawl must not leave a thread that still writes.
            await trio.to_thread.run_sync(self._journal.write, self._crawl, rows, abandon_on_cancel=False)
        except StateError as exc:
            return f"{exc}; this crawl cannot be resumed beyond this point"
        return None

    def sitemaps(self) -> SitemapFinds | None:
        """What sitemaps listed in an earlier run."""
        try:
            return self._journal.sitemaps(self._crawl) if self.resumed else None
        except StateError:
            return None

    async def keep_sitemaps(self, found: SitemapFinds) -> None:
        """Write what sitemaps listed; without it a resumed crawl reads them again."""
        try:
            await trio.to_thread.run_sync(self._journal.keep_sitemaps, self._crawl, found, abandon_on_cancel=False)
        except StateError:
            return
