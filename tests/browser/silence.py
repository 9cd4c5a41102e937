"""Does a browser say anything by itself: ``python -m tests.browser.silence [--idle S] [--pages N] [--kind shell|full]``.

Runs each program in a network namespace of its own, in which everything but loopback leads to one device that ends nowhere: idle for a
while, then pages that mean to get past the guard by name, address and datagram. Not a packet may have been sent on the device (by its own
counters; a capture names those that were). Then a control: the same program, started without its guard and sent to one address, must be
seen there. One JSON line for each program; exit code 1 when one was not silent or not seen, 2 when there can be no such namespace here.

The namespace is made by `unshare` and `ip`, as root. The device is a dummy one, or an end of a veth pair where the kernel has no dummies.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import trio

from forage.browser import PageOutcome, find_program, open_browser, visit_page
from tests.support.browser_site import BrowserSite, html, open_browser_site
from tests.support.browsers import Kind, browser_options, installed_kinds

__all__ = ["faults", "obstacle", "watch_browser"]

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DEVICE, OTHER_END = "wild", "void"
NOBODY = "198.51.100.7"  # RFC 5737: documentation, nobody's
NAME_SERVER = "198.18.0.53"
UNSHARE: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
SETTLE_SECONDS: Final = 0.3
CONTROL_SECONDS: Final = 20.0
ETH_P_ALL: Final = 3
# Of the kernel itself as an interface comes up, and no program's: routers asked for, groups of neighbours joined.
QUIET_KERNEL: Final = {"router_solicitations": "0", "accept_ra": "0", "autoconf": "0", "accept_dad": "0", "dad_transmits": "0"}

PAGE: Final = f"""<!doctype html><title>loud</title>
<link rel=dns-prefetch href=//prefetch.test><link rel=preconnect href=https://preconnect.test><link rel=prefetch href=http://{NOBODY}/p>
<link rel=icon href=http://{NOBODY}/icon.png>
<img src=http://{NOBODY}/i.png><img src=https://image.test/i.png><iframe src=http://frame.test/></iframe>
<script>
fetch("http://{NOBODY}/f").catch(() => 0); navigator.sendBeacon("http://{NOBODY}/b");
try {{ new WebSocket("ws://{NOBODY}/w") }} catch {{}}
try {{ new WebTransport("https://{NOBODY}/t").ready.catch(() => 0) }} catch {{}}
const peer = new RTCPeerConnection({{iceServers: [{{urls: ["stun:{NOBODY}:3478", "stun:stun.test:3478"]}}]}});
peer.createDataChannel("x"); peer.createOffer().then(offer => peer.setLocalDescription(offer));
</script><p>text
"""


def obstacle() -> str | None:
    """Why there can be no such namespace here; None when there can."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    try:
        made = subprocess.run([*UNSHARE, sys.executable, "-c", _TRY], cwd=ROOT, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"unshare cannot be run: {exc}"
    return None if made.returncode == 0 else f"no namespace with a device: {made.stderr.decode('utf-8', 'replace').strip()[-200:]}"


_TRY = "from tests.browser.silence import open_wilderness; open_wilderness()"


# inside: a network that leads nowhere


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def open_wilderness() -> None:
    """Loopback, and a default route for everything else, names too. Raises OSError, CalledProcessError."""
    _ip("link", "set", "lo", "up")
    try:
        _ip("link", "add", DEVICE, "type", "dummy")
    except subprocess.CalledProcessError:
        _ip("link", "add", DEVICE, "type", "veth", "peer", "name", OTHER_END)
        Path(f"/proc/sys/net/ipv6/conf/{OTHER_END}/disable_ipv6").write_text("1", "ascii")
        _ip("link", "set", OTHER_END, "up")
    for name, value in QUIET_KERNEL.items():
        Path(f"/proc/sys/net/ipv6/conf/{DEVICE}/{name}").write_text(value, "ascii")
    _ip("link", "set", DEVICE, "addrgenmode", "none", "arp", "off")
    _ip("link", "set", DEVICE, "up")
    _ip("addr", "add", "198.18.0.2/24", "dev", DEVICE)
    _ip("-6", "addr", "add", "2001:db8::2/64", "dev", DEVICE, "nodad")
    _ip("route", "add", "default", "dev", DEVICE)
    _ip("-6", "route", "add", "default", "dev", DEVICE)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as names:
        names.write(f"nameserver {NAME_SERVER}\n")
        names.flush()
        Path(names.name).chmod(0o644)
        subprocess.run(["mount", "--bind", names.name, os.path.realpath("/etc/resolv.conf")], check=True, capture_output=True)


def sent() -> int:
    """Packets that the device has sent so far."""
    for line in Path("/proc/self/net/dev").read_text("ascii").splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == DEVICE:
            return int(figures.split()[9])
    raise RuntimeError(f"no device {DEVICE}")


def named(frame: bytes) -> str:
    """A frame in words: protocol, where to, what of."""
    packet = frame[14:]
    protocols = {1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 58: "icmp6"}
    if packet[:1] and packet[0] >> 4 == 4 and len(packet) >= 20:
        protocol, target, begins = packet[9], packet[16:20], 4 * (packet[0] & 15)
    elif packet[:1] and packet[0] >> 4 == 6 and len(packet) >= 40:
        protocol, target, begins = packet[6], packet[24:40], 40
    else:
        return f"frame of type {frame[12:14].hex()}"
    text = f"{protocols.get(protocol, protocol)} to {ip_address(target)}"
    if protocol in (6, 17) and len(packet) >= begins + 4:
        text += f" port {struct.unpack_from('!H', packet, begins + 2)[0]}"
    return f"{text} {packet[begins + 8 : begins + 60]!r}" if protocol == 17 else text


class Capture:
    """What leaves by the device, in words, from when this is made."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.bind((DEVICE, 0))
        self._socket.setblocking(False)
        self.frames: list[str] = []

    async def more(self) -> None:
        """Wait until something has come."""
        await trio.lowlevel.wait_readable(self._socket)

    def look(self) -> list[str]:
        """All of it so far."""
        with suppress(BlockingIOError):
            while True:
                frame, place = self._socket.recvfrom(65_536)
                if place[2] == socket.PACKET_OUTGOING:  # type: ignore[attr-defined,unused-ignore]
                    self.frames.append(named(frame))
        return self.frames


async def idle_and_pages(kind: Kind, idle: float, pages: int) -> dict[str, Any]:
    """What came of it; whatever was sent meanwhile is for the caller to count."""
    routes = {f"/{n}": html(PAGE) for n in range(pages)}
    async with open_browser_site(routes) as site, open_browser(browser_options(kind)) as browser:
        await trio.sleep(idle)
        outcomes = [await _visit(browser, site, n) for n in range(pages)]
        return {"outcomes": sorted(set(outcomes)), "refused": sorted({event.host or "?" for event in browser.refused})}


async def _visit(browser: Any, site: BrowserSite, number: int) -> str:
    seen = await visit_page(browser, f"{site.origin}/{number}", site.options(quiet=0.2))
    asked = sum(NOBODY in entry.url for entry in seen.requests)
    assert asked >= 3, (seen.outcome, seen.error, seen.requests)  # the page did try
    return str(seen.outcome.value)


async def control(kind: Kind, capture: Capture) -> list[str]:
    """The same program without a guard, sent to one address: what was seen of it."""
    before = len(capture.look())
    with tempfile.TemporaryDirectory(prefix="forage-control-") as folder:
        Path(folder).chmod(0o777)
        user = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs", "--", "env", f"HOME={folder}")
        command = [*user, str(find_program(prefer=kind).path), "--headless=new", f"--user-data-dir={folder}/p", f"http://{NOBODY}/control"]
        loud = await trio.lowlevel.open_process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            with trio.move_on_after(CONTROL_SECONDS):
                while not any(f"tcp to {NOBODY} port 80" in frame for frame in capture.look()[before:]):
                    await capture.more()
        finally:
            os.killpg(loud.pid, signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await loud.wait()
                await trio.sleep(SETTLE_SECONDS)
    return [frame for frame in capture.look()[before:] if NOBODY in frame]


async def inside(kind: Kind, idle: float, pages: int) -> dict[str, Any]:
    """One program in this namespace; its row."""
    open_wilderness()
    await trio.sleep(SETTLE_SECONDS)
    capture, before = Capture(), sent()
    came = await idle_and_pages(kind, idle, pages)
    await trio.sleep(SETTLE_SECONDS)
    packets, frames = sent() - before, list(capture.look())
    seen = await control(kind, capture)
    return {
        "kind": kind,
        "idle": idle,
        "pages": pages,
        **came,
        "packets": packets,
        "frames": frames[:20],
        "control": {"packets": sent() - before - packets, "first": seen[:1]},
    }


# outside


async def watch_browser(kind: Kind, *, idle: float, pages: int) -> dict[str, Any]:
    """Run one program in a namespace of its own; the row of what was seen. Raises CalledProcessError."""
    command = [
        *UNSHARE,
        sys.executable,
        "-m",
        "tests.browser.silence",
        "--inside",
        "--kind",
        kind,
        "--idle",
        str(idle),
        "--pages",
        str(pages),
    ]
    done = await trio.run_process(command, cwd=ROOT, capture_stdout=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def faults(row: dict[str, Any]) -> list[str]:
    """What is wrong with a row; an empty list for a silent browser that would have been heard."""
    found = [f"{row['packets']} packets were sent: {row['frames']}"] * (row["packets"] > 0 or bool(row["frames"]))
    found += ["its control was not seen"] * (not row["control"]["packets"] or not row["control"]["first"])
    found += [f"its pages ended in {row['outcomes']}"] * bool(set(row["outcomes"]) - {PageOutcome.OK.value, PageOutcome.NOT_IDLE.value})
    return found


async def _run(kinds: Sequence[Kind], idle: float, pages: int, tell: Callable[[str], None]) -> int:
    wrong = 0
    for kind in kinds:
        row = await watch_browser(kind, idle=idle, pages=pages)
        tell(json.dumps(row))
        for fault in faults(row):
            wrong += 1
            tell(f"{kind}: {fault}")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=float, default=60.0, metavar="S")
    parser.add_argument("--pages", type=int, default=20, metavar="N")
    parser.add_argument("--kind", choices=("shell", "full"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(trio.run(inside, args.kind, args.idle, args.pages)))
        return 0
    why_not = obstacle()
    if why_not is not None:
        print(why_not, file=sys.stderr)
        return 2
    kinds = [args.kind] if args.kind else installed_kinds()
    return trio.run(_run, kinds, args.idle, args.pages, lambda text: print(text, flush=True))


if __name__ == "__main__":
    raise SystemExit(main())
