"""The life of one Chromium process: a private profile, a process group of its own, a connection, and nothing left of them afterwards.

Owns start, readiness and clean-up, in the order profile, process, transport, reader; each is undone by the same coroutine that made it.
There is no polite end: a hung browser ignores it and a healthy one does not need it.

A parent that is killed runs no clean-up. The lifeline does it then: a shell in the browser's group that waits for the end of a pipe whose
other end only this process holds. (PR_SET_PDEATHSIG is no remedy: it fires when the thread that started the process ends.)
"""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from forage.browser.connection import CdpConnection
from forage.browser.errors import LeftBehindError
from forage.browser.flags import browser_environment, browser_flags
from forage.browser.options import BrowserOptions
from forage.browser.processes import end_processes, kill_group
from forage.browser.profiles import Profile, sweep_profiles
from forage.browser.programs import BrowserProgram, find_program
from forage.browser.transport import PipeTransport, Transport
from forage.browser.websocket import open_websocket
from forage.errors import BrowserError, BrowserErrorCode, BrowserLostError, InvalidPolicyError

__all__ = ["Chromium", "open_chromium"]

CLEAN_UP_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.005
_PAUSE_SECONDS: Final = 0.01
_LONGEST_LOG: Final = 65_536
_LONGEST_PLACE: Final = 1_024

# $1 is the profile, the rest the command. File 5 ends when the parent does; the browser itself does not have it. The loop outlasts children
# that still write while they end: it is over when the profile has stayed away.
_LIFELINE: Final = """
D=$1; shift
exec 5<&0 </dev/null
( exec >/dev/null 2>&1; read x <&5; kill -9 $$; n=0; away=0
while [ $n -lt 20 ] && [ $away -lt 4 ]; do
rm -rf "$D"; sleep 0.05; n=$((n+1)); away=$((away+1)); [ -e "$D" ] && away=0
done; kill -9 0 ) &
"""
_NO_LIFELINE: Final = "shift\n"
_RUN: Final = 'exec "$@" 5<&-'
_RUN_ON_PIPE: Final = 'exec "$@" 5<&- 3<&1 4>&1 >/dev/null'

_REASONS: Final = (
    (
        "Running as root without --no-sandbox",
        "root cannot have its sandbox: name an unprivileged user for it, or give the sandbox up",
    ),
    ("No usable sandbox", "this system gives no user namespaces to its sandbox: allow them, or give the sandbox up"),
    ("error while loading shared libraries", "a shared library is missing"),
    ("cannot open display", "it wants a display: it is too old for headless mode"),
)


@attrs.frozen(kw_only=True, eq=False)
class Chromium:
    """A browser that runs. ``group`` is its process group, which is the number of its first process, too.

    ``nursery`` is for tasks that live as long as the browser does. ``port`` is that of its debugging socket, None with the pipe.
    """

    connection: CdpConnection
    nursery: trio.Nursery
    program: BrowserProgram
    group: int
    port: int | None
    directory: str


@asynccontextmanager
async def open_chromium(options: BrowserOptions, *, proxy: str) -> AsyncIterator[Chromium]:
    """Start a browser whose own traffic goes to ``proxy``, until the block ends; then no process and no file of it is left.

    Raises BrowserMissingError; BrowserError (``browser-start-failed``) with the reason in words; LeftBehindError when clean-up does not
    finish in time; InvalidPolicyError for a user that cannot be had.
    """
    program = find_program(options.program, prefer=options.prefer)
    user = _user(options.user)
    await trio.to_thread.run_sync(sweep_profiles)
    try:
        launch = _Launch(options, user)
    except OSError as exc:
        raise BrowserError(f"the browser has no place for its profile: {exc.strerror}", code=BrowserErrorCode.START_FAILED) from exc
    failure: Exception | None = None
    try:
        await launch.spawn(program, proxy)
        async with trio.open_nursery() as nursery:
            try:
                connection = await launch.connect(nursery)
                yield Chromium(
                    connection=connection,
                    nursery=nursery,
                    program=program,
                    group=launch.pid,
                    port=launch.port,
                    directory=str(launch.profile.path),
                )
            except Exception as exc:  # noqa: BLE001 - raised below as it was, not in a group
                failure = exc
            nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(3 * CLEAN_UP_SECONDS, shield=True):  # what it does is bounded, each part by itself
            await launch.clean_up()
    if failure is not None:
        raise failure


def _user(name: str | None) -> pwd.struct_passwd | None:
    """The account to start the browser under, None for that of this process. Raises InvalidPolicyError."""
    if name is None:
        return None
    try:
        user = pwd.getpwnam(name)
    except KeyError as exc:
        raise InvalidPolicyError("user", "the name of an account of this machine", got=name) from exc
    if user.pw_uid == 0:
        raise InvalidPolicyError("user", "an unprivileged account", got=name)
    if user.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise InvalidPolicyError("user", "None, unless root starts the browser", got=name)
    return user


