"""A program on a terminal of its own: what it shows, and keys pressed there. It is the controlling terminal, so that Ctrl-C interrupts."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

__all__ = ["Terminal", "open_terminal"]

_ON_ITS_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    """A running program. ``shown`` is everything it wrote, control sequences included."""

    def __init__(self, process: trio.Process, fd: int) -> None:
        self.process = process
        self.shown = ""
        self._fd = fd

    def press(self, keys: str) -> None:
        """Type ``keys``; ``\\x03`` is Ctrl-C."""
        os.write(self._fd, keys.encode())

    async def read(self) -> bool:
        """Wait for more output; False when the program has closed the terminal."""
        await trio.lowlevel.wait_readable(self._fd)
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # Linux: no process has the terminal open any more
            data = b""
        self.shown += data.decode("utf-8", "replace")
        return bool(data)

    async def until(self, text: str) -> None:
        """Wait until ``text`` was shown."""
        while text not in self.shown:
            assert await self.read(), f"ended without {text!r}: {self.shown}"

    async def end(self) -> int:
        """Read to the end; the exit code."""
        while await self.read():
            pass
        return await self.process.wait()


@asynccontextmanager
async def open_terminal(
    command: Sequence[str], *, columns: int = 120, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Terminal]:
    """Run ``command`` on a new terminal; it is killed when the block ends before it does."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    try:
        async with trio.open_nursery() as nursery:
            wrapped = [sys.executable, "-c", _ON_ITS_TERMINAL, *command]
            streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
            env = {**os.environ, "TERM": "xterm", **(environment or {})}
            run = partial(trio.run_process, wrapped, **streams, env=env, start_new_session=True, check=False)
            process: trio.Process = await nursery.start(run)
            os.close(theirs)
            theirs = -1
            yield Terminal(process, ours)
            nursery.cancel_scope.cancel()
    finally:
        if theirs != -1:
            os.close(theirs)
        os.close(ours)
