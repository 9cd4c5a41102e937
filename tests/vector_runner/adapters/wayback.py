"""Adapters of the wayback mirror's vectors: keys, parsers, rewriting, sidecars, capture, gate and command line."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any

from forage._codec import load_json
from forage.errors import CaptureError
from forage.mirror import keys
from forage.mirror.cache import CacheRoot, Entry
from forage.mirror.interstitial import detect_interstitial
from forage.mirror.leaks import (
    RequestClass,
    Sighting,
    classify_request,
    gather,
    infer_flag,
    is_csp_violation,
    map_dangling,
    map_foreign,
    url_origin,
)
from forage.mirror.localize import localize, strip_chrome
from forage.mirror.originals import is_beacon, is_fetchable, is_unmirrorable
from forage.mirror.policy import EscapePolicy, compile_policy
from forage.mirror.requisites import extract_requisites
from forage.mirror.sidecar import DynamicEntryError, SidecarError, canonical_json, dynamic_entry_error
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


@adapter("wayback/requisites.json")
def check_requisites(case: Case) -> str | None:
    got = [
        {"timestamp": r.timestamp, "flag": r.flag, "original": r.original, "key": r.key, "waybackUrl": r.wayback_url}
        for r in extract_requisites(case["in"]["html"])
    ]
    return differs("requisites", got, case["out"].plain("requisites"))


@adapter("wayback/interstitial.json")
def check_interstitial(case: Case) -> str | None:
    given = case.plain("in")
    found = detect_interstitial(given["key"], given["contentType"], given["body"], index_status=given["cdxStatus"])
    got: dict[str, Any] | None = None
    if found is not None:
        got = {"signature": found.signature.value}
        if found.target is not None:
            got["target"] = {"url": found.target.original, "timestamp": found.target.timestamp}
    return differs("detection", got, case["out"].plain("detection"))


NOW = "2026-01-02T03:04:05.000Z"


def type_member(sighting: Sighting) -> dict[str, str]:
    return {} if sighting.resource_type is None else {"resourceType": sighting.resource_type}


def request_members(sighting: Sighting, *, local: bool) -> dict[str, str]:
    held = {None: "n/a", True: "hit", False: "miss"}[sighting.held]
    return {"url": sighting.url, "origin": "local" if local else "non-local", "corpus": held, **type_member(sighting)}


def classified_members(sightings: list[Sighting]) -> dict[str, Any]:
    seen = [s for s in sightings if s.kind is not RequestClass.INERT]
    return {
        "requests": [request_members(s, local=s.local) for s in seen],
        "dangling": [{"url": s.url, **type_member(s)} for s in seen if s.held is False],
        "nonLocal": [{"url": s.url, **type_member(s)} for s in seen if not s.local],
    }


def check_request(given: dict[str, Any], out: dict[str, Any]) -> str | None:
    sighting = classify_request(
        given["url"],
        given["resourceType"],
        origin=url_origin(given["serverOrigin"]),
        held=frozenset(given["corpus"]),
        policy=compile_policy(given["policy"]),
    )
    entries = gather([sighting], NOW).entries
    got = {
        "class": sighting.kind.value,
        "classified": classified_members([sighting]),
        "entry": entries[0].members() if entries else None,
    }
    return first(*(differs(name, got.get(name), out[name]) for name in out))


def check_findings(leaks: dict[str, Any], out: dict[str, Any]) -> str | None:
    found = gather(
        [map_dangling(row["url"], row.get("resourceType")) for row in leaks.get("dangling", [])]
        + [map_foreign(row["url"], row.get("resourceType"), EscapePolicy()) for row in leaks.get("nonLocal", [])],
        NOW,
    )
    urls = {
        "escapes": found.unmatched,
        "unparseable": found.unparseable,
        "chrome": found.chrome,
        "beacons": found.beacons,
    }
    dropped = len(found.unparseable) + len(found.chrome) + len(found.beacons) + len(found.unfetchable)
    return first(
        differs("entries", [entry.members() for entry in found.entries], out["entries"]),
        *(differs(name, list(got), [row["url"] if isinstance(row, dict) else row for row in out[name]]) for name, got in urls.items()),
        differs("logCount", dropped, out["logCount"]),
    )


@adapter("wayback/mapkeys.json")
def check_mapkeys(case: Case) -> str | None:
    given, out = case.plain("in"), case.plain("out")
    match case["op"]:
        case "request":
            return check_request(given, out)
        case "inferFlag":
            return differs("flag", {"flag": infer_flag(given["ownFlag"], given["resourceType"])}, out)
        case "mapFindings":
            return check_findings(given["leaks"], out)
        case "beacon":
            original = given["original"]
            got = {"beacon": is_beacon(original), "fetchable": is_fetchable(original), "unmirrorable": is_unmirrorable(original)}
            return differs("original", got, out)
        case "csp":
            return differs("csp", {"violation": is_csp_violation(given["message"])}, out)
        case other:
            return f"unknown op {other}"


def read_tree(root: Path, *, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Every file below a root, by its relative path."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    found = {path.relative_to(root).as_posix(): path.read_bytes() for path in files}
    return {name: data for name, data in found.items() if not name.startswith(without)} if without else found


def content(row: dict[str, str]) -> bytes:
    return base64.b64decode(row["base64"]) if "base64" in row else row.get("text", "").encode("utf-8", "surrogatepass")


def write_tree(root: Path, files: dict[str, dict[str, str]]) -> None:
    for name, row in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(row))


def check_commit(root: Path, given: dict[str, Any], out: dict[str, Any]) -> str | None:
    row = given["entry"]
    body = base64.b64decode(given["bodyBase64"]) if given.get("bodyBase64") is not None else None
    entry = Entry(
        key=row["key"],
        status=row["status"],
        content_type=row.get("contentType", ""),
        fetched_at=row.get("fetchedAt", NOW),
        flag=row.get("flag"),
        requisites=tuple(row.get("requisites", ())),
        dynamic=tuple(row["dynamic"]) if "dynamic" in row else None,
        index_status=row.get("cdxStatus"),
    )
    failed = False
    try:
        CacheRoot(root).commit(entry, body)
    except (CaptureError, TypeError):
        failed = True
    files = read_tree(root)
    line = first(differs("error", failed, "error" in out), differs("files", sorted(files), out["files"]))
    if line is not None or failed:
        return line
    cap = out["cap"]
    return first(
        differs("sidecar", files[out["metaPath"]].decode(), out["metaText"]),
        None if cap is None else differs("body", files[cap["path"]], content(cap)),
    )


def check_record(root: Path, given: dict[str, Any], out: dict[str, Any]) -> str | None:
    cache, name = CacheRoot(root), keys.sidecar_path(keys.key_hash(given["docKey"]))
    if given["existingMetaText"] is not None:
        write_tree(root, {name: {"text": given["existingMetaText"]}})
    failed: str | None = None
    try:
        cache.record_dynamic(given["docKey"], given["entries"])
        before = read_tree(root)
        cache.record_dynamic(given["docKey"], given["entries"])
        if read_tree(root) != before:
            return "recording twice changes the bytes"
    except CaptureError as exc:
        # What the original calls a type error is a bad entry; all else is about the sidecar.
        failed = "TypeError" if isinstance(exc, DynamicEntryError) else "Error"
    found = (root / name).read_text("utf-8") if (root / name).exists() else None
    kind = {"SyntaxError": "Error"}.get(out["error"]["type"], out["error"]["type"]) if "error" in out else None
    return first(differs("error", failed, kind), differs("sidecar", found, out["metaText"]))


def check_read(root: Path, given: dict[str, Any], out: dict[str, Any]) -> str | None:
    if given["metaText"] is not None:
        write_tree(root, {keys.sidecar_path(keys.key_hash(given["key"])): {"text": given["metaText"]}})
    try:
        found = CacheRoot(root).read_sidecar(given["key"])
    except SidecarError as exc:
        return differs("error", exc.fault.value, out.get("error", {}).get("kind"))
    return first(
        differs("error", None, out.get("error")), differs("value", None if found is None else dict(found.members), out.get("value"))
    )


@adapter("wayback/sidecars.json")
def check_sidecars(case: Case) -> str | None:
    given, out = case.plain("in"), case.plain("out")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        match case["op"]:
            case "commit":
                return check_commit(root, given, out)
            case "recordDynamic":
                return check_record(root, given, out)
            case "read":
                return check_read(root, given, out)
            case "canonical":
                return differs("text", {"text": canonical_json(load_json(given["jsonText"]))}, out)
            case "dynamicEntryError":
                got, want = dynamic_entry_error(given["entry"]), out["error"]
                return differs("error", got and got.split()[0], want and want.split()[0])
            case other:
                return f"unknown op {other}"