class _Launch:
    """What one start has made so far, so that all of it can be undone at any point."""

    def __init__(self, options: BrowserOptions, user: pwd.struct_passwd | None) -> None:
        self._options = options
        self._user = user
        self._process: trio.Process | None = None
        self._lifeline: int | None = None
        self._socket: socket.socket | None = None
        self.port: int | None = None
        self.profile = Profile(user)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _command(self, program: BrowserProgram, proxy: str) -> tuple[str, ...]:
        options = self._options
        memory = os.statvfs("/dev/shm")  # noqa: S108 - only its size is asked for
        flags = browser_flags(
            profile=str(self.profile.browser),
            proxy=proxy,
            transport=options.transport,
            sandbox=options.sandbox,
            shared_memory=memory.f_frsize * memory.f_blocks,
            extra=options.extra_flags,
        )
        as_user: tuple[str, ...] = ()
        if self._user is not None:
            as_user = ("setpriv", f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups", "--no-new-privs", "--")
        script = (_LIFELINE if options.lifeline else _NO_LIFELINE) + (_RUN_ON_PIPE if options.transport == "pipe" else _RUN)
        return ("sh", "-c", script, "forage-browser", str(self.profile.path), *as_user, str(program.path), *flags)

    async def spawn(self, program: BrowserProgram, proxy: str) -> None:
        """Start the process. The child's ends of what connects it are not kept, so that each side sees when the other is gone."""
        theirs: list[int] = []
        stdin = stdout = subprocess.DEVNULL
        try:
            if self._options.lifeline:
                stdin, self._lifeline = os.pipe()
                theirs.append(stdin)
            if self._options.transport == "pipe":
                self._socket, other = socket.socketpair()
                self._socket.setblocking(False)
                stdout = other.detach()
                theirs.append(stdout)
            log = os.open(self.profile.log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            theirs.append(log)
            # A cancellation in the middle would lose the only handle to a running process.
            with trio.CancelScope(shield=True):
                self._process = await trio.lowlevel.open_process(
                    self._command(program, proxy),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=log,
                    env=browser_environment(os.environ, str(self.profile.home)),
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as exc:
            raise BrowserError(f"the browser cannot be started: {exc.strerror}", code=BrowserErrorCode.START_FAILED) from exc
        finally:
            for number in theirs:
                os.close(number)

    async def connect(self, nursery: trio.Nursery) -> CdpConnection:
        """A connection that runs in ``nursery`` and on which the browser has answered. Raises BrowserError."""
        try:
            with trio.fail_after(self._options.start_seconds):
                connection = CdpConnection(await self._transport(nursery), seconds=self._options.call_seconds)
                await nursery.start(connection.converse)
                await connection.call("Browser.getVersion", seconds=self._options.start_seconds)
                return connection
        except trio.TooSlowError as exc:
            raise self._failed("it did not get ready in time") from exc
        except BrowserLostError as exc:
            raise self._failed("it ended at once") from exc

    async def _transport(self, nursery: trio.Nursery) -> Transport:
        if self._socket is not None:
            return PipeTransport(trio.SocketStream(trio.socket.from_stdlib_socket(self._socket)))
        self.port, path = await self._listening_place()
        return await open_websocket(nursery, self.port, path)

    async def _listening_place(self) -> tuple[int, str]:
        """Port and path of the debugging socket: there is nothing to wait for but the file that names them. Raises BrowserError."""
        place = self.profile.browser / "DevToolsActivePort"
        assert self._process is not None
        while self._process.poll() is None:
            try:
                with place.open("rb") as file:
                    port, _, path = file.read(_LONGEST_PLACE).decode("ascii", "replace").partition("\n")
                if port.isdecimal() and path:
                    return int(port), path.strip()
            except OSError:
                pass  # not yet
            await trio.sleep(_POLL_SECONDS)
        raise BrowserLostError

    def _failed(self, otherwise: str) -> BrowserError:
        """Why it did not start, in words; what it said itself may hold paths."""
        try:
            said = self.profile.log.read_bytes()[-_LONGEST_LOG:].decode("utf-8", "replace")
        except OSError:
            said = ""
        reason = next((words for sign, words in _REASONS if sign in said), otherwise)
        return BrowserError(f"the browser did not start: {reason}", code=BrowserErrorCode.START_FAILED)

    async def clean_up(self) -> None:
        """End and remove everything, whatever happened before. Raises LeftBehindError when it is not gone in time."""
        if self._socket is not None:
            self._socket.close()
        if self._process is None:
            left: tuple[int, ...] = ()
            removed = self.profile.remove()
        else:
            kill_group(self._process.pid)
            with trio.move_on_after(CLEAN_UP_SECONDS):
                await self._process.wait()
            left, removed = await trio.to_thread.run_sync(_remove_all, self._process.pid, self.profile)
        if self._lifeline is not None:
            os.close(self._lifeline)  # not before: it would begin to remove what is being removed here
        if left or not removed:
            raise LeftBehindError(left, None if removed else str(self.profile.path))


def _remove_all(group: int, profile: Profile) -> tuple[tuple[int, ...], bool]:
    """Kill and remove until nothing is left, for a bounded time: children die some milliseconds after their parent and may still write."""
    ends = time.monotonic() + CLEAN_UP_SECONDS
    while True:
        try:
            left = end_processes(group, str(profile.path))
        except OSError:  # no descriptor is left to look with; the group was killed before
            left = (group,)
        removed = profile.remove()
        if (not left and removed) or time.monotonic() > ends:
            return left, removed
        time.sleep(_PAUSE_SECONDS)
