"""What one robots.txt says, line by line (RFC 9309): groups, rules, delays, sitemap lines, and the line that denies.

Owns the reading of bytes into lines, fields and groups, the choice of the group for a product token, and the normal form of paths
and patterns. Whether a path matches a pattern is protego's verdict: it is given the chosen group as a clean file, in an alphabet
that its own quoting leaves alone. Two letters stand for each octet, so that a reserved escape never equals the raw character, a
``$`` inside a pattern is data, and lengths stay proportional to octets, which is what RFC 9309 measures. Does not fetch anything
and knows no cache: see ``robots``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import ada_url
import attrs
from protego import Protego

__all__ = ["MAX_ROBOTS_BYTES", "RobotsFile", "RobotsGroup", "RobotsRule", "RobotsVerdict", "parse_robots", "product_token", "robots_target"]

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
_ASCII_SPACE = " \t\v\f"
_BOMS = (b"\xef\xbb\xbf", b"\xef\xbb", b"\xef")

# RFC 9309 section 2.2.2 compares octets after decoding escapes of unreserved characters. Three more are decoded: "*" and "$" because their
# escapes are how a rule writes the literal (section 2.2.3), "'" because URL serialisers escape it in queries.
_DECODED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~*$'")
_RAW = _DECODED | frozenset(b"!&()+,/:;=?@[]%")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_PAIRS = tuple(chr(97 + (octet >> 4)) + chr(65 + (octet & 15)) for octet in range(256))
_END = "zZ"  # stands for the end of the path: no octet is spelled so, and an anchored pattern ends with it


@attrs.frozen(kw_only=True)
class RobotsRule:
    """One Allow or Disallow line; ``line`` counts from 1 in the file as served, ``path`` is the value as written."""

    allow: bool
    path: str
    line: int


@attrs.frozen(kw_only=True)
class RobotsVerdict:
    """Whether a path may be fetched; ``rule`` is the line that denies it, None where it is allowed."""

    allowed: bool
    rule: RobotsRule | None = None


@attrs.frozen(kw_only=True)
class _Section:
    """Consecutive agent lines and the rules that follow them: the unit that the file is made of."""

    agents: frozenset[str]
    rules: tuple[RobotsRule, ...]


class RobotsGroup:
    """The rules of one product token, merged over all its groups (or those of ``*``)."""

    def __init__(self, token: str, rules: Sequence[RobotsRule], crawl_delay: float | None) -> None:
        self.token = token
        self.rules = tuple(rules)
        self.crawl_delay = crawl_delay
        self._verdicts: Protego | None = None

    def judge(self, target: str) -> RobotsVerdict:
        """Whether ``target``, a path with its query as it is sent, may be fetched. ``/robots.txt`` always may."""
        if not self.rules or target.partition("?")[0] == "/robots.txt":
            return RobotsVerdict(allowed=True)
        if self._verdicts is None:
            self._verdicts = _protego(self.rules)
        if _allows(self._verdicts, _spell_target(target)):
            return RobotsVerdict(allowed=True)
        return RobotsVerdict(allowed=False, rule=self._denier(target))

    def _denier(self, target: str) -> RobotsRule | None:
        """The longest Disallow line that matches, the first of equals: found by asking for one half of the candidates after the other."""
        spelled = _spell_target(target)
        rules = sorted((r for r in self.rules if not r.allow), key=lambda r: -len(_spell_pattern(r.path) or ""))
        while len(rules) > 1:
            head = rules[: len(rules) // 2]
            rules = rules[len(head) :] if _allows(_protego(head), spelled) else head
        return rules[0] if rules else None


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


def robots_target(url: str) -> str:
    """Path and query of a serialised http(s) URL, as they are sent and matched: without fragment, a bare ``?`` kept."""
    rest = url.partition("#")[0].partition("://")[2]
    cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    target = rest[cut:]
    return target if target.startswith("/") else f"/{target}"


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
    line = line.partition("#")[0].strip(_ASCII_SPACE)
    name, colon, value = line.partition(":")
    name = name.strip(_ASCII_SPACE).lower()
    if colon and name in _FIELDS:
        return name, value.strip(_ASCII_SPACE)
    words = re.split(rf"[{_ASCII_SPACE}]+", line, maxsplit=2)
    if len(words) == 2 and words[0].lower() in _FIELDS:
        return words[0].lower(), words[1]
    return None, ""


def _agent(value: str) -> str:
    """The token of an agent line, cut at the first other character and compared whole; ``*`` alone or before a space means everybody."""
    if value.startswith("*") and (len(value) == 1 or value[1] in _ASCII_SPACE):
        return "*"
    return _leading_token(value).lower()


def _leading_token(value: str) -> str:
    found = _TOKEN.match(value)
    return found[0] if found else ""


def _protego(rules: Sequence[RobotsRule]) -> Protego:
    """The rules as a clean file of one group."""
    lines = ["User-agent: *"]
    for rule in rules:
        spelled = _spell_pattern(rule.path)
        if spelled is not None:
            lines.append(f"{'Allow' if rule.allow else 'Disallow'}: {spelled}")
    return Protego.parse("\n".join(lines))


def _allows(file: Protego, spelled_target: str) -> bool:
    return bool(file.can_fetch(spelled_target, "*"))


def _spell_target(target: str) -> str:
    return f"/{_spell(target)}{_END}"


def _spell_pattern(path: str) -> str | None:
    """A pattern in protego's alphabet; None where it can match no path, because it starts with neither a slash nor a star."""
    if not path.startswith(("/", "*")):
        return None
    anchored = path.endswith("$")
    pieces = (path[:-1] if anchored else path).split("*")
    return "/" + "**".join(map(_spell, pieces)) + (_END if anchored else "")


def _spell(text: str) -> str:
    octets = _ESCAPE.sub(_unescape, text.encode("utf-8", "surrogateescape"))
    return "".join([_PAIRS[o] if o in _RAW else _ESCAPED[o] for o in octets])


def _unescape(escape: re.Match[bytes]) -> bytes:
    octet = int(escape[1], 16)
    return bytes((octet,)) if octet in _DECODED else escape[0].upper()


_ESCAPED = tuple("".join(_PAIRS[o] for o in b"%%%02X" % octet) for octet in range(256))
