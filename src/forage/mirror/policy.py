"""What a mirror may let a page ask of third parties: the allowed-escapes policy (pure).

A page is complete although it asks for these hosts; every match is reported with its reason. Format:
``{"version": 1, "escapes": [{"host", "reason"}], "csp": [{"directive", "source", "reason"}]}``; other members are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from forage._codec import JsonError, load_json
from forage.errors import InvalidPolicyError
from forage.mirror.originals import host_and_path
from forage.snapshots.javascript import js_integer, js_integer_text, js_trim

__all__ = ["MAX_POLICY_BYTES", "AllowedEscape", "EscapePolicy", "SanctionedCsp", "compile_policy", "parse_policy"]

MAX_POLICY_BYTES: Final = 1 << 20


@attrs.frozen(kw_only=True)
class AllowedEscape:
    """Requests to ``host`` and the hosts below it are reported and do not block."""

    host: str
    reason: str

    def covers(self, host: str) -> bool:
        return host == self.host or host.endswith(f".{self.host}")


@attrs.frozen(kw_only=True)
class SanctionedCsp:
    """A violation without a request of its own (``eval``, ``inline``, ``data``, ``blob``) that is reported and does not block."""

    directive: str
    source: str
    reason: str


@attrs.frozen(kw_only=True)
class EscapePolicy:
    """A compiled policy; the default lets nothing through."""

    version: float = 1
    escapes: tuple[AllowedEscape, ...] = ()
    csp: tuple[SanctionedCsp, ...] = ()

    def match(self, url: str) -> AllowedEscape | None:
        """The first entry, in file order, that covers the host of ``url``. Scheme, port, path and userinfo play no part."""
        found = host_and_path(url)
        if found is None or not found[0]:
            return None
        return next((entry for entry in self.escapes if entry.covers(found[0])), None)

    def sanction(self, directive: str, source: str) -> SanctionedCsp | None:
        """The entry for a violation of ``directive`` by ``source``."""
        wanted = (directive.lower(), source.lower().removesuffix(":"))
        return next((entry for entry in self.csp if (entry.directive, entry.source) == wanted), None)


def parse_policy(text: str) -> EscapePolicy:
    """Read a policy file. Raises InvalidPolicyError when it is not JSON."""
    try:
        return compile_policy(load_json(text))
    except JsonError as exc:
        raise InvalidPolicyError("allow_escapes", "a JSON policy file") from exc


def compile_policy(document: object) -> EscapePolicy:
    """Compile a policy document. What has no usable host or directive is dropped, so that a slip never opens anything."""
    members = document if isinstance(document, Mapping) else {}
    version: Any = members.get("version")
    escapes = [AllowedEscape(host=_name(row, "host"), reason=_text(row, "reason")) for row in _rows(members, "escapes")]
    csp = [
        SanctionedCsp(directive=_name(row, "directive"), source=_name(row, "source").removesuffix(":"), reason=_text(row, "reason"))
        for row in _rows(members, "csp")
    ]
    return EscapePolicy(
        version=version if _is_number(version) else 1,
        escapes=tuple(entry for entry in escapes if entry.host),
        csp=tuple(entry for entry in csp if entry.directive and entry.source),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rows(members: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = members.get(name)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _name(row: Mapping[str, Any], member: str) -> str:
    return js_trim(_text(row, member)).lower()


def _text(row: Mapping[str, Any], member: str) -> str:
    return _as_text(row.get(member))


def _as_text(value: object) -> str:
    """How JavaScript turns a JSON value into text; absent and null are empty."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            whole = js_integer(value)
            return js_integer_text(whole) if whole is not None else repr(value)
        case list():
            return ",".join(map(_as_text, value))
        case Mapping():
            return "[object Object]"
    return str(value)
