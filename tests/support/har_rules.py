"""HTTP Archive 1.2, checked: what its specification says of each object, as a table of members.

Types are JSON's; ``!`` marks what may not be missing. Members that begin with an underscore are custom and allowed everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["har_problems"]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)")
_TABLE: Mapping[str, Mapping[str, str]] = {
    "log": {"version": "text!", "creator": "creator!", "browser": "creator", "pages": "[page]", "entries": "[entry]!", "comment": "text"},
    "creator": {"name": "text!", "version": "text!", "comment": "text"},
    "page": {"startedDateTime": "time!", "id": "text!", "title": "text!", "pageTimings": "pageTimings!", "comment": "text"},
    "pageTimings": {"onContentLoad": "number", "onLoad": "number", "comment": "text"},
    "entry": {
        "pageref": "text", "startedDateTime": "time!", "time": "positive!", "request": "request!", "response": "response!",
        "cache": "cache!", "timings": "timings!", "serverIPAddress": "text", "connection": "text", "comment": "text",
    },
    "request": {
        "method": "text!", "url": "text!", "httpVersion": "text!", "cookies": "[cookie]!", "headers": "[pair]!", "queryString": "[pair]!",
        "postData": "postData", "headersSize": "size!", "bodySize": "size!", "comment": "text",
    },
    "response": {
        "status": "positive!", "statusText": "text!", "httpVersion": "text!", "cookies": "[cookie]!", "headers": "[pair]!",
        "content": "content!", "redirectURL": "text!", "headersSize": "size!", "bodySize": "size!", "comment": "text",
    },
    "cookie": {
        "name": "text!", "value": "text!", "path": "text", "domain": "text", "expires": "text", "httpOnly": "flag", "secure": "flag",
        "comment": "text",
    },
    "pair": {"name": "text!", "value": "text!", "comment": "text"},
    "postData": {"mimeType": "text!", "params": "[pair]", "text": "text", "comment": "text"},
    "content": {"size": "size!", "compression": "number", "mimeType": "text!", "text": "text", "encoding": "text", "comment": "text"},
    "cache": {"beforeRequest": "any", "afterRequest": "any", "comment": "text"},
    "timings": {
        "blocked": "size", "dns": "size", "connect": "size", "ssl": "size", "send": "positive!", "wait": "positive!",
        "receive": "positive!", "comment": "text",
    },
}  # fmt: skip


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_SCALARS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "time": lambda value: isinstance(value, str) and _TIME.fullmatch(value) is not None,
    "number": _is_number,
    "positive": lambda value: _is_number(value) and value >= 0,
    "size": lambda value: _is_number(value) and value >= -1,
    "flag": lambda value: isinstance(value, bool),
    "any": lambda _: True,
}


def har_problems(document: Any) -> list[str]:
    """What is wrong with an archive, one line each; an empty list for a good one."""
    if not isinstance(document, dict) or set(document) != {"log"}:
        return ["no log"]
    found = [*_problems("log", document["log"], "log"), *_sums(document["log"])]
    names = {page["id"] for page in document["log"].get("pages", ())}
    return found + [f"no page {entry['pageref']}" for entry in document["log"]["entries"] if entry.get("pageref") not in {None, *names}]


def _problems(kind: str, value: Any, path: str) -> Iterator[str]:
    if kind.startswith("["):
        if not isinstance(value, list):
            yield f"{path}: no list"
            return
        for number, member in enumerate(value):
            yield from _problems(kind[1:-1], member, f"{path}[{number}]")
    elif kind in _SCALARS:
        if not _SCALARS[kind](value):
            yield f"{path}: no {kind}"
    elif not isinstance(value, dict):
        yield f"{path}: no object"
    else:
        yield from _members(kind, value, path)


def _members(kind: str, value: dict[str, Any], path: str) -> Iterator[str]:
    table = _TABLE[kind]
    for name, wanted in table.items():
        if name in value:
            yield from _problems(wanted.rstrip("!"), value[name], f"{path}.{name}")
        elif wanted.endswith("!"):
            yield f"{path}.{name}: missing"
    for name in value:
        if name not in table and not name.startswith("_"):
            yield f"{path}.{name}: unknown"


def _sums(log: Mapping[str, Any]) -> Iterator[str]:
    """The time of an entry is the sum of its timings, those left out that do not apply."""
    for number, entry in enumerate(log.get("entries", ())):
        known = [value for name, value in entry["timings"].items() if name != "ssl" and _is_number(value) and value >= 0]
        if abs(sum(known) - entry["time"]) > 0.01:
            yield f"log.entries[{number}]: time is not the sum of its timings"
