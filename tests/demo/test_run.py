"""The demonstration ends well on this machine alone, says what it must, and fails when something is not as it must be."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from forage import CrawlPolicy, EgressPolicy, crawl
from forage.demo import open_demo_site, run_demo
from forage.demo.run import FencedDialer, _check_fences
from forage.snapshots import parse_source_ref


async def test_the_demonstration_captures_refuses_and_replays() -> None:
    out, err = io.StringIO(), io.StringIO()
    begun = time.monotonic()
    assert await run_demo(out, err) == 0, out.getvalue()
    assert time.monotonic() - begun < 20
    captured, _, rest = out.getvalue().partition("\nNot captured")
    refused, _, end = rest.partition("\nReplayed")
    assert "delay=0.1" in err.getvalue()

    references = [line.strip() for line in captured.splitlines() if line.startswith("       forage-snapshot:")]
    assert len(references) >= 20
    assert "/collection/whale\n" in captured  # only the gzip part of the sitemap names it
    assert all(parse_source_ref(reference) for reference in references)
    assert f" {len(references)} of {len(references)} pages" in end
    assert "PROBLEM" not in end

    rules = dict(zip(refused.splitlines()[2::2], refused.splitlines()[3::2], strict=False))
    for url, rule in [
        ("http://169.254.169.254/latest/meta-data/", "DENIED_ADDRESS for 169.254.169.254 (in 169.254.169.254/32"),
        ("http://localhost:", "DENIED_HOST for localhost"),
        ("http://10.0.0.5/admin", "DENIED_ADDRESS for 10.0.0.5 (in 10.0.0.0/8"),
        ("http://[::ffff:c0a8:101]/", "DENIED_ADDRESS for ::ffff:c0a8:101 (in 192.168.0.0/16"),
        ("http://metadata.google.internal/", "DENIED_HOST for metadata.google.internal"),
        ("http://rebind.harbour-museum.test/", "DENIED_ADDRESS for rebind.harbour-museum.test (in 10.0.0.0/8"),
        ("/lighthouse", "REDIRECT_CROSS_HOST for 169.254.169.254"),
        ("/keepers/rota", "robots.txt line 2: Disallow: /keepers/"),
        ("/calendar/", "trap: far-date"),
        ("/collection/anchor", "HTTP 404"),
    ]:
        assert [why for shown, why in rules.items() if url in shown and rule in why], f"{url} is not refused by {rule}"


async def test_a_page_that_needs_two_tries_is_captured_and_its_host_is_not_pressed() -> None:
    with trio.fail_after(20):
        async with open_demo_site() as site:
            policy = CrawlPolicy(max_pages=1, delay=0.1, egress=EgressPolicy(test_loopback_origins=(site.origin,)))
            begun = trio.current_time()
            manifest = await crawl(f"{site.origin}/tides", policy)
            assert trio.current_time() - begun >= 1.0  # Retry-After: 1
            assert [page.status for page in manifest.pages] == [200]
            assert site.requests == ["GET /robots.txt", "GET /tides", "GET /tides"]


async def test_the_fence_refuses_and_notes_everything_but_the_site() -> None:
    with trio.fail_after(20):
        async with open_demo_site() as site:
            dialer = FencedDialer(site)
            (await dialer.dial("127.0.0.1", site.port)).close()
            for address, port in [("127.0.0.1", 9), ("127.0.0.2", site.port), ("93.184.215.14", 80), ("::1", site.port)]:
                with pytest.raises(ConnectionRefusedError):
                    await dialer.dial(address, port)
            assert dialer.connections == 1
            policy = CrawlPolicy(max_pages=1, delay=0.0, egress=EgressPolicy(test_loopback_origins=(site.origin,)))
            manifest = await crawl(f"{site.origin}/about", policy, dialer=dialer)
    assert len(manifest.pages) == 1
    problems = _check_fences(manifest, dialer)
    assert "dialled 93.184.215.14 port 80" in problems
    assert [problem for problem in problems if "was not refused" in problem]


def test_an_interrupted_demonstration_leaves_no_file_and_no_process(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-m", "forage", "demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stderr is not None
        while "/collection/\n" not in demo.stderr.readline():  # the crawl is under way
            assert demo.poll() is None
        assert [path.name.startswith("forage-demo-") for path in tmp_path.iterdir()] == [True]
        demo.send_signal(signal.SIGINT)
        _, rest = demo.communicate(timeout=20)
    assert "Traceback" not in rest
    assert demo.returncode == 11
    assert list(tmp_path.iterdir()) == []
