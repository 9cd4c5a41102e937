"""Drives one Python guard: a JSON line in for each fetch, a JSON line out. Run by ``benchmarks.guards`` inside a network namespace only.

Uses nothing but the guard that it is named after, with the options that its documentation recommends. ``requests`` and ``forage`` are here
too: no guard at all, as a control, and the guard of this project.
"""

import json
import os
import sys

SECONDS = 8


def advocate():
    import advocate

    session = advocate.Session()
    return lambda method, url, headers, body: session.request(method, url, headers=headers, data=body, timeout=SECONDS).status_code


def plain_requests():
    import requests

    session = requests.Session()
    return lambda method, url, headers, body: session.request(method, url, headers=headers, data=body, timeout=SECONDS).status_code


def requests_hardened():
    from requests_hardened import Config, Manager

    config = Config(ip_filter_enable=True, ip_filter_allow_loopback_ips=False, never_redirect=False, default_timeout=(SECONDS, SECONDS))
    manager = Manager(config)
    return lambda method, url, headers, body: manager.send_request(method, url, headers=headers, data=body).status_code


def safeurl():
    import pycurl
    from safeurl import safeurl as library

    def fetch(method, url, headers, body):
        options = library.Options()
        options.enableFollowLocation().setFollowLocationLimit(6)
        guard = library.SafeURL(options=options)
        guard.getCurlHandle().setopt(pycurl.TIMEOUT, SECONDS)
        guard.execute(url)
        return 200

    return fetch


def blocking(make):
    """Answer requests until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    sys.stdout = sys.stderr
    fetch = None
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "new":
            fetch = make()
            reply = {"outcome": "new"}
        else:
            try:
                status = fetch(request["method"], request["url"], dict(request["headers"]), request["body"])
                reply = {"outcome": "answer", "status": status}
            except BaseException as exc:  # whatever it is, there was no answer
                reply = {"outcome": "error", "error": type(exc).__name__, "text": str(exc)[:200]}
        print(json.dumps(reply), file=replies, flush=True)


def forage():
    import trio

    from forage.egress import EgressPolicy, guarded_client

    async def main():
        client = None
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            request = json.loads(line)
            if request["op"] == "new":
                if client is not None:
                    await client.aclose()
                client = guarded_client(EgressPolicy(redirect_hosts="any" if request["any_host"] else "same-host"), timeout=SECONDS)
                reply = {"outcome": "new"}
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
