"""Drives one Python guard: a JSON line in for each fetch, a JSON line out. Run by ``benchmarks.guards`` inside a network namespace only.

Uses nothing but the guard that it is named after, with the options that its documentation recommends. ``requests`` and ``forage`` are here
too: no guard at all, as a control, and the guard of this project.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

SECONDS = 8

Fetch = Callable[[str, str, dict[str, str], Any], int]
"""Method, URL, headers and body to a status; raises what the guard raises."""


def advocate() -> Fetch:
    import advocate  # type: ignore[import-not-found]  # installed where the benchmark runs

    session = advocate.Session()
    return lambda method, url, headers, body: int(session.request(method, url, headers=headers, data=body, timeout=SECONDS).status_code)


def plain_requests() -> Fetch:
    import requests  # type: ignore[import-not-found,import-untyped,unused-ignore]  # as above

    session = requests.Session()
    return lambda method, url, headers, body: int(session.request(method, url, headers=headers, data=body, timeout=SECONDS).status_code)


def requests_hardened() -> Fetch:
    from requests_hardened import Config, Manager  # type: ignore[import-not-found]  # as above

    config = Config(ip_filter_enable=True, ip_filter_allow_loopback_ips=False, never_redirect=False, default_timeout=(SECONDS, SECONDS))
    manager = Manager(config)
    return lambda method, url, headers, body: int(manager.send_request(method, url, headers=headers, data=body).status_code)


def safeurl() -> Fetch:
    import pycurl  # type: ignore[import-not-found,import-untyped,unused-ignore]  # as above
    from safeurl import safeurl as library  # type: ignore[import-not-found]  # as above

    def fetch(method: str, url: str, headers: dict[str, str], body: Any) -> int:
        options = library.Options()
        options.enableFollowLocation().setFollowLocationLimit(6)
        guard = library.SafeURL(options=options)
        guard.getCurlHandle().setopt(pycurl.TIMEOUT, SECONDS)
        guard.execute(url)
        return 200

    return fetch


def blocking(make: Callable[[], Fetch]) -> None:
    """Answer requests until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    sys.stdout = sys.stderr
    fetch = make()
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "new":
            fetch = make()
            reply: dict[str, Any] = {"outcome": "new"}
        else:
            try:
                status = fetch(request["method"], request["url"], dict(request["headers"]), request["body"])
                reply = {"outcome": "answer", "status": status}
            except (Exception, SystemExit) as exc:  # whatever it is, there was no answer
                reply = {"outcome": "error", "error": type(exc).__name__, "text": str(exc)[:200]}
        print(json.dumps(reply), file=replies, flush=True)


def forage() -> None:
    import trio

    from forage.egress import EgressPolicy, guarded_client

    async def main() -> None:
        client = guarded_client(timeout=SECONDS)
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            request = json.loads(line)
            if request["op"] == "new":
                await client.aclose()
                client = guarded_client(EgressPolicy(redirect_hosts="any" if request["any_host"] else "same-host"), timeout=SECONDS)
                reply: dict[str, Any] = {"outcome": "new"}
            else:
                try:
                    with trio.fail_after(2 * SECONDS):
                        response = await client.request(
                            request["method"], request["url"], headers=request["headers"], content=request["body"]
                        )
                    reply = {"outcome": "answer", "status": response.status_code}
                except Exception as exc:
                    reply = {"outcome": "error", "error": type(exc).__name__, "text": str(exc)[:200]}
            print(json.dumps(reply), flush=True)

    trio.run(main)


if __name__ == "__main__":
    if sys.argv[1] == "forage":
        forage()
    else:
        blocking(
            {"requests": plain_requests, "advocate": advocate, "safeurl": safeurl, "requests-hardened": requests_hardened}[sys.argv[1]]
        )
