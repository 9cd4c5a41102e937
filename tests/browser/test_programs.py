"""Which program is the browser, its command line and its surroundings, and what /proc says of its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forage.browser import find_program
from forage.browser.flags import NO_SANDBOX, browser_environment, browser_flags
from forage.browser.processes import end_processes, is_same_process, own_identity, processes_of
from forage.browser.programs import ENVIRONMENT_VARIABLE
from forage.errors import BrowserMissingError
from tests.support.browsers import KINDS


def flags(**changes: object) -> tuple[str, ...]:
    given: dict[str, object] = {
        "profile": "/p",
        "proxy": "http://127.0.0.1:1",
        "transport": "websocket",
        "sandbox": True,
        "shared_memory": 1 << 40,
    }
    return browser_flags(**{**given, **changes})  # type: ignore[arg-type]  # the options of a test


def test_debians_programs_are_started_without_their_wrappers() -> None:
    for kind in KINDS:
        program = find_program(prefer=kind)
        assert program.path.parent == Path("/usr/lib/chromium")
        assert program.path.read_bytes()[:4] == b"\x7fELF"
    assert find_program("/usr/bin/chromium").path == Path("/usr/lib/chromium/chromium")
    assert find_program("chromium-headless-shell").kind == "shell"


def test_the_environment_names_a_program_and_an_argument_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "no-such-browser")
    with pytest.raises(BrowserMissingError, match=ENVIRONMENT_VARIABLE):
        find_program()
    assert find_program("chromium").kind == "full"


def test_a_missing_program_is_told_without_its_folder() -> None:
    with pytest.raises(BrowserMissingError) as caught:
        find_program("/secret/place/browser")
    assert "secret" not in str(caught.value)


def test_everything_goes_to_the_proxy_loopback_too_and_nothing_by_udp() -> None:
    given = flags()
    assert "--proxy-server=http://127.0.0.1:1" in given
    assert "--proxy-bypass-list=<-loopback>" in given
    assert "--webrtc-ip-handling-policy=disable_non_proxied_udp" in given
    assert "--force-webrtc-ip-handling-policy=disable_non_proxied_udp" in given
    assert "--disable-quic" in given
    assert given[-1] == "about:blank"


@pytest.mark.parametrize("sandbox", [True, False])
def test_the_sandbox_is_given_up_on_request_only(sandbox: bool) -> None:
    assert (NO_SANDBOX in flags(sandbox=sandbox)) is not sandbox


def test_shared_memory_is_avoided_only_where_there_is_little() -> None:
    assert "--disable-dev-shm-usage" not in flags()
    assert "--disable-dev-shm-usage" in flags(shared_memory=64 << 20)


def test_the_pipe_opens_no_port() -> None:
    assert not any(flag.startswith("--remote-debugging-port") for flag in flags(transport="pipe"))


@pytest.mark.parametrize(
    "flag",
    [
        "--no-pings",
        "--disable-popup-blocking",
        "--remote-allow-origins",
        "--disable-web-security",
        "--ignore-certificate-errors",
        "--single-process",
    ],
)
def test_flags_that_open_or_hide_something_are_never_given(flag: str) -> None:
    assert not any(given.startswith(flag) for given in flags())


def test_the_browser_sees_no_proxies_keys_or_sessions_of_its_user() -> None:
    environment = {
        "PATH": "/bin", "LANG": "C", "HTTP_PROXY": "http://x", "GOOGLE_API_KEY": "k", "DBUS_SESSION_BUS_ADDRESS": "unix:x", "HOME": "/root",
        "CHROMIUM_FLAGS": "--x", "DISPLAY": ":0", "SSLKEYLOGFILE": "/keys",
    }  # fmt: skip
    given = browser_environment(environment, "/h")
    assert given == {
        "PATH": "/bin", "LANG": "C", "HOME": "/h", "XDG_CONFIG_HOME": "/h", "XDG_CACHE_HOME": "/h", "XDG_RUNTIME_DIR": "/h", "TMPDIR": "/h",
    }  # fmt: skip


def test_a_process_is_known_by_its_number_and_its_start() -> None:
    pid, started = own_identity()
    assert pid == os.getpid()
    assert is_same_process(pid, started)
    assert not is_same_process(pid, started + 1)
    assert not is_same_process(4_000_000, 1)


def test_processes_of_a_group_and_of_a_directory_are_found_and_ended() -> None:
    mark = f"/forage-test-{os.getpid()}"
    code = "import time; time.sleep(60)"
    inside = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    outside = subprocess.Popen([sys.executable, "-c", code, mark], start_new_session=True)
    other = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        found = {process.pid: process for process in processes_of(inside.pid, mark)}
        assert set(found) == {inside.pid, outside.pid}
        assert found[inside.pid].kind == "browser"
        assert found[inside.pid].anonymous_bytes > 0
        assert set(end_processes(inside.pid, mark)) <= {inside.pid, outside.pid}
        assert (inside.wait(5), outside.wait(5)) == (-signal.SIGKILL, -signal.SIGKILL)
        assert other.poll() is None
        assert end_processes(inside.pid, mark) == ()
    finally:
        for process in (inside, outside, other):
            process.kill()
            process.wait()
