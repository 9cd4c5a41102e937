"""What one robots.txt says, line by line (RFC 9309 section 2.2; pure): groups, rules, delays and sitemap lines.

Owns the reading of bytes into lines, fields and groups, and the choice of the group for a product token. Whether a path matches is
``robots_paths``', fetching and keeping the file ``robots``'.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import ada_url
import attrs

from forage.fetch.robots_paths import RobotsGroup, RobotsRule, RobotsVerdict, robots_target

__all__ = ["MAX_ROBOTS_BYTES", "RobotsFile", "parse_robots", "product_token"]

MAX_ROBOTS_BYTES = 512_000
"""RFC 9309 section 2.5: at least 500 KiB are read. What lies beyond is not, and the line that the limit cuts is dropped."""

_AGENT_FIELDS = frozenset({"user-agent", "useragent", "user agent"})
_DISALLOW_FIELDS = frozenset({"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"})
_ALLOW_FIELDS = frozenset({"allow"})
_SITEMAP_FIELDS = frozenset({"sitemap", "sitemaps", "site-map"})
_DELAY_FIELDS = frozenset({"crawl-delay", "crawldelay", "crawl delay"})
_FIELDS = _AGENT_FIELDS | _DISALLOW_FIELDS | _ALLOW_FIELDS | _SITEMAP_FIELDS | _DELAY_FIELDS

_TOKEN = re.compile(r"[A-Za-z_-]+")  # RFC 9309 section 2.2.1: product-token
_COMPATIBLE = re.compile(r"\(\s*compatible\s*;\s*([A-Za-z_-]+)")
_DELAY = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})")
_SPACE = " \t\v\f"
# Spaces that word processors leave in pasted files. Stripped at both ends of a field, where they can only be accidents.
_EDGE = f"{_SPACE}\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_BOMS = (b"\xef\xbb\xbf", b"\xef\xbb", b"\xef")


@attrs.frozen(kw_only=True)
class _Section:
    """Consecutive agent lines and the rules that follow them: the unit that the file is made of."""

    agents: frozenset[str]
    rules: tuple[RobotsRule, ...]


@attrs.frozen(kw_only=True)
class RobotsFile:
    """A robots.txt as read. ``sitemaps`` are the values as written, in file order, each once; ``truncated`` says that the file was longer
    than was read, ``looks_html`` that it starts as markup does, which mostly means an error page with status 200."""

    sitemaps: tuple[str, ...] = ()
    truncated: bool = False
    looks_html: bool = False
    size: int = 0
    _sections: tuple[_Section, ...] = ()
    _delays: tuple[tuple[frozenset[str], float], ...] = ()

    def group(self, user_agent: str) -> RobotsGroup:
        """The group that applies to a User-Agent value (or a bare product token)."""
        token = product_token(user_agent)
        chosen = [s for s in self._sections if token and token in s.agents]
        if not chosen:
            token, chosen = "*", [s for s in self._sections if "*" in s.agents]
        delays = [seconds for agents, seconds in self._delays if token in agents]
        rules = [rule for s in chosen for rule in s.rules]
        return RobotsGroup(token, rules, max(delays, default=None))

    def verdict(self, url: str, user_agent: str) -> RobotsVerdict:
        """Whether ``user_agent`` may fetch an http(s) URL of this file's authority. Raises ValueError for a text that is no URL."""
        return self.group(user_agent).judge(robots_target(ada_url.URL(url).href))

    def sitemap_urls(self, robots_url: str) -> tuple[str, ...]:
        """The sitemap lines as http(s) URLs, resolved against the file's own URL, each once. Other hosts are reported too: whether they are
        read is the caller's policy, and every fetch goes through the guard."""
        found: dict[str, None] = {}
        for value in self.sitemaps:
            try:
                url = ada_url.URL(value, base=robots_url)
            except ValueError:
                continue
            if url.protocol in ("http:", "https:"):
                found[url.href.partition("#")[0]] = None
        return tuple(found)


def product_token(user_agent: str) -> str:
    """The lower-case product token of a User-Agent value: the crawler's name inside ``(compatible; ...)``, else the leading one."""
    if user_agent.strip() == "*":
        return "*"
    inner = _COMPATIBLE.search(user_agent)
    token = inner[1] if inner else _leading_token(user_agent.strip())
    return token.lower()


