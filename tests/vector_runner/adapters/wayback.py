"""Adapters of the wayback mirror's vectors: keys, parsers, rewriting, sidecars, capture, gate and command line."""

from __future__ import annotations

import argparse
import base64
import io
import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from forage._codec import load_json
from forage.cli import mirror as mirror_command
from forage.cli.mirror import Tools
from forage.errors import BrowserError, CaptureError, ForageError, InvalidPolicyError
from forage.mirror import keys
from forage.mirror.archive import Archive, ArchiveReply, ArchiveRequestError
from forage.mirror.cache import CacheRoot, Entry
from forage.mirror.canonical import canonical_json
from forage.mirror.capture import Capturer
from forage.mirror.fixpoint import crawl
from forage.mirror.interstitial import Interstitial, Signature, detect_interstitial
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
from forage.mirror.ledgers import Ledgers, verified_rows
from forage.mirror.localize import RULE_VERSION, localize, strip_chrome
from forage.mirror.originals import is_beacon, is_fetchable, is_unmirrorable
from forage.mirror.policy import EscapePolicy, compile_policy
from forage.mirror.probe import ProbeSession, RenderReport, RequestRecord
from forage.mirror.requisites import extract_requisites
from forage.mirror.results import CrawlReport, DocumentResult, DocumentStatus
from forage.mirror.seams import Seams
from forage.mirror.server import MirrorServer
from forage.mirror.sidecar import DynamicEntryError, SidecarError, dynamic_entry_error
from forage.mirror.site import CspMode, Site
from forage.mirror.summary import CaptureEntry, CaptureSummary
from forage.mirror.verifier import RootReport, verify_root
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
    if "signature" in row:
        target = row.get("target")
        known = None if target is None else keys.CaptureUrl(timestamp=target["timestamp"], flags="", original=target["url"])
        entry = attrs.evolve(entry, interstitial=Interstitial(signature=Signature(row["signature"]), target=known))
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


