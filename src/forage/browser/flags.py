"""The command line and the environment of a contained Chromium (pure).

Owns which flags are given, and why none of the missing ones is. They silence the browser's own traffic as far as flags can; what they miss
dies at the listener that the process-wide proxy points to, which refuses everything. Safety does not rest on any flag but the proxy's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

__all__ = ["NO_SANDBOX", "browser_environment", "browser_flags"]

NO_SANDBOX: Final = "--no-sandbox"

_FEATURES_OFF: Final = (
    "OptimizationHints",
    "OptimizationGuideModelDownloading",
    "MediaRouter",
    "DialMediaRouteProvider",
    "Translate",
    "AutofillServerCommunication",
    "CertificateTransparencyComponentUpdater",
    "InterestFeedContentSuggestions",
    "NetworkTimeServiceQuerying",
    # A renderer in reserve for each context: no context here outlives its one page, so that each would be started for nothing.
    "SpareRendererForSitePerProcess",
    # Names in the place of a page's local addresses are answered by multicast: the browser joins its group, and the network is told of it.
    # There are no local addresses to hide, as the policy below leaves a page no socket of its own.
    "WebRtcHideLocalIpsWithMdns",
)
_UDP_POLICY: Final = "disable_non_proxied_udp"
_SMALL_SHARED_MEMORY: Final = 512 * 1024 * 1024
_KEPT: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LANGUAGE", "TZ", "FONTCONFIG_PATH", "FONTCONFIG_FILE", "LD_LIBRARY_PATH")


def browser_flags(
    *,
    profile: str,
    proxy: str,
    transport: Literal["websocket", "pipe"],
    sandbox: bool,
    shared_memory: int,
    extra: Iterable[str] = (),
) -> tuple[str, ...]:
    """All flags and the first URL.

    ``proxy`` is the URL of a listener that refuses everything, ``shared_memory`` the size of /dev/shm in bytes.

    Not given, on purpose: ``--no-pings`` (hides pings from the log), ``--disable-popup-blocking``, ``--remote-allow-origins`` (a page could
    then drive the browser), ``--disable-web-security``, ``--allow-file-access-from-files``, ``--ignore-certificate-errors``,
    ``--single-process``.
    """
    return (
        "--headless=new",
        f"--user-data-dir={profile}",
        "--no-first-run",
        "--no-default-browser-check",
        "--remote-debugging-pipe" if transport == "pipe" else "--remote-debugging-port=0",
        f"--proxy-server={proxy}",
        # Without it localhost, 127.0.0.0/8 and [::1] go direct, past the guard.
        "--proxy-bypass-list=<-loopback>",
        # One program obeys only the first spelling, the other only the second; the wrong one is ignored without a word, and STUN then
        # leaves by UDP, past every proxy.
        f"--webrtc-ip-handling-policy={_UDP_POLICY}",
        f"--force-webrtc-ip-handling-policy={_UDP_POLICY}",
        "--disable-quic",
        "--site-per-process",
        "--disable-background-networking",
        "--disable-component-update",
        # The flag above does not keep it from asking its update host.
        "--component-updater=url-source=http://127.0.0.1:9/",
        "--disable-sync",
        "--disable-default-apps",
        "--disable-extensions",
        "--disable-component-extensions-with-background-pages",
        "--disable-client-side-phishing-detection",
        "--disable-domain-reliability",
        "--disable-breakpad",
        "--metrics-recording-only",
        f"--disable-features={','.join(_FEATURES_OFF)}",
        "--mute-audio",
        "--hide-scrollbars",
        "--disable-gpu",
        "--password-store=basic",
        "--use-mock-keychain",
        *(() if sandbox else (NO_SANDBOX,)),
        *(("--disable-dev-shm-usage",) if shared_memory < _SMALL_SHARED_MEMORY else ()),
        *extra,
        "about:blank",
    )


def browser_environment(environment: Mapping[str, str], home: str) -> dict[str, str]:
    """What the browser gets to see of ``environment``: no proxy settings, keys or sessions of its user; ``home`` for all it writes."""
    kept = {name: environment[name] for name in _KEPT if name in environment}
    return {**kept, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home, "XDG_RUNTIME_DIR": home, "TMPDIR": home}
