"""Whether the rules of one group let a path through, and which line denies it (RFC 9309 sections 2.2.2 and 2.2.3; pure).

Owns the normal form of paths and patterns. Whether a path matches a pattern is protego's verdict: it is given the chosen group as a clean
file, in an alphabet that its own quoting leaves alone. Two letters stand for each octet, so that a reserved escape never equals
the raw character, a ``$`` inside a pattern is data, and lengths stay proportional to octets, which is what the RFC measures. Which group
is chosen is ``robots_rules``'.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs
from protego import Protego

__all__ = ["RobotsGroup", "RobotsRule", "RobotsVerdict", "robots_target"]

# RFC 9309 section 2.2.2 compares octets after decoding escapes of unreserved characters. Three more are decoded: "*" and "$" because their
# escapes are how a rule writes the literal (section 2.2.3), "'" because URL serialisers escape it in queries.
_DECODED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~*$'")
_RAW = _DECODED | frozenset(b"!&()+,/:;=?@[]%")
_BLOCK = 64

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


class RobotsGroup:
    """The rules of one product token, merged over all its groups (or those of ``*``)."""

    def __init__(self, token: str, rules: Sequence[RobotsRule], crawl_delay: float | None) -> None:
        self.token = token
        self.rules = tuple(rules)
        self.crawl_delay = crawl_delay
        self._verdicts: Protego | None = None
        self._beginnings: tuple[str, ...] = ()
        self._suspects: list[list[RobotsRule]] | None = None
        self._suspect_files: dict[int, Protego] = {}

    def judge(self, target: str) -> RobotsVerdict:
        """Whether ``target``, a path with its query as it is sent, may be fetched. ``/robots.txt`` always may."""
        if not self.rules or target.partition("?")[0] == "/robots.txt":
            return RobotsVerdict(allowed=True)
        if self._verdicts is None:
            self._verdicts = _protego(self.rules)
            self._beginnings = _beginnings(self.rules)
        spelled = _spell_target(target)
        if not spelled.startswith(self._beginnings):  # no line matches
            return RobotsVerdict(allowed=True)
        if _allows(self._verdicts, spelled):
            return RobotsVerdict(allowed=True)
        return RobotsVerdict(allowed=False, rule=self._denier(spelled))

    def _denier(self, spelled: str) -> RobotsRule | None:
        """The longest Disallow line that matches, the first of equals.

        The lines are asked in blocks, longest first, and only those of the block that denies one by one: a file of 30,000 lines must
        not cost a rebuilding of all of them for each URL that it denies.
        """
        if self._suspects is None:
            denying = sorted((r for r in self.rules if not r.allow), key=lambda r: -len(_spell_pattern(r.path) or ""))
            self._suspects = [denying[at : at + _BLOCK] for at in range(0, len(denying), _BLOCK)]
        for number, rules in enumerate(self._suspects):
            file = self._suspect_files.get(number)
            if file is None:
                file = self._suspect_files[number] = _protego(rules)
            if not _allows(file, spelled):
                return next((rule for rule in rules if not _allows(_protego([rule]), spelled)), None)
        return None


def robots_target(url: str) -> str:
    """Path and query of a serialised http(s) URL, as they are sent and matched: without fragment, a bare ``?`` kept."""
    rest = url.partition("#")[0].partition("://")[2]
    cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    target = rest[cut:]
    return target if target.startswith("/") else f"/{target}"


def _beginnings(rules: Sequence[RobotsRule]) -> tuple[str, ...]:
    """What a target must start with for a Disallow line to match it: all before the first star, in protego's alphabet.

    Of many lines nothing is said, as protego finds the one that matches faster.
    """
    patterns = {_spell_pattern(rule.path) for rule in rules if not rule.allow}
    return tuple({pattern.partition("**")[0] for pattern in patterns if pattern is not None}) if len(patterns) <= _BLOCK else ("",)


def _protego(rules: Sequence[RobotsRule]) -> Protego:
    """The rules as a clean file of one group."""
    lines = {"User-agent: *": None}  # each line once, in order
    for rule in rules:
        spelled = _spell_pattern(rule.path)
        if spelled is not None:
            lines[f"{'Allow' if rule.allow else 'Disallow'}: {spelled}"] = None
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