class Replay:
    """The archive of a case: exact URLs to answers, everything else refuses the connection."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self.requests: list[str] = []

    async def fetch(self, url: str) -> ArchiveReply:
        self.requests.append(url)
        row = self._answers.get(url, {"throw": "connection refused"})
        if "throw" in row:
            raise ArchiveRequestError(row["throw"])
        return ArchiveReply(status=row.get("status", 200), content_type=row.get("contentType", ""), body=content(row))

    def archive(self, max_requests: int | None = None) -> Archive:
        return Archive(self.fetch, delay=0.0, attempts=1, max_requests=max_requests, random=lambda: 0.0, utc_now=fixed_clock)


def fixed_clock() -> datetime:
    return datetime.fromisoformat(NOW)


def tree_differs(root: Path, expected: dict[str, dict[str, str]]) -> str | None:
    found = read_tree(root, without=(".crawl/",))
    wanted = {name: content(row) for name, row in expected.items()}
    return first(
        differs("files", sorted(found), sorted(wanted)),
        *(differs(name, found[name], wanted[name]) for name in wanted if name in found),
    )


def entry_members(entry: CaptureEntry) -> dict[str, Any]:
    return {"key": entry.key, "hash": entry.digest, "status": entry.status, "action": entry.action, "flag": entry.flag}


def summary_members(summary: CaptureSummary) -> dict[str, Any]:
    return {
        "key": summary.key,
        "hash": keys.key_hash(summary.key),
        "entries": [entry_members(entry) for entry in summary.entries],
        "fetched": summary.fetched,
        "skipped": summary.skipped,
        "failures": [{"key": failure.key, "error": failure.error} for failure in summary.failures],
    }


@adapter("wayback/capture.json")
async def check_capture(case: Case) -> str | None:
    given, out = case.plain("in"), case.plain("out")
    with tempfile.TemporaryDirectory() as folder:
        root, replay = Path(folder), Replay(given["replay"])
        write_tree(root, given["root"])
        capture = Capturer(CacheRoot(root), replay.archive(), utc_now=fixed_clock, requisites=given.get("requisites", True))
        entries: list[CaptureEntry] = []
        line: str | None
        try:
            summary = await capture(given["url"], on_entry=entries.append)
        except CaptureError as exc:
            kind = "TypeError" if isinstance(exc, TypeError) else "SyntaxError" if isinstance(exc, SidecarError) else "Error"
            line = first(
                differs("error", kind, out.get("error", {}).get("type")),
                differs("entries", [entry_members(entry) for entry in entries], out.get("onEntry", [])),
            )
        else:
            line = differs("summary", summary_members(summary), out.get("summary"))
        return first(line, differs("requests", replay.requests, out["requests"]), tree_differs(root, out["root"]))


# The recorded number of the rewriting rule stands for the one in force (M10).
RECORDED_RULE, LIVE_RULE = '"ruleVersion":2', f'"ruleVersion":{RULE_VERSION}'


class ScriptedProbe:
    """A probe that reports the renders of a case: the n-th of a document, the last one again and again."""

    together = 1

    def __init__(self, renders: dict[str, Any], *, present: bool) -> None:
        self._renders = renders
        self._present = present
        self._done: Counter[str] = Counter()

    async def available(self) -> bool:
        return self._present

    async def browser(self) -> str | None:
        return None

    @asynccontextmanager
    async def session(self) -> AsyncIterator[ProbeSession]:
        yield self

    async def render(self, url: str) -> RenderReport:
        path = url.removeprefix("http://local/web")
        key = next((key for key in self._renders if keys.format_capture_path(key) == path), "")
        script = self._renders.get(key, [])
        step = script[min(self._done[key], len(script) - 1)] if script else {"requests": []}
        self._done[key] += 1
        if "throw" in step:
            raise BrowserError(step["throw"])
        records = [
            RequestRecord(url=row["url"], resource_type=row.get("resourceType"), status=row.get("status"), failure=row.get("failure"))
            for row in step.get("requests", ())
        ]
        return RenderReport(requests=tuple(records), console=tuple(step.get("console", ())))


@asynccontextmanager
async def serve_unheard(site: Site) -> AsyncIterator[MirrorServer]:
    """A server that nobody calls: what it would answer is asked of the serving core."""
    yield MirrorServer(url="http://local", log=None)


def crawl_options(given: dict[str, Any]) -> dict[str, Any]:
    options = given["options"]
    names = {
        "maxIterations": "max_iterations",
        "maxRequests": "max_requests",
        "force": "force",
        "staticOnly": "static_only",
        "dryRun": "dry_run",
        "har": "har",
    }
    known = {"delayMs", "browser", "timeout"}
    unknown = set(options) - set(names) - known
    if unknown:
        raise KeyError(f"options that nothing checks: {sorted(unknown)}")
    return {names[name]: value for name, value in options.items() if name in names}


def live_rule(files: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {
        name: {"text": row["text"].replace(RECORDED_RULE, LIVE_RULE)} if name.endswith(".jsonl") and "text" in row else row
        for name, row in files.items()
    }


def read_text(path: Path) -> str | None:
    return path.read_text("utf-8", "surrogatepass") if path.exists() else None


def har_differs(root: Path, expected: dict[str, Any]) -> str | None:
    """Names, schema and URLs (M11); a recorded value is the original's own format, whose requests are the same URLs."""
    found = {name: data for name, data in read_tree(root).items() if name.startswith(".crawl/har/")}
    line = differs("har files", sorted(found), sorted(expected))
    for name, data in found.items():
        wanted = expected.get(name, {"urls": []})
        urls = [row["url"] for row in json.loads(wanted)["requests"]] if isinstance(wanted, str) else wanted["urls"]
        log = json.loads(data)["log"]
        line = first(
            line,
            differs("har version", log["version"], "1.2"),
            differs("har URLs", [entry["request"]["url"] for entry in log["entries"]], urls),
            differs("har findings", [row["url"] for row in log["_forage"]["requests"]], urls),
            har_schema_differs(log),
        )
    return line


def har_schema_differs(log: dict[str, Any]) -> str | None:
    entry = {"startedDateTime", "time", "request", "response", "cache", "timings"}
    request = {"method", "url", "httpVersion", "cookies", "headers", "queryString", "headersSize", "bodySize"}
    response = {"status", "statusText", "httpVersion", "cookies", "headers", "content", "redirectURL", "headersSize", "bodySize"}
    for row in log["entries"]:
        missing = (entry - set(row)) | (request - set(row["request"])) | (response - set(row["response"]))
        missing |= {"send", "wait", "receive"} - set(row["timings"])
        if missing:
            return f"har entry lacks {sorted(missing)}"
    return None


