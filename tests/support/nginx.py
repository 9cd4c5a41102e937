"""A real web server that nobody here wrote: nginx of the operating system over a folder, on a free loopback port.

Owns finding nginx and Debian's Python documentation, and a server with its own configuration, prefix and process group that is gone after
its block. The listening socket is opened here and handed down (nginx inherits it as it would from its predecessor in an upgrade): the
port cannot be lost to another process, and a client that comes early waits in the backlog, so readiness needs no polling.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import trio

__all__ = ["NginxSite", "find_nginx", "find_python_docs", "open_nginx"]

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_KILL_AFTER = 5.0  # seconds between asking nginx to end and ending its process group

_CONFIG = """\
{user}
daemon off;
worker_processes 1;
pid {run}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 512; }}
http {{
    types {{
        text/html html;
        text/css css;
        text/plain txt;
        text/javascript js;
        application/xml xml;
        image/png png;
        image/svg+xml svg;
    }}
    default_type application/octet-stream;
    access_log {run}/access.log combined;
    client_body_temp_path {run}/body;
    proxy_temp_path {run}/proxy;
    fastcgi_temp_path {run}/fastcgi;
    uwsgi_temp_path {run}/uwsgi;
    scgi_temp_path {run}/scgi;
    keepalive_requests 100000;
    server {{
        listen {host}:{port};
        root {root};
    }}
}}
"""


@attrs.frozen(kw_only=True)
class NginxSite:
    """A running server: its origin (scheme, host, port), the folder behind it, and the log of what was asked."""

    origin: str
    root: Path
    access_log: Path


def find_nginx() -> Path | None:
    """The nginx of this machine, also where only root has it on the path."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")
    return None if found is None else Path(found)


def find_python_docs() -> Path | None:
    """The newest tree of HTML of Debian's package python3-doc."""
    indexes = Path("/usr/share/doc").glob("python3.*/html/index.html")
    roots = {int(found[1]): index.parent for index in indexes if (found := re.fullmatch(r"python3\.(\d+)", index.parent.parent.name))}
    return roots[max(roots)].resolve() if roots else None


@asynccontextmanager
async def open_nginx(root: Path, *, host: str = "127.0.0.1") -> AsyncIterator[NginxSite]:
    """Serve ``root``. Raises subprocess.CalledProcessError into the block when nginx ends by itself."""
    nginx = find_nginx()
    if nginx is None:
        raise FileNotFoundError("nginx is not installed; `make system` installs it")
    with TemporaryDirectory(prefix="forage-nginx-") as folder:
        async with trio.open_nursery() as nursery:
            port = await _start(nursery, nginx, Path(folder), root, host)
            try:
                yield NginxSite(origin=f"http://{host}:{port}", root=root, access_log=Path(folder, "access.log"))
            finally:
                nursery.cancel_scope.cancel()


async def _start(nursery: trio.Nursery, nginx: Path, run: Path, root: Path, host: str) -> int:
    """Start nginx in the nursery and give its port; the socket here is closed, so that the port is refused once nginx has gone."""
    with socket.create_server((host, 0), backlog=512) as listener:
        port: int = listener.getsockname()[1]
        config = run / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""
        config.write_text(_CONFIG.format(user=user, run=run, host=host, port=port, root=root), "utf-8")
        serve = partial(
            trio.run_process,
            [str(nginx), "-e", "stderr", "-p", str(run), "-c", str(config)],
            env={"NGINX": f"{listener.fileno()};"},
            pass_fds=[listener.fileno()],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            deliver_cancel=_end,
        )
        await nursery.start(serve)
    return port


async def _end(process: trio.Process) -> None:
    """Ask nginx to end (its workers end with it); what is left after a grace goes with its process group."""
    process.terminate()
    with trio.move_on_after(_KILL_AFTER, shield=True):
        await process.wait()
        return
    os.killpg(process.pid, signal.SIGKILL)
