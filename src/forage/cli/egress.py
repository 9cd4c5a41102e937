"""``forage egress``: what the guard says of a URL and which address it would dial, and a proxy that puts other programs behind it."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import trio

from forage.cli.options import add_egress_options, egress_policy, opening_hint, quoted
from forage.errors import EgressError, EgressUnreachableError, ForageError, InvalidPolicyError

if TYPE_CHECKING:
    from forage.egress import EgressPolicy, ProxyEvent

__all__ = ["add_parser", "run"]

REFUSED = 5

_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):([0-9]{1,5})")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command's flags."""
    parser = subparsers.add_parser("egress", help="ask the egress guard, or put other programs behind it", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="verdict, code, rule and addresses for each URL; connects to none")
    check.add_argument("url", nargs="+", help="URLs to judge")
    check.add_argument("--json", action="store_true", help="one JSON object a URL on standard output")
    add_egress_options(check)
    proxy = actions.add_parser("proxy", help="a forward proxy under the guard, until it is interrupted")
    proxy.add_argument("--listen", default="127.0.0.1:0", metavar="ADDRESS:PORT", help="where to listen (default 127.0.0.1:0, a free port)")
    proxy.add_argument("--allow-remote", action="store_true", help="let --listen be an address that other machines reach")
    proxy.add_argument("--audit", metavar="FILE", help="append one JSON line for each decision and each end; - is standard error")
    proxy.add_argument("--refuse-host", action="append", default=[], metavar="NAME", help="refuse this host and all below it")
    proxy.add_argument("--max-connections", type=int, default=64, metavar="N", help="connections at once (default 64)")
    add_egress_options(proxy)


async def run(args: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Check: exit code 0 when at least one URL is allowed, 5 when none is. Proxy: 0 when it was ended by SIGINT or SIGTERM."""
    policy = egress_policy(args)
    if not policy.guarded:
        print("egress guard: OFF (--unguarded): private and local addresses are reachable", file=err)
    return await (_proxy(args, policy, out, err) if args.action == "proxy" else _check(args, policy, out, err))


async def _check(args: argparse.Namespace, policy: EgressPolicy, out: TextIO, err: TextIO) -> int:
    allowed = 0
    for url in args.url:
        row = await _verdict(url, policy)
        allowed += row["verdict"] == "allowed"
        out.write((json.dumps(row) if args.json else _line(row)) + "\n")
        out.flush()
        hint = None if row["verdict"] == "allowed" else opening_hint(str(row["code"]), url)
        if hint is not None:
            print(hint, file=err)
    return 0 if allowed else REFUSED


async def _verdict(url: str, policy: EgressPolicy) -> dict[str, object]:
    from forage.egress import dial_order, evaluate_url

    try:
        target = await evaluate_url(url, policy)
    except EgressError as exc:
        verdict = "unreachable" if isinstance(exc, EgressUnreachableError) else "refused"
        why: dict[str, object] = {"code": exc.code.value, "rule": exc.rule, "host": exc.host, "block": exc.block, "detail": exc.detail}
        return {"url": url, "verdict": verdict, **why}
    row: dict[str, object] = {"url": url, "verdict": "allowed", "href": target.url}
    row |= {"addresses": [a.address for a in target.addresses], "dials": dial_order(target.addresses)}
    if target.answers is not None:
        row |= {"ttl": target.answers.ttl, "resolver": target.answers.server, "aliases": list(target.answers.aliases)}
    return row


def _line(row: dict[str, object]) -> str:
    url = quoted(str(row["url"]))
    if row["verdict"] == "allowed":
        addresses, dials = row["addresses"], row["dials"]
        assert isinstance(addresses, list)
        assert isinstance(dials, list)
        then = f", then {', '.join(dials[1:])}" if len(dials) > 1 else ""
        more = f"  (of {len(addresses)} answers)" if len(addresses) > len(dials) else ""
        return f"allowed  {url}  dials {dials[0]}{then}{more}"
    reasons = [f"rule {row['rule']}" if row["rule"] else None, f"host {quoted(str(row['host']))}" if row["host"] else None]
    reasons += [f"in {row['block']}" if row["block"] else None, quoted(str(row["detail"])) if row["detail"] else None]
    return f"{row['verdict']}  {url}  {row['code']}" + "".join(f", {r}" for r in reasons if r)


class _AuditError(ForageError):
    """The audit could not be written, so the proxy has stopped."""


class _Audit:
    """JSON lines, each written before what it tells happens: the write is not put off to a thread, and its failure ends the proxy."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file

    def __call__(self, event: ProxyEvent) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(event.to_json()) + "\n")
            self._file.flush()
        except OSError as exc:
            raise _AuditError(f"the audit cannot be written ({exc.strerror}); the proxy has stopped") from exc


@contextmanager
def _open_audit(name: str | None, err: TextIO) -> Iterator[_Audit]:
    if name is None or name == "-":
        yield _Audit(None if name is None else err)
        return
    try:
        # Whom a user's programs talk to is for that user's eyes.
        descriptor = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise InvalidPolicyError("--audit", "a file that can be written", got=Path(name).name) from exc
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        yield _Audit(file)


async def _proxy(args: argparse.Namespace, policy: EgressPolicy, out: TextIO, err: TextIO) -> int:
    from forage.egress import ProxyLimits, open_proxy

    host, port = _listen(args.listen)
    limits = ProxyLimits(connections=args.max_connections)
    with _open_audit(args.audit, err) as audit, trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        try:
            async with open_proxy(
                policy,
                limits=limits,
                refuse_hosts=args.refuse_host,
                on_event=audit,
                host=host,
                port=port,
                allow_remote=args.allow_remote,
            ) as proxy:
                out.write(proxy.url.removeprefix("http://") + "\n")
                out.flush()
                async for _ in signals:
                    break
        except OSError as exc:
            raise InvalidPolicyError("--listen", f"an address and port to be had ({exc.strerror})", got=args.listen) from exc
    return 0


def _listen(text: str) -> tuple[str, int]:
    found = _LISTEN.fullmatch(text)
    if found is None:
        raise InvalidPolicyError("--listen", "ADDRESS:PORT, like 127.0.0.1:8080 or [::1]:0", got=text)
    return found[1] or found[2], int(found[3])
