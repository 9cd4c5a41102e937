"""Adapters of the wayback mirror's vectors: keys, parsers, rewriting, sidecars, capture, gate and command line."""

from __future__ import annotations

from typing import Any

from forage.mirror import keys
from forage.mirror.localize import localize, strip_chrome
from forage.mirror.policy import compile_policy
from tests.vector_runner.model import Case, adapter, differs


def first(*lines: str | None) -> str | None:
    """The first difference, None when there is none."""
    return next((line for line in lines if line is not None), None)


@adapter("wayback/keys.json")
def check_keys(case: Case) -> str | None:
    given, out = case.plain("in"), case.plain("out")
    key = keys.capture_key(given["timestamp"], given["originalUrl"])
    digest = keys.key_hash(key)
    got = {"key": key, "hash": digest, "shard": digest[:2], "capPath": keys.body_path(digest), "metaPath": keys.sidecar_path(digest)}
    return differs("key", got, out)


def replay_members(found: keys.ReplayPath | None) -> dict[str, str] | None:
    if found is None:
        return None
    flag = {} if found.flag is None else {"flag": found.flag}
    return {
        "timestamp": found.timestamp,
        **flag,
        "originalUrl": found.original,
        "key": found.key,
        "archiveUrl": found.archive_url,
        "canonicalArchiveUrl": found.canonical_archive_url,
    }


def input_members(text: str) -> dict[str, str] | None:
    found = keys.parse_crawl_input(text)
    return None if found is None else {"url": found.url, "key": found.key}


@adapter("wayback/parse-wayback-path.json")
def check_path(case: Case) -> str | None:
    return differs("path", replay_members(keys.parse_wayback_path(case["in"]["path"])), case.plain("out"))


@adapter("wayback/parse-wayback-url.json")
def check_url(case: Case) -> str | None:
    url = case["in"]["url"]
    found = keys.parse_wayback_url(url)
    foreign = None if found is None else {"timestamp": found.timestamp, "flags": found.flags, "original": found.original}
    got = {"wayback": foreign, "archive": replay_members(keys.parse_archive_url(url)), "doc": input_members(url)}
    return differs("url", got, case.plain("out"))


@adapter("wayback/path-codec.json")
def check_codec(case: Case) -> str | None:
    given, out = case.plain("in"), case.plain("out")
    if case["op"] == "decode":
        return differs("decoded", {"decoded": keys.decode_capture_path(given["path"])}, out)
    path = keys.format_capture_path(given["key"])
    got = {"path": path, "decoded": keys.decode_capture_path(path), "doc": input_members(given["key"])}
    return differs("format", got, out)


@adapter("wayback/policy.json")
def check_policy(case: Case) -> str | None:
    given, out = case.plain("in"), case.plain("out")
    policy = compile_policy(given["policy"])
    found = policy.match(given["url"])
    got: dict[str, Any] = {"match": None if found is None else {"host": found.host, "reason": found.reason}}
    if "entries" in out:
        got["version"] = policy.version
        got["entries"] = [{"host": entry.host, "reason": entry.reason} for entry in policy.escapes]
    return differs("policy", got, out)


@adapter("wayback/localize.json")
def check_localize(case: Case) -> str | None:
    given, out = case.plain("in"), case.plain("out")
    done = localize(given["body"].encode(), given["contentType"], frozenset(given["corpus"]))
    dialect = None if done.dialect is None else done.dialect.value
    got = {"text": done.body.decode(), "changed": done.changed, "count": done.count, "dialect": dialect}
    return first(*(differs(name, got.get(name), out[name]) for name in out))


@adapter("wayback/strip-chrome.json")
def check_strip(case: Case) -> str | None:
    return differs("text", strip_chrome(case["in"]["html"].encode()).decode(), case["out"]["text"])