def parse_robots(data: bytes) -> RobotsFile:
    """Read a robots.txt. Never fails: what is no line of the format is skipped, undecodable octets spoil only their own line."""
    size = len(data)
    truncated = size > MAX_ROBOTS_BYTES
    if truncated:
        # A cut "Allow: /a" of "Allow: /a/private" must not open what the file blocks, so the last, incomplete line goes.
        cut = data[:MAX_ROBOTS_BYTES]
        data = cut[: max(cut.rfind(b"\n"), cut.rfind(b"\r")) + 1]
    reader = _Reader()
    text = _decode(data)
    for number, line in enumerate(_lines(text), 1):
        field, value = _field(line)
        if field is not None:
            reader.add(field, value, number)
    reader.close()
    return RobotsFile(
        sitemaps=tuple(reader.sitemaps),
        truncated=truncated,
        looks_html=text.lstrip(" \t\r\n").startswith("<"),
        size=size,
        sections=tuple(reader.sections),
        delays=tuple(reader.delays),
    )


class _Reader:
    """Gathers sections: agent lines stack until a rule follows; only an agent line after a rule opens the next section (RFC 9309 2.2.1).

    A Crawl-delay is an "other record" of the RFC and does not end the stack. It holds for the agent lines since the last such line: of
    ``*`` with 60 seconds and then a crawler of its own with 0, each keeps what it was given.
    """

    def __init__(self) -> None:
        self.sections: list[_Section] = []
        self.delays: list[tuple[frozenset[str], float]] = []
        self.sitemaps: dict[str, None] = {}
        self._agents: set[str] = set()
        self._rules: list[RobotsRule] = []
        self._waiting: set[str] = set()  # agents that the next delay line is for
        self._delayed: frozenset[str] | None = None  # those of the last one, until an agent line follows
        self._open = False  # agent lines were seen
        self._ruled = False  # and rule lines after them

    def add(self, field: str, value: str, number: int) -> None:
        if field in _SITEMAP_FIELDS:
            if value:
                self.sitemaps[value] = None
        elif field in _AGENT_FIELDS:
            if self._ruled:
                self.close()
            if self._delayed is not None:
                self._waiting, self._delayed = set(), None
            self._open = True
            self._agents.add(_agent(value))
            self._waiting.add(_agent(value))
        elif self._open and field in _DELAY_FIELDS:
            self._delayed = self._delayed or frozenset(self._waiting)
            if _DELAY.fullmatch(value):
                self.delays.append((self._delayed, float(value)))
        elif self._open:
            self._ruled = True
            if value:
                self._rules.append(RobotsRule(allow=field in _ALLOW_FIELDS, path=value, line=number))

    def close(self) -> None:
        if self._open:
            agents = frozenset(self._agents - {""})
            self.sections.append(_Section(agents=agents, rules=tuple(self._rules)))
        self._agents, self._rules, self._waiting, self._delayed = set(), [], set(), None
        self._open = self._ruled = False


def _decode(data: bytes) -> str:
    """Bytes to text that keeps every octet: undecodable ones become lone surrogates, which later turn into the same octets again."""
    for bom, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(bom):
            return data[2:].decode(encoding, "replace")
    for bom in _BOMS:  # a byte-order mark cut short is skipped too
        if data.startswith(bom):
            data = data[len(bom) :]
            break
    return data.decode("utf-8", "surrogateescape")


def _lines(text: str) -> Iterator[str]:
    """Split at CR LF, LF or CR only; U+2028, U+0085 and form feed are data. CR LF counts as one line end."""
    return iter(re.split(r"\r\n|\n|\r", text))


def _field(line: str) -> tuple[str | None, str]:
    """Field name and value of a line, or None for no line of the format. Two words without a colon are taken as field and value."""
    line = line.partition("#")[0].strip(_EDGE)
    name, colon, value = line.partition(":")
    name = name.strip(_EDGE).lower()
    if colon and name in _FIELDS:
        return name, value.strip(_EDGE)
    words = re.split(rf"[{_SPACE}]+", line, maxsplit=2)
    if len(words) == 2 and words[0].lower() in _FIELDS:
        return words[0].lower(), words[1]
    return None, ""


def _agent(value: str) -> str:
    """The token of an agent line, cut at the first other character and compared whole; ``*`` alone or before a space means everybody."""
    if value.startswith("*") and (len(value) == 1 or value[1] in _SPACE):
        return "*"
    return _leading_token(value).lower()


def _leading_token(value: str) -> str:
    found = _TOKEN.match(value)
    return found[0] if found else ""