def error_kind(exc: Exception) -> str:
    return "TypeError" if isinstance(exc, InvalidPolicyError) else "Error"


def results_differ(got: list[dict[str, Any]], expected: list[dict[str, Any]]) -> str | None:
    """Results member by member; the wording of an error is free, that there is one is not."""
    loose = {"error": lambda value: value and "…"}

    def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{name: loose.get(name, lambda v: v)(value) for name, value in row.items()} for row in rows]

    return differs("results", plain(got), plain(expected))


@adapter("wayback/fixpoint.json", together=4)
async def check_fixpoint(case: Case) -> str | None:
    given, out = case.plain("in"), case.plain("out")
    with tempfile.TemporaryDirectory() as folder:
        root, replay = Path(folder), Replay(given["replay"])
        write_tree(root, live_rule(given["root"]))
        line: str | None
        try:
            report = await crawl(
                given["urls"],
                root=root,
                fetch=replay.fetch,
                probe=ScriptedProbe(given["renders"], present=given["options"].get("browser", True)),
                policy=compile_policy(given.get("policy")),
                documents=1,
                delay=0.0,
                attempts=1,
                utc_now=fixed_clock,
                seams=Seams(serve=serve_unheard),
                **crawl_options(given),
            )
        except ForageError as exc:
            line = differs("error", error_kind(exc), out.get("error", {}).get("type"))
        else:
            got, want = report.to_json(), out.get("result", {})
            line = first(
                differs("error", None, out.get("error")),
                differs("requestCount", got["requestCount"], want.get("requestCount")),
                differs("cap", got["cap"], want.get("cap")),
                results_differ(got["results"], want.get("results", [])),
            )
        ledgers = {name: read_text(root / ".crawl" / f"{name}.jsonl") for name in ("verified", "flaky")}
        expected = {name: out[name] and out[name].replace(RECORDED_RULE, LIVE_RULE) for name in ledgers}
        return first(
            line,
            differs("requests", replay.requests, out["requests"]),
            differs("verified", ledgers["verified"], expected["verified"]),
            differs("flaky", ledgers["flaky"], expected["flaky"]),
            har_differs(root, out["har"]),
            tree_differs(root, out["root"]),
        )


@adapter("wayback/ledger.json")
def check_ledger(case: Case) -> str | None:
    given, out = case.plain("in"), case.plain("out")
    match case["op"]:
        case "verifiedKeys":
            return differs("keys", sorted(verified_rows(given["text"].split("\n"), given["ruleVersion"])), sorted(out["keys"]))
        case "har-name":
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder)
                Ledgers(root).write_har(given["name"], {"key": given["name"], "n": 1, "u": "é"})
                return differs("files", read_tree(root), {name: content(row) for name, row in out["files"].items()})
        case other:
            return f"unknown op {other}"


SERVE_MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "localized-report-only": {"localize": True, "csp_mode": CspMode.REPORT_ONLY},
    "live-fallback": {"live_fallback": True},
}


def make_site(root: CacheRoot, mode: str) -> Site:
    options = dict(SERVE_MODES[mode])
    held = frozenset(root.load_corpus()) if options.pop("localize", False) else None
    return Site(root, held=held, **options)


def answer_differs(root: CacheRoot, row: dict[str, Any]) -> str | None:
    """Status, headers and bytes; pages that an implementation writes itself are not given."""
    answer, out = make_site(root, row["mode"]).answer(row["method"], row["path"]), row["out"]
    what = f"{row['mode']} {row['method']} {row['path']}"
    headers = {name.lower(): value for name, value in answer.headers}
    unknown = set(out) - {"status", "headers", "text", "base64", "bodyError"}
    body = None
    if "text" in out or "base64" in out:
        body = differs(what, answer.body if row["method"] == "GET" else b"", content(out))
    return first(
        differs(what, answer.status, out["status"]),
        differs(what, headers, out["headers"]),
        body,
        f"{what}: members that nothing checks: {sorted(unknown)}" if unknown else None,
        f"{what}: the body was to fail" if "bodyError" in out else None,
    )


def loose_finding(row: dict[str, Any]) -> dict[str, Any]:
    """A finding with its error text reduced to its class."""
    text = row.get("error")
    if text is None:
        return row
    entry = "malformed dynamic entry: "
    if text.startswith(entry):
        return row | {"error": text.removeprefix(entry).split()[0]}
    return row | {"error": "dynamic" if text.startswith("dynamic") else "unreadable"}


def report_differs(report: RootReport, expected: dict[str, Any]) -> str | None:
    got = report.to_json()

    def rows(found: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(loose_finding(row), sort_keys=True) for row in found)

    return first(
        differs("counts", got["counts"], expected["counts"]),
        differs("categories", sorted(got["findings"]), sorted(expected["findings"])),
        *(differs(name, rows(got["findings"][name]), rows(expected["findings"][name])) for name in expected["findings"]),
    )


async def small_crawl_differs(root: Path, urls: list[str], expected: dict[str, Any]) -> str | None:
    """The documents of the root by a probe whose every render is the document's own request, with an archive that refuses."""
    replay = Replay({})
    renders = {key: [{"requests": [{"url": f"http://local{keys.document_path(key)}", "resourceType": "document"}]}] for key in urls}
    report = await crawl(
        urls,
        root=root,
        fetch=replay.fetch,
        probe=ScriptedProbe(renders, present=True),
        documents=1,
        delay=0.0,
        attempts=1,
        utc_now=fixed_clock,
        seams=Seams(serve=serve_unheard),
    )
    got, want = report.to_json(), expected["result"]

    def essential(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        # Which members a corrupt result has beside its status is ours to say.
        return [{"key": row["key"], "status": row["status"]} if row["status"] == "corrupt" else row for row in rows]

    ledgers = {name: read_text(root / ".crawl" / f"{name}.jsonl") or "" for name in ("verified", "flaky")}
    flaky = [{name: row[name] for name in ("key", "reason")} for row in map(json.loads, ledgers["flaky"].splitlines())]
    wanted = [{name: row[name] for name in ("key", "reason")} for row in map(json.loads, expected["flaky"].splitlines())]
    return first(
        differs("crawl requests", replay.requests, expected["requests"]),
        differs("crawl count", got["requestCount"], want["requestCount"]),
        differs("crawl results", essential(got["results"]), essential(want["results"])),
        differs("verified", ledgers["verified"], expected["verified"].replace(RECORDED_RULE, LIVE_RULE)),
        differs("flaky", flaky, wanted),
    )


@adapter("wayback/small-root.json")
async def check_small_root(case: Case) -> str | None:
    given, out = case.plain("in"), case.plain("out")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_tree(root, live_rule(given["root"]))
        cache = CacheRoot(root)
        held = frozenset(cache.load_corpus())
        counts = {}
        for key in out["localizeCounts"]:
            sidecar = cache.read_sidecar(key)
            done = localize(cache.read_body(key) or b"", "" if sidecar is None else sidecar.content_type, held)
            counts[key] = {"count": done.count, "changed": done.changed}
        return first(
            differs("documents", cache.document_keys(), out["htmlDocKeys"]),
            differs("corpus", sorted(held), sorted(out["corpusKeys"])),
            report_differs(verify_root(root), out["fsck"]),
            *(answer_differs(cache, row) for row in out["serve"]),
            differs("localise", counts, out["localizeCounts"]),
            await small_crawl_differs(root, cache.document_keys(), out["crawl"]),
        )


FLAGS = {
    "root": "--root",
    "output": "--output",
    "ledger": "--ledger",
    "maxIterations": "--max-iterations",
    "max": "--max",
    "delayMs": "--delay-ms",
    "timeout": "--timeout",
    "allowEscapes": "--allow-escapes",
    "browserCmd": "--browser-cmd",
    "force": "--force",
    "staticOnly": "--static-only",
    "dryRun": "--dry-run",
    "har": "--har",
}
WARNINGS = {"static-only": "static-only:"}


def command_line(given: dict[str, Any]) -> list[str]:
    flags = [FLAGS[name] if value is True else f"{FLAGS[name]}={value}" for name, value in given["flags"].items() if value is not False]
    first_url = given["args"].get("waybackUrl")
    return ["mirror", "crawl", *flags, *([] if first_url is None else [first_url]), *given["rest"]]


class Engine:
    """The crawl of a command-line case: answers with the results that were given, and remembers what it was called with."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self.called: dict[str, Any] | None = None
        self.ledger: str | None = None
        self._timeout = 0.0
        self._browser: str | None = None
        self._policy = "default"

    def tools(self) -> Tools:
        return Tools(
            crawl=self.crawl,
            document_keys=self.document_keys,
            load_policy=self.load_policy,
            open_archive=self.open_archive,
            open_probe=self.open_probe,
        )

    async def crawl(self, urls: list[str], **options: Any) -> CrawlReport:
        self.called = {
            "urls": list(urls),
            "options": {
                "root": str(options["root"]),
                "maxIterations": options["max_iterations"],
                "force": options["force"],
                "staticOnly": options["static_only"],
                "dryRun": options["dry_run"],
                "policy": self._policy,
                "maxRequests": options["max_requests"],
                "delayMs": round(options["delay"] * 1000),
                "timeout": round(self._timeout * 1000),
                "browserCmd": self._browser,
                "har": options["har"],
            },
        }
        results = [
            DocumentResult(
                key=row["key"],
                status=DocumentStatus(row["status"]),
                members={name: value for name, value in row.items() if name not in {"key", "status"}},
            )
            for row in self._given["results"]
        ]
        return CrawlReport(request_count=7, cap=options["max_requests"], results=tuple(results))

    def document_keys(self, path: Path) -> list[str]:
        self.ledger = str(path)
        return list(self._given["ledgerKeys"])

    def load_policy(self, path: Path | None) -> EscapePolicy:
        self._policy = "default" if path is None else str(path)
        return EscapePolicy()

    @asynccontextmanager
    async def open_archive(self, *, base: str, contact: str, timeout: float) -> AsyncIterator[None]:
        self._timeout = timeout
        yield None

    def open_probe(self, args: argparse.Namespace) -> None:
        self._browser = args.browser


def call_differs(engine: Engine, given: dict[str, Any], expected: dict[str, Any] | None) -> str | None:
    if engine.called is None or expected is None:
        return differs("called", engine.called, expected)
    got, want = engine.called["options"], dict(expected["options"])
    # The original names its browser by default and an empty policy for a run that renders nothing; ours are not opened then.
    renders = not {"staticOnly", "dryRun"} & set(given["flags"])
    if got["browserCmd"] is None and not (renders and "browserCmd" in given["flags"]):
        want["browserCmd"] = None
    if want["policy"] == "empty" and given["flags"].get("staticOnly"):
        want["policy"] = "default"
    if want["policy"] != got["policy"] and got["policy"] in str(want["policy"]):
        want["policy"] = got["policy"]
    return first(
        differs("urls", engine.called["urls"], expected["urls"]),
        *(differs(name, got.get(name), want[name]) for name in want),
    )


@adapter("wayback/cli.json")
async def check_cli(case: Case) -> str | None:
    given, out = case.plain("in"), case.plain("out")
    parser = argparse.ArgumentParser()
    mirror_command.add_parser(parser.add_subparsers())
    engine, printed, told = Engine(given), io.StringIO(), io.StringIO()
    args = parser.parse_args(command_line(given))
    code = await mirror_command.run_crawl(args, printed, told, engine.tools())
    missing = [name for name in out["warnings"] if WARNINGS[name] not in told.getvalue()]
    return first(
        differs("exit", code, out["exit"]),
        differs("stdout", printed.getvalue(), "" if out["stdout"] is None else out["stdout"] + "\n"),
        differs("message", bool(told.getvalue().replace(next(iter(WARNINGS.values())), "", 1).strip()) or not out["message"], True),
        f"warnings that were not given: {missing}" if missing else None,
        differs("ledger", engine.ledger, out.get("ledgerDir")),
        call_differs(engine, given, out.get("crawl")),
        differs("members", sorted(set(out) - {"exit", "message", "stdout", "warnings", "ledgerDir", "crawl"}), []),
    )
